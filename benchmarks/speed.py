"""Measure speed with this checkout: `python benchmarks/speed.py ...` is `sandbridge bench speed ...`."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))  # run as a script, this folder's parent is not on the path

from bridge.cli import main

if __name__ == "__main__":
    sys.argv[1:1] = ["bench", "speed"]
    main()
