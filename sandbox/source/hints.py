"""What a model is told about an error that its program threw: the code, and what to write instead."""

from __future__ import annotations

import difflib
import re
from typing import Final, NamedTuple

import msgspec

from sandbox.messages import Threw
from sandbox.source import modules, names, unwrap
from sandbox.source.edits import Text

_CODES: Final = {"ReferenceError": "reference_error", "TypeError": "type_error"}
_NETWORK: Final = "there is no network here: what a program reaches outside goes through `tools`"
_BROWSER: Final = "there is no browser here: a program has `tools`, `inputs` and the JavaScript built-ins"
_FILES: Final = "there are no files or processes here: what a program reaches outside goes through `tools`"
_MODULES: Final = "there are no modules here: the tools are the global `tools`, everything else is plain JavaScript"
_SHELL: Final = "this is no shell: programs are JavaScript"
_CODING: Final = "use `TextEncoder` and `TextDecoder` for bytes, `btoa` and `atob` for base64"
_INSTEAD: Final[dict[str, str]] = {
    **dict.fromkeys(
        "fetch XMLHttpRequest WebSocket EventSource axios Request Response Headers FormData got http https".split(),
        _NETWORK,
    ),
    **dict.fromkeys(
        "window document self navigator localStorage sessionStorage location alert prompt confirm history".split(),
        _BROWSER,
    ),
    **dict.fromkeys("fs path os child_process __dirname __filename Deno Bun Blob File".split(), _FILES),
    **dict.fromkeys("require module exports define".split(), _MODULES),
    **dict.fromkeys("pwd ls cat curl cd grep bash sh sudo npm npx pip python python3 git mkdir wget".split(), _SHELL),
    **dict.fromkeys("Buffer".split(), _CODING),
    "process": "there is no process and no environment here: what the host gives a program is in `inputs`",
    "global": "the global object is `globalThis`",
    "setInterval": "use a loop with `await sleep(ms)`",
    "clearInterval": "use a loop with `await sleep(ms)`, and `break`",
    "setImmediate": "use `await sleep(0)`",
    "queueMicrotask": "use `Promise.resolve().then(f)`",
    "requestAnimationFrame": "use `await sleep(ms)`",
    "performance": "use `Date.now()`; time stands still while a program computes",
    "AbortController": "use `Promise.race([call, sleep(ms)])`",
    "AbortSignal": "use `Promise.race([call, sleep(ms)])`",
    "WebAssembly": "WebAssembly is switched off: write it in JavaScript",
    "Worker": "there is one thread: use `Promise.all` for calls that run at once",
    "_": "use array and object methods (`map`, `filter`, `reduce`, `Object.groupBy`)",
    "moment": "use `Date` and `Intl.DateTimeFormat`",
    "dayjs": "use `Date` and `Intl.DateTimeFormat`",
    "None": "programs are JavaScript, not Python: write `null`",
    "True": "programs are JavaScript, not Python: write `true`",
    "False": "programs are JavaScript, not Python: write `false`",
    "len": "programs are JavaScript, not Python: write `x.length`",
    "str": "programs are JavaScript, not Python: write `String(x)`",
    "int": "programs are JavaScript, not Python: write `Number(x)`",
    "range": "programs are JavaScript, not Python: write `for (let i = 0; i < n; i++)`",
    "json": "programs are JavaScript, not Python: write `JSON.stringify(x)` or `JSON.parse(x)`",
    "asyncio": "programs are JavaScript, not Python: write `await Promise.all([...])`",
}
_TYPES: Final = frozenset("string number boolean any unknown never object".split())
_GLOBALS: Final = (
    "the globals here are tools, inputs, text, image, exit, sleep, setTimeout, console, URL, TextEncoder, TextDecoder, "
    "atob, btoa, structuredClone, crypto.randomUUID and JavaScript's own"
)
_ARRAY: Final = frozenset(
    "map filter reduce forEach find some every slice sort join flatMap includes push flat".split()
)
_TOOL: Final = r"tools(?:\??\.\w+|\[[\"'][^\"'\]]+[\"']\])+"
_READ_CHARACTERS: Final = 65_536  # what is searched for a hint; patterns over text that somebody chose must stay cheap
_LINE_CHARACTERS: Final = 4_000
_IDENTIFIER: Final = re.compile(r"[A-Za-z_$][\w$]*")


