"""The threat manifest against the tests, the code and the documents: each checked in both directions."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from sandbox.attacks.corpus import HELD, load
from sandbox.attacks.siege import ENDED, NATIVE
from tests.threats import ATTACK_FILES, BOUNDARIES, THREATS, full_table, table

ROOT = Path(__file__).parent.parent
SECURITY = (ROOT / "SECURITY.md").read_text("utf-8")
README = (ROOT / "README.md").read_text("utf-8")
IDS = [threat.id for threat in THREATS]
OF_CORPUS = {case.threat for case in load()} | {threat for threat, _ in NATIVE.values()} | {ENDED[0]}


@cache
def marked(file: Path) -> dict[str, set[str]]:
    """Test of a file -> the threats that markers name for it."""
    tree = ast.parse(file.read_text("utf-8"))
    everywhere = {threat for node in tree.body if _is_mark(node) for threat in _threats(node)}
    return {
        node.name: everywhere | {threat for decorator in node.decorator_list for threat in _threats(decorator)}
        for node in tree.body
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name.startswith("test_")
    }


def _is_mark(node: ast.stmt) -> bool:
    return isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "pytestmark" for t in node.targets)


def _threats(node: ast.AST) -> set[str]:
    return {
        call.args[0].value
        for call in ast.walk(node)
        if isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and call.func.attr == "threat"
        and isinstance(call.args[0], ast.Constant)
        and isinstance(call.args[0].value, str)
    }


def files() -> list[Path]:
    return sorted((ROOT / "tests").rglob("test_*.py"))


def exists(name: str) -> bool:
    """Whether a test, or a file of tests, is there: `FILE` or `FILE::TEST`."""
    file, _, test = name.partition("::")
    return (ROOT / file).is_file() and (not test or test in marked(ROOT / file))


def test_every_threat_is_there_once_and_at_a_boundary_that_is() -> None:
    assert len(IDS) == len(set(IDS))
    assert {threat.boundary for threat in THREATS} == set(BOUNDARIES)


def test_every_threat_has_a_test_that_is_there() -> None:
    by_marker = {threat for file in files() for found in marked(file).values() for threat in found}
    assert [threat.id for threat in THREATS if not (threat.tests or threat.id in by_marker | OF_CORPUS)] == []
    assert [name for threat in THREATS for name in threat.tests if not exists(name)] == []


def test_every_marker_and_every_attack_names_a_threat_that_is_there() -> None:
    by_marker = {threat for file in files() for found in marked(file).values() for threat in found}
    assert by_marker | OF_CORPUS <= set(IDS)
    assert set(HELD) <= set(IDS)


@pytest.mark.parametrize("file", ATTACK_FILES)
def test_every_test_of_an_attack_belongs_to_a_threat(file: str) -> None:
    named = {name for threat in THREATS for name in threat.tests}
    tests = marked(ROOT / file)
    assert tests
    assert [
        test for test, threats in tests.items() if not (threats or file in named or f"{file}::{test}" in named)
    ] == []


def test_the_files_of_every_defence_are_there() -> None:
    assert [file for threat in THREATS for file in threat.where if not (ROOT / file).is_file()] == []


def test_the_tables_of_the_documents_are_those_of_the_manifest() -> None:
    assert table() in README, "python -m tests.threats"
    assert full_table() in SECURITY, "python -m tests.threats --full"


def test_every_test_that_security_md_names_is_there() -> None:
    names = re.findall(r"`(tests/[\w/.]+(?:::\w+)?)`", SECURITY)
    assert len(names) > 20
    assert [name for name in names if not exists(name)] == []


def test_every_promise_of_security_md_names_its_test() -> None:
    promised = SECURITY.split("## What is promised")[1].split("\n## ")[0]
    promises = re.split(r"^- ", promised, flags=re.MULTILINE)[1:]
    assert len(promises) >= 10
    assert [promise[:60] for promise in promises if not re.search(r"`tests/[\w/.]+::\w+`", promise)] == []


def test_security_md_names_the_engine_that_is_there() -> None:
    from sandbox import ENGINE_VERSION

    pinned = re.search(r'"mini-racer==([\d.]+)"', (ROOT / "pyproject.toml").read_text("utf-8"))
    assert pinned is not None
    assert f"V8 {ENGINE_VERSION}" in SECURITY
    assert f"mini-racer {pinned[1]}" in SECURITY
