"""What the model reads of a catalog: its tools by their names, their comments, and instructions, in half the room."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from bridge.declarations import declare, instructions, signature, signature_of
from bridge.dialect import Document
from bridge.tools import Catalog, Tool
from bridge.typescript import Names, Writer
from sandbox import Limits
from tests.bridge.schemas import TEXT, WHOLE, closed
from tests.bridge.servers import TOOLS
from tests.bridge.typescript import declared

# ---- tools ------------------------------------------------------------------------------------------------------


def test_tools_stand_in_order_under_the_names_that_the_realm_has() -> None:
    catalog = Catalog(
        [
            Tool(name="get-order", input_schema=closed("order_id", order_id=TEXT), output_schema=closed("id", id=TEXT)),
            Tool(name="track", server="my-carrier", input_schema=closed(code=TEXT), description="Where it is."),
            Tool(name="ping", input_schema=closed()),
            Tool(name="cancel", server="my-carrier", input_schema={}),
        ]
    )
    assert declare(catalog.entries) == (
        "declare const tools: {\n"
        "  get_order(args: { order_id: string }): Promise<{ id: string }>;\n"
        "  my_carrier: {\n"
        "    /** Where it is. */\n"
        "    track(args?: { code?: string }): Promise<unknown>;\n"
        "    cancel(value?: unknown): Promise<unknown>;\n"
        "  };\n"
        "  ping(): Promise<unknown>;\n"
        "};\n"
    )


def test_every_path_of_the_realm_is_declared_and_nothing_else() -> None:
    catalog = Catalog([*TOOLS, Tool(name="a.b"), Tool(name="then"), Tool(name="x", callers=frozenset({"direct"}))])
    names: list[tuple[str, ...]] = []
    space: tuple[str, ...] = ()
    for line in declare(catalog.entries, with_descriptions=False).splitlines():
        if match := re.fullmatch(r"  (\w+): \{", line):
            space = (match.group(1),)
        elif line == "  };":
            space = ()
        elif match := re.match(r"(  |    )(\w+)\((?:args|value|\))", line):
            names.append((*space, match.group(2)))
    assert names == [name.path for name in catalog.realm_names()]


def test_deferred_and_direct_tools_are_not_declared() -> None:
    text = declared(
        Tool(name="a", defer=True), Tool(name="b", callers=frozenset({"direct"})), Tool(name="c", input_schema=closed())
    )
    assert text == "declare const tools: {\n  c(): Promise<unknown>;\n};\n"


def test_an_empty_catalog_declares_no_tools() -> None:
    assert declared() == "declare const tools: {};\n"


def test_a_result_is_unwrapped_only_where_its_schema_says_so() -> None:
    schema = {**closed("result", result={"items": {"$ref": "#/$defs/n"}}), "$defs": {"n": WHOLE}}
    text = declared(
        Tool(name="a", input_schema=closed(), output_schema={**schema, "x-fastmcp-wrap-result": True}),
        Tool(name="b", input_schema=closed(), output_schema=schema),
    )
    assert text == ("declare const tools: {\n  a(): Promise<number[]>;\n  b(): Promise<{ result: number[] }>;\n};\n")


def test_comments_say_descriptions_ranges_and_defaults() -> None:
    inputs = closed(
        "q",
        q={"type": "string", "description": "What to\n  look for. "},
        limit={"type": "integer", "minimum": 1, "maximum": 100, "default": 10},
        min_={"type": "number", "minimum": 0.5},
        sort={"enum": ["asc", "desc"], "default": "asc", "description": "Order."},
    )
    outputs = closed(n={"type": "integer", "description": "How many.", "default": 0, "minimum": 0})
    tool = Tool(name="find", description="Finds.", input_schema=inputs, output_schema=outputs)
    assert declared(tool) == (
        "declare const tools: {\n"
        "  /** Finds. */\n"
        "  find(args: {\n"
        "    q: string; // What to look for.\n"
        "    limit?: number; // 1..100; default 10\n"
        "    min_?: number; // 0.5..\n"
        '    sort?: "asc" | "desc"; // Order.; default "asc"\n'
        "  }): Promise<{\n"
        "    n?: number; // How many.\n"
        "  }>;\n"
        "};\n"
    )
    assert declared(tool, with_descriptions=False) == (
        "declare const tools: {\n"
        '  find(args: { q: string; limit?: number; min_?: number; sort?: "asc" | "desc" }): Promise<{ n?: number }>;\n'
        "};\n"
    )


@pytest.mark.parametrize(
    ("description", "comment"),
    [
        ("Ends */ early /* here", "/** Ends *\\/ early /* here */"),
        ("Hidden\u200b \u202etext\U000e0041\x00\x1b[31m", "/** Hidden text[31m */"),
        ("One line.\u2028Two.\r\n\tThree.", "/** One line. Two. Three. */"),
        ("First paragraph.\n\nSecond paragraph.", "/** First paragraph. */"),
        ("A sentence. " * 40, f"/** {'A sentence. ' * 16}*/"),
        ("x" * 500, f"/** {'x' * 199}… */"),
    ],
)
def test_a_description_is_one_visible_line_that_ends_where_it_should(description: str, comment: str) -> None:
    text = declared(Tool(name="f", description=description, input_schema=closed()))
    assert text == f"declare const tools: {{\n  {comment}\n  f(): Promise<unknown>;\n}};\n"


def test_a_title_stands_in_for_a_description() -> None:
    assert "/** Find it */" in declared(Tool(name="f", title="Find it"))


# ---- size -------------------------------------------------------------------------------------------------------


def test_declarations_take_half_the_room_of_the_schemas_that_they_replace() -> None:
    entries = Catalog(TOOLS).entries
    schemas_ = [
        {
            "name": e.name,
            "description": e.tool.description,
            "inputSchema": e.tool.input_schema,
            "outputSchema": e.tool.output_schema,
        }
        for e in entries
    ]
    compact = [{key: value for key, value in one.items() if value is not None} for one in schemas_]
    replaced = json.dumps(compact, separators=(",", ":"))
    assert len(declared(*TOOLS)) < 0.55 * len(replaced)
    inputs_alone = json.dumps(
        [{k: v for k, v in one.items() if k != "outputSchema"} for one in compact], separators=(",", ":")
    )
    assert len(declared(*TOOLS)) < len(inputs_alone)  # with the results' types, still less than arguments alone were


# ---- one line ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        (closed("order_id", order_id={**TEXT, "description": "x", "format": "uuid"}), "f({ order_id: string })"),
        (closed(), "f()"),
        ({"type": "object"}, "f(Record<string, unknown>)"),
        ({}, "f(value: unknown)"),
        (TEXT, "f(value: string)"),
        ({"$ref": "#/$defs/a", "$defs": {"a": closed("n", n=WHOLE)}}, "f({ n: number })"),
        (closed(tree={"$ref": "#"}), "f(F)"),
    ],
)
def test_a_signature_is_one_line(schema: Any, text: str) -> None:
    assert signature_of("f", schema) == text


def test_the_signature_of_a_servers_tool_has_its_path() -> None:
    (entry,) = Catalog([Tool(name="get-order", server="my-shop", input_schema=closed(id=TEXT))]).entries
    assert signature(entry) == "my_shop.get_order({ id?: string })"


def test_a_writer_names_nothing_twice() -> None:
    document = Document(closed(a={"$ref": "#/properties/b"}, b=closed(c={"$ref": "#/properties/b"})))
    names, writer = Names(), Writer(document, "f")
    assert names.add_to(writer, writer.write(document.root)) == "{ a?: FPart; b?: FPart }"
    assert names.bodies == {"FPart": "{ c?: FPart }"}


# ---- instructions -----------------------------------------------------------------------------------------------


def test_instructions_say_how_to_write_a_program_and_end_with_the_declarations() -> None:
    catalog = Catalog(
        [Tool(name="get_order", input_schema=closed("order_id", order_id=TEXT)), Tool(name="later", defer=True)]
    )
    text, _, declarations = instructions(catalog, Limits(cpu_s=2.5)).partition("\n\n")
    assert declarations == (
        "```ts\ndeclare const tools: {\n  get_order(args: { order_id: string }): Promise<unknown>;\n};\n```\n"
    )
    assert text.splitlines()[-2:] == [
        "- Limits: 2.5 s of computing, 128 MiB, 1,000 calls, 64 KiB shown to you.",
        "- 1 more tool is not declared here.",
    ]
    for said in (
        "Write one JavaScript program.",
        "`await tools.name({ ... })`",
        "`Promise.all`",
        "Top-level `await` and `return` work.",
        "Return only what you need",
        "`text(value)`",
        "`code`, `message`, `tool`, `retryable`, `details`",
        "`inputs`",
        "no fetch, import, require, process, file system or eval",
    ):
        assert text.count(said) == 1
    assert len(text) < 1_400  # it is in every prompt


def test_instructions_are_the_same_bytes_for_the_same_catalog() -> None:
    assert instructions(Catalog(TOOLS)) == instructions(Catalog(list(TOOLS)))
