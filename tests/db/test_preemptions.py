"""The list of preemptions names only sessions that are visible to the caller."""

from __future__ import annotations

from datetime import timedelta

import sqlalchemy as sa

from bai_services.core.accounts.roles import Role, Visibility
from bai_services.core.listing import ListQuery
from bai_services.db.scheduling.preemption import PreemptionStore
from bai_services.db.tables import accounts, cluster
from bai_services.db.tables.preemption import preemption_plans, preemption_victims

from .world import NOW, World, make_world

OF_ADMIN = Visibility(domain="d", hidden_roles=frozenset({Role.SUPERADMIN}))


async def plan(world: World, beneficiary: str, victim: str) -> None:
    await world.write(
        sa.insert(preemption_plans).values(
            id=f"plan-{beneficiary}",
            created_at=NOW,
            session_id=beneficiary,
            resource_group="main",
            placements=[],
            mode="reschedule",
            grace_seconds=60,
            stops_at=NOW + timedelta(seconds=60),
            outcome="",
        ),
        sa.insert(preemption_victims).values(
            plan_id=f"plan-{beneficiary}", session_id=victim, rule="priority"
        ),
    )


async def test_sessions_of_a_higher_role_are_not_named(database_url: str) -> None:
    world = await make_world(database_url)
    await world.write(
        sa.update(accounts.users).where(accounts.users.c.id == "u2").values(role="superadmin")
    )
    ids = {}
    for name, number in (("lab", 1), ("secret", 2), ("hidden", 2)):
        row, _ = await world.sessions.enqueue(world.new_session(name, user=number), NOW)
        ids[name] = row.id
    await plan(world, ids["secret"], ids["lab"])
    await plan(world, ids["lab"], ids["hidden"])
    await plan(world, ids["hidden"], ids["secret"])
    store = PreemptionStore(world.database)
    page = await store.page(ListQuery(sort=("owner",)), OF_ADMIN)
    shown = [(p.session_id, p.owner, p.domain, [v.session for v in p.victims]) for p in page.items]
    assert shown == [("", "", "", ["lab"]), (ids["lab"], "ann", "d", [])]
    assert [p.victim_count for p in page.items] == [1, 1]
    # A filter does not reveal the names, either.
    for filters in (
        {"session": "secret"},
        {"owner__contains": "bo"},
        {"session_id": ids["secret"]},
    ):
        assert (await store.page(ListQuery(filters=filters), OF_ADMIN)).total == 0
        assert (await store.page(ListQuery(filters=filters), Visibility())).total > 0
    assert (await store.page(ListQuery(), Visibility())).total == 3
    await world.close()


async def test_plan_of_a_session_that_may_not_start_is_blocked(database_url: str) -> None:
    world = await make_world(database_url)
    ids = {}
    for name, number in (("lab", 1), ("high", 2)):
        row, _ = await world.sessions.enqueue(world.new_session(name, user=number), NOW)
        ids[name] = row.id
    await plan(world, ids["high"], ids["lab"])
    store, groups = PreemptionStore(world.database), cluster.resource_groups

    async def is_blocked() -> bool:
        (found,) = await store.active()
        return found.is_blocked

    assert not await is_blocked()
    await world.write(sa.update(groups).values(is_active=False))
    assert await is_blocked()
    await world.write(sa.update(groups).values(is_active=True))
    of_bob = accounts.keypairs.c.access_key == "AK2"
    await world.write(sa.update(accounts.keypairs).where(of_bob).values(is_active=False))
    assert await is_blocked()
    await world.close()
