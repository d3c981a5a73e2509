"""Frames: four bytes of length, then JSON text. No sockets here; bytes in, messages out."""

from __future__ import annotations

import struct
from typing import Final, TypeVar

import msgspec

from sandbox.errors import LocalProtocolError, RemoteProtocolError
from sandbox.messages import FromWorker, ToWorker

HEADER_BYTES: Final = 4
ZYGOTE_READY: Final = b"ready"
FORK, FORK_SPARE, REAP = b"F", b"S", b"R"  # what a zygote is asked for
EXIT: Final = struct.Struct("<IQQ")  # how a zygote reports a reaped worker: wait status, peak bytes, CPU microseconds

_encoder = msgspec.json.Encoder()
_from_worker = msgspec.json.Decoder(FromWorker)
_to_worker: msgspec.json.Decoder[ToWorker] = msgspec.json.Decoder(ToWorker)
Message = TypeVar("Message")


def frame(text: bytes, limit: int) -> bytes:
    """Put a header before JSON text.

    Raises:
        LocalProtocolError: The text is over `limit` bytes; the sender has to split it.
    """
    if len(text) > limit:
        raise LocalProtocolError(f"a frame of {len(text)} bytes is over frame_bytes={limit}")
    return len(text).to_bytes(HEADER_BYTES, "big") + text


def encode(message: ToWorker | FromWorker) -> bytes:
    """JSON text of one message."""
    return _encoder.encode(message)


def decode_from_worker(text: bytes) -> FromWorker:
    """Read a worker's message. Raises `RemoteProtocolError` and nothing else, whatever the bytes are."""
    return _decode(_from_worker, text)


def decode_to_worker(text: bytes) -> ToWorker:
    """Read a host's message, in the worker."""
    return _decode(_to_worker, text)


def _decode(decoder: msgspec.json.Decoder[Message], text: bytes) -> Message:
    try:
        return decoder.decode(text)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        # msgspec's texts quote field paths, never the data itself.
        raise RemoteProtocolError(f"malformed message: {str(error)[:200]}") from None


class FrameReader:
    """Collects bytes into frames, incrementally; checks a length before anything is kept for it.

    Args:
        limit: Most bytes of one frame, without its header.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
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
                if self._needed > self._limit:
                    raise RemoteProtocolError(f"a frame of {self._needed} bytes is over frame_bytes={self._limit}")
            if len(self._held) < self._needed:
                return frames
            frames.append(bytes(self._held[: self._needed]))
            del self._held[: self._needed]
            self._needed = -1
