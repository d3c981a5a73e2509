"""A run as a page: everything of the journal is on it, nothing of it can act, and every link leads somewhere."""

from __future__ import annotations

import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bridge import Approve, Executor, Policy, Tool, ToolError, ask, tool
from bridge.journal import Record, Rested
from bridge.report import SHOWN_BYTES, page, seconds
from sandbox import Sandbox

pytestmark = pytest.mark.anyio

SHOP = Path(__file__).parent.parent.parent / "examples" / "shop"
NASTY = "</pre><script>alert(1)</script><img src=x onerror=alert(1)>\u202e"


class Page(HTMLParser):
    """What is on a page: tags with their attributes, and its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.parts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.parts.append(data)

    @property
    def text(self) -> str:
        return "".join(self.parts)

    def every(self, name: str) -> list[str]:
        return [attributes[name] or "" for _, attributes in self.tags if name in attributes]


@pytest.fixture(scope="module", params=["asyncio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return request.param


@tool
async def echo(value: Any) -> Any:
    """Give it back."""
    return value


@tool
async def fail(message: str) -> None:
    """Fail."""
    raise ToolError("BROKEN", message)


PERSON = Tool(name="person", input_schema={"type": "object"})


async def journal_of(opened: Sandbox, program: str, *, answers: bool = True, policy: Policy | None = None) -> Any:
    async with Executor([echo, fail, PERSON], sandbox=opened, policy=policy) as executor:
        run = await executor.start(program)
        if answers and run.status == "paused":
            verdicts: dict[str, Any] = {request.id: Approve() for request in run.approvals}
            await run.resume(verdicts | {call.id: "said" for call in run.pending})
        return list(run.journal.records)


async def test_what_a_program_and_a_tool_wrote_can_do_nothing_on_the_page(opened: Sandbox) -> None:
    program = f"""console.log({NASTY!r}); text({NASTY!r});
    await tools.echo({{ value: {NASTY!r} }}); await tools.fail({{ message: {NASTY!r} }}).catch(() => 0);
    throw new Error({NASTY!r});"""
    shown = Page(page(await journal_of(opened, program)))
    assert {tag for tag, _ in shown.tags}.isdisjoint({"script", "img", "link", "iframe", "object", "form", "base"})
    assert not [name for _, attributes in shown.tags for name in attributes if name.startswith("on")]
    assert all(link.startswith("#") for link in shown.every("href"))
    assert shown.every("src") == []
    assert "default-src 'none'; style-src 'unsafe-inline'" in shown.every("content")
    assert shown.text.count("<script>alert(1)</script>") >= 6
    assert "\u202e" not in shown.text
    assert "\\u{202e}" in shown.text


async def test_every_link_leads_to_one_place_and_every_call_is_on_its_line(opened: Sandbox) -> None:
    program = """\
const a = await tools.echo({ value: 1 });
await Promise.all([1, 2, 3, 4].map(value =>
  tools.echo({ value })));
return a;"""
    shown = Page(page(await journal_of(opened, program)))
    ids = shown.every("id")
    assert len(ids) == len(set(ids))
    assert {link[1:] for link in shown.every("href")} <= set(ids)
    assert {f"call-{number}" for number in range(1, 6)} | {f"line-{number}" for number in range(1, 5)} <= set(ids)
    assert "wave 2: 4 calls (4 completed)" in shown.text
    assert "echo #2 and 3 more" in shown.text


async def test_a_paused_run_says_what_it_waits_for(opened: Sandbox) -> None:
    policy = Policy([ask("echo")])
    program = "return await Promise.all([tools.echo({ value: 7 }), tools.person({ q: 8 })])"
    shown = Page(page(await journal_of(opened, program, answers=False, policy=policy)))
    assert "paused" in shown.text
    assert "Waits for 2" in shown.text
    assert 'echo({"value":7})' in shown.text


async def test_a_pause_of_a_week_is_named_and_takes_no_room(opened: Sandbox) -> None:
    records: list[Record] = await journal_of(opened, "return await tools.person({})")
    at = next(index for index, record in enumerate(records) if isinstance(record, Rested))
    later = [shifted(record, 7 * 86_400) if index > at else record for index, record in enumerate(records)]
    shown = Page(page(later))
    assert "waited 7 d 0 h for people or the application" in shown.text
    assert "7 d" not in shown.text.split("began")[1].split("calls")[0]


def shifted(record: Any, by: float) -> Any:
    return msgspec.structs.replace(record, at=record.at + by) if "at" in record.__struct_fields__ else record


async def test_what_failed_is_named_in_one_place_and_on_its_line(opened: Sandbox) -> None:
    program = (
        "for (const n of [1, 2]) await tools.fail({ message: `${n}` }).catch(() => 0);\nawait tools.echo({ value: 1 })"
    )
    shown = Page(page(await journal_of(opened, program)))
    assert "Not completed (2)" in shown.text
    assert "fail #1 and 1 more (2 failed)" in shown.text
    assert "2 failed, 1 completed" in shown.text


def test_the_page_of_the_shop_run_comes_out_of_its_journal_byte_for_byte(tmp_path: Path) -> None:
    words = ["report", str(SHOP / "late_orders.jsonl"), "--out", str(tmp_path / "page.html")]
    subprocess.run([sys.executable, "-m", "bridge.cli", *words], check=True, capture_output=True, timeout=60)
    rebuilt = (tmp_path / "page.html").read_text("utf-8")
    assert rebuilt == (SHOP / "late_orders.html").read_text("utf-8")


async def test_a_failure_marks_its_line_and_says_its_hint(opened: Sandbox) -> None:
    shown = Page(page(await journal_of(opened, "const a = 1;\nreturn a.b.c;")))
    assert [attributes["id"] for _, attributes in shown.tags if attributes.get("class") == "fault"] == ["line-2"]
    assert "type_error at line 2" in shown.text


async def test_hundreds_of_calls_and_large_replies_stay_readable(opened: Sandbox) -> None:
    program = """\
await Promise.all(Array.from({ length: 300 }, (_, value) => tools.echo({ value })));
await tools.echo({ value: 'x'.repeat(100000) })"""
    text = page(await journal_of(opened, program))
    shown = Page(text)
    (wave,) = [
        attributes for tag, attributes in shown.tags if tag == "details" and "wave" in (attributes.get("class") or "")
    ]
    assert "open" not in wave  # three hundred rows are for who wants them; a wave of one call is its call
    assert "wave 1: 300 calls (300 completed)" in shown.text
    assert f"{100_002 - SHOWN_BYTES:,} more characters" in shown.text or "bytes in all" in shown.text
    assert len(text) < 1_500_000


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0312, "31 ms"), (4.2, "4.2 s"), (100, "100 s"), (600, "10 min"), (11_100, "3 h 5 min"), (187_200, "2 d 4 h")],
)
def test_a_duration_is_written_for_people(value: float, text: str) -> None:
    assert seconds(value) == text
