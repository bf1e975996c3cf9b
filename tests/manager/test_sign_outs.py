"""Sign-outs without a Hub: the sign-out of a deactivated user cancels the pending sessions."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bai_services.core.listing import ListQuery
from bai_services.core.sessions.spec import SessionSpec
from bai_services.db.accounts.users import UserStore
from tests.testbed.manager import SUPERADMIN, World
from tests.testbed.wait import wait_until_async

SPEC = SessionSpec(name="long-job", project="default", resources={"cpu": "1", "mem": "1g"})


async def statuses(world: World, username: str) -> list[str]:
    page = await world.manager.sessions.sessions.page(
        SUPERADMIN, ListQuery(filters={"owner": username})
    )
    return [item.status for item in page.items]


@pytest.mark.parametrize(
    "how",
    [
        pytest.param("inactive", id="user deactivated"),
        pytest.param("deleted", id="user deleted"),
        pytest.param("domain", id="domain deactivated"),
    ],
)
async def test_pending_sessions_of_deactivated_users_are_cancelled(world: World, how: str) -> None:
    for name in ("user", "acme-user"):
        await world.manager.sessions.sessions.create(await world.caller(name), SPEC)
    match how:
        case "inactive":
            await world.manager.accounts.users.update(SUPERADMIN, "user", {"status": "inactive"})
        case "deleted":
            await world.manager.accounts.users.delete(SUPERADMIN, "user")
        case _:
            await world.manager.accounts.domains.update(SUPERADMIN, "default", {"is_active": False})
    assert await world.manager.sign_outs.process_pending()
    assert await statuses(world, "user") == ["CANCELLED"]
    assert await statuses(world, "acme-user") == ["PENDING"]
    assert await UserStore(world.manager.database).pending_sign_outs() == []


async def test_pending_sessions_of_a_moved_user_are_cancelled_in_the_old_domain(
    world: World,
) -> None:
    for name in ("user", "user2"):
        await world.manager.sessions.sessions.create(await world.caller(name), SPEC)
    moved = {"domain": "acme", "projects": ["default"]}
    await world.manager.accounts.users.update(SUPERADMIN, "user", moved)
    new_session = replace(SPEC, name="new-job")
    await world.manager.sessions.sessions.create(await world.caller("user"), new_session)
    assert await world.manager.sign_outs.process_pending()
    assert sorted(await statuses(world, "user")) == ["CANCELLED", "PENDING"]
    assert await statuses(world, "user2") == ["PENDING"]
    assert await UserStore(world.manager.database).pending_sign_outs() == []


async def test_sign_out_of_an_active_user_keeps_pending_sessions(world: World) -> None:
    caller = await world.caller("user")
    await world.manager.sessions.sessions.create(caller, SPEC)
    await world.manager.accounts.users.sign_out(caller, "user")
    assert await world.manager.sign_outs.process_pending()
    assert await statuses(world, "user") == ["PENDING"]


async def test_background_loop_processes_pending_sign_outs(world: World) -> None:
    store = UserStore(world.manager.database)
    await world.manager.sessions.sessions.create(await world.caller("user"), SPEC)
    world.manager.sign_outs.start()
    await world.manager.accounts.users.update(SUPERADMIN, "user", {"status": "inactive"})

    async def is_done() -> bool:
        return not await store.pending_sign_outs()

    await wait_until_async(is_done, 20, "the user to be signed out")
    assert await statuses(world, "user") == ["CANCELLED"]


async def test_sign_ins_end_when_an_address_is_no_longer_allowed(world: World) -> None:
    store, users = UserStore(world.manager.database), world.manager.accounts.users

    async def revoked_after(allowed: list[str] | None) -> list[str | None]:
        """Change the allowed addresses; return which tokens this revokes, in one item per user."""
        await users.update(SUPERADMIN, "user", {"allowed_client_ip": allowed})
        pending = await store.pending_revocations()
        for each in pending:
            await store.mark_revoked(each.id, "all")
        return [each.tokens_to_end for each in pending]

    assert await revoked_after(["10.0.0.0/8"]) == ["all"]
    assert await revoked_after(["10.0.0.0/8", "192.168.1.7"]) == []
    assert await revoked_after(["10.0.0.0/8"]) == ["all"]
    assert await revoked_after(None) == []
    # No server is stopped.
    assert await store.pending_sign_outs() == []
