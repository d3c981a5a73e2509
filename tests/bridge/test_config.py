"""Configuration files and options: what they come to, and the exact words for what is wrong with them."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from bridge import config
from bridge.errors import ConfigurationError
from bridge.policy import decide
from bridge.tools import Tool
from sandbox import Limits

LIMITS = (
    "cpu_s, wall_s, memory_bytes, source_bytes, calls, in_flight, timers, call_s, expires_s, argument_bytes, "
    "reply_bytes, value_bytes, output_bytes, log_bytes, frame_bytes"
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is the current one, so that errors name files without their path."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    return tmp_path


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What servers are made of, by name: the arguments that `mcp.stdio` and `mcp.http` are given."""
    from bridge import mcp

    seen: dict[str, Any] = {}

    def stdio(name: str, command: str, args: Any, **options: Any) -> str:
        seen[name] = {"command": command, "args": args, **options}
        return name

    def http(name: str, url: str, **options: Any) -> str:
        seen[name] = {"url": url, **options}
        return name

    monkeypatch.setattr(mcp, "stdio", stdio)
    monkeypatch.setattr(mcp, "http", http)
    return seen


def wrong(text: str | None = None, mcp: Any = None, **options: Any) -> list[str]:
    """The lines of the error that these files and options give."""
    file = None
    if text is not None:
        file = Path("s.toml")
        file.write_text(text, "utf-8")
    if mcp is not None:
        Path("mcp.json").write_text(mcp if isinstance(mcp, str) else json.dumps(mcp, indent=1), "utf-8")
    with pytest.raises(ConfigurationError) as caught:
        config.load(file, [Path("mcp.json")] if mcp is not None else [], **options)
    return str(caught.value).split("\n")


def right(text: str | None = None, mcp: Any = None, **options: Any) -> config.Configuration:
    file = None
    if text is not None:
        file = Path("s.toml")
        file.write_text(text, "utf-8")
    if mcp is not None:
        Path("mcp.json").write_text(json.dumps(mcp), "utf-8")
    return config.load(file, [Path("mcp.json")] if mcp is not None else [], **options)


# ---- what is right ------------------------------------------------------------------------------------------------


def test_no_file_and_no_option_is_every_default():
    assert config.load() == config.Configuration()


def test_limits_of_the_command_line_replace_those_of_the_file(folder: Path):
    settings = right("[limits]\ncpu_s = 2\ncalls = 7\n", limits=["calls=9", "wall_s=1.5"])
    assert settings.limits == Limits(cpu_s=2, calls=9, wall_s=1.5)


def test_the_sandbox_gets_what_its_section_sets_and_nothing_else(folder: Path):
    settings = right('[sandbox]\njit = true\nspares = 0\nrequire = ["process", "seccomp"]\n')
    assert settings.sandbox == {"jit": True, "spares": 0, "require": ["process", "seccomp"]}


def test_jit_of_the_command_line_replaces_that_of_the_file(folder: Path):
    assert right("[sandbox]\njit = true\n", jit=False).sandbox == {"jit": False}


def test_rules_of_the_file_and_of_the_command_line_stand_together_and_the_strictest_decides(folder: Path):
    text = """
        [[rules]]
        tool = "shop.*"
        decision = "ask"
        unless = { path = "/amount", op = "<=", value = 50 }
        """
    policy = right(text, rules=[("allow", "shop.*"), ("deny", "shop.drop")]).policy
    refund, drop = Tool(name="refund", server="shop"), Tool(name="drop", server="shop")
    judged = [
        decide(policy, tool, None, {"amount": amount}, "programmatic").kind
        for tool, amount in ((refund, 50), (refund, 51), (drop, 1))
    ]
    assert judged == ["allow", "ask", "deny"]


def test_exceptions_of_a_rule_may_be_names(folder: Path):
    policy = right('[[rules]]\ntool = "*"\ndecision = "deny"\nunless = ["shop.a", "shop.b*"]\n').policy
    assert policy.rules[0].names_left_out == ("shop.a", "shop.b*")


