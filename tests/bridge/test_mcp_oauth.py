"""Signing in with OAuth, against the SDK's own authorization server on loopback, and what is kept of it."""

from __future__ import annotations

import dataclasses
import json
import socket
import stat
import threading
from collections.abc import Iterator
from pathlib import Path

import anyio
import httpx2
import pytest
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken
from pydantic import AnyUrl

from bridge import mcp
from bridge.mcp.oauth import Redirect, TokenFile
from tests.bridge.odd_servers import call, opened
from tests.servers.sdk_http import Served, served

pytestmark = pytest.mark.anyio


@pytest.fixture
def guarded() -> Iterator[Served]:
    with served(oauth=True) as state:
        yield state


class Browser:
    """A person who follows the address at once, in a browser of their own."""

    def __init__(self) -> None:
        self.pages: list[str] = []
        self.threads: list[threading.Thread] = []

    def __call__(self, address: str) -> None:
        self.threads.append(threading.Thread(target=self._visit, args=(address,)))
        self.threads[-1].start()

    def _visit(self, address: str) -> None:
        with httpx2.Client(follow_redirects=True, timeout=20) as client:
            self.pages.append(client.get(address).text)

    def close(self) -> None:
        for thread in self.threads:
            thread.join()


@pytest.fixture
def browser() -> Iterator[Browser]:
    made = Browser()
    yield made
    made.close()


def settings(store: Path, browser: Browser) -> mcp.OAuth:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    return mcp.OAuth(store=store, open_browser=browser, redirect_uri=f"http://127.0.0.1:{port}/callback", sign_in_s=20)


async def test_a_person_signs_in_once_and_the_store_does_it_from_then_on(
    guarded: Served, browser: Browser, tmp_path: Path
) -> None:
    store = tmp_path / "deep" / "tokens.json"
    oauth = settings(store, browser)
    first = mcp.http("sdk", guarded.url, oauth=oauth)
    async with opened(first):
        assert first.error is None
        assert await call(first, "echo", {"a": 1}) == {"a": 1}
    again = mcp.http("sdk", guarded.url, oauth=oauth)
    async with opened(again):
        assert await call(again, "echo", {"a": 2}) == {"a": 2}
    browser.close()
    assert browser.pages == [
        "<!doctype html><meta charset=utf-8><title>Signed in</title><p>Signed in. You can close this page.</p>"
    ]
    assert stat.S_IMODE(store.stat().st_mode) == 0o600
    assert stat.S_IMODE(store.parent.stat().st_mode) == 0o700
    kept = json.loads(store.read_text("utf-8"))
    assert list(kept) == [guarded.url]
    assert sorted(kept[guarded.url]) == ["client", "expires_at", "tokens"]


async def test_an_expired_token_is_refreshed_without_a_person(
    guarded: Served, browser: Browser, tmp_path: Path
) -> None:
    store = tmp_path / "tokens.json"
    oauth = settings(store, browser)
    async with opened(mcp.http("sdk", guarded.url, oauth=oauth)):
        pass
    kept = json.loads(store.read_text("utf-8"))
    kept[guarded.url]["expires_at"] = 1.0
    store.write_text(json.dumps(kept), "utf-8")
    guarded.auth.access.clear()
    server = mcp.http("sdk", guarded.url, oauth=oauth)
    async with opened(server):
        assert await call(server, "echo", {"a": 1}) == {"a": 1}
    assert len(browser.threads) == 1
    assert json.loads(store.read_text("utf-8"))[guarded.url]["expires_at"] > 1.0


async def test_a_person_who_says_no_leaves_the_server_down_with_the_reason(
    guarded: Served, browser: Browser, tmp_path: Path
) -> None:
    guarded.auth.refused = True
    server = mcp.http("sdk", guarded.url, oauth=settings(tmp_path / "tokens.json", browser))
    async with opened(server):
        assert server.error == (
            f"server 'sdk' ({guarded.url}) signing in to {guarded.url} failed: "
            "the server refused to sign in: access_denied"
        )
    browser.close()
    assert set(browser.pages) == {
        "<!doctype html><meta charset=utf-8><title>Signed in</title><p>Not signed in. You can close this page.</p>"
    }


async def test_a_store_that_cannot_be_read_is_named_and_left_alone(
    guarded: Served, browser: Browser, tmp_path: Path
) -> None:
    store = tmp_path / "tokens.json"
    store.write_text("{not json", "utf-8")
    server = mcp.http("sdk", guarded.url, oauth=settings(store, browser))
    async with opened(server):
        assert server.error == (
            f"server 'sdk' ({guarded.url}) signing in to {guarded.url} failed: the token store {store} cannot be read "
            "(Expecting property name enclosed in double quotes: line 1 column 2 (char 1)): mend or remove it"
        )
    assert store.read_text("utf-8") == "{not json"


async def test_an_auth_of_ones_own_is_used_as_it_is(guarded: Served) -> None:
    class Own(httpx2.Auth):
        def auth_flow(self, request: httpx2.Request) -> Iterator[httpx2.Request]:
            request.headers["Authorization"] = "Bearer mine"
            yield request

    guarded.auth.access["mine"] = guarded.auth._access("mine")
    server = mcp.http("sdk", guarded.url, oauth=Own())
    async with opened(server):
        assert await call(server, "echo", {"a": 1}) == {"a": 1}


async def test_a_client_that_was_registered_by_hand_signs_in_as_that_one(
    guarded: Served, browser: Browser, tmp_path: Path
) -> None:
    oauth = dataclasses.replace(settings(tmp_path / "tokens.json", browser), client_id="ours", client_secret="hush")
    guarded.auth.clients["ours"] = OAuthClientInformationFull(
        client_id="ours",
        client_secret="hush",
        redirect_uris=[AnyUrl(oauth.redirect_uri)],
        token_endpoint_auth_method="client_secret_basic",
    )
    server = mcp.http("sdk", guarded.url, oauth=oauth)
    async with opened(server):
        assert server.error is None
        assert await call(server, "echo", {"a": 1}) == {"a": 1}
    assert list(guarded.auth.clients) == ["ours"]
    assert {token.client_id for token in guarded.auth.access.values()} == {"ours"}
    assert "hush" not in oauth.store.read_text("utf-8")
    assert "hush" not in repr(oauth)


async def test_two_servers_share_one_store(tmp_path: Path) -> None:
    path = tmp_path / "tokens.json"
    one, two = TokenFile(path, "http://one"), TokenFile(path, "http://two")
    await one.set_tokens(OAuthToken(access_token="1"))
    await two.set_tokens(OAuthToken(access_token="2", expires_in=10))
    tokens = [await each.get_tokens() for each in (one, two, TokenFile(path, "http://three"))]
    assert [token and token.access_token for token in tokens] == ["1", "2", None]


async def test_the_page_on_loopback_answers_only_the_browser_that_comes_back() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    redirect = Redirect(f"http://127.0.0.1:{port}/callback", 20)
    await redirect.listen()
    statuses: list[int] = []

    def visit() -> None:
        with httpx2.Client(timeout=20) as client:
            targets = ("favicon.ico", "callback", "callback?state=x", "callback?code=c%20d&state=s&iss=i")
            statuses.extend(client.get(f"http://127.0.0.1:{port}/{target}").status_code for target in targets)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(anyio.to_thread.run_sync, visit)
        found = await redirect.code()
    assert (found.code, found.state, found.iss) == ("c d", "s", "i")
    assert statuses == [404, 404, 404, 200]
