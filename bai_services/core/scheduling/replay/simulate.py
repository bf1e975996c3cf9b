"""Replay a workload through the scheduler's queue; the clock jumps from event to event."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from heapq import heappop, heappush

from ..caps import Scope, ScopeKind
from ..placement import AgentState, Mode, Placement, Request, Strategy, build_tables
from ..queue import (
    Changes,
    Decision,
    GroupState,
    Order,
    PendingSession,
    Queue,
    Reason,
    Reservation,
    Snapshot,
)
from ..queue.durations import Durations
from ..queue.explain import explain_group
from .ledger import Ledger
from .workload import GROUP, Job

# Simulated time at second 0 of the record.
EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
# Maximum number of usage samples, evenly spaced over the replay.
_SAMPLES = 1000
# Number of the latest requests from which a mix is learned, as in the manager.
_RECENT = 2000


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of a job; ``started`` is None if the job never started."""

    job: Job
    started: int | None
    placements: tuple[Placement, ...] = ()

    @property
    def waited(self) -> int | None:
        return None if self.started is None else self.started - self.job.submitted


@dataclass(frozen=True, slots=True)
class Sample:
    """State of the group at a time (seconds from the origin of the record)."""

    seconds: int
    pending: int
    running: int
    fragmentation: float


@dataclass(frozen=True, slots=True)
class Replay:
    """Result of a replay.

    ``reasons`` explains the jobs that never started. ``promises`` holds the first reservation of
    each job, and its time in seconds.
    """

    agents: tuple[AgentState, ...]
    outcomes: tuple[Outcome, ...]
    samples: tuple[Sample, ...]
    reasons: Mapping[str, tuple[Reason, ...]]
    promises: Mapping[str, tuple[int, Reservation]]
    passes: int


@dataclass(slots=True)
class _World:
    """State of the simulation outside the queue."""

    started: dict[str, tuple[int, tuple[Placement, ...]]] = field(default_factory=dict)
    ends: list[tuple[int, str]] = field(default_factory=list)
    promises: dict[str, tuple[int, Reservation]] = field(default_factory=dict)
    samples: list[Sample] = field(default_factory=list)
    passes: int = 0


def replay(
    jobs: Sequence[Job],
    agents: Sequence[AgentState],
    state: GroupState,
    *,
    strategy: Strategy = Strategy.EVENLY,
    allow_fragmentation: bool = False,
) -> Replay:
    """Replay a workload on empty agents under the options of a resource group; deterministic.

    Jobs arrive, start in a pass, and end after their recorded run time. A pass runs in each second
    with an event. Run times and shares are learned during the replay, as in production. Policies
    that need a mix of requests use the mix of the workload.
    """
    driver = _Driver(jobs, agents, state, strategy, allow_fragmentation)
    driver.run()
    return driver.result()


