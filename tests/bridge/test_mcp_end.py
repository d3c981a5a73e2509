"""What a server has of its host, and that it ends: with its session, with itself, and with its host."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from bridge import mcp
from tests.bridge.odd_servers import ROOT, SCRIPT, all_gone, call, odd, opened, pids_of, refused, script

pytestmark = pytest.mark.anyio


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


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="needs pidfd_open to watch processes that are not ours")
async def test_stopping_ends_the_server_and_what_it_started() -> None:
    server = odd()
    async with opened(server):
        watched = [os.pidfd_open(pid) for pid in pids_of(await call(server, "pid"))]
    assert all_gone(watched)


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="needs pidfd_open to watch processes that are not ours")
async def test_a_server_that_goes_away_takes_what_it_started_with_it() -> None:
    server = odd()
    async with opened(server):
        watched = [os.pidfd_open(pid) for pid in pids_of(await call(server, "pid"))]
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
        watched = [os.pidfd_open(pid) for pid in pids_of(await call(server, "pid"))]
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
        watched = [os.pidfd_open(pid) for pid in pids_of(json.loads(host.stdout.readline()))]
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
