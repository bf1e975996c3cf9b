"""Run times of sessions by kind (session type and image), learned from ended sessions."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from .model import Certainty, PendingSession, RunningSession

# Number of latest run times that are stored for each kind.
WINDOW = 256
# Minimum number of ended sessions for a prediction. For a running session, only ended sessions that
# ran longer than its elapsed time count.
_MIN_SAMPLES = 5


class Learned(NamedTuple):
    """Predicted total run time of a session, and the number of ended sessions in the sample."""

    seconds: float
    samples: int


class Durations(Mapping[str, Sequence[int]]):
    """The latest ``WINDOW`` run times of each kind, and predictions from them.

    An instance is a mapping from kind to run times, so it can be used as ``Snapshot.durations``.
    The sorted run times are cached, so that a pass does not sort them again.
    """

    def __init__(self, samples: Mapping[str, Sequence[int]] | None = None) -> None:
        self._latest = {kind: deque(found, WINDOW) for kind, found in (samples or {}).items()}
        self._sorted: dict[str, list[int]] = {}  # only of kinds that were used

    def add(self, kind: str, seconds: int) -> None:
        """Add the run time of an ended session of a kind."""
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
        """Return the quantile ``part`` (0 to 1) of the total run times of sessions of a kind.

        The session has run ``elapsed`` seconds so far. If ``elapsed`` is not 0, only ended sessions
        that ran longer are considered. With fewer than ``_MIN_SAMPLES`` of these, the result is
        twice the elapsed time for every ``part``: without further knowledge, the remaining time is
        equally likely to be longer or shorter than the elapsed time. The result is None if no
        session of the kind has ended.
        """
        ordered = self._ordered(kind)
        if not ordered:
            return None
        first = bisect_right(ordered, elapsed) if elapsed else 0
        longer = len(ordered) - first
        if elapsed and longer < _MIN_SAMPLES:
            return Learned(2 * elapsed, longer)
        at = first + min(longer - 1, int(part * longer))
        return Learned(float(ordered[at]), longer)

    def median(self, kind: str, elapsed: float = 0.0) -> Learned | None:
        """Return the median total run time of sessions of a kind; see ``quantile``."""
        return self.quantile(kind, 0.5, elapsed)


class End(NamedTuple):
    """End of a session: in seconds from now if it is running, else from its start.

    Infinity: unknown.
    """

    seconds: float
    certainty: Certainty


NEVER = End(float("inf"), Certainty.UNKNOWN)


def end_of(running: RunningSession, now: datetime, durations: Durations) -> End:
    """Return the enforced end of a running session, else the predicted end, else ``NEVER``."""
    if running.ends_at is not None:
        # A session past its end is being stopped: it may end at any moment.
        return End(max(0.0, (running.ends_at - now).total_seconds()), Certainty.KNOWN)
    elapsed = max(0.0, (now - running.started_at).total_seconds())
    learned = durations.median(running.kind, elapsed)
    if learned is None:
        return NEVER
    return End(max(0.0, learned.seconds - elapsed), Certainty.ESTIMATED)


def run_time(pending: PendingSession, durations: Durations) -> End:
    """Return the run time of a pending session: the learned time, but at most its limit."""
    limit = (
        NEVER
        if pending.max_run_seconds is None
        else End(float(pending.max_run_seconds), Certainty.KNOWN)
    )
    learned = durations.median(pending.kind)
    if learned is None or learned.seconds >= limit.seconds:
        return limit
    return End(learned.seconds, Certainty.ESTIMATED)
