"""The page of a measurement: losses first, the claim box, every table with its n and its intervals.

A row of a scripted model never says how well a model does: the report writes "plan executed", and refuses to be built
where a table says more.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from bridge.bench import page, plots, written
from bridge.bench.arms import ARMS
from bridge.bench.calibrate import Calibration
from bridge.bench.count import Price, prices, totals
from bridge.bench.rows import REPORT, SUMMARY, Manifest, Row, read_manifest, read_rows
from bridge.bench.stats import DRAWS, LEAST_GROUPS, MARGIN, Done, Estimate
from bridge.bench.summary import Line, Summary, summarize
from bridge.bench.sweep import Units, table, units
from bridge.errors import ConfigurationError

REFUSED: Final = re.compile(r"\b(accuracy|success(?:es|ful)?(?: rate)?)\b", re.IGNORECASE)
_MAY: Final = (
    "How many tokens and bytes these calls and these programs put on the wire, exactly, summed over all requests.",
    "That both sides made the same calls, and that stateful tasks ended in the same state.",
    "Which part of a saving comes from the catalogue, from fewer requests, from replies kept out, from a cap.",
    "Where programs need more than direct calls, and from how many tools, calls and bytes on they need less.",
)
_MAY_NOT: Final = (
    "That a model would write these programs, how often one would fail, or that answers get better or worse.",
    "What a provider bills: it renders requests by templates and vocabularies of its own. Compare shares, not totals.",
    "That steps of the ladder add up, or that a share measured here holds for other tools and replies.",
    "Anything from explore and faulty rows but the price of such a habit: they are shapes, not rates.",
)
_MAY_LIVE: Final = (
    "What this model, on these tasks, put on the wire and was billed for.",
    "Paired differences with their intervals, for as many tasks and repetitions as there are.",
)
_MAY_NOT_LIVE: Final = ("Anything of other models or tools; equality from a difference that is not significant.",)
_PUBLISHED: Final = (
    "expenses",
    "expenses-8",
    0.856,
    "a vendor's published live run of this shape: 110,473 to 15,919 tokens",
)


def build(
    folder: Path, price_name: str | None = None, price_file: str | None = None, calibration: Calibration | None = None
) -> Path:
    """Write `report.html`, `summary.json` and the plots of a measurement.

    Raises:
        ConfigurationError: There is no measurement, no such price, or a file cannot be written.
    """
    manifest, rows = read_manifest(folder), read_rows(folder)
    name, price = chosen_price(price_name, price_file)
    summary = summarize(rows, price, manifest.seed)
    unit = units()
    model = "scripted" if summary.scripted else rows[0].model
    drawn = plots.draw(summary, rows, unit, price, model)
    plots.write(folder, drawn)
    source = f"file of {prices(price_file).date}; {prices(price_file).source}"
    html = _page(manifest, rows, summary, unit, (name, price, source), drawn, calibration)
    if summary.scripted and (found := REFUSED.search(re.sub(r"<svg.*?</svg>", "", html, flags=re.DOTALL))):
        raise ConfigurationError(f"the page of a scripted measurement would say {found[0]!r}: it may not")
    written.write(folder / SUMMARY, summary.to_data(name))
    written.put(folder / REPORT, html.encode())
    return folder / REPORT


def chosen_price(name: str | None, file: str | None = None) -> tuple[str, Price]:
    """A price by its name, the default without one.

    Raises:
        ConfigurationError: The file has no such model.
    """
    known = prices(file)
    name = name or known.default
    if name not in known.models:
        raise ConfigurationError(f"there is no price of {name!r}; there is: {', '.join(known.models)}")
    return name, known.models[name]


def lines(summary: Summary) -> list[str]:
    """The tables in short, for a terminal: losses first."""
    found = ["losses first (tokens / cost saved, cached; median task):"]
    found += [f"  {_short(line, line.group or line.workload)}" for line in summary.losses_shown] or ["  none"]
    for workload in dict.fromkeys(line.workload for line in summary.lines):
        found.append(f"{workload}:")
        for label, each in summary.done.get(workload, {}).items():
            found.append(f"  {label}: {', '.join(_done(each))}")
        found += [f"  {_short(line)}" for line in summary.lines if line.workload == workload]
    return found


def _short(line: Line, where: str = "") -> str:
    of = line.compared
    interval = f"{'range' if of.tokens.ranged else '95%'} {100 * of.tokens.low:+.1f} to {100 * of.tokens.high:+.1f}"
    return (
        f"{where + ': ' if where else ''}{line.label}: {100 * of.tokens.value:+.1f}% ({interval}) / "
        f"{100 * of.cost.value:+.1f}%; {of.wins} wins, {of.ties} ties, {of.losses} losses; "
        f"plan executed {of.executed} of {of.n}"
    )


def _page(
    manifest: Manifest,
    rows: Sequence[Row],
    summary: Summary,
    unit: Units,
    priced: tuple[str, Price, str],
    drawn: Mapping[str, Mapping[str, bytes]],
    calibration: Calibration | None,
) -> str:
    kinds = ", ".join(manifest.models)
    title = f"What programs save in context: {'scripted models' if summary.scripted else kinds}"
    parts = [
        f"<h1>{title}</h1>",
        page.text(
            f"model: {kinds}. {len(rows):,} rows, {sum(len(row.requests) for row in rows):,} requests, counted as "
            "o200k tokens of the exact JSON of every request body and of everything written. "
            f"Baseline: {ARMS['direct-par'].about}."
        ),
        _box(summary.scripted),
        *_losses(summary),
        *_adverse(summary),
        *_ladders(summary),
    ]
    for workload in manifest.workloads:
        parts += _workload(workload, manifest, summary, drawn)
    parts += _published(summary)
    parts += _break_even(unit, priced[1], drawn)
    if len(summary.formats) > 1:
        counted = [(name, f"{tokens:,}") for name, tokens in summary.formats.items()]
        parts += [
            page.heading("Formats"),
            page.table("The baseline's tokens by wire format.", ("format", "tokens"), counted),
        ]
    if calibration is not None:
        parts += _calibrated(summary, calibration)
    parts += _method(manifest, priced)
    parts += [page.heading("Every row"), page.folded(f"{len(rows):,} rows", _all_rows(rows))]
    return page.page(title, parts)


def _box(scripted: bool) -> str:
    may, may_not = (_MAY, _MAY_NOT) if scripted else (_MAY_LIVE, _MAY_NOT_LIVE)
    inner = page.listed("What may be concluded", may, 2) + page.listed("What may not be concluded", may_not, 2)
    return f'<section class="box" aria-label="What may and may not be concluded">{inner}</section>'


def _losses(summary: Summary) -> list[str]:
    worst, shown = summary.losses, summary.losses_shown
    left = [line for line in worst if line not in shown]
    said = (
        f"Programs that need more than the baseline, worst first: {len(worst)}, {len(shown)} shown: the worst, and the "
        "worst of each workload (median task)."
    )
    others = [page.folded(f"The other {len(left)}", _lost("Worst first, median task.", left))] if left else []
    return [page.heading("Losses first"), _lost(said, shown), *others]


def _lost(said: str, lines: Sequence[Line]) -> str:
    rows = [
        (
            page.escape(f"{line.group or line.workload}: {line.label}"),
            str(line.compared.n),
            page.share(line.compared.tokens.value),
            page.share(line.compared.cost.value),
            f"{line.compared.output[0]:,.0f} / {line.compared.output[1]:,.0f}",
        )
        for line in lines
    ]
    head = ("where", "tasks", "tokens saved", "cost saved, cached", "output tokens: program / baseline")
    return page.table(said, head, rows, raw=True)


def _adverse(summary: Summary) -> list[str]:
    lines = [line for line in summary.groups if line.workload == "adverse" and line.names[0] == "prog-decl"]
    if not lines:
        return []
    rows = [(page.escape(f"{line.group}: {line.label}"), *_cells(line)) for line in lines]
    said = "Tasks that were chosen because programs should lose on them."
    return [page.heading("The adverse set"), page.table(said, _HEAD, rows, raw=True)]


_HEAD: Final = (
    "variant",
    "n",
    "plan executed",
    "requests",
    "tokens",
    "tokens saved, median",
    "of sums",
    "cost saved, uncached",
    "cost saved, cached",
    "peak saved",
    "output tokens",
    "wins / ties / losses",
    "facts seen",
    "programs failed",
)


def _cells(line: Line) -> list[str]:
    of = line.compared
    return [
        str(of.n),
        f"{of.executed} of {of.n}",
        f"{of.requests[0]:.1f} / {of.requests[1]:.1f}",
        f"{of.total[0]:,.0f} / {of.total[1]:,.0f}",
        _estimate(of.tokens),
        _estimate(of.tokens_of_sums),
        page.share(of.cost_uncached.value),
        _estimate(of.cost),
        page.share(of.peak.value),
        f"{of.output[0]:,.0f} / {of.output[1]:,.0f}",
        f"{of.wins} / {of.ties} / {of.losses}",
        f"{of.seen} of {of.facts}" if of.facts else "none needed",
        f"{of.programs_failed} of {of.programs}" if of.programs else "no programs",
    ]


def _estimate(of: Estimate) -> str:
    signs = "{}{:+.1f} to {:+.1f}{}"
    left, right = ("range ", "") if of.ranged else ("[", "]")
    return f"{page.share(of.value)} <small>{signs.format(left, 100 * of.low, 100 * of.high, right)}</small>"


def _ladders(summary: Summary) -> list[str]:
    steps = plots.ladder(summary)
    rows = [(f"{workload}: {said}", f"{tokens:.3f}", f"{money:.3f}") for workload, said, tokens, money in steps]
    if not rows:
        return []
    said = "What is left of direct parallel calling, median task. Each step is measured by itself: they do not add up."
    return [page.heading("The ladder"), page.table(said, ("step", "tokens", "cost, cached"), rows)]


def _workload(
    workload: str, manifest: Manifest, summary: Summary, drawn: Mapping[str, Mapping[str, bytes]]
) -> list[str]:
    lines = [line for line in summary.lines if line.workload == workload]
    if not lines:
        return []
    rows = [(page.escape(line.label), *_cells(line)) for line in lines]
    said = (
        f"{len(manifest.workloads[workload])} tasks. Pairs of figures: this variant / its baseline. "
        "Saved: against direct-par with the same cap."
    )
    parts = [page.heading(f"Workload: {workload}"), page.table(said, _HEAD, rows, raw=True)]
    if done := summary.done.get(workload):
        said = (
            "Tasks done: the calls of the ground truth and no other, and the right state; a task that timed out or "
            f"was ended is one that was not. No loss: one of more than {MARGIN:.0%} of tasks is ruled out."
        )
        head = ("variant", "done", "only this arm / only the baseline", "difference", "p, corrected", "no loss")
        parts.append(page.table(said, head, [(label, *_done(each)) for label, each in done.items()]))
    groups = [line for line in summary.groups if line.workload == workload and line.names[0] != "direct-par"]
    if groups:
        inner = [(page.escape(f"{line.group}: {line.label}"), *_cells(line)) for line in groups]
        parts.append(page.folded("By size", page.table("The same, by size.", _HEAD, inner, raw=True)))
    worst = next((line for line in lines if line.names[0] == "prog-decl"), None)
    if worst is not None:
        tasks = [
            (page.escape(task), page.share(tokens), page.share(money)) for task, tokens, money in worst.compared.worst
        ]
        caption = f"The five worst tasks of {worst.label}."
        parts.append(
            page.folded("Worst tasks", page.table(caption, ("task", "tokens saved", "cost saved"), tasks, raw=True))
        )
    for name, kinds in drawn.items():
        if any(name.startswith(f"{kind}-{workload}-") for kind in ("ladder", "tasks", "faults")):
            parts.append(page.figure(kinds["svg"], f"Plot {name}"))
    return parts


def _done(each: Done) -> tuple[str, ...]:
    """How often an arm did its tasks, in words."""
    of = each.difference
    kind = "range" if of.ranged else "95%"
    return (
        f"done {each.done} of {each.n} ({100 * each.low:.0f} to {100 * each.high:.0f}%)",
        f"{each.better} / {each.worse}",
        f"{100 * of.value:+.1f} points ({kind} {100 * of.low:+.1f} to {100 * of.high:+.1f})",
        f"p {each.p:.3f}",
        "no loss" if each.no_loss else "a loss is not ruled out",
    )


def _published(summary: Summary) -> list[str]:
    workload, group, value, said = _PUBLISHED
    band = [
        line.compared.tokens.value
        for line in summary.groups
        if line.workload == workload and line.group == group and line.names[0] == "prog-decl"
    ]
    if not band:
        return []
    low, high = f"{100 * min(band):.1f}%", f"{100 * max(band):.1f}%"
    words = (
        f"Offline band against a published point: programs in {group} save {low} to {high} over all scripted habits; "
        f"{said} ({100 * value:.1f}%, one run each). The difference is behaviour and another container's preamble, "
        "which accounting cannot show."
    )
    return [page.heading("Published points"), page.text(words)]


def _break_even(unit: Units, price: Price, drawn: Mapping[str, Mapping[str, bytes]]) -> list[str]:
    rows = table(unit, price)
    measured = (
        f"A tool takes {unit.json_tool:.0f} tokens as JSON and {unit.script_tool:.0f} as TypeScript, instructions and "
        f"code tool {unit.how:.0f}, a program {unit.code:.0f}, a call {unit.call:.0f}, "
        f"a reply's wrapper {unit.wrapper:.0f}."
    )
    parts = [
        page.heading("Break-even"),
        page.text(
            "From which number on one program needs less than direct parallel calls, by a model of both. " + measured
        ),
        page.table("Least number.", ("given", "least number of", "by tokens", "by cost, cached"), rows),
    ]
    parts += [
        page.figure(kinds["svg"], f"Plot {name}") for name, kinds in drawn.items() if name.startswith("break-even")
    ]
    return parts


def _calibrated(summary: Summary, calibration: Calibration) -> list[str]:
    rows = [
        (
            f"{line.workload}: {line.label}",
            f"{line.compared.total[0]:,.0f}",
            f"{calibration.applied(line.compared.total[0], line.compared.requests[0]):,.0f}",
        )
        for line in summary.lines
    ]
    line = f"wire tokens times {calibration.factor:.3f} plus {calibration.intercept:.0f} a request"
    said = f"Level 2: {line}, for {calibration.model}."
    return [page.heading("Calibrated"), page.table(said, ("variant", "wire", "calibrated"), rows)]


def _method(manifest: Manifest, priced: tuple[str, Price, str]) -> list[str]:
    name, price, source = priced
    rates = f"{price.input:g} / {price.cached:g} / {price.output:g} USD a million tokens of input / cached / output"
    versions = [f"sandbridge {manifest.sandbridge}", f"Python {manifest.python}", manifest.engine, manifest.tokenizer]
    intervals = (
        f"Seed {manifest.seed}. Intervals: 95% percentile bootstrap over groups of tasks, {DRAWS:,} draws, same seed; "
        f"with fewer than {LEAST_GROUPS} groups the range. They say how tasks differ: a script has no chance in it."
    )
    caching = (
        "Cached: each request finds the whole prefix of the one before it, from 1,024 tokens on, in blocks of 128. "
        "Uncached: nothing."
    )
    points = [
        f"{', '.join(versions)}, sha256 of its ranks {manifest.ranks_sha256}.",
        intervals,
        f"Price: {name}: {rates} ({source}).",
        caching,
        "Of scripted models, shares are of the tasks whose plan was executed on both sides; the column says how many.",
        f"Formats: {', '.join(manifest.formats)}. Data sets: {'; '.join(manifest.datasets.values()) or 'none'}.",
        "Every number can be counted again from the stored bodies: sandbridge bench context verify --out DIR.",
    ]
    return [page.heading("Method"), page.listed("How this was counted", points)]


def _all_rows(rows: Sequence[Row]) -> str:
    cells = [
        (
            row.task,
            row.arm,
            row.model,
            row.policy,
            row.format,
            "yes" if row.plan_executed else "no",
            str(len(row.requests)),
            f"{totals(row.requests).input_tokens:,}",
            f"{totals(row.requests).output_tokens:,}",
            str(row.calls),
            str(row.programs),
        )
        for row in rows
    ]
    head = (
        "task",
        "arm",
        "model",
        "policy",
        "format",
        "plan executed",
        "requests",
        "input",
        "output",
        "calls",
        "programs",
    )
    return page.table("Tokens of all requests together.", head, cells)
