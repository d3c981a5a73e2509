"""Plots of a measurement, as PNG and SVG. Every title and file name of a scripted one says so.

The same rows give the same bytes: no date, no random ids, fonts that come with matplotlib.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from bridge.bench import written
from bridge.bench.arms import ARMS
from bridge.bench.count import Price, totals
from bridge.bench.rows import PLOTS, Row
from bridge.bench.summary import Line, Summary
from bridge.bench.sweep import Units, grid

_CALLS: Final = (1, 2, 3, 5, 8, 12, 20, 35, 60, 100)
_BYTES: Final = (50, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000)
_WIN, _LOSS, _BASE, _COST = "#1f6f8b", "#b5432e", "#7a7a7a", "#d9a441"
_RUNGS: Final = (
    ("direct-compact", "scripted/oracle", "full", "compact catalogue"),
    ("prog-equal", "scripted/oracle", "full", "one program, same catalogue, all replies"),
    ("prog-decl", "scripted/oracle", "full", "one program, all replies"),
    ("prog-decl", "scripted/oracle", "projection", "one program, what is asked for"),
    ("prog-decl", "scripted/oracle", "projection+cap:6000", "the same, both sides capped"),
    ("prog-decl", "scripted/staged", "projection", "must see values: several programs"),
    ("prog-decl", "scripted/staged", "projection+cap:6000", "the same, both sides capped"),
)


def ladder(summary: Summary) -> list[tuple[str, str, float, float]]:
    """The steps of each workload that has them: workload, step, share of tokens and of cost that is left."""
    found: list[tuple[str, str, float, float]] = []
    for workload in dict.fromkeys(line.workload for line in summary.lines):
        lines = {line.names: line for line in summary.lines if line.workload == workload}
        for arm, model, returns, said in _RUNGS:
            line = lines.get((arm, model, returns))
            if line is not None:
                found.append((workload, said, 1 - line.compared.tokens.value, 1 - line.compared.cost.value))
    return found


def draw(summary: Summary, rows: Sequence[Row], unit: Units, price: Price, model: str) -> dict[str, dict[str, bytes]]:
    """All plots: name -> {`svg`: ..., `png`: ...}.

    Args:
        model: What titles and names say of the model: `scripted`, or a live one.
    """
    import matplotlib

    mpl: Any = matplotlib  # its settings are typed as literals one by one
    mpl.use("agg")
    settings: dict[str, Any] = {
        "svg.hashsalt": "sandbridge",
        "svg.fonttype": "path",
        "font.family": "DejaVu Sans",
        "font.size": 9,
        "axes.spines.top": False,
        "axes.spines.right": False,
    }
    plots: dict[str, Any] = {}
    with mpl.rc_context(settings):
        for workload in dict.fromkeys(line.workload for line in summary.lines):
            steps = [each for each in ladder(summary) if each[0] == workload]
            if len(steps) > 2:
                plots[f"ladder-{workload}"] = _ladder(workload, steps, model)
            plots[f"tasks-{workload}"] = _tasks(workload, summary, rows, model)
            curve = _fault_points(summary, workload)
            if len(curve) > 2:
                plots[f"faults-{workload}"] = _faults(workload, curve, model)
        plots["break-even"] = _contour(unit, price, rows, model)
        return {f"{name}-{model}": _saved(figure) for name, figure in plots.items()}


def write(folder: Path, plots: Mapping[str, Mapping[str, bytes]]) -> None:
    """Write every plot as `plots/NAME.svg` and `.png`."""
    place = folder / PLOTS
    for name, kinds in plots.items():
        for kind, content in kinds.items():
            written.put(place / f"{name.replace('/', '-')}.{kind}", content)


def _figure(width: float, height: float) -> tuple[Any, Any]:
    from matplotlib.figure import Figure

    figure: Any = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.add_subplot()


def _saved(figure: Any) -> dict[str, bytes]:
    made: dict[str, bytes] = {}
    for kind, metadata in (("svg", {"Date": None, "Creator": None}), ("png", {"Software": None})):
        out = io.BytesIO()
        figure.savefig(out, format=kind, dpi=110, metadata=metadata)
        made[kind] = out.getvalue()
    return made


def _legend(axes: Any, **options: Any) -> None:
    """What is drawn, by name; where nothing is (a live model may make no call at all), nothing."""
    if axes.get_legend_handles_labels()[0]:
        axes.legend(**options)


def _ladder(workload: str, steps: Sequence[tuple[str, str, float, float]], model: str) -> Any:
    figure, axes = _figure(7.5, 0.55 * len(steps) + 1.4)
    places = list(range(len(steps)))
    axes.barh([place - 0.19 for place in places], [each[2] for each in steps], 0.36, color=_WIN, label="tokens")
    axes.barh([place + 0.19 for place in places], [each[3] for each in steps], 0.36, color=_COST, label="cost, cached")
    axes.axvline(1, color=_BASE, linewidth=1)
    axes.set_yticks(places, [each[1] for each in steps])
    axes.invert_yaxis()
    axes.set_xlabel("share of direct parallel calling that is left (median task)")
    axes.set_title(f"{workload}: what each step does. model: {model}", loc="left")
    _legend(axes, frameon=False)
    return figure


def _tasks(workload: str, summary: Summary, rows: Sequence[Row], model: str) -> Any:
    """A dot for each task: what was saved, sorted, one line a variant."""
    base = {
        row.task: row for row in rows if row.workload == workload and row.arm == "direct-par" and row.policy == "full"
    }
    figure, axes = _figure(7.5, 3.6)
    for line in summary.lines:
        arm, kind, returns = line.names
        if line.workload != workload or not ARMS[arm].programs or "cap" in returns:
            continue
        own = [row for row in rows if row.variant == line.names and row.task in base]
        saved = sorted(1 - _tokens(row) / _tokens(base[row.task]) for row in own)
        places = [index / max(1, len(saved) - 1) for index in range(len(saved))]
        shown = [100 * max(each, -2) for each in saved]
        axes.plot(places, shown, marker=".", linewidth=0.8, label=f"{arm} {kind.partition('/')[2]} {returns}")
    axes.axhline(0, color=_LOSS, linewidth=1)
    axes.set_xlabel("tasks, worst first")
    axes.set_ylabel("tokens saved, % (cut at -200)")
    axes.set_title(f"{workload}: every task. model: {model}", loc="left")
    _legend(axes, frameon=False, fontsize=7)
    return figure


def _fault_points(summary: Summary, workload: str) -> list[tuple[float, Line]]:
    points: list[tuple[float, Line]] = []
    for line in summary.lines:
        arm, model, returns = line.names
        if line.workload != workload or arm != "prog-decl" or returns != "projection":
            continue
        if model == "scripted/oracle":
            points.append((0.0, line))
        elif model.startswith("scripted/faulty@"):
            points.append((float(model.rpartition("@")[2]), line))
    return sorted(points, key=lambda point: point[0])


def _faults(workload: str, points: Sequence[tuple[float, Line]], model: str) -> Any:
    figure, axes = _figure(6, 3.2)
    chances = [100 * point[0] for point in points]
    for what, color, values in (
        ("tokens", _WIN, [100 * point[1].compared.tokens_of_sums.value for point in points]),
        ("cost, cached (median)", _COST, [100 * point[1].compared.cost.value for point in points]),
    ):
        axes.plot(chances, values, marker="o", color=color, label=what)
    axes.axhline(0, color=_LOSS, linewidth=1)
    axes.set_xlabel("programs that fail at first, %")
    axes.set_ylabel("saved, %")
    axes.set_title(f"{workload}: the price of failed programs. model: {model}", loc="left")
    _legend(axes, frameon=False)
    return figure


def _contour(unit: Units, price: Price, rows: Sequence[Row], model: str) -> Any:
    """Saved by calls and bytes of a reply, with the measured tasks as dots."""
    figure, axes = _figure(7, 4.4)
    values = [[100 * each for each in line] for line in grid(unit, _CALLS, _BYTES)]
    levels = [-100, -50, -20, 0, 20, 50, 80, 90, 100]
    shades = axes.contourf(_BYTES, _CALLS, values, levels=levels, cmap="RdBu", vmin=-100, vmax=100, extend="both")
    axes.contour(_BYTES, _CALLS, values, levels=[0], colors="black", linewidths=1.2)
    costs = [[100 * each for each in line] for line in grid(unit, _CALLS, _BYTES, price)]
    axes.contour(_BYTES, _CALLS, costs, levels=[0], colors="black", linewidths=1.2, linestyles="dashed")
    base = [row for row in rows if row.arm == "direct-par" and row.policy == "full" and row.calls]
    for workload in dict.fromkeys(row.workload for row in base):
        own = [row for row in base if row.workload == workload]
        sizes = [max(50.0, _reply_bytes(row)) for row in own]
        axes.scatter(sizes, [row.calls for row in own], s=9, label=workload, edgecolors="black", linewidths=0.3)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("bytes of a reply")
    axes.set_ylabel("calls, all in one level")
    axes.set_title(f"tokens saved, 10 tools; lines: break-even (dashed: cost). model: {model}", loc="left")
    _legend(axes, frameon=True, fontsize=7, loc="lower right")
    figure.colorbar(shades, ax=axes, label="tokens saved, %")
    return figure


def _reply_bytes(row: Row) -> float:
    """Bytes of a reply, on average, of the last request of a direct run."""
    return row.requests[-1].bytes.get("results", 0) / max(1, row.calls)


def _tokens(row: Row) -> int:
    return totals(row.requests).tokens
