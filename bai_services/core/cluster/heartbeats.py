"""Interval of the heartbeats of agents."""

from __future__ import annotations

import math

PER_SECOND = 50
"""With more heartbeats per second, the interval between those of one agent is longer."""


def interval_seconds(agents: int, shortest: int, deadline_seconds: float) -> int:
    """Return the interval in seconds between the heartbeats of each of ``agents`` agents.

    It is at least ``shortest``, and otherwise at most a quarter of the deadline, so that several
    heartbeats may be late or lost.
    """
    longest = int(deadline_seconds // 4)
    return max(shortest, min(math.ceil(agents / PER_SECOND), longest))
