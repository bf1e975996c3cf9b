"""Times since the last heartbeats of agents, by the monotonic clock of this manager."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from bai_services.core.sessions.lost_agents import MAX_REQUEUE_SECONDS

KEPT_SECONDS = 2.0 * MAX_REQUEUE_SECONDS


class HeartbeatTimes:
    """Measures the time since the last heartbeat (the silence) without the system clocks of
    managers, which may be wrong.

    The silence begins when this manager receives a heartbeat or, if another manager has received
    it, when this manager first reads its time from the database.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        # By agent: the time of the heartbeat in the database, and the monotonic start of the
        # silence.
        self._current: dict[str, tuple[datetime, float]] = {}
        self._silent: dict[str, tuple[datetime, float]] = {}

    @property
    def count(self) -> int:
        """The number of agents whose heartbeats this manager receives."""
        return len(self._current)

    def receive(self, agent_id: str, at: datetime) -> None:
        """Record a heartbeat that is stored with the time ``at``."""
        self._current[agent_id] = at, self._monotonic()
        self._silent.pop(agent_id, None)

    def silent_seconds(self, agent_id: str, last_heartbeat_at: datetime) -> float:
        """Return how long an agent has certainly sent no heartbeat after the stored one."""
        now = self._monotonic()
        for known in (self._current.get(agent_id), self._silent.get(agent_id)):
            if known is not None and known[0] == last_heartbeat_at:
                return now - known[1]
        self._silent[agent_id] = last_heartbeat_at, now
        return 0.0

    def forget(self) -> None:
        """Restart all measurements. Call this after a time in which this manager could not receive
        heartbeats.
        """
        self._current.clear()
        self._silent.clear()

    def clean_up(self, deadline_seconds: float) -> None:
        """Stop counting agents that are silent for longer than the deadline."""
        now = self._monotonic()
        late = [key for key, (_, at) in self._current.items() if now - at > deadline_seconds]
        self._silent |= {key: self._current.pop(key) for key in late}
        self._silent = {k: v for k, v in self._silent.items() if now - v[1] <= KEPT_SECONDS}
