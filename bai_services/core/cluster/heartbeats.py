"""Interval of the heartbeats of agents."""

from __future__ import annotations

import math

PER_SECOND = 50
"""Maximum heartbeats per second of all agents; with more agents, the interval is longer."""


def interval_seconds(agents: int, shortest: int, deadline_seconds: float) -> int:
    """Return the interval in seconds between the heartbeats of each of ``agents`` agents.

    It is at most a quarter of the deadline, so that several heartbeats may be late or lost, but
    never less than ``shortest``.
    """
    longest = int(deadline_seconds // 4)
    return max(shortest, min(math.ceil(agents / PER_SECOND), longest))
