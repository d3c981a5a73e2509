"""What may be called: rules, and the pure function `decide` that judges one call by them.

The order is always deny > ask > allow among the rules that match; settings of the server and defaults are looked at
only where no rule matches. A grant for a program as a whole does not exist: each call is judged for itself.

A pattern is matched against three forms of a tool's name, and one match is enough: the exact full name
(`github/create-issue`), the same with a dot after the server (`github.create-issue`), and the path that a program
writes (`github.create_issue`). So `github.*` is every tool of that server and `*` every tool there is. `*` and `?` are
the only wildcards, `*` crosses dots and slashes, and case counts. A bare server name matches no tool of that server.

Hints (annotations) of a server that is not trusted are used in the strict direction only: they never make an `allow`
rule match, and where they are missing a tool writes and destroys.
"""

from __future__ import annotations

import difflib
import inspect
import unicodedata
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, Final, Literal, cast, get_args

from bridge.errors import ConfigurationError
from bridge.predicates import Predicate, Undecidable, wildcard
from bridge.tools import Caller, Tool

Kind = Literal["allow", "ask", "deny"]
Effect = Literal["reads", "writes", "destroys"]
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)
_STRICTEST: Final[tuple[Kind, ...]] = ("deny", "ask", "allow")
# Signs of other pattern languages: a rule that means a class or an alternative must not be read as plain text.
_FOREIGN: Final = frozenset("[]{}|\\,\"'`")
_NOT_GIVEN: Final = object()


@dataclass(frozen=True)
class Rule:
    """One line of a policy: for calls that it matches, the decision. `allow`, `ask` and `deny` make one shorter.

    Every condition that is given must hold.

    Attributes:
        pattern: Names of tools, see the module.
        when: Condition on the checked arguments. One that raises counts as holding for `ask` and `deny`, as not holding
            for `allow`; the decision's reason says so.
        unless: The exceptions: a condition on the arguments, or patterns of names that this rule leaves out. One that
            raises excepts nothing from `ask` and `deny`, and everything from `allow`.
        read_only, destructive: Match on what the tool does; see the module for hints that cannot be trusted.
        caller: Match on who calls: the model itself (`direct`) or a program of it (`programmatic`).
        server: Match on the exact name of the MCP server; never a client function.
        reason: For people and the model: why, and what to do instead.

    Raises:
        ConfigurationError: An empty pattern, a character that no pattern has, a decision that does not exist, an async
            function as a condition (its answer would always count as true).
    """

    pattern: str
    decision: Kind
    _: KW_ONLY
    when: Predicate | None = None
    unless: Predicate | str | Sequence[str] | None = None
    read_only: bool | None = None
    destructive: bool | None = None
    caller: Caller | None = None
    server: str | None = None
    reason: str | None = None

    def __post_init__(self) -> None:
        _check_pattern(self.pattern, f"rule {self.decision} {self.pattern!r}")
        if self.decision not in KINDS:
            raise ConfigurationError(
                f"rule {self.pattern!r}: the decision must be allow, ask or deny, not {self.decision!r}"
            )
        if self.caller not in (None, *get_args(Caller)):
            raise ConfigurationError(f"{self}: caller must be direct or programmatic, not {self.caller!r}")
        for name in ("read_only", "destructive"):
            if getattr(self, name) not in (None, True, False):
                raise ConfigurationError(f"{self}: {name} must be true or false, not {getattr(self, name)!r}")
        for pattern in self.names_left_out:
            _check_pattern(pattern, f"{self}, unless")
        for name, predicate in (("when", self.when), ("unless", self.predicate_left_out)):
            if predicate is not None and not callable(predicate):
                raise ConfigurationError(f"{self}: {name} must be a function of the arguments, not {predicate!r}")
            if inspect.iscoroutinefunction(predicate):
                raise ConfigurationError(f"{self}: {name} is an async function; a condition is a plain function")

    @property
    def names_left_out(self) -> tuple[str, ...]:
        """Patterns given as `unless`."""
        if isinstance(self.unless, str):
            return (self.unless,)
        return tuple(cast("Sequence[str]", self.unless)) if isinstance(self.unless, Sequence) else ()

    @property
    def predicate_left_out(self) -> Predicate | None:
        """The condition given as `unless`."""
        return None if isinstance(self.unless, (str, Sequence)) else self.unless

    def __str__(self) -> str:
        return f'rule {self.decision} "{self.pattern}"'


def allow(pattern: str, **conditions: Any) -> Rule:
    """A rule that lets calls through; the keywords are those of `Rule`."""
    return Rule(pattern, "allow", **conditions)


def ask(pattern: str, **conditions: Any) -> Rule:
    """A rule that asks the approver; the keywords are those of `Rule`."""
    return Rule(pattern, "ask", **conditions)


def deny(pattern: str, **conditions: Any) -> Rule:
    """A rule that refuses calls; the keywords are those of `Rule`."""
    return Rule(pattern, "deny", **conditions)