def test_defaults_of_the_policy_can_be_set(folder: Path):
    policy = right('[policy]\ndefault_functions = "ask"\ndefault_servers = "deny"\n').policy
    assert (policy.default_functions, policy.default_servers) == ("ask", "deny")


# ---- servers --------------------------------------------------------------------------------------------------------


def test_a_server_starts_in_the_folder_of_its_file_with_this_interpreter(folder: Path, made: dict[str, Any]):
    right('[servers.shop]\ncommand = "python"\nargs = ["server.py"]\ntrusted = true\n')
    assert made == {"shop": {"command": sys.executable, "args": ["server.py"], "cwd": str(folder), "trusted": True}}


def test_a_relative_directory_of_a_server_is_relative_to_its_file(folder: Path, made: dict[str, Any]):
    right('[servers.shop]\ncommand = "/bin/x"\ncwd = "sub"\n')
    assert made["shop"] == {"command": "/bin/x", "args": [], "cwd": str(folder / "sub")}


def test_variables_are_filled_in_wherever_a_server_has_text(folder: Path, made: dict[str, Any]):
    mcp = {
        "mcpServers": {
            "a": {"command": "${TOOL}", "args": ["--key=${KEY:-none}", "${env:TOOL}"], "env": {"K": "${EMPTY:-d}"}},
            "b": {"type": "http", "url": "https://${HOST}/mcp", "headers": {"Authorization": "Bearer ${KEY}"}},
        }
    }
    right(mcp=mcp, environment={"TOOL": "t", "HOST": "h", "KEY": "k", "EMPTY": ""})
    assert made == {
        "a": {"command": "t", "args": ["--key=k", "t"], "env": {"K": "d"}, "cwd": str(folder)},
        "b": {"url": "https://h/mcp", "headers": {"Authorization": "Bearer k"}},
    }


def test_the_secret_of_a_client_registered_by_hand_need_not_stand_in_the_file(folder: Path, made: dict[str, Any]):
    from bridge import mcp

    oauth = '{ store = "t.json", sign_in_s = 60.0, client_id = "c", client_secret = "${SECRET}" }'
    right(f'[servers.b]\nurl = "https://h/mcp"\noauth = {oauth}\n', environment={"SECRET": "s"})
    assert made["b"]["oauth"] == mcp.OAuth(store=folder / "t.json", sign_in_s=60.0, client_id="c", client_secret="s")


def test_disabled_servers_are_left_out_and_their_variables_not_missed(folder: Path, made: dict[str, Any]):
    right(
        '[servers.a]\ncommand = "${NOT_SET}"\ndisabled = true\n',
        mcp={"mcpServers": {"b": {"url": "https://x", "disabled": True}}},
        environment={},
    )
    assert made == {}


def test_a_section_without_command_adds_options_to_the_hosts_server(folder: Path, made: dict[str, Any]):
    right(
        '[servers.a]\ntrusted = true\nenv = { B = "2" }\nrequire_approval = { drop = "always" }\n',
        mcp={"mcpServers": {"a": {"command": "x", "env": {"A": "1", "B": "1"}}}},
    )
    assert made["a"] == {
        "command": "x",
        "args": [],
        "cwd": str(folder),
        "trusted": True,
        "env": {"A": "1", "B": "2"},
        "require_approval": {"drop": "always"},
    }


def test_keys_that_only_other_hosts_know_are_warned_of(folder: Path, made: dict[str, Any]):
    (folder / "mcp.json").write_text('{"inputs": [],\n"mcpServers": {"a": {\n"command": "x",\n"alwaysAllow": ["y"]}}}')
    settings = config.load(None, [Path("mcp.json")])
    assert settings.warnings == (
        "mcp.json, line 1: inputs: is not read here",
        "mcp.json, line 4: mcpServers.a.alwaysAllow: is not read here",
    )


# ---- what is wrong --------------------------------------------------------------------------------------------------


