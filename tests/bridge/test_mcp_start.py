"""How servers start, fail to start, list their tools and end: with their own exit, the host's, and no trace."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from bridge import ConfigurationError, ServerUnavailable, StateError, mcp
from tests.bridge.odd_servers import SCRIPT, call, frames, odd, opened, refused, tool

pytestmark = pytest.mark.anyio
ROOT = Path(__file__).parent.parent.parent


def script(path: Path, text: str, mode: int = 0o755) -> Path:
    path.write_text(text, "utf-8")
    path.chmod(mode)
    return path


# ---- what does not start -------------------------------------------------------------------------------------------


async def test_a_server_that_dies_at_its_start_says_how_and_hides_what_it_was_given() -> None:
    server = odd("dies", env={"ODD_API_KEY": "sesame-4711"})
    async with opened(server):
        assert server.tools == ()
        assert server.error == (
            f"server 'odd' ({server.shown}) ended before it was ready (exit code 7); it wrote to stderr:"
            "\n  | Traceback (most recent call last):"
            '\n  |   File "/srv/odd/main.py", line 1, in <module>'
            "\n  | ConfigError: \\x1b[31mno key ***\\x1b[0m in /etc/odd/odd.conf"
        )


@pytest.mark.parametrize(
    ("command", "why"),
    [
        (
            "no-such-command",
            "command 'no-such-command' was not found on PATH=/usr/bin:/bin; install it or give its full path",
        ),
        ("/no/such/file", "command '/no/such/file' was not found; give the path of a file that exists"),
        (str(SCRIPT), f"command {str(SCRIPT)!r} is not executable; chmod +x it"),
    ],
)
async def test_a_command_that_cannot_be_started_says_why(command: str, why: str) -> None:
    server = mcp.stdio("bad", command, env={"PATH": "/usr/bin:/bin"})
    async with opened(server):
        assert server.error == f"server 'bad' ({command}) cannot be started: {why}"


async def test_a_file_that_the_kernel_cannot_execute_says_so(tmp_path: Path) -> None:
    file = script(tmp_path / "broken", "#!/no/such/interpreter\n")
    server = mcp.stdio("bad", str(file))
    async with opened(server):
        assert server.error == (
            f"server 'bad' ({file}) ended before it was ready (could not be executed: No such file or directory)"
        )


async def test_a_directory_that_does_not_exist_says_so(tmp_path: Path) -> None:
    server = odd(cwd=tmp_path / "gone")
    async with opened(server):
        assert server.error == (
            f"server 'odd' ({server.shown}) cannot be started: its directory {tmp_path / 'gone'} does not exist"
        )


async def test_bad_servers_do_not_keep_a_good_one_from_starting() -> None:
    bad = [
        odd("dies", name="a"),
        odd("quits", name="b"),
        mcp.stdio("c", "no-such-command"),
        odd("hangs", name="d", connect_s=0.5),
    ]
    good = odd(name="good")
    async with opened(*bad, good):
        assert await call(good, "echo", {"fine": 1}) == {"fine": 1}
        assert [server.tools for server in bad] == [(), (), (), ()]
        assert (bad[1].error or "").endswith(" ended before it was ready (exit code 0)")
        assert (bad[3].error or "").endswith(" was not ready within 0.5 s (connect_s)")


async def test_a_required_server_that_is_down_raises_and_leaves_nothing_behind() -> None:
    server = odd("quits", optional=False)
    async with anyio.create_task_group() as tasks:
        with pytest.raises(ServerUnavailable) as caught:
            await server.start(tasks)
    assert str(caught.value) == (
        f"server 'odd' ({server.shown}) ended before it was ready (exit code 0)\n"
        "It was declared with optional=False, so nothing opens without it."
    )


async def test_a_server_is_opened_once_at_a_time() -> None:
    server = odd()
    async with opened(server), anyio.create_task_group() as tasks:
        with pytest.raises(StateError) as caught:
            await server.start(tasks)
    assert str(caught.value) == "server 'odd' is open already: describe it twice to open it in two executors"


async def test_stopping_during_the_start_does_not_wait_for_it(tmp_path: Path) -> None:
    log = tmp_path / "log"
    server = odd("hangs", log=log, connect_s=600.0)
    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(server.start, tasks)
            while not log.exists():
                await anyio.lowlevel.checkpoint()
            await server.stop()
    assert server.tools == ()


async def test_cancelling_everything_ends_the_process_too() -> None:
    server = odd()
    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            await server.start(tasks)
            watched = [os.pidfd_open(pid) for pid in _pids(await call(server, "pid"))]
            tasks.cancel_scope.cancel()
    assert all_gone(watched)


async def test_a_server_that_ends_on_an_unknown_first_message_is_started_again_with_the_older_handshake(
    tmp_path: Path,
) -> None:
    log = tmp_path / "log"
    server = odd("picky", log=log)
    async with opened(server):
        assert server.error is None
        assert await call(server, "echo", {"fine": 1}) == {"fine": 1}
        first = [frame["method"] for frame in frames(log)][:2]
        await refused(server, "exits")
        assert await call(server, "echo", {"again": 1}) == {"again": 1}
    assert first == ["server/discover", "initialize"]
    assert [frame["method"] for frame in frames(log)].count("server/discover") == 1  # remembered


async def test_a_crash_loop_is_slowed_down_and_never_stops_being_an_error() -> None:
    server = odd()
    async with opened(server):
        for _ in range(3):
            assert (await refused(server, "exits")).code == "unknown_outcome"
        owner = server._owner
        assert owner is not None
        while owner._failures < 3:
            await anyio.lowlevel.checkpoint()
        assert await call(server, "echo", {"ok": 1}) == {"ok": 1}


async def test_a_call_to_a_server_that_cannot_come_back_says_so_and_was_not_sent(tmp_path: Path) -> None:
    flag = script(tmp_path / "flag", "")
    starter = script(
        tmp_path / "start",
        f'#!/bin/sh\n[ -e "{flag}" ] || {{ echo "gone for good" >&2; exit 5; }}\nexec "{sys.executable}" "{SCRIPT}"\n',
    )
    server = mcp.stdio("odd", str(starter))
    async with opened(server):
        await refused(server, "exits")
        flag.unlink()
        error = await refused(server, "echo")
        assert error.message == "server 'odd' ended (exit code 5): gone for good. Nothing was sent."
        assert (error.code, error.retryable) == ("failed", True)
        starter.unlink()
        error = await refused(server, "echo")
        assert error.message == "server 'odd' could not be started; its operator can see why. Nothing was sent."
        assert server.error == (
            f"server 'odd' ({starter}) cannot be started: command {str(starter)!r} was not found; "
            "give the path of a file that exists"
        )


# ---- lists ---------------------------------------------------------------------------------------------------------


async def test_banners_and_logs_on_stdout_are_skipped_with_one_warning() -> None:
    server = odd("banner")
    async with opened(server):
        assert await call(server, "echo", {"fine": 1}) == {"fine": 1}
    assert server.warnings == [
        (
            "it writes to stdout what is no message (skipped; the first: '\\\\x1b[1mOdd server 1.0\\\\x1b[0m'): "
            "logs belong on stderr"
        )
    ]


@pytest.mark.parametrize(
    ("word", "count", "warnings"),
    [
        ("pages", None, []),
        ("empty-cursor", 2, []),
        ("circle", 4, ["its list of tools does not end: reading stopped after 4 tools"]),
        ("toolless", 0, ["it has no tools (it does not know tools/list)"]),
    ],
)
async def test_all_pages_of_a_list_are_read_and_a_list_without_end_ends(
    word: str, count: int | None, warnings: list[str]
) -> None:
    server, whole = odd(word), odd(name="whole")
    async with opened(server, whole):
        assert len(server.tools) == (len(whole.tools) if count is None else count)
        assert server.warnings == warnings


async def test_a_list_with_ever_new_cursors_stops_at_its_bound() -> None:
    server = odd("endless")
    async with opened(server):
        assert len(server.tools) == 1  # a hundred pages with the same tool
        assert server.warnings == [
            "its list of tools does not end: reading stopped after 100 tools",
            "it lists the tool 'echo' more than once: only its first definition is used",
        ]


async def test_one_malformed_tool_does_not_cost_the_list() -> None:
    server, plain = odd("malformed"), odd(name="plain")
    async with opened(server, plain):
        extra = {each.name for each in server.tools} - {each.name for each in plain.tools}
        assert sorted(extra) == [
            "annotations-list",
            "annotations-odd",
            "description-number",
            "hidden-words",
            "no-schema",
            "output-array",
            "output-text",
            "schema-array",
            "schema-true",
            "twice",
        ]
        assert tool(server, "twice").description == "first"
        assert tool(server, "schema-array").input_schema == {"type": "object"}
        assert tool(server, "annotations-odd").annotations.read_only is None
        assert tool(server, "annotations-odd").annotations.destructive is False
    assert server.warnings == [
        "a tool without a name was left out",
        "tool 'no-schema' has no input schema: any object is accepted",
        "tool 'schema-true' has no input schema: any object is accepted",
        "tool 'schema-list' was left out: its input schema is no object",
        "tool 'schema-array' has an input schema of a type that is not 'object': it is taken as one",
        "tool 'output-text': its output schema is no object and was left out",
        (
            "tool 'output-array': its output schema is not of the type 'object', as its protocol revision demands; "
            "it was left out"
        ),
        "tool 'annotations-list': its annotations are no object and were left out",
        "tool 'annotations-odd': its annotation readOnlyHint is not what it must be and was left out",
        "tool 'description-number': description is not what it must be and was left out",
        "tool 'description-number': _meta is not what it must be and was left out",
        "tool 'task-only' was left out: it can only be called as a task, which is not supported",
        "it lists the tool 'twice' more than once: only its first definition is used",
        "tool '' was left out: tool name '' must be a text of 1 to 128 characters",
        (
            "tool 'hidden\\\\u200bname' was left out: "
            "tool name 'hidden\\u200bname' has an invisible character (U+200B): remove it"
        ),
        "the description of tool 'hidden-words' has characters that nobody sees (U+202E)",
    ]


async def test_settings_of_a_server_reach_its_tools() -> None:
    server = odd(
        trusted=True,
        allowed_tools=["echo", "say", "not-there"],
        require_approval={"echo": "never", "nor-this": "always"},
        call_s=7.0,
    )
    async with opened(server):
        assert [each.name for each in server.tools] == ["echo", "say"]
        echo, say = server.tools
        assert (echo.require_approval, say.require_approval) == ("never", None)
        assert (echo.timeout_s, echo.server, echo.server_identity) == (7.0, "odd", server.identity)
        assert echo.annotations.trusted
    assert server.warnings == [
        "allowed_tools names 'not-there', which it does not list",
        "require_approval names 'nor-this', which it does not list",
    ]


# ---- environment and end -------------------------------------------------------------------------------------------


async def test_a_server_gets_the_safe_base_and_what_was_named_and_no_secret_of_the_host(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("MODEL_API_KEY", "secret")
    monkeypatch.setenv("PASSED_ON", "yes")
    monkeypatch.setenv("SHELL", "() { :; }; echo pwned")
    server = odd(env={"KEY": "1"}, inherit_env=["PASSED_ON", "NOT_SET_HERE"], cwd=tmp_path)
    async with opened(server):
        environment = await call(server, "environment")
        assert (await call(server, "pid"))["directory"] == str(tmp_path)
    assert {"KEY": "1", "PASSED_ON": "yes"}.items() <= environment.items()
    assert environment["PATH"] == os.environ["PATH"]
    assert not {"MODEL_API_KEY", "SHELL", "NOT_SET_HERE"} & environment.keys()
    assert server.warnings == ["inherit_env names 'NOT_SET_HERE', not set here"]


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="needs /proc to see a process's descriptors")
async def test_a_server_has_no_descriptor_but_its_three_streams() -> None:
    server = odd()
    async with opened(server):
        assert await call(server, "descriptors") == [0, 1, 2, 3]  # 3 is the listing itself


def _pids(told: dict[str, Any]) -> list[int]:
    return [told["server"], told["child"]]


def all_gone(watched: list[int]) -> bool:
    """Whether every process ends within the deadline; a pidfd is readable from then on."""
    try:
        return all(select.select([number], [], [], 10.0)[0] for number in watched)
    finally:
        for number in watched:
            os.close(number)


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="needs pidfd_open to watch processes that are not ours")
async def test_stopping_ends_the_server_and_what_it_started() -> None:
    server = odd()
    async with opened(server):
        watched = [os.pidfd_open(pid) for pid in _pids(await call(server, "pid"))]
    assert all_gone(watched)


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="needs pidfd_open to watch processes that are not ours")
async def test_a_server_that_goes_away_takes_what_it_started_with_it() -> None:
    server = odd()
    async with opened(server):
        watched = [os.pidfd_open(pid) for pid in _pids(await call(server, "pid"))]
        await refused(server, "exits")
        assert all_gone(watched)


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="needs pidfd_open to watch processes that are not ours")
async def test_a_stubborn_server_is_killed(tmp_path: Path) -> None:
    starter = script(
        tmp_path / "start",
        f'#!/bin/sh\ntrap "" TERM\nexec 3<&0\n"{sys.executable}" "{SCRIPT}" <&3 &\nwait\nsleep 600\n',
    )
    server = mcp.stdio("odd", str(starter))
    async with opened(server):
        watched = [os.pidfd_open(pid) for pid in _pids(await call(server, "pid"))]
    assert all_gone(watched)


HOST = """
import anyio, json, sys
from tests.bridge.odd_servers import call, odd
async def main():
    server = odd()
    async with anyio.create_task_group() as tasks:
        await server.start(tasks)
        print(json.dumps(await call(server, "pid")), flush=True)
        await call(server, "silence")
