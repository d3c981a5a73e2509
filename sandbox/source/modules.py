"""Imports and exports where there are no modules: rewritten where they mean the tools, refused elsewhere."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from tree_sitter import Node

from sandbox.messages import Notice, Threw
from sandbox.source.edits import Edit, Text, terminators
from sandbox.source.names import Names, key, unknown
from sandbox.source.syntax import FUNCTIONS, SCOPES, bare

# "tools", "./tools.js", "../tools/index.ts", "@tools", "sandbox:tools"; a namespace may follow: "./tools/carrier".
_TOOLS: Final = re.compile(
    r"(?:\.{0,2}/)*@?(?:[a-z]+:)?(?:src/|lib/)?tools(?:/(?P<space>[A-Za-z_$][\w$]*))??(?:/index)?(?:\.[cm]?[jt]sx?)?/?",
    re.ASCII,
)
_GLOBALS: Final = frozenset("tools inputs text print output image exit console sleep setTimeout clearTimeout".split())
_INPUTS: Final = frozenset("input inputs args arguments params parameters options data".split())
_INSTEAD: Final = (
    (r"(node:)?(fs|path|os|stream|zlib|readline)\b.*", "there are no files or processes here: call a tool"),
    (r"(node:)?child_process|worker_threads|cluster|execa", "there are no processes here: call a tool"),
    (
        r"(node:)?(https?|net|dns|tls)|axios|node-fetch|undici|got|ky|superagent|request|ws|cross-fetch",
        "there is no network here: call a tool",
    ),
    (r"(node:)?timers(/promises)?|delay", "use `await sleep(ms)`, which is a global"),
    (r"(node:)?crypto|uuid|nanoid", "use the global `crypto.randomUUID()`"),
    (r"(node:)?(url|querystring)|qs", "`URL` and `URLSearchParams` are globals"),
    (r"(node:)?buffer", "use `TextEncoder`, `TextDecoder`, `atob` and `btoa`, which are globals"),
    (r"(node:)?util|(node:)?assert", "use `structuredClone`, `JSON.stringify` and plain JavaScript"),
    (
        r"lodash.*|underscore|ramda|immutable",
        "use array and object methods (`map`, `filter`, `reduce`, `Object.groupBy`)",
    ),
    (r"moment.*|dayjs|date-fns.*|luxon", "use `Date` and `Intl.DateTimeFormat`"),
    (r"zod|yup|ajv|joi", "check values with plain JavaScript"),
)


def instead(module: str) -> str:
    """What a program can use in the place of a module."""
    for pattern, advice in _INSTEAD:
        if re.fullmatch(pattern, module):
            return advice
    return "the tools are the global `tools`; write anything else in plain JavaScript in the program itself"


def not_available(module: str, line: int, column: int) -> Threw:
    """The failure of a program that wants a module."""
    return Threw(
        code="module_not_available",
        name="SyntaxError",
        message=f'import of "{module}": there are no modules here' if module else "import: there are no modules here",
        line=line,
        column=column,
        hint=f"remove the import; {instead(module)}",
    )


class NoModule(Exception):
    """An import of something that is not there; carries what the model is told."""

    def __init__(self, threw: Threw) -> None:
        super().__init__(threw.message)
        self.threw = threw


@dataclass
class Modules:
    """What was done to imports and exports. `entry` is the function or expression that the program offers, if any."""

    edits: list[Edit] = field(default_factory=list[Edit])
    notices: list[Notice] = field(default_factory=list[Notice])
    entry: str = ""
    function: Node | None = None
    gone: set[int] = field(default_factory=set[int])


def rewrite(statements: list[Node], text: Text, names: Names) -> Modules:
    """Rewrite the import and export statements among the top-level ones.

    Raises:
        NoModule: An import of anything but the tools.
        Unknown: An import of a tool that does not exist.
    """
    done = Modules()
    for statement in statements:
        if statement.type == "import_statement":
            _import(statement, text, names, done)
        elif statement.type == "export_statement":
            _export(statement, text, done)
    return done


def specifier(source: Node | None, text: Text) -> str:
    """The text inside a string literal."""
    return "" if source is None else text.data[source.start_byte + 1 : source.end_byte - 1].decode()


def tools_expression(module: str, names: Names) -> str:
    """The JavaScript that stands for a module specifier that means the tools; empty if it means anything else."""
    found = _TOOLS.fullmatch(module)
    if found is None:
        return ""
    space = found["space"]
    if space is None or space == "index":
        return "tools"
    return f"tools.{space}" if space in names.spaces else ""


def _import(statement: Node, text: Text, names: Names, done: Modules) -> None:
    module = specifier(statement.child_by_field_name("source"), text)
    target = tools_expression(module, names)
    if not target:
        raise NoModule(not_available(module, *text.place(statement.start_byte)))
    members: list[str] = []
    wholes: list[str] = []
    for clause in statement.named_children:
        if clause.type != "import_clause":
            continue
        for each in clause.named_children:
            if each.type == "identifier":
                wholes.append(f"{_name(each, text)}={target}")
            elif each.type == "namespace_import":
                wholes += [f"{_name(child, text)}={target}" for child in each.named_children]
            else:
                for one in each.named_children:
                    if one.type == "import_specifier":
                        member = _member(one, text, names, target)
                        (wholes if "=" in member else members).append(member)
    kept = [f"{{{','.join(filter(None, members))}}}={target}"] if any(members) else []
    kept += [each for each in wholes if each != f"{target}={target}"]
    new = (f"const {','.join(kept)};" if kept else ";").encode()
    old = text.data[statement.start_byte : statement.end_byte]
    done.edits.append(Edit(statement.start_byte, statement.end_byte, new + b" ".join(terminators(old))))
    done.gone.add(statement.id)
    line = text.place(statement.start_byte)[0]
    done.notices.append(
        Notice("import_rewritten", "there are no modules here: `tools` is a global, call `tools.name(...)`", line)
    )


def _member(one: Node, text: Text, names: Names, target: str) -> str:
    """One imported name as a part of an object pattern, or as `a=b` for another global; empty if it is there anyway."""
    imported, alias = one.child_by_field_name("name"), one.child_by_field_name("alias")
    if imported is None:
        return ""
    name = specifier(imported, text) if imported.type == "string" else _name(imported, text)
    local = _name(alias, text) if alias is not None else name
    space = target.partition(".")[2]
    here = frozenset(names.spaces.get(space, ())) if space else names.exact | names.spaces.keys()
    if name not in here:
        if not space and (name in _GLOBALS or name == "default"):
            name = "tools" if name == "default" else name
            return "" if local == name else f"{local}={name}"
        twins = [each for each in here if key(each) == key(name)]
        if len(twins) != 1:
            raise unknown(names, f"{target}.{name}", text.place(one.start_byte))
        name = twins[0]
    spelled = name if re.fullmatch(r"[A-Za-z_$][\w$]*", name) else f'"{name}"'
    return spelled if local == spelled else f"{spelled}:{local}"


def _name(node: Node, text: Text) -> str:
    return text.data[node.start_byte : node.end_byte].decode()


def _export(statement: Node, text: Text, done: Modules) -> None:
    source = statement.child_by_field_name("source")
    if source is not None:
        raise NoModule(not_available(specifier(source, text), *text.place(statement.start_byte)))
    words = {child.type: child for child in statement.children}
    default = words.get("default")
    declared = statement.child_by_field_name("declaration")
    if default is None:
        if declared is not None:
            done.edits.append(text.blank(words["export"].start_byte, words["export"].end_byte))
            return
        for each in (one for clause in statement.named_children for one in clause.named_children):
            name = each.child_by_field_name("name")
            if name is not None and _name(each.children[-1], text) == "default":
                done.entry = _called(_name(name, text))
        done.edits.append(text.blank(statement.start_byte, statement.end_byte, first=b";"))
        done.gone.add(statement.id)
        return
    name = declared.child_by_field_name("name") if declared is not None else None
    if declared is not None and name is not None:
        done.edits += [text.blank(word.start_byte, word.end_byte) for word in (words["export"], default)]
        done.function = declared if declared.type != "class_declaration" else None
        done.entry = _name(name, text) if done.function is not None else _instance(_name(name, text), declared, text)
        return
    value = declared or statement.child_by_field_name("value")
    if value is None:
        return
    # `export default` and `const  $main =` are equally long: nothing moves.
    done.edits.append(Edit(words["export"].start_byte, words["export"].end_byte, b"const "))
    done.edits.append(Edit(default.start_byte, default.end_byte, b"$main ="))
    if text.data[statement.end_byte - 1 : statement.end_byte] != b";":
        done.edits.append(Edit(statement.end_byte, statement.end_byte, b";"))
    done.gone.add(statement.id)
    plain = bare(value)
    if plain.type in FUNCTIONS:
        done.function, done.entry = plain, "$main"
    elif plain.type in ("class", "class_declaration"):
        done.entry = _instance("$main", plain, text)
    else:
        method = entry_method(plain, text)
        done.entry = f"$main.{method}" if method else _called("$main")


def _called(name: str) -> str:
    return f"(typeof {name}==='function'?{name}(tools,inputs):{name})"


def _instance(name: str, declared: Node, text: Text) -> str:
    body = declared.child_by_field_name("body")
    method = entry_method(body, text) if body is not None else ""
    return f"new {name}(tools,inputs).{method}" if method else name


MAINS: Final = ("main", "run", "execute", "program", "handler")


def entry_method(holder: Node, text: Text) -> str:
    """The call of the member of an object or class body that is its way in; empty if there is none."""
    for member in holder.named_children:
        label = member.child_by_field_name("name") or member.child_by_field_name("key")
        if label is not None and _name(label, text) in (*MAINS, "default"):
            function = bare(member.child_by_field_name("value") or member)
            takes = function.type in SCOPES
            return f"{_name(label, text)}({arguments(function, text) if takes else 'tools,inputs'})"
    return ""


# ---- how what a program offers is called ------------------------------------------------------------------------


def parameters(function: Node) -> list[Node]:
    single = function.child_by_field_name("parameter")
    if single is not None:
        return [single]
    listed = function.child_by_field_name("parameters")
    return [] if listed is None else [each for each in listed.named_children if each.type != "comment"]


def arguments(function: Node, text: Text) -> str:
    """What a function gets for parameters that it seems to expect the host to fill."""
    given: list[str] = []
    for position, each in enumerate(parameters(function)[:2]):
        parameter = each.child_by_field_name("left") if each.type == "assignment_pattern" else each
        if parameter is None or parameter.type == "rest_pattern":
            break
        spelled = text.data[parameter.start_byte : parameter.end_byte]
        if parameter.type == "object_pattern":
            both = re.search(rb"[{,]\s*(?:tools|inputs)\b", spelled) is not None
            given.append("{tools,inputs}" if both else ("inputs" if position else "tools"))
        elif spelled.decode() in _INPUTS:
            given.append("inputs")
        elif spelled != b"tools" and re.search(
            rb"(?<![\w$.])" + re.escape(spelled) + rb"\s*\.\s*(?:tools|inputs)\b", text.data
        ):
            given.append("{tools,inputs}")
        else:
            given.append("inputs" if position and spelled != b"tools" else "tools")
    return ",".join(given)