def test_all_that_is_wrong_in_a_file_is_said_at_once_with_line_and_key(folder: Path):
    text = """functions = ["nope.py:x", "no_module_of_this_name:y", "tools.py"]
colour = 1
[limits]
cpus_s = 2
cpu_s = "2"
wall_s = -1
calls = 2.5
[sandbox]
require = ["seccomp", "moat"]
[servers.shop]
command = "python"
env = { A = 3 }
trusted = "yes"
require_approval = { a = "sometimes" }
[[rules]]
tool = "shop.*"
decision = "maybe"
[[rules]]
decision = "ask"
when = "x"
[[rules]]
tool = "a b"
decision = "ask"
when = { path = "/n", op = "~", value = 1 }
"""
    assert wrong(text) == [
        f"s.toml, line 1: functions[0]: there is no file {folder / 'nope.py'}",
        (
            "s.toml, line 1: functions[1]: there is no module 'no_module_of_this_name', neither installed nor "
            "beside the file"
        ),
        's.toml, line 1: functions[2]: write "file.py:function" or "package.module:function", not \'tools.py\'',
        (
            "s.toml, line 2: colour: there is no such key. There are: functions, limits, sandbox, policy, servers, "
            "rules, store, lock"
        ),
        f"s.toml, line 4: limits.cpus_s: there is no such key (did you mean cpu_s?). There are: {LIMITS}",
        's.toml, line 5: limits.cpu_s: must be a number, not "2"',
        "s.toml, line 6: limits.wall_s: must be above 0, not -1",
        "s.toml, line 7: limits.calls: must be a whole number, not 2.5",
        (
            "s.toml, line 9: sandbox.require[1]: there is no such wall. There are: process, no_new_privs, "
            "parent_death, namespaces, landlock, rlimits, uid, capabilities, dumpable, seccomp, memory_limit, "
            "code_pages"
        ),
        "s.toml, line 12: servers.shop.env.A: must be text, not a number",
        's.toml, line 13: servers.shop.trusted: must be true or false, not "yes"',
        (
            's.toml, line 14: servers.shop.require_approval: must be "always", "never", or a table of tools with '
            'one of these each, not {"a": "sometimes"}'
        ),
        's.toml, line 17: rules[0].decision: must be "allow", "ask" or "deny", not "maybe"',
        "s.toml, line 18: rules[1].tool: is missing",
        (
            "s.toml, line 20: rules[1].when: must be a condition (a table with path, op and value), or a list "
            'of conditions, not "x"'
        ),
        (
            "s.toml, line 22: rules[2].tool: rule ask 'a b': a pattern has no ' '; its wildcards are * and ?, and ? "
            "is any one character"
        ),
        (
            "s.toml, line 24: rules[2].when: unknown op '~'; there are ==, !=, <, <=, >, >=, in, not in, contains, "
            "starts_with, ends_with, matches, exists"
        ),
    ]


def test_a_file_that_is_no_toml_is_named_with_its_line(folder: Path):
    assert wrong("[limits]\ncpu_s 2\n") == [
        "s.toml, line 2, column 7: is not TOML: Expected '=' after a key in a key/value pair"
    ]


def test_a_file_that_is_no_json_is_named_with_its_line(folder: Path):
    assert wrong(mcp='{"mcpServers": {\n"a" 1}}') == [
        "mcp.json, line 2, column 5: is not JSON: Expecting ':' delimiter"
    ]


def test_a_file_that_is_not_there_is_named(folder: Path):
    with pytest.raises(ConfigurationError) as caught:
        config.load(Path("a.toml"), [Path("b.json")])
    assert str(caught.value).split("\n") == [
        "b.json: cannot be read: No such file or directory",
        "a.toml: cannot be read: No such file or directory",
    ]


def test_limits_that_contradict_each_other_are_told_at_the_one_that_was_set(folder: Path):
    assert wrong("[limits]\ncalls = 1\nreply_bytes = 33_554_432\n") == [
        (
            "s.toml, line 3: limits.reply_bytes: Limits.reply_bytes=33554432 needs frame_bytes of at least 67108864, "
            "but frame_bytes=33554432: raise frame_bytes or lower reply_bytes"
        )
    ]


def test_a_number_that_is_infinite_is_no_limit(folder: Path):
    assert wrong("[limits]\ncpu_s = inf\n") == ["s.toml, line 2: limits.cpu_s: must be a finite number, not Infinity"]


