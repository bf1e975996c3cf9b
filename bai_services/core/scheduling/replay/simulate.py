"""Replay a workload through the scheduler's queue; the clock jumps from event to event."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from enum import IntEnum
from heapq import heappop, heappush
from typing import NamedTuple

from ...resources import ResourceSlots
from ..caps import Scope, ScopeCaps, ScopeKind
from ..placement import AgentState, Mode, Placement, Request, Strategy, build_tables
from ..preemption.options import PreemptionMode
from ..queue import (
    Changes,
    DailyUsage,
    Decision,
    GroupState,
    Order,
    PendingSession,
    Queue,
    Reason,
    Reservation,
    RunningSession,
    Snapshot,
)
from ..queue.durations import Durations
from ..queue.explain import explain_group
from ..queue.model import DEFAULT_PRIORITY
from .daily_usage import UsageByDay
from .workload import GROUP, Job

# Simulated time at second 0 of the record.
EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
# Approximate number of samples of the group's state between the first and the last submission.
_SAMPLES = 1000
# Maximum number of latest requests from which the mix is learned, as in the manager.
_RECENT = 2000
# Minimum fraction of the replay between two reports of progress.
_PROGRESS_STEP = 0.01


class Start(NamedTuple):
    """A job's start that the caller sets, instead of the queue."""

    seconds: int
    placements: tuple[Placement, ...]


