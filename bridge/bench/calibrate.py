"""Level 2: what a provider counts for stored bodies, against our count of them. Needs a key; nothing of it is kept.

The provider's own counting endpoint is asked for a sample of bodies; a line through the pairs gives a factor and an
intercept for each request. Shares of savings hardly change by it; absolute numbers do.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from bridge import tokens
from bridge.bench import written
from bridge.bench.rows import read_bodies, read_rows
from bridge.bench.wire import Body
from bridge.errors import ConfigurationError

Ask = Callable[[dict[str, Any]], Awaitable[int]]
KEYS: Final = {"openai": "OPENAI_API_KEY", "anthropic": "ANTHROPIC_API_KEY"}
FORMAT_OF: Final = {"openai": "responses", "anthropic": "anthropic"}
SAMPLE: Final = 20


class Calibration(msgspec.Struct, frozen=True):
    """A line: tokens that the provider counts = `factor` x wire + `intercept`, for one request."""

    provider: str
    model: str
    factor: float
    intercept: float
    bodies: int
    largest_residual: float

    def applied(self, tokens_: float, requests: float) -> float:
        """Calibrated tokens of so many requests together."""
        return self.factor * tokens_ + self.intercept * requests


def read(file: Path) -> Calibration:
    """A stored calibration.

    Raises:
        ConfigurationError: It cannot be read, or is none.
    """
    return written.read(file, Calibration, "a calibration, as `sandbridge bench context calibrate` writes one")


def asking(provider: str, model: str) -> Ask:
    """Ask a provider's counting endpoint, with the key that its SDK finds in the environment.

    Raises:
        ConfigurationError: There is no such provider, no SDK, or no key.
    """
    client: Any = client_of(provider)

    async def openai(body: dict[str, Any]) -> int:
        wanted = {name: body[name] for name in ("instructions", "tools", "input")}
        return int((await client.responses.input_tokens.count(model=model, **wanted)).input_tokens)

    async def anthropic(body: dict[str, Any]) -> int:
        wanted = {name: body[name] for name in ("system", "tools", "messages")}
        return int((await client.messages.count_tokens(model=model, **wanted)).input_tokens)

    return openai if provider == "openai" else anthropic


def client_of(provider: str) -> Any:
    """The asynchronous client of a provider's SDK.

    Raises:
        ConfigurationError: There is no such provider, no SDK, or no key.
    """
    if provider not in KEYS:
        raise ConfigurationError(f"there is no provider {provider!r}; there is: {', '.join(KEYS)}")
    import os

    if not os.environ.get(KEYS[provider]):
        raise ConfigurationError(f"{provider}: no key in {KEYS[provider]}, so nothing can be asked; nothing was sent")
    try:
        if provider == "openai":
            from openai import AsyncOpenAI

            return AsyncOpenAI()
        from anthropic import AsyncAnthropic

        return AsyncAnthropic()
    except ImportError:
        raise ConfigurationError(
            f"{provider}: its SDK is not installed: pip install 'sandbridge[{provider}]'"
        ) from None


async def calibrate(folder: Path, provider: str, model: str, ask: Ask) -> Calibration:
    """Ask for a sample of the stored bodies in the provider's format, and fit the line.

    Raises:
        ConfigurationError: There are too few bodies of that format.
    """
    wanted = FORMAT_OF.get(provider, "")
    bodies = [
        requests[-1][0]
        for row, requests in zip(read_rows(folder), read_bodies(folder), strict=True)
        if row.format == wanted
    ]
    if len(bodies) < 3:
        raise ConfigurationError(
            f"{folder} has {len(bodies)} bodies in the format {wanted!r}, and a line needs three: run --format {wanted}"
        )
    step = max(1, len(bodies) // SAMPLE)
    chosen = sorted(bodies, key=lambda body: len(body.text))[::step][:SAMPLE]
    counter = tokens.load()
    pairs = [(float(counter.count(body.text)), float(await ask(_plain(body)))) for body in chosen]
    factor, intercept = fit(pairs)
    residual = max(abs(factor * ours + intercept - theirs) for ours, theirs in pairs)
    return Calibration(provider, model, factor, intercept, len(pairs), residual)


def fit(pairs: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """The least-squares line through pairs.

    Raises:
        ConfigurationError: All have the same first figure: there is no line.
    """
    count = len(pairs)
    mean_x, mean_y = sum(x for x, _ in pairs) / count, sum(y for _, y in pairs) / count
    spread = sum((x - mean_x) ** 2 for x, _ in pairs)
    if not spread:
        raise ConfigurationError("all bodies have the same size: a line needs different ones")
    factor = sum((x - mean_x) * (y - mean_y) for x, y in pairs) / spread
    return factor, mean_y - factor * mean_x


def _plain(body: Body) -> dict[str, Any]:
    return json.loads(body.text)
