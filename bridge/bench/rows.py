"""Files of a measurement: rows, the bodies behind them, and the manifest that says how they came about.

    manifest.json     what was run, with which versions, hashes, seeds and prices
    rows.jsonl        a line for each task x arm x model x policy, with every request counted; holds no times
    parts.jsonl.gz    every object that was sent or written, once: [kind, text]
    bodies.jsonl.gz   a line for each row: its requests as numbers of parts
    timing.jsonl      wall time of each row; the only file that is not the same every time

`verify.py` counts everything again from the last two.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from bridge.bench import written
from bridge.bench.count import Request, json_line
from bridge.bench.wire import Body, Kind, Part
from bridge.errors import ConfigurationError

MANIFEST: Final = "manifest.json"
ROWS: Final = "rows.jsonl"
PARTS: Final = "parts.jsonl.gz"
BODIES: Final = "bodies.jsonl.gz"
TIMING: Final = "timing.jsonl"
REPORT, SUMMARY, PLOTS = "report.html", "summary.json", "plots"  # what report.py makes of them


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One task in one arm, counted.

    Attributes:
        model: `scripted/...`, `live/...` or `recorded/...`.
        plan_executed: The calls of the ground truth were made, no other, and the state at the end is the right one.
            Of a scripted model this says that the harness works; it says nothing of how a model would do.
        unsafe: Calls that failed in a program which completed all the same.
        seen: Of `facts` that are needed, those that stood in what the model could read.
        repetition: Of a live model, which is asked the same more than once; a script says the same each time.
    """

    task: str
    workload: str
    group: str
    arm: str
    model: str
    policy: str
    format: str
    seed: int
    plan_executed: bool
    calls: int
    calls_failed: int
    unsafe: int
    programs: int
    programs_failed: int
    searches: int
    facts: int
    seen: int
    size: dict[str, float]
    requests: list[Request]
    usage: list[dict[str, int]] = []
    repetition: int = 0

    @property
    def variant(self) -> tuple[str, str, str]:
        """What it is compared by."""
        return self.arm, self.model, self.policy

    @property
    def key(self) -> tuple[str, ...]:
        """Where it stands in the file."""
        again = (f"{self.repetition:03}",) if self.repetition else ()
        return self.workload, self.task, self.arm, self.model, self.policy, self.format, str(self.seed), *again


@dataclass(frozen=True)
class Measured:
    """A row with the requests behind it, and how long it took."""

    row: Row
    requests: list[tuple[Body, list[Part]]]
    wall_s: float


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """How the rows came about. Holds no date and no path, so that the same command gives the same bytes."""

    sandbridge: str
    python: str
    engine: str
    tokenizer: str
    ranks_sha256: str
    prices_date: str
    prices_source: str
    seed: int
    formats: list[str]
    workloads: dict[str, list[str]]
    variants: list[list[str]]
    datasets: dict[str, str]
    cohorts: list[str]
    models: list[str]
    system: str


def write(folder: Path, measured: Iterable[Measured], manifest: Manifest) -> None:
    """Write all files, sorted, so that they do not depend on who was first.

    What was made there of earlier rows, such as the page and the plots, is deleted.

    Raises:
        ConfigurationError: A file cannot be written.
    """
    ordered = sorted(measured, key=lambda each: each.row.key)
    numbers: dict[Part, int] = {}
    bodies = [
        json_line([_numbered(body, output, numbers) for body, output in _shared(each.requests)]) for each in ordered
    ]
    about = json.dumps(msgspec.to_builtins(manifest), indent=1, sort_keys=True)
    written.put(folder / MANIFEST, f"{about}\n".encode())
    _lines(folder / ROWS, (json_line(each.row) for each in ordered))
    _packed(folder / PARTS, (json.dumps([part.kind, part.text]) for part in numbers))
    _packed(folder / BODIES, bodies)
    written.delete(
        [folder / REPORT, folder / SUMMARY, *(folder / PLOTS).glob("*.svg"), *(folder / PLOTS).glob("*.png")]
    )
    _lines(folder / TIMING, (json_line([*each.row.key, round(each.wall_s, 4)]) for each in ordered))


