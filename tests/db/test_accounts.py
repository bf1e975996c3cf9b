"""Stores of accounts: concurrent changes, counts of sign-in attempts, and the order of pages."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import pytest
from sqlalchemy.ext.asyncio import AsyncConnection

from bai_services.core.audit import AuditEntry
from bai_services.core.errors import AlreadyExists, Conflict
from bai_services.core.listing import ListQuery
from bai_services.db import schema
from bai_services.db.accounts.checked_users import CheckedUser
from bai_services.db.accounts.domains import DomainStore
from bai_services.db.accounts.policies import PolicyStore
from bai_services.db.accounts.projects import ProjectStore
from bai_services.db.accounts.sign_in_attempts import SignInAttemptStore
from bai_services.db.accounts.users import UserChange, UserStore
from bai_services.db.database import Database

NOW = datetime(2026, 1, 1, tzinfo=UTC)
BLOCK = timedelta(minutes=20)


def entry(action: str) -> AuditEntry:
    return AuditEntry(NOW, "test", action, action.partition(".")[0], "x")


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    await asyncio.to_thread(schema.upgrade, database_url)
    made = Database(database_url)
    yield made
    await made.close()


@pytest.fixture
async def domain(database: Database) -> str:
    """Create domain ``d`` with one project, and a policy ``default`` of each kind."""
    policies = {
        "keypair": {"total_resource_slots": {}, "allowed_vfolder_hosts": {}},
        "user": {"total_resource_slots": {}},
        "project": {},
    }
    for kind, values in policies.items():
        row = {"name": "default", "created_at": NOW, **values}
        await PolicyStore(database, kind).create(row, entry(f"{kind}-policy.create"))
    await DomainStore(database).create(
        {
            "name": "d",
            "created_at": NOW,
            "total_resource_slots": {},
            "allowed_vfolder_hosts": {},
        },
        project("p"),
        entry("domain.create"),
    )
    return "d"


def project(project_id: str, name: str = "default") -> dict[str, object]:
    return {
        "id": project_id,
        "created_at": NOW,
        "domain": "d",
        "name": name,
        "total_resource_slots": {},
        "allowed_vfolder_hosts": {},
        "resource_policy": "default",
    }


async def add_user(database: Database, name: str, role: str = "user") -> None:
    user = {
        "id": name,
        "created_at": NOW,
        "username": name,
        "email": f"{name}@example.org",
        "domain": "d",
        "role": role,
        "status": "active",
        "resource_policy": "default",
    }
    keypair = {
        "access_key": f"AK{name}",
        "created_at": NOW,
        "secret_key_encrypted": "x",
        "user_id": name,
        "resource_policy": "default",
    }
    await UserStore(database).create(user, keypair, ["p"], entry("user.create"))


async def exceptions_of(*calls: object) -> list[type[BaseException] | None]:
    """Run the calls concurrently; return the exception type of each (None: no exception)."""
    found = await asyncio.gather(*calls, return_exceptions=True)  # type: ignore[call-overload]
    return [type(item) if isinstance(item, BaseException) else None for item in found]


async def test_last_superadmin_remains_after_concurrent_demotions(
    database: Database, domain: str
) -> None:
    for name in ("ada", "bob"):
        await add_user(database, name, "superadmin")
    store = UserStore(database)
    demotion = UserChange({"role": "user"})
    found = await exceptions_of(
        store.update(CheckedUser("ada", {"role": "superadmin"}), demotion, entry("user.update")),
        store.update(CheckedUser("bob", {"role": "superadmin"}), demotion, entry("user.update")),
    )
    assert sorted(found, key=str) == sorted([None, Conflict], key=str)
    left = await store.page(ListQuery(filters={"role": "superadmin"}))
    assert left.total == 1


async def test_one_of_several_concurrent_creations_with_one_name_succeeds(
    database: Database, domain: str
) -> None:
    found = await exceptions_of(*(add_user(database, "ada") for _ in range(5)))
    assert found.count(None) == 1
    assert found.count(AlreadyExists) == 4
    projects = ProjectStore(database)
    found = await exceptions_of(
        *(projects.create(project(f"p{n}", "twin"), entry("project.create")) for n in range(5))
    )
    assert found.count(None) == 1 and found.count(AlreadyExists) == 4


async def test_one_of_several_concurrent_additions_of_a_member_succeeds(
    database: Database, domain: str
) -> None:
    await add_user(database, "ada")
    store = ProjectStore(database)
    await store.create(project("q", "second"), entry("project.create"))
    added = await asyncio.gather(
        *(
            store.add_member("q", CheckedUser("ada", {}), entry("project.add-member"))
            for _ in range(5)
        )
    )
    assert sorted(added) == [False] * 4 + [True]
    assert (await store.members("q", ListQuery())).total == 1


async def test_concurrent_sign_in_attempts_respect_limit(database: Database, domain: str) -> None:
    await add_user(database, "ada")
    store = SignInAttemptStore(database)
    # Concurrent calls with different orders of the subjects must not cause a deadlock.
    orders = ({"s": 10, "t": None}, {"t": None, "s": 10})
    counted = await asyncio.gather(
        *(store.count_attempt(orders[number % 2], NOW, BLOCK) for number in range(25))
    )
    blocks = [each["s"].blocked_until for each in counted]
    assert blocks.count(None) == 10
    assert {block for block in blocks if block is not None} == {NOW + BLOCK}
    assert sorted(each["t"].count for each in counted) == list(range(1, 26))
    assert await store.blocked(["s", "t"], NOW) == {"s": NOW + BLOCK}
    assert (await store.count_attempt({"s": 10}, NOW + BLOCK, BLOCK))["s"].count == 1
    await store.reset(CheckedUser("ada", {}), ["s"], entry("user.unlock"))
    assert (await store.count_attempt({"s": 10}, NOW + BLOCK, BLOCK))["s"].count == 1


async def test_attempts_and_resets_at_the_same_time_do_not_deadlock(
    database: Database, domain: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await add_user(database, "ada")
    store = SignInAttemptStore(database)
    execute, delays = AsyncConnection.execute, Random(1)

    async def execute_with_delay(*arguments: Any, **options: Any) -> Any:
        await asyncio.sleep(delays.choice((0, 0, 0, 0.03)))
        return await execute(*arguments, **options)

    # Random delays vary the order in which concurrent transactions execute their statements.
    monkeypatch.setattr(AsyncConnection, "execute", execute_with_delay)
    # Counts that a concurrent attempt inserts are not yet visible when a reset begins: each round
    # starts without counts.
    allowed: dict[str, int | None] = {"address": None, "name": None, "pair": None}
    for _ in range(10):
        await store.forget(list(allowed))
        found = await asyncio.gather(
            *(store.count_attempt(allowed, NOW, BLOCK) for _ in range(4)),
            *(
                store.reset_after_sign_in(
                    "ada", ["pair", "name"], "address", None, None, entry("sign-in.hub")
                )
                for _ in range(4)
            ),
        )
        assert found[4:] == [True] * 4


async def test_old_attempts_are_deleted(database: Database) -> None:
    store = SignInAttemptStore(database)
    for number in range(20):
        await store.count_attempt({f"name-{number}": 10}, NOW, BLOCK)
    await store.count_attempt({"late": 10}, NOW + 2 * BLOCK, BLOCK)
    async with database.read() as tx:
        found = await tx.exec_driver_sql("SELECT subject FROM sign_in_failures")
        assert [row[0] for row in found] == ["late"]


async def test_pages_sorted_by_a_field_with_equal_values_repeat_no_row(
    database: Database, domain: str
) -> None:
    store = UserStore(database)
    names = [f"user{number}" for number in range(6)]
    for name in names:
        await add_user(database, name)
    listed = []
    for offset in range(len(names)):
        page = await store.page(ListQuery(limit=1, offset=offset, sort=("status",)))
        listed += [user.username for user in page.items]
        # Change the row, because PostgreSQL can store a changed row elsewhere in its table.
        change = UserChange({"full_name": f"read {offset}"})
        await store.update(CheckedUser(listed[-1], {}), change, entry("user.update"))
    assert listed == names
