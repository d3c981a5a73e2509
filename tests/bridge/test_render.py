"""The text that the model reads: what it says of a run, and the one cap that all of it goes through."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.render import LABEL, tool_call
from bridge.results import Failure, PendingCall
from sandbox import Image, Limits, Log, Notice
from tests.bridge.finished import failed, finished, row
from tests.bridge.test_approval import request

# ---- completed


def test_a_value_is_shown_as_json_under_the_status_line() -> None:
    assert finished(value_json=b'{"a":[1,null,"\xc3\xa9"]}').text == f'{LABEL} completed\n{{"a":[1,null,"é"]}}'
    assert finished(value_json=b"null").text == f"{LABEL} completed\nnull"


def test_a_text_is_shown_as_it_is() -> None:
    assert finished(value_json=b'"two\\nlines \\"quoted\\""').text == f'{LABEL} completed\ntwo\nlines "quoted"'


def test_a_run_without_a_value_is_its_status_line() -> None:
    assert finished().text == f"{LABEL} completed"
    assert finished().body == ""


def test_emitted_pieces_stand_before_the_value_and_warnings_after_it() -> None:
    notices = [Notice("positional_arguments", "named them", 3), Notice("tool_alias", "getOrder is get_order")]
    assert finished(value_json=b"[1]", emitted=["a", "b\nc"], notices=notices).text.split("\n") == [
        f"{LABEL} completed",
        "a",
        "b",
        "c",
        "[1]",
        f"{LABEL} warning positional_arguments (line 3): named them",
        f"{LABEL} warning tool_alias: getOrder is get_order",
    ]


def test_console_lines_are_shown_where_there_is_nothing_else() -> None:
    logs = [Log("log", "a"), Log("info", "b"), Log("warn", "c")]
    assert finished(logs=logs, dropped_logs=2).text.split("\n") == [
        f"{LABEL} completed",
        f"{LABEL} console:",
        "a",
        "b",
        "warn: c",
        f"{LABEL} 2 more console lines did not fit into log_bytes",
    ]


def test_console_lines_that_are_not_shown_are_counted() -> None:
    text = finished(value_json=b"1", logs=[Log("log", "a")], dropped_logs=2).text
    assert text == f"{LABEL} completed; 3 console lines not shown\n1"


def test_the_status_line_counts_calls_by_outcome_and_images() -> None:
    rows = [row(), row(outcome="failed"), row(outcome="denied"), row(outcome="failed"), row(outcome="answered")]
    text = finished(rows=rows, images=[Image("image/png", "", "")], value_json=b"1").text
    assert text.split("\n")[0] == f"{LABEL} completed; 5 calls (1 denied, 2 failed); 1 image"


def test_a_denied_call_is_told_by_the_host_whatever_the_program_returns() -> None:
    rows = [row(tool="mail/send", outcome="denied", error="denied: mail/send was denied: use staging")]
    assert finished(value_json=b'"done"', rows=rows).text.split("\n") == [
        f"{LABEL} completed; 1 call (1 denied)",
        "done",
        f"{LABEL} 1 call denied: mail.send (use staging)",
    ]


def test_denied_calls_are_told_together() -> None:
    mail = row(tool="mail/send", outcome="denied", error="denied: mail/send was denied: use\x1b staging")
    rows = [mail, row(tool="f", outcome="denied"), mail, *(row(tool=f"t{n}", outcome="denied") for n in range(20))]
    told = "mail.send (use\\u{1b} staging) x 2, f, t0, t1, t2, t3, t4, t5, t6, t7, ... 12 more"
    assert finished(rows=rows).text.split("\n")[1] == f"{LABEL} 23 calls denied: {told}"


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("get_order", "tools.get_order"),
        ("carrier/track", "tools.carrier.track"),
        ("get-team", 'tools["get-team"]'),
        ("my-server/track", 'tools["my-server/track"]'),
        ("a/b/c", 'tools["a/b/c"]'),
        ('x"]\n', 'tools["x\\"]\\\\n"]'),
    ],
)
def test_a_tool_is_written_as_a_program_would(name: str, written: str) -> None:
    assert tool_call(name) == written


# ---- failures


def test_a_failure_shows_the_line_a_caret_the_calls_and_what_to_do() -> None:
    failure = Failure(
        code="type_error",
        name="TypeError",
        message="Cannot read properties of null (reading 'length')",
        line=2,
        column=10,
        hint="tools.nothing returned null",
    )
    assert failed(failure=failure, rows=[row(tool="nothing", preview="null")], emitted=["so far"]) == [
        f"{LABEL} failed; 1 call",
        f"{LABEL} error type_error at line 2, column 10:",
        "TypeError: Cannot read properties of null (reading 'length')",
        "  2 | return o.items.length;",
        "    |          ^",
        f"{LABEL} hint: tools.nothing returned null",
        f"{LABEL} calls so far, in order; what ran is not undone, so do not repeat its effects:",
        "  1. tools.nothing({}) -> null",
        (
            f'{LABEL} 1 completed call can be reused: a corrected program run with reuse "h" gets the same replies for '
            "the same calls, which are not executed again"
        ),
        f"{LABEL} output before the failure:",
        "so far",
    ]


def test_every_call_before_a_failure_says_what_became_of_it() -> None:
    rows = [
        row(tool="mail/send", arguments={"to": "ada", "body": "x" * 500}, preview='{"id":1}'),
        row(preview="", reused=True),
        row(outcome="answered", preview="7"),
        row(outcome="failed", error="NOT_FOUND: no such order"),
        row(outcome="denied", error="denied: echo was denied: use staging"),
        row(outcome="invalid", error="invalid_arguments: value is missing"),
        row(outcome="unknown_tool", error="unknown_tool: none"),
        row(outcome="cancelled"),
        row(outcome="timeout", error="timeout: 60 s"),
        row(outcome="unknown"),
        row(outcome="not_started"),
        row(outcome="expired"),
        row(arguments=[float("nan"), "\ud83d"], preview="a\x1b" + "b" * 300),
        row(outcome="failed", error="failed: the disk is full"),
    ]
    lines = failed(rows=rows)
    first = lines.index(f"{LABEL} calls so far, in order; what ran is not undone, so do not repeat its effects:") + 1
    assert lines[first : first + 14] == [
        f'  1. tools.mail.send({{"to":"ada","body":"{"x" * 115}... 385 more characters"}}) -> {{"id":1}}',
        "  2. tools.echo({}) -> done (reused)",
        "  3. tools.echo({}) -> 7 (answered in place of the tool)",
        "  4. tools.echo({}) -> failed: NOT_FOUND: no such order",
        "  5. tools.echo({}) -> denied: use staging",
        "  6. tools.echo({}) -> not sent, the arguments were refused: invalid_arguments: value is missing",
        "  7. tools.echo({}) -> not sent, there is no such tool: none",
        "  8. tools.echo({}) -> cancelled, it may have run",
        "  9. tools.echo({}) -> no answer in time, it may have run: 60 s",
        "  10. tools.echo({}) -> sent, and no answer came: it may have run",
        "  11. tools.echo({}) -> not sent, the program had ended",
        "  12. tools.echo({}) -> not sent, nobody answered in time",
        f"  13. tools.echo(...) -> a\\u{{1b}}{'b' * 158}... 142 more characters",
        "  14. tools.echo({}) -> failed: the disk is full",
    ]


def test_a_limit_is_named_in_the_status_line() -> None:
    failure = Failure(code="limit", message="more than 2 s of CPU time (cpu_s)", limit="cpu_s")
    assert failed(status="exceeded", failure=failure) == [
        f"{LABEL} exceeded cpu_s",
        f"{LABEL} error limit:",
        "more than 2 s of CPU time (cpu_s)",
    ]


@pytest.mark.parametrize(
    ("program", "line", "column", "shown"),
    [
        ("\tx\x1b y", 1, 2, ["  1 | \\tx\\u{1b} y", "    |   ^"]),
        ("a\r\nb\u2028  c", 3, 3, ["  3 |   c", "    |   ^"]),
        ("'😀' x", 1, 6, ["  1 | '😀' x", "    |     ^"]),
        ("ab", 1, 9, ["  1 | ab", "    |   ^"]),
        ("ab", 1, 0, ["  1 | ab"]),
        ("ab", 2, 1, []),
        ("ab", 0, 0, []),
        ("x" * 300 + "!" + "y" * 300, 1, 301, [f"  1 | ... {'x' * 60}!{'y' * 59} ...", f"    | {' ' * 64}^"]),
    ],
)
def test_the_caret_stands_under_the_column(program: str, line: int, column: int, shown: list[str]) -> None:
    failure = Failure(code="threw", message="m", line=line or None, column=column or None)
    assert failed(failure=failure, program=program)[3:] == shown


def test_a_pause_says_what_it_waits_for() -> None:
    pending = [PendingCall(id="r.2", run_id="r", tool="choose", arguments={"n": 1}, line=4, expires_at=1.0)]
    assert finished(status="paused", pending=pending, approvals=[request()], emitted=["so far"]).text.split("\n") == [
        f"{LABEL} paused",
        "so far",
        f"{LABEL} the program goes on where it stopped once these are decided; do not send it again. It waits for:",
        '  approval of tools.mail.send({"to":"ada","amount":1}) at line 1',
        '  an answer to tools.choose({"n":1}) at line 4',
    ]


# ---- the cap


def test_a_cut_is_announced_right_after_the_status_line() -> None:
    value = json.dumps([{"i": n} for n in range(50_000)], separators=(",", ":")).encode()
    lines = finished(value_json=value, limits=Limits(output_bytes=8192)).text.split("\n")
    how = '"... N more" marks what is left out; return less: filter, count, slice; the host keeps the whole as "h"'
    assert lines[:2] == [
        f"{LABEL} completed, truncated",
        f"{LABEL} truncated: the whole is {len(value) + 23:,} bytes, the limit 8,192; {how}",
    ]
    shown = json.loads(lines[2])
    assert shown[-1] == f"... {50_000 - len(shown) + 1:,} more items"


@pytest.mark.parametrize(
    "path",
    [
        {"value_json": b'"' + b"x" * 5_000_000 + b'"'},
        {"value_json": b'{"a":"' + b"x" * 5_000_000 + b'"}'},
        {"emitted": ["x" * 5_000_000]},
        {"logs": [Log("log", "x" * 5_000_000)]},
        {"status": "failed", "failure": Failure(code="threw", message="x" * 5_000_000)},
        {"notices": [Notice("w", "x" * 5_000_000)]},
        {"status": "failed", "failure": Failure(code="x" * 5_000_000, name="x" * 5_000_000, hint="x" * 5_000_000)},
        {"rows": [row(outcome="denied", error="x" * 5_000_000, tool="x" * 5_000_000)]},
    ],
)
def test_every_path_to_the_model_goes_through_one_cap(path: dict[str, Any]) -> None:
    result = finished(**path, limits=Limits(output_bytes=4096))
    assert len(result.text.encode()) <= 4096
    assert " more characters" in result.text


def test_a_large_part_is_cut_before_a_small_one_loses_anything() -> None:
    text = finished(
        emitted=["x" * 100_000],
        value_json=b'{"total":3}',
        notices=[Notice("w", "m")],
        rows=[row(outcome="denied")],
        limits=Limits(output_bytes=1024),
    ).text.split("\n")
    assert text[3:] == ['{"total":3}', f"{LABEL} 1 call denied: echo", f"{LABEL} warning w: m"]
    assert text[2].startswith("x" * 500)


def test_calls_that_do_not_fit_are_left_out_in_the_middle_and_counted_by_tool() -> None:
    rows = [row(tool="mail/send" if n % 4 else "get", preview=str(n)) for n in range(1000)]
    lines = failed(rows=rows, limits=Limits(output_bytes=2048))
    calls = [line for line in lines if " calls: " in line or " -> " in line]
    assert calls[0] == "  1. tools.get({}) -> 0"
    assert calls[-1] == "  1000. tools.mail.send({}) -> 999"
    left_out = next(line for line in calls if line.startswith("  ..."))
    kept = [int(line.partition(".")[0]) for line in calls if line != left_out]
    gone = sorted(set(range(1, 1001)) - set(kept))
    of_get = sum(1 for number in gone if not (number - 1) % 4)
    assert left_out == f"  ... {len(gone)} more calls: mail.send x {len(gone) - of_get}, get x {of_get}"


def test_a_part_that_has_no_room_is_left_out_rather_than_broken() -> None:
    value = json.dumps(list(range(1000))).encode()
    shown = [
        finished(value_json=value, limits=Limits(output_bytes=size)).text.split("\n")[2:] for size in range(180, 400)
    ]
    assert shown[0] == []
    assert all(json.loads(lines[0]) for lines in shown if lines)
    assert len(shown[-1]) == 1


texts = st.text(max_size=40) | st.sampled_from(["x" * 3000, "ü€😀" * 300, "\n" * 200, "[sandbridge] x"])


@given(
    output_bytes=st.integers(1, 3000),
    value=st.none() | texts | st.lists(texts, max_size=5) | st.dictionaries(texts, texts, max_size=5),
    emitted=st.lists(texts, max_size=3),
    logs=st.lists(st.builds(Log, st.sampled_from(["log", "warn"]), texts), max_size=3),
    failure=st.none()
    | st.builds(
        Failure, code=texts, name=texts, message=texts, line=st.integers(0, 3), column=st.integers(0, 9), hint=texts
    ),
    notices=st.lists(st.builds(Notice, texts, texts), max_size=3),
    rows=st.lists(
        st.builds(
            row, tool=texts, arguments=texts, outcome=st.sampled_from(["completed", "denied", "unknown"]), error=texts
        ),
        max_size=6,
    ),
    program=texts,
)
def test_the_text_never_exceeds_its_limit_and_says_when_it_is_cut(output_bytes: int, value: Any, **parts: Any) -> None:
    status = "failed" if parts["failure"] else "completed"
    data = json.dumps(value).encode()
    result = finished(status=status, value_json=data, limits=Limits(output_bytes=output_bytes), **parts)
    whole = finished(status=status, value_json=data, limits=Limits(output_bytes=10_000_000), **parts).text
    assert len(result.text.encode()) <= output_bytes
    if len(whole.encode()) <= output_bytes:
        assert result.text == whole
        assert "truncated" not in [notice.code for notice in result.warnings]
    else:
        assert result.warnings[-1].code == "truncated"
        assert result.handle == "h"
        if output_bytes >= 300:
            assert result.text.split("\n")[1].startswith(
                f"{LABEL} truncated: the whole is {len(whole.encode()):,} bytes"
            )
