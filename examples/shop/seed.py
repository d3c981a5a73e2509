"""The shop's database: what is in it, and how it gets there. The same rows on every machine and on every day."""

from __future__ import annotations

import json
import random
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from datetime import date, timedelta
from functools import cache
from typing import Any, Final, TypeVar

T = TypeVar("T")
Chance = Callable[[], float]  # the next number of the series, from 0 up to 1

TODAY: Final = date(2026, 3, 13)  # the shop's calendar stands still, so that an answer can be checked
ORDERS: Final = 3000
CUSTOMERS: Final = 400
DAYS: Final = 90  # orders were placed on these days up to today
CANCELLED: Final = 0.03  # share of the orders
VERSION: Final = 1  # of the rows below; a file with another one is not ours to touch

# id, name, days from order to promise, share of deliveries that are late, telephone
CARRIERS: Final = (
    ("alder", "Alder Parcel", 3, 0.08, "+49 30 5550101"),
    ("brisk", "Brisk Courier", 2, 0.14, "+49 40 5550102"),
    ("crane", "Crane Freight", 6, 0.22, "+49 69 5550103"),
    ("dune", "Dune Express", 2, 0.10, "+31 20 5550104"),
    ("ember", "Ember Post", 4, 0.31, "+33 1 55550105"),
    ("fjord", "Fjord Line", 5, 0.17, "+47 22 555106"),
    ("gale", "Gale Logistics", 3, 0.45, "+48 22 5550107"),
    ("haven", "Haven Green Delivery", 4, 0.12, "+43 1 5550108"),
)
FIRST: Final = "Ada Bruno Carla Dario Elif Finn Greta Hugo Ines Jonas Kaja Luca Mira Nils Olga Pavel Rosa Sami".split()
LAST: Final = "Abel Berg Costa Dahl Ekman Ferro Grau Holm Ivers Jansen Koch Lind Moser Novak Orsini Palm Quist".split()
CITIES: Final = "Berlin Hamburg Utrecht Lyon Bergen Gdansk Graz Porto Turin Ghent".split()
THINGS: Final = (
    ("LAMP-01", "desk lamp", 4900),
    ("CHAIR-02", "oak chair", 18900),
    ("RUG-03", "wool rug", 24900),
    ("MUG-04", "stoneware mug", 1650),
    ("SHELF-05", "wall shelf", 7900),
    ("BLANKET-06", "linen blanket", 11900),
    ("TABLE-07", "side table", 32900),
    ("VASE-08", "glass vase", 5450),
)
SCHEMA: Final = """
CREATE TABLE carriers (id TEXT PRIMARY KEY, name TEXT, promise_days INT, telephone TEXT) WITHOUT ROWID;
CREATE TABLE customers (id TEXT PRIMARY KEY, name TEXT, city TEXT, email TEXT, since TEXT) WITHOUT ROWID;
CREATE TABLE orders (
    id TEXT PRIMARY KEY, customer_id TEXT REFERENCES customers, placed_on TEXT, promised_on TEXT, status TEXT,
    total_cents INT, lines TEXT
) WITHOUT ROWID;
CREATE INDEX orders_by_promise ON orders (promised_on, id);
CREATE TABLE shipments (
    order_id TEXT PRIMARY KEY REFERENCES orders, carrier_id TEXT REFERENCES carriers, shipped_on TEXT, promised_on TEXT,
    delivered_on TEXT, scans TEXT
) WITHOUT ROWID;
CREATE TABLE refunds (id INTEGER PRIMARY KEY, order_id TEXT REFERENCES orders, cents INT, reason TEXT);
"""


def open_shop(path: str = ":memory:") -> sqlite3.Connection:
    """Open the database, and fill it if it is new.

    Raises:
        SystemExit: The file is no database, holds something else, or rows of another version.
    """
    database = sqlite3.connect(path, isolation_level=None)
    database.row_factory = sqlite3.Row
    try:
        database.execute("BEGIN IMMEDIATE")  # of two servers that start on one new file, one fills it, the other waits
        version = database.execute("PRAGMA user_version").fetchone()[0]
        if version == 0 and not database.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]:
            for statement in SCHEMA.split(";"):
                database.execute(statement)
            fill(database)
            version = VERSION
            database.execute(f"PRAGMA user_version = {VERSION}")
        database.execute("COMMIT")
    except sqlite3.DatabaseError as error:
        raise SystemExit(f"{path} cannot be used as a database: {error}") from None
    if version != VERSION:
        raise SystemExit(f"{path} is not a shop of version {VERSION}: name another file, or none")
    return database