class _Cut(Text):
    """Text in which a line that is too long to be searched is empty."""

    def line(self, number: int) -> str:
        found = super().line(number)
        return found if len(found) <= _LINE_CHARACTERS else ""


class Origin(NamedTuple):
    """Where a variable got its value: the call, whether it was awaited, the line."""

    call: str
    awaited: bool
    line: int


def explain(program: str, threw: Threw, catalog: names.Names) -> Threw:
    """The error with its code and a hint. Never raises: a hint is a courtesy."""
    code = _CODES.get(threw.name, "threw")
    try:
        text = _Cut(unwrap.visible(program)[:_READ_CHARACTERS].encode("utf-8", "replace"))
        return _explained(text, threw, catalog, code)
    except Exception:  # noqa: BLE001  whatever is wrong with a hint, the error itself must arrive
        return msgspec.structs.replace(threw, code=code)


def _explained(text: Text, threw: Threw, catalog: names.Names, code: str) -> Threw:
    message, line = threw.message, text.line(threw.line)
    hint = ""
    if threw.name == "EvalError" and "Code generation from strings" in message:
        code, hint = "eval_disabled", "eval and Function are switched off: write the code itself into the program"
    elif threw.name == "ReferenceError":
        hint = _reference(text, threw, catalog)
    elif threw.name == "TypeError" and "is not a function" not in message and _imports(line, message):
        return _module(text, threw)
    elif threw.name == "TypeError":
        hint = _type(text, threw, catalog)
    elif threw.name == "SyntaxError":
        hint = _parsed(text, threw)
    elif threw.name == "Error" and _imports(line, message):
        return _module(text, threw)
    elif threw.name == "RangeError" and "call stack" in message:
        hint = "a function calls itself without end, or too deeply: use a loop"
    elif threw.name == "RangeError" and "time value" in message:
        hint = "the date could not be read: check the text before `new Date(...)`"
    return msgspec.structs.replace(threw, code=code, hint=hint or threw.hint)


def _imports(line: str, message: str) -> bool:
    return re.search(r"\bimport\s*\(", line) is not None and ("Not supported" in message or "import" in message.lower())


def _module(text: Text, threw: Threw) -> Threw:
    found = re.search(r"\bimport\s*\(\s*[\"'`]([^\"'`]+)[\"'`]", text.line(threw.line))
    refused = modules.not_available(found[1] if found else "", threw.line, threw.column)
    return msgspec.structs.replace(threw, code=refused.code, message=refused.message, hint=refused.hint)


# ---- ReferenceError -------------------------------------------------------------------------------------------------


