"""A worker that is no longer ours, as bytes: whatever it says comes out as messages or as `RemoteProtocolError`.

A failure prints its seed: `exchange(seed)` is then the whole of it. `SANDBRIDGE_EXCHANGES` says how many are played.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import tracemalloc

import msgspec
import pytest

from sandbox import Fired, Limits, RemoteProtocolError, Resolved, Start, ToolName
from sandbox.messages import Ready, Wave
from sandbox.protocol import ALLOWED, Connection
from sandbox.wire import AT_ONCE_BYTES, WAVE_ITEMS, _Outline, decode_from_worker, encode, frame

from .hostile import Hostile

EXCHANGES = int(os.environ.get("SANDBRIDGE_EXCHANGES") or 2000)
FIRST = int(os.environ.get("SANDBRIDGE_SEED") or 0)
LIMITS = Limits(frame_bytes=1 << 20, value_bytes=1 << 16, reply_bytes=1 << 16, argument_bytes=1 << 16)
START = Start("return 1", [ToolName("echo", ("echo",))], msgspec.Raw(b"null"), 1, 0.0, 1, 1, 1, 1)
MIB = 1 << 20


def exchange(seed: int) -> tuple[int, str, set[str]]:
    """Play one to its end: how many messages came out, what ended it, and what was wrong in it."""
    worker, host, got = Hostile(seed), Connection(LIMITS), 0
    open_ids: set[int] = set()
    timers: set[int] = set()
    for _ in range(12):
        state = host.state
        try:
            for piece in worker.cut(worker.frames(state)):
                for message in host.receive(piece):
                    got += 1
                    assert isinstance(message, ALLOWED[state]), (seed, message)
                    assert encode(message), seed
                    if isinstance(message, Wave):
                        made = [item.id for item in (*message.calls, *message.timers)]
                        assert len(set(made)) == len(made), (seed, "an id twice in one wave")
                        assert not open_ids.intersection(made), (seed, "an id of a call that is open")
                        assert all(call.tool == "echo" for call in message.calls), seed
                        timers.update(timer.id for timer in message.timers)
                        open_ids.update(made)
                        open_ids -= timers.intersection(message.cleared)
        except RemoteProtocolError as error:
            return got, "error" if str(error).isprintable() else "an error that is not to be printed", worker.kinds
        if host.state == "ready":
            host.start(START)
        elif host.state == "waiting":
            ready = worker.random.sample(sorted(open_ids), worker.random.randrange(len(open_ids) + 1))[:50]
            replies = [Fired(n) if n in timers else Resolved(n, msgspec.Raw(b"1")) for n in ready]
            host.deliver(0, replies)
            open_ids -= {*ready}
            assert host.outstanding == len(open_ids), seed
        elif host.state == "over":
            return got, "over", worker.kinds
    return got, "open", worker.kinds


def test_whatever_a_worker_says_is_a_message_or_a_protocol_error() -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    ends = {"error": 0, "over": 0, "open": 0}
    messages, kinds = 0, set[str]()
    for seed in range(FIRST, FIRST + EXCHANGES):
        try:
            got, end, wrong = exchange(seed)
        except BaseException as error:
            error.add_note(f"SANDBRIDGE_SEED={seed} SANDBRIDGE_EXCHANGES=1 plays it again")
            raise
        ends[end] += 1
        messages += got
        kinds |= wrong
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 64 << 10, f"the host grew by {grown >> 10} MiB"
    # The exchanges are worth something: many get far, many end in each way, and each kind of wrong was there.
    assert ends["error"] > EXCHANGES // 5
    assert ends["over"] > EXCHANGES // 50
    assert messages > EXCHANGES
    assert len(kinds) >= 20 or EXCHANGES < 2000, sorted(kinds)


# ---- what one frame may cost -----------------------------------------------------------------------------------------


def flood(name: str, entry: bytes, size: int = MIB) -> bytes:
    return b'{"type":"wave","' + name.encode() + b'":[' + b",".join([entry] * (size // (len(entry) + 1))) + b"]}"


@pytest.mark.parametrize(
    ("name", "entry"),
    [
        ("images", b"{}"),
        ("images", b'{"mime_type":"","data":"","handle":""}'),
        ("text", b'""'),
        ("text", b'"a"'),
        ("text", b'"\\"a\\\\"'),
        ("cleared", b"1"),
        ("awaits", b"999"),
        ("heard", b"1"),
        ("timers", b'{"id":1,"ms":0}'),
        ("calls", b'{"id":1,"tool":"","arguments":0}'),
        ("logs", b'{"level":"log","message":""}'),
        ("warnings", b'{"code":"","message":""}'),
        ("unknown", b"[]"),
    ],
)
@pytest.mark.parametrize("twice", [False, True])
def test_a_frame_of_many_small_things_takes_a_few_times_its_bytes(name: str, entry: bytes, twice: bool) -> None:
    text = flood(name, entry)
    if twice:  # the first of two equal keys is not kept, but it would be read
        text = text[:-1] + b',"' + name.encode() + b'":[]}'
    tracemalloc.start()
    try:
        with contextlib.suppress(RemoteProtocolError):
            decode_from_worker(text)
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < 10 * len(text), f"{peak / len(text):.1f} times"


def test_a_picture_has_all_its_fields_or_it_is_none() -> None:
    """Entries of three bytes would be the cheapest flood of all."""
    for image in ({}, {"mime_type": "image/png", "data": ""}, {"handle": "h"}):
        with pytest.raises(RemoteProtocolError, match=r"^malformed message: Object missing required field"):
            decode_from_worker(msgspec.json.encode({"type": "wave", "images": [image]}))


def test_a_large_wave_is_read_as_a_small_one_is() -> None:
    assert {field.name for field in msgspec.structs.fields(_Outline)} == {
        field.name for field in msgspec.structs.fields(Wave)
    }
    text = (
        b'{"type":"wave","calls":[{"id":1,"tool":"echo","arguments":[1]}],"timers":[{"id":2,"ms":1.5}],"cleared":[2],'
        b'"text":["a\\"b",%b],"images":[{"mime_type":"image/png","data":"","handle":"h"}],"awaits":[3],"heard":[1],'
        b'"logs":[{"level":"warn","message":"m"}],"warnings":[{"code":"c","message":"m","line":2}],"dropped_logs":4,'
        b'"end":{"type":"returned","value":[1]},"more":true}'
    )
    small, large = (decode_from_worker(text % (b'"' + b"x" * size + b'"')) for size in (5, AT_ONCE_BYTES))
    assert isinstance(small, Wave)
    assert isinstance(large, Wave)
    assert msgspec.structs.replace(large, text=['a"b', large.text[1][:5]]) == small
    assert len(large.text[1]) == AT_ONCE_BYTES


def test_what_stands_in_quotes_in_an_error_is_not_the_workers() -> None:
    for text in (b'{"type":"\\u001b[2Jhi\\n\'x"}', b'{"type":"wave","logs":[{"level":"\\u001b","message":""}]}'):
        with pytest.raises(RemoteProtocolError) as caught:
            decode_from_worker(text)
        assert str(caught.value).startswith("malformed message: Invalid ")
        assert "hi" not in str(caught.value)
        assert str(caught.value).isprintable()


@pytest.mark.parametrize("number", [-1, 2**53, 2**64, 10**30])
@pytest.mark.parametrize(
    "wave",
    [
        {"calls": [{"id": "N", "tool": "echo", "arguments": []}]},
        {"calls": [{"id": 1, "tool": "echo", "arguments": [], "line": "N"}]},
        {"timers": [{"id": "N", "ms": 0}]},
        {"cleared": ["N"]},
        {"awaits": ["N"]},
        {"heard": ["N"]},
        {"dropped_logs": "N"},
        {"warnings": [{"code": "c", "message": "m", "line": "N"}]},
        {"end": {"type": "threw", "code": "threw", "name": "", "message": "", "column": "N"}},
    ],
    ids=lambda wave: next(iter(wave)),
)
def test_a_number_that_javascript_cannot_count_to_is_refused(wave: dict[str, object], number: int) -> None:
    text = json.dumps({"type": "wave", **wave})
    decode_from_worker(text.replace('"N"', "7").encode())
    with pytest.raises(RemoteProtocolError, match=r"^malformed message: "):
        decode_from_worker(text.replace('"N"', str(number)).encode())


# ---- what a whole run may cost ---------------------------------------------------------------------------------------


def running(limits: Limits = LIMITS) -> Connection:
    host = Connection(limits)
    host.receive(frame(Ready({}, "", ""), 1 << 16))
    host.start(START)
    return host


def test_nothing_larger_than_a_greeting_comes_before_the_greeting() -> None:
    with pytest.raises(RemoteProtocolError, match=r"^a frame of 65537 bytes is over frame_bytes=65536$"):
        Connection(LIMITS).receive((65537).to_bytes(4, "big"))
    running().receive((65537).to_bytes(4, "big"))


@pytest.mark.parametrize(
    "wave",
    [
        {"more": True},
        {"more": True, "text": [""] * 1000},
        {"more": True, "images": [{"mime_type": "x" * 10_000, "data": "", "handle": ""}]},
        {"more": True, "awaits": [1] * 10_000},
        {"more": True, "warnings": [{"code": "c", "message": "m" * 10_000}]},
    ],
)
def test_a_worker_that_says_more_for_ever_is_ended(wave: dict[str, object]) -> None:
    host, kept = running(), 0
    text = msgspec.json.encode({"type": "wave", **wave})

    def for_ever() -> None:
        nonlocal kept
        for _ in range(10_000):
            host.receive(frame(msgspec.Raw(text), MIB))
            host.deliver(0, [])
            kept += len(text) + 1024

    with pytest.raises(RemoteProtocolError, match=r"^more output than all limits together let through$"):
        for_ever()
    assert kept < 2 * LIMITS.frame_bytes


def test_a_program_that_sleeps_ten_thousand_times_is_not_ended() -> None:
    host = running()
    for number in range(1, 10_001):
        host.receive(frame({"type": "wave", "timers": [{"id": number, "ms": 0}]}, MIB))
        host.deliver(0, [Fired(number)])


def test_arguments_and_value_as_large_as_they_may_be_are_not_ended() -> None:
    host = running()
    argument, value = "x" * (LIMITS.argument_bytes - 4), "x" * (LIMITS.value_bytes - 2)
    for number in range(1, 101):
        call = {"id": number, "tool": "echo", "arguments": [argument]}
        host.receive(frame({"type": "wave", "calls": [call]}, MIB))
        host.deliver(0, [Resolved(number, msgspec.Raw(b"1"))])
    host.receive(frame({"type": "wave", "end": {"type": "returned", "value": value}}, MIB))


def test_a_wave_has_a_hundred_thousand_entries_at_most() -> None:
    wave = {"type": "wave", "text": ["x"] * (WAVE_ITEMS - 1), "awaits": [1, 1]}
    with pytest.raises(RemoteProtocolError, match=r"^a wave with too many entries$"):
        running().receive(frame(wave, MIB))
