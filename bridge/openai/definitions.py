"""Tools as the vendor wants them defined: the code tool, tools beside it, and tools for the vendor's own programs.

Pure. A translated schema is never narrower than the tool's own, which the gate checks whatever the vendor was told: the
vendor refuses a whole request for one schema that it does not like (a list without `items`, an object without
`properties`, a reference to elsewhere, `anyOf` at the top), so what it does not take is left open. Strict mode is asked
for only where the schema is already what strict mode wants: making it so would change what the tool takes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, Literal, cast

from bridge.code_tool import SHORT, CodeTool, vendor_names
from bridge.dialect import Document, is_list, is_object, listed, mapped, types_of
from bridge.offers import DirectTool, offer
from bridge.searching import NAME, Search
from bridge.tools import Catalog, Entry

Api = Literal["responses", "chat"]
Definition = dict[str, Any]

CODE_FORMAT: Final = (
    "Send the program itself: plain JavaScript text, with no JSON, no quotation marks and no code fence around it."
)
HOSTED: Final[Definition] = {"type": "programmatic_tool_calling"}
FAILURES: Final = (
    'A tool call that failed gives {"error": {"code", "message", "tool", "retryable"}} in place of its '
    "result: look at it before you use a result."
)
_INLINED: Final = 4  # levels of references of a kind that the vendor does not take; what is deeper is left open
_STRICT: Final = frozenset(
    "type properties required additionalProperties description title enum const items anyOf $ref $defs definitions "
    "pattern format multipleOf minimum maximum exclusiveMinimum exclusiveMaximum minItems maxItems".split()
)
_STRICT_FORMATS: Final = frozenset("date-time time date duration email hostname ipv4 ipv6 uuid".split())
_LEFT_OUT: Final = frozenset(["$schema", "$id", "id", "$anchor", "$dynamicAnchor", "$comment", "$vocabulary"])


def of(tool: CodeTool, *, api: Api = "responses", raw: bool = False) -> list[Definition]:
    """The code tool, first, the search where there is one, and the tools beside it.

    Args:
        raw: The code tool takes raw text (a custom tool), which spares the model the escaping; for endpoints that
            have such tools.
    """
    about = f"{SHORT} How to write one is in the instructions."
    if raw:
        custom: Definition = {
            "name": tool.name,
            "description": f"{about} {CODE_FORMAT}",
            "format": {"type": "text"},
        }
        first = {"type": "custom", **custom} if api == "responses" else {"type": "custom", "custom": custom}
    else:
        first = function(tool.name, about, tool.schema, api=api)
    search = [] if tool.search is None else [function(NAME, tool.search.description, tool.search.schema, api=api)]
    return [first, *search, *(function(each.name, each.description, each.schema, api=api) for each in tool.direct)]


def function(name: str, description: str, schema: Any, *, api: Api = "responses") -> Definition:
    """A function tool. Many servers speak Chat Completions: `strict` is left out there unless it is wanted."""
    parameters = translated(schema)
    made: Definition = {"name": name, "description": description, "parameters": parameters}
    strict = is_strict(parameters)
    if api == "responses":
        return {"type": "function", **made, "strict": strict}
    return {"type": "function", "function": made | ({"strict": True} if strict else {})}


@dataclass(frozen=True)
class Hosted:
    """What the vendor is told of, where it runs the programs.

    Attributes:
        definitions: Its own code tool, and what is not deferred.
        deferred: By exact name: the definitions of what has to be found first.
        tools: All, by the names that they have there.
    """

    definitions: list[Definition]
    deferred: dict[str, Definition]
    tools: dict[str, DirectTool]


def hosted(catalog: Catalog, beside: Iterable[Entry]) -> Hosted:
    """The tools that the vendor's programs may call, and those that its model may.

    Args:
        beside: Tools that the model may also call by itself, under these same names.
    """
    direct = {entry.name for entry in beside}
    entries = {entry.name: entry for entry in catalog.entries if entry.name in direct or _for_programs(entry)}
    names = vendor_names(entries)
    tools: dict[str, DirectTool] = {}
    definitions: list[Definition] = [dict(HOSTED)]
    deferred: dict[str, Definition] = {}
    for exact, entry in entries.items():
        offered = tools[names[exact]] = offer(entry, names[exact])
        made = function(offered.name, offered.description, offered.schema)
        callers = [*(["direct"] if exact in direct else []), *(["programmatic"] if _for_programs(entry) else [])]
        made["allowed_callers"] = callers
        output = entry.tool.output_schema
        if is_object(output):
            document = Document(output)
            inner = mapped(output, "properties")["result"] if entry.tool.wraps_result else output
            if is_object(inner):
                made["output_schema"] = _part(document, inner, _INLINED) | _definitions(document)
        if entry.tool.defer:
            deferred[exact] = made | {"defer_loading": True}
        else:
            definitions.append(made)
    return Hosted(definitions, deferred, tools)


def search_tool(search: Search) -> Definition:
    """The vendor's tool search, executed here."""
    return {
        "type": "tool_search",
        "execution": "client",
        "description": search.description,
        "parameters": translated(search.schema),
    }


