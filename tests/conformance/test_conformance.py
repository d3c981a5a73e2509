"""The protocol's conformance suite: what a change may break, of what `.ci/nightly` runs in full (suite.py)."""

from __future__ import annotations

import pytest

from tests.conformance import suite
from tests.conformance.suite import Finding

KNOWN = suite.expected((suite.HERE / "expected.txt").read_text("utf-8"))
CLIENT = {
    "2025-11-25": ["elicitation-sep1034-client-defaults", "auth/pre-registration"],
    "2026-07-28": ["sep-2322-client-request-state", "auth/scope-step-up"],
}
installed = pytest.mark.skipif(not suite.installed(), reason=".servers is not there: run .ci/servers first")


@pytest.mark.servers
@installed
def test_the_gateway_loses_nothing_of_the_reference_server_that_the_list_does_not_explain() -> None:
    bad, _ = suite.run(["named"])
    assert suite.differences(bad, [each for each in KNOWN if each.leg in ("alone", "named")]) == []


@pytest.mark.servers
@installed
def test_the_client_does_what_the_suite_wants_of_one() -> None:
    bad, _ = suite.run(["client"], CLIENT)
    assert bad == set()


# ---- what the runs above rest on ------------------------------------------------------------------------------------


def test_what_is_listed_and_what_is_found_are_compared_in_both_directions() -> None:
    text = "# slow\nnamed * a:b failure\n# and more\nnamed 2026-07-28 c:d sometimes\n"
    known = suite.expected(text)
    assert set(known.values()) == {"slow", "slow and more"}
    found = {Finding("named", "2025-11-25", "a:b", "failure"), Finding("named", "2026-07-28", "c:d", "warning")}
    assert suite.differences(found | {Finding("named", "2026-07-28", "x:y", "missing")}, known) == [
        "not expected: named 2026-07-28 x:y missing",
        "expected, and not so any more: named 2026-07-28 a:b failure",
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("named * a:b failure\n", "line 1: there is no reason above it"),
        ("# why\n\nnamed * a:b failure\n", "line 3: there is no reason above it"),
        ("# why\nnamed * a:b\n", "line 2: no LEG REVISION SCENARIO:CHECK VERDICT: 'named * a:b'"),
        ("# why\nnamed * a:b fine\n", "line 2: no LEG REVISION SCENARIO:CHECK VERDICT: 'named * a:b fine'"),
        ("# why\nnamed * a:b failure\nnamed 2025-11-25 a:b failure\n", "line 3: it is there twice"),
    ],
)
def test_a_list_without_reasons_or_sense_is_refused(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=r"expected\.txt") as caught:
        suite.expected(text)
    assert str(caught.value) == f"expected.txt, {said}"


def test_a_check_that_the_reference_server_passes_and_the_gateway_never_sees_is_missing() -> None:
    alone = {"a:": "INFO", "a:b": "SUCCESS", "a:c": "SUCCESS", "a:d": "FAILURE"}
    found = suite.findings("named", "2026-07-28", {"a:": "INFO", "a:c": "WARNING"}, alone)
    assert found == {
        Finding("named", "2026-07-28", "a:b", "missing"),
        Finding("named", "2026-07-28", "a:c", "warning"),
    }