class _Driver:
    def __init__(
        self,
        jobs: Sequence[Job],
        agents: Sequence[AgentState],
        state: GroupState,
        strategy: Strategy,
        allow_fragmentation: bool,
    ) -> None:
        self._jobs = {job.id: job for job in jobs}
        self._agents = tuple(replace(agent, resource_group=state.name) for agent in agents)
        self._strategy = strategy
        self._allow_fragmentation = allow_fragmentation
        self._arrivals = sorted(jobs, key=lambda job: job.submitted)
        self._next = 0
        self._durations = Durations()
        self._ledger = Ledger(state.name) if state.order is Order.FAIR_SHARE else None
        self._requests: dict[Request, Request] = {}
        self._state = state = self._learned(state)
        self._world = _World()
        first = self._arrivals[0].submitted if jobs else 0
        span = self._arrivals[-1].submitted - first if jobs else 0
        self._sample_every = max(1, span // _SAMPLES)
        self._sample_at = first
        self._queue = Queue(
            Snapshot(
                (),
                self._agents,
                groups={state.name: state},
                now=_at(first),
                durations=self._durations,
            )
        )

    def _learned(self, state: GroupState) -> GroupState:
        """Return the group with tables of its mix. They define fragmentation, which is measured
        under every policy.
        """
        if state.tables is not None:
            return state
        jobs = self._arrivals[-_RECENT:]
        recent = [self._request(job, state.name) for job in jobs]
        seconds = [float(job.seconds) for job in jobs]
        return replace(state, tables=build_tables(recent, self._agents, seconds))

    def run(self) -> None:
        """Run until no event remains."""
        world = self._world
        wake: int | None = None
        while True:
            times = [world.ends[0][0]] if world.ends else []
            if self._next < len(self._arrivals):
                times.append(self._arrivals[self._next].submitted)
            if wake is not None and times:
                times.append(wake)
            if not times:
                return
            wake = self._step(min(times))

    def _step(self, seconds: int) -> int | None:
        """Simulate one second; return when the next pass is due if there is no event before."""
        world, queue = self._world, self._queue
        removed = self._ended(seconds)
        history = None
        if self._ledger is not None and self._ledger.is_due(seconds):
            history = self._ledger.history()
        queue.apply(Changes(pending=self._arrived(seconds), removed=removed, history=history))
        result = queue.run(_at(seconds), explains=False)
        world.passes += 1
        for decision in result.decisions:
            self._start(decision, seconds)
        for reservation in result.reservations:
            world.promises.setdefault(reservation.session_id, (seconds, reservation))
        if seconds >= self._sample_at:
            self._sample(seconds)
        if result.wake_at is None:
            return None
        # Rounded up, because the resolution of the replay is one second.
        return max(seconds + 1, -int((EPOCH - result.wake_at).total_seconds() // 1))

    def _ended(self, seconds: int) -> list[str]:
        world, removed = self._world, []
        while world.ends and world.ends[0][0] <= seconds:
            _, session_id = heappop(world.ends)
            job = self._jobs[session_id]
            self._durations.add(job.kind, job.seconds)
            if self._ledger is not None:
                self._ledger.add(job, world.started[session_id][0])
            removed.append(session_id)
        return removed

    def _arrived(self, seconds: int) -> list[PendingSession]:
        found = []
        while self._next < len(self._arrivals):
            job = self._arrivals[self._next]
            if job.submitted > seconds:
                break
            found.append(self._pending(job))
            self._next += 1
        return found

    def _request(self, job: Job, group: str) -> Request:
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
            self._next,
            self._requests.setdefault(request, request),
            scopes_of(job, self._state.name),
            created_at=_at(job.submitted),
            max_run_seconds=job.limit,
            kind=job.kind,
        )
        return pending if job.priority is None else replace(pending, priority=job.priority)

    def _start(self, decision: Decision, seconds: int) -> None:
        job = self._jobs[decision.session_id]
        self._world.started[job.id] = (seconds, decision.placements)
        heappush(self._world.ends, (seconds + job.seconds, job.id))

    def _sample(self, seconds: int) -> None:
        world = self._world
        group_queue = self._queue.group_queue(self._state.name)
        world.samples.append(
            Sample(
                seconds,
                self._queue.count_pending(),
                len(world.ends),
                group_queue.placer.fragmentation(),
            )
        )
        self._sample_at = seconds + self._sample_every

    def result(self) -> Replay:
        world = self._world
        explain_group(self._queue.group_queue(self._state.name))
        nothing: tuple[None, tuple[Placement, ...]] = (None, ())
        outcomes = [Outcome(job, *world.started.get(job.id, nothing)) for job in self._arrivals]
        return Replay(
            self._agents,
            tuple(outcomes),
            tuple(world.samples),
            {o.job.id: self._queue.reasons_of(o.job.id) for o in outcomes if o.started is None},
            world.promises,
            world.passes,
        )


def scopes_of(job: Job, group: str = GROUP) -> tuple[Scope, ...]:
    """Return the scopes to which a recorded session is charged."""
    found = [
        Scope(ScopeKind.DOMAIN, job.domain),
        Scope(ScopeKind.PROJECT, job.project),
        Scope(ScopeKind.USER, job.user),
    ]
    return (*(scope for scope in found if scope.id), Scope(ScopeKind.RESOURCE_GROUP, group))


def _at(seconds: int) -> datetime:
    return EPOCH + timedelta(seconds=seconds)