def _shared(requests: Sequence[tuple[Body, list[Part]]]) -> Iterator[tuple[tuple[Body, int], list[Part]]]:
    """Each body with how many of its items the body before had, too."""
    before: tuple[Part, ...] = ()
    for body, output in requests:
        same = 0
        for mine, other in zip(body.items, before, strict=False):
            if mine != other:
                break
            same += 1
        yield (body, same), output
        before = body.items


def _numbered(body: tuple[Body, int], output: Sequence[Part], numbers: dict[Part, int]) -> list[Any]:
    def number(part: Part) -> int:
        return numbers.setdefault(part, len(numbers))

    whole, same = body
    return [
        number(Part("system", whole.head)),
        [number(part) for part in whole.tools],
        whole.middle,
        same,
        [number(part) for part in whole.items[same:]],
        whole.tail,
        [number(part) for part in output],
    ]


def replaced(manifest: Manifest, rows: Sequence[Row]) -> Manifest:
    """The manifest with the models and variants of these rows: live ones are known only when they have run."""
    variants = sorted({(row.workload, *row.variant) for row in rows})
    models = sorted({row.model for row in rows})
    return msgspec.structs.replace(manifest, models=models, variants=[list(each) for each in variants])


def read_rows(folder: Path) -> list[Row]:
    """All rows.

    Raises:
        ConfigurationError: There are none, or they are not of this version.
    """
    return written.read_lines(folder / ROWS, Row, "rows, as `sandbridge bench context run` writes them")


def read_manifest(folder: Path) -> Manifest:
    """The manifest.

    Raises:
        ConfigurationError: There is none, or it is not of this version.
    """
    return written.read(folder / MANIFEST, Manifest, "a manifest, as `sandbridge bench context run` writes one")


def read_bodies(folder: Path) -> Iterator[list[tuple[Body, list[Part]]]]:
    """The requests of each row, in the rows' order.

    Raises:
        ConfigurationError: A file is missing or damaged.
    """
    try:
        with gzip.open(folder / PARTS, "rt", encoding="utf-8") as lines:
            parts = [Part(_kind(kind), text) for kind, text in map(json.loads, lines)]
        with gzip.open(folder / BODIES, "rt", encoding="utf-8") as lines:
            for line in lines:
                yield _rebuilt(json.loads(line), parts)
    except (OSError, EOFError, ValueError, IndexError) as error:
        raise ConfigurationError(f"{folder}: the stored bodies cannot be read: {error}") from None


_Stored = tuple[int, list[int], str, int, list[int], str, list[int]]
"""A request: head, tools, middle, how many items the one before had, too, the others, tail, what the model wrote."""


def _rebuilt(requests: list[Any], parts: list[Part]) -> list[tuple[Body, list[Part]]]:
    made: list[tuple[Body, list[Part]]] = []
    items: tuple[Part, ...] = ()
    for request in requests:
        head, tools, middle, same, new, tail, output = msgspec.convert(request, _Stored)
        items = (*items[:same], *(parts[number] for number in new))
        body = Body(parts[head].text, tuple(parts[number] for number in tools), middle, items, tail)
        made.append((body, [parts[number] for number in output]))
    return made


def _kind(kind: str) -> Kind:
    return msgspec.convert(kind, Kind)


def _lines(file: Path, lines: Iterable[str]) -> None:
    written.put(file, "".join(f"{line}\n" for line in lines).encode())


def _packed(file: Path, lines: Iterable[str]) -> None:
    text = "".join(f"{line}\n" for line in lines).encode()
    written.put(file, gzip.compress(text, 6, mtime=0))  # no time inside: the same text gives the same bytes
