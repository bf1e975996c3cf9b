"""A replay of a record makes the same decisions as the passes that produced the record.

The record comes from a simulation that builds a new queue for each pass. All run times are known,
so the replay under the same policy must start the same sessions at the same times.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from bai_services.core.scheduling.caps import ScopeCaps
from bai_services.core.scheduling.placement.pricing.tables import default_tables
from bai_services.core.scheduling.queue import GroupState, PendingSession
from bai_services.core.scheduling.replay.recorded import (
    Record,
    RecordedAgent,
    RecordedSession,
    RecordedWorkload,
    workload_of,
)
from bai_services.core.scheduling.replay.simulate import Replay, replay

from ..estimates.test_estimate_properties import EXAMPLES, World, time_at, worlds
from ..queue.factories import NOW

GROUP = "main"
# Minimum number of sessions that waited, over all examples. If no session waited, the test would
# not cover the order of the queue.
MIN_WAITED = 20
# Fractions of seconds in recorded times. The replay rounds times down to seconds.
FRACTIONS = (timedelta(), timedelta(milliseconds=250), timedelta(milliseconds=999))


@dataclass
class Simulated:
    """A finished simulation of one resource group, and its record."""

    world: World
    record: Record

    @property
    def end(self) -> datetime:
        return time_at(self.world.now + 1)

    def replayed(self, workload: RecordedWorkload) -> Replay:
        rules = self.world.rules
        state = GroupState(
            GROUP,
            order=rules.order,
            placement=rules.policy,
            backfill=rules.backfill,
            tables=default_tables(self.world.agents, rules.policy),
        )
        return replay(workload.jobs, workload.agents, state, conditions=workload.conditions)


def simulated(world: World) -> Simulated:
    """Move all sessions and agents to one group, run the simulation to its end, and record it."""
    world.agents = [replace(agent, resource_group=GROUP) for agent in world.agents]
    world.arrivals = [
        (second, replace(s, request=replace(s.request, resource_group=GROUP)))
        for second, s in world.arrivals
    ]
    placements = {}
    while (queue := world.step()) is not None:
        placements |= {r.id: r.placements for r in queue.all_running()}
    sessions = [
        recorded(world, number, session, placements)
        for number, (_, session) in enumerate(world.arrivals)
    ]
    agents = [RecordedAgent(agent, NOW - timedelta(days=1)) for agent in world.agents]
    caps = {s: ScopeCaps(s, s.id, max_sessions=n) for s, n in world.rules.caps.items()}
    return Simulated(world, Record(GROUP, sessions, agents, caps))


def recorded(world: World, number: int, session: PendingSession, placements) -> RecordedSession:
    fraction = FRACTIONS[number % len(FRACTIONS)]
    seconds = session.max_run_seconds
    assert seconds is not None
    started = world.started.get(session.id)
    ready = [session.not_before] if session.not_before else []
    ready += [ended for d in session.dependency_ids if (ended := ended_at(world, d)) is not None]
    user, project = (scope.id for scope in session.scopes)
    return RecordedSession(
        id=session.id,
        # Keep the order of sessions that were created in the same second.
        created_at=time_at(world.arrived_at[session.id]) + timedelta(microseconds=number),
        placed_at=None if started is None else time_at(started) + fraction,
        freed_at=None if started is None else time_at(started + seconds) + fraction,
        ended_at=None if started is None else time_at(started + seconds) + fraction,
        request=session.request,
        priority=session.priority,
        domain="",
        project=project,
        user=user,
        keypair="",
        # Each session has a different kind, so that no run time is learned from other sessions.
        kind=session.id,
        placements=placements.get(session.id, ()),
        placement_count=int(started is not None),
        ready_at=max(ready, default=None),
        limit_seconds=seconds,
        has_dependencies=bool(session.dependency_ids),
        is_blocked=any(ended_at(world, d) is None for d in session.dependency_ids),
    )


def ended_at(world: World, session_id: str) -> datetime | None:
    started = world.started.get(session_id)
    if started is None:
        return None
    seconds = next(s.max_run_seconds for _, s in world.arrivals if s.id == session_id)
    assert seconds is not None
    return time_at(started + seconds)


def starts_in(replayed: Replay, workload: RecordedWorkload) -> dict[str, tuple[datetime, object]]:
    return {
        o.job.id: (workload.origin + timedelta(seconds=o.started), o.placements)
        for o in replayed.outcomes
        if o.started is not None
    }


def starts_in_record(found: Simulated, workload: RecordedWorkload) -> dict[str, object]:
    chosen = {job.id for job in workload.jobs}
    return {
        s.id: (time_at(found.world.started[s.id]), s.placements)
        for s in found.record.sessions
        if s.id in chosen and s.placed_at is not None
    }


def test_replay_under_the_same_policy_reproduces_the_recorded_starts() -> None:
    """The replayed period starts at the start of the record, or later."""
    waited = 0

    @EXAMPLES
    @given(worlds(arrive=True), st.sampled_from([0, 0, 0.2, 0.5, 0.8]))
    def check(world: World, part: float) -> None:
        nonlocal waited
        found = simulated(world)
        since = time_at(int(part * world.now))
        workload = workload_of(found.record, since, found.end, found.end)
        replayed = found.replayed(workload)
        assert starts_in(replayed, workload) == starts_in_record(found, workload)
        decided = [o for o in replayed.outcomes if o.job.id not in workload.conditions.starts]
        waited += sum(1 for o in decided if o.waited)

    check()
    assert waited >= MIN_WAITED
