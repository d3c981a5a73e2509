"""What follows from rows: each variant against its baseline, by workload and by group; losses before wins.

The baseline is direct parallel calling with the same result cap. A variant without a cap is never compared with a
capped one, nor a scripted model with a live one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from bridge.bench import stats
from bridge.bench.arms import ARMS, BASELINE, policy
from bridge.bench.count import Price
from bridge.bench.rows import Row
from bridge.bench.stats import Compared, Done, compare
from bridge.errors import ConfigurationError

Names = tuple[str, str, str]
ORDER: Final = tuple(ARMS)
LOSSES_SHOWN: Final = 12


@dataclass(frozen=True)
class Line:
    """One variant of a workload (or of a group of its tasks) against its baseline."""

    workload: str
    group: str
    names: Names
    compared: Compared

    @property
    def label(self) -> str:
        """As tables have it."""
        arm, model, returns = self.names
        return f"{arm} · {model}" + (f" · {returns}" if ARMS[arm].programs or returns != "full" else "")


@dataclass(frozen=True)
class Summary:
    """All of it.

    Attributes:
        lines: By workload, in the order of arms.
        groups: The same for each group of a generated workload.
        scripted: Whether every row is of a scripted model; never mixed with others.
        formats: Totals of the baseline's tokens by format, where there are several.
        done: Of live models, by workload and label: how often tasks were done. Empty for scripted ones.
    """

    lines: list[Line]
    groups: list[Line]
    scripted: bool
    formats: Mapping[str, int]
    done: Mapping[str, Mapping[str, Done]]

    @property
    def losses(self) -> list[Line]:
        """Programs that needed more tokens or money than the baseline, worst first."""
        found = [
            line
            for line in [*self.groups, *self.lines]
            if ARMS[line.names[0]].programs
            and (line.compared.tokens.value < 0 or line.compared.cost.value < 0)
            and (line.group or not any(each.workload == line.workload for each in self.groups))
        ]
        return sorted(found, key=lambda line: (line.compared.tokens.value, line.label))

    @property
    def losses_shown(self) -> list[Line]:
        """The worst of them, and the worst of each other workload: small losses must not hide behind large ones."""
        found = self.losses
        first = {id(found[at]) for at in range(min(LOSSES_SHOWN, len(found)))}
        first |= {id(line) for line in {line.workload: line for line in reversed(found)}.values()}
        return [line for line in found if id(line) in first]

    def to_data(self, price: str) -> dict[str, Any]:
        """For programs: every line with its figures. Shares are of 1, negative where more was needed."""
        compared = [{"label": line.label, **msgspec.to_builtins(line)} for line in [*self.lines, *self.groups]]
        done = {workload: msgspec.to_builtins(dict(each)) for workload, each in self.done.items()}
        return {"scripted": self.scripted, "price": price, "compared": compared, "formats": self.formats, "done": done}


def summarize(rows: Sequence[Row], price: Price, seed: int) -> Summary:
    """Draw the conclusions.

    Raises:
        ConfigurationError: There is nothing to compare with, or scripted and live rows stand in one table.
    """
    kinds = {row.model.partition("/")[0] for row in rows}
    if len(kinds) > 1:
        raise ConfigurationError(f"rows of {' and '.join(sorted(kinds))} models in one measurement: report them apart")
    lines: list[Line] = []
    groups: list[Line] = []
    for workload in dict.fromkeys(row.workload for row in rows):
        own = [row for row in rows if row.workload == workload]
        lines += _compared(workload, "", own, price, seed)
        names = sorted({row.group for row in own}, key=_natural)
        if len(names) < 20:
            for group in names:
                groups += _compared(workload, group, [row for row in own if row.group == group], price, seed)
    if not lines:
        raise ConfigurationError(f"there are no rows of {BASELINE}, so there is nothing to compare with")
    formats: dict[str, int] = {}
    for row in rows:
        if row.arm == BASELINE and row.policy == "full":
            tokens = sum(each.input_tokens + each.output_tokens for each in row.requests)
            formats[row.format] = formats.get(row.format, 0) + tokens
    scripted = kinds == {"scripted"}
    done = {} if scripted else {line.workload: _done(line.workload, rows, lines, seed) for line in lines}
    return Summary(lines, groups, scripted, formats, done)


def _done(workload: str, rows: Sequence[Row], lines: Sequence[Line], seed: int) -> dict[str, Done]:
    """How often tasks of a workload were done, each variant against the one baseline that all of them have."""
    own = {
        line.label: [row for row in rows if row.workload == workload and row.variant == line.names]
        for line in lines
        if line.workload == workload
    }
    base = next((found for found in own.values() if found[0].arm == BASELINE), list[Row]())
    return stats.done(own, base, seed)


def _compared(workload: str, group: str, rows: Sequence[Row], price: Price, seed: int) -> list[Line]:
    by_names: dict[Names, list[Row]] = {}
    for row in rows:
        by_names.setdefault(row.variant, []).append(row)
    lines: list[Line] = []
    for names in sorted(by_names, key=_rank):
        base = _baseline(names, by_names)
        if base is None or not stats.paired(by_names[names], by_names[base]):
            continue  # of a recording that ended early
        if by_names[base] is not by_names[names] or names[2] == "full":
            lines.append(Line(workload, group, names, compare(by_names[names], by_names[base], price, seed)))
    return lines


def _baseline(names: Names, by_names: Mapping[Names, object]) -> Names | None:
    """The baseline's names: of the same cap, and of the same live model."""
    cap = policy(names[2]).cap_bytes
    for base in by_names:
        same_kind = base[1].partition("/")[0] == "scripted" or base[1] == names[1]
        if base[0] == BASELINE and same_kind and policy(base[2]).cap_bytes == cap:
            return base
    return None


def _rank(names: Names) -> tuple[int, int, str, str]:
    return ORDER.index(names[0]), len(names[1]), names[1], names[2]


def _natural(name: str) -> tuple[object, ...]:
    return tuple((0, int(part), "") if part.isdigit() else (1, 0, part) for part in name.split("-"))
