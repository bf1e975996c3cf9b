"""How long sessions of a kind run: learned from those that have ended."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from .model import Certainty, Running, Waiting

# The latest ended sessions of a kind that count.
WINDOW = 256
# Fewer sessions that ran as long as this one already has say nothing of the rest of it.
_FEWEST = 5


class Learned(NamedTuple):
    """What the ended sessions of a kind tell of how long one runs in all."""

    seconds: float
    samples: int


class Durations(Mapping[str, Sequence[int]]):
    """Run times per kind, the latest ``WINDOW`` of each, for medians that are conditional.

    ``add`` learns online. It is a mapping from kind to run times itself, so a snapshot
    can hold it as its ``durations``; then nothing is sorted anew in a pass.
    """

    def __init__(self, samples: Mapping[str, Sequence[int]] | None = None) -> None:
        self._latest = {kind: deque(found, WINDOW) for kind, found in (samples or {}).items()}
        self._sorted: dict[str, list[int]] = {}  # of the kinds that were asked for

    def add(self, kind: str, seconds: int) -> None:
        """Learn that a session of a kind has ended after so many seconds."""
        latest = self._latest.setdefault(kind, deque(maxlen=WINDOW))
        ordered = self._ordered(kind)
        if len(latest) == WINDOW:
            del ordered[bisect_right(ordered, latest[0]) - 1]
        latest.append(seconds)
        insort(ordered, seconds)

    def _ordered(self, kind: str) -> list[int]:
        ordered = self._sorted.get(kind)
        if ordered is None:
            ordered = self._sorted[kind] = sorted(self._latest.get(kind, ()))
        return ordered

    def __getitem__(self, kind: str) -> Sequence[int]:
        return self._latest[kind]

    def __iter__(self) -> Iterator[str]:
        return iter(self._latest)

    def __len__(self) -> int:
        return len(self._latest)

    def quantile(self, kind: str, part: float, elapsed: float = 0.0) -> Learned | None:
        """Return a quantile of how long a session runs that has run ``elapsed`` seconds.

        Only sessions that ran at least that long are looked at. When they are too
        few, it is as likely as not to run as long again as it has (the rule for
        durations of no known scale). None: nothing is known of the kind.
        """
        ordered = self._ordered(kind)
        if not ordered:
            return None
        first = bisect_right(ordered, elapsed) if elapsed else 0
        longer = len(ordered) - first
        if elapsed and longer < _FEWEST:
            return Learned(2 * elapsed, longer)
        at = first + min(longer - 1, int(part * longer))
        return Learned(float(ordered[at]), longer)

    def median(self, kind: str, elapsed: float = 0.0) -> Learned | None:
        """Return how long half of the sessions of a kind run at most; see ``quantile``."""
        return self.quantile(kind, 0.5, elapsed)


class End(NamedTuple):
    """When something that runs ends, in seconds from now; infinity: nothing tells."""

    seconds: float
    certainty: Certainty


NEVER = End(float("inf"), Certainty.UNKNOWN)


def end_of(running: Running, now: datetime, durations: Durations) -> End:
    """Return when a running session ends: enforced, else learned, else nothing tells."""
    if running.ends_at is not None:
        # One past its end is being stopped: it goes at any moment.
        return End(max(0.0, (running.ends_at - now).total_seconds()), Certainty.KNOWN)
    elapsed = max(0.0, (now - running.started_at).total_seconds())
    learned = durations.median(running.kind, elapsed)
    if learned is None:
        return NEVER
    return End(max(0.0, learned.seconds - elapsed), Certainty.ESTIMATED)


def run_time(waiting: Waiting, durations: Durations) -> End:
    """Return how long a waiting session would run: the learned time, but no more than allowed."""
    limit = NEVER if waiting.seconds is None else End(float(waiting.seconds), Certainty.KNOWN)
    learned = durations.median(waiting.kind)
    if learned is None or learned.seconds >= limit.seconds:
        return limit
    return End(learned.seconds, Certainty.ESTIMATED)
