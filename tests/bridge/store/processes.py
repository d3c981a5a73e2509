"""The test's end of driver.py."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]
DRIVER = Path(__file__).with_name("driver.py")


class Driver:
    """One process of driver.py."""

    def __init__(self, command: str, url: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(DRIVER), command, url],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={"PYTHONPATH": str(ROOT), "PATH": os.defpath},
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.stdin, self.stdout = self.process.stdin, self.process.stdout

    def hear(self) -> dict[str, Any]:
        line = self.stdout.readline()
        assert line, "the driver has ended"
        return json.loads(line)

    def tell(self, line: str = "") -> None:
        self.stdin.write(f"{line}\n")
        self.stdin.flush()

    def end(self) -> None:
        with suppress(BrokenPipeError):
            self.stdin.close()
        self.process.kill()
        self.process.wait()
        self.stdout.close()


@contextmanager
def driver(command: str, url: str, number: int = 1) -> Generator[list[Driver]]:
    """Processes of one kind, which are gone afterwards."""
    started = [Driver(command, url) for _ in range(number)]
    try:
        yield started
    finally:
        for each in started:
            each.end()
