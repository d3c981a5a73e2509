"""What the model reads of a catalog: TypeScript declarations, and how to write a program.

The same catalog gives the same bytes (prompt caches). Descriptions are other people's words: they are cut, put on one
line, and kept from ending the comment that they stand in.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from bridge.dialect import Document, mapped
from bridge.names import identifier
from bridge.notation import first_sentence
from bridge.text import cut, visible
from bridge.typescript import Names, Writer

if TYPE_CHECKING:
    from bridge.tools import Catalog, Entry, Tool
    from sandbox import Limits

BUDGET: Final = 2_000  # tokens of declarations that a model is given at once; the rest it searches for
TOKEN_BYTES: Final = 4  # bytes of a token, as an estimate that needs no tokenizer
LEAST_BYTES: Final = 24  # of the declaration of a tool, beside its name: what cannot fit is not written to find out
_HARDLY: Final = 0.05  # of a budget: nothing more is tried for so little
DESCRIPTION_LENGTH: Final = 200  # characters of a tool's description
DOWN_LENGTH: Final = 160  # characters of why a server is down
DOWN_NAMED: Final = 10  # servers that are down, by name; the rest is counted
SIGNATURE_NODES: Final = 60  # types in a one-line signature: the rest is `unknown`

_HOW: Final = """\
Write one JavaScript program. It runs once, top to bottom, in a sandbox whose only way out is `tools`.
- Call tools as `await tools.name({ ... })`: one object argument, a promise as result. \
Run independent calls together with `Promise.all`.
- Top-level `await` and `return` work. Return only what you need: filter, join and sum in the program, not afterwards. \
The returned value is shown to you as JSON; `text(value)` shows more on the way, `console.log` only \
where nothing is returned.
- A failed call rejects with a ToolError: `code`, `message`, `tool`, `retryable`, `details`. \
Catch it where the program can go on without the call; uncaught, it ends the program.
- `inputs` holds what the application passed in. `sleep(ms)` waits. Integers beyond 2^53 arrive as strings: \
pass them on as they are.
- There is no fetch, import, require, process, file system or eval. Standard JavaScript only; types are ignored."""


def declare(entries: Iterable[Entry], *, with_descriptions: bool = True, deferred: bool = False) -> str:
    """TypeScript for what programs can call: named types first, then `declare const tools`.

    Left out are tools that programs may not call, and deferred ones unless they are asked for (somebody found them).
    Without descriptions there are no comments at all. Order is the entries' own; servers stand where their first tool
    does.
    """
    names = Names()
    spaces: dict[tuple[str, ...], list[str]] = {}
    for entry in entries:
        if "programmatic" not in entry.tool.callers or (entry.tool.defer and not deferred):
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


def instructions(
    catalog: Catalog, limits: Limits | None = None, *, budget: int | None = None, search: str | None = None
) -> str:
    """What a model needs to write a program for this catalog: a short text, then the declarations.

    Args:
        catalog: Tools, in their order.
        limits: Named in the text where given.
        budget: Tokens that the declarations may take (see `within`); None declares every tool that is not deferred.
            Give one only where the model can search, for it cannot know of the others.
        search: The name of the tool that the model searches with, for the text.
    """
    programmatic = [entry for entry in catalog.entries if "programmatic" in entry.tool.callers]
    declared = [entry for entry in programmatic if not entry.tool.defer]
    if budget is not None:
        declared = within(programmatic, budget)
    parts = [_HOW]
    if limits is not None:
        parts.append(
            f"- Limits: {limits.cpu_s:g} s of computing, {limits.memory_bytes >> 20} MiB, {limits.calls:,} calls, "
            f"{limits.output_bytes >> 10} KiB shown to you."
        )
    if later := len(programmatic) - len(declared):
        are = f"{later:,} {'more ' if declared or search is None else ''}{'tool is' if later == 1 else 'tools are'}"
        found = f" Find what you need with {search} first: a running program cannot search." if search else ""
        parts.append(f"- {are} not declared here.{found}")
        if budget is not None:
            parts[-1] += f" By server: {_rest(programmatic, declared, budget * TOKEN_BYTES)}."
    parts += [f"- {each}" for each in unavailable(catalog.down())]
    return "\n".join(parts) + "\n\n```ts\n" + declare(declared) + "```\n"


def unavailable(down: Mapping[str, str]) -> list[str]:
    """Servers that are down and why, a sentence each, for a model: it must not take missing tools for all there are."""
    said = [
        f"The server {cut(visible(name), 60)} is down (its tools are missing or fail): {cut(visible(why), DOWN_LENGTH)}"
        for name, why in [*down.items()][:DOWN_NAMED]
    ]
    return said + ([f"{len(down) - DOWN_NAMED:,} more servers are down"] if len(down) > DOWN_NAMED else [])


def within(entries: Iterable[Entry], budget: int) -> list[Entry]:
    """The tools that are declared at once, in their order: all that are not deferred, if they fit.

    Else whole servers, in their order, as far as they fit beside the counts of the others; all client functions
    together count as one. A server that is declared in part would read as if that were all of it.

    Args:
        entries: Tools that programs may call.
        budget: Tokens for the declarations and the counts together.
    """
    every, room = list(entries), budget * TOKEN_BYTES
    units: dict[str | None, list[Entry]] = {}
    for entry in every:
        if not entry.tool.defer:
            units.setdefault(entry.tool.server, []).append(entry)
    shown = [entry for unit in units.values() for entry in unit]
    if _least(shown) <= room and _size(declare(shown)) + _size(_rest(every, shown, room)) <= room:
        return [entry for entry in every if not entry.tool.defer]
    left = room - _size(counted(every, room // 4)) - _size(declare([]))
    taken: list[str | None] = []
    for server, unit in units.items():
        if left < room * _HARDLY:
            break
        if _least(unit) <= left and (size := _size(declare(unit)) - _size(declare([]))) <= left:
            taken.append(server)
            left -= size
    while True:
        chosen = [entry for entry in every if not entry.tool.defer and entry.tool.server in taken]
        # Types that servers share or that have one name in two of them may make the whole a little more.
        if not taken or _size(declare(chosen)) + _size(_rest(every, chosen, room)) <= room:
            return chosen
        taken.pop()


def _least(entries: Iterable[Entry]) -> int:
    """Bytes that these declarations have at least: of a large catalog most is told too large from its names."""
    return sum(len(entry.expression) + LEAST_BYTES for entry in entries)


def _rest(every: Iterable[Entry], chosen: Iterable[Entry], room: int) -> str:
    return counted(_without(every, chosen), room // 4)


def counted(entries: Iterable[Entry], room: int) -> str:
    """How many tools each server has, in the order of the catalog: `github 26, slack 12, no server 2`.

    Args:
        entries: Tools.
        room: Bytes, about; of the servers that do not fit only their number is said.
    """
    counts: dict[str, int] = {}
    for entry in entries:
        name = entry.path[0] if len(entry.path) > 1 else "no server"
        counts[name] = counts.get(name, 0) + 1
    said: list[str] = []
    for name, count in counts.items():
        room -= len(name) + len(f"{count:,}") + 3
        if room < 0 and said:
            said.append(f"and {len(counts) - len(said):,} more servers")
            break
        said.append(f"{name} {count:,}")
    return ", ".join(said)


def _size(text: str) -> int:
    return len(text.encode("utf-8", "replace"))


def _without(entries: Iterable[Entry], others: Iterable[Entry]) -> list[Entry]:
    left_out = set(others)
    return [entry for entry in entries if entry not in left_out]


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