def _reference(text: Text, threw: Threw, catalog: names.Names) -> str:
    early = re.search(r"Cannot access '([^']+)' before initialization", threw.message)
    if early:
        missing = _missing_semicolon(text, threw.line)
        at = _declared(text, early[1])
        return (
            missing
            or f"`{early[1]}` is used before the line that declares it{f' (line {at})' if at else ''}: move one of them"
        )
    found = re.fullmatch(r"(.+) is not defined", threw.message)
    if found is None:
        return ""
    name, source = found[1], text.data.decode()
    if name in _TYPES and re.search(rf"<[^;]{{0,200}}\b{name}\b[^;]{{0,200}}>\s*\(", text.line(threw.line)):
        return "type arguments read as comparisons here: leave out `<...>` before the `(`"
    if name in ("lt", "gt", "amp", "quot", "apos") and f"&{name};" in source:
        return "the text has HTML entities in it: send the characters themselves"
    if name in _INSTEAD:
        return _INSTEAD[name]
    called = re.search(rf"(?<![\w$.]){re.escape(name)}\s*\(\s*[\"'`]([^\"'`]+)[\"'`]", source)
    if called:  # callTool("get_order", {...})
        meant = names.suggestion(catalog, (called[1], called[1].replace("__", ".").replace("/", ".")))
        if meant:
            return f"call the tool itself: `await {meant}({{ ... }})`"
    member = re.search(rf"(?<![\w$.]){re.escape(name)}\s*\??\.\s*([A-Za-z_$][\w$]*)", source)
    if member:  # codemode.get_order(...), functions.get_order(...), carrier.track(...)
        meant = names.suggestion(catalog, (f"{name}.{member[1]}", member[1]))
        if meant:
            return f"tools are called as `await {meant}({{ ... }})`"
    meant = names.suggestion(catalog, (name,))
    if meant:
        return f"did you mean `{meant}`?"
    if name in ("codemode", "functions", "default_api", "mcp", "api", "client", "toolbox", "callTool", "call_tool"):
        return f"tools are called as `await tools.name({{ ... }})`: {catalog.advice(member[1] if member else name)}"
    if name in ("input", "args", "params", "ctx", "context", "env"):
        return "what the host gives a program is in `inputs`"
    if re.search(rf"(?<![\w$.]){re.escape(name)}\s*=(?![=>])", source) and not _declared(text, name):
        return f"declare it first: `let {name} = ...`"
    at = _declared(text, name)
    if at:
        return f"`{name}` is declared on line {at}, inside a block or function that this line is not in"
    close = difflib.get_close_matches(name, _names_declared(source), 1, 0.8)
    if close:
        return f"did you mean `{close[0]}`?"
    near = catalog.nearest(name) if re.search(rf"(?<![\w$.]){re.escape(name)}\s*\(", source) else []
    return f"did you mean {' or '.join(f'`{each}`' for each in near)}?" if near else _GLOBALS


def _declared(text: Text, name: str) -> int:
    found = re.search(
        rf"(?:const|let|var|function\*?|class)\s+(?:\{{[^}}]{{0,200}}\b|\[[^\]]{{0,200}}\b)?{re.escape(name)}\b".encode(),
        text.data,
    )
    return text.place(found.start())[0] if found else 0


def _names_declared(source: str) -> list[str]:
    return sorted({name for _, name in re.findall(r"\b(const|let|var|function|class)\s+([A-Za-z_$][\w$]*)", source)})


# ---- TypeError ------------------------------------------------------------------------------------------------------


def _type(text: Text, threw: Threw, catalog: names.Names) -> str:
    message, line = threw.message, text.line(threw.line)
    callee = re.match(r"(.+?) is not a function", message)
    nothing = re.match(r"Cannot read properties of (null|undefined) \(reading '([^']*)'\)", message)
    if (callee or nothing or "Cannot create property" in message) and (missing := _missing_semicolon(text, threw.line)):
        return missing
    if callee:
        return _not_a_function(text, threw, callee[1], catalog)
    if nothing:
        return _nothing(text, threw, nothing[1], nothing[2])
    if "is not iterable" in message:
        base = (
            _base(message)
            or _base(re.sub(r"^.*(?:\bof\b|=|\.\.\.)\s*", "", line[: threw.column + 40]))
            or _base(line[threw.column - 1 :])
        )
        return (
            _unawaited(text, base, threw.line, line)
            or "only arrays, strings, Maps, Sets and generators can be looped over"
        )
    taken = re.match(r"Cannot destructure property '([^']+)' of '([^']+)' as it is (null|undefined)", message)
    if taken:
        tool = re.search(rf"await\s+({_TOOL})\s*\(", line)
        origin = _origin(text, taken[2], threw.line)
        call = tool[1] if tool else origin.call if origin else ""
        return f"{call} returned {taken[3]}: check for it before taking `{taken[1]}` out of it" if call else ""
    if "Assignment to constant" in message:
        return "declare the variable with `let` to assign to it again"
    if "Cannot mix BigInt" in message:
        return "convert one side: `Number(x)` or `BigInt(x)`"
    if "circular structure" in message:
        return "return the object itself: cycles are marked then"
    if "convert undefined or null to object" in message:
        return (
            _unawaited(text, _base(line[threw.column - 1 :].partition("(")[2]), threw.line, line)
            or "check for null first"
        )
    if "read only" in message or "not extensible" in message:
        return "this object is locked: copy it first (`{ ...object }`)"
    return ""


