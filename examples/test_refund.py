"""A test of a program without its tools: the recording beside it has their replies.

pytest examples/test_refund.py                      replays: no shop is started
pytest examples/test_refund.py --cassettes=record   starts the shop, and records anew
"""

from __future__ import annotations

import sys
from pathlib import Path

from bridge import ApprovalRequest, Approve, Executor, Policy, allow, ask, mcp, tool
from bridge.testing import Cassette

SHOP = Path(__file__).parent / "shop"


def goodwill(total: float, days_late: int) -> float:
    """What the house gives back for a late order: 2 % for each day after the first, 15 % at most."""
    return round(total * min(0.15, 0.02 * max(0, days_late - 1)), 2)


def yes(requests: list[ApprovalRequest]) -> dict[str, Approve]:
    """Approve whatever is asked."""
    return {request.id: Approve() for request in requests}


def test_the_most_overdue_order_is_refunded(cassette: Cassette) -> None:
    shop = mcp.stdio("shop", sys.executable, [str(SHOP / "server.py")], optional=False)
    policy = Policy([allow("shop.*", unless="shop.issue_refund"), ask("shop.issue_refund")])
    executor = Executor([shop, tool(goodwill)], policy=policy, approver=yes)
    result = cassette.run_sync(executor, (SHOP / "refund.js").read_text("utf-8"))
    assert result.value["order_id"] == "O-12660"
    assert result.value["refunded"] == result.value["amount"]
    assert [call.tool for call in result.calls if call.decision == "approve"] == ["shop/issue_refund"]
