"""Frames: any split of the stream gives the same messages, and nothing but `RemoteProtocolError` comes out."""

from __future__ import annotations

import contextlib
import itertools
import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox import LocalProtocolError, RemoteProtocolError
from sandbox.messages import Broken, Wave
from sandbox.wire import FrameReader, decode_from_worker, encode, frame


@given(texts=st.lists(st.binary(max_size=300), max_size=8), cuts=st.lists(st.integers(0, 2500), max_size=20))
def test_any_split_of_the_stream_gives_the_same_frames(texts: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(frame(msgspec.Raw(text), 1000) for text in texts)
    edges = sorted({0, len(stream), *(cut for cut in cuts if cut < len(stream))})
    reader = FrameReader(1000)
    got = [found for start, end in itertools.pairwise(edges) for found in reader.receive(stream[start:end])]
    assert got == texts
    assert not reader.partial


@given(data=st.binary(max_size=400))
def test_bytes_of_an_attacker_give_a_message_or_a_protocol_error(data: bytes) -> None:
    with contextlib.suppress(RemoteProtocolError):
        decode_from_worker(data)


@given(
    value=st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        max_leaves=30,
    ),
    tag=st.sampled_from(["wave", "ready", "broken", "start", ""]),
)
def test_json_of_an_attacker_gives_a_message_or_a_protocol_error(value: object, tag: str) -> None:
    fields = ["calls", "timers", "end", "text", "warnings", "more", "walls", "reason"]
    text = json.dumps({"type": tag, **dict.fromkeys(fields, value)}).encode()
    with contextlib.suppress(RemoteProtocolError):
        decode_from_worker(text)


def test_deep_nesting_is_a_protocol_error() -> None:
    with pytest.raises(RemoteProtocolError):
        decode_from_worker(b'{"type":"wave","calls":' + b"[" * 200_000)


def test_a_frame_over_the_limit_is_refused_before_its_bytes_arrive() -> None:
    with pytest.raises(RemoteProtocolError, match="a frame of 1001 bytes is over frame_bytes=1000"):
        FrameReader(1000).receive((1001).to_bytes(4, "big"))


def test_our_own_frame_over_the_limit_is_our_fault() -> None:
    with pytest.raises(LocalProtocolError, match="a frame of 5 bytes is over frame_bytes=4"):
        frame(msgspec.Raw(b"12345"), 4)


def test_a_message_survives_the_wire() -> None:
    wave = Wave(text=["a\u2028b", "\0"], awaits=[3])
    assert decode_from_worker(encode(wave)) == wave
    assert decode_from_worker(encode(Broken(reason="x"))) == Broken(reason="x")


def test_an_error_does_not_quote_the_data() -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        decode_from_worker(msgspec.json.encode({"type": "wave", "text": [{"secret": "hunter2"}]}))
    assert "hunter2" not in str(caught.value)
