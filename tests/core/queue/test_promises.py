"""No reserved session is ever delayed by a later one: on generated queues, with caps.

`BAI_QUEUE_EXAMPLES` sets the number of generated queues for each property.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from heapq import heappop, heappush

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bai_services.core.scheduling.caps import Scope, ScopeCaps, ScopeKind
from bai_services.core.scheduling.placement import AgentState, Mode, Policy, Request
from bai_services.core.scheduling.queue import (
    Backfill,
    Certainty,
    Changes,
    GroupState,
    PassResult,
    PendingSession,
    Queue,
    Snapshot,
)

from .world import NOW, agent, slots

GROUPS = ("main", "side")
USERS = tuple(Scope(ScopeKind.USER, name) for name in "abc")
EXAMPLES = settings(
    max_examples=int(os.environ.get("BAI_QUEUE_EXAMPLES", "150")),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)


@dataclass(frozen=True)
class Coming:
    """A session that arrives at a second, has a limit of ``limit`` seconds and runs ``seconds``."""

    pending: PendingSession
    at: int
    seconds: int


@st.composite
def comings(draw: st.DrawFn) -> list[Coming]:
    found = []
    at = 0
    for n in range(draw(st.integers(1, 9))):
        at += draw(st.sampled_from([0, 0, 1, 5, 20]))
        device = draw(
            st.sampled_from(
                [{}, {"cuda_device": "1"}, {"cuda_device": "2"}, {"cuda_shares": "0.3"},
                 {"cuda_shares": "0.6"}, {"cuda_shares": "1.5"}]
            )
        )  # fmt: skip
        request = Request(
            slots(cpu=draw(st.sampled_from(["0.5", "1", "2", "4"])), **device),
            draw(st.sampled_from(["main", "main", "side"])),
            "x86_64",
            kernels=draw(st.sampled_from([1, 1, 1, 2, 3])),
            mode=draw(st.sampled_from(Mode)),
        )
        seconds = draw(st.sampled_from([1, 5, 10, 30, 100]))
        limit = seconds * draw(st.sampled_from([1, 1, 2, 4]))
        user = draw(st.sampled_from(USERS))
        found.append(
            Coming(
                PendingSession(f"s{n:02d}", n, request, (user,), max_run_seconds=limit), at, seconds
            )
        )
    return found


@st.composite
def clusters(draw: st.DrawFn) -> list[AgentState]:
    return [
        agent(f"a{n}", cpu=draw(st.sampled_from([4, 8])), gpus=draw(st.integers(0, 3)),
              resource_group=draw(st.sampled_from(["main", "main", "side"])))
        for n in range(draw(st.integers(1, 4)))
    ]  # fmt: skip


caps_of = st.dictionaries(st.sampled_from(USERS), st.integers(1, 3), max_size=2)


@dataclass
class Played:
    """The result: when each session started, and the promises that it got."""

    started: dict[str, int] = field(default_factory=dict)
    promises: dict[str, datetime] = field(default_factory=dict)
    results: list[tuple[int, PassResult]] = field(default_factory=list)


def play(
    coming: list[Coming],
    agents: list[AgentState],
    caps: dict[Scope, int],
    backfill: Backfill = Backfill.RESERVING,
    policy: Policy = Policy.PACK,
) -> Played:
    """Let the sessions arrive, start as passes decide and end, until no event is left.

    A promise is void once an earlier session starts, which a cap had held back.
    """
    queue = Queue(
        Snapshot(
            [],
            agents,
            caps={user: ScopeCaps(user, user.id, max_sessions=n) for user, n in caps.items()},
            groups={name: GroupState(name, placement=policy, backfill=backfill) for name in GROUPS},
            now=NOW,
        )
    )
    of = {c.pending.id: c for c in coming}
    events: list[tuple[int, int, str]] = []
    for c in coming:
        heappush(events, (c.at, 1, c.pending.id))
    played = Played()
    while events:
        second = events[0][0]
        gone, new = [], []
        while events and events[0][0] == second:
            _, is_new, session_id = heappop(events)
            if is_new:
                new.append(of[session_id].pending)
            else:
                gone.append(session_id)
        queue.apply(Changes(gone=gone, pending=new))
        result = queue.run(NOW + timedelta(seconds=second))
        played.results.append((second, result))
        for decision in result.decisions:
            played.started[decision.session_id] = second
            heappush(events, (second + of[decision.session_id].seconds, 0, decision.session_id))
            _void(played, of, decision.session_id)
        for kept in result.reservations:
            assert kept.certainty is Certainty.KNOWN
            assert kept.starts_at is not None
            played.promises.setdefault(kept.session_id, kept.starts_at)
    return played


def _void(played: Played, of: dict[str, Coming], session_id: str) -> None:
    """Void the promises to all sessions behind one that has started, in its group."""
    group = of[session_id].pending.request.resource_group
    for other in list(played.promises):
        is_behind = other > session_id and of[other].pending.request.resource_group == group
        if is_behind and other not in played.started:
            del played.promises[other]


@EXAMPLES
@given(comings(), clusters(), caps_of)
def test_no_reserved_session_starts_later_than_promised(
    coming: list[Coming], agents: list[AgentState], caps: dict[Scope, int]
) -> None:
    played = play(coming, agents, caps)
    for session_id, promised in played.promises.items():
        assert session_id in played.started
        assert NOW + timedelta(seconds=played.started[session_id]) <= promised


@EXAMPLES
@given(comings(), clusters(), caps_of, st.sampled_from(Backfill))
def test_every_feasible_session_starts_eventually(
    coming: list[Coming], agents: list[AgentState], caps: dict[Scope, int], backfill: Backfill
) -> None:
    """At the end every session that an empty group can hold has started."""
    played = play(coming, agents, caps, backfill)
    for c in coming:
        group = c.pending.request.resource_group
        alone = Snapshot([c.pending], agents, groups={group: GroupState(group)}, now=NOW)
        can_start = bool(Queue(alone).run(NOW).decisions)
        assert (c.pending.id in played.started) is can_start


@EXAMPLES
@given(comings(), clusters(), caps_of, st.sampled_from(Backfill), st.sampled_from(Policy))
def test_replay_is_deterministic(
    coming: list[Coming],
    agents: list[AgentState],
    caps: dict[Scope, int],
    backfill: Backfill,
    policy: Policy,
) -> None:
    one, two = (play(coming, agents, caps, backfill, policy) for _ in range(2))
    assert [r.decisions for _, r in one.results] == [r.decisions for _, r in two.results]
    assert one.promises == two.promises


@pytest.mark.parametrize("first", GROUPS)
def test_quota_of_a_reserved_session_is_withheld_from_the_other_group(first: str) -> None:
    """In whichever order the groups are decided."""
    other = next(name for name in GROUPS if name != first)
    whole = Request(slots(cpu="4"), first, "x86_64")
    small = Request(slots(cpu="1"), other, "x86_64")
    coming = [
        Coming(PendingSession("s00", 0, whole, (USERS[0],), max_run_seconds=50), 0, 50),
        Coming(PendingSession("s01", 1, whole, (USERS[1],), max_run_seconds=50), 0, 50),
        Coming(PendingSession("s02", 2, small, (USERS[1],), max_run_seconds=500), 10, 500),
    ]
    agents = [agent("a", cpu=4, resource_group=first), agent("b", cpu=4, resource_group=other)]
    played = play(coming, agents, {USERS[1]: 1})
    assert played.started == {"s00": 0, "s01": 50, "s02": 100}
