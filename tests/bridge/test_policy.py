"""Which calls go through, which are asked about, which are refused, and why."""

from __future__ import annotations

from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.errors import ConfigurationError
from bridge.policy import Decision, Kind, Policy, Rule, allow, ask, decide, deny, effect
from bridge.predicates import predicate_from_data
from bridge.tools import Annotations, Tool

READS = Annotations(read_only=True)
TRUSTED_READS = Annotations(read_only=True, trusted=True)


def mcp(name: str = "github/create-issue", annotations: Annotations | None = None, **more: Any) -> Tool:
    server, _, plain = name.partition("/")
    return Tool(name=plain, server=server, annotations=annotations or Annotations(), **more)


def judged(*rules: Rule, tool: Tool | None = None, arguments: Any = None, **more: Any) -> Decision:
    path = more.pop("path", ("github", "create_issue"))
    return decide(Policy(rules, **more), tool or mcp(), path, {} if arguments is None else arguments, "programmatic")


# ---- where no rule matches


def test_a_client_function_that_no_rule_names_is_allowed() -> None:
    reason = "no rule matches; the default for client functions is allow"
    assert judged(tool=Tool(name="f"), path=("f",)) == Decision("allow", None, reason)


def test_a_tool_of_a_server_that_no_rule_names_is_asked_about() -> None:
    assert judged() == Decision("ask", None, "no rule matches; the default for tools of servers is ask")


def test_a_trusted_tool_that_only_reads_is_allowed() -> None:
    reason = "no rule matches; the server is trusted and the tool only reads"
    assert judged(tool=mcp(annotations=TRUSTED_READS)) == Decision("allow", None, reason)


def test_a_read_only_hint_of_an_untrusted_server_relaxes_nothing() -> None:
    assert judged(tool=mcp(annotations=READS)).kind == "ask"


@pytest.mark.parametrize(("setting", "kind"), [("never", "allow"), ("always", "ask")])
def test_a_server_setting_decides_before_the_default(setting: Literal["always", "never"], kind: Kind) -> None:
    tool = mcp(annotations=TRUSTED_READS, require_approval=setting)
    reason = f'no rule matches, and the server is set to require_approval="{setting}"'
    assert judged(tool=tool, default_servers="deny") == Decision(kind, None, reason)


def test_a_rule_stands_above_a_server_setting() -> None:
    assert judged(deny("github.*"), tool=mcp(require_approval="never")).kind == "deny"
    assert judged(allow("github.*"), tool=mcp(require_approval="always")).kind == "allow"


def test_defaults_can_be_set_for_both_kinds_of_tools() -> None:
    assert judged(tool=Tool(name="f"), path=None, default_functions="deny").kind == "deny"
    assert judged(default_servers="allow").kind == "allow"
    assert judged(tool=mcp(annotations=TRUSTED_READS), default_servers="deny").kind == "deny"


# ---- which rule wins


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
def test_the_strictest_rule_wins_in_any_order(order: tuple[int, ...]) -> None:
    rules = [allow("*"), ask("github.*"), deny("github/create-issue")]
    assert judged(*(rules[i] for i in order)).kind == "deny"
    assert judged(*(rules[i] for i in order if i != 2)).kind == "ask"


@given(kinds=st.lists(st.sampled_from(["allow", "ask", "deny"]), min_size=1, max_size=6))
def test_adding_a_rule_never_makes_the_decision_more_lenient_than_a_rule_that_matched(kinds: list[Kind]) -> None:
    strictness = ["allow", "ask", "deny"]
    decision = judged(*(Rule("*", kind) for kind in kinds))
    assert decision.kind == max(kinds, key=strictness.index)
    assert decision.rule == Rule("*", decision.kind)


def test_the_reason_names_the_rule_and_its_words() -> None:
    assert judged(deny("github.*", reason="use staging")).reason == 'rule deny "github.*": use staging'
    assert judged(ask("github.*")).reason == 'rule ask "github.*"'


# ---- patterns


@pytest.mark.parametrize(
    "pattern",
    [
        "*",
        "github.*",
        "github/*",
        "github/create-issue",
        "github.create-issue",
        "github.create_issue",
        "*issue",
        "g?thub.*",
    ],
)
def test_a_pattern_matches_the_full_name_the_dotted_name_and_the_path(pattern: str) -> None:
    assert judged(deny(pattern)).kind == "deny"


@pytest.mark.parametrize(
    "pattern", ["github", "GitHub.*", "create-issue", "github.", "github.?", "github.create.issue"]
)
def test_a_pattern_matches_nothing_else(pattern: str) -> None:
    assert judged(deny(pattern)).kind == "ask"


