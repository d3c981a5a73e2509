"""Fuzzes one target, guided by coverage: `python tests/fuzz/run.py wire --seconds 60`.

Needs `pip install atheris` (Linux, macOS). Starts from `seeds/<target>` and what was found before; an input that breaks
the target's promise is put into `crashers/<target>`, its name a digest, and the exit status is 1: commit it with the
mend, and `test_seeds.py` plays it from then on. Exit status 2: no atheris.
"""

from __future__ import annotations

import argparse
import importlib
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
NAMES = ("wire", "source", "schema", "state", "configuration")
# Loaded at their first use otherwise, and then not looked into.
LATE = {"state": ["bridge.render"], "configuration": ["bridge.sections", "bridge.servers", "bridge.predicates"]}
INPUT_S, MEMORY_MIB = 10, 2048  # of one input, on a busy machine; far above what an honest one takes


def inside(name: str, arguments: list[str]) -> None:
    """The fuzzer's own process."""
    import atheris

    sys.path.insert(0, str(HERE.parent.parent))
    with atheris.instrument_imports(include=["sandbox", "bridge"]):
        from tests.fuzz.targets import LONGEST, TARGETS

        for module in LATE.get(name, ()):
            importlib.import_module(module)
    from tests.fuzz.shapes import SHAPES

    target, shape = TARGETS[name], SHAPES.get(name)

    def mutated(data: bytes, most: int, seed: int) -> bytes:
        chance = random.Random(seed)
        if shape is None or chance.random() < 0.4:
            return atheris.Mutate(data, most)
        return shape(data, chance)[:most]

    options = {} if shape is None else {"custom_mutator": mutated}
    command = [sys.argv[0], f"-max_len={LONGEST}", *arguments]
    atheris.Setup(command, lambda data: target(bytes(data)), **options)
    atheris.Fuzz()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target", choices=NAMES)
    parser.add_argument("--seconds", type=int, default=60)
    given = parser.parse_args()
    try:
        import atheris  # noqa: F401  # only whether it is there
    except ImportError:
        print("fuzzing needs atheris: pip install atheris", file=sys.stderr)
        return 2
    crashers = HERE / "crashers" / given.target
    crashers.mkdir(parents=True, exist_ok=True)
    before = {*crashers.iterdir()}
    with tempfile.TemporaryDirectory(prefix="sandbridge-fuzz-") as corpus:
        command = [sys.executable, str(HERE / "run.py"), "--inside", given.target, corpus]
        command += [str(folder) for folder in (HERE / "seeds" / given.target, crashers) if folder.is_dir()]
        command += [f"-max_total_time={given.seconds}", f"-timeout={INPUT_S}", f"-rss_limit_mb={MEMORY_MIB}"]
        command += [f"-artifact_prefix={crashers}/", "-print_final_stats=1", "-verbosity=1"]
        words = HERE / "seeds" / f"{given.target}.dict"
        command += [f"-dict={words}"] if words.exists() else []
        ended = subprocess.run(command, check=False, env={**os.environ, "PYTHONHASHSEED": "0"})
    found = {*crashers.iterdir()} - before
    for each in sorted(found):
        print(f"found: {each.relative_to(HERE)}")
    if not any(crashers.iterdir()):
        crashers.rmdir()
    return 1 if found or ended.returncode else 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--inside"]:
        inside(sys.argv[2], sys.argv[3:])
    else:
        sys.exit(main())
