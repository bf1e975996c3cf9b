"""Store of folders: lifecycle, mounts, and races."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import sqlalchemy as sa

from bai_services.core.audit import AuditEntry
from bai_services.core.errors import (
    AlreadyExists,
    Conflict,
    InUse,
    InvalidTransition,
    NotFound,
    QuotaExceeded,
)
from bai_services.core.folders.vfolders import InvitationStatus, VfolderEvent, VfolderStatus
from bai_services.core.listing import ListQuery
from bai_services.core.notifications.events import folder_shared
from bai_services.core.resources import Caps
from bai_services.core.sessions.lifecycle import Event, Status
from bai_services.db.accounts.checked_users import CheckedUser
from bai_services.db.accounts.users import UserChange, UserStore
from bai_services.db.folders.grants import GrantStore
from bai_services.db.folders.invitations import InvitationStore
from bai_services.db.folders.quota_scopes import QuotaStore
from bai_services.db.folders.rows import VfolderRow, VfolderVisibility
from bai_services.db.folders.vfolders import VfolderStore
from bai_services.db.tables import accounts
from bai_services.db.tables.folders import vfolder_grants, vfolder_invitations, vfolder_mounts

from .test_races import in_threads
from .world import NOW, World, make_world

ENTRY = AuditEntry(at=NOW, actor="ann", action="vfolder.test", entity="vfolder", entity_id="-")
EVENT = folder_shared("i1", NOW, "u2", "default", name="data", user="ann", permission="ro")
ALL = VfolderVisibility(None, frozenset(), sees_all=True)


def folder_values(folder_id: str, name: str = "data", user: str = "u1") -> dict[str, Any]:
    return {
        "id": folder_id,
        "created_at": NOW,
        "host": "local",
        "name": name,
        "domain": "d",
        "scope": f"user:{user}",
        "owner_id": user,
        "project_id": None,
        "creator_id": user,
        "usage_mode": "general",
        "permission": "rw",
        "cloneable": False,
    }


def mount_values(folder_id: str, path: str = "/home/work/data") -> dict[str, Any]:
    return {
        "vfolder_id": folder_id,
        "vfolder": "data",
        "host": "local",
        "path": path,
        "permission": "rw",
    }


async def row_of(store: VfolderStore, folder_id: str) -> VfolderRow:
    (row,) = await store.named(folder_id, ALL, [])
    return row


@pytest.fixture
async def world(database_url: str) -> AsyncIterator[World]:
    made = await make_world(database_url)
    yield made
    await made.close()


@pytest.fixture
async def store(world: World) -> VfolderStore:
    made = VfolderStore(world.database)
    await made.create(folder_values("f1"), ENTRY)
    return made


async def test_mounted_folder_cannot_be_trashed_or_renamed(
    world: World, store: VfolderStore
) -> None:
    await world.sessions.enqueue(world.new_session("lab", mounts=[mount_values("f1")]), NOW)
    assert (await row_of(store, "f1")).is_mounted
    with pytest.raises(InUse, match="lab of ann") as refused:
        await store.apply_event("f1", VfolderEvent.TRASHED, NOW, ENTRY)
    assert refused.value.details["sessions"][0]["name"] == "lab"
    with pytest.raises(InUse, match="cannot be renamed"):
        await store.update("f1", {"name": "other"}, ENTRY)
    row = await row_of(store, "f1")
    assert (row.name, row.status) == ("data", VfolderStatus.READY)
    await store.update("f1", {"permission": "ro"}, ENTRY)
    (session,) = await world.sessions.in_status(Status.PENDING)
    await world.sessions.move(session.id, Event.STOP_REQUESTED, NOW)
    await store.apply_event("f1", VfolderEvent.TRASHED, NOW, ENTRY)
    assert (await row_of(store, "f1")).status is VfolderStatus.DELETE_PENDING


async def test_trashed_folder_cannot_be_mounted(world: World, store: VfolderStore) -> None:
    await store.apply_event("f1", VfolderEvent.TRASHED, NOW, ENTRY)
    with pytest.raises(InUse, match="data is no longer ready"):
        await world.sessions.enqueue(world.new_session("lab", mounts=[mount_values("f1")]), NOW)
    assert await world.sessions.in_status(Status.PENDING) == []


async def test_name_of_trashed_folder_can_be_reused(store: VfolderStore) -> None:
    with pytest.raises(AlreadyExists):
        await store.create(folder_values("f2"), ENTRY)
    await store.apply_event("f1", VfolderEvent.TRASHED, NOW, ENTRY)
    await store.create(folder_values("f2"), ENTRY)
    with pytest.raises(AlreadyExists, match="another folder is now named"):
        await store.apply_event("f1", VfolderEvent.RESTORED, NOW, ENTRY)
    await store.update("f2", {"name": "second"}, ENTRY)
    await store.apply_event("f1", VfolderEvent.RESTORED, NOW, ENTRY)
    assert (await row_of(store, "f1")).status is VfolderStatus.READY
    with pytest.raises(AlreadyExists):
        await store.update("f2", {"name": "data"}, ENTRY)


async def test_only_trashed_folder_can_be_purged_and_failed_purge_can_be_repeated(
    store: VfolderStore,
) -> None:
    with pytest.raises(InvalidTransition):
        await store.apply_event("f1", VfolderEvent.PURGED, NOW)
    await store.apply_event("f1", VfolderEvent.TRASHED, NOW)
    await store.apply_event("f1", VfolderEvent.PURGED, NOW)
    for event in (VfolderEvent.PURGED, VfolderEvent.RESTORED):
        with pytest.raises(InvalidTransition):
            await store.apply_event("f1", event, NOW)
    await store.apply_event("f1", VfolderEvent.FAILED, NOW)
    await store.apply_event("f1", VfolderEvent.PURGED, NOW)
    await store.apply_event("f1", VfolderEvent.EMPTIED, NOW)
    assert (await row_of(store, "f1")).status is VfolderStatus.DELETE_COMPLETE


async def test_change_of_folder_that_is_not_ready_is_a_conflict(
    world: World, store: VfolderStore
) -> None:
    await world.add_user(3, "u2")
    invitations = InvitationStore(world.database)
    values = {
        "id": "i1", "vfolder_id": "f1", "inviter_id": "u1", "invitee_id": "u2",
        "inviter": "ann", "permission": "ro", "created_at": NOW, "status_changed_at": NOW,
    }  # fmt: skip
    await invitations.create(values, ENTRY, EVENT)
    await store.apply_event("f1", VfolderEvent.TRASHED, NOW, ENTRY)
    for change in (
        store.update("f1", {"permission": "ro"}, ENTRY),
        invitations.create({**values, "id": "i2"}, ENTRY, EVENT),
        invitations.settle("i1", InvitationStatus.ACCEPTED, NOW, ENTRY),
        offer(world),
        grant(world),
    ):
        with pytest.raises(Conflict, match="folder data is delete-pending, not ready"):
            await change
    await store.apply_event("f1", VfolderEvent.PURGED, NOW)
    await store.apply_event("f1", VfolderEvent.EMPTIED, NOW)
    for gone in (
        store.update("f1", {"permission": "ro"}, ENTRY),
        store.update("f9", {"permission": "ro"}, ENTRY),
        offer(world),
    ):
        with pytest.raises(NotFound, match="no longer exists"):
            await gone


def test_exactly_one_of_a_concurrent_delete_and_session_start_succeeds(database_url: str) -> None:
    rounds = 20

    async def prepare() -> None:
        world = await make_world(database_url)
        store = VfolderStore(world.database)
        for number in range(rounds):
            await store.create(folder_values(f"f{number}", f"data{number}"), ENTRY)
        await world.close()

    barrier = threading.Barrier(2)
    won: dict[str, set[int]] = {"start": set(), "delete": set()}

    async def start() -> None:
        world = World(database_url)
        for number in range(rounds):
            await asyncio.to_thread(barrier.wait, 30)
            try:
                new = world.new_session(f"lab{number}", mounts=[mount_values(f"f{number}")])
                await world.sessions.enqueue(new, NOW)
                won["start"].add(number)
            except InUse:
                pass
        await world.close()

    async def delete() -> None:
        world = World(database_url)
        store = VfolderStore(world.database)
        for number in range(rounds):
            await asyncio.to_thread(barrier.wait, 30)
            try:
                await store.apply_event(f"f{number}", VfolderEvent.TRASHED, NOW, ENTRY)
                won["delete"].add(number)
            except InUse:
                pass
        await world.close()

    async def check() -> None:
        world = World(database_url)
        store = VfolderStore(world.database)
        async with world.database.read() as tx:
            held = set(await tx.scalars(sa.select(vfolder_mounts.c.vfolder_id)))
        for number in range(rounds):
            is_ready = (await row_of(store, f"f{number}")).status is VfolderStatus.READY
            assert is_ready == (number in won["start"]) == (f"f{number}" in held)
        await world.close()

    asyncio.run(prepare())
    in_threads([start, delete])
    assert won["start"] | won["delete"] == set(range(rounds))
    assert not won["start"] & won["delete"]
    asyncio.run(check())


def test_concurrent_creates_respect_max_vfolder_count(database_url: str) -> None:
    async def prepare() -> None:
        world = await make_world(database_url)
        await world.write(sa.update(accounts.user_policies).values(max_vfolder_count=5))
        await world.close()

    async def create(number: int) -> None:
        world = World(database_url)
        store = VfolderStore(world.database)
        for i in range(3):
            name = f"f{number}-{i}"
            try:
                await store.create(folder_values(name, name), ENTRY)
            except QuotaExceeded as refused:
                assert refused.details == {"scope": "user", "limit": 5, "used": 5}
        await world.close()

    async def count() -> int:
        world = World(database_url)
        rows = await VfolderStore(world.database).in_status(VfolderStatus.READY)
        await world.close()
        return len(rows)

    asyncio.run(prepare())
    in_threads([lambda n=n: create(n) for n in range(6)])  # type: ignore[misc]
    assert asyncio.run(count()) == 5


def test_usage_of_a_scope_is_correct_after_concurrent_purges(database_url: str) -> None:
    numbers = range(6)

    async def prepare() -> None:
        world = await make_world(database_url)
        store, quotas = VfolderStore(world.database), QuotaStore(world.database)
        for number in numbers:
            await store.create(folder_values(f"f{number}", f"data{number}"), ENTRY)
            await quotas.record_folder_usage(f"f{number}", 1, 1000, NOW, sums_scope=True)
            for event in (VfolderEvent.TRASHED, VfolderEvent.PURGED):
                await store.apply_event(f"f{number}", event, NOW)
        assert await used(world) == 1000 * len(numbers)
        await world.close()

    async def purge(number: int) -> None:
        world = World(database_url)
        store = VfolderStore(world.database)
        await store.apply_event(f"f{number}", VfolderEvent.EMPTIED, NOW, sums_scope=True)
        await world.close()

    async def used(world: World) -> int | None:
        row = await QuotaStore(world.database).get("local", "user:u1")
        assert row is not None
        return row.used_bytes

    async def check() -> None:
        world = World(database_url)
        assert await used(world) == 0
        await world.close()

    asyncio.run(prepare())
    in_threads([lambda n=n: purge(n) for n in numbers])  # type: ignore[misc]
    asyncio.run(check())


async def test_id_takes_precedence_over_name_in_a_user_lookup(world: World) -> None:
    await world.add_user(3, "u2")
    store = GrantStore(world.database)
    for key, user_id in (("u1", "u1"), ("u2", "u2"), (" BOB ", "u2"), ("u2@example.org", "u3")):
        found = await store.find_user_in_any_domain(key)
        assert found is not None and found["id"] == user_id
        assert await store.find_user(key, "d") == found
        assert await store.find_user(key, "other") is None
    assert await store.find_user_in_any_domain("nobody") is None


OFFER = {
    "vfolder_id": "f1",
    "user_id": "u2",
    "permission": "ro",
    "granted_by": "ann",
    "created_at": NOW,
}
INVITATION = {
    "id": "i1",
    "vfolder_id": "f1",
    "created_at": NOW,
    "inviter_id": "u1",
    "inviter": "ann",
    "invitee_id": "u2",
    "permission": "ro",
    "status_changed_at": NOW,
}


async def offer(world: World) -> None:
    await GrantStore(world.database).offer(OFFER, {"id": "i1", "inviter_id": "u1"}, ENTRY, EVENT)


async def grant(world: World) -> None:
    await GrantStore(world.database).grant(OFFER, ENTRY)


async def invite(world: World) -> None:
    await InvitationStore(world.database).create(INVITATION, ENTRY, EVENT)


async def accept(world: World) -> None:
    store = InvitationStore(world.database)
    await store.settle("i1", InvitationStatus.ACCEPTED, NOW, ENTRY)


async def accesses(world: World) -> tuple[int, int]:
    """Return the number of grants and of pending invitations."""
    is_pending = vfolder_invitations.c.status == InvitationStatus.PENDING
    async with world.database.read() as tx:
        grants = await tx.scalar(sa.select(sa.func.count()).select_from(vfolder_grants))
        pending = await tx.scalar(sa.select(sa.func.count()).where(is_pending))
    return int(grants or 0), int(pending or 0)


async def add_domain(world: World) -> None:
    values = {"total_resource_slots": Caps({}), "allowed_vfolder_hosts": {}}
    await world.write(sa.insert(accounts.domains).values(name="e", created_at=NOW, **values))


async def move_invitee(world: World) -> None:
    change = UserChange({"domain": "e"}, domain="e")
    await UserStore(world.database).update(CheckedUser("u2", {}), change, ENTRY)


@pytest.mark.parametrize("share", [offer, grant, invite])
async def test_folder_cannot_be_shared_with_a_user_who_has_moved_to_another_domain(
    world: World, store: VfolderStore, share: Callable[[World], Awaitable[None]]
) -> None:
    await add_domain(world)
    await move_invitee(world)
    with pytest.raises(NotFound):
        await share(world)
    assert await accesses(world) == (0, 0)


async def test_invitation_between_domains_cannot_be_accepted(
    world: World, store: VfolderStore
) -> None:
    await add_domain(world)
    await invite(world)
    is_invitee = accounts.users.c.id == "u2"
    await world.write(sa.update(accounts.users).where(is_invitee).values(domain="e"))
    with pytest.raises(NotFound):
        await accept(world)
    assert await accesses(world) == (0, 1)


@pytest.mark.parametrize("share", [offer, grant, invite, accept])
def test_no_access_remains_if_a_user_changes_domain_while_a_folder_is_shared(
    database_url: str, share: Callable[[World], Awaitable[None]]
) -> None:
    async def prepare() -> None:
        world = await make_world(database_url)
        await VfolderStore(world.database).create(folder_values("f1"), ENTRY)
        await add_domain(world)
        if share is accept:
            await invite(world)
        # Control: if the invitee does not move, the grant gives access.
        await share(world)
        assert sum(await accesses(world)) == 1
        await world.write(sa.delete(vfolder_grants), sa.delete(vfolder_invitations))
        if share is accept:
            await invite(world)
        await world.close()

    async def run(work: Callable[[World], Awaitable[None]]) -> None:
        world = World(database_url)
        with contextlib.suppress(NotFound, Conflict):
            await work(world)
        await world.close()

    async def check() -> None:
        world = World(database_url)
        assert await accesses(world) == (0, 0)
        await world.close()

    asyncio.run(prepare())
    in_threads([lambda: run(share), lambda: run(move_invitee)])
    asyncio.run(check())


async def test_folder_is_not_created_in_the_domain_that_its_owner_has_left(world: World) -> None:
    await add_domain(world)
    await move_invitee(world)
    with pytest.raises(Conflict, match="the account has changed"):
        await VfolderStore(world.database).create(folder_values("f2", user="u2"), ENTRY)


def test_folder_that_is_created_while_its_owner_moves_has_the_owners_domain(
    database_url: str,
) -> None:
    created: list[str] = []

    async def create(number: int) -> None:
        world, key = World(database_url), f"f{number}"
        with contextlib.suppress(Conflict):
            await VfolderStore(world.database).create(folder_values(key, key, "u2"), ENTRY)
            created.append(key)
        await world.close()

    async def prepare() -> None:
        world = await make_world(database_url)
        await add_domain(world)
        await world.close()
        await create(0)
        assert created == ["f0"]

    async def move() -> None:
        world = World(database_url)
        await move_invitee(world)
        await world.close()

    async def check() -> None:
        world = World(database_url)
        rows = await VfolderStore(world.database).in_status(VfolderStatus.READY)
        assert {row.id: row.domain for row in rows} == dict.fromkeys(created, "e")
        await world.close()

    asyncio.run(prepare())
    in_threads([move, *(lambda n=n: create(n) for n in range(1, 5))])  # type: ignore[misc]
    asyncio.run(check())


@pytest.mark.parametrize("sort", [(), ("-status",)])
async def test_pages_of_invitations_made_at_the_same_time_are_ordered_by_id(
    world: World, store: VfolderStore, sort: tuple[str, ...]
) -> None:
    ids = [f"i{number}" for number in (2, 0, 3, 1)]
    await world.write(
        *(
            vfolder_invitations.insert().values(
                id=key,
                created_at=NOW,
                vfolder_id="f1",
                invitee_id="u2",
                inviter_id="u1",
                inviter="ann",
                permission="ro",
                status=InvitationStatus.REJECTED,
                status_changed_at=NOW,
            )
            for key in ids
        )
    )
    invitations = InvitationStore(world.database)
    pages = [
        await invitations.page(ListQuery(limit=1, offset=offset, sort=sort))
        for offset in range(len(ids))
    ]
    assert [one.id for page in pages for one in page.items] == sorted(ids, reverse=True)
