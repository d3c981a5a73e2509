"""Descriptions of servers: what cannot be used, what they are, and that describing loads nothing."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from bridge import ConfigurationError, mcp
from tests.bridge.odd_servers import ROOT, odd


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (
            lambda: odd(name="a/b"),
            "server 'a/b': a name has 1 to 128 characters that can be seen, and no '/' (it divides server and tool)",
        ),
        (
            lambda: odd(require_approval="maybe"),
            "server 'odd': require_approval is 'always' or 'never', or by tool, not 'maybe'",
        ),
        (
            lambda: odd(require_approval={"echo": "x"}),
            "server 'odd': require_approval is 'always' or 'never', or by tool, not 'x'",
        ),
        (lambda: odd(allowed_tools="echo"), "server 'odd': allowed_tools is a list of names, not the text 'echo'"),
        (lambda: odd(call_s=0), "server 'odd': call_s must be positive and finite, not 0"),
        (lambda: odd(connect_s=float("inf")), "server 'odd': connect_s must be positive and finite, not inf"),
        (lambda: odd(max_concurrent=0), "server 'odd': max_concurrent must be at least 1, not 0"),
        (lambda: odd(env={"A=B": "x"}), "server 'odd': env['A=B'] has a character that does not belong there"),
        (lambda: odd(env={"A": 1}), "server 'odd': env['A'] must be a text"),
        (lambda: mcp.stdio("s", "x", "one text"), "server 's': command and args must be texts, args a list of them"),
        (lambda: mcp.stdio("s", ""), "server 's' has no command"),
        (lambda: mcp.http("h", "ftp://x"), "server 'h': url must be http:// or https:// with a host, not 'ftp://x'"),
        (
            lambda: mcp.http("h", "http://x", headers={"A": "a\r\nB: b"}),
            "server 'h': headers['a'] has a character that does not belong there",
        ),
        (
            lambda: mcp.http("h", "http://x", headers={"Authorization": "x"}, token="t"),
            "server 'h': give one of token, oauth and an Authorization header, not two",
        ),
        (
            lambda: mcp.http("h", "http://x", headers={"Authorization": "x"}, oauth=mcp.OAuth(store="t")),
            "server 'h': oauth and an Authorization header contradict each other: give one",
        ),
        (
            lambda: mcp.OAuth(store="t", redirect_uri="https://example.com/"),
            "OAuth.redirect_uri must be http on loopback with a port, not 'https://example.com/'",
        ),
        (
            lambda: mcp.OAuth(store="t", client_secret="s"),
            "OAuth.client_secret belongs to a client_id: give both",
        ),
        (
            lambda: mcp.OAuth(store="t", client_id="c", client_metadata_url="https://x/y"),
            "OAuth.client_id and OAuth.client_metadata_url are two ids: give one",
        ),
        (
            lambda: mcp.OAuth(store="t", client_metadata_url="https://x/"),
            "OAuth.client_metadata_url must be https with a path, not 'https://x/'",
        ),
    ],
)
def test_a_setting_that_cannot_be_used_stops_construction(make: Any, text: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        make()
    assert str(caught.value) == text


def test_the_identity_changes_with_what_the_server_is_and_with_its_credentials_and_shows_neither() -> None:
    def identity(**options: Any) -> str:
        return mcp.stdio("s", options.pop("command", "x"), options.pop("args", ["a"]), **options).identity

    known = {
        identity(),
        identity(command="y"),
        identity(args=["b"]),
        identity(args=["a", ""]),
        identity(cwd="/"),
        identity(env={"API_KEY": "one"}),
        identity(env={"API_KEY": "two"}),
        mcp.http("s", "http://x").identity,
        mcp.http("s", "http://y").identity,
        mcp.http("s", "http://x", token="one").identity,
        mcp.http("s", "http://x", token="two").identity,
    }
    assert len(known) == 11
    assert identity() == identity(trusted=True, optional=False)  # how it is treated is not what it is


def test_importing_the_module_and_describing_servers_does_not_load_the_sdk() -> None:
    code = (
        "import sys; from bridge import mcp; mcp.stdio('a', 'x'); mcp.http('b', 'http://x', token='t');"
        "print([name for name in ('mcp', 'mcp_types', 'httpx2', 'pydantic') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
