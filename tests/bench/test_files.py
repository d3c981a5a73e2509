"""What a measurement leaves: the same bytes for the same seed, and bodies from which every number follows again."""

from __future__ import annotations

import gzip
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from bridge.bench import commands, rows, runner
from bridge.bench import report as made
from bridge.bench.rows import read_bodies, read_manifest, read_rows
from bridge.bench.verify import report, verify
from bridge.errors import ConfigurationError
from tests.bench.conftest import VARIANTS

INTERRUPTED = """
import os, signal
from bridge.bench import runner
interrupt = lambda done, all_: os.killpg(0, signal.SIGINT)  # as a terminal does: every process is told
runner.run([runner.Plan("orders", (("direct-par",),), 25)], jobs=2, tell=interrupt)
"""
SAME = (rows.MANIFEST, rows.ROWS, rows.PARTS, rows.BODIES)


def test_the_same_seed_gives_the_same_files_whatever_the_number_of_processes(measured: Path, tmp_path: Path) -> None:
    plans = [runner.Plan("adverse", VARIANTS, 1), runner.Plan("expenses", VARIANTS, 1)]
    found, manifest = runner.run(plans, seed=7, jobs=2)
    rows.write(tmp_path, reversed(found), manifest)
    for name in SAME:
        assert (tmp_path / name).read_bytes() == (measured / name).read_bytes(), name


def test_what_is_named_twice_is_run_once() -> None:
    variants = (("direct-par",), ("direct-par",))
    found, manifest = runner.run([runner.Plan("adverse", variants, 1)], seed=7, formats=["chat", "chat"])
    assert (len(found), manifest.formats) == (4, ["chat"])
    assert commands._names("orders,adverse,orders") == ["orders", "adverse"]


def test_an_interruption_ends_every_process_at_once_and_in_silence() -> None:
    words = [sys.executable, "-c", INTERRUPTED]
    done = subprocess.run(words, capture_output=True, text=True, timeout=100, check=False, start_new_session=True)
    assert done.returncode == -2
    assert done.stderr.splitlines()[-1] == "KeyboardInterrupt"
    assert done.stderr.count("Process") == 0  # a worker's own traceback


def test_new_rows_do_not_stand_beside_what_was_made_of_earlier_ones(tmp_path: Path) -> None:
    adverse, fanout = ([runner.Plan(name, VARIANTS[:1], 1)] for name in ("adverse", "fanout"))
    rows.write(tmp_path, *runner.run(fanout, seed=7))
    made.build(tmp_path)
    (tmp_path / "notes.txt").write_text("mine")
    rows.write(tmp_path, *runner.run(adverse, seed=7))
    assert sorted(file.name for file in tmp_path.iterdir()) == sorted([*SAME, rows.TIMING, rows.PLOTS, "notes.txt"])
    assert list((tmp_path / rows.PLOTS).iterdir()) == []


def test_rows_and_manifest_hold_no_times(measured: Path) -> None:
    words = (measured / rows.ROWS).read_text() + (measured / rows.MANIFEST).read_text()
    assert "wall_s" not in words
    assert "duration" not in words
    assert (measured / rows.TIMING).read_text().count("\n") == len(read_rows(measured))


def test_the_manifest_says_how_the_rows_came_about(measured: Path) -> None:
    manifest = read_manifest(measured)
    assert manifest.seed == 7
    assert manifest.workloads["expenses"] == ["expenses-3-0", "expenses-8-0"]
    assert manifest.models == ["scripted/explore+faulty@1", "scripted/oracle"]
    assert ["adverse", "prog-decl", "scripted/oracle", "projection"] in manifest.variants
    assert manifest.ranks_sha256.startswith("446a9538")
    assert manifest.engine == "mini-racer 0.14.1"


