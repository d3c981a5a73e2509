"""Counts every number of a measurement again from the stored bodies: nobody has to trust the rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec

from bridge import tokens
from bridge.bench.count import Request, count
from bridge.bench.rows import read_bodies, read_manifest, read_rows
from bridge.errors import ConfigurationError

_WHOLE_EVERY: Final = 7  # each so manieth body is also counted as one text: the pieces must add up to it
_SHOWN: Final = 20


@dataclass
class Verified:
    """What came out. `wrong` is empty where everything agrees."""

    rows: int = 0
    requests: int = 0
    whole: int = 0
    wrong: list[str] = field(default_factory=list[str])


def verify(folder: Path, tell: Callable[[int, int], None] = lambda done, all_: None) -> Verified:
    """Rebuild every body, check its hash, and count its tokens and bytes again.

    Raises:
        ConfigurationError: A file is missing, damaged, or was counted with another encoding.
    """
    manifest = read_manifest(folder)
    if manifest.ranks_sha256 != tokens.RANKS_SHA256:
        raise ConfigurationError(f"{folder}: counted with ranks {manifest.ranks_sha256}, not {tokens.RANKS_SHA256}")
    counter = tokens.load()
    rows = read_rows(folder)
    found = Verified()
    bodies = read_bodies(folder)
    for number, row in enumerate(rows, 1):
        requests = next(bodies, None)
        if requests is None:
            found.wrong.append(f"{'/'.join(row.key)}: no bodies are stored for it")
            continue
        if len(requests) != len(row.requests):
            found.wrong.append(f"{'/'.join(row.key)}: {len(row.requests)} requests, {len(requests)} stored bodies")
        before = None
        for (body, output), said in zip(requests, row.requests, strict=False):
            again = count(body, output, before, counter)
            found.wrong += [f"{'/'.join(row.key)}: {each}" for each in _differences(said, again)]
            if found.requests % _WHOLE_EVERY == 0:
                found.whole += 1
                whole = counter.count(body.text)
                if whole != again.input_tokens:
                    found.wrong.append(
                        f"{'/'.join(row.key)}: pieces have {again.input_tokens} tokens, the text {whole}"
                    )
            found.requests += 1
            before = body
        found.rows += 1
        tell(number, len(rows))
    if next(bodies, None) is not None:
        found.wrong.append("more bodies are stored than there are rows")
    return found


def _differences(said: Request, again: Request) -> list[str]:
    if said == again:
        return []
    ours, theirs = msgspec.to_builtins(said), msgspec.to_builtins(again)
    return [
        f"{name} {ours[name]} in the row, {theirs[name]} in the body" for name in ours if ours[name] != theirs[name]
    ]


def report(found: Verified) -> list[str]:
    """In lines, for people."""
    lines = [
        f"{found.rows:,} rows, {found.requests:,} requests counted again; {found.whole:,} of them also as whole texts"
    ]
    lines += [f"WRONG: {each}" for each in found.wrong[:_SHOWN]]
    if len(found.wrong) > _SHOWN:
        lines.append(f"WRONG: and {len(found.wrong) - _SHOWN:,} more")
    return lines
