"""Changes of an account between the permission check of a request and its write."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
from sqlalchemy.ext.asyncio import AsyncConnection

from bai_services.core.accounts.roles import Caller
from bai_services.core.errors import Conflict, SignInRefused
from bai_services.core.sessions.spec import SessionSpec
from bai_services.db.accounts.callers import AccountStore
from bai_services.db.tables.accounts import users
from bai_services.manager.accounts.passwords import PasswordHashes
from bai_services.manager.accounts.services import AccountServices
from tests.testbed.manager import HUB, PASSWORD, SUPERADMIN, MovableClock, World

pytestmark = pytest.mark.both_databases

NEW = "another horse 2?"

PROMOTED = pytest.param({"role": "superadmin"}, id="promoted")
MOVED = pytest.param({"domain": "acme"}, id="moved")
DEACTIVATED = pytest.param({"status": "inactive"}, id="deactivated")
OTHER_UID = pytest.param({"container_uid": 4321}, id="other container uid")


async def change_before_next_write(world: World, changes: Mapping[str, Any]) -> None:
    """Change *user2* in the database directly before the manager's next write transaction."""
    database = world.manager.database
    user_id = await world.user_id("user2")
    write = database.write

    @asynccontextmanager
    async def changed_write() -> AsyncIterator[AsyncConnection]:
        database.write = write  # type: ignore[method-assign]
        async with write() as tx:
            await tx.execute(users.update().where(users.c.id == user_id).values(**changes))
        async with write() as tx:
            yield tx

    database.write = changed_write  # type: ignore[method-assign]


async def has_password(world: World, password: str) -> bool:
    found = await AccountStore(world.manager.database).by_sign_in_name("user2")
    assert found is not None
    return await world.manager.accounts.sign_ins.passwords.verify(found.password_hash, password)


@pytest.mark.parametrize("changes", [PROMOTED, MOVED, DEACTIVATED, OTHER_UID])
async def test_new_password_loses_against_a_concurrent_change_of_the_account(
    world: World, changes: Mapping[str, Any]
) -> None:
    await world.set_password("user2")
    caller = await world.caller("domain-admin")
    await change_before_next_write(world, changes)
    with pytest.raises(Conflict, match="the account has changed"):
        await world.manager.accounts.users.update(
            caller, "user2", {"password": NEW, "projects": ["default"]}
        )
    assert await has_password(world, PASSWORD)


Request = Callable[[AccountServices, Caller, str], Awaitable[object]]
REQUESTS: Mapping[str, Request] = {
    "delete": lambda accounts, caller, key: accounts.users.delete(caller, "user2"),
    "sign out": lambda accounts, caller, key: accounts.users.sign_out(caller, "user2"),
    "unlock": lambda accounts, caller, key: accounts.users.unlock(caller, "user2"),
    "create a keypair": lambda accounts, caller, key: accounts.keypairs.create(
        caller, {"user": "user2"}
    ),
    "renew a secret key": lambda accounts, caller, key: accounts.keypairs.update(
        caller, key, {"new_secret": True}
    ),
    "delete a keypair": lambda accounts, caller, key: accounts.keypairs.delete(caller, key),
    "add a member": lambda accounts, caller, key: accounts.projects.add_member(
        caller, "research", "user2"
    ),
    "remove a member": lambda accounts, caller, key: accounts.projects.remove_member(
        caller, "default", "user2"
    ),
}


@pytest.mark.parametrize("changes", [PROMOTED, MOVED])
@pytest.mark.parametrize("request_name", REQUESTS)
async def test_request_loses_against_a_concurrent_change_of_the_account(
    world: World, request_name: str, changes: Mapping[str, Any]
) -> None:
    caller = await world.caller("domain-admin")
    await change_before_next_write(world, changes)
    with pytest.raises(Conflict, match="the account has changed"):
        await REQUESTS[request_name](world.manager.accounts, caller, world.keys["user2"].access_key)


@pytest.mark.parametrize("changes", [MOVED, DEACTIVATED])
@pytest.mark.parametrize("what", ["session", "folder"])
async def test_nothing_is_created_in_the_domain_that_its_owner_has_left(
    world: World, what: str, changes: Mapping[str, Any]
) -> None:
    manager, caller = world.manager, await world.caller("user2")
    await manager.folders.vfolders.start()
    await change_before_next_write(world, changes)
    with pytest.raises(Conflict, match="the account has changed"):
        if what == "folder":
            await manager.folders.vfolders.create(caller, {"name": "data"})
        else:
            spec = SessionSpec(name="lab1", resources={"cpu": "1", "mem": "512m"})
            await manager.sessions.sessions.create(caller, spec)


