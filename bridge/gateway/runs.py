"""Programs of hosts: who may go on with which run, how many one host may have, and what a request of a host becomes.

A run belongs to the credential that started it, whatever session it comes back in: hosts recycle sessions. Without
credentials (stdio, loopback) there is one user, whose runs are named by ids that cannot be guessed; only then is a run
of an earlier process taken from the store. Others get the answer that they would get for a run that does not exist. A
request that is cancelled cancels its run.
"""

from __future__ import annotations

import base64
import re
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import anyio
import mcp_types as types
from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.auth.provider import principal_components
from mcp.shared.exceptions import MCPError

from bridge.errors import BridgeError, StateError
from bridge.gateway import asking, offer, questions
from bridge.gateway.questions import Asked
from bridge.mcp.result import Blob
from sandbox import SandboxError

if TYPE_CHECKING:
    from mcp.server.context import ServerRequestContext

    from bridge.approval import Verdict
    from bridge.executor import Executor
    from bridge.gateway.progress import Told
    from bridge.results import Result
    from bridge.run import Run

RUNNING: Final = 8  # programs of one host at once
PAUSED: Final = 20  # of one host
KEPT: Final = 1_000  # finished runs and links of all hosts, whose owner is known
BLOB: Final = "blob_"  # how the handles of bytes begin
_RUN_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_MEDIA_TYPE: Final = re.compile(r"[A-Za-z0-9.+-]{1,60}/[A-Za-z0-9.+-]{1,60}")
SESSION_HEADER: Final = "mcp-session-id"

Owner = tuple[Any, ...] | None
"""Who a request is from: its credential, or None where there are none."""
Answer = types.CallToolResult | types.InputRequiredResult


def owner_of() -> Owner:
    """The credential of the request that is being served."""
    token = get_access_token()
    return None if token is None else principal_components(token)


@dataclass
class _Held:
    owner: Owner
    run: Run
    asked: Asked

    def __post_init__(self) -> None:
        self.asked.changed = self.run.journal.changed  # whoever waits for the run waits for questions too

    async def moved(self) -> None:
        """Wait until the run is paused or finished, or a server asks something.

        Raises:
            BridgeError, SandboxError: As `Run.settled`.
        """
        while self.run.status == "running" and not self.asked.open:
            await self.run.journal.change()
        if self.run.status == "finished":
            await self.run.settled()


