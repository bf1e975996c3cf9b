"""The hash chain over the audit log, on SQLite and PostgreSQL."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest
import sqlalchemy as sa

from bai_services.core.audit import AuditEntry
from bai_services.core.audit_chain import ChainState, check, check_end, link
from bai_services.db.audit import AuditStore
from bai_services.db.audit_chain import AuditChainStore, ChainChanged
from bai_services.db.database import Database
from bai_services.db.tables.accounts import audit_log

START = datetime(2026, 11, 26, microsecond=123, tzinfo=UTC)


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    made = Database(database_url)
    yield made
    await made.close()


async def add(database: Database, count: int, first: int = 0) -> None:
    for number in range(first, first + count):
        await AuditStore(database).add(
            AuditEntry(
                at=START + timedelta(days=number),
                actor="ann",
                action="user.update",
                entity="user",
                entity_id=str(number),
                details={"text": "ü\u2028", "number": 1e22, "changes": {"b": None, "a": 0.1}},
            )
        )


async def extend(database: Database, limit: int = 500) -> None:
    store = AuditChainStore(database)
    state, entries = await store.unchained(limit)
    if entries:
        await store.append(state, link(state, entries))


async def problem(database: Database) -> str | None:
    state, entries = await AuditChainStore(database).after(0, 500)
    found = check(state.anchor_position, state.anchor_hash, entries)
    if found is None:
        last = entries[-1]
        found = check_end(state, last.position or 0, last.hash or "")
    return None if found is None else f"{found.kind} {found.position}"


async def test_two_managers_chain_each_entry_once(database: Database) -> None:
    await add(database, 7)
    results = await asyncio.gather(*(extend(database, 3) for _ in range(4)), return_exceptions=True)
    assert {type(result) for result in results} <= {type(None), ChainChanged}
    for first in (7, 9):
        await add(database, 2, first)
        while (await AuditChainStore(database).unchained(1))[1]:
            await extend(database, 3)
    assert await problem(database) is None
    assert (await AuditChainStore(database).state()).head_position == 11


async def test_stale_state_changes_nothing(database: Database) -> None:
    await add(database, 2)
    store = AuditChainStore(database)
    state, entries = await store.unchained(10)
    await extend(database)
    with pytest.raises(ChainChanged):
        await store.append(state, link(state, entries))
    assert await problem(database) is None


async def test_retention_keeps_an_anchor(database: Database) -> None:
    await add(database, 6)
    await extend(database, 5)
    store = AuditChainStore(database)
    before = START + timedelta(days=3)
    assert [await store.expire(before, 2) for _ in range(3)] == [2, 1, 0]
    assert await problem(database) is None
    # The head and entries that are not chained yet remain.
    assert await store.expire(START + timedelta(days=99), 99) == 1
    state = await store.state()
    assert (state.anchor_position, state.head_position) == (4, 5)
    await extend(database)
    assert await problem(database) is None


@pytest.mark.parametrize(
    ("statement", "found"),
    [
        (sa.update(audit_log).where(audit_log.c.position == 2).values(actor="eve"), "altered 2"),
        (sa.delete(audit_log).where(audit_log.c.position == 2), "removed 2"),
        (sa.delete(audit_log).where(audit_log.c.position == 3), "removed 3"),
        (sa.update(audit_log).where(audit_log.c.position == 2).values(position=None), "removed 2"),
    ],
)
async def test_damage_in_the_database_is_found(
    database: Database, statement: sa.Executable, found: str
) -> None:
    await add(database, 3)
    await extend(database)
    async with database.write() as tx:
        await tx.execute(statement)
    assert await problem(database) == found


async def test_entry_with_an_invented_position_is_outside_the_chain(database: Database) -> None:
    await add(database, 3)
    await extend(database, 2)
    async with database.write() as tx:
        await tx.execute(
            sa.update(audit_log).where(audit_log.c.position.is_(None)).values(position=9, hash="x")
        )
    state, stray, unchained = await AuditChainStore(database).outside()
    assert stray is not None
    assert (state.head_position, stray.position, unchained) == (2, 9, 0)
    assert state != ChainState()
