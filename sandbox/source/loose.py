"""Calls of async functions that nobody waits for: an error in one is lost, and the program may end before it does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from sandbox.messages import Notice
from sandbox.source.syntax import FUNCTIONS, Survey, bare

if TYPE_CHECKING:
    from tree_sitter import Node

    from sandbox.source.edits import Text

_DECLARATIONS = ("function_declaration", "class_declaration")


def notices(found: Survey, statements: list[Node], functions: Mapping[bytes, Node], text: Text) -> list[Notice]:
    """A warning for each; the program's last statement is its value, and waited for."""
    last = next((each for each in reversed(statements) if each.type not in _DECLARATIONS), None)
    made: list[Notice] = []
    for statement in found.loose:
        message = _message(statement.named_children[0], functions, text)
        if message and (last is None or statement.id != last.id):
            made.append(Notice("missing_await", message, text.place(statement.start_byte)[0]))
    return made


def _message(call: Node, functions: Mapping[bytes, Node], text: Text) -> str:
    callee, given = call.child_by_field_name("function"), call.child_by_field_name("arguments")
    if callee is None:
        return ""
    callee = bare(callee)
    if callee.type in FUNCTIONS and _is_async(callee):
        return "nobody waits for this async function, and an error in it is lost: write `await (async ...)()`"
    spelled = text.data[callee.start_byte : callee.end_byte]
    if spelled in functions and _is_async(functions[spelled]):
        name = spelled.decode()
        return f"nobody waits for `{name}`, and an error in it is lost: write `await {name}(...)`"
    member = callee.child_by_field_name("property") if callee.type == "member_expression" else None
    if member is None or given is None or text.data[member.start_byte : member.end_byte] != b"forEach":
        return ""
    if any(each.type in FUNCTIONS and _is_async(each) for each in map(bare, given.named_children)):
        return (
            "forEach() does not wait for an async function: write `for (const ... of ...)`, or "
            "`await Promise.all(list.map(...))`"
        )
    return ""


def _is_async(function: Node) -> bool:
    return bool(function.children) and function.children[0].type == "async"