@dataclass(frozen=True, slots=True)
class Conditions:
    """State of the group before the replay, and events that the policy does not decide.

    A job in ``starts`` starts at the time and placements given there. Events before ``begin``
    (None: the first submission) are applied at ``begin``. ``joined`` and ``left`` are times in
    seconds by agent id; an agent without an entry is always available. ``durations`` are run times
    of sessions that ended before the replay. ``usage`` is the daily usage before the replay, in the
    form of ``Snapshot.history`` for one resource group.
    """

    begin: int | None = None
    starts: Mapping[str, Start] = field(default_factory=dict)
    joined: Mapping[str, int] = field(default_factory=dict)
    left: Mapping[str, int] = field(default_factory=dict)
    caps: Mapping[Scope, ScopeCaps] = field(default_factory=dict)
    durations: Mapping[str, Sequence[int]] = field(default_factory=dict)
    usage: Mapping[Scope, Sequence[DailyUsage]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of a job; ``started`` is the second of its start, None if the job never started."""

    job: Job
    started: int | None
    placements: tuple[Placement, ...] = ()

    @property
    def waited(self) -> int | None:
        return None if self.started is None else self.started - self.job.ready


@dataclass(frozen=True, slots=True)
class Sample:
    """State of the group at a time (seconds from the origin of the record).

    ``fragmentation`` is a fraction from 0 to 1; see ``Placer.fragmentation``.
    """

    seconds: int
    pending: int
    running: int
    fragmentation: float


@dataclass(frozen=True, slots=True)
class Replay:
    """Result of a replay.

    ``reasons`` explains why jobs were still pending at the end. ``first_reservations`` holds the
    first reservation of each job that had one, and its time in seconds. ``preemptions``: number of
    preemptions; ``lost_seconds``: total run time that jobs lost through preemption.
    """

    agents: tuple[AgentState, ...]
    outcomes: tuple[Outcome, ...]
    samples: tuple[Sample, ...]
    reasons: Mapping[str, tuple[Reason, ...]]
    first_reservations: Mapping[str, tuple[int, Reservation]]
    passes: int
    preemptions: int = 0
    lost_seconds: int = 0


class _Kind(IntEnum):
    """Kinds of events; ``_changes`` reads the events of one second in this order."""

    AGENT_LEFT = 0
    AGENT_JOINED = 1
    STARTED = 2
    READY = 3
    CANCELLED = 4


class _Event(NamedTuple):
    """An event that is known before the replay; ``subject``: the id of a job or an agent."""

    seconds: int
    kind: _Kind
    number: int
    subject: str


@dataclass(slots=True)
class _World:
    """State of the simulation outside the queue."""

    started: dict[str, tuple[int, tuple[Placement, ...]]] = field(default_factory=dict)
    # Ends of jobs as a heap; an entry counts only if it is also in ``ends_at``.
    ends: list[tuple[int, str]] = field(default_factory=list)
    ends_at: dict[str, int] = field(default_factory=dict)
    # Stops of victims: (second, victim, session for which it is stopped), as a heap.
    stops: list[tuple[int, str, str]] = field(default_factory=list)
    preemptions: int = 0
    lost_seconds: int = 0
    first_reservations: dict[str, tuple[int, Reservation]] = field(default_factory=dict)
    samples: list[Sample] = field(default_factory=list)
    passes: int = 0


# Function that receives the finished fraction of a replay, 0.0 to 1.0.
OnProgress = Callable[[float], None]


def ignore_progress(part: float) -> None:
    """Do nothing: the default for ``OnProgress``."""


def replay(
    jobs: Sequence[Job],
    agents: Sequence[AgentState],
    state: GroupState,
    *,
    strategy: Strategy = Strategy.EVENLY,
    allow_fragmentation: bool = False,
    conditions: Conditions | None = None,
    on_progress: OnProgress = ignore_progress,
) -> Replay:
    """Replay a workload under the options of a resource group; deterministic.

    Jobs arrive, start in a pass, and end after their recorded run time. A pass runs in each second
    with an event, and when the previous pass requests one. Run-time predictions are updated when
    jobs end. The queue receives the fair-share usage of ended jobs at most once per hour. If
    ``state`` has no price tables, they are computed from the requests of the workload. Without
    ``conditions``, all agents are empty at the start.
    """
    driver = _Driver(jobs, agents, state, strategy, allow_fragmentation, conditions or Conditions())
    driver.run(on_progress)
    return driver.result()


class _Driver:
    def __init__(
        self,
        jobs: Sequence[Job],
        agents: Sequence[AgentState],
        state: GroupState,
        strategy: Strategy,
        allow_fragmentation: bool,
        conditions: Conditions,
    ) -> None:
        self._jobs = {job.id: job for job in jobs}
        self._agents = tuple(replace(agent, resource_group=state.name) for agent in agents)
        self._agent_of = {agent.id: agent for agent in self._agents}
        self._strategy = strategy
        self._allow_fragmentation = allow_fragmentation
        self._conditions = conditions
        self._arrivals = sorted(jobs, key=lambda job: job.submitted)
        self._numbers = {job.id: number for number, job in enumerate(self._arrivals)}
        self._durations = Durations(conditions.durations)
        self._usage_by_day = None
        if state.order is Order.FAIR_SHARE:
            self._usage_by_day = UsageByDay(state.name, earlier=conditions.usage)
        self._requests: dict[Request, Request] = {}
        self._state = state = self._learned(state)
        self._world = _World()
        first = conditions.begin
        if first is None:
            first = self._arrivals[0].submitted if jobs else 0
        last = max(first, self._arrivals[-1].submitted) if jobs else first
        self._sample_every = max(1, (last - first) // _SAMPLES)
        self._sample_at = first
        present = tuple(
            agent
            for agent in self._agents
            if conditions.joined.get(agent.id, first) <= first
            and conditions.left.get(agent.id, first + 1) > first
        )
        self._events = self._events_from(first)
        self._next = 0
        self._started: list[RunningSession] = []
        self._queue = Queue(
            Snapshot(
                (),
                present,
                caps=conditions.caps,
                groups={state.name: state},
                now=_at(first),
                durations=self._durations,
            )
        )

    def _events_from(self, first: int) -> list[_Event]:
        conditions = self._conditions
        events = [
            _Event(at, kind, 0, agent)
            for kind, times in (
                (_Kind.AGENT_JOINED, conditions.joined),
                (_Kind.AGENT_LEFT, conditions.left),
            )
            for agent, at in times.items()
            if at > first
        ]
        for number, job in enumerate(self._arrivals):
            start = conditions.starts.get(job.id)
            if start is not None:
                events.append(_Event(max(first, start.seconds), _Kind.STARTED, number, job.id))
                continue
            events.append(_Event(max(first, job.ready), _Kind.READY, number, job.id))
            if job.cancelled is not None:
                at = max(first, job.cancelled)
                events.append(_Event(at, _Kind.CANCELLED, number, job.id))
        return sorted(events)

    def _learned(self, state: GroupState) -> GroupState:
        """Return the group with price tables computed from the latest requests of the workload.

        Every policy needs the tables, because they define the measured fragmentation.
        """
        if state.tables is not None:
            return state
        jobs = self._arrivals[-_RECENT:]
        recent = [self._request(job, state.name) for job in jobs]
        seconds = [float(job.seconds) for job in jobs]
        return replace(state, tables=build_tables(recent, self._agents, seconds))

    def run(self, on_progress: OnProgress) -> None:
        """Run until no event remains."""
        world = self._world
        wake: int | None = None
        reported = 0.0
        while True:
            times = [heap[0][0] for heap in (world.ends, world.stops) if heap]
            if self._next < len(self._events):
                times.append(self._events[self._next].seconds)
            if wake is not None and times:
                times.append(wake)
            if not times:
                return
            wake = self._step(min(times))
            part = self._next / max(1, len(self._events))
            if part - reported >= _PROGRESS_STEP:
                reported = part
                on_progress(part)

    def _step(self, seconds: int) -> int | None:
        """Simulate one second; return when the queue requests the next pass, or None."""
        world, queue = self._world, self._queue
        removed = self._ended(seconds)
        preempted = self._preempted(seconds)
        history = None
        if self._usage_by_day is not None and self._usage_by_day.is_due(seconds):
            history = self._usage_by_day.history()
        changes = self._changes(seconds, [*removed, *preempted])
        if self._state.preemption.mode is PreemptionMode.RESCHEDULE:
            # Preempted jobs restart; they keep their positions in the queue.
            again = tuple(self._pending(self._jobs[key]) for key in preempted)
            changes = replace(changes, pending=(*changes.pending, *again))
        # Agents are added first, because sessions of the second call may run on the new agents.
        queue.apply(Changes(agents=changes.agents))
        queue.apply(replace(changes, agents=(), history=history))
        result = queue.run(_at(seconds), explains=False)
        world.passes += 1
        for decision in result.decisions:
            self._start(decision, seconds)
        for preemption in result.preemptions:
            stops_at = int((preemption.plan.stops_at - EPOCH).total_seconds())
            for victim in preemption.plan.victim_ids:
                heappush(world.stops, (max(seconds + 1, stops_at), victim, preemption.session_id))
        for reservation in result.reservations:
            world.first_reservations.setdefault(reservation.session_id, (seconds, reservation))
        if seconds >= self._sample_at:
            self._sample(seconds)
        if result.wake_at is None:
            return None
        # Round up, because the resolution of the replay is one second.
        return max(seconds + 1, -int((EPOCH - result.wake_at).total_seconds() // 1))

    def _ended(self, seconds: int) -> list[str]:
        world, removed = self._world, []
        while world.ends and world.ends[0][0] <= seconds:
            at, session_id = heappop(world.ends)
            if world.ends_at.get(session_id) != at:
                continue  # the job was preempted
            del world.ends_at[session_id]
            self._count_ended(self._jobs[session_id])
            removed.append(session_id)
        return removed

    def _preempted(self, seconds: int) -> list[str]:
        """Return the victims to stop in this second, for sessions that still wait."""
        world, preempted = self._world, []
        while world.stops and world.stops[0][0] <= seconds:
            _, victim, session_id = heappop(world.stops)
            waiting = self._queue.pending(session_id)
            plan = None if waiting is None else waiting.plan
            if plan is None or victim not in plan.victim_ids or victim not in world.ends_at:
                continue
            del world.ends_at[victim]
            world.preemptions += 1
            world.lost_seconds += seconds - world.started[victim][0]
            preempted.append(victim)
        return preempted

    def _count_ended(self, job: Job) -> None:
        self._durations.add(job.kind, job.seconds)
        if self._usage_by_day is not None:
            self._usage_by_day.add(job, self._world.started[job.id][0])

    def _changes(self, seconds: int, removed: list[str]) -> Changes:
        """Return the changes of this second: the sessions in ``removed``, and all due events."""
        pending: dict[str, PendingSession] = {}
        # Sessions that the last pass has started are now running and may be preempted.
        running = [s for s in self._started if s.id in self._world.ends_at]
        self._started = []
        joined: list[AgentState] = []
        left: list[str] = []
        while self._next < len(self._events) and self._events[self._next].seconds <= seconds:
            _, kind, _, subject = self._events[self._next]
            self._next += 1
            match kind:
                case _Kind.AGENT_LEFT:
                    left.append(subject)
                case _Kind.AGENT_JOINED:
                    joined.append(self._agent_of[subject])
                case _Kind.STARTED:
                    job, start = self._jobs[subject], self._conditions.starts[subject]
                    self._world.started[subject] = start
                    if start.seconds + job.seconds > seconds:
                        self._end_at(start.seconds + job.seconds, subject)
                        running.append(self._running(job, start))
                    else:
                        # The job has already ended, so the pass of this second can use its
                        # resources.
                        self._count_ended(job)
                case _Kind.READY:
                    pending[subject] = self._pending(self._jobs[subject])
                case _Kind.CANCELLED:
                    if pending.pop(subject, None) is None and subject not in self._world.started:
                        removed.append(subject)
        return Changes(
            pending=tuple(pending.values()),
            running=running,
            removed=removed,
            agents=joined,
            removed_agents=left,
        )

    def _running(self, job: Job, start: Start) -> RunningSession:
        began = _at(start.seconds)
        return RunningSession(
            job.id,
            self._state.name,
            scopes_of(job, self._state.name),
            start.placements,
            ResourceSlots({slot: n * job.kernels for slot, n in job.slots.items()}),
            began,
            None if job.limit is None else began + timedelta(seconds=job.limit),
            job.kind,
            DEFAULT_PRIORITY if job.priority is None else job.priority,
            job.job_priority,
            job.is_preemptible,
        )

    def _request(self, job: Job, group: str) -> Request:
        if job.request is not None:
            return replace(job.request, resource_group=group)
        return Request(
            job.slots,
            group,
            job.architecture,
            kernels=job.kernels,
            mode=job.mode if job.kernels > 1 else Mode.SINGLE_NODE,
            device_models=job.device_models,
            strategy=self._strategy,
            allow_fragmentation=self._allow_fragmentation,
        )

    def _pending(self, job: Job) -> PendingSession:
        request = self._request(job, self._state.name)
        pending = PendingSession(
            job.id,
            self._numbers[job.id],
            self._requests.setdefault(request, request),
            scopes_of(job, self._state.name),
            created_at=_at(job.submitted),
            max_run_seconds=job.limit,
            kind=job.kind,
            job_priority=job.job_priority,
            is_preemptible=job.is_preemptible,
        )
        return pending if job.priority is None else replace(pending, priority=job.priority)

    def _start(self, decision: Decision, seconds: int) -> None:
        job = self._jobs[decision.session_id]
        self._world.started[job.id] = (seconds, decision.placements)
        self._end_at(seconds + job.seconds, job.id)
        if self._state.preemption.enabled:
            self._started.append(self._running(job, Start(seconds, decision.placements)))

    def _end_at(self, seconds: int, session_id: str) -> None:
        self._world.ends_at[session_id] = seconds
        heappush(self._world.ends, (seconds, session_id))

    def _sample(self, seconds: int) -> None:
        world = self._world
        group_queue = self._queue.group_queue(self._state.name)
        world.samples.append(
            Sample(
                seconds,
                self._queue.count_pending(),
                len(world.ends_at),
                group_queue.placer.fragmentation(),
            )
        )
        self._sample_at = seconds + self._sample_every

    def result(self) -> Replay:
        world = self._world
        explain_group(self._queue.group_queue(self._state.name))
        remaining = set(self._queue.pending_ids())
        nothing: tuple[None, tuple[Placement, ...]] = (None, ())
        outcomes = [Outcome(job, *world.started.get(job.id, nothing)) for job in self._arrivals]
        return Replay(
            self._agents,
            tuple(outcomes),
            tuple(world.samples),
            {
                o.job.id: self._queue.reasons_of(o.job.id)
                for o in outcomes
                if o.started is None and o.job.id in remaining
            },
            world.first_reservations,
            world.passes,
            world.preemptions,
            world.lost_seconds,
        )


def scopes_of(job: Job, group: str = GROUP) -> tuple[Scope, ...]:
    """Return the scopes to which a recorded session is charged."""
    scopes = [
        Scope(ScopeKind.DOMAIN, job.domain),
        Scope(ScopeKind.KEYPAIR, job.keypair),
        Scope(ScopeKind.PROJECT, job.project),
        Scope(ScopeKind.USER, job.user),
    ]
    return (*(scope for scope in scopes if scope.id), Scope(ScopeKind.RESOURCE_GROUP, group))


def _at(seconds: int) -> datetime:
    return EPOCH + timedelta(seconds=seconds)
