"""orders: list -> details of each -> status of each parcel -> join. The shape of most "which ones, and why" questions.

Ten tools, three of them needed. The oracle's program returns the late orders only; `full` returns every reply. The
staged model writes ids that it has read into its next program, as it must where it cannot know a reply's shape.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, Final

from bridge.bench.tasks import Call, Open, Programs, Task, Turn
from bridge.bench.workloads.making import PLACES, literal, person, rows, schema, sentence, tool
from bridge.errors import ToolError
from bridge.tools import Tool

SIZES: Final = (3, 10, 40, 200)
_WEEK: Final = "2026-W10"

_LISTED = {
    "order_id": ("string", ""),
    "customer": ("string", ""),
    "placed": ("string", "date"),
    "total": ("number", "EUR"),
    "status": ("string", ""),
}
_LINE = {"sku": ("string", ""), "title": ("string", ""), "quantity": ("integer", ""), "price": ("number", "")}
_PARCEL = {"tracking": ("string", ""), "carrier": ("string", ""), "weight_kg": ("number", "")}
_EVENT = {"at": ("string", ""), "place": ("string", ""), "what": ("string", "")}

_LIST = "const orders = await tools.list_orders({ week: %r });"
_DETAILS = "const details = await Promise.all(orders.map(order => tools.get_order({ order_id: order.order_id })));"
_BRIEFLY = """\
return details.map(order => ({
  order_id: order.order_id, customer: order.customer, parcels: order.parcels.map(parcel => parcel.tracking),
}));"""
_PARCELS = """\
const parcels = await Promise.all(details.flatMap(order =>
  order.parcels.map(parcel => tools.track_parcel({ tracking: parcel.tracking }))));"""
_SAMPLE = """\
const detail = await tools.get_order({ order_id: orders[0].order_id });
const parcel = await tools.track_parcel({ tracking: detail.parcels[0].tracking });
return { count: orders.length, order: orders[0], detail, parcel };"""
_JOIN = """\
const status = new Map(parcels.map(parcel => [parcel.tracking, parcel]));
return details
  .filter(order => order.parcels.some(parcel => status.get(parcel.tracking).days_late > 0))
  .map(order => ({
    order_id: order.order_id,
    customer: order.customer,
    days_late: Math.max(...order.parcels.map(parcel => status.get(parcel.tracking).days_late)),
  }));"""


def tasks(seed: int, count: int | None = None) -> Sequence[Task]:
    """`count` tasks of each size; 3 by default."""
    return [
        _task(size, number, random.Random(f"orders/{seed}/{size}/{number}"))  # noqa: S311  data, not a secret
        for size in SIZES
        for number in range(3 if count is None else count)
    ]


def _task(size: int, number: int, chance: random.Random) -> Task:
    orders, details, parcels = _shop(size, chance)
    levels = [
        [Call("list_orders", {"week": _WEEK})],
        [Call("get_order", {"order_id": order["order_id"]}) for order in orders],
        [Call("track_parcel", {"tracking": each["tracking"]}) for order in details for each in order["parcels"]],
    ]
    late = [order for order in details if any(parcels[each["tracking"]]["days_late"] > 0 for each in order["parcels"])]
    ids = [order["order_id"] for order in orders]
    numbers = [each["tracking"] for order in details for each in order["parcels"]]
    listed = _LIST % _WEEK
    second = f"const details = await Promise.all({literal(ids)}.map(order_id => tools.get_order({{ order_id }})));"
    third = (
        f"const parcels = await Promise.all({literal(numbers)}.map(tracking => tools.track_parcel({{ tracking }})));"
    )
    programs = Programs(
        oracle={
            "projection": f"{listed}\n{_DETAILS}\n{_PARCELS}\n{_JOIN}",
            "full": f"{listed}\n{_DETAILS}\n{_PARCELS}\nreturn {{ orders, details, parcels }};",
        },
        staged={
            "projection": [
                f"{listed}\nreturn orders.map(order => order.order_id);",
                f"{second}\n{_BRIEFLY}",
                f"{third}\nreturn parcels.map(parcel => [parcel.tracking, parcel.days_late]);",
            ],
            "full": [
                f"{listed}\nreturn orders;",
                f"{second}\nreturn details;",
                f"{third}\nreturn parcels;",
            ],
        },
        explore=f"{listed}\n{_SAMPLE}",
    )
    answer = f"{len(late)} orders are late: " + ", ".join(f"{each['order_id']} ({each['customer']})" for each in late)
    turn = Turn(
        question="Which orders of week 10 of 2026 have a parcel that is late, whose are they, and how many days late?",
        levels=levels,
        programs=programs,
        answer=answer + ".",
        facts=[each["order_id"] for each in late],
    )
    return Task(
        id=f"orders-{size}-{number}",
        workload="orders",
        turns=[turn],
        open=lambda: Open(tools=_tools(orders, {each["order_id"]: each for each in details}, parcels)),
        group=f"orders-{size}",
        explore_calls=3,
        size={"calls": len(ids) + len(numbers) + 1},
    )


def _shop(size: int, chance: random.Random) -> tuple[list[dict[str, Any]], list[dict[str, Any]], dict[str, Any]]:
    """Orders as listed, their details, and parcels by tracking number: four for every three orders."""
    orders: list[dict[str, Any]] = []
    details: list[dict[str, Any]] = []
    parcels: dict[str, Any] = {}
    for number in range(size):
        order_id = f"O-{chance.randrange(10_000, 99_999)}"
        while any(each["order_id"] == order_id for each in orders):
            order_id = f"O-{chance.randrange(10_000, 99_999)}"
        listed = {
            "order_id": order_id,
            "customer": person(chance),
            "placed": f"2026-03-0{chance.randrange(2, 9)}",
            "total": round(chance.uniform(20, 900), 2),
            "status": chance.choice(["shipped", "in transit", "delivered"]),
        }
        sent: list[dict[str, Any]] = []
        for _ in range(2 if number % 3 == 0 else 1):
            tracking = f"{chance.choice('ABCDE')}{chance.randrange(10**9, 10**10)}"
            carrier = chance.choice(["Gale Logistics", "Dune Express", "Brisk Courier", "Ember Post"])
            sent.append({"tracking": tracking, "carrier": carrier, "weight_kg": round(chance.uniform(0.2, 12), 1)})
            late = chance.random() < 0.2
            parcels[tracking] = {
                "tracking": tracking,
                "carrier": carrier,
                "days_late": chance.randrange(1, 9) if late else 0,
                "events": [
                    {
                        "at": f"2026-03-{10 + step:02}T{chance.randrange(24):02}:{chance.randrange(60):02}:00Z",
                        "place": chance.choice(PLACES),
                        "what": chance.choice(["picked up", "sorted", "on its way", "handed over", "held at customs"]),
                    }
                    for step in range(chance.randrange(4, 9))
                ],
            }
        orders.append(listed)
        details.append(
            listed
            | {
                "address": {
                    "street": f"{sentence(chance, 1)[:-1]} street {chance.randrange(1, 200)}",
                    "city": chance.choice(PLACES),
                    "postcode": str(chance.randrange(1000, 99_999)),
                },
                "lines": [
                    {
                        "sku": f"SKU-{chance.randrange(1000, 9999)}",
                        "title": sentence(chance, 4),
                        "quantity": chance.randrange(1, 5),
                        "price": round(chance.uniform(3, 250), 2),
                    }
                    for _ in range(chance.randrange(2, 6))
                ],
                "parcels": sent,
                "note": sentence(chance, 8),
            }
        )
    return orders, details, parcels


def _tools(orders: list[dict[str, Any]], details: dict[str, Any], parcels: dict[str, Any]) -> list[Tool]:
    def known(kept: dict[str, Any], key: str) -> Any:
        if key not in kept:
            raise ToolError("not_found", f"there is no {key}")
        return kept[key]

    def nothing(_: Any) -> Any:
        raise ToolError("not_needed", "this tool is no part of the task")

    detail = schema(
        _LISTED
        | {"address": ("object", ""), "lines": ("object[]", ""), "parcels": ("object[]", ""), "note": ("string", "")}
    )
    detail["properties"] |= {"lines": rows(_LINE), "parcels": rows(_PARCEL)}
    status = schema(
        {
            "tracking": ("string", ""),
            "carrier": ("string", ""),
            "days_late": ("integer", "0 when in time"),
            "events": ("object[]", ""),
        }
    )
    status["properties"]["events"] = rows(_EVENT)
    order_id = {"order_id": ("string", "As list_orders gives it.")}
    return [
        tool(
            "list_orders",
            "Orders that were placed in one week, newest last.",
            {"week": ("string", "ISO week, such as 2026-W09.")},
            lambda given: orders if given["week"] == _WEEK else [],
            returns=rows(_LISTED),
        ),
        tool(
            "get_order",
            "One order with its lines, address and parcels.",
            order_id,
            lambda given: known(details, given["order_id"]),
            returns=detail,
        ),
        tool(
            "track_parcel",
            "Where a parcel is, and by how many days it is late.",
            {"tracking": ("string", "Tracking number.")},
            lambda given: known(parcels, given["tracking"]),
            returns=status,
        ),
        tool("get_customer", "A customer's record: contact, tier and notes.", {"name": ("string", "")}, nothing),
        tool(
            "search_products",
            "Products by words of their title, with price and stock.",
            {"query": ("string", "Words."), "limit": ("integer?", "At most so many, 20 by default.")},
            nothing,
        ),
        tool(
            "refund_order",
            "Pay back all of an order or a part of it. Cannot be undone.",
            order_id | {"amount": ("number", "EUR."), "reason": ("string", "Shown to the customer.")},
            nothing,
            changes=True,
        ),
        tool(
            "send_message",
            "Send a message to the customer of an order.",
            order_id | {"text": ("string", "Plain text.")},
            nothing,
            changes=True,
        ),
        tool("list_carriers", "Carriers with their service levels and contacts.", {}, nothing),
        tool(
            "get_stock",
            "Units of a product in each warehouse.",
            {"sku": ("string", ""), "warehouse": ("string?", "Only this one.")},
            nothing,
        ),
        tool(
            "create_return",
            "Open a return for lines of an order and give its label.",
            order_id | {"skus": ("string[]", "Lines to return.")},
            nothing,
            changes=True,
        ),
    ]
