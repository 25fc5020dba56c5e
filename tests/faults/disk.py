"""A disk that loses power: what was not synced may be there, may be gone, and may be there in part.

SQLite runs on it through a file system of its own. A write is pending until its file is synced. A crash keeps, of every
pending write, a random choice of its sectors: writes are dropped, torn and reordered. A sync can be made to fail; then
the pages look written, are pending no more, and are not on the disk: what a kernel does that marks them clean.
"""

import random
from typing import Any

import apsw

SECTOR = 512
_VFS = "pianissimo-faults"
_disks: dict[str, "Disk"] = {}


class Image:
    """One file: what is on the disk, what readers see, and what is pending in between."""

    __slots__ = ("durable", "exists", "pending", "seen")

    def __init__(self) -> None:
        self.durable = bytearray()
        self.seen = bytearray()
        self.pending: list[tuple[int, bytes]] = []
        self.exists = False

    def write(self, offset: int, content: bytes) -> None:
        _put(self.seen, offset, content)
        self.pending.append((offset, content))

    def truncate(self, size: int) -> None:
        del self.seen[size:]
        self.pending.append((-1 - size, b""))

    def sync(self) -> None:
        if self.pending:
            self.durable[:] = self.seen
            self.pending.clear()
        self.exists = True

    def fail_to_sync(self, chance: random.Random) -> None:
        """Some of it reaches the disk; all of it looks clean."""
        for offset, content in self.pending:
            if chance.random() < 0.5:
                _apply(self.durable, offset, content)
        self.pending.clear()
        self.exists = True

    def lose_power(self, chance: random.Random) -> None:
        share = chance.choice((0.0, 0.5, 0.9, 1.0))
        for offset, content in self.pending:
            if offset < 0:
                if chance.random() < share:
                    _apply(self.durable, offset, content)
                continue
            for place in range(0, len(content), SECTOR):
                if chance.random() < share:
                    _put(self.durable, offset + place, content[place : place + SECTOR])
        self.pending.clear()
        self.seen[:] = self.durable


def _apply(target: bytearray, offset: int, content: bytes) -> None:
    if offset < 0:
        del target[-1 - offset :]
    else:
        _put(target, offset, content)


def _put(target: bytearray, offset: int, content: bytes) -> None:
    if len(target) < offset:
        target.extend(bytes(offset - len(target)))
    target[offset : offset + len(content)] = content


class Disk:
    """Files of one machine."""

    def __init__(self, name: str, seed: int = 0) -> None:
        self.name = name
        self.chance = random.Random(seed)
        self.files: dict[str, Image] = {}
        self.generation = 0
        self.syncs = 0
        self.fail_sync_at: int | None = None
        self.capacity: int | None = None
        self.operations = 0
        self.lose_power_at: int | None = None
        """The power goes before this operation on a file."""
        _disks[name] = self
        _register()

    @property
    def vfs(self) -> str:
        return _VFS

    @property
    def path(self) -> str:
        return f"/{self.name}/state.db"

    def end_process(self) -> None:
        """The process is gone; what it wrote is in the kernel's cache."""
        self.generation += 1

    def lose_power(self) -> None:
        """The machine is gone; what was not synced is as it may be."""
        self.generation += 1
        for name, image in list(self.files.items()):
            image.lose_power(self.chance)
            if not image.exists and self.chance.random() < 0.5:
                del self.files[name]

    def copy(self) -> dict[str, bytes]:
        """A backup."""
        return {name: bytes(image.seen) for name, image in self.files.items()}

    def restore(self, backup: dict[str, bytes]) -> None:
        """Put a backup in the place of everything."""
        self.generation += 1
        self.files.clear()
        for name, content in backup.items():
            image = self.files[name] = Image()
            image.durable[:] = content
            image.seen[:] = content
            image.exists = True

    def count(self) -> None:
        """One more operation; it may be one too many."""
        self.operations += 1
        if self.lose_power_at is not None and self.operations >= self.lose_power_at:
            self.lose_power_at = None
            self.lose_power()
            raise _fault(apsw.IOError, apsw.SQLITE_IOERR)

    def sync(self, image: Image) -> None:
        self.syncs += 1
        if self.fail_sync_at is not None and self.syncs >= self.fail_sync_at:
            self.fail_sync_at = None
            image.fail_to_sync(self.chance)
            raise _fault(apsw.IOError, apsw.SQLITE_IOERR_FSYNC)
        image.sync()

    def check_room(self, image: Image, end: int) -> None:
        if self.capacity is not None and end > len(image.seen):
            used = sum(len(each.seen) for each in self.files.values())
            if used + end - len(image.seen) > self.capacity:
                raise _fault(apsw.FullError, apsw.SQLITE_FULL)

    def drop(self) -> None:
        self.end_process()
        _disks.pop(self.name, None)


def _fault(kind: type[apsw.Error], code: int) -> apsw.Error:
    error = kind("made by a test")
    error.extendedresult = code  # type: ignore[attr-defined]
    return error


class _File:
    def __init__(self, disk: Disk, name: str) -> None:
        self.disk = disk
        self.name = name
        self.generation = disk.generation
        self.image = disk.files.setdefault(name, Image())

    def _check_alive(self) -> None:
        if self.generation != self.disk.generation:
            raise _fault(apsw.IOError, apsw.SQLITE_IOERR)

    def excepthook(self, *_: object) -> None:
        """Faults are meant; SQLite hears of them by their code."""

    def xRead(self, amount: int, offset: int) -> bytes:
        self._check_alive()
        return bytes(self.image.seen[offset : offset + amount])

    def xWrite(self, content: bytes, offset: int) -> None:
        self._check_alive()
        self.disk.count()
        self.disk.check_room(self.image, offset + len(content))
        self.image.write(offset, bytes(content))

    def xTruncate(self, size: int) -> None:
        if self.generation == self.disk.generation:
            self.image.truncate(size)

    def xSync(self, flags: int) -> None:
        if self.generation == self.disk.generation:
            self.disk.count()
            self.disk.sync(self.image)

    def xFileSize(self) -> int:
        self._check_alive()
        return len(self.image.seen)

    def xLock(self, level: int) -> None:
        pass

    def xUnlock(self, level: int) -> None:
        pass

    def xCheckReservedLock(self) -> bool:
        return False

    def xClose(self) -> None:
        pass

    def xSectorSize(self) -> int:
        return SECTOR

    def xDeviceCharacteristics(self) -> int:
        return 0

    def xFileControl(self, operation: int, pointer: int) -> bool:
        return False


class _FileSystem(apsw.VFS):
    def __init__(self) -> None:
        super().__init__(_VFS, "")

    def xFullPathname(self, name: str) -> str:
        return name

    def xOpen(self, name: Any, flags: list[int]) -> Any:
        path = name.filename() if isinstance(name, apsw.URIFilename) else (name or "/none/temporary")
        flags[1] = flags[0]
        _, disk, file = path.split("/", 2)
        return _File(_disks[disk], file)

    def xDelete(self, name: str, sync: bool) -> None:
        _, disk, file = name.split("/", 2)
        if disk in _disks:
            _disks[disk].files.pop(file, None)

    def xAccess(self, name: str, flags: int) -> bool:
        _, disk, file = name.split("/", 2)
        image = _disks[disk].files.get(file) if disk in _disks else None
        return image is not None and (file == "state.db" or len(image.seen) > 0)


_file_system: _FileSystem | None = None


def _register() -> None:
    global _file_system
    if _file_system is None:
        _file_system = _FileSystem()
