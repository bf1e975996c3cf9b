"""Interval of the heartbeats of agents."""

from __future__ import annotations

import math

PER_SECOND = 50
"""Maximum heartbeats per second of all agents; with more agents, the interval is longer."""
MAX_UNBATCHED = 50
"""With more agents, their heartbeats are processed in batches."""
BATCH_SECONDS = 1.0


def batch_seconds(agents: int) -> float:
    """Return for how long heartbeats are collected before they are processed together.

    With few agents, they are processed at once. With many, the time is short in comparison with
    their interval.
    """
    return 0.0 if agents <= MAX_UNBATCHED else BATCH_SECONDS


def interval_seconds(agents: int, shortest: int, deadline_seconds: float) -> int:
    """Return the interval in seconds between the heartbeats of each of ``agents`` agents.

    It is at most a quarter of the deadline, so that several heartbeats may be late or lost, but
    never less than ``shortest``.
    """
    longest = int(deadline_seconds // 4)
    return max(shortest, min(math.ceil(agents / PER_SECOND), longest))
