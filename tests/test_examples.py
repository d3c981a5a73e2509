"""The examples do what they say: the shop's data and server, the programs, each script as a reader starts it."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import jsonschema_rs
import pytest
from mcp import Client, StdioServerParameters

from bridge import ApprovalRequest, Approve, Deny, Result
from bridge.config import load as configuration

EXAMPLES = Path(__file__).parents[1] / "examples"
SHOP = EXAMPLES / "shop"
DIGEST = "2845f411c3e0d27cdc736ab43832b48b9817babb6078f413f5aef135c8dd733f"  # of all rows
CONFIG = ("--config", "examples/shop/sandbridge.toml")
WEEK = {"promised_from": "2026-03-06", "promised_to": "2026-03-12"}
CALLS: dict[str, dict[str, Any]] = {  # one good call of every tool
    "list_orders": WEEK,
    "get_order": {"order_id": "O-12660"},
    "get_shipment": {"order_id": "O-12660"},
    "get_carrier": {"carrier_id": "gale"},
    "get_customer": {"customer_id": "C-215"},
    "issue_refund": {"order_id": "O-12660", "amount": 20, "reason": "late"},
}

WORST = [  # order, customer, carrier, promised, delivered, days late, total, goodwill
    ("O-12660", "Kaja Ferro", "Gale Logistics", "2026-03-06", None, 7, 238, 28.56),
    ("O-12644", "Nils Jansen", "Gale Logistics", "2026-03-06", "2026-03-12", 6, 996, 99.6),
    ("O-12680", "Luca Koch", "Gale Logistics", "2026-03-07", "2026-03-13", 6, 49, 4.9),
    ("O-12749", "Pavel Berg", "Dune Express", "2026-03-08", None, 5, 1453, 116.24),
    ("O-12671", "Ada Ferro", "Haven Green Delivery", "2026-03-08", None, 5, 882, 70.56),
    ("O-12752", "Dario Holm", "Brisk Courier", "2026-03-08", "2026-03-13", 5, 705, 56.4),
    ("O-12624", "Luca Ferro", "Crane Freight", "2026-03-08", "2026-03-13", 5, 419.5, 33.56),
    ("O-12737", "Mira Jansen", "Alder Parcel", "2026-03-09", None, 4, 1225, 73.5),
    ("O-12652", "Bruno Moser", "Crane Freight", "2026-03-09", None, 4, 987, 59.22),
    ("O-12706", "Olga Holm", "Ember Post", "2026-03-09", None, 4, 853, 51.18),
]
LATE = """
    SELECT o.id, customers.name, carriers.name, s.promised_on, s.delivered_on,
        julianday(coalesce(s.delivered_on, '2026-03-13')) - julianday(s.promised_on) AS days_late, o.total_cents / 100.0
    FROM shipments s JOIN orders o ON o.id = s.order_id
    JOIN customers ON customers.id = o.customer_id JOIN carriers ON carriers.id = s.carrier_id
    WHERE s.promised_on BETWEEN '2026-03-06' AND '2026-03-12' AND days_late > 0
    ORDER BY days_late DESC, o.total_cents DESC