def fill(database: sqlite3.Connection) -> None:
    """Insert every row. Only `Random.random` is used: it gives the same numbers in every version of Python."""
    chance = random.Random(2026).random
    database.executemany("INSERT INTO carriers VALUES (?, ?, ?, ?)", [(c[0], c[1], c[2], c[4]) for c in CARRIERS])
    database.executemany("INSERT INTO customers VALUES (?, ?, ?, ?, ?)", _customers(chance))
    orders, shipments = zip(*_orders(chance), strict=True)
    database.executemany("INSERT INTO orders VALUES (?, ?, ?, ?, ?, ?, ?)", orders)
    database.executemany("INSERT INTO shipments VALUES (?, ?, ?, ?, ?, ?)", [row for row in shipments if row])


# Below, a day is a number: 0 is today, -1 was yesterday.


def _customers(chance: Chance) -> Iterator[tuple[str, str, str, str, str]]:
    for number in range(1, CUSTOMERS + 1):
        first, last, city = _one(chance, FIRST), _one(chance, LAST), _one(chance, CITIES)
        email = f"{first}.{last}.{number}@example.com".lower()
        yield f"C-{number:03}", f"{first} {last}", city, email, _date(-int(chance() * 2000))


def _orders(chance: Chance) -> Iterator[tuple[tuple[Any, ...], tuple[Any, ...] | None]]:
    """Each order with its shipment; one that was cancelled has none."""
    for number in range(1, ORDERS + 1):
        order_id = f"O-{10_000 + number}"
        carrier_id, _, promise_days, late_share, _ = _one(chance, CARRIERS)
        placed = 1 - DAYS + (number - 1) * DAYS // ORDERS
        promised, shipped = placed + promise_days, placed + int(chance() * 2)
        late = chance() < late_share
        arrives = promised + (1 + int(chance() ** 2 * 9) if late else -int(chance() * 2))
        lines, cents = _basket(chance)
        customer_id = f"C-{1 + int(chance() * CUSTOMERS):03}"
        scans = json.dumps(_scans(chance, shipped, arrives))
        status = "delivered" if arrives <= 0 else "in_transit" if shipped <= 0 else "processing"
        if chance() < CANCELLED:
            yield (order_id, customer_id, _date(placed), _date(promised), "cancelled", cents, lines), None
            continue
        yield (
            (order_id, customer_id, _date(placed), _date(promised), status, cents, lines),
            (order_id, carrier_id, _past(shipped), _date(promised), _past(arrives), scans),
        )


def _basket(chance: Chance) -> tuple[str, int]:
    """The lines of an order as JSON text, and what they cost together, in cents."""
    lines: list[dict[str, Any]] = []
    total = 0
    for _ in range(1 + int(chance() * 3)):
        (sku, name, cents), quantity = _one(chance, THINGS), 1 + int(chance() * 3)
        lines.append({"sku": sku, "name": name, "quantity": quantity, "price": cents / 100})
        total += cents * quantity
    return json.dumps(lines), total


def _scans(chance: Chance, shipped: int, arrives: int) -> list[dict[str, str]]:
    """What the carrier saw of the parcel, oldest first, up to today."""
    depots = ["arrived at depot", "left depot"] * (1 + int(chance() * 3))
    steps = ["picked up", *depots, "out for delivery", "delivered"]
    seen: list[dict[str, str]] = []
    for index, what in enumerate(steps):
        day = shipped + max(0, arrives - shipped) * index // (len(steps) - 1)
        if day <= 0:
            at = f"{_date(day)}T{6 + index:02}:{int(chance() * 60):02}:00Z"
            seen.append({"at": at, "place": _one(chance, CITIES), "what": what})
    return seen


@cache
def _date(day: int) -> str:
    return (TODAY + timedelta(days=day)).isoformat()


def _past(day: int) -> str | None:
    """The date of what has happened by today."""
    return _date(day) if day <= 0 else None


def _one(chance: Chance, of: Sequence[T]) -> T:
    return of[int(chance() * len(of))]
