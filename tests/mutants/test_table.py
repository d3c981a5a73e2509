"""The table does not rot: each mutant applies, and what has to notice it is there."""

from __future__ import annotations

import ast

import pytest

from sandbox.attacks.corpus import load as corpus
from tests.mutants.table import ATTACK, ROOT, Mutant, load, wrong

MUTANTS = load()
THREATS = {name for case in corpus() if not case.endless for name in (case.id, case.threat)}


def defined(file: str) -> set[str]:
    """Names of the tests in a file; it is read, not imported."""
    tree = ast.parse((ROOT / file).read_text("utf-8"))
    return {node.name for node in tree.body if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))}


@pytest.mark.parametrize("mutant", MUTANTS, ids=[mutant.name for mutant in MUTANTS])
def test_a_mutant_applies_once_and_its_tests_are_there(mutant: Mutant) -> None:
    assert wrong(mutant) == ""
    assert mutant.new != mutant.old
    assert mutant.tests
    for test in mutant.tests:
        if test.startswith(ATTACK):
            assert test.removeprefix(ATTACK) in THREATS
            continue
        file, _, name = test.partition("::")
        assert not name or name in defined(file)


def test_names_are_given_once_and_every_area_has_its_mutants() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) > 150
    folders = {mutant.file.rpartition("/")[0] for mutant in MUTANTS}
    assert folders == {"sandbox", "sandbox/realm", "sandbox/source", "bridge"}
