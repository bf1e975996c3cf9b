"""Compare estimated with actual starts in a simulation that rebuilds the queue for every pass.

`BAI_QUEUE_EXAMPLES` sets the number of generated clusters for each property.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bai_services.core.cluster.devices import DeviceAmount, thousandths
from bai_services.core.resources import ResourceSlots
from bai_services.core.scheduling.advance_reservations import HeldAgents
from bai_services.core.scheduling.caps import Scope, ScopeCaps, ScopeKind
from bai_services.core.scheduling.estimates.delays import delays_by
from bai_services.core.scheduling.estimates.estimate import Budget, estimate_starts
from bai_services.core.scheduling.estimates.explainer import Explainer
from bai_services.core.scheduling.placement import AgentState, Mode, Policy, Request
from bai_services.core.scheduling.queue import (
    Backfill,
    Certainty,
    Estimate,
    GroupState,
    Order,
    PendingSession,
    Queue,
    RunningSession,
    Snapshot,
)

from ..queue.factories import NOW, QUEUE_EXAMPLES, WAITS_FOR_S0, agent, slots

GROUPS = ("main", "side")
USERS = tuple(Scope(ScopeKind.USER, name) for name in "abc")
PROJECTS = tuple(Scope(ScopeKind.PROJECT, name) for name in ("x", "y"))
# A test fails if it compares fewer estimates than this number.
MIN_KNOWN_STARTS = 10
EXAMPLES = settings(
    max_examples=QUEUE_EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
UNLIMITED_BUDGET = Budget(sessions=10**6, seconds=60)
# Policies whose placements do not depend on earlier placements of the queue.
STATELESS = (Policy.PACK, Policy.BEST_FIT, Policy.SPREAD, Policy.PRICED)


@dataclass(frozen=True)
class Rules:
    order: Order
    backfill: Backfill
    policy: Policy
    caps: dict[Scope, int]


@dataclass
class World:
    """A simulated cluster. Each pass builds a new queue from the state in this object."""

    rules: Rules
    agents: list[AgentState]
    arrivals: list[tuple[int, PendingSession]]  # second of the arrival, session
    now: int = 0
    pending: dict[str, PendingSession] = field(default_factory=dict)
    running: dict[str, RunningSession] = field(default_factory=dict)
    arrived_at: dict[str, int] = field(default_factory=dict)
    started: dict[str, int] = field(default_factory=dict)
    ended: set[str] = field(default_factory=set)
    reserved: frozenset[str] = frozenset()
    held: tuple[HeldAgents, ...] = ()

    def snapshot(self) -> Snapshot:
        usage: dict[Scope, dict[str, int]] = {}
        for running in self.running.values():
            for scope in running.scopes:
                used = usage.setdefault(scope, {})
                for slot, amount in {**running.slots, "sessions": 1}.items():
                    used[slot] = used.get(slot, 0) + amount
        rules = self.rules
        return Snapshot(
            list(self.pending.values()),
            [self._with_usage(agent) for agent in self.agents],
            caps={s: ScopeCaps(s, s.id, max_sessions=n) for s, n in rules.caps.items()},
            usage=usage,
            groups={
                name: GroupState(
                    name,
                    order=rules.order,
                    placement=rules.policy,
                    backfill=rules.backfill,
                    held=self.held if name == "main" else (),
                )
                for name in GROUPS
            },
            running=list(self.running.values()),
            now=time_at(self.now),
            reserved=self.reserved,
        )

    def _with_usage(self, agent: AgentState) -> AgentState:
        here = [p for r in self.running.values() for p in r.placements if p.agent_id == agent.id]
        used: dict[str, int] = {}
        for placement in here:
            for slot, amount in placement.slots.items():
                used[slot] = used.get(slot, 0) + amount
        amounts = [amount for placement in here for amount in placement.devices]
        devices = [replace(d, used=_used(amounts, d.id)) for d in agent.devices]
        return replace(agent, used=used, devices=tuple(devices))

    def step(self) -> Queue | None:
        """Advance to the next second with an event and run a pass.

        Return the queue after the pass, or None if there are no more events.
        """
        times = [second for second, session in self.arrivals if session.id not in self.arrived_at]
        times += [_second(r.ends_at) for r in self.running.values()]
        times += [
            _second(session.not_before) for session in self.pending.values() if session.not_before
        ]
        times += [_second(at) for one in self.held for at in (one.starts_at, one.ends_at)]
        later = [second for second in times if second > self.now or not self.arrived_at]
        if not later:
            return None
        self.now = min(later)
        for key in [k for k, r in self.running.items() if _second(r.ends_at) <= self.now]:
            del self.running[key]
            self.ended.add(key)
        for second, session in self.arrivals:
            if second <= self.now and session.id not in self.arrived_at:
                self.arrived_at[session.id] = second
                self.pending[session.id] = session
        for session in list(self.pending.values()):
            dependency_ids = tuple(key for key in session.dependency_ids if key not in self.ended)
            unmet_dependencies = WAITS_FOR_S0 if dependency_ids else None
            self.pending[session.id] = replace(
                session, dependency_ids=dependency_ids, unmet_dependencies=unmet_dependencies
            )
        queue = Queue(self.snapshot())
        result = queue.run(time_at(self.now))
        self.reserved = frozenset(r.session_id for r in result.reservations)
        for decision in result.decisions:
            session = self.pending.pop(decision.session_id)
            self.started[session.id] = self.now
            running = queue.running_session(session.id)
            assert running is not None
            self.running[session.id] = running
        return queue


def _used(amounts: list[DeviceAmount], device_id: str) -> int:
    return sum(thousandths(a.slot, a.amount) for a in amounts if a.device_id == device_id)


def time_at(second: int) -> datetime:
    return NOW + timedelta(seconds=second)


def _second(time: datetime | None) -> int:
    assert time is not None
    return int((time - NOW).total_seconds())


@st.composite
def sessions(draw: st.DrawFn, n: int, *, priorities: bool, depends: bool) -> PendingSession:
    device = draw(
        st.sampled_from(
            [{}, {}, {"cuda_device": "1"}, {"cuda_device": "2"}, {"cuda_shares": "0.3"},
             {"cuda_shares": "0.6"}]
        )
    )  # fmt: skip
    request = Request(
        slots(cpu=draw(st.sampled_from(["0.5", "1", "2", "4"])), **device),
        draw(st.sampled_from(["main", "main", "side"])),
        "x86_64",
        kernels=draw(st.sampled_from([1, 1, 1, 2, 3])),
        mode=draw(st.sampled_from(Mode)),
    )
    dependency_ids: tuple[str, ...] = ()
    if depends and n and draw(st.integers(0, 5)) == 0:
        dependency_ids = (f"s{draw(st.integers(0, n - 1)):02d}",)
    begins = draw(st.sampled_from([0, 0, 0, 0, 0, 7, 30]))
    return PendingSession(
        f"s{n:02d}",
        n,
        request,
        (draw(st.sampled_from(USERS)), draw(st.sampled_from(PROJECTS))),
        priority=draw(st.sampled_from([5, 10, 20])) if priorities else 10,
        unmet_dependencies=WAITS_FOR_S0 if dependency_ids else None,
        dependency_ids=dependency_ids,
        not_before=time_at(begins) if begins else None,
        max_run_seconds=draw(st.sampled_from([1, 5, 10, 30, 100])),
    )


clusters = st.lists(
    st.tuples(st.sampled_from([1, 2, 4, 8]), st.integers(0, 2), st.sampled_from(["main", "side"])),
    min_size=1,
    max_size=4,
).map(
    lambda machines: [
        agent(f"a{n}", cpu=cpu, gpus=gpus, resource_group=group if n else "main")
        for n, (cpu, gpus, group) in enumerate(machines)
    ]
)


@st.composite
def all_rules(draw: st.DrawFn, orders: tuple[Order, ...] = tuple(Order)) -> Rules:
    caps = st.dictionaries(st.sampled_from([*USERS, *PROJECTS]), st.integers(1, 3), max_size=2)
    return Rules(
        draw(st.sampled_from(orders)),
        draw(st.sampled_from([Backfill.RESERVING, *Backfill])),
        draw(st.sampled_from(STATELESS)),
        draw(st.one_of(st.just({}), caps)),
    )


@st.composite
def worlds(
    draw: st.DrawFn,
    *,
    arrive: bool = False,
    depends: bool = True,
    orders: tuple[Order, ...] = tuple(Order),
) -> World:
    count = draw(st.integers(1, 12))
    priorities = draw(st.booleans())
    arrivals, second = [], 0
    for n in range(count):
        if arrive and n > 1:
            second += draw(st.sampled_from([0, 0, 1, 5, 20]))
        session = draw(sessions(n, priorities=priorities, depends=depends))
        arrivals.append((second, session))
    return World(draw(all_rules(orders)), draw(clusters), arrivals)


def estimates_per_pass(world: World) -> list[tuple[int, dict[str, Estimate]]]:
    """Run a simulation to its end; return the second and the estimates of each pass."""
    passes = []
    while (queue := world.step()) is not None:
        estimates = estimate_starts(queue, UNLIMITED_BUDGET)
        assert estimates.keys() == world.pending.keys()
        passes.append((world.now, estimates))
    return passes


def _estimated_second(estimate: Estimate) -> int | None:
    return None if estimate.starts_at is None else _second(estimate.starts_at)


@EXAMPLES
@given(worlds())
def test_estimates_are_exact_without_arrivals(world: World) -> None:
    _check_that_estimates_are_exact(world)


@st.composite
def reservations(draw: st.DrawFn, names: Sequence[str]) -> tuple[HeldAgents, ...]:
    """Return reservations of whole machines or of parts, in periods that do not overlap."""
    found = []
    for number in range(draw(st.integers(1, 3))):
        start = 40 * number + draw(st.sampled_from([3, 8, 20]))
        amounts = draw(st.sampled_from([{}, {"cpu": "1"}, {"cpu": "2", "cuda_device": "1"}]))
        project = draw(st.sampled_from(PROJECTS))
        found.append(
            HeldAgents(
                f"r{number}",
                project.id,
                time_at(start),
                time_at(start + draw(st.sampled_from([4, 15]))),
                frozenset(draw(st.sets(st.sampled_from(names), min_size=1))),
                project,
                booked=slots(**{"mem": "0", **amounts}) if amounts else ResourceSlots(),
            )
        )
    return tuple(found)


@EXAMPLES
@given(worlds(), st.data())
def test_estimates_are_exact_beside_advance_reservations(world: World, data: st.DataObject) -> None:
    names = [agent.id for agent in world.agents if agent.resource_group == "main"]
    world.held = data.draw(reservations(names))
    _check_that_estimates_are_exact(world)


@EXAMPLES
@given(worlds(depends=False), st.data())
def test_no_reserved_session_starts_later_than_announced_beside_advance_reservations(
    world: World, data: st.DataObject
) -> None:
    """Without quotas; a session that exceeds a quota may delay a reserved session."""
    names = [agent.id for agent in world.agents if agent.resource_group == "main"]
    world.held, world.rules = data.draw(reservations(names)), replace(world.rules, caps={})
    announced = []
    while (queue := world.step()) is not None:
        announced += [r for name in queue.groups() for r in queue.group_queue(name).reservations]
    for one in announced:
        if one.certainty is Certainty.KNOWN:
            assert world.started[one.session_id] <= _second(one.starts_at), one


@EXAMPLES
@given(worlds(), st.data())
def test_delays_are_those_of_an_approved_reservation(world: World, data: st.DataObject) -> None:
    queue = world.step()
    assert queue is not None
    names = [agent.id for agent in world.agents if agent.resource_group == "main"]
    held = data.draw(reservations(names))[0]
    explainer = Explainer(queue, UNLIMITED_BUDGET)
    found = delays_by(explainer, "main", held, UNLIMITED_BUDGET)
    approved = copy.deepcopy(world)
    approved.held = (held,)
    # An approval causes a pass at once. The new session waits until all others have ended.
    later = replace(world.arrivals[0][1], id="later", dependency_ids=(), unmet_dependencies=None,
                    not_before=time_at(10**5))  # fmt: skip
    approved.arrivals, approved.now = [*world.arrivals, (world.now, later)], world.now - 1
    for each in (world, approved):
        while each.step() is not None:
            pass
    expected = {}
    for key in {**explainer.estimates("main"), **explainer.estimates("side")}:
        first, second = world.started.get(key), approved.started.get(key)
        if first is not None and (second is None or second > first):
            expected[key] = (time_at(first), None if second is None else time_at(second))
    assert {one.session_id: (one.starts_at, one.delayed_until) for one in found} == expected
    lengths = [(one.delayed_until or time_at(10**6)) - one.starts_at for one in found]
    assert lengths == sorted(lengths, reverse=True)


def _check_that_estimates_are_exact(world: World) -> None:
    for second, estimates in estimates_per_pass(world):
        for key, estimate in estimates.items():
            assert _estimated_second(estimate) == world.started.get(key), (second, key, estimate)


def test_known_start_in_fifo_order_changes_only_for_a_higher_priority() -> None:
    _check_that_known_starts_are_exact(worlds(arrive=True, depends=False, orders=(Order.FIFO,)))


def test_known_start_changes_only_if_a_session_with_equal_or_higher_priority_arrives() -> None:
    _check_that_known_starts_are_exact(worlds(arrive=True))


def _check_that_known_starts_are_exact(strategy: st.SearchStrategy[World]) -> None:
    checked = 0

    @EXAMPLES
    @given(strategy)
    def check(world: World) -> None:
        nonlocal checked
        checked += _check_known_starts(world)

    check()
    assert checked >= MIN_KNOWN_STARTS


def _check_known_starts(world: World) -> int:
    """Compare each KNOWN estimate with the actual start; return the number of compared estimates.

    An estimate may be wrong if a preferred session arrives before the start, so these estimates are
    not counted, and neither are estimates of an immediate start.
    """
    checked = 0
    session_of = {session.id: session for _, session in world.arrivals}
    for second, estimates in estimates_per_pass(world):
        for key, estimate in estimates.items():
            if estimate.certainty is not Certainty.KNOWN:
                continue
            estimated, started = _estimated_second(estimate), world.started.get(key)
            assert estimated is not None
            preferred_arrivals = [
                other
                for other, arrival in world.arrived_at.items()
                if arrival > second and (started is None or arrival <= started)
                if _is_preferred(world.rules.order, session_of[other], session_of[key])
            ]
            assert started == estimated or preferred_arrivals, (second, key, estimate)
            checked += estimated > second and not preferred_arrivals
    return checked


def _is_preferred(order: Order, other: PendingSession, one: PendingSession) -> bool:
    if order is Order.FIFO:
        return other.priority > one.priority
    return other.priority >= one.priority
