"""Takes the types out of TypeScript, in place: what is left stands where it stood.

Types become spaces. What emits code becomes JavaScript on the same lines: enums, namespaces, parameter properties.
Where spaces alone would change the meaning (a statement that loses its end, an arrow that loses its line) one character
of the blanked text does the work instead: a semicolon or a parenthesis.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final

from tree_sitter import Node, Tree

from sandbox.messages import Threw
from sandbox.source.edits import Edit, Text, terminators

_ERASED: Final = frozenset(
    ("type_alias_declaration", "interface_declaration", "ambient_declaration", "function_signature")
)
_ERASED_MEMBERS: Final = frozenset(("abstract_method_signature", "method_signature", "index_signature"))
_MODIFIERS: Final = frozenset(
    ("accessibility_modifier", "override_modifier", "readonly", "abstract", "declare", "?", "!")
)
_TYPES: Final = frozenset(
    (
        "type_annotation",
        "asserts_annotation",
        "type_predicate_annotation",
        "type_parameters",
        "type_arguments",
        "implements_clause",
    )
)
# Names that cannot be variables, so that an enum member of that name is reached through the enum only.
_RESERVED: Final = frozenset(
    (
        "await break case catch class const continue debugger default delete do else enum eval export extends false "
        "finally for function if implements import in instanceof interface let new null package private protected "
        "public return static super switch this throw true try typeof var void while with yield arguments undefined"
    ).split()
)
_IDENTIFIER: Final = re.compile(r"[A-Za-z_$][\w$]*")
# `f<number>(x)` is also JavaScript, two comparisons: but these names are types, and reading one would only throw.
_ONLY_A_TYPE: Final = re.compile(
    rb"[\w$]\s*<\s*(?:string|number|boolean|any|unknown|never|void|object|Record\s*<|Array\s*<|Promise\s*<)[^;(){}=]{0,200}>\s*\("
)
_BOUND: Final = re.compile(
    rb"\b(?:const|let|var|function|class)\s+(?:string|number|boolean|any|unknown|never|object)\b"
)

_Handler = Callable[["_Stripper", Node, "Node | None"], "list[Node] | None"]


class Unsupported(Exception):
    """TypeScript that cannot be turned into JavaScript here; carries what the model is told."""

    def __init__(self, threw: Threw) -> None:
        super().__init__(threw.message)
        self.threw = threw


def hidden(data: bytes) -> bool:
    """Whether text that parses as JavaScript must be TypeScript, because as JavaScript it could only fail."""
    return b"<" in data and _ONLY_A_TYPE.search(data) is not None and _BOUND.search(data) is None


def strip(tree: Tree, text: Text) -> list[Edit]:
    """The edits that make JavaScript of a clean TypeScript tree; empty if there is nothing to take out.

    Raises:
        Unsupported: A form that has no JavaScript on the same lines.
    """
    return list(_Stripper(text).run(tree.root_node))


class _Stripper:
    def __init__(self, text: Text) -> None:
        self.text = text
        self.data = text.data
        self.edits: list[Edit] = []

    def run(self, root: Node) -> Iterator[Edit]:
        stack: list[tuple[Node, Node | None]] = [(root, None)]
        while stack:
            node, parent = stack.pop()
            handler = _HANDLERS.get(node.type)
            below = handler(self, node, parent) if handler is not None else None
            stack.extend((child, node) for child in (node.children if below is None else below))
        # An erased range swallows whatever was decided inside it; an insertion stands before what it touches.
        self.edits.sort(key=lambda each: (each.start, each.end > each.start, -each.end))
        end = 0
        for edit in self.edits:
            if edit.start >= end:
                yield edit
                end = edit.end

    def blank(self, node: Node, *, first: bytes = b"", last: bytes = b"") -> None:
        self.edits.append(self.text.blank(node.start_byte, node.end_byte, first, last))

    def replace(self, node: Node, new: str) -> None:
        self.edits.append(Edit(node.start_byte, node.end_byte, new.encode()))

    def insert(self, at: int, new: str) -> None:
        self.edits.append(Edit(at, at, new.encode()))

    def name(self, node: Node | None) -> str:
        return "" if node is None else self.data[node.start_byte : node.end_byte].decode()

    # ---- types -------------------------------------------------------------------------------------------------

    def erased(self, node: Node, _parent: Node | None) -> list[Node]:
        self.blank(node, first=b";")  # what came before must still end here
        return []

    def member(self, node: Node, parent: Node | None) -> list[Node] | None:
        return self.erased(node, parent) if parent is not None and parent.type == "class_body" else None

    def type(self, node: Node, parent: Node | None) -> list[Node]:
        if parent is not None and parent.type == "arrow_function" and self._moved(node, parent):
            return []
        self.blank(node)
        return []

    def _moved(self, node: Node, arrow: Node) -> bool:
        """Keep an arrow on the line of its `)`, or the word before its `(` on that line, by moving the bracket."""
        parameters = arrow.child_by_field_name("parameters")
        if parameters is None:
            return False
        before = node.start_byte < parameters.start_byte
        gap = (
            self.data[node.start_byte : parameters.start_byte]
            if before
            else self.data[parameters.end_byte : node.end_byte]
        )
        if not terminators(gap):
            return False
        if before:
            self.blank(node, first=b"(")
            self.edits.append(Edit(parameters.start_byte, parameters.start_byte + 1, b" "))
        else:
            self.edits.append(Edit(parameters.end_byte - 1, parameters.end_byte, b" "))
            self.blank(node, last=b")")
        return True

    def cast(self, node: Node, parent: Node | None) -> list[Node]:
        inner = node.children[0]
        # `x as T` and a bracket on the next line: the grammar sees a call, TypeScript the end of a statement.
        ends = (
            parent is not None
            and parent.type in ("call_expression", "subscript_expression")
            and parent.children[0].id == node.id
        )
        self.edits.append(self.text.blank(inner.end_byte, node.end_byte, last=b";" if ends else b""))
        return [inner]

    def assertion(self, node: Node, _parent: Node | None) -> list[Node]:
        self.blank(
            node.children[0], first=b"("
        )  # an object after `=>` or a line break after `return` must stay harmless
        self.insert(node.end_byte, ")")
        return node.children[1:]

    def non_null(self, node: Node, _parent: Node | None) -> list[Node]:
        self.blank(node.children[-1])
        return node.children[:-1]

    def declarator(self, node: Node, _parent: Node | None) -> None:
        for child in node.children:
            if child.type == "!":
                self.blank(child)

    def parameter(self, node: Node, parent: Node | None) -> list[Node] | None:
        pattern = node.child_by_field_name("pattern")
        if pattern is not None and pattern.type == "this" and parent is not None:
            self.listed(node)
            return []
        self._modifiers(node)
        return None

    def _modifiers(self, node: Node, *, start: bool = False) -> None:
        for child in node.children:
            if child.type in _MODIFIERS:
                self.blank(child, first=b";" if start and child.start_byte == node.start_byte else b"")

    # ---- classes -----------------------------------------------------------------------------------------------

    def abstract_class(self, node: Node, _parent: Node | None) -> None:
        for child in node.children:
            if child.type == "abstract":
                self.blank(child)

    def field(self, node: Node, parent: Node | None) -> list[Node] | None:
        if any(child.type in ("declare", "abstract") for child in node.children):
            return self.erased(node, parent)
        self._modifiers(node, start=True)
        kind = node.child_by_field_name("type")
        if kind is not None and node.child_by_field_name("value") is None:
            self.blank(kind, last=b";")  # or a field called `get` takes the next member for its body
        return None

    def method(self, node: Node, _parent: Node | None) -> None:
        self._modifiers(node, start=True)
        parameters, body = node.child_by_field_name("parameters"), node.child_by_field_name("body")
        if self.name(node.child_by_field_name("name")) != "constructor" or parameters is None or body is None:
            return
        kept: list[str] = []
        for each in parameters.named_children:
            pattern = each.child_by_field_name("pattern")
            if pattern is not None and any(c.type in _MODIFIERS and c.type != "?" for c in each.children):
                kept.append(self.name(pattern))
        if not kept:
            return
        at = body.start_byte + 1
        for statement in body.named_children:
            called = statement.named_children[0] if statement.type == "expression_statement" else None
            if called is not None and called.type == "call_expression" and called.children[0].type == "super":
                at = statement.end_byte
                break
        self.insert(at, "".join(f";this.{name}={name}" for name in kept) + ";")

    # ---- modules -----------------------------------------------------------------------------------------------

    def import_(self, node: Node, parent: Node | None) -> list[Node] | None:
        specifiers = [
            each for clause in node.named_children for group in clause.named_children for each in group.named_children
        ]
        typed = [each for each in specifiers if each.type == "import_specifier" and each.children[0].type == "type"]
        whole = bool(typed) and len(typed) == len(specifiers)
        if whole or any(child.type == "type" for child in node.children):
            return self.erased(node, parent)
        for each in typed:
            self.listed(each)
        if any(child.type == "import_require_clause" for child in node.named_children):
            self.replace(node.children[0], "const ")
        return []

    def listed(self, node: Node) -> None:
        """Blank one element of a list with the comma after it."""
        after = node.next_sibling
        end = after.end_byte if after is not None and after.type == "," else node.end_byte
        self.edits.append(self.text.blank(node.start_byte, end))

    def exported(self, node: Node, _parent: Node | None) -> list[Node]:
        if node.children[0].type == "type":
            self.listed(node)
        return []

    def tag(self, node: Node, _parent: Node | None) -> list[Node] | None:
        """A tagged template with type arguments, in which the grammar sees two comparisons."""
        left, operator, right = node.children[0], node.children[1], node.children[-1]
        if operator.type != ">" or right.type != "template_string" or left.type != "binary_expression":
            return None
        tag, opening = left.children[0], left.children[1]
        if opening.type != "<" or terminators(self.data[operator.end_byte : right.start_byte]):
            return None
        self.edits.append(self.text.blank(opening.start_byte, operator.end_byte))
        return [tag, right]

    def alias(self, node: Node, _parent: Node | None) -> list[Node]:
        self.replace(node.children[0], "const ")  # import Y = N.a
        return []

    def export(self, node: Node, parent: Node | None) -> list[Node] | None:
        declared = node.child_by_field_name("declaration")
        if (declared is not None and declared.type in _ERASED) or any(child.type == "type" for child in node.children):
            return self.erased(node, parent)
        if parent is not None and parent.type == "statement_block":  # in a namespace
            self.blank(node.children[0])
        return None

    # ---- what emits code ---------------------------------------------------------------------------------------

    def enum(self, node: Node, _parent: Node | None) -> list[Node]:
        name, body = node.child_by_field_name("name"), node.child_by_field_name("body")
        if name is None or body is None:
            return []
        own = self.name(name)
        for child in node.children:
            if child.type in ("const", "enum"):
                self.edits.append(
                    Edit(child.start_byte, child.end_byte, b"     " if child.type == "const" else b"var ")
                )
        member = f'const $member=(k,v)=>(typeof v==="number"?{own}[v]=k:0,{own}[k]=v);'
        self.insert(name.end_byte, f"=({own}=>")
        self.insert(body.start_byte + 1, member)
        previous = ""
        values: list[Node] = []
        for each in body.named_children:
            if each.type == "comment":
                continue
            label = each.child_by_field_name("name") if each.type == "enum_assignment" else each
            value = each.child_by_field_name("value")
            if label is None:
                continue
            key = self.name(label)
            plain = label.type == "property_identifier" and key not in _RESERVED and key != own
            quoted = f'"{key}"' if label.type == "property_identifier" else key
            if plain:
                self.insert(each.start_byte, "const ")
            if value is None:
                given = f"{own}[{previous}]+1" if previous else "0"
                if plain:
                    self.insert(each.end_byte, f"=$member({quoted},{given})")
                else:
                    self.replace(label, f"$member({quoted},{given})")
            else:
                values.append(value)
                equals = next(child for child in each.children if child.type == "=")
                if plain:
                    self.insert(equals.end_byte, f"$member({quoted},")
                else:
                    self.replace(label, f"$member({quoted}")
                    self.replace(equals, ",")
                self.insert(value.end_byte, ")")
            self.insert(each.end_byte, ";")
            previous = quoted
        for child in body.children:
            if child.type == ",":
                self.replace(child, " ")
        self.insert(body.end_byte - 1, f"return {own}")
        self.insert(body.end_byte, f")({own}||{{}});")
        return values

    def namespace(self, node: Node, _parent: Node | None) -> list[Node]:
        name, body = node.child_by_field_name("name"), node.child_by_field_name("body")
        if name is None or body is None or name.type != "identifier":
            line, column = self.text.place(node.start_byte)
            raise Unsupported(
                Threw(
                    code="syntax_error",
                    name="SyntaxError",
                    message=f"a TypeScript namespace with the name `{self.name(name)}` cannot run here",
                    line=line,
                    column=column,
                    hint="write a plain object or plain functions instead of the namespace",
                )
            )
        own = self.name(name)
        exported: list[str] = []
        for statement in body.named_children:
            declared = statement.child_by_field_name("declaration") if statement.type == "export_statement" else None
            if declared is None or declared.type in _ERASED:
                continue
            label = declared.child_by_field_name("name")
            found = (
                [label] if label is not None else [each.child_by_field_name("name") for each in declared.named_children]
            )
            exported += [
                self.name(each) for each in found if each is not None and _IDENTIFIER.fullmatch(self.name(each))
            ]
        self.edits.append(self.text.blank(node.start_byte, node.children[0].end_byte))
        self.edits[-1] = self.edits[-1]._replace(new=b"var" + self.edits[-1].new[3:])
        self.insert(name.end_byte, f"=({own}=>")
        self.insert(body.end_byte - 1, f";return Object.assign({own},{{{','.join(exported)}}})")
        self.insert(body.end_byte, f")({own}||{{}});")
        return [body]


_HANDLERS: Final[dict[str, _Handler]] = {
    **dict.fromkeys(_ERASED, _Stripper.erased),
    **dict.fromkeys(_ERASED_MEMBERS, _Stripper.member),
    **dict.fromkeys(_TYPES, _Stripper.type),
    "as_expression": _Stripper.cast,
    "satisfies_expression": _Stripper.cast,
    "type_assertion": _Stripper.assertion,
    "non_null_expression": _Stripper.non_null,
    "variable_declarator": _Stripper.declarator,
    "required_parameter": _Stripper.parameter,
    "optional_parameter": _Stripper.parameter,
    "abstract_class_declaration": _Stripper.abstract_class,
    "public_field_definition": _Stripper.field,
    "method_definition": _Stripper.method,
    "import_statement": _Stripper.import_,
    "import_alias": _Stripper.alias,
    "export_statement": _Stripper.export,
    "export_specifier": _Stripper.exported,
    "binary_expression": _Stripper.tag,
    "enum_declaration": _Stripper.enum,
    "internal_module": _Stripper.namespace,
    "module": _Stripper.namespace,
}