def _for_programs(entry: Entry) -> bool:
    return "programmatic" in entry.tool.callers


# ---- schemas -------------------------------------------------------------------------------------------------------


def translated(schema: Any) -> Definition:
    """An input schema as the vendor takes it: an object's, with `properties`, and nothing beside `type` at the top."""
    document = Document(schema)
    properties, required = document.shape()
    root = document.followed(schema)
    for choice in [*listed(root, "anyOf"), *listed(root, "oneOf")] if is_object(root) else ():
        for name, part in document.shape(choice)[0].items():  # of any choice: which go together the gate knows
            properties[name] = part if properties.get(name, part) == part else {}
    top: Definition = {"type": "object"}
    if is_object(root):
        top |= {key: root[key] for key in ("title", "description") if isinstance(root.get(key), str)}
    top["properties"] = {name: _part(document, part, _INLINED) for name, part in properties.items()}
    if required:
        top["required"] = [name for name in required if name in properties]
    if is_object(root) and "allOf" not in root and "additionalProperties" in root:
        top["additionalProperties"] = _part(document, root["additionalProperties"], _INLINED, flag=True)
    return top | _definitions(document)


def _definitions(document: Document) -> Definition:
    """What `#/$defs/...` and `#/definitions/...` mean, at the places where they were."""
    root, kept = document.root, cast("Definition", {})
    for word in ("$defs", "definitions"):
        if is_object(root) and is_object(root.get(word)):
            kept[word] = {name: _part(document, part, _INLINED) for name, part in root[word].items()}
    return kept


def _part(document: Document, schema: Any, depth: int, *, flag: bool = False) -> Any:
    """A subschema as the vendor takes it. `flag`: true and false may stand there (`additionalProperties`)."""
    if not is_object(schema):
        return schema if flag else {}
    if "$ref" in schema:
        reference = schema["$ref"]
        if isinstance(reference, str) and _plain_reference(document, reference, schema):
            beside = {key: schema[key] for key in ("description", "title") if isinstance(schema.get(key), str)}
            return {"$ref": reference} | beside
        target = document.resolve(reference, schema)
        return _part(document, target, depth - 1) if depth > 0 and is_object(target) else {}
    made: Definition = {}
    for key, value in schema.items():
        if key in _LEFT_OUT or key in ("prefixItems", "additionalItems"):
            continue
        if key in ("properties", "$defs", "definitions", "patternProperties", "dependentSchemas") and is_object(value):
            made[key] = {name: _part(document, part, depth) for name, part in value.items()}
        elif key in ("anyOf", "oneOf", "allOf") and is_list(value):
            made[key] = [_part(document, part, depth) for part in value]
        elif key == "items":
            made[key] = {} if is_list(value) else _part(document, value, depth)  # a list is an old tuple: left open
        elif key in ("additionalProperties", "unevaluatedProperties", "unevaluatedItems"):
            made[key] = _part(document, value, depth, flag=True)
        elif key in ("not", "if", "then", "else", "contains", "propertyNames", "contentSchema"):
            if is_object(value):
                made[key] = _part(document, value, depth)
        else:
            made[key] = value
    kinds = types_of(schema)
    if "array" in kinds:
        made.setdefault("items", {})
    if "object" in kinds:
        made.setdefault("properties", {})
    return made


def _plain_reference(document: Document, reference: str, at: Any) -> bool:
    """Whether a reference means to the vendor what it means here: a definition at the top, through no `$id`."""
    first, _, rest = reference.partition("/")
    word, _, name = rest.partition("/")
    if first != "#" or word not in ("$defs", "definitions") or not name or set(name) & set("/~%"):
        return False
    root = document.root
    return is_object(root) and is_object(root.get(word)) and root[word].get(name) is document.resolve(reference, at)


def is_strict(schema: Any) -> bool:
    """Whether a translated schema is one that strict mode takes as it is.

    https://developers.openai.com/api/docs/guides/structured-outputs#supported-schemas
    """
    if not is_object(schema) or not schema.keys() <= _STRICT:
        return False
    if schema.get("format", "uuid") not in _STRICT_FORMATS:
        return False
    if "$ref" not in schema and not {"type", "anyOf", "enum", "const"} & schema.keys():
        return False  # anything at all: strict mode wants to know what
    if "object" in types_of(schema):
        properties = schema.get("properties")
        if not is_object(properties) or schema.get("additionalProperties") is not False:
            return False
        if set(cast("list[str]", schema.get("required", []))) != set(properties):
            return False
    parts = [schema[key] for key in ("items",) if key in schema]
    parts += [part for word in ("properties", "$defs", "definitions") for part in schema.get(word, {}).values()]
    return all(is_strict(part) for part in [*parts, *schema.get("anyOf", [])])
