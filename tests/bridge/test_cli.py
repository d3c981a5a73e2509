"""The command, from outside: exit status, standard output and standard error of a process."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import bridge

ROOT = Path(bridge.__file__).parents[1]
DEADLINE_S = 60
TOOLS = '''
from bridge import tool

@tool
def order(number: int) -> dict:
    """One order."""
    return {"number": number, "text": "x" * 1000}

@tool
def refund(number: int, amount: int) -> str:
    """Gives money back."""
    return f"{amount} for {number}"

'''
CONFIG = """
functions = ["tools.py:*"]
[[rules]]
tool = "refund"
decision = "ask"
reason = "money"
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A project: functions, a rule that asks about one of them."""
    (tmp_path / "tools.py").write_text(TOOLS)
    (tmp_path / "sandbridge.toml").write_text(CONFIG)
    return tmp_path


def environment(**more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR")}
    return {**kept, "PYTHONPATH": str(ROOT), "TERM": "xterm", **more}


def command(folder: Path, *args: str, program: str | None = None, **more: str) -> subprocess.CompletedProcess[str]:
    """Run it in a folder without a terminal; a program given here is `p.js` there."""
    if program is not None:
        (folder / "p.js").write_text(program)
    words = [sys.executable, "-W", "error", "-m", "bridge.cli", *args]
    return subprocess.run(
        words,
        cwd=folder,
        env=environment(**more),
        text=True,
        capture_output=True,
        check=False,
        timeout=DEADLINE_S,
        input="",
    )


def timed(text: str) -> str:
    """Text with every measured time as 0."""
    return re.sub(r"\d+(\.\d+)?(?= (s|ms)\b)", "0", text)


# ---- run ----------------------------------------------------------------------------------------------------------


def test_a_run_prints_what_the_model_reads_and_says_on_stderr_what_it_cost(folder: Path):
    program = "const all = await Promise.all([1, 2, 3].map(number => tools.order({number}))); return all.length"
    done = command(folder, "run", "p.js", program=program)
    assert (done.returncode, done.stdout) == (0, "[sandbridge] completed; 3 calls\n3\n")
    first, second, last = timed(done.stderr).split("\n")
    assert (first, last) == ("3 calls (order 3) in 0 s, 0 s of CPU time", "")
    assert re.fullmatch(r"context: [\d,]+ bytes with the program, [\d,]+ by direct parallel calls: \d+% less", second)


def test_the_context_is_counted_in_tokens_when_asked_for(folder: Path):
    done = command(
        folder, "run", "p.js", "--tokens", "--json", program="return (await tools.order({number: 7})).number"
    )
    ledger = json.loads(done.stdout)["ledger"]
    assert 0 < ledger["in_tokens"]["program"]["total"] < ledger["in_bytes"]["program"]["total"]


def test_json_stands_alone_on_stdout(folder: Path):
    done = command(folder, "run", "p.js", "--json", program="return (await tools.order({number: 7})).number")
    result = json.loads(done.stdout)
    assert (done.returncode, done.stderr) == (0, "")
    assert (result["status"], result["value"], len(result["calls"])) == ("completed", 7, 1)


def test_a_program_can_come_from_standard_input(folder: Path):
    words = [sys.executable, "-m", "bridge.cli", "run", "-", "--json"]
    done = subprocess.run(
        words, cwd=folder, env=environment(), text=True, capture_output=True, check=False, input="return 'ü'"
    )
    assert (done.returncode, json.loads(done.stdout)["value"]) == (0, "ü")


def test_a_program_that_throws_exits_with_1(folder: Path):
    done = command(folder, "run", "p.js", "--json", program="throw new Error('no')")
    assert (done.returncode, json.loads(done.stdout)["status"]) == (1, "failed")


def test_a_program_over_a_limit_of_the_command_line_exits_with_1(folder: Path):
    program = "await tools.order({number: 1}); await tools.order({number: 2})"
    done = command(folder, "run", "p.js", "--limit", "calls=1", "--json", program=program)
    result = json.loads(done.stdout)
    assert (done.returncode, result["status"], result["error"]["limit"]) == (1, "exceeded", "calls")


def test_inputs_come_from_a_file_and_from_single_options(folder: Path):
    (folder / "inputs.json").write_text('{"a": 1, "b": 1}')
    options = ["--inputs", "inputs.json", "--input", "b=[2]", "--input", 'c="x=y"']
    done = command(folder, "run", "p.js", *options, "--json", program="return inputs")
    assert json.loads(done.stdout)["value"] == {"a": 1, "b": [2], "c": "x=y"}


def test_a_seed_makes_chance_repeatable(folder: Path):
    values = [
        json.loads(command(folder, "run", "p.js", "--seed", seed, "--json", program="return Math.random()").stdout)[
            "value"
        ]
        for seed in ("5", "5", "6")
    ]
    assert values[0] == values[1] != values[2]


def test_without_a_terminal_and_a_store_what_is_to_be_asked_ends_the_run_here(folder: Path):
    done = command(folder, "run", "p.js", "--no-store", program="return await tools.refund({number: 1, amount: 5})")
    assert done.returncode == 3
    assert timed(done.stderr).split("\n")[2:] == [
        "approvals: 1 asked for, 1 open",
        "paused: 1 call waiting",
        '  refund (line 1) waits for approval: rule ask "refund": money',
        (
            "to go on, run it again on a terminal, which asks you; or with other rules: one that asks is stronger than "
            "one that allows"
        ),
        "this run ends here: calls that it has made are not undone, and are made again when it is run again",
        "",
    ]


def test_a_deny_of_the_command_line_is_stronger_than_the_rules_of_the_file(folder: Path):
    program = "try { return await tools.refund({number: 1, amount: 5}) } catch (error) { return error.message }"
    done = command(folder, "run", "p.js", "--deny", "refund", "--json", program=program)
    assert json.loads(done.stdout)["value"] == ('refund was denied: rule deny "refund": --deny of the command line')


def test_piped_output_has_no_control_characters_whatever_a_program_prints(folder: Path):
    done = command(folder, "run", "p.js", program="text('\\x1b[31mred\\x07\\u009b\\ttab'); return 1", FORCE_COLOR="1")
    assert done.stdout == "[sandbridge] completed\n\\u{1b}[31mred\\u{7}\\u{9b}\ttab\n1\n"
    assert "\x1b" not in done.stderr


def test_a_reader_that_goes_away_is_no_error(folder: Path):
    (folder / "p.js").write_text("return 'x'.repeat(50000)")
    reading, writing = os.pipe()
    os.close(reading)
    words = [sys.executable, "-m", "bridge.cli", "run", "p.js"]
    done = subprocess.run(words, cwd=folder, env=environment(), stdout=writing, stderr=subprocess.PIPE, check=False)
    os.close(writing)
    assert (done.returncode, len(done.stderr.splitlines())) == (0, 1)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no full device here")
@pytest.mark.parametrize("words", [["run", "p.js"], ["run", "p.js", "--json"], ["tools"], ["--version"], []])
def test_output_that_cannot_be_written_is_an_error_in_one_line(folder: Path, words: list[str]):
    (folder / "p.js").write_text("return 1")
    with Path("/dev/full").open("wb") as full:
        words = [sys.executable, "-m", "bridge.cli", *words]
        done = subprocess.run(
            words, cwd=folder, env=environment(), stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    said = "standard output cannot be written: No space left on device: what was to be shown there is lost"
    assert (done.returncode, [line for line in done.stderr.splitlines() if "calls in" not in line]) == (
        2,
        [f"sandbridge: {said}"],
    )


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["nope.js"], "sandbridge: the program: nope.js cannot be read: No such file or directory\n"),
        (["p.js", "--config", "x.toml"], "sandbridge: x.toml: cannot be read: No such file or directory\n"),
        (["p.js", "--input", "a"], "sandbridge: --input a: write NAME=JSON\n"),
        (
            ["p.js", "--input", "a=b"],
            "sandbridge: --input a=b: 'b' is no JSON; a text needs its quotes: 'a=\"...\"'\n",
        ),
        (
            ["p.js", "--inputs", "p.js"],
            "sandbridge: --inputs: p.js is no JSON: Expecting value: line 1 column 1 (char 0)\n",
        ),
        (
            ["p.js", "--limit", "cpu_s=many", "--allow", "a b"],
            (
                "sandbridge: --allow a b: rule allow 'a b': a pattern has no ' '; its wildcards are * and ?, and ? is "
                "any one character\nsandbridge: --limit cpu_s=many: 'many' is not a number of seconds\n"
            ),
        ),
    ],
)
def test_what_cannot_be_used_is_told_on_stderr_and_exits_with_2(folder: Path, args: list[str], said: str):
    done = command(folder, "run", *args, program="return 1")
    assert (done.returncode, done.stdout, done.stderr) == (2, "", said)


def test_a_required_wall_that_does_not_stand_exits_with_2_and_runs_nothing(folder: Path):
    (folder / "sandbridge.toml").write_text('[sandbox]\njit = true\nrequire = ["code_pages"]\n')
    done = command(folder, "run", "p.js", program="return 1")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(
        "sandbridge: the wall 'code_pages' (no memory is writable and executable) does not stand:"
    )


# ---- tools, doctor, and the command itself ------------------------------------------------------------------------


def test_tools_shows_what_the_model_would_read_and_rules_that_match_nothing(folder: Path):
    (folder / "sandbridge.toml").write_text(CONFIG + '[[rules]]\ntool = "refnud"\ndecision = "deny"\n')
    done = command(folder, "tools")
    assert done.returncode == 0
    assert done.stdout.endswith(
        "```ts\n"
        "declare const tools: {\n"
        "  /** One order. */\n"
        "  order(args: { number: number }): Promise<Record<string, unknown>>;\n"
        "  /** Gives money back. */\n"
        "  refund(args: { number: number; amount: number }): Promise<string>;\n"
        "};\n"
        "```\n"
    )
    warning, *_ = done.stderr.split("\n")
    assert warning == 'warning: a rule names "refnud", which matches no tool; the nearest is refund'


def test_where_no_tools_are_given_it_is_said_how(tmp_path: Path) -> None:
    done = command(tmp_path, "tools")
    assert (done.returncode, done.stderr.split("\n")[0]) == (
        0,
        "no tools are given: name them in sandbridge.toml, or with --config FILE or --mcp FILE",
    )


def test_tools_as_json_has_the_same_and_every_schema(folder: Path):
    done = command(folder, "tools", "--json")
    listing = json.loads(done.stdout)
    assert [(row["name"], row["call"]) for row in listing["tools"]] == [
        ("order", "tools.order"),
        ("refund", "tools.refund"),
    ]
    assert [(row["effect"], row["policy"][-1]) for row in listing["tools"]] == [
        ("destroys", "-> allow: no rule matches; the default for client functions is allow"),
        ("destroys", '-> ask: rule ask "refund": money'),
    ]
    assert listing["instructions"].strip() == command(folder, "tools").stdout.strip()


def test_doctor_looks_at_everything_and_exits_with_0_where_programs_can_run(folder: Path):
    done = command(folder, "doctor", "--json")
    report = json.loads(done.stdout)
    assert (done.returncode, report["ready"], report["missing"]) == (0, True, [])
    assert (report["engine"]["loads"], report["program"]["works"]) == (True, True)
    assert all(bool(row["reason"]) is not row["stands"] for row in report["walls"])
    assert "\x1b" not in command(folder, "doctor", FORCE_COLOR="1").stdout


def test_doctor_exits_with_1_where_a_required_wall_does_not_stand(folder: Path):
    (folder / "sandbridge.toml").write_text('[sandbox]\njit = true\nrequire = ["code_pages", "process"]\n')
    done = command(folder, "doctor")
    lines = done.stdout.split("\n")
    assert (done.returncode, lines[-2]) == (
        1,
        "NOT ready: code_pages must stand, or be left out of `require` in [sandbox]",
    )
    assert "  code_pages    MISSING (required)  no memory is writable and executable" in lines


def test_doctor_tells_of_an_engine_that_does_not_load_and_looks_at_the_walls_all_the_same(folder: Path):
    (folder / "py_mini_racer").mkdir()
    (folder / "py_mini_racer/__init__.py").write_text("")  # a package without its library
    done = command(folder, "doctor", "--json", PYTHONPATH=f"{folder}:{ROOT}")
    report: dict[str, Any] = json.loads(done.stdout)
    assert (done.returncode, report["ready"], report["engine"]["loads"], report["missing"]) == (1, False, False, [])
    assert report["program"]["reason"] == "the engine does not load"
    assert [row["name"] for row in report["walls"] if row["required"] and row["stands"]]


# ---- servers -------------------------------------------------------------------------------------------------------

SERVERS = """
[servers.small]
command = "python"
args = [{small}]
trusted = true
[servers.gone]
command = "no-such-command-anywhere"
env = {{ PATH = "/nowhere" }}
"""
GONE = (
    "server 'gone' (no-such-command-anywhere) cannot be started: command 'no-such-command-anywhere' was not found on "
    "PATH=/nowhere; install it or give its full path"
)


@pytest.fixture
def served(tmp_path: Path) -> Path:
    """A project with a server that works and one that cannot be started."""
    small = json.dumps(str(ROOT / "tests/servers/small.py"))
    (tmp_path / "sandbridge.toml").write_text(SERVERS.format(small=small))
    return tmp_path


def test_a_trusted_server_that_reads_is_called_and_a_server_that_is_down_is_told(served: Path):
    done = command(served, "run", "p.js", "--json", program="return await tools.small.add({a: 1, b: 2})")
    assert (done.returncode, json.loads(done.stdout)["value"], done.stderr) == (0, {"result": 3}, f"warning: {GONE}\n")


def test_what_a_server_changes_is_asked_about_unless_the_command_line_allows_it(served: Path):
    program = "return await tools.small.drop({name: 'x'})"
    asked = command(served, "run", "p.js", "--no-store", program=program)
    allowed = command(served, "run", "p.js", "--allow", "small.drop", "--json")
    assert (asked.returncode, asked.stderr.split("\n")[-3]) == (
        3,
        "to go on, run it again on a terminal, which asks you; or with --allow small.drop",
    )
    assert json.loads(allowed.stdout)["value"] == {"result": "dropped x"}


def test_doctor_names_every_server_and_one_that_may_be_missing_stops_nothing(served: Path):
    done = command(served, "doctor", "--json")
    report = json.loads(done.stdout)
    assert done.returncode == 0
    servers = [(row["name"], row["up"], row["tools"], row["revision"], row["reason"]) for row in report["servers"]]
    assert servers == [
        ("small", True, 2, "2026-07-28", ""),
        ("gone", False, 0, None, GONE),
    ]


def test_a_server_that_may_not_be_missing_stops_run_tools_and_doctor(served: Path):
    (served / "sandbridge.toml").write_text((served / "sandbridge.toml").read_text() + "optional = false\n")
    run, tools, doctor = (
        command(served, *args, program="return 1") for args in (["run", "p.js"], ["tools"], ["doctor"])
    )
    assert [done.returncode for done in (run, tools, doctor)] == [2, 2, 1]
    assert run.stderr.split("\n")[0] == tools.stderr.split("\n")[0] == f"sandbridge: {GONE}"


def test_an_mcp_json_of_another_host_is_enough(served: Path):
    (served / "sandbridge.toml").unlink()
    small = {"command": "python", "args": ["${SMALL}"], "alwaysAllow": ["add"]}
    (served / "mcp.json").write_text(json.dumps({"mcpServers": {"small": small}}, indent=1))
    where = str(ROOT / "tests/servers/small.py")
    done = command(served, "tools", "--mcp", "mcp.json", "--json", SMALL=where)
    assert [row["name"] for row in json.loads(done.stdout)["tools"]] == ["small/add", "small/drop"]
    assert done.stderr == "warning: mcp.json, line 8: mcpServers.small.alwaysAllow: is not read here\n"


# ---- the command itself --------------------------------------------------------------------------------------------


def test_without_a_command_there_is_help_and_unknown_ones_exit_with_2(folder: Path):
    alone, unknown = command(folder), command(folder, "nonsense")
    assert (alone.returncode, alone.stdout.split("\n")[0]) == (0, "Usage: sandbridge [OPTIONS] COMMAND [ARGS]...")
    assert (unknown.returncode, unknown.stderr.split("\n")[-2]) == (2, "Error: No such command 'nonsense'.")


def test_the_version_names_the_engine(folder: Path):
    done = command(folder, "--version")
    assert done.returncode == 0
    assert re.fullmatch(r"sandbridge \S.* \(V8 [\d.]+, Python [\d.]+\)\n", done.stdout)
