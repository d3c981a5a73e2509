"""What a measurement looks like: lines for a terminal, a table in Markdown, and JSON from which both can be made."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from bridge.bench import written
from bridge.bench.speed.contenders import CONTENDERS
from bridge.bench.speed.measure import OURS, Figures, Measured, Speed

_ROWS: Final[Mapping[str, str]] = {
    "W1": "cold start to the first result",
    "W2": "a fresh sandbox, `return 1+1`, 30 ms apart",
    "W3": "ten calls one after another",
    "W4": "a hundred parallel calls of 20 ms",
    "W5": "1 MiB of JSON, grouped to ten rows",
    "W6a": "sieve to 10^6 (with `Sandbox(jit=True)`)",
    "W6b": "sort of 2*10^5 numbers (with `jit=True`)",
    "W7": "private memory of a paused program",
    "W8": "two hundred programs at once",
    "rate": "programs a second, eight at a time",
}
"""The table's rows: short names of the workloads."""


def lines(name: str, measured: Measured) -> list[str]:
    """One workload for a person. `sandbridge / it` is our figure in times of the row's: below 1, ours is the less."""
    found = [f"{name}  {measured.title}", *([f"    ({measured.remark})"] if measured.remark else [])]
    found.append(f"    {'':<16}{'median':>10}{'best':>10} {'':<4}{'n':>4}   sandbridge / it: median   best")
    ours = measured.figures.get(OURS)
    for contender, figures in measured.figures.items():
        count = len(figures.measured)
        line = f"    {contender:<16}{figures.median:>10.2f}{figures.best:>10.2f} {measured.unit:<4}{count:>4}"
        if ours is not None and contender != OURS and figures.best > 0:
            line += f"{ours.median / figures.median:>27.2f}{ours.best / figures.best:>7.2f}"
        found.append(line)
    found += [f"    {contender}: no figures: {why}" for contender, why in measured.refused.items()]
    return [*found, *(f"    {goal}" for goal in measured.goals)]


def about(contenders: Mapping[str, str | None]) -> str:
    """Who was measured, in which version, and who is absent."""
    here = [f"{name} {version}" for name, version in contenders.items() if version is not None]
    absent = [f"{name} ({CONTENDERS[name].installs})" for name, version in contenders.items() if version is None]
    return ", ".join(here) + (f"; absent: {', '.join(absent)}" if absent else "")


def markdown(speed: Speed) -> str:
    """The table as pages show it: medians, a column for each contender that was there, and under it how it was made."""
    names = [name for name, version in speed.contenders.items() if version is not None]
    rows = [["", *("Sandbridge" if name == OURS else name for name in names)], ["---"] * (len(names) + 1)]
    for workload, said in _ROWS.items():
        if (measured := speed.workloads.get(workload)) is not None:
            rows.append([said, *(_cell(measured, name) for name in names)])
    told = (
        f"Medians, {speed.cores} cores, {speed.processor}, {speed.system}, Python {speed.python}, {speed.date}: "
        f"{about(speed.contenders)}."
    )
    table = "\n".join("|" + "".join(f" {cell} |" if cell else " |" for cell in row) for row in rows)
    return f"{table}\n\n{told}\n"


def read(file: Path) -> Speed:
    """A measurement that was written as JSON.

    Raises:
        ConfigurationError: It cannot be read, or is none.
    """
    return written.read(file, Speed, f"a measurement, as `sandbridge bench speed --json {file}` writes one")


def _cell(measured: Measured, name: str) -> str:
    figures = measured.figures.get(name)
    if figures is None:
        return ""
    compiled = measured.figures.get(f"{name} jit")
    return _short(figures, measured.unit) + (f" ({_number(compiled.median)})" if compiled is not None else "")


def _short(figures: Figures, unit: str) -> str:
    if unit == "/s":
        return _number(figures.median)
    if unit == "ms" and figures.median >= 1000:
        return f"{_number(figures.median / 1000)} s"
    return f"{_number(figures.median)} {unit}"


def _number(value: float) -> str:
    """Two digits that mean something, no more than the noise allows; whole where it is large."""
    return f"{value:,.0f}" if value >= 10 else f"{value:.1f}" if value >= 1 else f"{value:.2f}"
