"""How servers tell that their lists have changed: by notifications (2025-11-25), or on a stream (2026-07-28)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import anyio
import mcp_types as types
from mcp import Client
from mcp.client.subscriptions import ListenNotSupportedError, SubscriptionLost
from mcp.shared.exceptions import MCPError
from mcp.shared.subscriptions import (
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    ServerEvent,
    ToolsListChanged,
)

LISTEN_S: Final = (0.5, 30.0)  # before subscribing again: the first pause, and the longest


def event_of(message: Any) -> ServerEvent | None:
    """What a notification tells of; None for any other message."""
    match message:
        case types.ToolListChangedNotification():
            return ToolsListChanged()
        case types.PromptListChangedNotification():
            return PromptsListChanged()
        case types.ResourceListChangedNotification():
            return ResourcesListChanged()
        case types.ResourceUpdatedNotification():
            return ResourceUpdated(str(message.params.uri))
        case _:
            return None


def lists_of(client: Client) -> list[ServerEvent]:
    """That all lists which are read when they are wanted may be others now: those of a server that was away."""
    has = client.server_capabilities
    lists: list[ServerEvent] = []
    if has.prompts is not None:
        lists.append(PromptsListChanged())
    if has.resources is not None:
        lists.append(ResourcesListChanged())
    return lists


async def listen(client: Client, hear: Callable[[ServerEvent], None]) -> None:
    """Subscribe to changes where that is how they are told; returns where it is not."""
    pause, longest = LISTEN_S
    wanted = lists_of(client)
    while True:
        try:
            async with client.listen(
                tools_list_changed=True,
                prompts_list_changed=PromptsListChanged() in wanted,
                resources_list_changed=ResourcesListChanged() in wanted,
            ) as events:
                hear(ToolsListChanged())  # nothing is replayed: what changed before is found by reading again
                async for event in events:
                    pause = LISTEN_S[0]
                    hear(event)
            # The server ended it in good order: it has no more to say until asked again.
        except ListenNotSupportedError:
            return  # 2025: they are notifications
        except MCPError as error:
            if error.code in (types.METHOD_NOT_FOUND, types.INVALID_REQUEST, types.INVALID_PARAMS):
                return
        except (SubscriptionLost, TimeoutError):
            pass
        await anyio.sleep(pause)
        pause = min(pause * 2, longest)