def test_a_path_may_be_given_as_text_or_not_at_all() -> None:
    assert judged(deny("a.b_c"), path="a.b_c").kind == "deny"
    assert judged(deny("github.create_issue"), path=None).kind == "ask"


@pytest.mark.parametrize("pattern", ["", "a b", "git[hub]", "a|b", "{a,b}", "a\\*", "a\n", "a\u200b", '"a"'])
def test_a_pattern_that_can_name_no_tool_is_a_configuration_error(pattern: str) -> None:
    with pytest.raises(ConfigurationError):
        deny(pattern)
    with pytest.raises(ConfigurationError):
        deny("*", unless=[pattern])


def test_the_error_of_a_pattern_says_what_to_write() -> None:
    with pytest.raises(ConfigurationError) as caught:
        deny("git[hub].*")
    assert str(caught.value) == (
        "rule deny 'git[hub].*': a pattern has no '['; its wildcards are * and ?, and ? is any one character"
    )


def test_names_in_unless_are_left_out() -> None:
    rule = ask("github.*", unless=["github.list_*", "github/get-*"])
    assert judged(rule, tool=mcp("github/get-issue"), path=None).reason != str(rule)
    assert judged(rule).reason == str(rule)
    assert judged(deny("github.*", unless="github.create*")).kind == "ask"


def test_rules_that_name_no_tool_are_listed() -> None:
    policy = Policy(
        [allow("github.list-*"), deny("gitlab.*"), ask("github"), ask("*", unless="mail.*"), deny("*", server="crm")]
    )
    assert policy.unmatched(["github/list-issues", "get_order"]) == ["gitlab.*", "github", "mail.*", "*"]
    assert Policy([deny("github.list_issues")]).unmatched(["github/list-issues", "github.list_issues"]) == []


# ---- conditions


def test_a_rule_matches_by_server_and_caller() -> None:
    assert judged(deny("*", server="github")).kind == "deny"
    assert judged(deny("*", server="git")).kind == "ask"
    assert judged(deny("*", server="github"), tool=Tool(name="github/x"), path=None).kind == "allow"
    assert judged(deny("*", caller="direct")).kind == "ask"
    assert decide(Policy([deny("*", caller="direct")]), mcp(), None, {}, "direct").kind == "deny"


def test_a_rule_matches_by_a_condition_on_the_arguments() -> None:
    rule = deny("*", when=lambda arguments: arguments["amount"] > 100, unless=lambda arguments: arguments.get("test"))
    assert judged(rule, arguments={"amount": 101}).kind == "deny"
    assert judged(rule, arguments={"amount": 100}).kind == "ask"
    assert judged(rule, arguments={"amount": 101, "test": True}).kind == "ask"


@pytest.mark.parametrize("condition", ["when", "unless"])
def test_a_condition_that_raises_takes_the_strict_side_and_says_so(condition: str) -> None:
    broken = {condition: lambda arguments: arguments["secret"]}
    assert (
        judged(deny("*", **broken))
        == Decision("deny", deny("*", **broken), f'rule deny "*" (taken as matching: its {condition} raised KeyError)')
        or judged(deny("*", **broken)).kind == "deny"
    )
    decision = judged(deny("*", **broken))
    assert decision.kind == "deny"
    assert decision.reason == f'rule deny "*" (taken as matching: its {condition} raised KeyError)'
    assert judged(ask("*", **broken)).kind == "ask"
    strict = judged(allow("*", **broken))
    default = "no rule matches; the default for tools of servers is ask"
    assert strict.kind == "ask"
    assert strict.reason == f'{default} (rule allow "*" taken as not matching: its {condition} raised KeyError)'


def test_an_exception_that_holds_is_enough_though_the_condition_raises() -> None:
    def broken(arguments: Any) -> bool:
        raise RuntimeError(arguments)

    assert judged(deny("*", when=broken, unless=lambda _: True)).kind == "ask"


def test_an_async_condition_is_a_configuration_error() -> None:
    async def condition(arguments: Any) -> bool:
        return True

    with pytest.raises(ConfigurationError) as caught:
        allow("*", when=condition)
    assert str(caught.value) == 'rule allow "*": when is an async function; a condition is a plain function'


def test_a_condition_that_returns_something_to_await_counts_as_undecided() -> None:
    async def later() -> bool:
        return True

    decision = judged(allow("*", when=lambda _: later()))
    assert decision.kind == "ask"
    assert decision.reason.endswith("its when returned something to await, not true or false)")