async def test_app_is_not_shared_with_a_user_who_leaves_the_domain(world: World) -> None:
    manager, caller = world.manager, await world.caller("user")
    policy = (await manager.accounts.users.get(SUPERADMIN, "user")).resource_policy
    await manager.accounts.user_policies.update(SUPERADMIN, policy, {"app_sharing": "public"})
    spec = SessionSpec(name="lab1", resources={"cpu": "1", "mem": "512m"})
    session, _ = await manager.sessions.sessions.create(caller, spec)
    await change_before_next_write(world, {"domain": "acme"})
    with pytest.raises(Conflict, match="the account has changed"):
        await manager.app_shares.create(caller, session.id, {"app": "mlflow", "user": "user2"})


class InterruptedHashes(PasswordHashes):
    """Hashes that call ``callback`` before they hash the password ``NEW``."""

    def __init__(self, callback: Callable[[], Awaitable[object]]) -> None:
        super().__init__(memory_kib=8, rounds=1)
        self._callback = callback

    async def hash(self, password: str) -> str:
        if password == NEW:
            await self._callback()
        return await super().hash(password)


async def test_administrators_new_password_wins_over_a_password_change_in_flight(
    world: World,
) -> None:
    await world.set_password("user2")
    accounts = world.manager.accounts

    async def reset() -> None:
        changes = {"password": "of the administrator 3!", "need_password_change": True}
        await accounts.users.update(SUPERADMIN, "user2", changes)

    accounts.sign_ins.passwords = InterruptedHashes(reset)
    with pytest.raises(SignInRefused, match="the name or the password is wrong"):
        await accounts.sign_ins.change_password("user2", PASSWORD, NEW, "10.1.2.3")
    assert await has_password(world, "of the administrator 3!")
    assert (await accounts.users.get(SUPERADMIN, "user2")).need_password_change


class InterruptedChecks(PasswordHashes):
    """Verifications with a callback after each correct password."""

    def __init__(self, callback: Callable[[], Awaitable[object]]) -> None:
        super().__init__(memory_kib=8, rounds=1)
        self._callback = callback

    async def verify(self, password_hash: str | None, password: str) -> bool:
        is_correct = await super().verify(password_hash, password)
        if is_correct:
            await self._callback()
        return is_correct


async def test_old_password_is_rejected_if_it_is_reset_while_it_is_verified(
    world: World, clock: MovableClock
) -> None:
    await world.set_password("user2")
    accounts = world.manager.accounts

    async def reset() -> None:
        clock.advance(seconds=1)
        await accounts.users.update(SUPERADMIN, "user2", {"password": NEW})

    accounts.sign_ins.passwords = InterruptedChecks(reset)
    with pytest.raises(SignInRefused, match="the name or the password is wrong"):
        await accounts.sign_ins.verify(HUB, "user2", PASSWORD, "10.1.2.3")
    accounts.sign_ins.passwords = PasswordHashes(memory_kib=8, rounds=1)
    await accounts.sign_ins.verify(HUB, "user2", NEW, "10.1.2.3")


async def test_concurrent_sign_ins_with_an_outdated_hash_succeed_and_replace_it(
    world: World,
) -> None:
    await world.set_password("user2")
    sign_ins = world.manager.accounts.sign_ins
    sign_ins.passwords = PasswordHashes(memory_kib=16, rounds=2)
    await asyncio.gather(
        *(sign_ins.verify(HUB, "user2", PASSWORD, f"10.1.2.{n}") for n in range(3))
    )
    found = await AccountStore(world.manager.database).by_sign_in_name("user2")
    assert found is not None
    assert found.password_hash is not None
    assert not sign_ins.passwords.is_outdated(found.password_hash)


async def test_password_with_an_outdated_hash_can_be_changed(world: World) -> None:
    await world.set_password("user2")
    sign_ins = world.manager.accounts.sign_ins
    sign_ins.passwords = PasswordHashes(memory_kib=16, rounds=2)
    await sign_ins.change_password("user2", PASSWORD, NEW, "10.1.2.3")
    assert await has_password(world, NEW)
