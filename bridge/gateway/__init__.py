"""Sandbridge as an MCP server: one entry in a host's configuration in front of many servers and functions.

The host's model sees three tools (offer.py), whatever the catalog has. A program that it gives is a run of one
`Executor` (runs.py); what policy asks about is put to the host's person (asking.py), never to the model: no tool here
takes a verdict. Resources and prompts of the servers behind are passed through (upstream.py), after what their servers
ask first (fetching.py). A host hears how its run gets on (progress.py) and what has changed (following.py, telling.py).
Both revisions of the protocol, over stdio (over_stdio.py) and Streamable HTTP (over_http.py).

The SDK is imported with this package, and by nothing that does not serve.
"""

from __future__ import annotations

from bridge.gateway.over_http import Tokens, http_app
from bridge.gateway.server import Gateway

__all__ = ["Gateway", "Tokens", "http_app"]