"""


def load(name: str) -> ModuleType:
    """A file of the shop as a module of its own, new each time."""
    spec = importlib.util.spec_from_file_location(f"shop_{name}", SHOP / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)  # pydantic looks annotations up there
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def database() -> sqlite3.Connection:
    return load("seed").open_shop()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, database: sqlite3.Connection) -> Any:
    """The server with a new database, in this process."""
    monkeypatch.setitem(sys.modules, "seed", load("seed"))
    module = load("server")
    monkeypatch.setattr(module, "shop", database, raising=False)
    return module.server


@asynccontextmanager
async def connected() -> AsyncGenerator[Client]:
    """The server as a process, as a host starts it."""
    command = StdioServerParameters(command=sys.executable, args=["server.py"], cwd=SHOP)
    async with Client(command) as client:
        yield client


# ---- the data --------------------------------------------------------------------------------------------------------


def test_the_shop_is_the_same_on_every_machine_and_day(database: sqlite3.Connection) -> None:
    tables = ("carriers", "customers", "orders", "shipments")
    rows = [[list(row) for row in database.execute(f"SELECT * FROM {table} ORDER BY 1")] for table in tables]
    assert hashlib.sha256(json.dumps(rows).encode()).hexdigest() == DIGEST


def test_the_shop_has_what_the_readme_says(database: sqlite3.Connection) -> None:
    tables = ("orders", "carriers", "customers", "refunds")
    counts = [database.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in tables]
    assert counts == [3000, 8, 400, 0]


def test_a_shop_in_a_file_is_filled_once_and_keeps_what_is_written(tmp_path: Path) -> None:
    seed = load("seed")
    path = str(tmp_path / "shop.db")
    first = seed.open_shop(path)
    first.execute("INSERT INTO refunds (order_id, cents, reason) VALUES ('O-10001', 100, 'late')")
    first.close()
    again = seed.open_shop(path)
    assert again.execute("SELECT order_id, cents FROM refunds").fetchall()[0]["cents"] == 100
    assert again.execute("SELECT count(*) FROM orders").fetchone()[0] == 3000
    again.close()


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("not a database, and long enough to be seen as none" * 100)
    with pytest.raises(SystemExit) as refused:
        load("seed").open_shop(str(path))
    assert str(refused.value) == f"{path} cannot be used as a database: file is not a database"


def test_a_database_that_holds_something_else_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE mine (x)")
    other.close()
    with pytest.raises(SystemExit) as refused:
        load("seed").open_shop(str(path))
    assert str(refused.value) == f"{path} is not a shop of version 1: name another file, or none"
    left = sqlite3.connect(path)
    assert left.execute("SELECT name FROM sqlite_schema").fetchall() == [("mine",)]
    left.close()


# ---- the server ------------------------------------------------------------------------------------------------------


@pytest.mark.anyio
async def test_every_tool_answers_what_its_output_schema_says(server: Any) -> None:
    async with Client(server) as client:
        tools = (await client.list_tools()).tools
        assert [tool.name for tool in tools] == list(CALLS)
        for tool in tools:
            assert tool.output_schema is not None
            jsonschema_rs.meta.validate(tool.input_schema)
            jsonschema_rs.meta.validate(tool.output_schema)
            reply = await client.call_tool(tool.name, CALLS[tool.name])
            assert not reply.is_error
            jsonschema_rs.validator_for(tool.output_schema, validate_formats=True).validate(reply.structured_content)


@pytest.mark.anyio
async def test_all_tools_but_the_refund_say_that_they_only_read(server: Any) -> None:
    async with Client(server) as client:
        hints = {tool.name: tool.annotations for tool in (await client.list_tools()).tools}
    assert [name for name, hint in hints.items() if hint and hint.read_only_hint] == list(CALLS)[:-1]
    assert hints["issue_refund"] is not None
    assert hints["issue_refund"].destructive_hint is True


@pytest.mark.anyio
async def test_pages_hold_every_order_once(server: Any) -> None:
    async with Client(server) as client:
        first = (await client.call_tool("list_orders", WEEK)).structured_content
        assert (first["page"], first["pages"], first["orders_in_all"], len(first["orders"])) == (1, 5, 234, 50)
        found: list[str] = []
        for page in range(1, first["pages"] + 2):
            reply = (await client.call_tool("list_orders", {**WEEK, "page": page})).structured_content
            found += [order["order_id"] for order in reply["orders"]]
    assert len(found) == len(set(found)) == 234


@pytest.mark.anyio
async def test_orders_are_found_by_status_and_nothing_found_is_no_page(server: Any) -> None:
    async with Client(server) as client:
        lost = {"status": "cancelled", "page_size": 100}
        reply = (await client.call_tool("list_orders", lost)).structured_content
        nothing = (await client.call_tool("list_orders", {"promised_from": "2030-01-01"})).structured_content
    assert {order["status"] for order in reply["orders"]} == {"cancelled"}
    assert (nothing["orders"], nothing["pages"]) == ([], 0)


@pytest.mark.anyio
async def test_every_seventeenth_order_fails_on_its_first_try_only(server: Any) -> None:
    async with Client(server) as client:
        answers = [await client.call_tool("get_shipment", {"order_id": "O-12665"}) for _ in range(3)]
        other = await client.call_tool("get_shipment", {"order_id": "O-12666"})
    assert [answer.is_error for answer in answers] == [True, False, False]
    assert says(answers[0]) == "the carrier of order O-12665 did not answer: try again"
    assert not other.is_error


@pytest.mark.anyio
async def test_a_refund_is_counted_and_never_more_than_was_paid(server: Any) -> None:
    async with Client(server) as client:
        refund = {"order_id": "O-12660", "amount": 200, "reason": "late"}
        given = (await client.call_tool("issue_refund", refund)).structured_content
        more = await client.call_tool("issue_refund", refund)
        rest = (await client.call_tool("issue_refund", {**refund, "amount": 38})).structured_content
        order = (await client.call_tool("get_order", {"order_id": "O-12660"})).structured_content
    assert given == {"refund_id": 1, "order_id": "O-12660", "amount": 200.0, "refunded": 200.0}
    assert says(more) == "order O-12660 has 38.00 EUR left to refund, not 200.00 EUR"
    assert rest == {"refund_id": 2, "order_id": "O-12660", "amount": 38.0, "refunded": 238.0}
    assert (order["total"], order["refunded"]) == (238.0, 238.0)


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("tool", "arguments", "message"),
    [
        ("get_order", {"order_id": "O-99999"}, "there is no order 'O-99999'"),
        ("get_shipment", {"order_id": "O-99999"}, "there is no order 'O-99999'"),
        ("get_carrier", {"carrier_id": "pigeon"}, "there is no carrier 'pigeon'"),
        ("get_customer", {"customer_id": "C-999"}, "there is no customer 'C-999'"),
        ("get_shipment", {"order_id": "O-10003"}, "order O-10003 was cancelled: it has no shipment"),
        (
            "issue_refund",
            {"order_id": "O-12660", "amount": 0.001, "reason": "late"},
            "order O-12660 has 238.00 EUR left to refund, not 0.00 EUR",
        ),
    ],
)
async def test_what_is_not_there_is_named(server: Any, tool: str, arguments: dict[str, Any], message: str) -> None:
    async with Client(server) as client:
        assert says(await client.call_tool(tool, arguments)) == message


@pytest.mark.anyio
async def test_the_server_speaks_over_stdio() -> None:
    async with connected() as client:
        reply = await client.call_tool("get_carrier", {"carrier_id": "gale"})
    assert reply.structured_content == {
        "carrier_id": "gale",
        "name": "Gale Logistics",
        "promise_days": 3,
        "telephone": "+48 22 5550107",
    }


def says(reply: Any) -> str:
    """The text of a tool's error, without what the SDK puts before it."""
    assert reply.is_error
    return reply.content[0].text.partition(": ")[2]


