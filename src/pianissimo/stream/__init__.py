"""What the user writes: streams, their batches and their releases."""

from pianissimo.stream.live import Live
from pianissimo.stream.release import StreamRelease
from pianissimo.stream.stream import Stream

__all__ = ["Live", "Stream", "StreamRelease"]
