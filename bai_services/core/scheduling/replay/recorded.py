"""Convert the recorded sessions and agents of a resource group into the workload of a replay."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from math import floor
from statistics import median_low
from types import MappingProxyType

from ..caps import Scope, ScopeCaps
from ..placement import AgentState, Placement, Request
from ..queue import DailyUsage
from ..queue.durations import Durations
from .simulate import EPOCH, Conditions, Start
from .workload import Job

# Run time of a session of unknown duration if no session of the record has ended.
DEFAULT_SECONDS = 3600


class Gap(StrEnum):
    """A limitation of a replay: a fact that the record does not contain."""

    BEHAVIOUR = "behaviour"
    STILL_RUNNING = "still-running"
    NEVER_STARTED = "never-started"
    AGENTS_GONE = "agents-gone"
    AGENTS_TODAY = "agents-today"
    PLACED_AGAIN = "placed-again"
    DEPENDENCIES = "dependencies"
    QUOTAS_TODAY = "quotas-today"


# Messages for administrators; each is shown with the number of affected sessions, agents or quotas.
GAP_MESSAGES: Mapping[Gap, str] = MappingProxyType(
    {
        Gap.BEHAVIOUR: "Users would have created or cancelled other sessions under another policy",
        Gap.STILL_RUNNING: "Sessions that have not ended: their run times are estimated",
        Gap.NEVER_STARTED: "Sessions that never started: their run times are estimated",
        Gap.AGENTS_GONE: "Sessions that ran on agents that no longer exist: the replay does not "
        "have these agents",
        Gap.AGENTS_TODAY: "Agents have their current devices and capacity during the whole period",
        Gap.PLACED_AGAIN: "Sessions that were placed more than once: only the last placement is "
        "known",
        Gap.DEPENDENCIES: "Sessions become ready at the recorded end of their dependencies",
        Gap.QUOTAS_TODAY: "Quotas are the current ones and do not count usage in other resource "
        "groups; sessions keep their last priority",
    }
)


@dataclass(frozen=True, slots=True)
class RecordedSession:
    """A recorded session.

    ``placed_at`` is the time of the last placement; None: never placed, or pending again.
    ``freed_at`` is the time at which the resources were released; None: still in use. ``ended_at``
    is the end of a session that is no longer live. ``ready_at`` is the earliest possible start: the
    requested start (``starts_at``) or the end of the last dependency, whichever is later. It is
    None if the session has neither. ``is_blocked``: a dependency has not ended with success.
    """

    id: str
    created_at: datetime
    placed_at: datetime | None
    freed_at: datetime | None
    ended_at: datetime | None
    request: Request
    priority: int
    domain: str
    project: str
    user: str
    keypair: str
    kind: str
    placements: tuple[Placement, ...] = ()
    placement_count: int = 0
    ready_at: datetime | None = None
    limit_seconds: int | None = None
    has_dependencies: bool = False
    is_blocked: bool = False
    job_priority: int = 0
    is_preemptible: bool = True


@dataclass(frozen=True, slots=True)
class RecordedAgent:
    """An agent with its current devices.

    ``left_at``: when the agent was lost or terminated; None: it is alive. The time at which an
    agent began to drain is not recorded.
    """

    state: AgentState
    joined_at: datetime
    left_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Record:
    """The record of a resource group.

    ``sessions`` are the sessions that were live during the period. ``durations`` are run times of
    sessions that ended before the period, ``usage`` is the daily usage before it (days since
    1970-01-01). ``names`` maps ids of projects and users to their names.
    """

    group: str
    sessions: Sequence[RecordedSession]
    agents: Sequence[RecordedAgent]
    caps: Mapping[Scope, ScopeCaps] = field(default_factory=dict)
    durations: Mapping[str, Sequence[int]] = field(default_factory=dict)
    usage: Mapping[Scope, Sequence[DailyUsage]] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RecordedWorkload:
    """The input of a replay, and the recorded starts.

    Seconds count from ``origin``, a midnight (UTC). Jobs in ``conditions.starts`` were already
    running at the beginning of the period. ``history`` contains the recorded start of every job
    that was placed.
    """

    group: str
    origin: datetime
    end: int
    jobs: tuple[Job, ...]
    agents: tuple[AgentState, ...]
    conditions: Conditions
    history: Mapping[str, Start]
    gaps: Mapping[Gap, int]
    names: Mapping[str, str] = field(default_factory=dict)

    @property
    def begin(self) -> int:
        return self.conditions.begin or 0


def workload_of(
    record: Record, since: datetime, until: datetime, now: datetime
) -> RecordedWorkload:
    """Return the workload of the period from ``since`` to ``until``.

    The result contains the sessions that were created before ``until`` and had not ended at
    ``since``. A session that was cancelled before it started leaves the queue at that time, unless
    the replay starts it earlier. Sessions that were never placed and have an unmet dependency are
    omitted.

    An unknown run time is estimated: ``Durations.median`` of the session's kind, or the median of
    all kinds if no session of the kind has ended. The estimate is at most the limit of the session,
    but at least its elapsed time.
    """
    origin = since.replace(hour=0, minute=0, second=0, microsecond=0)
    begin = _seconds(since, origin)
    chosen = [s for s in record.sessions if _is_in(s, since, until)]
    chosen.sort(key=lambda s: (s.created_at, s.id))
    present = {agent.state.id for agent in record.agents}
    estimates = _Estimates(record.durations, chosen)
    gaps: Counter[Gap] = Counter()
    jobs, history = [], {}
    for session in chosen:
        seconds = _known_seconds(session, origin)
        if seconds is None:
            seconds = estimates.seconds_of(session, now)
            is_running = session.placed_at is not None
            gaps[Gap.STILL_RUNNING if is_running else Gap.NEVER_STARTED] += 1
        jobs.append(_job(session, origin, seconds))
        gaps[Gap.PLACED_AGAIN] += session.placement_count > 1
        gaps[Gap.DEPENDENCIES] += session.has_dependencies
        if session.placed_at is not None:
            places = tuple(p for p in session.placements if p.agent_id in present)
            gaps[Gap.AGENTS_GONE] += len(places) < len(session.placements)
            history[session.id] = Start(_seconds(session.placed_at, origin), places)
    gaps[Gap.BEHAVIOUR] = len(jobs)
    gaps[Gap.AGENTS_TODAY] = len(record.agents)
    gaps[Gap.QUOTAS_TODAY] = len(record.caps)
    return RecordedWorkload(
        group=record.group,
        origin=origin,
        end=_seconds(until, origin),
        jobs=tuple(jobs),
        agents=tuple(
            replace(agent.state.emptied(), is_alive=True, is_schedulable=True)
            for agent in record.agents
        ),
        conditions=Conditions(
            begin=begin,
            starts={key: start for key, start in history.items() if start.seconds < begin},
            joined={a.state.id: _seconds(a.joined_at, origin) for a in record.agents},
            left=_left(record.agents, chosen, origin),
            caps=record.caps,
            durations=record.durations,
            usage=_shifted(record.usage, origin),
        ),
        history=history,
        gaps={gap: gaps[gap] for gap in Gap if gaps[gap]},
        names=record.names,
    )


def _is_in(session: RecordedSession, since: datetime, until: datetime) -> bool:
    if session.is_blocked and session.placed_at is None:
        return False
    ended = session.freed_at if session.placed_at is not None else session.ended_at
    return session.created_at < until and (ended is None or ended > since)


def _seconds(at: datetime, origin: datetime) -> int:
    return floor((at - origin).total_seconds())


def _known_seconds(session: RecordedSession, origin: datetime) -> int | None:
    if session.placed_at is None or session.freed_at is None:
        return None
    # Both times are rounded first, so that the replay frees resources in the recorded second.
    return max(0, _seconds(session.freed_at, origin) - _seconds(session.placed_at, origin))


def _job(session: RecordedSession, origin: datetime, seconds: int) -> Job:
    request, ready = session.request, session.ready_at
    cancelled_at = session.ended_at if session.placed_at is None else None
    return Job(
        id=session.id,
        submitted=_seconds(session.created_at, origin),
        seconds=seconds,
        slots=request.slots,
        user=session.user,
        project=session.project,
        domain=session.domain,
        kernels=request.kernels,
        mode=request.mode,
        limit=session.limit_seconds,
        priority=session.priority,
        kind=session.kind,
        architecture=request.architecture,
        keypair=session.keypair,
        not_before=None if ready is None else _seconds(ready, origin),
        cancelled=None if cancelled_at is None else _seconds(cancelled_at, origin),
        request=request,
        job_priority=session.job_priority,
        is_preemptible=session.is_preemptible,
    )


class _Estimates:
    """Estimates of unknown run times."""

    def __init__(
        self, earlier: Mapping[str, Sequence[int]], sessions: Iterable[RecordedSession]
    ) -> None:
        self._durations = Durations(earlier)
        known = [seconds for of_kind in earlier.values() for seconds in of_kind]
        for session in sessions:
            if session.placed_at is not None and session.freed_at is not None:
                seconds = int((session.freed_at - session.placed_at).total_seconds())
                self._durations.add(session.kind, seconds)
                known.append(seconds)
        self._overall = median_low(known) if known else DEFAULT_SECONDS

    def seconds_of(self, session: RecordedSession, now: datetime) -> int:
        elapsed = 0.0
        if session.placed_at is not None:
            elapsed = max(0.0, (now - session.placed_at).total_seconds())
        learned = self._durations.median(session.kind, elapsed)
        seconds = self._overall if learned is None else int(learned.seconds)
        if session.limit_seconds is not None:
            seconds = min(seconds, session.limit_seconds)
        return max(1, floor(elapsed), seconds)


def _left(
    agents: Iterable[RecordedAgent], sessions: Iterable[RecordedSession], origin: datetime
) -> dict[str, int]:
    """Return the time at which each lost, terminated or draining agent stopped accepting sessions.

    For a draining agent, this is 1 s after its last recorded placement. Without a placement, it is
    1 s after the agent joined.
    """
    last: dict[str, datetime] = {}
    for session in sessions:
        for placement in session.placements:
            at = session.placed_at
            if at is not None:
                last[placement.agent_id] = max(last.get(placement.agent_id, at), at)
    left = {}
    for agent in agents:
        state, at = agent.state, agent.left_at
        if at is None and not state.is_schedulable:
            at = last.get(state.id, agent.joined_at) + timedelta(seconds=1)
        if at is not None:
            left[state.id] = _seconds(at, origin)
    return left


def _shifted(
    usage: Mapping[Scope, Sequence[DailyUsage]], origin: datetime
) -> dict[Scope, tuple[DailyUsage, ...]]:
    """Shift the days of the usage so that ``origin`` becomes ``EPOCH``, as in the replay."""
    shift = (origin - EPOCH).days
    return {
        scope: tuple(DailyUsage(day - shift, slots) for day, slots in days)
        for scope, days in usage.items()
    }