@dataclass(frozen=True)
class Decision:
    """What policy says of one call. `rule` is the first of the rules that decided, None where a setting or default did.

    `reason` is one line, fit for the approver and for the model; it holds no argument.
    """

    kind: Kind
    rule: Rule | None
    reason: str


@dataclass(frozen=True, init=False)
class Policy:
    """Rules, and what holds where none matches.

    Args:
        rules: In any order; the strictest that matches wins.
        default_functions: For client functions and client-owned tools.
        default_servers: For MCP tools. `ask` spares those of trusted servers that only read.

    Raises:
        ConfigurationError: A rule that is no `Rule`, a default that does not exist.
    """

    rules: tuple[Rule, ...]
    default_functions: Kind
    default_servers: Kind

    def __init__(
        self, rules: Iterable[Rule] = (), *, default_functions: Kind = "allow", default_servers: Kind = "ask"
    ) -> None:
        if isinstance(rules, Rule):  # pyright: ignore[reportUnnecessaryIsInstance] - callers without a type checker
            raise ConfigurationError("a policy is made of a list of rules, not of one: write Policy([rule])")
        object.__setattr__(self, "rules", tuple(rules))
        object.__setattr__(self, "default_functions", default_functions)
        object.__setattr__(self, "default_servers", default_servers)
        for rule in self.rules:
            if not isinstance(rule, Rule):  # pyright: ignore[reportUnnecessaryIsInstance] - callers without a type checker
                raise ConfigurationError(f"a policy is made of rules (allow, ask, deny), not {rule!r}")
        for name in ("default_functions", "default_servers"):
            if getattr(self, name) not in KINDS:
                raise ConfigurationError(f"Policy.{name} must be allow, ask or deny, not {getattr(self, name)!r}")

    def unmatched(self, names: Iterable[str]) -> list[str]:
        """Patterns (of rules and of their exceptions) that match none of these tools, in the order of the rules.

        A rule that never matches is a typing error until proven otherwise: warn of it.

        Args:
            names: Full names of the catalog; dotted paths of the realm may stand among them.
        """
        forms = [(name, *((name.replace("/", ".", 1),) if "/" in name else ())) for name in names]

        def known(pattern: str, server: str | None) -> bool:
            return any(
                (server is None or each[0].startswith((f"{server}/", f"{server}.")))
                and any(wildcard(pattern, form) for form in each)
                for each in forms
            )

        idle: list[str] = []
        for rule in self.rules:
            if not known(rule.pattern, rule.server):
                idle.append(rule.pattern)
            idle.extend(pattern for pattern in rule.names_left_out if not known(pattern, rule.server))
        return idle

    def idle(self, names: Collection[str]) -> list[str]:
        """The same for an operator: a line for each pattern, with the nearest name."""
        said: list[str] = []
        for pattern in self.unmatched(names):
            near = difflib.get_close_matches(pattern, [name.replace("/", ".", 1) for name in names], 1)
            hint = f"; the nearest is {near[0]}" if near else ""
            said.append(f'a rule names "{pattern}", which matches no tool{hint}')
        return said

    def explain(
        self,
        tool: Tool,
        *,
        path: Sequence[str] | str | None = None,
        arguments: Any = _NOT_GIVEN,
        caller: Caller = "programmatic",
    ) -> str:
        """Which rule decides on this tool, and why each of the others does not: one line each.

        Without arguments, conditions on them are named, not asked.
        """
        lines = [f"{tool.full_name} ({effect(tool)}{'' if _trusted(tool) else '; its hints are not trusted'})"]
        for rule in self.rules:
            why, doubt = _mismatch(rule, tool, path, arguments, caller)
            lines.append(f"  {rule}: {why or doubt or 'matches'}")
        if arguments is _NOT_GIVEN and any(rule.when or rule.predicate_left_out for rule in self.rules):
            lines.append("  where a condition depends on the arguments, the decision may differ from call to call")
        decision = decide(self, tool, path, arguments, caller)
        lines.append(f"  -> {decision.kind}: {decision.reason}")
        return "\n".join(lines)


def effect(tool: Tool) -> Effect:
    """What the tool does as far as it can be trusted to say: what its rules and defaults go by."""
    hints = tool.annotations
    if not _trusted(tool):
        return "destroys"
    if hints.read_only:
        return "reads"
    return "writes" if hints.destructive is False else "destroys"


def decide(policy: Policy, tool: Tool, path: Sequence[str] | str | None, arguments: Any, caller: Caller) -> Decision:
    """Judge one call. Pure, but for the conditions that the rules bring along; raises nothing.

    Args:
        path: Where the realm puts the tool, as parts or dotted; None if there is no realm.
        arguments: As checked against the tool's schema: a JSON value.
    """
    matching: dict[Kind, tuple[Rule, str]] = {}
    doubts: list[str] = []
    for rule in policy.rules:
        why, doubt = _mismatch(rule, tool, path, arguments, caller)
        if why is None:
            matching.setdefault(rule.decision, (rule, doubt))
        elif doubt:
            doubts.append(f" ({rule} taken as not matching: {doubt})")
    aside = "".join(doubts)
    for kind in _STRICTEST:
        if kind in matching:
            rule, doubt = matching[kind]
            reason = f"{rule}: {rule.reason}" if rule.reason else str(rule)
            return Decision(kind, rule, reason + (f" (taken as matching: {doubt})" if doubt else "") + aside)
    kind, reason = _default(policy, tool)
    return Decision(kind, None, reason + aside)