def _not_a_function(text: Text, threw: Threw, callee: str, catalog: names.Names) -> str:
    line = text.line(threw.line)
    tool = re.fullmatch(r"tools(?:\.([\w$]+))(?:\.([\w$]+))?", callee)
    if tool:
        spelled = ".".join(part for part in tool.groups() if part)
        if spelled in catalog.exact or (tool[2] and tool[2] in catalog.spaces.get(tool[1], ())):
            return f"`await` is missing: write `await {callee}(...)`" if "not iterable" in threw.message else ""
        return f"there is no tool {callee}: {catalog.advice(spelled)}"
    if callee.startswith("tools["):
        key = callee[6:-1]
        written = re.search(rf"\b{re.escape(key)}\s*=\s*[\"'`]([^\"'`]+)[\"'`]", text.data.decode())
        return f"there is no tool of that name: {catalog.advice(written[1] if written else key)}"
    base = _base(callee)
    waiting = _unawaited(text, base, threw.line, line)
    if waiting:
        return waiting
    method = callee.rsplit(".", 1)[-1]
    origin = _origin(text, base, threw.line)
    if origin and origin.awaited and method in _ARRAY:
        return (
            f"what {origin.call} returned (line {origin.line}) is not an array: "
            f"look at it first (`return Object.keys({base})`)"
        )
    if re.search(rf"\b{re.escape(base)}\s*=\s*(?:await\s+)?(?:globalThis\.)?tools\s*(?:[;,\n]|$)", text.data.decode()):
        return f"`{base}` is `tools`, and there is no tool {method}: {catalog.advice(method)}"
    if "." not in callee:
        taken = re.search(
            rf"\{{[^}}]{{0,200}}\b{re.escape(callee)}\b[^}}]{{0,200}}\}}\s*=\s*tools\b", text.data.decode()
        )
        if taken:
            return f"`tools` has no {callee}: {catalog.advice(callee)}"
    return ""


def _nothing(text: Text, threw: Threw, what: str, member: str) -> str:
    """For a member read from null or undefined: which tool the value came from."""
    line = text.line(threw.line)
    read = re.search(
        r"(?<![\w$])([A-Za-z_$][\w$]*)((?:\s*\??\.\s*[\w$]+|\[[^\[\]]*\])*)\s*\.\s*" + re.escape(member) + r"\b", line
    )
    base, path = (read[1], read[2]) if read else ("", "")
    waiting = _unawaited(text, base, threw.line, line)
    if waiting:
        return waiting
    origin = _origin(text, base, threw.line)
    if origin is None:
        return ""
    if not path:
        return (
            f"`{base}` is what {origin.call} returned on line {origin.line}: {what}; "
            f"check for it before reading `{member}`"
        )
    return (
        f"`{base}{path}` is {what}: what {origin.call} returned on line {origin.line} has no such member; "
        f"look at it first (`return {base};`)"
    )