# ---- the client function ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("total", "days_late", "euro"), [(238.0, 7, 28.56), (100.0, 1, 0.0), (100.0, 0, 0.0), (100.0, 30, 15.0)]
)
def test_goodwill_starts_with_the_second_day_and_has_a_ceiling(total: float, days_late: int, euro: float) -> None:
    assert load("tools").goodwill(total, days_late) == euro


# ---- the programs ----------------------------------------------------------------------------------------------------


async def run(program: str, verdict: Approve | Deny | None = None) -> Result:
    """Run a program of the shop as its configuration file says; one verdict for all that is asked."""

    def approver(requests: list[ApprovalRequest]) -> dict[str, Approve | Deny]:
        return {request.id: verdict for request in requests if verdict is not None}

    async with configuration(SHOP / "sandbridge.toml").executor(approver=approver if verdict else None) as executor:
        return await executor.run((SHOP / program).read_text("utf-8"))


def test_sql_finds_the_orders_that_the_program_should_find(database: sqlite3.Connection) -> None:
    found = [tuple(row) for row in database.execute(LATE)]
    assert len(found) == 45
    assert found[:10] == [row[:-1] for row in WORST]


@pytest.mark.anyio
async def test_the_program_finds_the_ten_worst_and_its_data_stay_out_of_the_context() -> None:
    result = await run("late_orders.js")
    assert (result.status, result.error) == ("completed", None)
    assert (result.value["orders"], result.value["late"], result.value["goodwill"]) == (230, 45, 810.93)
    fields = ("order", "customer", "carrier", "promised", "delivered", "days_late", "total", "goodwill")
    assert [tuple(row[field] for field in fields) for row in result.value["worst"]] == WORST
    tried_again = [call for call in result.calls if call.outcome == "failed"]
    assert len(tried_again) == 13
    assert {int(call.arguments["order_id"][2:]) % 17 for call in tried_again} == {0}
    assert len(result.calls) == 313
    assert sum(call.reply_bytes for call in result.calls) > 100_000
    assert len(result.text.encode()) < 3_000


