"""Declarations that a parser of TypeScript has read without an error."""

from __future__ import annotations

from typing import Any

import tree_sitter
import tree_sitter_typescript

from bridge.declarations import declare
from bridge.tools import Catalog, Tool

PARSER = tree_sitter.Parser(tree_sitter.Language(tree_sitter_typescript.language_typescript()))


def declared(*tools: Tool, **options: Any) -> str:
    text = declare(Catalog(tools).entries, **options)
    assert not PARSER.parse(text.encode()).root_node.has_error, text
    return text
