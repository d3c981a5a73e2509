"""The speed table: who is timed and how, what stops it, and that every page shows what the one writer writes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from bridge.bench import written
from bridge.bench.speed import contenders, measure, table
from bridge.bench.speed.contender import Contender, Mismatch
from bridge.bench.speed.contenders import CONTENDERS, Entry, contender, versions
from bridge.bench.speed.measure import Figures, Measured, Speed
from bridge.bench.speed.workloads import WORKLOADS, Workload
from bridge.errors import ConfigurationError

ROOT = Path(__file__).parent.parent.parent
TABLE = ROOT / "benchmarks" / "speed.json"
COMMAND = "sandbridge bench speed"


class Scripted(Contender):
    """A contender that gives one value, and whose cold process prints it where Python may keep its caches."""

    value: Any = 2

    async def run(self, workload: Workload) -> Any:
        return self.value

    def cold(self) -> Sequence[str]:
        return [sys.executable, "-c", f"import sys; print(-1 if sys.dont_write_bytecode else {self.value})"]

    async def paused_bytes(self, count: int) -> list[float]:
        raise PermissionError("not ours to read")


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> type[Scripted]:
    """Stands in the place of this project; no peer is installed."""

    class Here(Scripted):
        pass

    def entry(name: str) -> Entry:
        return Entry(found=lambda: "1.0" if name == "sandbridge" else None, made=Here, installs=f"get {name}")

    monkeypatch.setattr(contenders, "CONTENDERS", {name: entry(name) for name in CONTENDERS})
    return Here


def quiet(name: str, measured: Measured) -> None:
    """Nobody watches."""


HERE = [name for name, version in versions().items() if version is not None]


@pytest.mark.anyio
@pytest.mark.parametrize("name", HERE)
async def test_whoever_is_here_gives_the_value_of_a_program_that_calls_tools(name: str) -> None:
    async with contender(name) as entrant:
        (took,) = await entrant.measure(WORKLOADS["W3"], 1)
    assert took > 0


def test_a_peer_that_is_not_installed_is_absent_and_the_rest_is_measured(scripted: type[Scripted]) -> None:
    found = measure.measure(["W2"], 1, quiet)
    assert list(found.workloads["W2"].figures) == ["sandbridge"]
    assert found.contenders["monty"] is None
    shown = table.about(found.contenders)
    assert shown.startswith("sandbridge 1.0; absent: monty (pip install pydantic-monty), quickjs-ng (")


def test_another_value_than_the_program_must_give_stops_the_measurement(scripted: type[Scripted]) -> None:
    scripted.value = 3
    with pytest.raises(Mismatch, match="W2: sandbridge gave 3, not 2"):
        measure.measure(["W2"], 1, quiet)


def test_a_cold_start_is_timed_with_the_caches_that_a_deployment_has(
    scripted: type[Scripted], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    found = measure.measure(["w1"], 1, quiet)
    assert list(found.workloads["W1"].figures) == ["sandbridge"]


def test_memory_that_may_not_be_read_is_said_and_is_no_figure(scripted: type[Scripted]) -> None:
    found = measure.measure(["W7"], 1, quiet).workloads["W7"]
    assert (found.figures, found.refused) == ({}, {"sandbridge": "not ours to read"})
    assert table.lines("W7", found)[-1] == "    sandbridge: no figures: not ours to read"


@pytest.mark.parametrize(
    ("names", "found"), [((), list(WORKLOADS)), (("w6",), ["W6a", "W6b"]), (("RATE", "W6b"), ["W6b", "rate"])]
)
def test_workloads_are_chosen_by_name(names: Sequence[str], found: list[str]) -> None:
    assert [work.name for work in measure.chosen(names)] == found


def test_a_goal_is_reached_or_not() -> None:
    assert measure.goals(WORKLOADS["W2"], {"sandbridge": 3.0, "monty": 2.0}) == [
        "goal: at most 2x monty: 1.50, reached"
    ]
    assert measure.goals(WORKLOADS["rate"], {"sandbridge": 99.0}) == ["goal: at least 100 /s: 99.00, not reached"]
    assert measure.goals(WORKLOADS["W2"], {"sandbridge": 3.0}) == []


def figures(median: float) -> Figures:
    return Figures(median=median, best=median / 2, measured=[median] * 3)


def test_the_table_has_a_column_for_whoever_was_there_and_a_row_for_what_was_measured() -> None:
    work = {"title": "t", "remark": "", "refused": {}, "goals": []}
    found = Speed(
        date="2026-11-30",
        cores=2,
        processor="x86_64",
        system="Linux 6.1",
        python="3.11.7",
        contenders={"sandbridge": "0.1.0", "monty": "1.4.0", "deno": None},
        workloads={
            "W2": Measured(unit="ms", figures={"sandbridge": figures(3.61), "monty": figures(0.994)}, **work),
            "W6a": Measured(unit="ms", figures={"sandbridge": figures(1234), "sandbridge jit": figures(30.4)}, **work),
            "rate": Measured(unit="/s", figures={"monty": figures(3455.2)}, **work),
        },
    )
    assert (
        table.markdown(found)
        == """\
