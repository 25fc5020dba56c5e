//! What is stored: keys that follow from a secret, and content that is encrypted for one place.
//!
//! HKDF with SHA-256 is RFC 5869; AES-256-GCM is NIST SP 800-38D, with nonces of twelve bytes that the caller draws anew
//! for each content. Both are those of `RustCrypto`.

use aes_gcm::Aes256Gcm;
use aes_gcm::aead::{Aead, KeyInit, Nonce, Payload};
use hkdf::Hkdf;
use sha2::Sha256;

use crate::error::Error;

/// The bytes of a nonce.
pub const NONCE_BYTES: usize = 12;

/// The key that follows from a secret for one purpose.
pub fn derived_key(secret: &[u8], salt: &[u8], purpose: &[u8]) -> [u8; 32] {
    let mut key = [0; 32];
    let long_enough = Hkdf::<Sha256>::new(Some(salt), secret).expand(purpose, &mut key);
    debug_assert!(long_enough.is_ok(), "HKDF gives up to 255 blocks of 32 bytes");
    key
}

/// A cipher with its key, which is wiped when it is dropped.
pub struct Vault(Aes256Gcm);

impl Vault {
    /// The cipher of a key.
    pub fn new(key: &[u8; 32]) -> Self {
        Vault(Aes256Gcm::new(&(*key).into()))
    }

    /// The content, encrypted for a place, with its tag behind.
    pub fn close(&self, nonce: &[u8; NONCE_BYTES], content: &[u8], place: &[u8]) -> Result<Vec<u8>, Error> {
        self.0
            .encrypt(&Nonce::<Aes256Gcm>::from(*nonce), Payload { msg: content, aad: place })
            .map_err(|_| Error::Parameter("content must be at most 64 GiB, got more".to_owned()))
    }

    /// What was encrypted for this place, or nothing where it is not what was encrypted.
    pub fn open(&self, nonce: &[u8; NONCE_BYTES], content: &[u8], place: &[u8]) -> Option<Vec<u8>> {
        self.0.decrypt(&Nonce::<Aes256Gcm>::from(*nonce), Payload { msg: content, aad: place }).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(hex: &str) -> Vec<u8> {
        (0..hex.len() / 2).map(|at| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).unwrap()).collect()
    }

    #[test]
    fn keys_are_those_of_the_rfc() {
        // RFC 5869, appendix A.1: the first 32 of its 42 bytes.
        let secret = [0x0b; 22];
        let salt: Vec<u8> = (0..=0x0c).collect();
        let info: Vec<u8> = (0xf0..=0xf9).collect();
        let wanted = bytes("3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf");
        assert_eq!(derived_key(&secret, &salt, &info).as_slice(), wanted);
    }

    #[test]
    fn ciphertexts_are_those_of_the_standard() {
        // The Galois/Counter Mode of Operation, McGrew and Viega, test case 16.
        let key = bytes("feffe9928665731c6d6a8f9467308308feffe9928665731c6d6a8f9467308308");
        let nonce = bytes("cafebabefacedbaddecaf888");
        let content = bytes(concat!(
            "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a72",
            "1c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657ba637b39"
        ));
        let place = bytes("feedfacedeadbeeffeedfacedeadbeefabaddad2");
        let wanted = bytes(concat!(
            "522dc1f099567d07f47f37a32a84427d643a8cdcbfe5c0c97598a2bd2555d1aa",
            "8cb08e48590dbb3da7b08b1056828838c5f61e6393ba7a0abcc9f662",
            "76fc6ece0f4e1768cddf8853bb2d551b"
        ));
        let vault = Vault::new(key.as_slice().try_into().unwrap());
        let nonce = nonce.as_slice().try_into().unwrap();
        assert_eq!(vault.close(nonce, &content, &place).unwrap(), wanted);
        assert_eq!(vault.open(nonce, &wanted, &place).unwrap(), content);
        assert_eq!(vault.open(nonce, &wanted, b"elsewhere"), None);
        for at in 0..wanted.len() {
            let mut changed = wanted.clone();
            changed[at] ^= 1;
            assert_eq!(vault.open(nonce, &changed, &place), None);
        }
        assert_eq!(vault.open(nonce, &wanted[..15], &place), None);
    }
}