class Runs:
    """The runs of all hosts on one executor.

    Args:
        executor: Open, without an approver: what is asked about goes to the host of the run.
        elsewhere: As for `Gateway`.
    """

    def __init__(self, executor: Executor, elsewhere: str = "") -> None:
        self._executor = executor
        self._elsewhere = elsewhere
        self._running: dict[Owner, int] = {}
        self._paused: dict[str, _Held] = {}
        self._finished: OrderedDict[str, tuple[Owner, Result]] = OrderedDict()
        self._owners: OrderedDict[str, Owner] = OrderedDict()  # of what a link names

    async def start(
        self, ctx: ServerRequestContext[Any, Any], program: str, inputs: Any, reuse: str | None = None
    ) -> Answer:
        """Run a program to its outcome, to a question, or to a pause.

        Args:
            reuse: A run of this host that has ended, whose completed calls this one takes over.
        """
        owner = owner_of()
        self._sweep()
        if reuse is not None and (reuse not in self._finished or self._finished[reuse][0] != owner):
            return offer.failed(f"there is no run {reuse[:64]!r} of yours that has ended: leave out `reuse`")
        if sum(held.owner == owner for held in self._paused.values()) >= PAUSED:
            return offer.failed(f"{PAUSED} runs of yours wait for a person: resume_program goes on with one of them")

        asked = Asked()

        async def work() -> Answer:
            try:
                run = await self._executor.start(
                    program, inputs=inputs, context=asked, on_event=asked.told.hear, reuse=reuse, wait=False
                )
            except (TypeError, ValueError) as error:
                return offer.failed(str(error))
            return await self._answer(ctx, _Held(owner, run, asked))

        return await self._working(ctx, owner, asked.told, work)

    async def answered(self, ctx: ServerRequestContext[Any, Any], state: str, answers: Mapping[str, Any]) -> Answer:
        """Go on with a run that asked in its last result (2026-07-28)."""
        return await self.resume(ctx, asking.run_of_state(state) or "", answers)

    async def resume(
        self, ctx: ServerRequestContext[Any, Any], run_id: str, answers: Mapping[str, Any] | None = None
    ) -> Answer:
        """Go on with a run of this host, or say how it ended.

        Args:
            answers: Of the host's person, to the questions of the run's last result.
        """
        owner = owner_of()
        self._sweep()
        finished = self._finished.get(run_id)
        if finished is not None and finished[0] == owner:
            return self._said(owner, finished[1])
        held = self._paused.get(run_id)
        if held is not None and held.owner != owner:
            return _unknown(run_id)
        asked = Asked() if held is None else held.asked

        async def work() -> Answer:
            if held is None:
                return await self._loaded(ctx, run_id, asked) if owner is None else _unknown(run_id)
            run = held.run
            if answers is not None:
                held.asked.hear(answers)
            if run.status == "paused":
                given = {} if answers is None else asking.verdicts(run, answers)
                if answers is not None and not given:  # put off: not to be asked again at once
                    return self._outcome(held)
                if (stays := await self._resumed(held, given)) is not None:
                    return stays
            return await self._answer(ctx, held)

        return await self._working(ctx, owner, asked.told, work)

    async def _loaded(self, ctx: ServerRequestContext[Any, Any], run_id: str, asked: Asked) -> Answer:
        """Go on with a run that this process does not know: the store may."""
        if not _RUN_ID.fullmatch(run_id):  # no state: a host has ids only
            return _unknown(run_id)
        try:
            run = await self._executor.load(run_id, context=asked, on_event=asked.told.hear, wait=False)
            if run.status == "paused":
                await run.resume({}, wait=False)
            return await self._answer(ctx, _Held(None, run, asked))
        except BridgeError as error:
            return _unknown(run_id, f" ({error})")

    def owns(self, name: str) -> bool:
        """Whether a result or picture was given to this host."""
        return name in self._owners and self._owners[name] == owner_of()

    async def _answer(self, ctx: ServerRequestContext[Any, Any], held: _Held) -> Answer:
        """Ask until the run is finished, or until it has to wait."""
        run = held.run
        try:
            while True:
                await held.moved()
                if run.status == "finished":
                    break
                self._paused[run.id] = held
                question = await self._question(ctx, held)
                if question is not None:
                    return question
        except BaseException:
            with anyio.CancelScope(shield=True):
                await run.cancel()
            self._paused.pop(run.id, None)
            raise
        self._paused.pop(run.id, None)
        if run.result is not None:
            self._finished[run.id] = (held.owner, run.result)
            _forget(self._finished)
        return self._outcome(held)

    async def _question(self, ctx: ServerRequestContext[Any, Any], held: _Held) -> Answer | None:
        """Ask what servers want to know, then what policy asks about; None where the run may go on by the answers."""
        run, modern = held.run, asking.modern(ctx)
        if (asked := await questions.ask(ctx, held.asked, run.id)) is not None:
            return asked
        if run.status != "paused":
            return None
        if not asking.can_ask(ctx) or not run.approvals:
            return self._outcome(held)
        if not asking.questions(run):
            return self._outcome(held, asking.UNREADABLE)
        if modern:
            return asking.ask_next(run)
        given = await asking.ask_now(ctx, run)
        if not given:
            return self._outcome(held)
        return await self._resumed(held, given)

    async def _resumed(self, held: _Held, given: Mapping[str, Verdict]) -> Answer | None:
        """Have a run go on, with what others decided where there is a store; what it is where it stays paused."""
        try:
            await held.run.resume(given, wait=False)
        except StateError as error:
            if held.run.status == "paused":
                return self._outcome(held, str(error))
        return None  # also where a call expired while the person thought

    def _outcome(self, held: _Held, *remarks: str) -> types.CallToolResult:
        """What a run has come to, and what its servers could ask nobody."""
        run = held.run
        result = run.paused_result() if run.result is None else run.result
        return self._said(held.owner, result, [*held.asked.unasked, *remarks])

    def _said(self, owner: Owner, result: Result, remarks: Sequence[str] = ()) -> types.CallToolResult:
        if result.handle is not None:
            self._owners[result.handle] = owner
        pictures: list[types.ResourceLink] = []
        for number, image in enumerate(result.images):
            name = image.handle or f"{result.run_id}.{number}"
            # A program's claim must open neither another's result nor what another was given.
            if image.handle and not (image.handle.startswith(BLOB) and self._owners.get(name, owner) == owner):
                continue
            self._owners[name] = owner
            pictures.append(
                types.ResourceLink(
                    name=f"picture {number + 1}", uri=offer.RESULTS + name, mime_type=media_type(image.mime_type)
                )
            )
        _forget(self._owners)
        more = [f"warning: {remark}" for remark in remarks]
        if result.status == "paused":
            more.append(
                f'It waits for the decision of a person, not yours. Once there is one, {offer.RESUME}({{ run_id: "'
                f'{result.run_id}" }}) goes on. To run the program again would make its calls again.'
            )
            if self._elsewhere:
                more.append(self._elsewhere.replace("{run}", result.run_id))
        return offer.outcome(result, pictures, "\n".join(more), remarks)

    def picture(self, name: str) -> Blob | None:
        """A picture that a program drew itself; None if there is none of that name, or if it is no base64."""
        run_id, _, number = name.rpartition(".")
        if run_id not in self._finished or not number.isdecimal():
            return None
        images = self._finished[run_id][1].images
        if int(number) >= len(images):
            return None
        try:
            data = base64.b64decode(images[int(number)].data, validate=True)
        except ValueError:
            return None
        return Blob(data, media_type(images[int(number)].mime_type) or "application/octet-stream")

    async def _working(
        self,
        ctx: ServerRequestContext[Any, Any],
        owner: Owner,
        told: Told,
        work: Callable[[], Awaitable[Answer]],
    ) -> Answer:
        """Do what runs a program: counted, with its progress reported.

        Raises:
            MCPError: There is no sandbox: an operator's fault, which the host is told of.
        """
        if self._running.get(owner, 0) >= RUNNING:
            return offer.failed(f"{RUNNING} programs of yours are running: wait until one has ended")
        self._running[owner] = self._running.get(owner, 0) + 1
        done: list[Answer] = []
        failed: list[Exception] = []
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(told.tell, ctx)
                try:
                    done.append(await work())
                except BridgeError as error:  # the store, or the journal: not the program's doing
                    done.append(offer.failed(f"the run cannot go on: {error}"))
                except Exception as error:  # noqa: BLE001  raised below, out of the group that would wrap it
                    failed.append(error)
                tasks.cancel_scope.cancel()
        finally:
            self._running[owner] -= 1
            if not self._running[owner]:
                del self._running[owner]
        if failed:
            if isinstance(failed[0], SandboxError):
                raise MCPError(types.INTERNAL_ERROR, f"no program can run here: {failed[0]}")
            raise failed[0]
        return done[0]

    def _sweep(self) -> None:
        """Take the results of runs that ended while nobody looked."""
        for run_id, held in list(self._paused.items()):
            if held.run.result is not None:
                del self._paused[run_id]
                self._finished[run_id] = (held.owner, held.run.result)
        _forget(self._finished)


def _unknown(run_id: str, why: str = "") -> types.CallToolResult:
    return offer.failed(f"there is no run {run_id[:64]!r} of yours that waits{why}: start the program again")


def media_type(claimed: str) -> str | None:
    """A media type as a program says it, if it looks like one."""
    return claimed if _MEDIA_TYPE.fullmatch(claimed) else None


def _forget(kept: OrderedDict[str, Any]) -> None:
    while len(kept) > KEPT:
        kept.popitem(last=False)
