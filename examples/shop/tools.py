"""Functions of the application itself that programs may call, beside the tools of its servers."""

from __future__ import annotations


def goodwill(total: float, days_late: int) -> float:
    """What the shop gives a customer for a late parcel: 2% of the order for each day, at most 15%.

    Args:
        total: What the order cost, in EUR.
        days_late: Whole days after the promised date; the first one is free.
    """
    share = min(0.15, 0.02 * max(0, days_late - 1))
    return round(total * share, 2)
