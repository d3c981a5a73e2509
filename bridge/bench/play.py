"""Plays one task in one arm: request after request, through the real adapters, gate and executor.

This module owns what a body holds and what a row says of a run: which calls were made, whether they were the ones of
the ground truth, what failed. It says that a plan was executed, never that a model would have had it.
"""

from __future__ import annotations

import hashlib
import json
import random
import time
from collections.abc import AsyncGenerator, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from bridge.approval import ApprovalRequest, Approve, Verdict
from bridge.bench.arms import Arm, Policy
from bridge.bench.models import Calls, Say, Scripted, Search, Step, Write
from bridge.bench.talks import Talk, declarations_of, talk, unknown, without_declarations
from bridge.bench.tasks import Call, Open, Task, Turn, same_calls
from bridge.bench.wire import Body, Format, Part, WireCall, WireResult, compact
from bridge.code_tool import SHORT, TOOL_NAME
from bridge.errors import ToolError
from bridge.executor import Executor
from bridge.offers import vendor_names
from bridge.search import DESCRIPTION as SEARCH_DESCRIPTION
from bridge.search import SCHEMA as SEARCH_SCHEMA
from bridge.search import Session
from sandbox import Limits, Sandbox

if TYPE_CHECKING:
    from bridge.run import Run

SYSTEM: Final = (
    "You are an assistant with access to tools. Use them to answer the user's question. Be brief, and say so when "
    "something cannot be found out."
)
SEARCH_TOOL: Final = "search_tools"
_NOT_MADE: Final = ("invalid", "denied", "unknown_tool", "expired", "not_started")  # outcomes of calls that no tool saw
CALLED: Final = '"name":'  # stands in every call of every format, and in no reasoning
_FOUND_AT_ONCE: Final = 5  # tools of one search, as vendors give
_SEARCHES: Final = 3  # rounds: the question, then what a tool does, then its name


@dataclass
class Played:
    """One task in one arm, played.

    Attributes:
        requests: Each body with what the model wrote in answer.
        made: Calls that reached a tool, in order.
        failed: How many of them failed. `unsafe`: calls failed in a run that the model was told had completed.
        programs, programs_failed: Sent, and those that did not complete.
        executed: The plan was carried out: the right calls, and the last program of each turn completed.
        seen, facts: Facts that stood in what the model could read; facts there are.
    """

    requests: list[tuple[Body, list[Part]]] = field(default_factory=list[tuple[Body, "list[Part]"]])
    made: list[Call] = field(default_factory=list[Call])
    failed: int = 0
    unsafe: int = 0
    programs: int = 0
    programs_failed: int = 0
    searches: int = 0
    executed: bool = False
    facts: int = 0
    seen: int = 0
    state: Any = None
    wall_s: float = 0.0


async def play(
    task: Task, arm: Arm, model: Scripted, policy: Policy, format_: Format, sandbox: Sandbox, *, seed: int
) -> Played:
    """Play a task with a scripted model.

    Args:
        seed: Of the model's chances: the same seed gives the same bodies.
    """
    chance = random.Random(f"{seed}/{task.id}/{model.name}")  # noqa: S311  chance of a script, not of a key
    async with opened(task, arm, policy, format_, sandbox) as player:
        for turn in task.turns:
            player.say(turn.question)
            if arm.catalogue == "search" and turn.calls:
                await player.find(turn)
            for step in model.steps(task, turn, arm, policy.returns, chance):
                await player.take(step)
            player.check(turn)
        wanted = [call for turn in task.turns for call in turn.calls]
        explored = task.explore_calls if arm.programs and model.explore else 0
        made = player.played.made
        complete = _holds(made, wanted, explored) if explored else same_calls(made, wanted)
        return player.done(task, complete=complete)


@asynccontextmanager
async def opened(task: Task, arm: Arm, policy: Policy, format_: Format, sandbox: Sandbox) -> AsyncGenerator[Player]:
    """A task with fresh tools in an executor, ready to be played."""
    state = task.open()
    limits = Limits(output_bytes=policy.cap_bytes, calls=10_000)
    async with Executor(state.tools, sandbox=sandbox, limits=limits, approver=_approve_all) as executor:
        yield Player(arm, format_, talk(format_.name, executor), executor, state)


