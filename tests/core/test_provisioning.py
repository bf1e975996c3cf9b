"""Provisioned machines: when they are started and stopped."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bai_services.core.cluster.group_options import GroupOptions, check_options
from bai_services.core.cluster.model import AgentStatus
from bai_services.core.cluster.provisioning import (
    COMING,
    ENDED,
    TRANSITIONS,
    Decision,
    Limit,
    MachineEvent,
    MachineReason,
    MachineState,
    MachineStatus,
    ProvisionedMachine,
    ProvisioningOptions,
    decide,
    next_status,
)
from bai_services.core.errors import InvalidRequest, InvalidTransition
from bai_services.core.resources import ResourceSlots
from bai_services.core.scheduling.caps import ScopeCaps
from bai_services.core.scheduling.machine_demand import machines_needed
from bai_services.core.scheduling.queue import Queue
from tests.core.queue.factories import ANN, BOB, agent, pending_session, request, snapshot

NOW = datetime(2030, 1, 1, 12, tzinfo=UTC)
SLOTS = ResourceSlots.parse({"cpu": "4", "mem": "8g", "cuda.shares": "2"})
OPTIONS = ProvisioningOptions(
    machine=SLOTS, maximum=4, starts_per_hour=50, idle_seconds=60, join_seconds=120
)
S, E = MachineStatus, MachineEvent


def machine(status: MachineStatus, name: str = "m1", age: float = 0, **facts: Any) -> MachineState:
    at = NOW - timedelta(seconds=age)
    state = {key: facts.pop(key) for key in ("idle_since", "agent_status") if key in facts}
    has_joined = status not in COMING
    record = ProvisionedMachine(
        id=name,
        created_at=at,
        resource_group="main",
        status=status,
        status_changed_at=at,
        slots=SLOTS,
        reference=name,
        agent_id=f"agent-{name}" if has_joined else None,
        joined_at=at if has_joined else None,
        reason=facts.pop("reason", ""),
        message="",
    )
    return MachineState(record, **state)


def decided(*machines: MachineState, demand: int = 0, **options: Any) -> Decision:
    return decide(replace(OPTIONS, **options), machines, demand, 0, None, NOW)


def ago(seconds: float) -> datetime:
    return NOW - timedelta(seconds=seconds)


def test_every_machine_can_end() -> None:
    for status in MachineStatus:
        reached, before = {status}, set()
        while reached != before:
            before = reached
            reached = before | {to for (at, _), to in TRANSITIONS.items() if at in before}
        assert reached & ENDED
        assert (reached == {status}) == (status in ENDED)
    with pytest.raises(InvalidTransition):
        next_status(S.RUNNING, E.EMPTIED)


def test_missing_machines_are_started() -> None:
    assert decided(demand=3) == Decision(3)
    # A machine that is being started counts for a part of the demand.
    assert decided(machine(S.STARTING), machine(S.REQUESTED, "m2"), demand=3).starts == 1
    # A machine whose agent has just joined counts, too.
    assert decided(machine(S.RUNNING, age=5, idle_since=ago(5)), demand=1).starts == 0
    assert decided(machine(S.RUNNING, age=50, idle_since=ago(50)), demand=1).starts == 1
    assert decided(minimum=2).starts == 2


@pytest.mark.parametrize(
    ("options", "recent", "failed_ago", "starts", "limit"),
    [
        pytest.param({}, 0, None, 4, Limit.MAXIMUM, id="maximum"),
        pytest.param({}, 47, None, 3, Limit.STARTS_PER_HOUR, id="starts per hour"),
        pytest.param({}, 0, 100, 0, Limit.COOLDOWN, id="cool-down"),
        pytest.param({}, 0, 130, 4, Limit.MAXIMUM, id="after the cool-down"),
        pytest.param({"maximum": 0}, 0, None, 0, None, id="off"),
        pytest.param({"maximum": 90}, 0, None, 9, None, id="enough"),
    ],
)
def test_number_of_started_machines_is_limited(
    options: dict[str, int], recent: int, failed_ago: int | None, starts: int, limit: Limit | None
) -> None:
    failed = None if failed_ago is None else ago(failed_ago)
    found = decide(replace(OPTIONS, **options), [], 9, recent, failed, NOW)
    assert found == Decision(starts, (), limit)


def test_idle_machines_are_drained_and_empty_ones_are_stopped() -> None:
    idle = machine(S.RUNNING, idle_since=ago(60))
    assert decided(idle).events == (("m1", E.DRAINED),)
    assert decided(idle, minimum=1).events == ()
    assert decided(idle, demand=1).events == ()
    assert decided(machine(S.RUNNING, idle_since=ago(59))).events == ()
    assert decided(machine(S.RUNNING)).events == ()
    assert decided(machine(S.DRAINING)).events == ()
    assert decided(machine(S.DRAINING, idle_since=NOW)).events == (("m1", E.EMPTIED),)


def test_a_draining_machine_is_used_again() -> None:
    assert decided(machine(S.DRAINING), demand=1) == Decision(0, (("m1", E.RESUMED),))
    requested = machine(S.DRAINING, reason=MachineReason.STOP_REQUESTED)
    assert decided(requested, demand=1) == Decision(1)


def test_a_machine_joins_or_is_given_up() -> None:
    joined = machine(S.STARTING, age=300, agent_status=AgentStatus.ALIVE)
    assert decided(joined).events == (("m1", E.JOINED),)
    assert decided(machine(S.STARTING, age=120)).events == ()
    assert decided(machine(S.STARTING, age=121)).events == (("m1", E.GIVEN_UP),)
    assert decided(machine(S.REQUESTED, age=121)).events == (("m1", E.GIVEN_UP),)


class Cloud:
    """A simulation: machines join after some seconds; each serves one session of the demand."""

    def __init__(self, options: ProvisioningOptions, joins: bool) -> None:
        self.options, self.joins = options, joins
        self.machines: dict[str, MachineState] = {}
        self.now, self.starts, self.failed_at = NOW, list[datetime](), None

    def step(self, sessions: int, seconds: int) -> None:
        self.now += timedelta(seconds=seconds)
        running = [one for one in self.machines.values() if one.status is S.RUNNING]
        placed = min(sessions, len(running))
        for number, one in enumerate(running):
            busy = number < placed
            idle = None if busy else one.idle_since or self.now
            self._put(replace(one, idle_since=idle))
        for one in list(self.machines.values()):
            if one.status is S.REQUESTED:
                self._set(one, E.STARTED)
            elif one.status is S.STARTING and self.joins:
                self._put(replace(one, agent_status=AgentStatus.ALIVE))
            elif one.status is S.STOPPING:
                del self.machines[one.machine.id]
        hour = self.now - timedelta(hours=1)
        found = decide(
            self.options,
            list(self.machines.values()),
            sessions - placed,
            sum(at > hour for at in self.starts),
            self.failed_at,
            self.now,
        )
        for key, event in found.events:
            one = self.machines[key]
            if event in (E.DRAINED, E.EMPTIED):
                assert one.idle_since is not None, "a machine with sessions is stopped"
            if event is E.GIVEN_UP:
                self.failed_at = self.now
            self._set(one, event)
        if self.failed_at is not None and self.now - self.failed_at < timedelta(
            seconds=self.options.cooldown_seconds
        ):
            assert not found.starts
        for _ in range(found.starts):
            self.starts.append(self.now)
            name = f"m{len(self.starts)}"
            new = machine(S.REQUESTED, name)
            self._put(replace(new, machine=replace(new.machine, created_at=self.now)))
        assert len(self.machines) <= self.options.maximum
        assert sum(at > hour for at in self.starts) <= self.options.starts_per_hour

    def _put(self, one: MachineState) -> None:
        self.machines[one.machine.id] = one

    def _set(self, one: MachineState, event: MachineEvent) -> None:
        changes: dict[str, Any] = {"status": next_status(one.status, event)}
        if event is E.JOINED:
            changes["joined_at"] = self.now
            one = replace(one, idle_since=self.now)
        self._put(replace(one, machine=replace(one.machine, **changes)))


@given(
    st.lists(st.tuples(st.integers(0, 6), st.integers(1, 90)), max_size=60),
    st.integers(0, 3),
    st.integers(0, 20),
    st.booleans(),
)
def test_limits_hold_and_no_machine_with_sessions_is_stopped(
    steps: list[tuple[int, int]], minimum: int, starts_per_hour: int, joins: bool
) -> None:
    options = replace(OPTIONS, minimum=minimum, starts_per_hour=starts_per_hour)
    cloud = Cloud(options, joins)
    for sessions, seconds in steps:
        cloud.step(sessions, seconds)


@given(st.integers(0, 6), st.integers(0, 3), st.integers(0, 120), st.integers(1, 30))
def test_constant_demand_causes_no_oscillation(
    sessions: int, minimum: int, idle: int, seconds: int
) -> None:
    cloud = Cloud(replace(OPTIONS, minimum=minimum, idle_seconds=idle), joins=True)
    for _ in range(20):
        cloud.step(sessions, seconds)
    settled = dict(cloud.machines)
    wanted = min(max(sessions, minimum), OPTIONS.maximum)
    assert [one.status for one in settled.values()] == [S.RUNNING] * wanted
    assert len(cloud.starts) == wanted
    for _ in range(50):
        cloud.step(sessions, seconds)
    assert cloud.machines.keys() == settled.keys()


def needed(queue: Queue, limit: int = 5) -> int:
    return machines_needed(queue, "main", SLOTS, "process", "x86_64", limit, NOW)


def test_demand_is_the_number_of_machines_on_which_sessions_would_start() -> None:
    big = request(cpu="3")
    sessions = [pending_session(n, wanted=big) for n in range(1, 4)]
    assert needed(Queue(snapshot(sessions, []))) == 3
    # One of the sessions starts on the existing agent.
    queue = Queue(snapshot(sessions, [agent(cpu=4)]))
    assert needed(queue) == 2
    # The queue itself has not changed.
    assert queue.pending("s1") is not None and needed(queue, limit=1) == 1
    # One machine is enough for four small sessions.
    assert needed(Queue(snapshot([pending_session(n) for n in range(1, 5)], []))) == 1
    shares = request(cuda_shares="1")
    assert needed(Queue(snapshot([pending_session(n, wanted=shares) for n in (1, 2, 3)], []))) == 2


def test_sessions_that_would_not_start_on_a_new_machine_cause_no_demand() -> None:
    too_big = pending_session(1, wanted=request(cpu="5"))
    blocked = pending_session(2, not_before=NOW + timedelta(hours=1))
    other_group = pending_session(3, wanted=request("other"))
    assert needed(Queue(snapshot([too_big, blocked, other_group], []))) == 0
    # Two machines are needed, because the quota of Ann allows only one of her sessions.
    big = request(cpu="3")
    sessions = [pending_session(n, user, big) for n, user in ((1, ANN), (2, ANN), (3, BOB))]
    caps = {ANN: ScopeCaps(ANN, "ann", {"cpu": 3000})}
    assert needed(Queue(snapshot(sessions, [], caps=caps))) == 2


def test_options_are_checked() -> None:
    stored = check_options(
        {"provisioning": {"machine": {"cpu": "4", "mem": "8g"}, "maximum": 3, "idle": "5m"}}
    )
    assert stored["provisioning"]["idle"] == 300
    options = GroupOptions.of(stored).provisioning
    assert (options.maximum, options.idle_seconds, options.machine["cpu"]) == (3, 300, 4000)
    for given_ in (
        {"maximum": 3},
        {"machine": {"cpu": "4"}, "maximum": 1, "minimum": 2},
        {"machine": {"cpu": "-4"}, "maximum": 1},
        {"machine": 5},
        {"maximum": 10**9},
        {"maximum": 1.5},
        {"join": 1},
        {"architecture": "x86 64"},
        {"unknown": 1},
        [],
    ):
        with pytest.raises(InvalidRequest):
            check_options({"provisioning": given_})
