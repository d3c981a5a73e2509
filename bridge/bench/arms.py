"""Arms: what a model has to work with. The same tasks, tools, descriptions and result cap in each of them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from bridge.bench.tasks import Returns
from bridge.errors import ConfigurationError

Catalogue = Literal["schemas", "declarations", "search"]
UNCAPPED: Final = 16 << 20  # bytes: more than any reply of any workload


@dataclass(frozen=True)
class Arm:
    """One way of working.

    Attributes:
        programs: One code tool; else the plain tools.
        together: Independent calls in one message; of no meaning for programs, which do as they are written.
        catalogue: How the model knows the tools: `schemas` as JSON, `declarations` as TypeScript, or by `search`.
        about: For the report.
    """

    name: str
    programs: bool
    together: bool
    catalogue: Catalogue
    about: str


ARMS: Final[Mapping[str, Arm]] = {
    arm.name: arm
    for arm in (
        Arm("direct-par", False, True, "schemas", "plain tools, all independent calls in one message: the baseline"),
        Arm("direct-seq", False, False, "schemas", "plain tools, one call a request"),
        Arm("direct-search", False, True, "search", "plain tools behind a search"),
        Arm("direct-compact", False, True, "declarations", "plain tools, declared as TypeScript: for the ladder only"),
        Arm("prog-decl", True, True, "declarations", "one code tool, tools declared as TypeScript"),
        Arm("prog-equal", True, True, "schemas", "one code tool beside the same JSON schemas as the direct arms have"),
        Arm("prog-search", True, True, "search", "one code tool and a search"),
    )
}
BASELINE: Final = "direct-par"


@dataclass(frozen=True)
class Policy:
    """What comes back: what programs return, and at how many bytes any result is cut, in every arm alike."""

    returns: Returns
    cap_bytes: int = UNCAPPED

    @property
    def name(self) -> str:
        """As on the command line."""
        parts = [] if self.returns == "full" and self.cap_bytes != UNCAPPED else [self.returns]
        parts += [f"cap:{self.cap_bytes}"] if self.cap_bytes != UNCAPPED else []
        return "+".join(parts)


def policy(text: str) -> Policy:
    """`full`, `projection`, `cap:6000` (bytes), or two of them: `projection+cap:6000`.

    Raises:
        ConfigurationError: It is none of these.
    """
    found = re.fullmatch(r"(full|projection)?(?:\+?cap:([1-9]\d{2,8}))?", text)
    if not text or found is None or text.startswith("+"):
        raise ConfigurationError(f"result policy {text!r}: write full, projection, cap:BYTES or projection+cap:BYTES")
    returns: Returns = "projection" if found[1] == "projection" else "full"
    return Policy(returns, int(found[2]) if found[2] else UNCAPPED)


def arm(name: str) -> Arm:
    """An arm by name.

    Raises:
        ConfigurationError: There is none of that name.
    """
    if name not in ARMS:
        raise ConfigurationError(f"there is no arm {name!r}; there is: {', '.join(ARMS)}")
    return ARMS[name]
