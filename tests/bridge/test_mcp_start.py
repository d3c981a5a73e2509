"""How servers start, fail to start, and list their tools."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import anyio
import pytest

from bridge import ServerUnavailable, StateError, mcp
from tests.bridge.odd_servers import SCRIPT, all_gone, call, frames, odd, opened, pids_of, refused, script, tool

pytestmark = pytest.mark.anyio


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
            watched = [os.pidfd_open(pid) for pid in pids_of(await call(server, "pid"))]
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
