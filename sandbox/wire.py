"""Frames: four bytes of length, then JSON text. No sockets here; bytes in, messages out."""

from __future__ import annotations

import re
import struct
from typing import Any, Final, TypeVar

import msgspec

from sandbox.errors import LocalProtocolError, RemoteProtocolError
from sandbox.messages import FromWorker, ToWorker, Wave

HEADER_BYTES: Final = 4
ZYGOTE_READY: Final = b"ready"
FORK, FORK_SPARE, REAP = b"F", b"S", b"R"  # what a zygote is asked for
EXIT: Final = struct.Struct("<IQQ")  # how a zygote reports a reaped worker: wait status, peak bytes, CPU microseconds
WAVE_ITEMS: Final = 100_000  # entries of one wave; far above what honest limits let through, so nothing is unbounded
# Up to here a frame is decoded at once. In a larger one entries are counted first: each takes up to 30 times its bytes.
AT_ONCE_BYTES: Final = 1 << 18

_encoder = msgspec.json.Encoder()
_from_worker = msgspec.json.Decoder(FromWorker)
_to_worker: msgspec.json.Decoder[ToWorker] = msgspec.json.Decoder(ToWorker)
Message = TypeVar("Message")


class _Outline(msgspec.Struct, frozen=True, tag="wave"):
    """A wave whose lists have not been looked into."""

    calls: msgspec.Raw = msgspec.Raw(b"[]")
    timers: msgspec.Raw = msgspec.Raw(b"[]")
    cleared: msgspec.Raw = msgspec.Raw(b"[]")
    text: msgspec.Raw = msgspec.Raw(b"[]")
    images: msgspec.Raw = msgspec.Raw(b"[]")
    logs: msgspec.Raw = msgspec.Raw(b"[]")
    warnings: msgspec.Raw = msgspec.Raw(b"[]")
    dropped_logs: msgspec.Raw = msgspec.Raw(b"0")
    awaits: msgspec.Raw = msgspec.Raw(b"[]")
    heard: msgspec.Raw = msgspec.Raw(b"[]")
    end: msgspec.Raw = msgspec.Raw(b"null")
    more: msgspec.Raw = msgspec.Raw(b"false")


_outline = msgspec.json.Decoder(_Outline)
_fields: Final[dict[str, msgspec.json.Decoder[Any]]] = {
    field.encode_name: msgspec.json.Decoder(field.type) for field in msgspec.structs.fields(Wave)
}
_ENTRY: Final = {"timers": b"{", "images": b"{", "cleared": b",", "awaits": b",", "heard": b","}  # each has one


def frame(message: ToWorker | FromWorker | msgspec.Raw, limit: int) -> bytearray:
    """One message as it goes over the wire, written once: a reply may be large.

    Raises:
        LocalProtocolError: Its text is over `limit` bytes; the sender has to split it.
    """
    data = bytearray(HEADER_BYTES)
    _encoder.encode_into(message, data, HEADER_BYTES)
    size = len(data) - HEADER_BYTES
    if size > limit:
        raise LocalProtocolError(f"a frame of {size} bytes is over frame_bytes={limit}")
    data[:HEADER_BYTES] = size.to_bytes(HEADER_BYTES, "big")
    return data


def encode(message: ToWorker | FromWorker) -> bytes:
    """JSON text of one message."""
    return _encoder.encode(message)


def decode_from_worker(text: bytes) -> FromWorker:
    """Read a worker's message. Raises `RemoteProtocolError` and nothing else, whatever the bytes are."""
    if len(text) <= AT_ONCE_BYTES:
        return _decode(_from_worker, text)
    outline = _decode(_outline, text)
    parts: dict[str, Any] = {}
    for name, decoder in _fields.items():
        part = bytes(getattr(outline, name))
        if _entries(name, part) > WAVE_ITEMS:
            raise RemoteProtocolError("a wave with too many entries")
        parts[name] = _decode(decoder, part)
    return Wave(**parts)


def decode_to_worker(text: bytes) -> ToWorker:
    """Read a host's message, in the worker."""
    return _decode(_to_worker, text)


def _entries(name: str, part: bytes) -> int:
    """How many entries a list has as JSON text, without making any; 0 where an entry is no larger than its text."""
    if name == "text":  # two quotes each, but for those within
        return part.replace(b"\\\\", b"").replace(b'\\"', b"").count(b'"') // 2
    return part.count(_ENTRY[name]) if name in _ENTRY else 0


_QUOTED: Final = re.compile(r"'.*'", re.DOTALL)


def _decode(decoder: msgspec.json.Decoder[Message], text: bytes) -> Message:
    try:
        return decoder.decode(text)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        # msgspec's texts have field paths, and in quotes what it found in place of a known word: the worker's own.
        raise RemoteProtocolError(f"malformed message: {_QUOTED.sub('', str(error))[:200]}") from None


class FrameReader:
    """Collects bytes into frames, incrementally; checks a length before anything is kept for it.

    Args:
        limit: Most bytes of one frame, without its header. May be changed: it is looked at when a header is complete.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._held = bytearray()
        self._needed = -1  # bytes of the frame that is being read; -1: its header is not complete

    @property
    def partial(self) -> bool:
        """Whether a frame has begun and is not complete: end of file now is a broken frame."""
        return self._needed >= 0 or bool(self._held)

    def receive(self, data: bytes) -> list[bytes]:
        """Take any split of the stream, empty included; return the frames it completes, in order.

        Raises:
            RemoteProtocolError: A frame announces more than the limit.
        """
        self._held += data
        frames: list[bytes] = []
        while True:
            if self._needed < 0:
                if len(self._held) < HEADER_BYTES:
                    return frames
                self._needed = int.from_bytes(self._held[:HEADER_BYTES], "big")
                del self._held[:HEADER_BYTES]
                if self._needed > self.limit:
                    raise RemoteProtocolError(f"a frame of {self._needed} bytes is over frame_bytes={self.limit}")
            if len(self._held) < self._needed:
                return frames
            frames.append(bytes(self._held[: self._needed]))
            del self._held[: self._needed]
            self._needed = -1
