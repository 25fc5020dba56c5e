"""Where shards keep what ticks add and their states: blobs on storage that all who have shards can reach.

A blob is named by the life of a stream, its tick, its shard and the keyed digest of its content. It is written whole or
not at all, and never again: who comes second finds it there. What is in it is closed by whoever writes it.
"""

import contextlib
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from pianissimo.errors import DamageError
from pianissimo.storage.files import fault_of, keep_from_git, make_folder, write_many


class BlobName(NamedTuple):
    """Which blob of a life."""

    tick: int
    shard: int
    digest: bytes


class BlobFolder:
    """The blobs of one life of a stream: a folder for each tick, so that one sync is enough for all names of a tick."""

    def __init__(self, folder: Path, incarnation: bytes) -> None:
        self._top, self._folder = folder, folder / incarnation.hex()
        self._sure: set[Path] = set()
        """Folders whose names are on the disk: the two above, and that of the tick that was stored last."""

    def put(self, tick: int, contents: Mapping[BlobName, bytes]) -> None:
        """Store blobs of a tick, those that are not there yet; on return they are durable."""
        if not contents:
            return
        levels = (self._top, self._folder, self._folder / str(tick))
        try:
            for level in levels:
                if level not in self._sure or not level.exists():
                    make_folder(level)
            if self._top not in self._sure:
                keep_from_git(self._top)
            self._sure = {*levels}
            write_many(levels[-1], {_text(name): content for name, content in contents.items()})
        except OSError as error:
            raise fault_of(error, self._top) from None

    def get(self, name: BlobName) -> bytes:
        """What is stored under a name."""
        try:
            return (self._folder / str(name.tick) / _text(name)).read_bytes()
        except FileNotFoundError:
            raise DamageError(
                f"what shard {name.shard} stored at tick {name.tick} must be there, got none; bring {self._top} back"
            ) from None
        except OSError as error:
            raise fault_of(error, self._top) from None

    def ticks(self) -> list[int]:
        """The ticks of which there may be any."""
        with contextlib.suppress(OSError):
            return sorted(int(path.name) for path in self._folder.iterdir() if path.name.isdigit())
        return []

    def remove(self, tick: int, kept: frozenset[BlobName] = frozenset()) -> None:
        """Let go of those of a tick."""
        folder, names = self._folder / str(tick), {_text(name) for name in kept}
        if not names:
            # What cannot be removed is in nobody's way.
            shutil.rmtree(folder, ignore_errors=True)
            return
        for path in folder.iterdir() if folder.exists() else ():
            if path.name not in names:
                path.unlink(missing_ok=True)

    def __repr__(self) -> str:
        return "BlobFolder(hidden)"


def _text(name: BlobName) -> str:
    return f"{name.shard}-{name.digest.hex()}"
