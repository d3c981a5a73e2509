"""The workloads, by name. A workload is a function from (seed, number of tasks or None) to tasks; the same seed gives
the same tasks. How to add one: benchmarks/README.md.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Final

from bridge.bench.tasks import Task
from bridge.errors import ConfigurationError

Workload = Callable[[int, int | None], Sequence[Task]]

WORKLOADS: Final = {
    "orders": "list, details, parcels, join: 3, 10, 40 and 200 orders",
    "expenses": "who is over budget: eight people with 20 to 50 rows each, three with three",
    "fanout": "2 to 500 independent calls, replies of log-normal size, some of which fail",
    "catalogue": "one to five needed tools among 5 to 1,000 (5,000 with --large)",
    "adverse": "where programs should lose: one call, judgement after each reply, a write to approve, three tools",
    "bfcl": "BFCL v4 multi-turn base: 200 stateful tasks (bfcl-eval, Apache-2.0)",
    "bfcl-long": "BFCL v4 multi-turn long context: 200 stateful tasks (bfcl-eval, Apache-2.0)",
    "complexfuncbench": "1,000 tasks with recorded replies of real APIs (nestful-wrapper, Apache-2.0)",
}
_HOME: Final = {"bfcl-long": "bfcl", "complexfuncbench": "complexfunc"}
_FUNCTION: Final = {"bfcl-long": "long_context"}


def workload(name: str) -> Workload:
    """A workload by name.

    Raises:
        ConfigurationError: There is none of that name.
    """
    if name not in WORKLOADS:
        raise ConfigurationError(f"there is no workload {name!r}; there is: {', '.join(WORKLOADS)}")
    module = importlib.import_module(f"bridge.bench.workloads.{_HOME.get(name, name)}")
    return getattr(module, _FUNCTION.get(name, "tasks"))
