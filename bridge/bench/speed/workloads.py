"""The workloads W1 to W8 and the rate: one program each, written for every contender, with the value it must give.

Data only. The tools below are what every contender's programs call; each is the same work for all of them.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, Literal

Unit = Literal["ms", "MiB", "/s"]
IDLE_S: Final = 0.03  # between two programs; a model that writes the next one leaves more
ROW_COUNT: Final = 5_000
REGION_COUNT: Final = 24


# ---- tools ---------------------------------------------------------------------------------------------------------


@cache
def item_of(number: int) -> dict[str, Any]:
    """About 200 bytes of JSON."""
    return {
        "id": number,
        "status": "late" if number % 3 else "sent",
        "customer": f"customer-{number:06d}",
        "note": "x" * 90,
        "address": {"city": "Utrecht", "street": f"Long Lane {number}", "code": "3511"},
    }


@cache
def rows() -> list[dict[str, Any]]:
    """About 1 MiB of JSON in 5,000 objects."""
    return [
        {
            "order_id": f"ORD-{n:08d}",
            "region": f"region-{n * 7 % REGION_COUNT:02d}",
            "status": ("late", "sent", "open")[n % 3],
            "cents": n * 7919 % 100_003,
            "customer": f"Customer number {n:05d} of the shop",
            "tags": ["a" * 12, "b" * 12],
            "placed": f"2026-03-{n % 28 + 1:02d}T10:00:00Z",
        }
        for n in range(ROW_COUNT)
    ]


@cache
def rows_text() -> str:
    """The rows as a service would have sent them."""
    return json.dumps(rows(), separators=(",", ":"))


async def call_tool(tool: str, arguments: dict[str, Any]) -> Any:
    """Every contender's tools end here."""
    match tool:
        case "item":
            return item_of(arguments["id"])
        case "nap":
            await asyncio.sleep(arguments["ms"] / 1000)
            return arguments["id"]
        case "rows":
            return rows()
        case _:
            raise LookupError(tool)


TOOLS: Final = ("item", "nap", "rows")


# ---- workloads -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Goal:
    """What must be reached in a quiet run on 2 cores, by medians: a bound, alone or in times of a peer."""

    bound: float
    times: str | None = None

    def text(self, unit: Unit) -> str:
        """For a person."""
        if self.times is not None:
            return f"at most {self.bound:g}x {self.times}"
        return f"at {'least' if unit == '/s' else 'most'} {self.bound:g} {unit}"


@dataclass(frozen=True, kw_only=True)
class Workload:
    """One measurement.

    Attributes:
        javascript: Body of an async function that sees `tools`.
        python: The same for monty: external functions are names, the last expression is the value.
        expected: The value that every contender must give.
        entrants: Who runs it, by names of contenders.py.
        together: Programs started at once; the time is that of all of them.
        samples: Measurements of one contender in one round.
        few: Fewer of them, for contenders that are slow here.
        idle_s: Left in peace before each measurement.
    """

    name: str
    title: str
    javascript: str
    python: str
    expected: Any
    entrants: tuple[str, ...]
    goals: tuple[Goal, ...] = ()
    unit: Unit = "ms"
    together: int = 1
    samples: int = 10
    few: tuple[str, ...] = ()
    idle_s: float = IDLE_S
    remark: str = ""


PEERS: Final = ("monty", "quickjs-ng", "quickjs-rs", "mini-racer", "node", "deno")
SLOW: Final = ("node", "deno")  # here: a process a program

SEQUENCE_JS: Final = """
let bytes = 0;
for (let id = 0; id < 10; id++) { const item = await tools.item({ id }); bytes += item.note.length + item.id; }
return bytes;
"""
SEQUENCE_PY: Final = """
total = 0
for i in range(10):
    found = await item(i)
    total += len(found['note']) + found['id']
total
"""
PARALLEL_JS: Final = """
const ids = await Promise.all(Array.from({ length: 100 }, (_, id) => tools.nap({ ms: 20, id })));
return ids.reduce((sum, id) => sum + id, 0);
"""
PARALLEL_PY: Final = """
import asyncio
sum(await asyncio.gather(*[nap(20, i) for i in range(100)]))
"""
GROUP_JS: Final = """
const rows = await tools.rows({});
const groups = {};
for (const row of rows.filter(row => row.status === 'late')) {
  const group = groups[row.region] ??= { region: row.region, count: 0, cents: 0 };
  group.count += 1;
  group.cents += row.cents;
}
return Object.values(groups).sort((a, b) => b.cents - a.cents || (a.region < b.region ? -1 : 1)).slice(0, 10);
"""
GROUP_PY: Final = """
groups = {}
for row in [row for row in await rows() if row['status'] == 'late']:
    group = groups.setdefault(row['region'], {'region': row['region'], 'count': 0, 'cents': 0})
    group['count'] += 1
    group['cents'] += row['cents']
sorted(groups.values(), key=lambda group: (-group['cents'], group['region']))[:10]
"""
SIEVE_JS: Final = """
const limit = 1_000_000, composite = new Uint8Array(limit + 1);
let count = 0, last = 0;
for (let n = 2; n <= limit; n++) {
  if (composite[n]) continue;
  count++; last = n;
  for (let m = n * n; m <= limit; m += n) composite[m] = 1;
}
return [count, last];
"""
SIEVE_PY: Final = """
limit = 1000000
composite = [False] * (limit + 1)
count = 0
last = 0
for n in range(2, limit + 1):
    if not composite[n]:
        count += 1
        last = n
        for m in range(n * n, limit + 1, n):
            composite[m] = True
[count, last]
"""
SORT_JS: Final = """
const numbers = new Array(200_000);
let state = 1;
for (let i = 0; i < numbers.length; i++) numbers[i] = state = (state * 1664525 + 1013904223) % 2147483648;
numbers.sort((a, b) => a - b);
return [numbers[0], numbers[100_000], numbers[199_999]];
"""
SORT_PY: Final = """
numbers = []
state = 1
for i in range(200000):
    state = (state * 1664525 + 1013904223) % 2147483648
    numbers.append(state)
numbers.sort()
[numbers[0], numbers[100000], numbers[199999]]
"""


