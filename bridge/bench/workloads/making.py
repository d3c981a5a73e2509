"""What generated workloads are made with: tools in few words, and names that read like real ones."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from bridge.tools import Annotations, Tool, ToolContext

PEOPLE: Final = "Ada Bruno Chen Dario Elif Femi Greta Hugo Ines Jonas Kaja Luca Mira Nils Olga Pavel".split()
FAMILIES: Final = "Holm Ferro Jansen Koch Berg Moser Silva Okafor Lindqvist Marchetti Novak Weber".split()
PLACES: Final = "Porto Utrecht Ghent Lyon Graz Turin Malmö Brno Cork Split Tartu Leipzig".split()
WORDS: Final = (
    "account address amount archive branch budget calendar campaign channel comment contact contract customer "
    "dashboard delivery department device discount document draft event export field filter folder forecast group "
    "image import incident inventory invoice issue item job label lead ledger license location log member message "
    "metric milestone note notification offer order page payment permission pipeline plan policy profile project "
    "quote record region release report request resource review role rule schedule segment session shipment status "
    "step subscription summary supplier table tag task team template ticket token transfer user version visit workflow"
).split()

Properties = Mapping[str, tuple[str, str]]
"""Name -> (type, description). A type that ends in `?` is optional, in `[]` a list."""


def schema(properties: Properties) -> dict[str, Any]:
    """An object's JSON Schema."""
    made: dict[str, Any] = {}
    for name, (kind, about) in properties.items():
        plain = kind.rstrip("?")
        one: dict[str, Any] = (
            {"type": "array", "items": {"type": plain[:-2]}} if plain.endswith("[]") else {"type": plain}
        )
        made[name] = one | ({"description": about} if about else {})
    required = [name for name, (kind, _) in properties.items() if not kind.endswith("?")]
    return {"type": "object", "properties": made, "required": required, "additionalProperties": False}


def tool(
    name: str,
    description: str,
    properties: Properties,
    answer: Callable[[dict[str, Any]], Any],
    *,
    returns: Mapping[str, Any] | None = None,
    changes: bool = False,
    ask: bool = False,
) -> Tool:
    """A tool whose replies are computed. `returns` is its output schema, `ask` whether every call is to be approved."""

    async def handler(arguments: Any, context: ToolContext) -> Any:
        return answer(arguments)

    return Tool(
        name=name,
        description=description,
        input_schema=schema(properties),
        output_schema=returns,
        handler=handler,
        annotations=Annotations(read_only=not changes, trusted=True),
        require_approval="always" if ask else None,
    )


def rows(properties: Properties) -> dict[str, Any]:
    """The output schema of a list of objects."""
    return {"type": "array", "items": schema(properties)}


def person(chance: random.Random) -> str:
    """A name."""
    return f"{chance.choice(PEOPLE)} {chance.choice(FAMILIES)}"


def sentence(chance: random.Random, words: int) -> str:
    """Something that reads like a remark."""
    return " ".join(chance.choice(WORDS) for _ in range(words)).capitalize() + "."


def literal(values: Sequence[Any]) -> str:
    """A list as a program has it, one value a line where there are many."""
    import json

    return json.dumps(list(values))
