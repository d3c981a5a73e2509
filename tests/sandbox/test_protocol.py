"""The state table: what a worker says out of turn or of things that do not exist ends it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from sandbox import Limits, LocalProtocolError, RemoteProtocolError, Resolved
from sandbox.messages import Ready, Wave
from sandbox.protocol import Connection
from sandbox.wire import frame
from tests.sandbox.conftest import start_of

LIMITS = Limits()


def sent(message: dict[str, Any] | Wave | Ready) -> bytes:
    return frame(message, LIMITS.frame_bytes)


def running() -> Connection:
    connection = Connection(LIMITS)
    connection.receive(sent(Ready(walls={}, engine="", digest="")))
    connection.start(start_of("return 1", ["echo"]))
    return connection


def call(number: int, **changed: Any) -> dict[str, Any]:
    return {"id": number, "tool": "echo", "arguments": [1], **changed}


def wave(**parts: Any) -> dict[str, Any]:
    return {"type": "wave", **parts}


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (wave(calls=[call(0)]), "id 0 is not new"),
        (wave(calls=[call(1), call(1)]), "id 1 is not new"),
        (wave(calls=[call(1)], timers=[{"id": 1, "ms": 1}]), "id 1 is not new"),
        (wave(calls=[call(1, tool="rm")]), "a call of a tool that the program was not given"),
        (wave(calls=[call(1, arguments={"a": 1})]), "arguments that are no list"),
        (wave(timers=[{"id": 1, "ms": -1}]), "a timer that is never due"),
        (
            wave(end={"type": "threw", "code": "limit", "name": "", "message": ""}),
            "an end with a code that only the host gives",
        ),
        (wave(end={"type": "returned"}, more=True), "an end with more to come"),
        (wave(text=["x"] * 100_001), "a wave with too many entries"),
        ({"type": "ready", "walls": {}, "engine": "", "digest": ""}, "Ready while running"),
    ],
)
def test_a_worker_that_lies_is_a_protocol_error(message: dict[str, Any], why: str) -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        running().receive(sent(message))
    assert str(caught.value) == why


def test_arguments_over_their_limit_are_a_protocol_error() -> None:
    with pytest.raises(RemoteProtocolError, match="arguments over argument_bytes=1048576"):
        running().receive(sent(wave(calls=[call(1, arguments=["x" * (1 << 20)])])))


def test_a_second_wave_without_a_delivery_is_a_protocol_error() -> None:
    connection = running()
    connection.receive(sent(wave(calls=[call(1)])))
    with pytest.raises(RemoteProtocolError, match="Wave while waiting"):
        connection.receive(sent(wave()))


def test_two_waves_in_one_read_are_a_protocol_error() -> None:
    with pytest.raises(RemoteProtocolError, match="Wave while waiting"):
        running().receive(sent(wave()) + sent(wave()))


def test_nothing_may_follow_the_end() -> None:
    connection = running()
    connection.receive(sent(wave(end={"type": "returned", "value": 1})))
    with pytest.raises(RemoteProtocolError, match="Wave while over"):
        connection.receive(sent(wave()))


def test_a_reply_is_delivered_once() -> None:
    connection = running()
    connection.receive(sent(wave(calls=[call(1)])))
    connection.deliver(0, [Resolved(1, msgspec.Raw(b"1"))])
    connection.receive(sent(wave()))
    with pytest.raises(LocalProtocolError, match="reply to 1, which is not open"):
        connection.deliver(0, [Resolved(1, msgspec.Raw(b"1"))])


def test_a_program_is_started_once() -> None:
    with pytest.raises(LocalProtocolError, match="a program was started while running"):
        running().start(start_of("return 1"))


def test_outstanding_counts_calls_and_timers_without_a_reply() -> None:
    connection = running()
    connection.receive(sent(wave(calls=[call(1), call(3)], timers=[{"id": 2, "ms": 5}])))
    assert connection.outstanding == 3
    connection.deliver(0, [Resolved(3, msgspec.Raw(b"1"))])
    connection.receive(sent(wave(cleared=[2])))
    assert connection.outstanding == 1


def test_a_timer_can_be_cleared_and_a_call_cannot() -> None:
    connection = running()
    connection.receive(sent(wave(calls=[call(1)], timers=[{"id": 2, "ms": 1}], cleared=[1, 2, 3])))
    assert connection.outstanding == 1
    connection.deliver(0, [Resolved(1, msgspec.Raw(b"1"))])
    assert connection.outstanding == 0
