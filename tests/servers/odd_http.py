"""One MCP server over Streamable HTTP (2025-11-25), by hand, without any SDK, odd by the name of the tool called.

It runs in threads of the test's own process, on loopback.
"""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar, cast

NAMES = (
    "echo closes half-body never status cut-stream page accepted redirect big headers compressed json-error surrogate "
    "wait"
).split()


class Odd(ThreadingHTTPServer):
    """Listens on a free port; `url` says where."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.close_each = False
        self.sessions: set[str] = set()
        self.seen: list[tuple[str, str, dict[str, str]]] = []  # HTTP method, JSON-RPC method or tool, headers
        self.description = "does what its name says"
        self.token: str | None = None
        self.release = threading.Event()
        self.late: tuple[int, str] | None = None  # what both handshakes get, the newer one late

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/mcp"

    def calls(self, name: str) -> int:
        """How often a tool was called."""
        return sum(1 for _, what, _ in self.seen if what == name)


@contextmanager
def served(port: int = 0) -> Iterator[Odd]:
    server = Odd(port)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.release.set()
        server.shutdown()
        thread.join()
        server.server_close()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 20
    quiet: ClassVar[bool] = True

    @property
    def odd(self) -> Odd:
        return cast("Odd", self.server)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  the base class's name
        pass

    def handle(self) -> None:
        with suppress(ConnectionError, ValueError):  # the client went away
            super().handle()

    # ---- answers ------------------------------------------------------------------------------------------------

    def answer(self, status: int, body: bytes = b"", kind: str = "application/json", **headers: str) -> None:
        self.send_response(status)
        for key, value in headers.items():
            self.send_header(key.replace("_", "-"), value)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        if self.odd.close_each:
            self.send_header("Connection", "close")
            self.close_connection = True
        self.end_headers()
        self.wfile.write(body)

    def result(self, number: Any, result: dict[str, Any], **headers: str) -> None:
        self.answer(200, json.dumps({"jsonrpc": "2.0", "id": number, "result": result}).encode(), **headers)

    def error(self, number: Any, code: int, message: str, status: int = 200) -> None:
        data = {"supported": ["2026-07-28"], "requested": "2025-11-25"}
        error = {"jsonrpc": "2.0", "id": number, "error": {"code": code, "message": message, "data": data}}
        self.answer(status, json.dumps(error).encode())

    # ---- requests -----------------------------------------------------------------------------------------------

    def do_GET(self) -> None:
        self.answer(405)

    def do_DELETE(self) -> None:
        self.odd.sessions.discard(self.headers.get("Mcp-Session-Id", ""))
        self.answer(204)

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))))
        method, number = message.get("method"), message.get("id")
        params: dict[str, Any] = message.get("params") or {}
        what = params.get("name", method) if method == "tools/call" else method
        headers = {key.lower(): value for key, value in self.headers.items()}
        self.odd.seen.append(("POST", what, headers))
        if self.odd.token is not None and headers.get("authorization") != f"Bearer {self.odd.token}":
            self.answer(401, b"no", "text/plain")
        elif self.odd.late is not None and method == "server/discover":
            self.odd.release.wait(30)
            self.error(number, *self.odd.late)
        elif self.odd.late is not None and method == "initialize":
            self.error(number, *self.odd.late)
        elif method == "initialize":
            session = uuid.uuid4().hex
            self.odd.sessions.add(session)
            info = {"name": "odd", "version": "1"}
            capabilities = {"tools": {}}
            self.result(
                number,
                {"protocolVersion": "2025-11-25", "capabilities": capabilities, "serverInfo": info},
                Mcp_Session_Id=session,
            )
        elif method == "server/discover":
            self.error(number, -32601, "Method not found")
        elif headers.get("mcp-session-id") not in self.odd.sessions:
            self.error(number, -32600, "Session not found", 404)
        elif number is None:
            self.answer(202)
        elif method == "tools/list":
            schema = {"type": "object"}
            tools = [{"name": name, "description": self.odd.description, "inputSchema": schema} for name in NAMES]
            self.result(number, {"tools": tools})
        elif method == "tools/call":
            getattr(self, "tool_" + params["name"].replace("-", "_"))(number, params.get("arguments") or {})
        else:
            self.error(number, -32601, "Method not found")

    def tool_echo(self, number: Any, arguments: dict[str, Any]) -> None:
        self.result(number, {"content": [], "structuredContent": arguments})

    def tool_headers(self, number: Any, arguments: dict[str, Any]) -> None:
        self.result(number, {"content": [], "structuredContent": self.odd.seen[-1][2]})

    def tool_closes(self, number: Any, arguments: dict[str, Any]) -> None:
        self.close_connection = True
        self.connection.shutdown(2)

    def tool_half_body(self, number: Any, arguments: dict[str, Any]) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", "1000")
        self.end_headers()
        self.wfile.write(b'{"jsonrpc":"2.0",')
        self.close_connection = True

    def tool_never(self, number: Any, arguments: dict[str, Any]) -> None:
        self.odd.release.wait(30)

    def tool_wait(self, number: Any, arguments: dict[str, Any]) -> None:
        self.odd.release.wait(30)
        self.result(number, {"content": [{"type": "text", "text": "waited"}]})

    def tool_status(self, number: Any, arguments: dict[str, Any]) -> None:
        self.answer(arguments["status"], b"<html>no</html>", "text/html")

    def tool_json_error(self, number: Any, arguments: dict[str, Any]) -> None:
        self.error(number, -32000, "went wrong", arguments["status"])

    def tool_cut_stream(self, number: Any, arguments: dict[str, Any]) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(b'event: message\ndata: {"jsonrpc":"2.0","method":"notifications/message",')
        self.close_connection = True

    def tool_page(self, number: Any, arguments: dict[str, Any]) -> None:
        self.answer(200, b"<html>sign in</html>", "text/html")

    def tool_accepted(self, number: Any, arguments: dict[str, Any]) -> None:
        self.answer(202)

    def tool_redirect(self, number: Any, arguments: dict[str, Any]) -> None:
        self.answer(307, Location="http://127.0.0.2:9/elsewhere")

    def tool_big(self, number: Any, arguments: dict[str, Any]) -> None:
        text = "x" * arguments["bytes"]
        self.result(number, {"content": [{"type": "text", "text": text}]})

    def tool_compressed(self, number: Any, arguments: dict[str, Any]) -> None:
        import gzip

        body = json.dumps({"jsonrpc": "2.0", "id": number, "result": {"content": [{"type": "text", "text": "small"}]}})
        if arguments.get("bomb"):
            body = '{"x":"' + "0" * (40 << 20) + '"}'
        self.answer(200, gzip.compress(body.encode(), 1), Content_Encoding="gzip")

    def tool_surrogate(self, number: Any, arguments: dict[str, Any]) -> None:
        value = rb'{"a":"x\ud800y","n":12345678901234567890123}'
        content = b'{"jsonrpc":"2.0","id":%d,"result":{"content":[],"structuredContent":%s}}'
        self.answer(200, content % (number, value))
