"""Overflow: which pending sessions move to which resource group."""

from __future__ import annotations

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from bai_services.core.scheduling.caps import Scope, ScopeCaps, ScopeKind
from bai_services.core.scheduling.overflow import (
    Candidate,
    Move,
    OverflowRule,
    find_moves,
    targets,
)
from bai_services.core.scheduling.queue import Changes, Queue, Snapshot

from .factories import (
    ANN,
    BOB,
    MAIN,
    NOW,
    agent,
    pending_session,
    request,
    running,
    slots,
    snapshot,
    with_usage,
)

GROUPS = ("near", "far")


def rule(to_group: str, position: int = 0, after: int = 0) -> OverflowRule:
    return OverflowRule(
        id=f"{to_group}-{position}",
        created_at=NOW,
        version=1,
        project_id="p",
        project="vision",
        domain="default",
        from_group="default",
        to_group=to_group,
        position=position,
        after_seconds=after,
        changed_by_role="admin",
    )


def test_targets_are_ordered_by_position_then_by_cost() -> None:
    rules = [rule("cloud", 1), rule("far", 0, 60), rule("near", 0, 300), rule("closed", 0)]
    found = targets(rules, ["cloud", "far", "near"], {"far": 3.5, "near": 2.0}, NOW)
    assert [(one.resource_group, one.moves_at) for one in found] == [
        ("near", NOW + timedelta(seconds=300)),
        ("far", NOW + timedelta(seconds=60)),
        ("cloud", NOW),
    ]


def world(cpus: dict[str, int], wanted: list[int]) -> tuple[Snapshot, Queue]:
    """Return a world in which ``main`` is full and other groups have ``cpus`` free cores."""
    agents = [with_usage(agent(), slots(cpu="8"))]
    for group, free in cpus.items():
        other = agent(group, resource_group=group)
        agents.append(with_usage(other, slots(cpu=str(8 - free))) if free < 8 else other)
    blocker = running("r", BOB, "a", slots(cpu="8"), ends_at=NOW + timedelta(hours=1))
    pending = [
        pending_session(number, wanted=request(cpu=str(cpu)), scopes=(ANN, MAIN))
        for number, cpu in enumerate(wanted, 1)
    ]
    seen = snapshot(pending, agents, running=[blocker])
    queue = Queue(seen)
    queue.run(NOW)
    return seen, queue


def test_session_moves_to_the_first_group_in_which_it_starts() -> None:
    _, queue = world({"near": 1, "far": 8}, [2])
    moves = find_moves(queue, [Candidate("s1", GROUPS)], Changes(), NOW)
    assert moves == [Move("s1", "main", "far")]
    assert queue.pending("s1").request.resource_group == "main"  # type: ignore[union-attr]


def test_two_sessions_do_not_move_to_the_same_capacity() -> None:
    _, queue = world({"near": 3}, [2, 2])
    moves = find_moves(queue, [Candidate(name, GROUPS) for name in ("s1", "s2")], Changes(), NOW)
    assert moves == [Move("s1", "main", "near")]


def test_cap_of_a_group_without_sessions_is_respected() -> None:
    _, queue = world({"near": 8}, [2])
    scope = Scope(ScopeKind.RESOURCE_GROUP, "near")
    limits = Changes(caps={scope: ScopeCaps(scope, "near", slots(cpu="1"))}, usage={scope: {}})
    assert find_moves(queue, [Candidate("s1", GROUPS)], limits, NOW) == []


@given(
    cpus=st.fixed_dictionaries({"near": st.integers(0, 8), "far": st.integers(0, 8)}),
    wanted=st.lists(st.integers(1, 6), min_size=1, max_size=5),
    groups=st.permutations(GROUPS),
)
def test_every_moved_session_starts_in_the_next_pass(
    cpus: dict[str, int], wanted: list[int], groups: list[str]
) -> None:
    seen, queue = world(cpus, wanted)
    names = [f"s{number}" for number in range(1, len(wanted) + 1)]
    moves = find_moves(queue, [Candidate(name, groups) for name in names], Changes(), NOW)
    # First fit: each session, in order, takes the first group with enough free cores.
    free = dict(cpus)
    expected = []
    for name, cpu in zip(names, wanted, strict=True):
        group = next((group for group in groups if free[group] >= cpu), None)
        if group is not None:
            free[group] -= cpu
            expected.append(Move(name, "main", group))
    assert moves == expected
