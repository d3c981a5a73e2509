"""Syntax trees of program text: the grammars, a parse that is bounded, and one survey of what a program names.

Everything is made at import, in the zygote: a worker has no files to load it from. Nothing recurses on nesting.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from typing import Final, Literal

from tree_sitter import Language, Node, Parser, Tree


def _parser(package: str, language: str) -> Parser:
    """The parser of a grammar, from its compiled half alone.

    The other half reads query files: what it imports costs every start 5 ms, and seeds a generator in every fork.
    """
    home = find_spec(package)
    spec = PathFinder.find_spec(f"{package}._binding", home and home.submodule_search_locations)
    if spec is None or spec.loader is None:
        grammar = importlib.import_module(package)  # another layout, or an error that says what is missing
    else:
        grammar = module_from_spec(spec)
        spec.loader.exec_module(grammar)
    made: object = getattr(grammar, language)()
    return Parser(Language(made))


_JAVASCRIPT: Final = _parser("tree_sitter_javascript", "language")
_TYPESCRIPT: Final = _parser("tree_sitter_typescript", "language_typescript")

FUNCTIONS: Final = frozenset(("function_expression", "arrow_function"))
SCOPES: Final = FUNCTIONS | {
    "function_declaration",
    "generator_function_declaration",
    "generator_function",
    "method_definition",
}
BLANKS: Final = frozenset(("comment", "html_comment", "hash_bang_line", "empty_statement"))
_PATTERNS: Final = frozenset(
    (
        "object_pattern",
        "array_pattern",
        "rest_pattern",
        "assignment_pattern",
        "object_assignment_pattern",
        "pair_pattern",
    )
)
_NAMES: Final = frozenset(("identifier", "shorthand_property_identifier", "shorthand_property_identifier_pattern"))
_IMPORTS: Final = frozenset(("import_clause", "import_specifier", "namespace_import"))

Role = Literal["bind", "write", "read"]


def javascript(data: bytes) -> Tree | None:
    """The tree if the text is JavaScript without an error as far as the grammar knows, or None."""
    return _clean(_JAVASCRIPT, data)


def typescript(data: bytes) -> Tree | None:
    """The same for TypeScript."""
    return _clean(_TYPESCRIPT, data)


class Reader:
    """Hands text to a parser in small pieces, and no more of it than a parse can need.

    A token that is given up far behind its beginning is read again from there: of `/[/[/[...` each slash reads the rest
    of the line. So what is handed out is counted, and when it is too much the text ends, which no grammar takes.

    Attributes:
        given: Bytes handed out so far.
        allowed: How many there may be.
    """

    def __init__(self, data: bytes) -> None:
        self.given = 0
        self.allowed = 65_536 + 16 * len(data)  # the worst of what has a tree reads its text three times
        self._data = data

    def __call__(self, offset: int, _point: object) -> bytes:
        """The piece at an offset; nothing at the end."""
        if self.given > self.allowed:
            return b""
        piece = self._data[offset : offset + 512]
        self.given += len(piece)
        return piece


def _clean(parser: Parser, data: bytes) -> Tree | None:
    data = data.replace(b"\0", b" ")  # legal inside a string, and the grammars stop at it
    reader = Reader(data)
    # Recovering from errors and ambiguous text can cost seconds: the first error ends it, and so do too many steps.
    # Steps are counted, not time: the answer must not depend on the machine.
    steps, allowed = 0, 1_000 + len(data) // 10  # ordinary text takes one step for 50 bytes

    def enough(_offset: int, failed: bool) -> bool:
        nonlocal steps
        steps += 1
        return failed or steps > allowed

    try:
        tree = parser.parse(reader, encoding="utf8", progress_callback=enough)
    except ValueError:
        parser.reset()
        return None
    return None if tree.root_node.has_error or reader.given > reader.allowed else tree


def walk(root: Node) -> Iterator[tuple[Node, list[Node]]]:
    """Every node in order of the text, with its ancestors (one list, that changes as the walk goes on)."""
    cursor = root.walk()
    ancestors: list[Node] = []
    while True:
        node = cursor.node
        if node is None:
            return
        yield node, ancestors
        if cursor.goto_first_child():
            ancestors.append(node)
            continue
        while not cursor.goto_next_sibling():
            if not cursor.goto_parent():
                return
            ancestors.pop()


@dataclass(frozen=True)
class Use:
    """One place of a name. `chain` is the member accesses on it, outermost last; `call` is what calls that.

    `outer` is the node around the call, or around the name where there is no call.
    """

    node: Node
    role: Role
    chain: tuple[tuple[str, Node], ...] = ()
    call: Node | None = None
    outer: Node | None = None


@dataclass
class Survey:
    """What one walk learns: a top-level `return`, `await`s, statements that are calls, and where wanted names stand."""

    returns: bool = False
    awaits: list[Node] = field(default_factory=list[Node])
    loose: list[Node] = field(default_factory=list[Node])
    uses: dict[bytes, list[Use]] = field(default_factory=dict[bytes, list[Use]])

    def has(self, name: bytes, role: Role) -> bool:
        """Whether the name stands anywhere in that role."""
        return any(use.role == role for use in self.uses.get(name, ()))


def survey(root: Node, data: bytes, wanted: frozenset[bytes]) -> Survey:
    """Walk a clean JavaScript tree once."""
    found = Survey()
    for node, ancestors in walk(root):
        kind = node.type
        if kind in _NAMES:
            name = data[node.start_byte : node.end_byte]
            if name in wanted:
                found.uses.setdefault(name, []).append(_use(node, ancestors, data))
        elif kind == "await_expression" or (
            kind == "for_in_statement" and any(c.type == "await" for c in node.children)
        ):
            found.awaits.append(node)
        elif kind == "expression_statement" and node.children[0].type == "call_expression":
            found.loose.append(node)
        elif kind == "return_statement" and not found.returns:
            found.returns = not any(each.type in SCOPES for each in ancestors)
    return found


def _use(node: Node, ancestors: list[Node], data: bytes) -> Use:
    role = _role(node, ancestors)
    if role != "read" or node.type != "identifier":
        return Use(node, role, outer=ancestors[-1])
    chain: list[tuple[str, Node]] = []
    child = node
    for depth, parent in zip(range(len(ancestors) - 1, -1, -1), reversed(ancestors), strict=True):
        if parent.type == "member_expression" and _is(parent, "object", child):
            key = parent.child_by_field_name("property")
        elif parent.type == "subscript_expression" and _is(parent, "object", child):
            key = parent.child_by_field_name("index")
            if key is None or key.type != "string" or key.named_child_count != 1:
                return Use(node, role, (*chain, ("", child)))
        else:
            optional = parent.type == "call_expression" and parent.child_by_field_name("optional_chain") is not None
            called = parent.type == "call_expression" and not optional and _is(parent, "function", child)
            if called:
                return Use(node, role, tuple(chain), parent, ancestors[depth - 1] if depth else None)
            return Use(node, role, tuple(chain))
        if key is not None:
            spelled = key.named_children[0] if key.type == "string" else key
            chain.append((data[spelled.start_byte : spelled.end_byte].decode(), spelled))
        child = parent
    return Use(node, role, tuple(chain))


def _is(parent: Node, name: str, child: Node) -> bool:
    found = parent.child_by_field_name(name)
    return found is not None and found.id == child.id


def _role(node: Node, ancestors: list[Node]) -> Role:
    child = node
    for parent in reversed(ancestors):
        kind = parent.type
        if kind in _PATTERNS:
            if _is(parent, "right", child) or _is(parent, "key", child):
                return "read"
            child = parent
            continue
        if kind == "variable_declarator" or kind in SCOPES or kind in ("class_declaration", "class"):
            bound = _is(parent, "name", child) or _is(parent, "parameter", child)
            return "bind" if bound else "read"
        if kind == "formal_parameters" or kind in _IMPORTS:
            return "bind"
        if kind == "catch_clause":
            return "bind" if _is(parent, "parameter", child) else "read"
        if kind == "for_in_statement" and _is(parent, "left", child):
            return "bind" if parent.child_by_field_name("kind") is not None else "write"
        if kind in ("assignment_expression", "augmented_assignment_expression"):
            return "write" if _is(parent, "left", child) else "read"
        return "write" if kind == "update_expression" else "read"
    return "read"


def bare(node: Node) -> Node:
    """The expression inside parentheses."""
    while node.type == "parenthesized_expression" and node.named_child_count == 1:
        node = node.named_children[0]
    return node
