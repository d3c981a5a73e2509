"""A shop as an MCP server over stdio: orders, shipments, carriers and customers in SQLite, and a tool that gives money.

    python server.py            the database lives in memory and is new at each start
    python server.py shop.db    it lives in a file, filled at the first start

One tool is slow (`get_shipment` asks a carrier), the same one fails now and then (every 17th order, on its first try),
and one should not run before a person has said yes (`issue_refund`).
"""

from __future__ import annotations

import json
import sqlite3
import sys
from datetime import date
from typing import Annotated, Any, Final, Literal

import anyio
from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import ToolAnnotations
from pydantic import BaseModel, Field
from seed import open_shop

PAGE_SIZE: Final = 50
FLAKY: Final = 17  # of orders whose number is a multiple of it, the carrier does not answer at the first try
READS: Final = ToolAnnotations(read_only_hint=True, idempotent_hint=True, open_world_hint=False)
GIVES: Final = ToolAnnotations(
    read_only_hint=False, destructive_hint=True, idempotent_hint=False, open_world_hint=False
)

Status = Literal["processing", "in_transit", "delivered", "cancelled"]
OrderId = Annotated[str, Field(description="such as O-10001", pattern=r"^O-\d{5}$")]

CustomerId = Annotated[str, Field(description="such as C-001", pattern=r"^C-\d{3}$")]


class OrderRow(BaseModel):
    order_id: str
    customer_id: str
    placed_on: date
    promised_on: date
    status: Status
    total: float = Field(description="EUR")


class OrderPage(BaseModel):
    orders: list[OrderRow]
    page: int
    pages: int = Field(description="how many pages there are, 0 if nothing matches")
    orders_in_all: int


class Line(BaseModel):
    sku: str
    name: str
    quantity: int
    price: float = Field(description="EUR, of one piece")


class Order(OrderRow):
    lines: list[Line]
    refunded: float = Field(description="EUR given back so far")


class Scan(BaseModel):
    at: str = Field(description="UTC, ISO 8601")
    place: str
    what: str


class Shipment(BaseModel):
    order_id: str
    carrier_id: str
    promised_on: date
    shipped_on: date | None
    delivered_on: date | None = Field(description="null: not delivered yet")
    scans: list[Scan] = Field(description="oldest first")


class Carrier(BaseModel):
    carrier_id: str
    name: str
    promise_days: int = Field(description="days from order to promised delivery")
    telephone: str


class Customer(BaseModel):
    customer_id: str
    name: str
    city: str
    email: str
    customer_since: date


class Refund(BaseModel):
    refund_id: int
    order_id: str
    amount: float
    refunded: float = Field(description="EUR given back for this order so far, this refund included")


server = MCPServer("shop", title="The shop", version="1", log_level="ERROR")
shop: sqlite3.Connection  # opened by main
tried: set[str] = set()  # flaky orders that were asked for before


@server.tool(annotations=READS, title="List orders")
async def list_orders(
    status: Status | None = None,
    promised_from: date | None = None,
    promised_to: date | None = None,
    page: Annotated[int, Field(ge=1)] = 1,
    page_size: Annotated[int, Field(ge=1, le=100)] = PAGE_SIZE,
) -> OrderPage:
    """Orders by promised delivery date (both ends included) and status, oldest promise first, a page at a time."""
    where = "(:status IS NULL OR status = :status) AND promised_on BETWEEN :first AND :last"
    values = {
        "status": status,
        "first": (promised_from or date.min).isoformat(),
        "last": (promised_to or date.max).isoformat(),
        "size": page_size,
        "skip": (page - 1) * page_size,
    }
    found = shop.execute(f"SELECT count(*) FROM orders WHERE {where}", values).fetchone()[0]
    rows = shop.execute(
        f"SELECT * FROM orders WHERE {where} ORDER BY promised_on, id LIMIT :size OFFSET :skip", values
    ).fetchall()
    orders = [OrderRow.model_validate(_order(row)) for row in rows]
    return OrderPage(orders=orders, page=page, pages=-(-found // page_size), orders_in_all=found)


@server.tool(annotations=READS, title="Get order")
async def get_order(order_id: OrderId) -> Order:
    """One order with its lines and what was refunded."""
    row = _row("orders", order_id)
    return Order.model_validate(
        {**_order(row), "lines": json.loads(row["lines"]), "refunded": _refunded(order_id) / 100}
    )


@server.tool(annotations=READS, title="Get shipment")
async def get_shipment(order_id: OrderId) -> Shipment:
    """Where the parcel of an order is, asked from its carrier. Slow; if the carrier does not answer, try again."""
    number = int(order_id.removeprefix("O-"))
    await anyio.sleep(0.030 + number * 7919 % 51 / 1000)  # 30 to 80 ms, always the same for one order
    if number % FLAKY == 0 and order_id not in tried:
        tried.add(order_id)
        raise ToolError(f"the carrier of order {order_id} did not answer: try again")
    if _row("orders", order_id)["status"] == "cancelled":
        raise ToolError(f"order {order_id} was cancelled: it has no shipment")
    row = dict(shop.execute("SELECT * FROM shipments WHERE order_id = ?", [order_id]).fetchone())
    return Shipment.model_validate({**row, "scans": json.loads(row["scans"])})


@server.tool(annotations=READS, title="Get carrier")
async def get_carrier(carrier_id: Annotated[str, Field(description="such as alder")]) -> Carrier:
    """Name and telephone of a carrier."""
    row = dict(_row("carriers", carrier_id))
    return Carrier.model_validate({**row, "carrier_id": row["id"]})


@server.tool(annotations=READS, title="Get customer")
async def get_customer(
    customer_id: Annotated[str, Field(description="such as C-001", pattern=r"^C-\d{3}$")],
) -> Customer:
    """Name and address of a customer."""
    row = dict(_row("customers", customer_id))
    return Customer.model_validate({**row, "customer_id": row["id"], "customer_since": row["since"]})


@server.tool(annotations=GIVES, title="Issue refund")
async def issue_refund(
    order_id: OrderId,
    amount: Annotated[float, Field(gt=0, description="EUR, at most what was paid and not refunded yet")],
    reason: Annotated[str, Field(min_length=1, max_length=200)],
) -> Refund:
    """Give a customer money back. It cannot be taken back."""
    total_cents, refunded = _row("orders", order_id)["total_cents"], _refunded(order_id)
    cents = round(amount * 100)
    if not 0 < cents <= total_cents - refunded:
        left = (total_cents - refunded) / 100
        raise ToolError(f"order {order_id} has {left:.2f} EUR left to refund, not {amount:.2f} EUR")
    made = shop.execute("INSERT INTO refunds (order_id, cents, reason) VALUES (?, ?, ?)", [order_id, cents, reason])
    return Refund(
        refund_id=made.lastrowid or 0, order_id=order_id, amount=cents / 100, refunded=(refunded + cents) / 100
    )


def _row(table: Literal["orders", "carriers", "customers"], key: str) -> sqlite3.Row:
    row = shop.execute(f"SELECT * FROM {table} WHERE id = ?", [key]).fetchone()
    if row is None:
        raise ToolError(f"there is no {table.removesuffix('s')} {key!r}")
    return row


def _order(row: sqlite3.Row) -> dict[str, Any]:
    return {**dict(row), "order_id": row["id"], "total": row["total_cents"] / 100}


def _refunded(order_id: str) -> int:
    return shop.execute("SELECT coalesce(sum(cents), 0) FROM refunds WHERE order_id = ?", [order_id]).fetchone()[0]


if __name__ == "__main__":
    shop = open_shop(*sys.argv[1:2])
    server.run("stdio")
