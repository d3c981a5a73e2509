"""expenses: who spent more on travel than allowed; a custom budget is looked up only for those over the usual one.

The shape of a public vendor cookbook: eight people with 20 to 50 rows each, wide rows of which one column is needed.
A second size, three people with three rows each, is where the same shape saves little.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, Final

from bridge.bench.tasks import Call, Open, Programs, Task, Turn
from bridge.bench.workloads.making import PEOPLE, PLACES, literal, person, rows, sentence, tool
from bridge.tools import Tool

SIZES: Final = ((3, 3, 3), (8, 20, 50))  # people, fewest rows, most rows
_QUARTER: Final = "Q3"
_USUAL: Final = 5000.0

_ROW = {
    "expense_id": ("string", ""),
    "date": ("string", ""),
    "category": ("string", "travel, meals, software, office or training"),
    "description": ("string", ""),
    "amount": ("number", "USD"),
    "status": ("string", "approved, pending or rejected"),
    "receipt_url": ("string", ""),
    "approved_by": ("string", ""),
    "store": ("string", ""),
    "payment_method": ("string", ""),
    "project_code": ("string", ""),
    "notes": ("string", ""),
}
_TEAM = """\
const team = await tools.get_team({ department: "engineering" });"""
_ALL = """\
const expenses = await Promise.all(team.map(one => tools.get_expenses({ employee_id: one.id, quarter: "Q3" })));"""
_SPENT = """\
const spent = team.map((one, index) => ({
  ...one,
  travel: expenses[index].filter(row => row.category === "travel" && row.status === "approved")
    .reduce((sum, row) => sum + row.amount, 0),
}));
const suspects = spent.filter(one => one.travel > 5000);
const budgets = await Promise.all(suspects.map(one => tools.get_custom_budget({ employee_id: one.id })));"""
_SAMPLE = """\
const rows = await tools.get_expenses({ employee_id: team[0].id, quarter: "Q3" });
const budget = await tools.get_custom_budget({ employee_id: team[0].id });
return { people: team.length, one: team[0], rows: rows.length, sample: rows.slice(0, 3), budget };"""
_OVER = """\
return suspects.map((one, index) => ({ name: one.name, travel: Math.round(one.travel), budget: budgets[index].budget }))
  .filter(one => one.travel > one.budget);"""


def tasks(seed: int, count: int | None = None) -> Sequence[Task]:
    """`count` tasks of each size; 3 by default."""
    return [
        _task(size, number, random.Random(f"expenses/{seed}/{size}/{number}"))  # noqa: S311  data, not a secret
        for size in SIZES
        for number in range(3 if count is None else count)
    ]


def _task(size: tuple[int, int, int], number: int, chance: random.Random) -> Task:
    people, fewest, most = size
    team = [
        {"id": f"E{100 + each}", "name": person(chance), "role": chance.choice(["engineer", "designer", "lead"])}
        for each in range(people)
    ]
    expenses = {one["id"]: _expenses(chance, chance.randint(fewest, most), each) for each, one in enumerate(team)}
    travel = {
        one["id"]: sum(
            row["amount"] for row in expenses[one["id"]] if row["category"] == "travel" and row["status"] == "approved"
        )
        for one in team
    }
    suspects = [one for one in team if travel[one["id"]] > _USUAL]
    allowed = {one["id"]: chance.choice([5000, 5000, 9000, 15_000]) for one in team}
    budgets = {each: {"employee_id": each, "budget": budget, "quarter": _QUARTER} for each, budget in allowed.items()}
    over = [one for one in suspects if round(travel[one["id"]]) > allowed[one["id"]]]
    levels = [
        [Call("get_team", {"department": "engineering"})],
        [Call("get_expenses", {"employee_id": one["id"], "quarter": _QUARTER}) for one in team],
        [Call("get_custom_budget", {"employee_id": one["id"]}) for one in suspects],
    ]
    ids, over_usual = [one["id"] for one in team], [one["id"] for one in suspects]
    second = (
        f"const ids = {literal(ids)};\nconst expenses = await Promise.all(ids.map(employee_id => "
        f'tools.get_expenses({{ employee_id, quarter: "Q3" }})));'
    )
    third = (
        f"const budgets = await Promise.all({literal(over_usual)}"
        ".map(employee_id => tools.get_custom_budget({ employee_id })));"
    )
    sums = (
        "return ids.map((id, index) => [id, expenses[index].filter(row => row.category === 'travel' && "
        "row.status === 'approved').reduce((sum, row) => sum + row.amount, 0)]);"
    )
    programs = Programs(
        oracle={
            "projection": f"{_TEAM}\n{_ALL}\n{_SPENT}\n{_OVER}",
            "full": f"{_TEAM}\n{_ALL}\n{_SPENT}\nreturn {{ team, expenses, budgets }};",
        },
        staged={
            "projection": [
                f"{_TEAM}\nreturn team;",
                f"{second}\n{sums}",
                f"{third}\nreturn budgets;",
            ],
            "full": [f"{_TEAM}\nreturn team;", f"{second}\nreturn expenses;", f"{third}\nreturn budgets;"],
        },
        explore=f"{_TEAM}\n{_SAMPLE}",
    )
    names = ", ".join(one["name"] for one in over) or "nobody"
    turn = Turn(
        question=(
            "Who in engineering spent more on approved travel in Q3 than their budget allows? The usual budget is "
            "5,000 USD; whoever is over that may have a custom one."
        ),
        levels=levels,
        programs=programs,
        answer=f"Over budget: {names}.",
        facts=[one["name"] for one in over],
    )
    return Task(
        id=f"expenses-{people}-{number}",
        workload="expenses",
        turns=[turn],
        open=lambda: Open(tools=_tools(team, expenses, budgets)),
        group=f"expenses-{people}",
        explore_calls=3,
        size={"calls": 1 + len(team) + len(suspects)},
    )


def _expenses(chance: random.Random, count: int, person_number: int) -> list[dict[str, Any]]:
    heavy = person_number % 3 == 0  # every third one travels a lot
    made: list[dict[str, Any]] = []
    for number in range(count):
        travels = chance.random() < (0.6 if heavy else 0.2)
        category = "travel" if travels else chance.choice(["meals", "software", "office", "training"])
        amount = chance.uniform(400, 2500) if travels else chance.uniform(8, 300)
        made.append(
            {
                "expense_id": f"E{person_number:02}-{number:04}-{chance.randrange(16**6):06x}",
                "date": f"2026-0{chance.randrange(7, 10)}-{chance.randrange(1, 29):02}",
                "category": category,
                "description": sentence(chance, 5),
                "amount": round(amount, 2),
                "status": chance.choices(["approved", "pending", "rejected"], [8, 1, 1])[0],
                "receipt_url": f"https://receipts.example.com/{chance.randrange(16**12):012x}.pdf",
                "approved_by": f"{chance.choice(PEOPLE).lower()}@example.com",
                "store": f"{sentence(chance, 2)[:-1]}, {chance.choice(PLACES)}",
                "payment_method": chance.choice(["corporate card", "personal, reimbursed"]),
                "project_code": f"PRJ-{chance.randrange(100, 999)}",
                "notes": sentence(chance, 6),
            }
        )
    return made


def _tools(team: list[dict[str, Any]], expenses: dict[str, Any], budgets: dict[str, Any]) -> list[Tool]:
    person_id = {"employee_id": ("string", "As get_team gives it.")}
    return [
        tool(
            "get_team",
            "Everybody of a department.",
            {"department": ("string", "engineering, sales or marketing.")},
            lambda given: team,
            returns=rows({"id": ("string", ""), "name": ("string", ""), "role": ("string", "")}),
        ),
        tool(
            "get_expenses",
            "All expense rows of a person in a quarter. Only approved ones count against a budget.",
            person_id | {"quarter": ("string", "Q1 to Q4.")},
            lambda given: expenses[given["employee_id"]],
            returns=rows(_ROW),
        ),
        tool(
            "get_custom_budget",
            "The travel budget of a person for a quarter: a custom one, or the usual one of 5,000 USD.",
            person_id,
            lambda given: budgets[given["employee_id"]],
        ),
    ]
