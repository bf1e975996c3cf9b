"""Connections to PostgreSQL: recovery after the server closes them, and read consistency."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import sqlalchemy as sa

from bai_services.core.errors import Unavailable, WriteConflict
from bai_services.db import database as module
from bai_services.db.database import Database
from tests.testbed.postgres import Postgres

END_ALL = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
    "WHERE datname = '{name}' AND pid <> pg_backend_pid()"
)
ONE = sa.text("SELECT 1")


@pytest.fixture
async def database(postgres_url: str) -> AsyncIterator[Database]:
    made = Database(postgres_url)
    yield made
    await made.close()


async def select_one(database: Database) -> object:
    async with database.read() as tx:
        return await tx.scalar(ONE)


def end_connections(server: Postgres, database: Database) -> None:
    server.execute(END_ALL.format(name=database.url.database))


async def test_connection_closed_while_idle_is_reopened(
    database: Database, postgres_server: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PING_AFTER_SECONDS", 0)
    await asyncio.gather(*(select_one(database) for _ in range(4)))
    async with database.write() as tx:
        await tx.execute(sa.text("CREATE TABLE things (id int)"))
    end_connections(postgres_server, database)
    assert await asyncio.gather(*(select_one(database) for _ in range(4))) == [1] * 4
    async with database.write() as tx:
        await tx.execute(sa.text("INSERT INTO things VALUES (1)"))


async def test_connection_closed_shortly_after_use_fails_once(
    database: Database, postgres_server: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PING_AFTER_SECONDS", 3600)
    await asyncio.gather(*(select_one(database) for _ in range(4)))
    end_connections(postgres_server, database)
    with pytest.raises(Unavailable, match="try again"):
        await select_one(database)
    assert await asyncio.gather(*(select_one(database) for _ in range(4))) == [1] * 4


async def test_locks_of_a_suspended_writer_do_not_block_others(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "IDLE_TRANSACTION_SECONDS", 1)
    suspended, other = Database(postgres_url), Database(postgres_url)
    change = sa.text("UPDATE things SET id = id + 1")
    try:
        async with other.write() as tx:
            await tx.execute(sa.text("CREATE TABLE things (id int)"))
            await tx.execute(sa.text("INSERT INTO things VALUES (1)"))
        with pytest.raises(Unavailable):
            async with suspended.write() as tx:
                await tx.execute(change)
                async with asyncio.timeout(30), other.write() as beside:
                    await beside.execute(change)
        async with other.read() as tx:
            assert await tx.scalar(sa.text("SELECT id FROM things")) == 2
    finally:
        await suspended.close()
        await other.close()


async def test_reads_do_not_see_uncommitted_writes(database: Database) -> None:
    async with database.write() as tx:
        await tx.execute(sa.text("CREATE TABLE things (id int)"))
    count = sa.text("SELECT count(*) FROM things")
    with pytest.raises(ZeroDivisionError):
        async with database.write() as tx:
            await tx.execute(sa.text("INSERT INTO things VALUES (1)"))
            async with database.read() as beside:
                assert await beside.scalar(count) == 0
            raise ZeroDivisionError
    async with database.read_one_state() as first:
        assert await first.scalar(count) == 0
        async with database.write() as tx:
            await tx.execute(sa.text("INSERT INTO things VALUES (2)"))
        assert await first.scalar(count) == 0
        async with database.read() as beside:
            assert await beside.scalar(count) == 1


async def test_deadlock_is_not_reported_as_a_lost_connection(database: Database) -> None:
    lock = sa.text("SELECT pg_advisory_xact_lock(:number)")
    both_hold = asyncio.Barrier(2)

    async def lock_both(first: int, second: int) -> None:
        async with database.write() as tx:
            await tx.execute(sa.text("SET LOCAL deadlock_timeout = '10ms'"))
            await tx.execute(lock, {"number": first})
            await both_hold.wait()
            await tx.execute(lock, {"number": second})

    results = await asyncio.gather(lock_both(1, 2), lock_both(2, 1), return_exceptions=True)
    [error] = [result for result in results if result is not None]
    assert isinstance(error, WriteConflict)
    assert str(error).startswith("the database has rolled back this change")
