"""Interval of the heartbeats of agents."""

from __future__ import annotations

import math

PER_SECOND = 50
"""Maximum heartbeats per second of all agents together; the interval grows with their number."""
MAX_UNBATCHED = 50
"""Maximum number of agents whose heartbeats are processed at once, not in batches."""
BATCH_SECONDS = 1.0


def batch_seconds(agents: int) -> float:
    """Return the seconds for which heartbeats are collected into a batch; 0: no batches.

    The time is short in comparison with the interval between the heartbeats of an agent.
    """
    return 0.0 if agents <= MAX_UNBATCHED else BATCH_SECONDS


def interval_seconds(agents: int, shortest: int, deadline_seconds: float) -> int:
    """Return the interval in seconds between the heartbeats of each of ``agents`` agents.

    It is at most a quarter of the deadline, so that several heartbeats may be late or lost, but
    never less than ``shortest``.
    """
    longest = int(deadline_seconds // 4)
    return max(shortest, min(math.ceil(agents / PER_SECOND), longest))