class Player:
    """The state of one conversation."""

    def __init__(self, arm: Arm, format_: Format, conversation: Talk, executor: Executor, state: Open) -> None:
        self.played = Played()
        self.broken = False
        self._began = time.perf_counter()
        self._state = state
        self._arm = arm
        self._format = format_
        self._talk = conversation
        self._names = vendor_names((entry.name for entry in executor.catalog.entries), {TOOL_NAME})
        self._session = Session(executor.catalog, budget=0, tool=SEARCH_TOOL) if arm.catalogue == "search" else None
        self._known: set[str] = set()
        self._system, self._tools = self._offered()
        self._items: list[Part] = []
        self._count = 0
        self._status = ""

    def search_by_itself(self) -> None:
        """A live model decides when to search, and its searches are answered as its other calls are."""
        self._talk.other = self._searched

    def _searched(self, name: str, arguments: str) -> tuple[str, bool]:
        """The answer to a call of the search. To direct calls what is found is loaded: it is defined from then on."""
        if self._session is None or name != SEARCH_TOOL:
            return unknown(name, arguments)
        self.played.searches += 1
        given: Any = json.loads(arguments or "{}")
        try:
            found = self._session.search(**(given if isinstance(given, dict) else {"query": given}))
        except (ToolError, TypeError) as error:
            return f"error invalid_arguments: {error}", True
        if self._arm.programs:
            return found.text, False
        wanted = {self._names[entry.name] for entry in found.entries}
        self._tools += [part for part in _parts(self._defined(wanted)) if part not in self._tools]
        return compact({"loaded": sorted(wanted)}), False

    def done(self, task: Task, *, complete: bool) -> Played:
        """What there is to say when all turns are over.

        Args:
            complete: The right calls were made.
        """
        played = self.played
        played.state = self._state.state()
        played.executed = complete and not self.broken and played.state == task.state
        played.wall_s = time.perf_counter() - self._began
        return played

    def body(self) -> Body:
        """The next request."""
        return self._format.body(self._system, self._tools, self._items)

    async def took(self, output: list[Part]) -> bool:
        """Take what a model wrote, and answer its calls; whether it made any."""
        self._ask(output)
        calls = [part for part in output if part.kind in ("calls", "code") and CALLED in part.text]
        if not calls:
            self._items += output
            return False
        await self._answered(output, program=any(part.kind == "code" for part in calls))
        return True

    def _offered(self) -> tuple[str, list[Part]]:
        """The system's words and the definitions, by the arm."""
        code, direct = self._talk.tools[0], self._talk.tools[1:]
        instructions = self._talk.instructions
        if not self._arm.programs:
            if self._arm.catalogue == "schemas":
                return SYSTEM, _parts(direct)
            if self._arm.catalogue == "search":
                return SYSTEM, [self._format.tool(SEARCH_TOOL, SEARCH_DESCRIPTION, SEARCH_SCHEMA)]
            return f"{SYSTEM}\n\n{declarations_of(instructions or _description(code))}", []
        if self._session is not None:
            search = self._format.tool(SEARCH_TOOL, SEARCH_DESCRIPTION, SEARCH_SCHEMA)
            return self._with(self._session.instructions, [code], [search])
        if self._arm.catalogue == "schemas":
            return self._with(without_declarations(instructions or _told(code)), [code, *direct], [])
        return self._with(instructions or _told(code), [code], [])

    def _with(self, told: str, tools: list[dict[str, Any]], more: list[Part]) -> tuple[str, list[Part]]:
        """Where a format has the instructions: in the system's words, or in the code tool's description."""
        if self._talk.instructions:
            return f"{SYSTEM}\n\n{told}", [*_parts(tools), *more]
        code = tools[0] | {"description": f"{SHORT}\n\n{told}"}
        return SYSTEM, [*_parts([code, *tools[1:]]), *more]

    def say(self, question: str) -> None:
        """The user says something."""
        self._items.append(self._format.user(question))

    async def take(self, step: Step) -> None:
        """The model writes something, and it is answered."""
        match step:
            case Say(text):
                self._ask([answer := self._format.answer(text)])
                self._items.append(answer)
            case Write(program):
                self.played.programs += 1
                call = WireCall(self._id(), TOOL_NAME, compact({"program": program}), "code")
                await self.took(self._format.calls([call]))
            case Calls(calls):
                made = [WireCall(self._id(), self._names[each.tool], compact(each.arguments)) for each in calls]
                await self.took(self._format.calls(made))
            case Search(query):
                self._search([query])

    async def _answered(self, output: Sequence[Part], *, program: bool) -> None:
        answers = await self._talk.answer(output)
        history = answers.history
        self._count += 1
        for run in answers.runs:
            self._saw(run, program=program)
            stable = hashlib.sha256(str(self._count).encode()).hexdigest()[: len(run.id)]  # the id is a random one
            history = [Part(part.kind, part.text.replace(run.id, stable)) for part in history]
        self._items += history

    def _ask(self, output: list[Part]) -> None:
        self.played.requests.append((self.body(), output))

    def _saw(self, run: Run, *, program: bool) -> None:
        result = run.result
        assert result is not None, "everything is approved and nothing is client-owned, so no run pauses"
        failed = [row for row in result.calls if row.outcome not in ("completed", "answered")]
        self.played.made += [Call(row.tool, row.arguments) for row in result.calls if row.outcome not in _NOT_MADE]
        self.played.failed += len(failed)
        if program:
            self._status = result.status
            self.played.programs_failed += result.status != "completed"
            self.played.unsafe += len(failed) if result.status == "completed" else 0

    def check(self, turn: Turn) -> None:
        """Look at a turn that is over."""
        if self._arm.programs and turn.calls and self._status != "completed":
            self.broken = True
        visible = "\n".join(part.text for part in self._items if part.kind in ("results", "result"))
        self.played.facts += len(turn.facts)
        self.played.seen += sum(_inside(fact, visible) for fact in turn.facts)

    async def find(self, turn: Turn) -> None:
        """Search until every tool of the turn is known, as a model would: by the question, then for each that lacks."""
        wanted = list(dict.fromkeys(call.tool for call in turn.calls))
        for number in range(_SEARCHES):
            missing = [name for name in wanted if name not in self._known]
            if not missing:
                return
            self._search([turn.question] if number == 0 else [self._query(name, number) for name in missing])
        self.broken = self.broken or any(name not in self._known for name in wanted)

    def _query(self, name: str, number: int) -> str:
        assert self._session is not None
        entry = self._session.catalog.lookup(name)
        assert entry is not None, "the ground truth calls tools of the catalog"
        return entry.tool.description.partition(". ")[0] if number == 1 else name

    def _search(self, queries: Sequence[str]) -> None:
        """One message with searches, and what they found: declarations for programs, definitions for direct calls."""
        assert self._session is not None
        calls = [WireCall(self._id(), SEARCH_TOOL, compact({"query": query})) for query in queries]
        output = self._format.calls(calls)
        self._ask(output)
        results: list[WireResult] = []
        for call, query in zip(calls, queries, strict=True):
            found = self._session.search(query, limit=_FOUND_AT_ONCE)
            self._known.update(entry.name for entry in found.entries)
            self.played.searches += 1
            text = found.text if self._arm.programs else self._definitions([entry.name for entry in found.entries])
            results.append(WireResult(call.id, text))
        self._items += [*output, *self._format.results(results)]

    def _definitions(self, names: Sequence[str]) -> str:
        return compact(self._defined({self._names[name] for name in names}))

    def _defined(self, wanted: Collection[str]) -> list[dict[str, Any]]:
        """Definitions of tools by the names that the vendor has for them."""
        return [each for each in self._talk.tools[1:] if (each.get("function") or each)["name"] in wanted]

    def _id(self) -> str:
        self._count += 1
        return f"call_{self._count:08}"


def _parts(definitions: Sequence[dict[str, Any]]) -> list[Part]:
    return [Part("tools", compact(each)) for each in definitions]


def _description(tool: dict[str, Any]) -> str:
    return str((tool.get("function") or tool)["description"])


def _told(code: dict[str, Any]) -> str:
    """The instructions in a description of the code tool."""
    return _description(code).removeprefix(f"{SHORT}\n\n")


def _inside(fact: str, visible: str) -> bool:
    """Whether a fact stands in JSON text, whose strings are escaped once or twice."""
    once = json.dumps(fact, ensure_ascii=False)[1:-1]
    return fact in visible or once in visible or json.dumps(once, ensure_ascii=False)[1:-1] in visible


def _holds(made: Sequence[Call], wanted: Sequence[Call], more: int) -> bool:
    """Whether all wanted calls were made, and `more` beyond them."""
    left = [call.key for call in made]
    for call in wanted:
        if call.key not in left:
            return False
        left.remove(call.key)
    return len(left) == more


def _approve_all(requests: list[ApprovalRequest]) -> dict[str, Verdict]:
    return {request.id: Approve() for request in requests}
