"""Calibration: what a provider counts for stored bodies, asked through its own client at a server on this machine."""

from __future__ import annotations

import json
from collections.abc import Generator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import anyio
import pytest

from bridge.bench import calibrate
from bridge.bench.wire import FORMATS
from bridge.errors import ConfigurationError


@pytest.mark.parametrize(("provider", "said"), [("openai", "no key in OPENAI_API_KEY"), ("nobody", "no provider")])
def test_without_a_key_nothing_is_sent(monkeypatch: pytest.MonkeyPatch, provider: str, said: str) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(ConfigurationError, match=said):
        calibrate.asking(provider, "m")


@pytest.fixture
def counting(monkeypatch: pytest.MonkeyPatch) -> Generator[list[dict[str, Any]]]:
    """Both vendors' counting endpoints: 2 tokens a byte of the body and 5 a request."""
    asked: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            raw = self.rfile.read(int(self.headers["content-length"]))
            asked.append(json.loads(raw) | {"path": self.path})
            body = json.dumps({"object": "response.input_tokens", "input_tokens": 2 * len(raw) + 5}).encode()
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever)
    thread.start()
    address = f"http://127.0.0.1:{server.server_port}"
    for name in ("OPENAI", "ANTHROPIC"):
        monkeypatch.setenv(f"{name}_API_KEY", "k")
    monkeypatch.setenv("OPENAI_BASE_URL", f"{address}/v1")
    monkeypatch.setenv("ANTHROPIC_BASE_URL", address)
    yield asked
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_provider_is_asked_for_a_sample_of_the_stored_bodies(measured: Path, counting: list[dict[str, Any]]) -> None:
    ask = calibrate.asking("openai", "gpt-test")
    found = anyio.run(calibrate.calibrate, measured, "openai", "gpt-test", ask)
    assert found.bodies == len(counting) == 20
    assert {each["path"] for each in counting} == {"/v1/responses/input_tokens"}
    assert set(counting[0]) == {"path", "model", "instructions", "tools", "input"}
    assert 4 < found.factor < 12  # two a byte, and a token has three to five
    assert found.applied(0, 2) == 2 * found.intercept


def test_anthropic_is_asked_in_its_own_words(counting: list[dict[str, Any]]) -> None:
    ask = calibrate.asking("anthropic", "claude-test")
    form = FORMATS["anthropic"]
    body = json.loads(form.body("s", [form.tool("look", "Looks.", {"type": "object"})], [form.user("hi")]).text)
    assert anyio.run(ask, body) > 100
    assert counting[0]["path"] == "/v1/messages/count_tokens"
    assert set(counting[0]) == {"path", "model", "system", "tools", "messages"}


def test_a_line_needs_bodies_of_the_format_and_of_different_sizes(measured: Path) -> None:
    async def never(_: Any) -> int:
        raise AssertionError("nothing was to be asked")

    with pytest.raises(ConfigurationError, match="0 bodies in the format 'anthropic', and a line needs three"):
        anyio.run(calibrate.calibrate, measured, "anthropic", "m", never)
    with pytest.raises(ConfigurationError, match="all bodies have the same size"):
        calibrate.fit([(1.0, 2.0), (1.0, 3.0)])


def test_a_line_is_fitted_by_least_squares() -> None:
    assert calibrate.fit([(0.0, 7.0), (10.0, 27.0), (20.0, 47.0)]) == pytest.approx((2.0, 7.0))