| | Sandbridge | monty |
| --- | --- | --- |
| a fresh sandbox, `return 1+1`, 30 ms apart | 3.6 ms | 0.99 ms |
| sieve to 10^6 (with `Sandbox(jit=True)`) | 1.2 s (30) | |
| programs a second, eight at a time | | 3,455 |

Medians, 2 cores, x86_64, Linux 6.1, Python 3.11.7, 2026-11-30: sandbridge 0.1.0, monty 1.4.0; absent: deno \
(pip install deno).
"""
    )
    assert table.lines("W2", found.workloads["W2"])[2:] == [
        "    sandbridge            3.61      1.80 ms     3",
        "    monty                 0.99      0.50 ms     3                       3.63   3.63",
    ]


PAGES = [page for page in (ROOT / "README.md", ROOT / "benchmarks" / "README.md") if COMMAND in page.read_text("utf-8")]


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_a_page_that_names_the_command_has_the_table_that_it_writes(page: Path) -> None:
    assert table.markdown(table.read(TABLE)) in page.read_text("utf-8")


def test_the_table_that_is_shown_has_every_workload() -> None:
    assert ROOT / "benchmarks" / "README.md" in PAGES
    assert list(table.read(TABLE).workloads) == list(WORKLOADS)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (None, "cannot be read: No such file or directory; it is to be {it}"),
        ("{", "is not {it}: Input data was truncated"),
        ('{"date": "2026-11-30"}', "is not {it}: Object missing required field `cores`"),
    ],
)
def test_a_file_that_is_no_measurement_is_refused(tmp_path: Path, content: str | None, told: str) -> None:
    file = tmp_path / "speed.json"
    if content is not None:
        file.write_text(content)
    with pytest.raises(ConfigurationError) as refused:
        table.read(file)
    it = f"a measurement, as `sandbridge bench speed --json {file}` writes one"
    assert str(refused.value) == f"{file} {told.format(it=it)}"


def test_a_measurement_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError) as refused:
        written.write(tmp_path, {})
    assert str(refused.value) == f"{tmp_path} cannot be written: Is a directory"


def command(*words: str) -> subprocess.CompletedProcess[str]:
    words = ("-m", "bridge.cli", "bench", "speed", *words)
    return subprocess.run([sys.executable, *words], text=True, capture_output=True, check=False, timeout=120, cwd=ROOT)


def test_the_command_shows_what_a_file_has_in_both_forms(tmp_path: Path) -> None:
    copy = tmp_path / "copy.json"
    shown = command("--from", str(TABLE), "--markdown", "--json", str(copy))
    assert (shown.returncode, shown.stderr, shown.stdout) == (0, "", table.markdown(table.read(TABLE)))
    assert copy.read_bytes() == TABLE.read_bytes()
    shown = command("--from", str(TABLE))
    assert shown.returncode == 0
    assert shown.stdout.count("sandbridge / it: median") == len(WORKLOADS)


def test_a_workload_that_is_none_is_refused_by_name() -> None:
    done = command("W9")
    assert (done.returncode, "there is no workload 'W9'; there is: W1, W2" in done.stderr) == (2, True)
