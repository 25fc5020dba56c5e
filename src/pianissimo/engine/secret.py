"""Where the secret of a durable stream comes from: a file, an environment variable or a command. Never the store."""

import os
import subprocess
from pathlib import Path

from pianissimo.errors import LedgerError, ParameterError, SecretError
from pianissimo.ledger import check_key_path, key_file
from pianissimo.noise import Secret

Given = Secret | str | Path | None
_PATIENCE = 30


def read_secret(given: Given, *, beside: Path, create: bool) -> Secret:
    """The secret itself, or where it is: a path, `env:NAME` or `command:WORDS`; None for the file `beside`.

    With `create`, a file that is not there is made, open to its owner alone.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     made = read_secret(None, beside=Path(folder, "state.secret"), create=True)
    ...     made == read_secret(f"{folder}/state.secret", beside=Path("nowhere"), create=False)
    True
    >>> read_secret("env:NO_SUCH_VARIABLE", beside=Path("nowhere"), create=False)
    Traceback (most recent call last):
    pianissimo.errors.SecretError: the variable NO_SUCH_VARIABLE must hold 64 hexadecimal digits, got nothing
    """
    if isinstance(given, Secret):
        return given
    check_key_path("secret", given)
    if isinstance(given, str) and given.startswith("env:"):
        name = given.removeprefix("env:")
        return _parsed(os.environ.get(name), f"the variable {name}")
    if isinstance(given, str) and given.startswith("command:"):
        return _from_command(given.removeprefix("command:"))
    if given is not None and not isinstance(given, str | Path):
        raise ParameterError(f"secret must be a Secret, a path, env:NAME or command:WORDS, got {type(given).__name__}")
    path = beside if given is None else Path(given)
    if not create and not path.exists():
        raise SecretError(f"there must be a secret at {path}, got no such file; without it the stream cannot go on")
    try:
        return key_file(path, create=create)
    except LedgerError as error:
        raise SecretError(str(error).replace("a key file", "a secret file")) from None


def _from_command(text: str) -> Secret:
    import shlex

    try:
        words = shlex.split(text)
        if not words:
            raise SecretError("the command for the secret must be given after command:, got nothing")
        found = subprocess.run(words, capture_output=True, timeout=_PATIENCE, check=False)  # noqa: S603
    except (OSError, ValueError, subprocess.TimeoutExpired):
        raise SecretError("the command for the secret must run and end, got one that does not") from None
    if found.returncode != 0:
        raise SecretError(f"the command for the secret must succeed, got exit code {found.returncode}")
    return _parsed(found.stdout.decode("ascii", "replace"), "what the command for the secret prints")


def _parsed(text: str | None, what: str) -> Secret:
    if not text:
        raise SecretError(f"{what} must hold 64 hexadecimal digits, got nothing")
    try:
        return Secret(bytes.fromhex(text.strip()))
    except ValueError:  # a ParameterError is one too
        raise SecretError(f"{what} must hold 64 hexadecimal digits, got something else") from None
