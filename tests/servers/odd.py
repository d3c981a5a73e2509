"""One MCP server, written by hand without any SDK, that does what real servers have been seen to do wrong.

    python odd.py [--log FILE] [START ...]

`START` words say what is odd about its start and its list (see `START`); every tool is named after what is odd about
calling it (see `Calls`). Each frame that it receives goes to FILE as one line. It speaks 2025-11-25.
"""

from __future__ import annotations

import base64
import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
STARTS = """
dies            writes to stderr and exits with status 7 before reading anything
quits           exits with status 0 before reading anything
hangs           reads and never answers anything
picky           exits with status 4 if the first message is not `initialize`
banner          prints a banner, ANSI codes, blank lines, a byte order mark and a JSON log line to stdout
pages           lists its tools on pages of two
circle          its second page's cursor is the first page's
endless         every page has another cursor
empty-cursor    the cursor of the second page is ""
malformed       lists tools that no strict client accepts, among good ones
toolless        does not know tools/list
silent          does not tell that its list has changed
""".split("\n")


class Server:
    def __init__(self, words: list[str]) -> None:
        self.log = Path(words[words.index("--log") + 1]) if "--log" in words else None
        self.words = set(words)
        self.extra: list[str] = []
        self.description = "does what its name says"
        self.asked: dict[Any, Any] = {}
        self.waiting: list[Any] = []

    # ---- the wire -----------------------------------------------------------------------------------------------

    def raw(self, data: bytes) -> None:
        os.write(1, data) if len(data) < 4096 else self._all(data)

    def _all(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(1, view) :]

    def send(self, **message: Any) -> None:
        self.raw(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    def text(self, number: Any, text: str) -> None:
        self.send(id=number, result={"content": [{"type": "text", "text": text}]})

    def structured(self, number: Any, value: str) -> None:
        """A result whose structured content is JSON text as given, valid or not."""
        self.raw(f'{{"jsonrpc":"2.0","id":{number},"result":{{"content":[],"structuredContent":{value}}}}}\n'.encode())

    def run(self) -> None:
        if "dies" in self.words:
            print("Traceback (most recent call last):", file=sys.stderr)
            print('  File "/srv/odd/main.py", line 1, in <module>', file=sys.stderr)
            print(
                f"ConfigError: \x1b[31mno key {os.environ.get('ODD_API_KEY', '')}\x1b[0m in /etc/odd/odd.conf",
                file=sys.stderr,
            )
            sys.exit(7)
        if "quits" in self.words:
            sys.exit(0)
        if "banner" in self.words:
            self.raw(
                b'\x1b[1mOdd server 1.0\x1b[0m\n\n\xef\xbb\xbf\n{"level":"info","message":"listening"}\n[INFO] ready '
            )
        for line in sys.stdin.buffer:
            if self.log:
                with self.log.open("ab") as file:
                    file.write(line)
            if "hangs" not in self.words:
                self.handle(json.loads(line))

    def handle(self, message: dict[str, Any]) -> None:
        method, number = message.get("method"), message.get("id")
        if "picky" in self.words and method != "initialize" and not self.asked:
            print(f"unexpected {method}", file=sys.stderr)
            sys.exit(4)
        self.asked["first"] = True
        if method is None:
            self.asked[number] = message
            if {"p", "r", "s", "e", "u"} <= self.asked.keys() and self.waiting:
                replies = {
                    name: self.asked[name].get("error", {}).get("code", self.asked[name].get("result"))
                    for name in "prseu"
                }
                self.text(self.waiting.pop(), json.dumps(replies))
        elif method == "initialize":
            capabilities = {"tools": {"listChanged": "silent" not in self.words}}
            info = {"name": "odd", "version": "1"}
            result = {"protocolVersion": "2025-11-25", "capabilities": capabilities, "serverInfo": info}
            self.send(id=number, result={**result, "instructions": "Be odd."})
        elif method == "tools/list" and "toolless" not in self.words:
            self.send(id=number, result=self.page((message.get("params") or {}).get("cursor")))
        elif method == "tools/call":
            params = message["params"]
            getattr(Calls, params["name"].replace("-", "_"), Calls.unknown)(
                self, number, params.get("arguments") or {}, params
            )
        elif number is not None:
            self.send(id=number, error={"code": -32601, "message": "Method not found"})

    # ---- the list -----------------------------------------------------------------------------------------------

    def page(self, cursor: str | None) -> dict[str, Any]:
        names = [name.replace("_", "-") for name in vars(Calls) if not name.startswith("_") and name != "unknown"]
        tools: list[Any] = [
            {"name": name, "description": self.description, "inputSchema": {"type": "object"}}
            for name in [*names, *self.extra]
        ]
        if "malformed" in self.words:
            tools = [*malformed(), *tools]
        if "pages" in self.words:
            start = int(cursor or 0)
            page = {"tools": tools[start : start + 2]}
            return page | ({"nextCursor": str(start + 2)} if start + 2 < len(tools) else {})
        if "circle" in self.words:
            return {"tools": tools[:2] if cursor is None else tools[2:4], "nextCursor": "again"}
        if "endless" in self.words:
            return {"tools": tools[:1], "nextCursor": f"{cursor}+"}
        if "empty-cursor" in self.words:
            return {"tools": tools[:1], "nextCursor": ""} if cursor is None else {"tools": tools[1:2]}
        return {"tools": tools}


def malformed() -> list[Any]:
    thing = {"type": "object"}
    return [
        "no tool at all",
        {"description": "no name", "inputSchema": thing},
        {"name": 7, "inputSchema": thing},
        {"name": "no-schema"},
        {"name": "schema-true", "inputSchema": True},
        {"name": "schema-list", "inputSchema": []},
        {"name": "schema-array", "inputSchema": {"type": "array"}},
        {"name": "output-text", "inputSchema": thing, "outputSchema": "text"},
        {"name": "output-array", "inputSchema": thing, "outputSchema": {"type": "array"}},
        {"name": "annotations-list", "inputSchema": thing, "annotations": ["readOnlyHint"]},
        {
            "name": "annotations-odd",
            "inputSchema": thing,
            "annotations": {"readOnlyHint": "yes", "destructiveHint": False},
        },
        {"name": "description-number", "inputSchema": thing, "description": 5, "icons": "none", "_meta": []},
        {"name": "task-only", "inputSchema": thing, "execution": {"taskSupport": "required"}},
        {"name": "twice", "inputSchema": thing, "description": "first"},
        {"name": "twice", "inputSchema": thing, "description": "second"},
        {"name": "", "inputSchema": thing},
        {"name": "hidden\u200bname", "inputSchema": thing},
        {"name": "hidden-words", "inputSchema": thing, "description": "Fine.\u202e Or not."},
    ]


class Calls:
    """One static method a tool: (server, id, arguments, params)."""

    @staticmethod
    def unknown(server: Server, number: Any, arguments: dict[str, Any], params: dict[str, Any]) -> None:
        server.send(id=number, error={"code": -32602, "message": f"Unknown tool: {params['name']}", "data": "x"})

    @staticmethod
    def echo(server: Server, number: Any, arguments: dict[str, Any], params: dict[str, Any]) -> None:
        server.send(id=number, result={"content": [], "structuredContent": arguments})

    @staticmethod
    def say(server: Server, number: Any, arguments: dict[str, Any], params: dict[str, Any]) -> None:
        """Answers with exactly the result that it is given."""
        server.send(id=number, result=arguments["result"])

    @staticmethod
    def silence(server: Server, number: Any, arguments: dict[str, Any], params: dict[str, Any]) -> None:
        pass

    @staticmethod
    def exits(server: Server, number: Any, arguments: dict[str, Any], params: dict[str, Any]) -> None:
        print("about to\nOut of cheese in /var/lib/odd/state.db", file=sys.stderr, flush=True)
        os._exit(3)

    @staticmethod
    def closes_stdout(server: Server, number: Any, arguments: dict[str, Any], params: dict[str, Any]) -> None:
        os.close(1)
        time.sleep(60)

    @staticmethod
    def closes_stdin(server: Server, number: Any, arguments: dict[str, Any], params: dict[str, Any]) -> None:
        os.close(0)
        server.text(number, "closed")
        time.sleep(60)

    @staticmethod
    def kills_itself(server: Server, number: Any, arguments: dict[str, Any], params: dict[str, Any]) -> None:
        os.kill(os.getpid(), 9)

    @staticmethod
    def fails(server: Server, number: Any, arguments: dict[str, Any], params: dict[str, Any]) -> None:
        text = arguments.get("text", "no such order")
        result = {"isError": True, "content": [{"type": "text", "text": text}], "structuredContent": {"order": 7}}
        server.send(id=number, result=result)

    @staticmethod
    def garbage(server: Server, number: Any, arguments: dict[str, Any], params: dict[str, Any]) -> None:
        server.raw(b"%%% not json %%%\n" + b"{ also: not }\n")
        server.text(number, "after garbage")

    @staticmethod
    def truncated(server: Server, number: Any, arguments: dict[str, Any], params: dict[str, Any]) -> None:
        server.raw(b'{"jsonrpc":"2.0","id":%d,"result":{"content":[{"type":"te\n' % number)

    @staticmethod
    def glued(server: Server, number: Any, arguments: dict[str, Any], params: dict[str, Any]) -> None:
        server.raw(b"print without newline")
        server.text(number, "glued")

    @staticmethod
    def batch(server: Server, number: Any, arguments: dict[str, Any], params: dict[str, Any]) -> None:
        answer = {"jsonrpc": "2.0", "id": number, "result": {"content": [{"type": "text", "text": "in a batch"}]}}
        note = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "x"}}
        server.raw(json.dumps([note, answer]).encode() + b"\n")

    @staticmethod
    def huge(server: Server, number: Any, arguments: dict[str, Any], params: dict[str, Any]) -> None:
        text = (
            b'{"result":{"content":[{"type":"text","text":"'
            + b"x" * arguments["bytes"]
            + b'"}]},"jsonrpc":"2.0","id":%d}\n'
        )
        server.raw(text % number)

    @staticmethod
    def huge_unknown(server: Server, number: Any, arguments: dict[str, Any], params: dict[str, Any]) -> None:
        server.raw(b'{"what":"' + b"x" * arguments["bytes"] + b'"}\n')
        server.text(number, "after a huge line")

    @staticmethod
    def nan(server: Server, number: Any, arguments: dict[str, Any], params: dict[str, Any]) -> None:
        server.structured(number, '{"a":NaN,"b":Infinity,"c":1e400,"d":1.5}')

    @staticmethod
    def big_integer(server: Server, number: Any, arguments: dict[str, Any], params: dict[str, Any]) -> None:
        server.structured(number, '{"id":9007199254740993,"bigger":123456789012345678901234567890}')

    @staticmethod
    def surrogate(server: Server, number: Any, arguments: dict[str, Any], params: dict[str, Any]) -> None:
        server.structured(number, r'{"lone":"a\ud800b","pair":"\ud83d\ude00"}')

    @staticmethod
    def bad_utf8(server: Server, number: Any, arguments: dict[str, Any], params: dict[str, Any]) -> None:
        server.raw(b'{"jsonrpc":"2.0","id":%d,"result":{"content":[{"type":"text","text":"caf\xe9"}]}}\n' % number)

    @staticmethod
    def deep(server: Server, number: Any, arguments: dict[str, Any], params: dict[str, Any]) -> None:
        levels = arguments.get("levels", 300)
        server.structured(number, '{"deep":' + "[" * levels + "]" * levels + "}")

    @staticmethod
    def duplicate_keys(server: Server, number: Any, arguments: dict[str, Any], params: dict[str, Any]) -> None:
        server.structured(number, '{"a":1,"a":2}')

    @staticmethod
    def answers_twice(server: Server, number: Any, arguments: dict[str, Any], params: dict[str, Any]) -> None:
        server.text(number, "first")
        server.text(number, "second")

    @staticmethod
    def text_id(server: Server, number: Any, arguments: dict[str, Any], params: dict[str, Any]) -> None:
        server.text(str(number), "id as text")

    @staticmethod
    def float_id(server: Server, number: Any, arguments: dict[str, Any], params: dict[str, Any]) -> None:
        server.text(float(number), "id as float")

    @staticmethod
    def no_version(server: Server, number: Any, arguments: dict[str, Any], params: dict[str, Any]) -> None:
        server.raw(b'{"id":%d,"result":{"content":[{"type":"text","text":"no jsonrpc"}]}}\n' % number)

    @staticmethod
    def result_list(server: Server, number: Any, arguments: dict[str, Any], params: dict[str, Any]) -> None:
        server.send(id=number, result=[1])

    @staticmethod
    def text_code(server: Server, number: Any, arguments: dict[str, Any], params: dict[str, Any]) -> None:
        server.send(id=number, error={"code": "E_ODD", "message": "odd"})

    @staticmethod
    def code_32000(server: Server, number: Any, arguments: dict[str, Any], params: dict[str, Any]) -> None:
        server.send(id=number, error={"code": -32000, "message": "Connection closed"})

    @staticmethod
    def stderr_flood(server: Server, number: Any, arguments: dict[str, Any], params: dict[str, Any]) -> None:
        for _ in range(300):
            sys.stderr.write("x" * 1023 + "\n")
        sys.stderr.flush()
        server.text(number, "still here")

    @staticmethod
    def progress(server: Server, number: Any, arguments: dict[str, Any], params: dict[str, Any]) -> None:
        token = params["_meta"]["progressToken"]
        for done in (1, 2):
            server.send(method="notifications/progress", params={"progressToken": token, "progress": done, "total": 2})
        server.text(number, "done")

    @staticmethod
    def asks(server: Server, number: Any, arguments: dict[str, Any], params: dict[str, Any]) -> None:
        """Sends requests of its own before it answers, and answers with what it was told."""
        server.waiting.append(number)
        server.send(method="notifications/unheard_of")
        server.send(id="p", method="ping")
        server.send(id="r", method="roots/list")
        message = {"role": "user", "content": {"type": "text", "text": "hi"}}
        server.send(id="s", method="sampling/createMessage", params={"messages": [message], "maxTokens": 1})
        schema = {"type": "object", "properties": {}}
        server.send(id="e", method="elicitation/create", params={"message": "?", "requestedSchema": schema})
        server.send(id="u", method="unheard/of")

    @staticmethod
    def environment(server: Server, number: Any, arguments: dict[str, Any], params: dict[str, Any]) -> None:
        server.text(number, json.dumps(dict(os.environ)))

    @staticmethod
    def pid(server: Server, number: Any, arguments: dict[str, Any], params: dict[str, Any]) -> None:
        child = os.fork()
        if child == 0:
            time.sleep(600)
            os._exit(0)
        server.text(number, json.dumps({"server": os.getpid(), "child": child, "directory": str(Path.cwd())}))

    @staticmethod
    def add_tool(server: Server, number: Any, arguments: dict[str, Any], params: dict[str, Any]) -> None:
        server.extra.append(arguments["name"])
        if "silent" not in server.words:
            server.send(method="notifications/tools/list_changed")
        server.text(number, "added")

    @staticmethod
    def redescribe(server: Server, number: Any, arguments: dict[str, Any], params: dict[str, Any]) -> None:
        server.description = arguments["description"]
        server.send(method="notifications/tools/list_changed")
        server.text(number, "redescribed")

    @staticmethod
    def hold(server: Server, number: Any, arguments: dict[str, Any], params: dict[str, Any]) -> None:
        """Answers all calls that it holds once there are `count`: proves that they run at once."""
        server.waiting.append(number)
        if len(server.waiting) >= arguments["count"]:
            held, server.waiting = server.waiting, []
            for each in held:
                server.text(each, f"{len(held)} at once")

    @staticmethod
    def gather(server: Server, number: Any, arguments: dict[str, Any], params: dict[str, Any]) -> None:
        """Answers a little later, with how many calls were there by then."""
        server.waiting.append(number)
        if len(server.waiting) == 1:
            threading.Timer(0.1, Calls._answer_gathered, [server]).start()

    @staticmethod
    def _answer_gathered(server: Server) -> None:
        held, server.waiting = server.waiting, []
        for each in held:
            server.text(each, str(len(held)))

    @staticmethod
    def descriptors(server: Server, number: Any, arguments: dict[str, Any], params: dict[str, Any]) -> None:
        server.text(number, json.dumps(sorted(int(each.name) for each in Path("/proc/self/fd").iterdir())))

    @staticmethod
    def picture(server: Server, number: Any, arguments: dict[str, Any], params: dict[str, Any]) -> None:
        data = base64.b64encode(PNG).decode()
        content = [
            {"type": "text", "text": "first"},
            {"type": "image", "data": data, "mimeType": "image/png"},
            {"type": "audio", "data": data, "mimeType": "audio/wav"},
            {"type": "resource_link", "uri": "file:///a", "name": "a", "icons": 5},
            {"type": "resource", "resource": {"uri": "odd://t", "text": "words"}},
            {"type": "resource", "resource": {"uri": "odd://b", "blob": data, "mimeType": "x/y; q=1"}},
            {"type": "image", "data": "?!", "mimeType": "image/png"},
            {"type": "image", "data": data},
            {"type": "hologram", "depth": 3},
            {"type": "text", "text": "last", "annotations": "odd"},
        ]
        server.send(id=number, result={"content": content})


if __name__ == "__main__":
    Server(sys.argv[1:]).run()