def _unawaited(text: Text, base: str, line_number: int, line: str) -> str:
    """The hint if a value is a promise, because `await` was forgotten."""
    origin = _origin(text, base, line_number)
    if origin is not None and not origin.awaited:
        return f"`await` is missing: `{base}` is a promise; write `await {origin.call}(...)` on line {origin.line}"
    direct = re.search(
        rf"(?P<await>await\s+)?(?P<call>{_TOOL})\s*\((?:[^()]|\([^()]*\))*\)\s*(?:\??\.\s*(?!then\b|catch\b|finally\b)\w|\[)",
        line,
    )
    if direct and not re.search(rf"\(\s*await\s+{re.escape(direct['call'])}", line):
        return f"`await` is missing: write `(await {direct['call']}(...))` with the brackets, then the member"
    spread = re.search(rf"(?:\bof\s+|\.\.\.\s*|=\s*|\(\s*)({_TOOL})\s*\(", line)
    if spread and base in ("", "tools") and not re.search(rf"await\s+{re.escape(spread[1])}", line):
        return f"`await` is missing: write `await {spread[1]}(...)`"
    if origin is None and base:
        mapped = re.search(rf"\b{re.escape(base)}\s*=\s*[^;\n]{{0,200}}\.map\(\s*async\b", text.data.decode())
        if mapped and "Promise.all" not in mapped[0]:
            return f"`{base}` is an array of promises: write `await Promise.all(...)` around the map"
    return ""


def _base(expression: str) -> str:
    found = _IDENTIFIER.match(expression.strip().removeprefix("(").strip().removeprefix("await "))
    return found[0] if found else ""


def _origin(text: Text, name: str, before: int) -> Origin | None:
    """The call of a tool or async function that a variable was last given, as far as the text of the lines tells."""
    if not name or name == "tools":
        return None
    source = text.data.decode()
    slow = set(re.findall(r"\basync\s+function\s+(\w+)", source)) | set(re.findall(r"\b(\w+)\s*=\s*async\b", source))
    calls = "|".join([_TOOL, *(rf"{re.escape(each)}(?=\s*\()" for each in sorted(slow))])
    bound = rf"(?:(?<![\w$.]){re.escape(name)}|[{{\[][^{{}}\[=]{{0,200}}\b{re.escape(name)}\b[^{{}}\[=]{{0,200}}[}}\]])"
    pattern = rf"{bound}\s*=\s*\(?\s*(await\s+)?({calls})\s*\("
    found: Origin | None = None
    for each in re.finditer(pattern, source):
        line = text.place(len(source[: each.start(2)].encode()))[0]
        if line <= before or not before:
            tail = source[each.end() : each.end() + 2_000]
            if not each[1] and re.match(r"(?:[^()]|\([^()]*\))*\)\s*\.\s*then\b", tail):
                continue
            found = Origin(each[2], each[1] is not None, line)
    return found


def _missing_semicolon(text: Text, number: int) -> str:
    """The hint if a line near this one is read as the continuation of the line before it."""
    for current in (number, number + 1, number - 1):
        line = text.line(current).lstrip()
        above = current - 1
        while above > 0 and not text.line(above).strip():
            above -= 1
        end = re.sub(r"\s*//.*$", "", text.line(above)).rstrip() if above else ""
        if (
            line[:1] in ("(", "[", "`")
            and line
            and re.search(r"[\w$)\]}\"'`]$", end)
            and not re.search(r"\b(?:return|else|do|await|of|in)$", end)
        ):
            return (
                f"line {current} begins with `{line[0]}` and continues line {above}: "
                f"a semicolon is missing at the end of line {above}"
            )
    return ""


# ---- SyntaxError at run time ----------------------------------------------------------------------------------------


def _parsed(text: Text, threw: Threw) -> str:
    line, message = text.line(threw.line), threw.message
    if "JSON" not in message:
        return ""
    given = re.search(r"JSON\.parse\(\s*(?:await\s+)?([A-Za-z_$][\w$]*)", line)
    origin = _origin(text, given[1], threw.line) if given else None
    if "[object Promise" in message or (origin is not None and not origin.awaited):
        return "`await` is missing: JSON.parse was given a promise"
    if "[object" in message or origin is not None or re.search(rf"JSON\.parse\(\s*await\s+{_TOOL}", line):
        return "the value is already an object, or plain text: use it as it is, without JSON.parse"
    if '"undefined"' in message:
        return "JSON.parse was given undefined: check the member that holds the text"
    return "the text is not JSON: look at it first"