@pytest.mark.parametrize(
    "make",
    [
        lambda: Rule("*", "maybe"),  # what a caller without types may do
        lambda: deny("*", caller="program"),
        lambda: deny("*", read_only="yes"),
        lambda: deny("*", when="amount > 1"),
        lambda: Policy(["github.*"]),
        lambda: Policy(default_servers="no"),
    ],
)
def test_an_impossible_setting_stops_at_construction(make: Any) -> None:
    with pytest.raises(ConfigurationError):
        make()


def test_one_rule_in_place_of_a_list_is_told_how_to_be_written() -> None:
    with pytest.raises(ConfigurationError) as refused:
        Policy(ask("refund"))
    assert str(refused.value) == "a policy is made of a list of rules, not of one: write Policy([rule])"


# ---- hints


@pytest.mark.parametrize(
    ("hints", "expected"),
    [
        (Annotations(), "destroys"),
        (Annotations(read_only=True), "destroys"),
        (Annotations(destructive=False), "destroys"),
        (Annotations(trusted=True), "destroys"),
        (Annotations(trusted=True, destructive=False), "writes"),
        (Annotations(trusted=True, read_only=False), "destroys"),
        (Annotations(trusted=True, read_only=True), "reads"),
        (Annotations(trusted=True, read_only=True, destructive=True), "reads"),
    ],
)
def test_the_effect_of_a_tool_is_the_worst_that_its_trusted_hints_leave(hints: Annotations, expected: str) -> None:
    assert effect(mcp(annotations=hints)) == expected


def test_hints_of_a_client_function_are_trusted() -> None:
    assert effect(Tool(name="f", annotations=READS)) == "reads"


@pytest.mark.parametrize("hint", [{"read_only": True}, {"destructive": False}])
def test_an_allow_rule_on_hints_matches_trusted_ones_only(hint: dict[str, bool]) -> None:
    assert judged(allow("*", **hint), tool=mcp(annotations=Annotations(**hint))).kind == "ask"
    trusted = Annotations(**hint, trusted=True)
    assert judged(allow("*", **hint), tool=mcp(annotations=trusted)).rule == allow("*", **hint)


@pytest.mark.parametrize("hint", [{"read_only": False}, {"destructive": True}])
@pytest.mark.parametrize("claims", [Annotations(), READS, Annotations(destructive=False)])
def test_a_strict_rule_takes_missing_and_untrusted_hints_for_the_worst(
    hint: dict[str, bool], claims: Annotations
) -> None:
    assert judged(deny("*", **hint), tool=mcp(annotations=claims)).kind == "deny"


def test_a_strict_rule_may_use_an_untrusted_claim_against_the_tool() -> None:
    assert judged(deny("*", read_only=True), tool=mcp(annotations=READS)).kind == "deny"
    assert judged(deny("*", read_only=True)).kind == "ask"


# ---- explain


def test_explain_says_which_rule_decides_and_why_the_others_do_not() -> None:
    policy = Policy(
        [
            allow("github.*", read_only=True),
            ask("github.*", when=predicate_from_data({"path": "/amount", "op": ">", "value": 100})),
            deny("mail.*"),
            deny("*", server="crm"),
        ]
    )
    assert policy.explain(mcp(annotations=READS)).splitlines() == [
        "github/create-issue (destroys; its hints are not trusted)",
        '  rule allow "github.*": is for tools with read_only=True',
        '  rule ask "github.*": it depends on the arguments (when=/amount > 100)',
        '  rule deny "mail.*": names other tools',
        '  rule deny "*": is for the server crm',
        "  where a condition depends on the arguments, the decision may differ from call to call",
        '  -> ask: rule ask "github.*" (taken as matching: it depends on the arguments (when=/amount > 100))',
    ]
    assert policy.explain(mcp(), arguments={"amount": 7}).splitlines()[2:] == [
        '  rule ask "github.*": its when=/amount > 100 does not hold',
        '  rule deny "mail.*": names other tools',
        '  rule deny "*": is for the server crm',
        "  -> ask: no rule matches; the default for tools of servers is ask",
    ]


def test_an_undecidable_comparison_takes_the_strict_side() -> None:
    condition = predicate_from_data({"path": "/amount", "op": ">", "value": 100})
    decision = judged(deny("*", when=condition), arguments={"amount": "1000"})
    assert decision.reason == (
        'rule deny "*" (taken as matching: its when cannot be decided: '
        "what is at '/amount' cannot be ordered against 100)"
    )
