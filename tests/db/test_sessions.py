"""Store of sessions: creation, placement, transitions, release of resources, and lists."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
import sqlalchemy as sa

from bai_services.core.accounts.roles import Visibility
from bai_services.core.audit import AuditEntry
from bai_services.core.errors import (
    AlreadyExists,
    Conflict,
    InUse,
    InvalidTransition,
    NotFound,
    QuotaExceeded,
)
from bai_services.core.listing import ListQuery
from bai_services.core.resources import Caps
from bai_services.core.scheduling.caps import Scope
from bai_services.core.scheduling.queue import run_pass
from bai_services.core.sessions.lifecycle import Event, Result, Status
from bai_services.db.sessions import dependencies
from bai_services.db.sessions.dependencies import DependencyStore
from bai_services.db.sessions.lost_agents import LostAgentStore
from bai_services.db.sessions.session_insert import NewSession
from bai_services.db.sessions.transitions import Move, TransitionValues
from bai_services.db.tables import accounts, cluster, folders
from bai_services.db.tables.folders import vfolder_mounts

from .world import NOW, World, make_world

USER = Scope("user", "u1")


@pytest.fixture
async def world(database_url: str) -> AsyncIterator[World]:
    world = await make_world(database_url)
    yield world
    await world.close()


async def test_enqueue_is_idempotent(world: World) -> None:
    first, made = await world.sessions.enqueue(world.new_session("lab"), NOW)
    again, made_again = await world.sessions.enqueue(world.new_session("lab"), NOW)
    assert (made, made_again) == (True, False)
    assert first.id == again.id
    assert (first.owner, first.project, first.status) == ("ann", "p", Status.PENDING)


async def test_move_all_skips_invalid_transitions_and_unknown_ids(world: World) -> None:
    ids = [
        (await world.sessions.enqueue(world.new_session(name), NOW))[0].id for name in ("a1", "b1")
    ]
    await world.sessions.move(ids[0], Event.STOP_REQUESTED, NOW)
    moved = await world.sessions.move_all(
        [Move(key, Event.STOP_REQUESTED) for key in [*ids, "nobody"]], NOW
    )
    assert [(one.row.id, one.row.status) for one in moved] == [(ids[1], Status.CANCELLED)]
    assert moved[0].row == await world.sessions.find(ids[1])
    assert len(await world.sessions.history(ids[0])) == 1


async def test_cluster_session_on_a_lost_agent_is_listed_once(world: World) -> None:
    new = world.new_session("lab", sub_kernel_ids=("k1", "k2"))
    await world.sessions.enqueue(new, NOW)
    assert await world.run_pass() == [new.id]
    await world.write(sa.update(cluster.agents).values(status="LOST", status_changed_at=NOW))
    (found,) = await LostAgentStore(world.database).sessions()
    assert (found.row.id, found.row.status) == (new.id, Status.SCHEDULED)
    assert [kernel.is_lost for kernel in found.kernels] == [True] * 3


async def test_status_info_of_ended_session_is_not_changed(world: World) -> None:
    row, _ = await world.sessions.enqueue(world.new_session("lab"), NOW)
    await world.sessions.set_status_info(row.id, "waits for the Hub")
    assert (await world.sessions.find(row.id)).status_info == "waits for the Hub"
    await world.sessions.move(row.id, Event.STOP_REQUESTED, NOW)
    ended = (await world.sessions.find(row.id)).status_info
    await world.sessions.set_status_info(row.id, "waits for the Hub")
    assert (await world.sessions.find(row.id)).status_info == ended != "waits for the Hub"


async def test_audit_records_only_new_sessions(world: World) -> None:
    def entry(made: Sequence[NewSession]) -> AuditEntry:
        return AuditEntry(NOW, "ann", "session.create", "session", made[0].id)

    made = [await world.sessions.enqueue(world.new_session("lab"), NOW, entry) for _ in range(2)]
    with pytest.raises(AlreadyExists):
        await world.sessions.enqueue(world.new_session("lab", request_hash="other"), NOW, entry)
    async with world.database.read() as tx:
        assert list(await tx.scalars(sa.select(accounts.audit_log.c.entity_id))) == [made[0][0].id]


async def test_same_name_with_other_specification_is_rejected(world: World) -> None:
    await world.sessions.enqueue(world.new_session("lab"), NOW)
    with pytest.raises(AlreadyExists, match="'lab' is PENDING"):
        await world.sessions.enqueue(world.new_session("lab", request_hash="other"), NOW)
    _, made = await world.sessions.enqueue(world.new_session("lab", user=2), NOW)
    assert made


async def test_name_of_ended_session_can_be_reused(world: World) -> None:
    first, _ = await world.sessions.enqueue(world.new_session("lab"), NOW)
    await world.sessions.move(first.id, Event.STOP_REQUESTED, NOW)
    second, made = await world.sessions.enqueue(world.new_session("lab"), NOW)
    assert made
    found = await world.sessions.find_by_key("lab", Visibility(), "u1")
    assert found.id == second.id


async def test_keypair_at_its_pending_cap_cannot_create_another_session(world: World) -> None:
    await world.set_caps("keypair", {}, max_pending_sessions=1)
    await world.sessions.enqueue(world.new_session("one"), NOW)
    with pytest.raises(QuotaExceeded, match=r"the keypair of user ann \(policy default\)"):
        await world.sessions.enqueue(world.new_session("two"), NOW)
    await world.sessions.enqueue(world.new_session("two", user=2), NOW)


async def test_pending_sessions_of_user_are_capped(world: World) -> None:
    async with world.database.read() as tx:
        policies = accounts.user_policies
        assert await tx.scalar(sa.select(policies.c.max_pending_sessions)) == 1000
    await world.set_caps("user", {}, max_pending_sessions=2)
    results = await asyncio.gather(
        *(world.sessions.enqueue(world.new_session(f"lab{n}"), NOW) for n in range(4)),
        return_exceptions=True,
    )
    refused = [result for result in results if isinstance(result, BaseException)]
    assert len(refused) == 2
    assert all(isinstance(error, QuotaExceeded) for error in refused), refused
    assert "user ann may have at most 2 pending sessions" in str(refused[0])
    await world.sessions.enqueue(world.new_session("other", user=2), NOW)
    # A bulk request creates all of its sessions, or none.
    await world.set_caps("user", {}, max_pending_sessions=4)
    counts = "at most 4 pending sessions: 2 pending, 2 left, 3 requested; cancel some"
    with pytest.raises(QuotaExceeded, match=counts):
        await world.sessions.enqueue_all([world.new_session(f"more{n}") for n in range(3)], NOW)
    await world.set_caps("user", {}, max_pending_sessions=None)
    await world.sessions.enqueue_all([world.new_session(f"more{n}") for n in range(3)], NOW)


@pytest.mark.parametrize(
    "table, changes",
    [
        pytest.param(accounts.users, {"domain": "e"}, id="owner moved"),
        pytest.param(accounts.users, {"status": "inactive"}, id="owner deactivated"),
        pytest.param(accounts.domains, {"is_active": False}, id="domain deactivated"),
    ],
)
async def test_session_is_not_created_after_a_change_of_its_owner_or_domain(
    world: World, table: sa.Table, changes: dict[str, Any]
) -> None:
    domain = {"total_resource_slots": Caps({}), "allowed_vfolder_hosts": {}}
    await world.write(
        sa.insert(accounts.domains).values(name="e", created_at=NOW, **domain),
        sa.update(table).values(changes),
    )
    with pytest.raises(Conflict, match="the account has changed"):
        await world.sessions.enqueue(world.new_session("lab"), NOW)
    assert await world.sessions.in_status(Status.PENDING) == []


async def test_placement_allocates_and_end_releases_resources(world: World) -> None:
    row, _ = await world.sessions.enqueue(world.new_session("lab"), NOW)
    assert await world.run_pass() == [row.id]
    assert await world.usage(USER) == {"cpu": 1000, "mem": 2**30, "cuda.shares": 250, "sessions": 1}
    view = await world.sessions.view(row.id)
    assert [(a.agent_id, a.device_id, a.slot, a.amount) for a in view.allocations] == [
        ("a1", None, "cpu", 1000),
        ("a1", None, "mem", 2**30),
        ("a1", "a1-g0", "cuda.shares", 250),
    ]
    assert view.allocations[2].is_simulated
    assert await world.allocations.audit() == []
    moved = await world.sessions.move(
        row.id, Event.FAILED, NOW, TransitionValues(reason="no image")
    )
    assert (moved.row.status, moved.is_freed) == (Status.ERROR, True)
    assert set((await world.usage(USER)).values()) == {0}
    assert await world.allocations.audit() == []
    assert [s.to_status for s in await world.sessions.history(row.id)] == ["SCHEDULED", "ERROR"]


async def test_events_move_a_session_from_placement_to_exit(world: World) -> None:
    row, _ = await world.sessions.enqueue(world.new_session("lab"), NOW)
    await world.run_pass()
    move = world.sessions.move
    await move(row.id, Event.DISPATCHED, world.advance())
    await move(row.id, Event.PREPARED, world.advance(), TransitionValues(injection={"environ": {}}))
    await move(row.id, Event.STARTED, world.advance(), TransitionValues(container_id="c1"))
    await move(row.id, Event.STOP_REQUESTED, world.advance(), TransitionValues(reason="by ann"))
    assert (await world.usage(USER))["sessions"] == 1
    facts = TransitionValues(result=Result.SUCCESS, exit_code=0, log="hello\0world")
    moved = await move(row.id, Event.EXITED, world.advance(), facts)
    assert (moved.row.status, moved.row.exit_code) == (Status.TERMINATED, 0)
    assert moved.row.result == "success"
    assert moved.row.terminated_at == world.now
    assert await world.sessions.log(row.id) == "hello\ufffdworld"
    with pytest.raises(InvalidTransition):
        await move(row.id, Event.EXITED, world.advance())
    with pytest.raises(NotFound):
        await move("none", Event.EXITED, world.advance())


async def test_obsolete_decision_is_not_committed(world: World) -> None:
    row, _ = await world.sessions.enqueue(world.new_session("lab"), NOW)
    snapshot = await world.queue.snapshot(NOW)
    decisions = run_pass(snapshot).decisions

    async def place() -> bool:
        return bool((await world.queue.commit(decisions, NOW, token=None)).placed)

    await world.write(sa.update(cluster.devices).values(used=1000))
    assert not await place()
    assert (await world.sessions.find(row.id)).status is Status.PENDING
    assert await world.usage(USER) == {}
    await world.write(
        sa.update(cluster.devices).values(used=0), sa.update(cluster.agents).values(status="LOST")
    )
    assert not await place()
    await world.write(sa.update(cluster.agents).values(status="ALIVE"))
    assert await place()
    assert not await place()


async def test_lowered_cap_applies_to_pending_session(world: World) -> None:
    row, _ = await world.sessions.enqueue(world.new_session("lab"), NOW)
    await world.set_caps("domain", {"cuda.shares": "0"})
    assert await world.run_pass() == []
    reason = (await world.sessions.find(row.id)).reasons[0]
    assert (reason["scope"], reason["slot"], reason["limit"]) == ("domain", "cuda.shares", "0")


async def test_session_uses_its_folders_from_creation_to_end(world: World) -> None:
    await world.write(
        sa.insert(folders.vfolders).values(
            id="f1",
            created_at=NOW,
            host="local",
            name="data",
            domain="d",
            scope="user:u1",
            live_name="data",
            owner_id="u1",
            creator_id="u1",
            status_changed_at=NOW,
        )
    )
    mount = {"vfolder_id": "f1", "vfolder": "data", "path": "/home/work/data", "permission": "ro"}
    row, _ = await world.sessions.enqueue(world.new_session("lab", mounts=[mount]), NOW)

    async def held() -> int:
        async with world.database.read() as tx:
            count = sa.select(sa.func.count()).select_from(vfolder_mounts)
            return int(await tx.scalar(count) or 0)

    assert await held() == 1
    await world.sessions.move(row.id, Event.STOP_REQUESTED, NOW)
    assert await held() == 0
    await world.write(sa.update(folders.vfolders).values(status="trash"))
    with pytest.raises(InUse, match="data is no longer ready"):
        await world.sessions.enqueue(world.new_session("lab", mounts=[mount]), NOW)
    assert (await world.sessions.page(ListQuery(), Visibility())).total == 1


async def test_page_contains_only_visible_sessions(world: World) -> None:
    for number in (1, 2):
        await world.sessions.enqueue(
            world.new_session(f"lab{number}", user=number), world.advance()
        )
    await world.set_caps("user", {}, max_concurrent_sessions=0)
    await world.run_pass()
    page = await world.sessions.page(ListQuery(), Visibility())
    assert [(v.row.name, v.queue_position) for v in page.items] == [("lab2", 2), ("lab1", 1)]
    page = await world.sessions.page(ListQuery(filters={"owner": "bob"}), Visibility())
    assert [v.row.name for v in page.items] == ["lab2"]
    assert (await world.sessions.page(ListQuery(), Visibility(owner_id="u1"))).total == 1
    assert (await world.sessions.page(ListQuery(), Visibility(domain="other"))).total == 0
    await world.sessions.enqueue(world.new_session("lab1", user=2), world.advance())
    assert (await world.sessions.find_by_key("lab1", Visibility(), "u1")).owner == "ann"
    with pytest.raises(NotFound, match="several users"):
        await world.sessions.find_by_key("lab1", Visibility(), "u3")
    with pytest.raises(NotFound):
        await world.sessions.find_by_key("lab1", Visibility(owner_id="u3"), "u3")


@pytest.mark.parametrize(
    ("part", "names"),
    [
        pytest.param("ALPHA", ["alpha_99", "Alpha-1"], id="other case"),
        pytest.param("a-1", ["Alpha-1"], id="part of a name"),
        pytest.param("99", ["alpha_99", "beta.99"], id="digits"),
        pytest.param("_9", ["alpha_99"], id="underscore is literal"),
        pytest.param("%", [], id="percent sign is literal"),
        pytest.param("\\", [], id="backslash is literal"),
        pytest.param("ä", [], id="non-ASCII letter"),
        pytest.param("Ä9", [], id="non-ASCII letter and digit"),
    ],
)
async def test_contains_filter_matches_part_of_name(
    world: World, part: str, names: list[str]
) -> None:
    for name in ("beta.99", "Alpha-1", "alpha_99"):
        await world.sessions.enqueue(world.new_session(name), world.advance())
    page = await world.sessions.page(ListQuery(filters={"name__contains": part}), Visibility())
    assert [view.row.name for view in page.items] == names
    assert page.total == len(names)


@pytest.mark.parametrize(
    ("filters", "names"),
    [
        pytest.param({"owner": "ann"}, ["one", "two"], id="owner"),
        pytest.param({"owner": "ann", "project": "p"}, ["one", "two"], id="owner and project"),
        pytest.param({"owner": "nobody"}, [], id="unknown owner"),
        pytest.param({"project": "none"}, [], id="unknown project"),
        pytest.param({"owner__in": "bob,nobody"}, ["three"], id="several owners"),
        pytest.param({"owner__contains": "B"}, ["three"], id="part of the owner's name"),
        pytest.param({"owner__ne": "bob"}, ["one", "two"], id="other owners"),
        pytest.param({"owner__gt": "ann"}, ["three"], id="owners after a name"),
    ],
)
async def test_sessions_are_filtered_by_owner_and_project(
    world: World, filters: dict[str, str], names: list[str]
) -> None:
    for name, number in (("one", 1), ("two", 1), ("three", 2)):
        await world.sessions.enqueue(world.new_session(name, user=number), world.advance())
    page = await world.sessions.page(ListQuery(filters=filters, sort=["created_at"]), Visibility())
    assert [view.row.name for view in page.items] == names
    assert page.total == len(names)


async def test_filter_may_match_many_users(world: World) -> None:
    """If more than 20 users match, the store applies the filter with a join."""
    await world.sessions.enqueue(world.new_session("lab"), world.advance())
    await world.sessions.enqueue(world.new_session("of-bob", user=2), world.advance())
    async with world.database.write() as tx:
        ann = dict((await tx.execute(sa.select(accounts.users))).mappings().first() or {})
        others = [
            {**ann, "id": f"x{number}", "username": f"anna-{number}", "email": f"{number}@x"}
            for number in range(30)
        ]
        await tx.execute(sa.insert(accounts.users), others)
    page = await world.sessions.page(ListQuery(filters={"owner__contains": "an"}), Visibility())
    assert [view.row.name for view in page.items] == ["lab"]


@pytest.mark.parametrize(("offset", "count"), [(0, 2), (1, 2), (2, 1), (3, 0), (9, 0)])
async def test_every_page_has_the_total(world: World, offset: int, count: int) -> None:
    for number in range(3):
        await world.sessions.enqueue(world.new_session(f"lab{number}"), world.advance())
    page = await world.sessions.page(ListQuery(limit=2, offset=offset), Visibility())
    assert (len(page.items), page.total) == (count, 3)


async def test_incomplete_graph_contains_the_session(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dependencies, "GRAPH_LIMIT", 3)
    await world.sessions.enqueue(world.new_session("first", id="z"), NOW)
    for key in ("a", "b", "c", "d"):
        session = world.new_session(f"after-{key}", id=key, dependencies=("z",))
        await world.sessions.enqueue(session, NOW)
    graph = await DependencyStore(world.database).graph("z")
    shown = {item.id for item in graph.sessions}
    assert ("z" in shown, len(shown), graph.is_cut) == (True, 3, True)
    assert len(graph.pairs) == 2


async def test_order_of_equal_rows_is_reversed_with_the_requested_order(world: World) -> None:
    """Sessions with the same name are listed by creation time, in the requested direction.

    Sessions of one user may have the same name only if all but one of them have ended.
    """
    for _ in range(3):
        row, _ = await world.sessions.enqueue(world.new_session("lab"), world.advance())
        await world.sessions.move(row.id, Event.STOP_REQUESTED, NOW)
    ascending, descending = [
        [view.row.created_at for view in page.items]
        for page in [
            await world.sessions.page(ListQuery(sort=[sort]), Visibility())
            for sort in ("name", "-name")
        ]
    ]
    assert ascending == sorted(ascending)
    assert descending == ascending[::-1]


async def test_rename_keeps_names_unique(world: World) -> None:
    one, _ = await world.sessions.enqueue(world.new_session("one"), NOW)
    await world.sessions.enqueue(world.new_session("two"), NOW)
    with pytest.raises(AlreadyExists):
        await world.sessions.rename(one.id, "two")
    assert (await world.sessions.rename(one.id, "three")).name == "three"
    with pytest.raises(NotFound):
        await world.sessions.rename("none", "four")


async def test_audit_reports_counters_that_differ_from_allocations(world: World) -> None:
    await world.sessions.enqueue(world.new_session("lab"), NOW)
    await world.run_pass()
    await world.write(sa.update(cluster.devices).values(used=10))
    assert len(await world.allocations.audit()) == 2


async def test_changed_policy_applies_to_next_pass(world: World) -> None:
    await world.write(
        sa.update(accounts.keypair_policies).values(default_for_unspecified="LIMITED")
    )
    await world.sessions.enqueue(world.new_session("lab"), NOW)
    assert await world.run_pass() == []
    await world.set_caps("keypair", {"cpu": "1", "mem": "1g", "cuda.shares": "0.25"})
    assert len(await world.run_pass()) == 1


async def test_session_of_inactive_user_is_not_placed(world: World) -> None:
    row, _ = await world.sessions.enqueue(world.new_session("lab"), NOW)
    await world.write(sa.update(accounts.users).values(status="inactive"))
    assert await world.run_pass() == []
    reason = (await world.sessions.find(row.id)).reasons[0]
    assert (reason["check"], reason["message"]) == ("account", "the account ann is not active")
    await world.write(sa.update(accounts.users).values(status="active"))
    assert await world.run_pass() == [row.id]


async def test_session_of_former_member_is_not_placed(world: World) -> None:
    row, _ = await world.sessions.enqueue(world.new_session("lab"), NOW)
    await world.write(sa.delete(accounts.memberships))
    assert await world.run_pass() == []
    reason = (await world.sessions.find(row.id)).reasons[0]
    assert reason["message"] == "ann is not a member of project p"
    member = sa.insert(accounts.memberships).values(user_id="u1", project_id="p1")
    await world.write(member)
    assert await world.run_pass() == [row.id]


async def test_displaced_session_keeps_its_queue_position(world: World) -> None:
    first, _ = await world.sessions.enqueue(
        world.new_session("lab1", {"cpu": "8", "mem": "1g"}), NOW
    )
    await world.run_pass()
    await world.sessions.enqueue(world.new_session("lab2", {"cpu": "8", "mem": "1g"}), NOW)
    moved = await world.sessions.move(first.id, Event.DISPLACED, world.advance())
    assert (moved.row.status, moved.is_freed) == (Status.PENDING, True)
    view = await world.sessions.view(first.id)
    assert (view.allocations, view.kernels[0].agent_id) == ((), None)
    assert await world.allocations.audit() == []
    assert await world.run_pass() == [first.id]
