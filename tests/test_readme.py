"""The README's promises, executed."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, get_args

import pytest
from anthropic.resources.messages.messages import DEPRECATED_MODELS
from anthropic.types import ModelParam
from openai.types import ChatModel

from tests.providers import anthropic_wire, openai_wire
from tests.providers.openai_wire import calls, chat_calls, chat_says, says

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text("utf-8")


PROGRAM = """
const late = await Promise.all(["A1", "A2", "A3"].map((order) => tools.days_late({ order })));
return [late, await tools.refund({ order: "A3", amount: 10 })];
"""
RESULT = """[sandbridge] completed; 4 calls
[[3,0,9],"10 EUR for A3"]"""


def blocks(language: str, text: str = README) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


TOOLS, RESPONSES, CHAT, MESSAGES, HOSTED = blocks(
    "python", README.split("\n## In an agent loop\n")[1].split("\n## ")[0]
)


def test_the_example_prints_what_stands_under_it(tmp_path: Path) -> None:
    code = next(block for block in blocks("python") if "anyio.run(main)" in block)
    shown = next(block for block in blocks("text") if '{"owed"' in block)
    (tmp_path / "example.py").write_text(code)
    done = subprocess.run(
        [sys.executable, str(tmp_path / "example.py")],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
        timeout=60,
    )
    assert done.stdout.endswith(shown)
    assert "goodwill(args: {" in done.stdout
    assert done.stderr == ""


def test_the_first_two_commands_are_one_line_each() -> None:
    first, second, *_ = blocks("sh")
    assert first.count("\n") == second.count("\n") == 1
    assert "sandbridge run examples/shop/late_orders.js" in first
    assert "pytest" in second


def test_every_file_that_the_readme_names_exists() -> None:
    names = set(re.findall(r"(?:examples|benchmarks|\.ci)/[\w./-]+\w", README))
    assert names >= {"examples/approve.py", "benchmarks/search.py", ".ci/run"}
    missing = [name for name in names if not (ROOT / name).exists()]
    assert missing == []


def test_the_story_of_three_processes_is_what_its_example_prints() -> None:
    done = subprocess.run(
        [sys.executable, "examples/durable.py"], cwd=ROOT, capture_output=True, text=True, check=True, timeout=120
    )
    assert f"```text\n{done.stdout}```" in README


def test_every_name_in_the_pieces_of_python_is_there() -> None:
    from bridge import Executor, Run, anthropic, openai

    for block in blocks("python"):
        compile(block, "README.md", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    for owner, names in (
        (Executor, "run start load with_tools"),
        (Run, "resume dump"),
        (anthropic, "run local"),
        (openai, "run local chat"),
    ):
        assert [name for name in names.split() if not hasattr(owner, name)] == []


@pytest.fixture
def wire(monkeypatch: pytest.MonkeyPatch) -> Any:
    with openai_wire.served() as wire:
        for name, value in {"OPENAI_API_KEY": "none", "OPENAI_BASE_URL": wire.base_url}.items():
            monkeypatch.setenv(name, value)
        for name, value in {"MODEL": "some-model", "MODEL_URL": wire.base_url}.items():
            monkeypatch.setenv(name, value)
        yield wire
    assert (wire.refusals, wire.turns) == ([], [])


def execute(*parts: str) -> None:
    """As one script: the tools of the section, and what follows them."""
    exec(compile("\n".join(parts), "README.md", "exec", dont_inherit=True), {"__name__": "readme"})


def test_the_loop_over_responses_ends_with_an_answer(wire: Any, capsys: pytest.CaptureFixture[str]) -> None:
    wire.play([calls("run_program", {"program": PROGRAM})], [says("Done.")])
    execute(TOOLS, RESPONSES)
    assert capsys.readouterr() == ("Done.\n", "")
    assert [item["output"] for item in wire.requests[1]["input"]] == [RESULT]


def test_the_loop_over_chat_completions_ends_with_an_answer(wire: Any, capsys: pytest.CaptureFixture[str]) -> None:
    wire.play([chat_says(None, chat_calls("run_program", {"program": PROGRAM}))], [chat_says("Done.")])
    execute(TOOLS, CHAT)
    assert capsys.readouterr() == ("Done.\n", "")
    assert wire.requests[1]["messages"][-1]["content"] == RESULT


def test_the_loop_over_messages_ends_with_an_answer(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with anthropic_wire.serving() as wire:
        monkeypatch.setenv("ANTHROPIC_API_KEY", "none")
        monkeypatch.setenv("ANTHROPIC_BASE_URL", wire.base_url)
        wire.play([anthropic_wire.program(PROGRAM)], [anthropic_wire.text("Done.")])
        execute(TOOLS, MESSAGES)
        assert (wire.refusals, wire.turns) == ([], [])
    assert capsys.readouterr() == ("Done.\n", "")
    assert [result["content"] for result in wire.results] == [RESULT]


def test_the_models_that_are_named_are_those_that_the_sdks_know() -> None:
    texts = [README, *((ROOT / "examples" / f"live_{name}.py").read_text("utf-8") for name in ("openai", "anthropic"))]
    named = set(re.findall(r'"((?:gpt|claude)-[\w.-]+)"', "\n".join(texts)))
    assert len(named) == 2
    assert named <= {*get_args(ChatModel), *get_args(get_args(ModelParam)[0])} - DEPRECATED_MODELS.keys()


def test_the_application_of_the_hosted_form_answers_a_wave_of_a_program_that_runs_here(
    wire: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    program = """
const found = await Promise.all(["lamp", "chair"].map((sku) => tools.stock({ sku })));
text(found.reduce((sum, each) => sum + each.units, 0));
"""
    wire.play([calls("run_program", {"program": program})], [says("Nine.")])
    execute(HOSTED)
    assert capsys.readouterr() == ("Nine.\n", "")
    assert [item["output"].split("\n")[-1] for item in wire.requests[1]["input"]] == ["9"]
    assert "openai.local(AsyncOpenAI(), executor)" in HOSTED


def test_every_command_in_the_table_is_there() -> None:
    shown = subprocess.run(
        [sys.executable, "-m", "bridge.cli", "--help"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    table = README.split("## Commands")[1].split("Exit status")[0]
    named = {
        name
        for cell in re.findall(r"^\| (`[^|]*(?:\\\|[^|]*)*) \|", table, re.MULTILINE)
        for name in re.findall(r"(?:sandbridge |`, `|\\\|)([a-z]+)", cell)
    }
    assert named >= {"run", "approve", "deny", "show", "report", "prune", "serve", "bench"}
    assert [name for name in named if not re.search(rf"^[ │]*{name}\b", shown, re.MULTILINE)] == []