@pytest.mark.anyio
async def test_the_refund_waits_for_a_verdict_and_says_why() -> None:
    result = await run("refund.js")
    assert result.status == "paused"
    (request,) = result.approvals
    assert request.tool == "shop/issue_refund"
    assert request.arguments == {"order_id": "O-12660", "amount": 28.56, "reason": "linen blanket is 7 days late"}
    assert request.reason == 'rule ask "shop.issue_refund": money leaves the house'


@pytest.mark.anyio
async def test_the_refund_is_given_once_somebody_approved_it() -> None:
    result = await run("refund.js", Approve())
    assert result.value == {
        "waiting": 14,
        "refund_id": 1,
        "order_id": "O-12660",
        "amount": 28.56,
        "refunded": 28.56,
    }


@pytest.mark.anyio
async def test_a_refund_that_was_denied_is_not_given() -> None:
    result = await run("refund.js", Deny("not today"))
    assert (result.status, result.error and result.error.code) == ("failed", "denied")


# ---- the scripts -----------------------------------------------------------------------------------------------------


def started(*arguments: str, status: int = 0) -> tuple[list[str], str]:
    """Lines that Python prints when it is started so, and what stands on stderr."""
    environment = {**os.environ, "PYTHONPATH": str(EXAMPLES.parent)}  # the packages under test, installed or not
    command = [sys.executable, *arguments]
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=environment,
        cwd=EXAMPLES.parent,
    )
    assert done.returncode == status, done.stderr
    return done.stdout.splitlines(), done.stderr


def test_embed_prints_the_result_and_what_it_saved() -> None:
    (*text, figures), errors = started("examples/embed.py")
    assert errors == ""
    assert text[0] == "[sandbridge] completed; 313 calls (13 failed)"
    assert [row["order"] for row in json.loads(text[1])["worst"]] == [row[0] for row in WORST]
    read = len("\n".join(text).encode())
    assert figures == f"313 calls, 172,889 bytes of replies; the model reads {read:,}"


def test_approve_decides_in_code_and_goes_on() -> None:
    assert started("examples/approve.py") == (
        [
            "shop/issue_refund, 28.56 EUR: Approve",
            "[sandbridge] completed; 4 calls",
            '{"waiting":14,"refund_id":1,"order_id":"O-12660","amount":28.56,"refunded":28.56}',
        ],
        "",
    )


def test_the_command_prints_the_ten_worst_orders() -> None:
    text, _ = started("-m", "bridge.cli", "run", "examples/shop/late_orders.js", *CONFIG)
    assert text[0] == "[sandbridge] completed; 313 calls (13 failed)"
    assert [row["order"] for row in json.loads(text[1])["worst"]] == [row[0] for row in WORST]


def test_the_command_pauses_where_nobody_can_be_asked() -> None:
    text, _ = started("-m", "bridge.cli", "run", "examples/shop/refund.js", *CONFIG, status=3)
    assert text[-1] == (
        '  approval of tools.shop.issue_refund({"order_id":"O-12660","amount":28.56,'
        '"reason":"linen blanket is 7 days late"}) at line 17'
    )


def test_embed_fits_on_a_page() -> None:
    assert len((EXAMPLES / "embed.py").read_text("utf-8").splitlines()) < 40