def sorted_numbers() -> list[int]:
    """What the sort must give, computed here."""
    numbers, state = list[int](), 1
    for _ in range(200_000):
        state = (state * 1664525 + 1013904223) % 2147483648
        numbers.append(state)
    numbers.sort()
    return [numbers[0], numbers[100_000], numbers[199_999]]


def grouped_rows() -> list[dict[str, Any]]:
    """What the grouping must give, computed here."""
    groups: dict[str, dict[str, Any]] = {}
    for row in rows():
        if row["status"] == "late":
            group = groups.setdefault(row["region"], {"region": row["region"], "count": 0, "cents": 0})
            group["count"] += 1
            group["cents"] += row["cents"]
    return sorted(groups.values(), key=lambda group: (-group["cents"], group["region"]))[:10]


COMPUTE: Final = ("sandbridge", "sandbridge jit", *PEERS)
_ALL: Final = (
    Workload(
        name="W1",
        title="cold start: a new Python process to its first result",
        javascript="return 1+1",
        python="1+1",
        expected=2,
        entrants=("sandbridge", *PEERS),
        goals=(Goal(bound=450),),
        samples=2,
        idle_s=0.3,
        remark="a host process from its start to the line that it prints",
    ),
    Workload(
        name="W2",
        title="a fresh sandbox: return 1+1, one at a time, 30 ms between two",
        javascript="return 1+1",
        python="1+1",
        expected=2,
        entrants=("sandbridge", *PEERS),
        goals=(Goal(bound=2.0, times="monty"),),
        samples=30,
        few=SLOW,
        remark="monty reuses its worker process, and its time includes giving the session back",
    ),
    Workload(
        name="W3",
        title="ten calls one after another, 200 bytes each",
        javascript=SEQUENCE_JS,
        python=SEQUENCE_PY,
        expected=945,
        entrants=("sandbridge", *PEERS),
        goals=(Goal(bound=1.6, times="monty"),),
        samples=15,
        few=SLOW,
    ),
    Workload(
        name="W4",
        title="a hundred parallel calls of a tool that sleeps 20 ms (ideal: 20 ms)",
        javascript=PARALLEL_JS,
        python=PARALLEL_PY,
        expected=4950,
        entrants=("sandbridge", *PEERS),
        goals=(Goal(bound=36),),
        few=SLOW,
    ),
    Workload(
        name="W5",
        title="one reply of 1 MiB JSON, 5,000 objects, grouped to ten rows",
        javascript=GROUP_JS,
        python=GROUP_PY,
        expected=grouped_rows(),
        entrants=("sandbridge", "sandbridge text", *PEERS, "monty text", "mini-racer text"),
        goals=(Goal(bound=0.6, times="monty"), Goal(bound=0.8, times="mini-racer")),
        few=SLOW,
        remark="the tool returns Python values, or in the variants `text` the JSON text that a service sent",
    ),
    Workload(
        name="W6a",
        title="sieve of Eratosthenes to 10^6",
        javascript=SIEVE_JS,
        python=SIEVE_PY,
        expected=[78498, 999983],
        entrants=COMPUTE,
        samples=3,
    ),
    Workload(
        name="W6b",
        title="sort of 2*10^5 numbers",
        javascript=SORT_JS,
        python=SORT_PY,
        expected=sorted_numbers(),
        entrants=COMPUTE,
        samples=3,
    ),
    Workload(
        name="W7",
        title="private memory of a paused program",
        javascript="return await tools.item({ id: 1 })",
        python="await item(1)",
        expected=None,
        entrants=("sandbridge", *PEERS),
        goals=(Goal(bound=6),),
        unit="MiB",
        samples=8,
        remark="Private_Clean + Private_Dirty of the worker; of mini-racer what one more program adds to its process",
    ),
    Workload(
        name="W8",
        title="two hundred programs at once, each awaiting one tool of 100 ms",
        javascript="return await tools.nap({ ms: 100, id: 7 })",
        python="await nap(100, 7)",
        expected=7,
        entrants=("sandbridge", *(peer for peer in PEERS if peer not in SLOW)),
        goals=(Goal(bound=1500),),
        together=200,
        samples=1,
        idle_s=0.5,
        remark="monty has 200 worker processes warm from the round before; node and deno are left out: 200 need 8 GiB",
    ),
    Workload(
        name="rate",
        title="sustained return 1+1 from 8 tasks",
        javascript="return 1+1",
        python="1+1",
        expected=2,
        entrants=("sandbridge", *PEERS),
        goals=(Goal(bound=100),),
        unit="/s",
        samples=1,
        remark="programs a second, each in a fresh sandbox; monty reuses its processes",
    ),
)
WORKLOADS: Final = {workload.name: workload for workload in _ALL}