def test_an_option_that_is_wrong_is_named(folder: Path):
    assert wrong(rules=[("allow", "a b")], limits=["x=1", "cpu_s=0", "calls=2.5", "calls"]) == [
        "--allow a b: rule allow 'a b': a pattern has no ' '; its wildcards are * and ?, and ? is any one character",
        f"--limit x=1: write NAME=NUMBER, where NAME is one of {LIMITS}",
        "--limit cpu_s=0: Limits.cpu_s must be positive and finite, not 0.0: none can be unset",
        "--limit calls=2.5: '2.5' is not a whole number",
        f"--limit calls: write NAME=NUMBER, where NAME is one of {LIMITS}",
    ]


def test_a_server_has_a_command_or_a_url_and_the_keys_that_go_with_it(folder: Path, made: dict[str, Any]):
    text = """
[servers.none]
trusted = true
[servers.both]
command = "x"
url = "https://x"
[servers.mixed]
url = "https://x"
args = ["y"]
[servers.other]
command = "x"
token = "t"
"""
    assert wrong(text) == [
        "s.toml, line 2: servers.none: has neither command nor url, and no --mcp file has a server of this name",
        "s.toml, line 6: servers.both.url: stands beside command: a server has one of them",
        "s.toml, line 9: servers.mixed.args: is for servers with a command; this one has a url",
        "s.toml, line 12: servers.other.token: is for servers with a url; this one has a command",
    ]


def test_a_variable_that_is_not_set_is_named_and_no_value_is_shown(folder: Path, made: dict[str, Any]):
    text = '[servers.a]\ncommand = "x"\nenv = { KEY = "secret-${MISSING}", B = "${1}" }\n'
    assert wrong(text, environment={}) == [
        "s.toml, line 3: servers.a.env: the variable MISSING is not set: set it, or write ${MISSING:-default}",
        's.toml, line 3: servers.a.env: "${1}" is not understood: write ${NAME} or ${NAME:-default}',
    ]


def test_a_server_of_a_hosts_file_is_checked_like_any_other(folder: Path, made: dict[str, Any]):
    mcp = """{"mcpServers": {
"b": 1,
"c": {"type": "sse", "url": "u"},
"d": {"type": "http"},
"e": {"type": "pipe", "command": "x"},
"b": {},
"f": {"command": 1}}}"""
    assert wrong(mcp=mcp) == [
        "mcp.json, line 2: mcpServers.b: stands twice",
        "mcp.json, line 2: mcpServers.b: has no command, which a server of type stdio has",
        "mcp.json, line 3: mcpServers.c.type: the sse transport is not supported: the server's `http` one is",
        "mcp.json, line 4: mcpServers.d: has no url, which a server of type http has",
        'mcp.json, line 5: mcpServers.e.type: must be "stdio" or "http", not "pipe"',
        "mcp.json, line 7: mcpServers.f.command: must be text, not 1",
    ]


def test_a_server_in_two_files_stops_with_both_named(folder: Path, made: dict[str, Any]):
    assert wrong('[servers.a]\ncommand = "x"\n', mcp={"mcpServers": {"a": {"command": "x"}}}) == [
        (
            "s.toml, line 1: servers.a: is configured twice: mcp.json, line 3: mcpServers.a has it too; rename one, "
            "or leave out command and url to add options to that one"
        )
    ]


def test_a_hosts_file_without_servers_says_what_it_must_be(folder: Path):
    assert wrong(mcp="[]") == [
        'mcp.json, line 1: must be an object with the key "mcpServers", an object of servers by name'
    ]


def test_control_characters_of_a_file_are_shown_escaped(folder: Path):
    assert wrong('"a\\u001b[31m" = 1\n') == [
        (
            's.toml, line 1: "a\\u001b[31m": there is no such key. There are: functions, limits, sandbox, policy, '
            "servers, rules, store, lock"
        )
    ]


def test_the_limits_of_a_file_are_all_limits_that_there_are(folder: Path):
    text = "[limits]\n" + "".join(f"{name} = {value}\n" for name, value in vars(Limits()).items())
    assert right(text).limits == Limits()
