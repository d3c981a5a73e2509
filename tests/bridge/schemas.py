"""Schemas that tests share, and what is said of arguments that do not fit one."""

from __future__ import annotations

from typing import Any

import pytest

from bridge.errors import ToolError
from bridge.schema import Checker


def closed(*required: str, **properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


TEXT, WHOLE, NUMBER, TRUTH = ({"type": kind} for kind in ("string", "integer", "number", "boolean"))
EXPENSES = closed("user_id", "quarter", user_id=TEXT, quarter=TEXT)
LIST_ORDERS = closed(status={"enum": ["open", "late"]}, page=WHOLE)
ITEMS = closed(items={"type": "array", "items": closed("qty", qty=WHOLE, note=TEXT)})


def refused(schema: Any, *positional: Any, name: str = "f") -> ToolError:
    with pytest.raises(ToolError) as caught:
        Checker(schema, name).arguments(list(positional))
    assert caught.value.code == "invalid_arguments"
    assert len(caught.value.message) <= 500
    return caught.value


def reason(schema: Any, *positional: Any) -> str:
    """The text without the tool's name and its signature."""
    return refused(schema, *positional).message.removeprefix("f: ").partition(". Signature: ")[0]