anyio.run(main, backend=sys.argv[1])
"""


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="needs pidfd_open to watch processes that are not ours")
def test_a_host_that_is_killed_takes_its_servers_and_what_they_started_with_it(anyio_backend_name: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOST, anyio_backend_name], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as host:
        assert host.stdout is not None
        watched = [os.pidfd_open(pid) for pid in _pids(json.loads(host.stdout.readline()))]
        host.send_signal(signal.SIGKILL)
    assert all_gone(watched)


POLITE = """
import anyio, sys
from bridge import mcp
from tests.bridge.odd_servers import call
async def main():
    server = mcp.stdio("odd", sys.argv[2])
    async with anyio.create_task_group() as tasks:
        await server.start(tasks)
        print("ready", flush=True)
        await anyio.sleep_forever()
anyio.run(main, backend=sys.argv[1])
"""


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="needs pidfd_open to watch processes that are not ours")
def test_a_server_whose_host_is_killed_is_asked_to_end_before_it_is_killed(
    anyio_backend_name: str, tmp_path: Path
) -> None:
    said, pid = tmp_path / "said", tmp_path / "pid"
    text = f'#!/bin/sh\necho $$ > {pid}\ntrap "echo bye > {said}; exit" TERM\nexec 3<&0\n'
    starter = script(tmp_path / "start", text + f'"{sys.executable}" "{SCRIPT}" <&3 &\nwait\nsleep 600 & wait\n')
    with subprocess.Popen(
        [sys.executable, "-c", POLITE, anyio_backend_name, str(starter)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as host:
        assert host.stdout is not None
        assert host.stdout.readline() == b"ready\n"
        watched = [os.pidfd_open(int(pid.read_text()))]
        host.send_signal(signal.SIGKILL)
    assert all_gone(watched)
    assert said.read_text() == "bye\n"


# ---- settings ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (
            lambda: odd(name="a/b"),
            "server 'a/b': a name has 1 to 128 characters that can be seen, and no '/' (it divides server and tool)",
        ),
        (
            lambda: odd(require_approval="maybe"),
            "server 'odd': require_approval is 'always' or 'never', or by tool, not 'maybe'",
        ),
        (
            lambda: odd(require_approval={"echo": "x"}),
            "server 'odd': require_approval is 'always' or 'never', or by tool, not 'x'",
        ),
        (lambda: odd(allowed_tools="echo"), "server 'odd': allowed_tools is a list of names, not the text 'echo'"),
        (lambda: odd(call_s=0), "server 'odd': call_s must be positive and finite, not 0"),
        (lambda: odd(connect_s=float("inf")), "server 'odd': connect_s must be positive and finite, not inf"),
        (lambda: odd(max_concurrent=0), "server 'odd': max_concurrent must be at least 1, not 0"),
        (lambda: odd(env={"A=B": "x"}), "server 'odd': env['A=B'] has a character that does not belong there"),
        (lambda: odd(env={"A": 1}), "server 'odd': env['A'] must be a text"),
        (lambda: mcp.stdio("s", "x", "one text"), "server 's': command and args must be texts, args a list of them"),
        (lambda: mcp.stdio("s", ""), "server 's' has no command"),
        (lambda: mcp.http("h", "ftp://x"), "server 'h': url must be http:// or https:// with a host, not 'ftp://x'"),
        (
            lambda: mcp.http("h", "http://x", headers={"A": "a\r\nB: b"}),
            "server 'h': headers['a'] has a character that does not belong there",
        ),
        (
            lambda: mcp.http("h", "http://x", headers={"Authorization": "x"}, token="t"),
            "server 'h': give one of token, oauth and an Authorization header, not two",
        ),
        (
            lambda: mcp.http("h", "http://x", headers={"Authorization": "x"}, oauth=mcp.OAuth(store="t")),
            "server 'h': oauth and an Authorization header contradict each other: give one",
        ),
        (
            lambda: mcp.OAuth(store="t", redirect_uri="https://example.com/"),
            "OAuth.redirect_uri must be http on loopback with a port, not 'https://example.com/'",
        ),
    ],
)
def test_a_setting_that_cannot_be_used_stops_construction(make: Any, text: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        make()
    assert str(caught.value) == text


def test_the_identity_changes_with_what_the_server_is_and_with_its_credentials_and_shows_neither() -> None:
    def identity(**options: Any) -> str:
        return mcp.stdio("s", options.pop("command", "x"), options.pop("args", ["a"]), **options).identity

    known = {
        identity(),
        identity(command="y"),
        identity(args=["b"]),
        identity(args=["a", ""]),
        identity(cwd="/"),
        identity(env={"API_KEY": "one"}),
        identity(env={"API_KEY": "two"}),
        mcp.http("s", "http://x").identity,
        mcp.http("s", "http://y").identity,
        mcp.http("s", "http://x", token="one").identity,
        mcp.http("s", "http://x", token="two").identity,
    }
    assert len(known) == 11
    assert identity() == identity(trusted=True, optional=False)  # how it is treated is not what it is


def test_importing_the_module_and_describing_servers_does_not_load_the_sdk() -> None:
    code = (
        "import sys; from bridge import mcp; mcp.stdio('a', 'x'); mcp.http('b', 'http://x', token='t');"
        "print([name for name in ('mcp', 'mcp_types', 'httpx2', 'pydantic') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
