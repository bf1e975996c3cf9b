"""Growth and shrinking of elastic sessions, against a naive oracle."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from bai_services.core.resources import ResourceSlots
from bai_services.core.scheduling.caps import Scope
from bai_services.core.scheduling.elastic.decision import decide, within_quotas
from bai_services.core.scheduling.elastic.sessions import (
    ElasticSession,
    FreeAgent,
    Resizing,
    WaitingSession,
)

CORE = 1000
SCOPES = (Scope("user", "u1"), Scope("user", "u2"))
Headroom = dict[Scope, dict[str, int]]
Cluster = tuple[list[ElasticSession], list[FreeAgent], Headroom, list[WaitingSession]]

cores = st.integers(1, 4)
hundredths = st.integers(1, 10)


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    sessions = []
    for number in range(draw(st.integers(0, 4))):
        low, share = draw(cores), draw(hundredths) * 50
        size = low + draw(st.integers(0, 3))
        shares = share + draw(st.integers(0, 3)) * 50
        sessions.append(
            ElasticSession(
                id=f"e{number}",
                agent_id=f"a{draw(st.integers(0, 1))}",
                scopes=(draw(st.sampled_from(SCOPES)),),
                size=ResourceSlots({"cpu": size * CORE, "cuda.shares": shares}),
                minimum=ResourceSlots({"cpu": low * CORE, "cuda.shares": share}),
                preferred=ResourceSlots(
                    {
                        "cpu": (size + draw(st.integers(0, 2))) * CORE,
                        "cuda.shares": shares + draw(st.integers(0, 2)) * 50,
                    }
                ),
                devices={"cuda.shares": ""},
                may_shrink=draw(st.booleans()),
            )
        )
    sessions = [replace(s, devices={"cuda.shares": f"{s.agent_id}-g"}) for s in sessions]
    agents = [
        FreeAgent(
            f"a{n}",
            {"cpu": draw(st.integers(0, 3)) * CORE},
            {f"a{n}-g": draw(st.integers(0, 6)) * 50},
            {f"a{n}-g": "cuda"},
        )
        for n in range(2)
    ]
    headroom: Headroom = {
        scope: {"cpu": draw(st.integers(0, 6)) * CORE, "sessions": draw(st.integers(0, 2))}
        for scope in SCOPES
        if draw(st.booleans())
    }
    waiting = [
        WaitingSession(
            f"w{n}",
            (draw(st.sampled_from(SCOPES)),),
            ResourceSlots({"cpu": draw(cores) * CORE, "cuda.shares": draw(hundredths) * 50}),
            frozenset(draw(st.sets(st.sampled_from(["a0", "a1"])))),
            "cuda.shares",
            is_plain=draw(st.integers(0, 5)) > 0,
        )
        for n in range(draw(st.integers(0, 2)))
    ]
    return sessions, agents, headroom, waiting


def applied(cluster: Cluster, changes: Sequence[Resizing]) -> Cluster:
    """Return the cluster with new sizes, free resources and headroom after the changes."""
    sessions, agents, headroom, waiting = cluster
    size_of = {change.session_id: change.size for change in changes}
    slots = {agent.id: dict(agent.slots) for agent in agents}
    devices = {agent.id: dict(agent.devices) for agent in agents}
    left = {scope: dict(of) for scope, of in headroom.items()}
    after = []
    for session in sessions:
        size = size_of.get(session.id, session.size)
        for slot in size:
            difference = size[slot] - session.size[slot]
            place = devices if slot in session.devices else slots
            place[session.agent_id][session.devices.get(slot, slot)] -= difference
            for scope in session.scopes:
                if slot in left.get(scope, {}):
                    left[scope][slot] -= difference
        after.append(replace(session, size=size))
    agents = [replace(a, slots=slots[a.id], devices=devices[a.id]) for a in agents]
    return after, agents, left, waiting


def fits(cluster: Cluster, session: WaitingSession) -> list[str]:
    """Return the agents on which a waiting session would start now."""
    _, agents, headroom, _ = cluster
    cpu, share = session.slots["cpu"], session.slots["cuda.shares"]
    if any(
        need > headroom.get(scope, {}).get(slot, need)
        for scope in session.scopes
        for slot, need in {**session.slots, "sessions": 1}.items()
    ):
        return []
    return [
        a.id
        for a in agents
        if a.id in session.agents and a.slots["cpu"] >= cpu and max(a.devices.values()) >= share
    ]


def shrunk_to_minimum(cluster: Cluster) -> Cluster:
    smallest = [Resizing(s.id, s.minimum) for s in cluster[0] if s.may_shrink]
    return applied(cluster, smallest)


@given(clusters())
def test_sizes_stay_in_their_range_and_fit(cluster: Cluster) -> None:
    after = applied(cluster, decide(*cluster))
    for before, session in zip(cluster[0], after[0], strict=True):
        for slot, amount in session.size.items():
            assert session.minimum[slot] <= amount <= session.preferred[slot]
            assert session.may_shrink or amount >= before.size[slot]
    assert all(
        n >= 0 for agent in after[1] for n in (*agent.slots.values(), *agent.devices.values())
    )
    assert all(
        n >= 0 or n >= cluster[2][scope][slot]
        for scope, of in after[2].items()
        for slot, n in of.items()
    )


@given(clusters())
def test_sessions_shrink_only_for_one_that_then_starts(cluster: Cluster) -> None:
    changes = decide(*cluster)
    waiting = {session.id: session for session in cluster[3]}
    if waiting:
        for change in changes:
            assert change.beneficiary in waiting
        first = next((s for s in cluster[3] if s.is_plain), None)
        if first is not None and any(c.beneficiary == first.id for c in changes):
            assert not fits(cluster, first)
            assert fits(applied(cluster, changes), first)


@given(clusters())
def test_first_waiting_session_starts_if_the_minimum_sizes_allow_it(cluster: Cluster) -> None:
    first = next((s for s in cluster[3] if s.is_plain), None)
    if first is None:
        return
    possible = fits(shrunk_to_minimum(cluster), first)
    assert bool(fits(applied(cluster, decide(*cluster)), first)) == bool(possible)


@given(clusters())
def test_constant_load_leads_to_constant_sizes(cluster: Cluster) -> None:
    changes = decide(*cluster)
    after = applied(cluster, changes)
    assert decide(*after) == []
    if not cluster[3]:
        sizes = {s.id: s.size for s in cluster[0]}
        assert all(c.size[slot] >= sizes[c.session_id][slot] for c in changes for slot in c.size)


@given(clusters())
def test_nothing_grows_while_a_session_waits(cluster: Cluster) -> None:
    sizes = {s.id: s.size for s in cluster[0]}
    if cluster[3]:
        for change in decide(*cluster):
            assert all(change.size[slot] <= sizes[change.session_id][slot] for slot in change.size)


@given(clusters())
def test_growth_takes_everything_that_fits(cluster: Cluster) -> None:
    sessions, agents, headroom, _ = applied((*cluster[:3], []), decide(*cluster[:3], []))
    for session in sessions:
        agent = next(a for a in agents if a.id == session.agent_id)
        for slot, step, free in (
            ("cpu", CORE, agent.slots["cpu"]),
            ("cuda.shares", 10, agent.devices[session.devices["cuda.shares"]]),
        ):
            missing = session.preferred[slot] - session.size[slot]
            left = [headroom.get(s, {}).get(slot, missing) for s in session.scopes]
            assert min(missing, free, *left) < step


def smallest_loss(cluster: Cluster, waiting: WaitingSession) -> float | None:
    """Return the smallest loss with which a waiting session can start; None if it cannot start. All
    sizes of the elastic sessions are tried.
    """
    sessions, agents, headroom, _ = cluster
    best: float | None = None
    if any(headroom.get(scope, {}).get("sessions", 1) < 1 for scope in waiting.scopes):
        return None
    for agent in (a for a in agents if a.id in waiting.agents):
        costs: list[dict[frozenset[str], float]] = []
        for slot, step in (("cpu", CORE), ("cuda.shares", 50)):
            place = agent.slots if slot == "cpu" else agent.devices
            free = place["cpu" if slot == "cpu" else f"{agent.id}-g"]
            costs.append({})
            choices = [
                range(0, (s.size[slot] - s.minimum[slot] if s.may_shrink else 0) + 1, step)
                for s in sessions
            ]
            for given_ in product(*choices):
                pairs = list(zip(sessions, given_, strict=True))
                here = sum(n for s, n in pairs if s.agent_id == agent.id)
                is_enough = free + here >= waiting.slots[slot] and all(
                    headroom[scope][slot] + sum(n for s, n in pairs if scope in s.scopes)
                    >= waiting.slots[slot]
                    for scope in waiting.scopes
                    if slot in headroom.get(scope, {})
                )
                if is_enough:
                    resized = frozenset(s.id for s, n in pairs if n)
                    loss = sum(n / s.size[slot] for s, n in pairs)
                    costs[-1][resized] = min(loss, costs[-1].get(resized, loss))
        losses = [
            one + other + 0.01 * len(a | b)
            for (a, one), (b, other) in product(costs[0].items(), costs[1].items())
        ]
        best = min([*losses, *([] if best is None else [best])], default=None)
    return best


def crowded(random: Random) -> Cluster:
    """Return a cluster with a waiting session for which elastic sessions must usually shrink."""
    sessions = []
    for number in range(4):
        low, share = random.randint(1, 4) * CORE, random.randint(1, 10) * 50
        agent = random.choice(("a0", "a0", "a1"))
        size = {
            "cpu": low + random.randint(0, 3) * CORE,
            "cuda.shares": share + random.randint(0, 3) * 50,
        }
        sessions.append(
            ElasticSession(
                id=f"e{number}",
                agent_id=agent,
                scopes=(random.choice(SCOPES),),
                size=ResourceSlots(size),
                minimum=ResourceSlots({"cpu": low, "cuda.shares": share}),
                preferred=ResourceSlots(size),
                devices={"cuda.shares": f"{agent}-g"},
            )
        )
    agents = [
        FreeAgent(
            f"a{n}",
            {"cpu": random.randint(0, 1) * CORE},
            {f"a{n}-g": random.randint(0, 2) * 50},
            {f"a{n}-g": "cuda"},
        )
        for n in range(2)
    ]
    headroom: Headroom = {
        scope: {"cpu": random.randint(0, 3) * CORE, "sessions": 2}
        for scope in SCOPES
        if random.random() < 0.7
    }
    need = {"cpu": random.randint(1, 5) * CORE, "cuda.shares": random.randint(1, 6) * 50}
    scopes = (random.choice(SCOPES),)
    one = WaitingSession("w", scopes, ResourceSlots(need), frozenset(("a0", "a1")), "cuda.shares")
    return sessions, agents, headroom, [one]


@given(st.integers(0, 10**9))
def test_loss_for_a_waiting_session_is_the_smallest_possible(seed: int) -> None:
    cluster = crowded(Random(seed))
    best = smallest_loss(cluster, cluster[3][0])
    if best is None:
        return
    old = {session.id: session.size for session in cluster[0]}
    loss = sum(
        0.01 + sum(1 - change.size[slot] / had for slot, had in old[change.session_id].items())
        for change in decide(*cluster)
    )
    assert abs(loss - best) < 1e-9


def test_smallest_loss_is_chosen() -> None:
    """Either of two sessions could shrink; the session with the smaller loss shrinks."""
    free = [FreeAgent("a0", {"cpu": 0}), FreeAgent("a1", {"cpu": CORE})]
    sessions = [
        ElasticSession(
            f"e{n}",
            f"a{n}",
            (),
            ResourceSlots({"cpu": 4 * CORE}),
            ResourceSlots({"cpu": CORE}),
            ResourceSlots({"cpu": 4 * CORE}),
        )
        for n in range(2)
    ]
    waiting = WaitingSession("w", (), ResourceSlots({"cpu": 2 * CORE}), frozenset({"a0", "a1"}))
    assert decide(sessions, free, {}, [waiting]) == [
        Resizing("e1", ResourceSlots({"cpu": 3 * CORE}), "w")
    ]


def one_of(name: str, scope: Scope, size: int) -> ElasticSession:
    """Return an elastic session on the agent ``a0`` with a minimum of one core."""
    cores = ResourceSlots({"cpu": size * CORE})
    return ElasticSession(name, "a0", (scope,), cores, ResourceSlots({"cpu": CORE}), cores)


def test_session_that_loses_the_smallest_fraction_shrinks() -> None:
    one, other = SCOPES
    large = replace(one_of("large", one, 16), minimum=ResourceSlots({"cpu": 13 * CORE}))
    sessions = [one_of("small", other, 5), large]
    waiting = WaitingSession("w", (other,), ResourceSlots({"cpu": 2 * CORE}), frozenset({"a0"}))
    assert decide(sessions, [FreeAgent("a0", {"cpu": 0})], {}, [waiting]) == [
        Resizing("large", ResourceSlots({"cpu": 14 * CORE}), "w")
    ]


def test_one_session_makes_room_on_the_agent_and_in_the_quota() -> None:
    one, other = SCOPES
    sessions = [one_of("mine", one, 4), one_of("other", other, 8)]
    waiting = WaitingSession("w", (one,), ResourceSlots({"cpu": 2 * CORE}), frozenset({"a0"}))
    headroom = {one: {"cpu": 0}}
    assert decide(sessions, [FreeAgent("a0", {"cpu": 0})], headroom, [waiting]) == [
        Resizing("mine", ResourceSlots({"cpu": 2 * CORE}), "w")
    ]


@given(clusters())
def test_no_session_shrinks_needlessly(cluster: Cluster) -> None:
    """Each shrinking is necessary: if one session kept its size, the waiting session could not
    start.
    """
    sessions, agents, headroom, waiting = cluster
    only = (sessions, agents, headroom, [w for w in waiting if w.is_plain][:1])
    changes = decide(*only)
    if not only[3]:
        return
    for change in changes:
        others = [other for other in changes if other is not change]
        assert not fits(applied(only, others), only[3][0])


def test_sessions_far_above_their_quota_do_not_concern_elastic_sessions() -> None:
    one, other = SCOPES
    elastic = ElasticSession(
        "e0",
        "a0",
        (one,),
        size=ResourceSlots({"cpu": 2 * CORE}),
        minimum=ResourceSlots({"cpu": CORE}),
        preferred=ResourceSlots({"cpu": 4 * CORE}),
    )
    headroom = {one: {"cpu": 0}, other: {"cpu": 0}}

    def waits(name: str, scope: Scope, cores: int) -> WaitingSession:
        slots = ResourceSlots({"cpu": cores * CORE})
        return WaitingSession(name, (scope,), slots, frozenset({"a0"}))

    waiting = [waits("w0", other, 1), waits("w1", one, 2), waits("w2", one, 1)]
    assert [w.id for w in within_quotas([elastic], headroom, waiting)] == ["w2"]


def test_cluster_sessions_do_not_hide_the_sessions_behind_them() -> None:
    elastic = ElasticSession(
        "e0",
        "a0",
        (),
        size=ResourceSlots({"cpu": 2 * CORE}),
        minimum=ResourceSlots({"cpu": CORE}),
        preferred=ResourceSlots({"cpu": 2 * CORE}),
    )
    needed = ResourceSlots({"cpu": CORE})
    cluster = [
        WaitingSession(f"w{n}", (), needed, frozenset({"a0"}), is_plain=False) for n in range(30)
    ]
    last = WaitingSession("last", (), needed, frozenset({"a0"}))
    changes = decide([elastic], [FreeAgent("a0", {"cpu": 0})], {}, [*cluster, last])
    assert changes == [Resizing("e0", ResourceSlots({"cpu": CORE}), "last")]


def test_session_above_the_number_of_sessions_changes_nothing() -> None:
    scope = SCOPES[0]
    elastic = ElasticSession(
        "e0",
        "a0",
        (scope,),
        size=ResourceSlots({"cpu": 2 * CORE}),
        minimum=ResourceSlots({"cpu": CORE}),
        preferred=ResourceSlots({"cpu": 2 * CORE}),
    )
    waiting = WaitingSession("w0", (scope,), ResourceSlots({"cpu": CORE}), frozenset({"a0"}))
    agents = [FreeAgent("a0", {"cpu": CORE})]
    assert decide([elastic], agents, {scope: {"sessions": 0}}, [waiting]) == []
