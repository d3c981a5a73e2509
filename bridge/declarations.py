"""What the model reads of a catalog: TypeScript declarations, and how to write a program.

The same catalog gives the same bytes (prompt caches). Descriptions are other people's words: they are cut, put on one
line, and kept from ending the comment that they stand in.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from bridge.dialect import Document, mapped
from bridge.names import identifier
from bridge.notation import first_sentence
from bridge.text import visible
from bridge.typescript import Names, Writer

if TYPE_CHECKING:
    from bridge.tools import Catalog, Entry, Tool
    from sandbox import Limits

DESCRIPTION_LENGTH: Final = 200  # characters of a tool's description
SIGNATURE_NODES: Final = 60  # types in a one-line signature: the rest is `unknown`

_HOW: Final = """\
Write one JavaScript program. It runs once, top to bottom, in a sandbox whose only way out is `tools`.
- Call tools as `await tools.name({ ... })`: one object argument, a promise as result. \
Run independent calls together with `Promise.all`.
- Top-level `await` and `return` work. Return only what you need: filter, join and sum in the program, not afterwards. \
The returned value is shown to you as JSON; `text(value)` shows more on the way, and so does `console.log`.
- A failed call rejects with a ToolError: `code`, `message`, `tool`, `retryable`, `details`. \
Catch it where the program can go on without the call; uncaught, it ends the program.
- `inputs` holds what the application passed in. `sleep(ms)` waits. Integers beyond 2^53 arrive as strings: \
pass them on as they are.
- There is no fetch, import, require, process, file system or eval. Standard JavaScript only; types are ignored."""


def declare(entries: Iterable[Entry], *, with_descriptions: bool = True) -> str:
    """TypeScript for what programs can call: named types first, then `declare const tools`.

    Left out are deferred tools and those that programs may not call. Without descriptions there are no comments at all.
    Order is the entries' own; servers stand where their first tool does.
    """
    names = Names()
    spaces: dict[tuple[str, ...], list[str]] = {}
    for entry in entries:
        if entry.tool.defer or "programmatic" not in entry.tool.callers:
            continue
        indent = "  " * len(entry.path)
        lines = spaces.setdefault(entry.path[:-1] or entry.path, [])
        if with_descriptions and (said := _comment(entry.tool)):
            lines.append(f"{indent}/** {said} */")
        lines.append(f"{indent}{entry.path[-1]}{_call(entry, names, indent, notes=with_descriptions)};")
    body: list[str] = []
    for path, lines in spaces.items():
        nested = lines[0].startswith("    ")
        body.extend([f"  {path[0]}: {{", *lines, "  };"] if nested else lines)
    types = [f"type {name} = {text};" for name, text in names.bodies.items()]
    if not body:
        return "declare const tools: {};\n"
    return "\n".join([*types, "declare const tools: {", *body, "};"]) + "\n"


def signature(entry: Entry) -> str:
    """A tool's call on one line, for error texts: `get_order({ order_id: string })`."""
    return signature_of(entry.expression, entry.tool.input_schema)


def signature_of(name: str, schema: Any) -> str:
    """The same for a schema by itself."""
    document = Document(schema)
    writer = Writer(document, identifier(name), notes=False, nodes=SIGNATURE_NODES)
    written = Names().add_to(writer, writer.write(schema))
    if document.takes_object():
        return f"{name}({'' if written == '{}' else ' '.join(written.split())})"
    return f"{name}(value: {' '.join(written.split())})"


def instructions(catalog: Catalog, limits: Limits | None = None) -> str:
    """What a model needs to write a program for this catalog: a short text, then the declarations.

    Args:
        catalog: Tools, in their order.
        limits: Named in the text where given.
    """
    programmatic = [entry for entry in catalog.entries if "programmatic" in entry.tool.callers]
    parts = [_HOW]
    if limits is not None:
        parts.append(
            f"- Limits: {limits.cpu_s:g} s of computing, {limits.memory_bytes >> 20} MiB, {limits.calls:,} calls, "
            f"{limits.output_bytes >> 10} KiB shown to you."
        )
    if later := sum(entry.tool.defer for entry in programmatic):
        parts.append(f"- {later} more {'tool is' if later == 1 else 'tools are'} not declared here.")
    return "\n".join(parts) + "\n\n```ts\n" + declare(programmatic) + "```\n"


def _call(entry: Entry, names: Names, indent: str, *, notes: bool) -> str:
    """`(args: A): Promise<R>` of one tool."""
    tool = entry.tool
    base = "_".join(entry.path)
    document = Document(tool.input_schema)
    writer = Writer(document, f"{base}_input", notes=notes)
    written = names.add_to(writer, writer.write(tool.input_schema, indent))
    if document.takes_object():
        optional = "" if document.shape()[1] else "?"
        argument = "" if written == "{}" else f"args{optional}: {written}"
    else:
        argument = f"value{'?' if written == 'unknown' else ''}: {written}"
    return f"({argument}): Promise<{_result(tool, base, names, indent, notes=notes)}>"


def _result(tool: Tool, base: str, names: Names, indent: str, *, notes: bool) -> str:
    schema = tool.output_schema
    if schema is None:
        return "unknown"
    document = Document(schema)
    writer = Writer(document, f"{base}_result", notes=notes, ranges=False)
    value: Any = mapped(document.root, "properties")["result"] if tool.wraps_result else schema
    return names.add_to(writer, writer.write(value, indent))


def _comment(tool: Tool) -> str:
    said = first_sentence(tool.description, DESCRIPTION_LENGTH) or visible(tool.title or "")
    return said.replace("*/", "*\\/")