def _default(policy: Policy, tool: Tool) -> tuple[Kind, str]:
    kind: Kind
    if tool.require_approval is not None:
        kind = "allow" if tool.require_approval == "never" else "ask"
        return kind, f'no rule matches, and the server is set to require_approval="{tool.require_approval}"'
    if tool.server is None:
        return (
            policy.default_functions,
            f"no rule matches; the default for client functions is {policy.default_functions}",
        )
    if policy.default_servers == "ask" and effect(tool) == "reads":
        return "allow", "no rule matches; the server is trusted and the tool only reads"
    return policy.default_servers, f"no rule matches; the default for tools of servers is {policy.default_servers}"


def _mismatch(
    rule: Rule, tool: Tool, path: Sequence[str] | str | None, arguments: Any, caller: Caller
) -> tuple[str | None, str]:
    """Why the rule does not match (None: it does), and what a condition that could not be asked had to say."""
    forms = _forms(tool, path)
    if not any(wildcard(rule.pattern, form) for form in forms):
        return "names other tools", ""
    if rule.server is not None and rule.server != tool.server:
        return f"is for the server {rule.server}", ""
    if rule.caller is not None and rule.caller != caller:
        return f"is for {rule.caller} calls", ""
    for pattern in rule.names_left_out:
        if any(wildcard(pattern, form) for form in forms):
            return f'leaves out "{pattern}"', ""
    for name, wanted, values in (
        ("read_only", rule.read_only, _read_only(tool, rule.decision)),
        ("destructive", rule.destructive, _destructive(tool, rule.decision)),
    ):
        if wanted is not None and wanted not in values:
            return f"is for tools with {name}={wanted}", ""
    conditions = (("when", rule.when, True), ("unless", rule.predicate_left_out, False))
    if arguments is _NOT_GIVEN:
        named = [f"{name}={_name(condition)}" for name, condition, _ in conditions if condition is not None]
        if named and rule.decision == "allow":
            return f"depends on the arguments ({', '.join(named)})", ""
        return None, f"it depends on the arguments ({', '.join(named)})" if named else ""
    doubt = ""
    for name, condition, wanted in conditions:
        if condition is None:
            continue
        answer, trouble = _answer(condition, arguments)
        if answer is (not wanted):
            return f"its {name}={_name(condition)} {'does not hold' if wanted else 'holds'}", ""
        doubt = doubt or (f"its {name} {trouble}" if answer is None else "")
    if doubt and rule.decision == "allow":
        return doubt, doubt
    return None, doubt


def _answer(condition: Predicate, arguments: Any) -> tuple[bool | None, str]:
    """The condition's answer; None, and why, where it has none."""
    try:
        answer: Any = condition(arguments)
        if inspect.isawaitable(answer):
            if inspect.iscoroutine(answer):
                answer.close()  # nobody will await it, and that is no warning's business
            return None, "returned something to await, not true or false"
        return bool(answer), ""
    except Undecidable as error:
        return None, f"cannot be decided: {error}"
    except Exception as error:  # noqa: BLE001 - a condition is the developer's code: whatever it raises fails closed
        # The text of the exception may hold arguments, and this goes to the model: its type must do.
        return None, f"raised {type(error).__name__}"


def _forms(tool: Tool, path: Sequence[str] | str | None) -> tuple[str, ...]:
    forms = [tool.full_name] if tool.server is None else [tool.full_name, f"{tool.server}.{tool.name}"]
    if path:
        forms.append(path if isinstance(path, str) else ".".join(path))
    return tuple(forms)


def _trusted(tool: Tool) -> bool:
    # Who wrote a client function wrote this policy too.
    return tool.annotations.trusted or tool.server is None


def _read_only(tool: Tool, decision: Kind) -> set[bool | None]:
    # An untrusted claim may make a stricter rule match as well; it never replaces the strict reading.
    claim = tool.annotations.read_only if decision != "allow" else None
    return {effect(tool) == "reads", claim}


def _destructive(tool: Tool, decision: Kind) -> set[bool | None]:
    claim = tool.annotations.destructive if decision != "allow" else None
    return {effect(tool) == "destroys", claim}


def _name(condition: Callable[..., Any] | None) -> str:
    return getattr(condition, "__name__", None) or str(condition)


def _check_pattern(pattern: Any, where: str) -> None:
    if not isinstance(pattern, str) or not pattern:
        raise ConfigurationError(f'{where}: a pattern is a text of one character or more, such as "github.*"')
    for character in pattern:
        if character in _FOREIGN or character.isspace() or unicodedata.category(character)[0] == "C":
            raise ConfigurationError(
                f"{where}: a pattern has no {character!r}; its wildcards are * and ?, and ? is any one character"
            )
