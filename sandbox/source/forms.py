"""The forms in which models write programs, and the value that each means.

`return` wins. Otherwise: what is exported, a function that is there to be called, the trailing expression, an
undeclared `result`, the last binding. Only the text that the rule needs is touched, and nothing moves to another line.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from tree_sitter import Node

from sandbox.messages import Notice
from sandbox.source import loose, modules, names, syntax
from sandbox.source.edits import Edit, Text
from sandbox.source.syntax import BLANKS, FUNCTIONS, Survey, bare

_RESULTS: Final = (b"result", b"output", b"answer")
_WANTED: Final = frozenset((b"tools", b"require", b"module", b"exports", *_RESULTS))
_DECLARATIONS: Final = frozenset(("lexical_declaration", "variable_declaration", "using_declaration"))
_QUIET: Final = re.compile(rb"(?:console\.\w+|text|print|output|image)\s*\(")
_EXPORTS: Final = re.compile(rb"(?:module\s*\.\s*exports|exports\s*\.)")
_EXPORTED: Final = (
    "(e=>{{const f=typeof e==='function'?e:[e?.default,e?.main,e?.run,e?.execute,e?.handler]"
    ".find(f=>typeof f==='function');return f?f({}):e}})(module.exports)"
)


@dataclass
class Plan:
    """How a program becomes the body of a function: edits in place, declarations before it, a statement after it."""

    edits: list[Edit] = field(default_factory=list[Edit])
    notices: list[Notice] = field(default_factory=list[Notice])
    before: str = ""
    after: str = ""
    awaits: list[int] = field(default_factory=list[int])


def plan(root: Node, text: Text, catalog: names.Names) -> Plan:
    """Decide what a clean JavaScript tree means.

    Raises:
        modules.NoModule, names.Unknown: The program cannot run, and why.
    """
    statements = [each for each in root.children if each.type not in BLANKS]
    made = Plan()
    if root.children and root.children[0].type == "hash_bang_line":
        start = root.children[0].start_byte
        made.edits.append(Edit(start, start + 2, b"//"))
    functions = dict(_functions(statements, text))
    found = syntax.survey(root, text.data, _WANTED | functions.keys() | names.given(text.data))
    modular = modules.rewrite(statements, text, catalog)
    made.edits += modular.edits
    made.notices += modular.notices
    statements = [each for each in statements if each.id not in modular.gone]
    entry = _entry(modular, statements, functions, found, text)
    if entry is not None:
        made.after, made.before = entry.expression, entry.before
    _results(made, statements, found, text)
    if not made.after:
        _value(made, statements, found, text)
    for call, source in _tools_modules(found, text, catalog):
        made.edits.append(Edit(call.start_byte, call.end_byte, source.encode()))
        made.notices.append(
            Notice("import_rewritten", "`tools` is a global: it needs no require", text.place(call.start_byte)[0])
        )
    edits, notices = names.check(catalog, found, text, entry.parameters if entry is not None else (0, 0))
    made.edits += edits
    made.notices += [*notices, *names.unawaited(found, text), *loose.notices(found, statements, functions, text)]
    made.awaits = sorted({text.place(each.start_byte)[0] for each in found.awaits if not _direct(each, text, catalog)})
    return made


# ---- functions that are there to be called --------------------------------------------------------------------------


@dataclass(frozen=True)
class _Entry:
    expression: str
    parameters: tuple[int, int] = (0, 0)
    before: str = ""


def _functions(statements: list[Node], text: Text) -> list[tuple[bytes, Node]]:
    """The named functions among top-level statements."""
    found: list[tuple[bytes, Node]] = []
    for each in statements:
        declared = each.child_by_field_name("declaration") if each.type == "export_statement" else each
        if declared is None:
            continue
        if declared.type == "function_declaration":
            name = declared.child_by_field_name("name")
            if name is not None:
                found.append((_of(name, text), declared))
        elif declared.type in _DECLARATIONS and declared.named_child_count == 1:
            one = declared.named_children[0]
            name, value = one.child_by_field_name("name"), one.child_by_field_name("value")
            if name is not None and name.type == "identifier" and value is not None and bare(value).type in FUNCTIONS:
                found.append((_of(name, text), bare(value)))
    return found


def _entry(
    modular: modules.Modules, statements: list[Node], functions: dict[bytes, Node], found: Survey, text: Text
) -> _Entry | None:
    """What must be called or returned because the program offers it and does not do so itself."""
    if modular.function is not None:
        return _calling(modular.entry, modular.function, text)
    if modular.entry:
        return _Entry(modular.entry)
    exported = [] if found.has(b"module", "bind") or found.has(b"exports", "bind") else _exported(statements, text)
    if exported:
        functions_in = [each for each in exported if each.type in FUNCTIONS]
        given = modules.arguments(functions_in[0], text) if functions_in else "tools,inputs"
        return _Entry(_EXPORTED.format(given), before="const module={exports:{}},exports=module.exports;")
    if found.returns:
        return None
    idle = {name: node for name, node in functions.items() if len(found.uses.get(name, ())) == 1}
    mains = {name: node for name, node in idle.items() if name.decode() in modules.MAINS}
    body = [each for each in statements if each.type != "empty_statement" and not _directive(each, text)]
    if len(mains) != 1 and len(functions) == len(body):  # functions only: one of them is the program
        simple = {name: node for name, node in idle.items() if not modules.parameters(node)}
        mains = idle if len(idle) == 1 else simple
    if len(mains) != 1:
        return None
    name, node = next(iter(mains.items()))
    return _calling(name.decode(), node, text)


def _exported(statements: list[Node], text: Text) -> list[Node]:
    """What is assigned to `module.exports` or to a member of `exports` at top level; the members of an object each."""
    found: list[Node] = []
    for each in statements:
        inner = each.named_children[0] if each.type == "expression_statement" and each.named_child_count else None
        left = (
            inner.child_by_field_name("left") if inner is not None and inner.type == "assignment_expression" else None
        )
        right = inner.child_by_field_name("right") if inner is not None else None
        if left is None or right is None or not _EXPORTS.match(_of(left, text)):
            continue
        found.append(bare(right))
        found += [
            bare(value) for one in found[-1].named_children if (value := one.child_by_field_name("value")) is not None
        ]
    return found


def _calling(name: str, function: Node, text: Text) -> _Entry:
    parameters = function.child_by_field_name("parameters") or function.child_by_field_name("parameter")
    span = (parameters.start_byte, parameters.end_byte) if parameters is not None else (0, 0)
    return _Entry(f"{name}({modules.arguments(function, text)})", span)


# ---- values ---------------------------------------------------------------------------------------------------------


def _results(made: Plan, statements: list[Node], found: Survey, text: Text) -> None:
    """Declare `result` and the like where they are only assigned; make one the value where nothing else is."""
    assigned = [name for name in _RESULTS if found.has(name, "write") and not found.has(name, "bind")]
    if assigned:
        made.before += f"let {','.join(name.decode() for name in assigned)};"
    if not assigned or made.after or not statements:
        return
    last = _last(statements)
    if last is None or last.type != "expression_statement" or _QUIET.match(_of(last, text)):
        made.after = assigned[-1].decode()


def _last(statements: list[Node]) -> Node | None:
    """The last statement that does something where it stands: functions are hoisted, wherever they are."""
    for each in reversed(statements):
        if each.type not in ("function_declaration", "generator_function_declaration", "empty_statement"):
            return each
    return None


def _directive(statement: Node, text: Text) -> bool:
    return _of(statement, text).rstrip(b"; ") in (b'"use strict"', b"'use strict'")


def _value(made: Plan, statements: list[Node], found: Survey, text: Text) -> None:
    last = _last(statements)
    if last is None or _directive(last, text):
        return
    if last.type == "expression_statement" and last.named_child_count:
        _returned(made, last.named_children[0], text)
    elif last.type == "statement_block":
        if _shorthand(last, text):  # `{ total, count }`: meant as an object, read as a block
            made.edits.append(Edit(last.start_byte, last.start_byte, b"return "))
    elif last.type in _DECLARATIONS and not found.returns:
        bound = _bound(last, text)
        if bound:
            made.after = bound
            shown = bound.strip("()")
            made.notices.append(
                Notice(
                    "value_from_last_binding",
                    f"the program returns nothing, so its value is that of the last binding: write `return {shown};`",
                    text.place(last.start_byte)[0],
                )
            )


def _returned(made: Plan, expression: Node, text: Text) -> None:
    inner = bare(expression)
    if inner.type not in FUNCTIONS:
        made.edits.append(Edit(expression.start_byte, expression.start_byte, b"return "))
        return
    made.edits.append(Edit(expression.start_byte, expression.start_byte, b"return ("))
    made.edits.append(Edit(expression.end_byte, expression.end_byte, f")({modules.arguments(inner, text)})".encode()))


def _shorthand(block: Node, text: Text) -> bool:
    if block.named_child_count != 1:
        return False
    only = block.named_children[0]
    if only.type == "labeled_statement":
        only = only.named_children[-1]
        return only.type == "expression_statement" and not _of(only, text).endswith(b";")
    if only.type != "expression_statement" or _of(only, text).endswith(b";"):
        return False
    inner = only.named_children[0]
    return inner.type == "identifier" or (
        inner.type == "sequence_expression" and all(each.type == "identifier" for each in inner.named_children)
    )


def _bound(declaration: Node, text: Text) -> str:
    """An expression for what the last declarator binds."""
    declarators = [each for each in declaration.named_children if each.type == "variable_declarator"]
    target = declarators[-1].child_by_field_name("name") if declarators else None
    if target is None:
        return ""
    if target.type == "identifier":
        return _of(target, text).decode()
    bound = [
        _of(node, text).decode()
        for node, ancestors in syntax.walk(target)
        if node.type == "shorthand_property_identifier_pattern"
        or (node.type == "identifier" and not _computes(node, ancestors))
    ]
    return bound[0] if len(bound) == 1 else f"({{{','.join(bound)}}})"


def _computes(node: Node, ancestors: list[Node]) -> bool:
    """Whether an identifier in a pattern is part of a default value or a computed key."""
    child = node
    for parent in reversed(ancestors):
        if parent.type in ("assignment_pattern", "object_assignment_pattern"):
            right = parent.child_by_field_name("right")
            if right is not None and right.id == child.id:
                return True
        if parent.type == "computed_property_name":
            return True
        child = parent
    return False


# ---- small things ---------------------------------------------------------------------------------------------------


def _tools_modules(found: Survey, text: Text, catalog: names.Names) -> list[tuple[Node, str]]:
    """Calls of `require` that mean the tools."""
    if found.has(b"require", "bind"):
        return []
    hits: list[tuple[Node, str]] = []
    for use in found.uses.get(b"require", ()):
        given = use.call.child_by_field_name("arguments") if use.call is not None and not use.chain else None
        if (
            use.call is None
            or given is None
            or given.named_child_count != 1
            or given.named_children[0].type != "string"
        ):
            continue
        source = modules.tools_expression(modules.specifier(given.named_children[0], text), catalog)
        if source:
            # `const { tools } = require("tools")` wants what has a member `tools`; the plain name is not usable yet.
            made = use.outer if use.outer is not None and use.outer.type == "variable_declarator" else None
            target = made.child_by_field_name("name") if made is not None else None
            whole = target is not None and re.search(rb"[{,]\s*tools\s*[,:}]", _of(target, text)) is not None
            hits.append((use.call, "globalThis" if whole else f"globalThis.{source}"))
    return hits


_TOOL_CALL: Final = re.compile(rb"(?:tools\s*\??\s*[.\[]|sleep\s*\()")
_BARE_CALL: Final = re.compile(rb"([A-Za-z_$][\w$]*)\s*\(")


def _direct(node: Node, text: Text, catalog: names.Names) -> bool:
    """Whether an `await` waits for a tool or a timer directly: then it cannot be what stands still."""
    if node.type != "await_expression" or not node.named_child_count:
        return False
    call = bare(node.named_children[0])
    if call.type != "call_expression":
        return False
    callee = call.child_by_field_name("function")
    if callee is None or callee.type not in ("identifier", "member_expression", "subscript_expression"):
        return False
    if any(each.type == "call_expression" for each in callee.children):
        return False
    spelled = text.data[call.start_byte : call.end_byte]
    if _TOOL_CALL.match(spelled):
        return True
    bare_call = _BARE_CALL.match(spelled)
    return bare_call is not None and bare_call[1].decode() in catalog.exact


def _of(node: Node, text: Text) -> bytes:
    return text.data[node.start_byte : node.end_byte]