def test_a_row_says_what_was_done_and_never_how_well(measured: Path) -> None:
    [row] = [
        each
        for each in read_rows(measured)
        if each.key[:4] == ("expenses", "expenses-8-0", "prog-decl", "scripted/oracle")
    ]
    assert row.plan_executed
    assert (row.programs, row.programs_failed, row.calls_failed, row.policy) == (1, 0, 0, "projection")
    assert row.calls == row.size["calls"]
    assert [each.tokens.keys() for each in row.requests] == [
        {"system", "tools", "user"},
        {"system", "tools", "user", "code", "result"},
    ]
    fields = (measured / rows.ROWS).read_text().split("\n")[0]
    assert "success" not in fields
    assert "accuracy" not in fields


def test_every_number_can_be_counted_again(measured: Path) -> None:
    found = verify(measured)
    assert found.wrong == []
    assert found.rows == len(read_rows(measured))
    assert found.requests == sum(len(row.requests) for row in read_rows(measured))
    assert report(found) == [
        f"{found.rows:,} rows, {found.requests:,} requests counted again; {found.whole:,} of them also as whole texts"
    ]


def test_stored_bodies_are_those_that_were_sent(measured: Path) -> None:
    for row, requests in zip(read_rows(measured), read_bodies(measured), strict=True):
        assert [body.sha256 for body, _ in requests] == [each.sha256 for each in row.requests]
        assert [json.loads(body.text)["model"] for body, _ in requests] == ["scripted"] * len(requests)


@pytest.fixture
def copied(measured: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(measured, tmp_path / "copy"))


def changed(file: Path, before: str, after: str) -> None:
    packed = file.suffix == ".gz"
    text = gzip.decompress(file.read_bytes()).decode() if packed else file.read_text()
    assert before in text
    text = text.replace(before, after, 1)
    file.write_bytes(gzip.compress(text.encode()) if packed else text.encode())


def test_a_body_that_was_changed_is_found(copied: Path) -> None:
    changed(copied / rows.PARTS, "travel abroad", "travel to Mars")
    wrong = verify(copied).wrong
    assert len(wrong) > 1
    assert "adverse/adverse-judge-0/direct-par/scripted/oracle/full/responses/7: sha256 " in wrong[0]


def test_a_row_that_was_changed_is_found(copied: Path) -> None:
    row = read_rows(copied)[0]
    tokens = row.requests[0].output_tokens
    changed(copied / rows.ROWS, f'"output_tokens":{tokens}', f'"output_tokens":{tokens + 1}')
    assert verify(copied).wrong == [f"{'/'.join(row.key)}: output_tokens {tokens + 1} in the row, {tokens} in the body"]


def test_a_row_without_bodies_is_found(copied: Path) -> None:
    lines = gzip.decompress((copied / rows.BODIES).read_bytes()).splitlines(keepends=True)
    (copied / rows.BODIES).write_bytes(gzip.compress(b"".join(lines[:-1])))
    assert verify(copied).wrong == [f"{'/'.join(read_rows(copied)[-1].key)}: no bodies are stored for it"]
    (copied / rows.BODIES).write_bytes(gzip.compress(b"".join([*lines, lines[0]])))
    assert verify(copied).wrong == ["more bodies are stored than there are rows"]


@pytest.mark.parametrize("name", [rows.MANIFEST, rows.ROWS, rows.PARTS, rows.BODIES])
@pytest.mark.parametrize("content", [None, b"{", b"\x1f\x8b\x00"])
def test_a_file_that_is_missing_or_damaged_is_named(copied: Path, name: str, content: bytes | None) -> None:
    if content is None:
        (copied / name).unlink()
    else:
        (copied / name).write_bytes(content)
    with pytest.raises(ConfigurationError) as caught:
        verify(copied)
    assert str(copied) in str(caught.value)


def test_rows_that_were_counted_with_other_ranks_are_not_compared(copied: Path) -> None:
    changed(copied / rows.MANIFEST, "446a9538", "546a9538")
    with pytest.raises(ConfigurationError, match="counted with ranks 546a9538"):
        verify(copied)


def test_a_format_that_is_not_there_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="there is: responses, chat, anthropic"):
        runner.run([runner.Plan("adverse", VARIANTS, 1)], formats=["gemini"])
