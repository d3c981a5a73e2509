"""How a test of the walls starts `locked.py`, where the walls go up: pytest itself is never jailed."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sandbox import landlock, seccomp, walls

DEADLINE_S = 60
LOCKED = Path(__file__).with_name("locked.py")

linux = pytest.mark.skipif(
    sys.platform != "linux" or seccomp.here() is None, reason="the walls are Linux's, on a machine with a table"
)
AS_ROOT = hasattr(os, "geteuid") and os.geteuid() == 0
# As whoever runs the tests and, where that is root, as an ordinary user too.
users = pytest.mark.parametrize("user", ["self", "nobody"] if AS_ROOT else ["self"])
root = pytest.mark.skipif(not AS_ROOT, reason="only root has this to give up")


def command(job: str, **given: object) -> list[str]:
    return [sys.executable, str(LOCKED), json.dumps({"job": job, **given})]


ENVIRONMENT = {"PYTHONPATH": os.pathsep.join(sys.path)}


def run(job: str, **given: object) -> Any:
    """Run a job of `locked.py`."""
    ended = subprocess.run(
        command(job, **given),
        env=ENVIRONMENT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
        timeout=DEADLINE_S,
    )
    assert (ended.returncode, ended.stderr) == (0, b"")
    return json.loads(ended.stdout)


def kernel_has_landlock() -> bool:
    try:
        return landlock.version() > 0
    except walls.NoWall:
        return False


def kernel_can_seal_code() -> bool:
    """Whether the kernel has MDWE (6.3): asked without setting it."""
    return ctypes.CDLL(None).prctl(66, *(ctypes.c_ulong(0),) * 4) >= 0
