"""Servers over Streamable HTTP: what one bad request costs, who we say we are, and a session that was forgotten."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import anyio
import pytest

from bridge import ToolError, mcp
from tests.bridge.odd_servers import call, opened, refused, tool
from tests.servers.odd_http import Odd, served

pytestmark = pytest.mark.anyio
UNKNOWN = "Whether the call took effect is not known: look before calling it again."


@pytest.fixture
def odd() -> Iterator[Odd]:
    with served() as server:
        yield server


async def test_a_call_over_http_brings_back_its_value(odd: Odd) -> None:
    server = mcp.http("odd", odd.url)
    async with opened(server):
        assert await call(server, "echo", {"a": [1, "é"]}) == {"a": [1, "é"]}
        assert await call(server, "surrogate") == {"a": "x\ufffdy", "n": 12345678901234567890123}
        assert await call(server, "compressed") == "small"
        assert len(await call(server, "big", {"bytes": 5 << 20})) == 5 << 20


@pytest.mark.parametrize(
    ("name", "arguments", "code", "text"),
    [
        ("closes", {}, "unknown_outcome", "server 'odd': the connection to {url} was lost: {why}. " + UNKNOWN),
        ("half-body", {}, "unknown_outcome", "server 'odd': the connection to {url} was lost: {why}. " + UNKNOWN),
        (
            "cut-stream",
            {},
            "unknown_outcome",
            "the answer of odd/cut-stream was cut off (SSE stream ended without a response). " + UNKNOWN,
        ),
        ("status", {"status": 500}, "unknown_outcome", "server 'odd': {url} answered with HTTP status 500. " + UNKNOWN),
        ("status", {"status": 504}, "unknown_outcome", "server 'odd': {url} answered with HTTP status 504. " + UNKNOWN),
        (
            "status",
            {"status": 403},
            "failed",
            "server 'odd': {url} answered with HTTP status 403: the credentials are missing, expired or not sufficient",
        ),
        (
            "status",
            {"status": 429},
            "failed",
            "server 'odd': {url} answered with HTTP status 429: too many requests, try later",
        ),
        ("status", {"status": 400}, "failed", "server 'odd': {url} answered with HTTP status 400"),
        ("json-error", {"status": 400}, "failed", "server 'odd': went wrong (code -32000)"),
        ("json-error", {"status": 200}, "failed", "server 'odd': went wrong (code -32000)"),
        (
            "json-error",
            {"status": 500},
            "unknown_outcome",
            "server 'odd': {url} answered with HTTP status 500. " + UNKNOWN,
        ),
        ("page", {}, "failed", "server 'odd': Unexpected content type: text/html (code -32600)"),
        (
            "accepted",
            {},
            "unknown_outcome",
            "server 'odd': {url} took the request and will not answer it. " + UNKNOWN,
        ),
        (
            "redirect",
            {},
            "failed",
            (
                "server 'odd': Redirect to http://127.0.0.2:9/elsewhere not followed; use that URL as the endpoint "
                "if it is the intended server (code -32600)"
            ),
        ),
        (
            "compressed",
            {"bomb": True},
            "too_large",
            "server 'odd': the server answered, but with more than 33,554,432 bytes: ask it for less",
        ),
    ],
)
async def test_a_request_that_goes_wrong_costs_its_own_call_and_no_other(
    odd: Odd, name: str, arguments: dict[str, Any], code: str, text: str
) -> None:
    server = mcp.http("odd", odd.url)
    async with opened(server):
        waited: list[str] = []

        async def waiting() -> None:
            waited.append(await call(server, "wait"))

        async with anyio.create_task_group() as calls:
            calls.start_soon(waiting)
            error = await refused(server, name, arguments)
            assert await call(server, "echo", {"next": 1}) == {"next": 1}
            odd.release.set()
        assert waited == ["waited"]
    why = error.message.partition("was lost: ")[2].partition(f". {UNKNOWN}")[0]
    assert (error.code, error.message) == (code, text.format(url=odd.url, why=why))
    assert error.retryable == (arguments.get("status") == 429)
    assert odd.calls(name) == 1


async def test_a_server_that_never_answers_is_given_up_by_the_callers_deadline(odd: Odd) -> None:
    server = mcp.http("odd", odd.url)
    async with opened(server):
        with anyio.move_on_after(0.2) as scope:
            await call(server, "never")
        assert scope.cancelled_caught
        assert await call(server, "echo", {"next": 1}) == {"next": 1}


async def test_a_port_that_nobody_listens_on_is_an_error_for_the_operator_and_then_for_the_program() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/mcp"
        server = mcp.http("odd", url)
        async with opened(server):
            assert server.tools == ()
            assert (server.error or "").startswith(f"server 'odd' ({url}) cannot connect to {url}: ")


async def test_a_server_that_went_away_was_not_sent_to_and_is_found_again_when_it_is_back() -> None:
    with served() as odd:
        odd.close_each = True
        server = mcp.http("odd", odd.url)
        port = odd.server_address[1]
        async with opened(server):
            odd.shutdown()
            odd.server_close()
            error = await refused(server, "echo")
            assert error.message.startswith(f"server 'odd': cannot connect to {odd.url}: ")
            assert error.message.endswith(". Nothing was sent.")
            assert (error.code, error.retryable) == ("failed", True)
            with served(port):
                assert await call(server, "echo", {"back": 1}) == {"back": 1}


async def test_a_forgotten_session_is_made_again_and_the_call_that_was_not_executed_is_sent_again(odd: Odd) -> None:
    server = mcp.http("odd", odd.url)
    async with opened(server):
        for number in range(3):
            odd.sessions.clear()
            assert await call(server, "echo", {"number": number}) == {"number": number}
        version = server.version
    assert version == 1
    assert odd.calls("initialize") == 4
    assert odd.calls("echo") == 6  # three were turned away


async def test_calls_side_by_side_share_the_new_session(odd: Odd) -> None:
    server, answers = mcp.http("odd", odd.url), list[int]()

    async def ask(number: int) -> None:
        answers.append((await call(server, "echo", {"n": number}))["n"])

    async with opened(server):
        odd.sessions.clear()
        async with anyio.create_task_group() as calls:
            for number in range(10):
                calls.start_soon(ask, number)
    assert sorted(answers) == list(range(10))


async def test_a_server_that_forgets_every_session_is_asked_twice_and_no_more(odd: Odd) -> None:
    class Forgetful(set[str]):
        def __contains__(self, key: object) -> bool:
            return odd.seen[-1][1] in ("tools/list", "notifications/initialized")

    server = mcp.http("odd", odd.url)
    async with opened(server):
        odd.sessions = Forgetful()
        error = await refused(server, "echo")
    assert error.message == "server 'odd': the server does not know this session any more. Nothing was sent."
    assert error.retryable
    assert odd.calls("echo") == 2


async def test_a_server_that_comes_back_with_another_definition_is_not_called_under_the_old_one(odd: Odd) -> None:
    server = mcp.http("odd", odd.url)
    async with opened(server):
        handler = tool(server, "echo").handler
        odd.sessions.clear()
        odd.description = "something else"
        assert handler is not None
        error = await refused(server, "echo")
        assert error.message == (
            "server 'odd' changed the definition of 'echo'; nothing was sent. Call again to have the new one checked."
        )
        assert server.version == 2
        assert await call(server, "echo", {"new": 1}) == {"new": 1}
    assert odd.calls("echo") == 2  # the one that was turned away, and the new one


# ---- credentials ---------------------------------------------------------------------------------------------------


async def test_headers_and_a_token_go_with_every_request(odd: Odd) -> None:
    odd.token = "sesame-4711"
    server = mcp.http("odd", odd.url, headers={"X-Team": "blue"}, token="sesame-4711")
    async with opened(server):
        await call(server, "echo")
    assert {headers.get("authorization") for _, _, headers in odd.seen} == {"Bearer sesame-4711"}
    assert {headers.get("x-team") for _, _, headers in odd.seen} == {"blue"}
    assert "sesame" not in repr(server) + repr(server.place) + server.identity


@pytest.mark.parametrize("asynchronous", [True, False])
async def test_a_token_provider_is_asked_for_each_request_and_again_after_a_401(odd: Odd, asynchronous: bool) -> None:
    current = "first"

    def give() -> str:
        return current

    async def give_later() -> str:
        await anyio.lowlevel.checkpoint()
        return current

    odd.token = "first"
    server = mcp.http("odd", odd.url, token=give_later if asynchronous else give)
    async with opened(server):
        assert await call(server, "echo", {"a": 1}) == {"a": 1}
        odd.token = current = "second"
        assert await call(server, "echo", {"a": 2}) == {"a": 2}
        odd.token = "third"
        error = await refused(server, "echo")
    assert error.message == (
        f"server 'odd': {odd.url} answered with HTTP status 401: the credentials are missing, expired or not sufficient"
    )


async def test_a_token_provider_that_rotates_between_two_questions_is_heard(odd: Odd) -> None:
    tokens = iter(["old", "new"] * 10)
    odd.token = "new"
    server = mcp.http("odd", odd.url, token=lambda: next(tokens))
    async with opened(server):
        assert server.error is None


async def test_a_token_provider_that_raises_costs_its_call_and_only_the_operator_reads_why(odd: Odd) -> None:
    broken = False

    def give() -> str:
        if broken:
            raise RuntimeError("vault is sealed")
        return "token"

    server = mcp.http("odd", odd.url, token=give)
    async with opened(server):
        broken = True
        error = await refused(server, "echo")
        assert error.message == f"server 'odd': signing in to {odd.url} failed. Nothing was sent."
        assert server.warnings == ["a call of 'echo' was not sent: vault is sealed"]
        broken = False
        assert await call(server, "echo", {"a": 1}) == {"a": 1}


async def test_wrong_credentials_are_said_to_the_operator_without_the_credentials(odd: Odd) -> None:
    odd.token = "right"
    server = mcp.http("odd", odd.url + "?api_key=hidden-1", token="wrong-4711")
    async with opened(server):
        assert server.error == (
            f"server 'odd' ({odd.url}) {odd.url} answered with HTTP status 401: "
            "the credentials are missing, expired or not sufficient"
        )


def test_credentials_over_plain_http_to_another_machine_are_warned_about() -> None:
    server = mcp.http("odd", "http://crm.example/mcp", token="t")
    assert server.warnings == ["its url is http://, so the credentials travel unencrypted: use https://"]
    assert mcp.http("odd", "http://127.0.0.1/mcp", token="t").warnings == []
    assert mcp.http("odd", "https://crm.example/mcp", token="t").warnings == []


async def test_an_unforeseen_error_of_a_call_is_not_the_end_of_the_server(odd: Odd) -> None:
    server = mcp.http("odd", odd.url)
    async with opened(server):
        link = server._owner.link

        async def broken(*args: Any, **options: Any) -> Any:
            raise KeyError("inside")

        sound, link.client.call_tool = link.client.call_tool, broken
        with pytest.raises(ToolError) as caught:
            await call(server, "echo")
        assert caught.value.code == "unknown_outcome"
        link.client.call_tool = sound
        assert await call(server, "echo", {"a": 1}) == {"a": 1}


@pytest.mark.parametrize("late", [(-32022, "Unsupported protocol version"), (-32601, "Method not found")])
async def test_a_server_that_says_too_late_that_it_is_of_the_newer_revision_is_said_to_be_slow(
    odd: Odd, late: tuple[int, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mcp.client.session.DISCOVER_TIMEOUT_SECONDS", 0.05)
    odd.late = late
    server = mcp.http("odd", odd.url)
    async with opened(server):
        assert server.error == (
            f"server 'odd' ({odd.url}) did not say within 0.05 s that it speaks 2026-07-28 (server/discover), and "
            f"refused the handshake of the older revisions: {late[1]}. Where it speaks the newer one only, it answers "
            "too late: look at what delays it (its start, a proxy, a sign-in), and connect again"
        )


async def test_a_server_that_is_not_slow_is_not_said_to_be(odd: Odd) -> None:
    odd.late = (-32601, "Method not found")
    odd.release.set()  # it answers at once, with nothing
    server = mcp.http("odd", odd.url)
    async with opened(server):
        assert server.error == f"server 'odd' ({odd.url}) Method not found"
