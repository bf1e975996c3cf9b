"""The SQLite driver: short statements run in the event loop, others in threads."""

from __future__ import annotations

import asyncio
import resource
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from bai_services.core.errors import Unavailable
from bai_services.db import database as database_module
from bai_services.db.database import Database
from bai_services.db.sqlite_driver import Connections

COUNT = (
    "SELECT count(*) FROM (WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n"
    " WHERE i < {most}) SELECT i FROM n)"
)
LONG = COUNT.format(most=500_000)


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    made = Database(f"sqlite+aiosqlite:///{tmp_path}/test.sqlite")
    async with made.write() as tx:
        await tx.execute(sa.text("CREATE TABLE words (id INTEGER PRIMARY KEY, word TEXT)"))
    yield made
    await made.close()


async def words_of(database: Database) -> list[str]:
    async with database.read() as tx:
        return list((await tx.execute(sa.text("SELECT word FROM words ORDER BY id"))).scalars())


async def test_long_select_does_not_block_event_loop(database: Database) -> None:
    async def count() -> int:
        async with database.read() as tx:
            return int(await tx.scalar(sa.text(LONG)) or 0)

    task, turns = asyncio.create_task(count()), 0
    while not task.done():
        await asyncio.sleep(0)
        turns += 1
    assert await task == 500_000
    assert turns > 50


async def test_interrupted_select_keeps_transaction(database: Database) -> None:
    async with database.write() as tx:
        await tx.execute(sa.text("INSERT INTO words (word) VALUES ('one')"))
        assert await tx.scalar(sa.text(COUNT.format(most=200_000))) == 200_000
        await tx.execute(sa.text("INSERT INTO words (word) VALUES ('two')"))
    assert await words_of(database) == ["one", "two"]


async def test_error_rolls_transaction_back(database: Database) -> None:
    with pytest.raises(ZeroDivisionError):
        async with database.write() as tx:
            await tx.execute(sa.text("INSERT INTO words (word) VALUES ('one')"))
            raise ZeroDivisionError
    assert await words_of(database) == []


async def test_insert_with_many_rows_inserts_every_row(database: Database) -> None:
    rows = [{"word": f"word {n}"} for n in range(5000)]
    async with database.write() as tx:
        await tx.execute(sa.text("INSERT INTO words (word) VALUES (:word)"), rows)
    assert len(await words_of(database)) == 5000


async def test_waiting_for_another_writer_does_not_block_event_loop(
    database: Database, tmp_path: Path
) -> None:
    other = sqlite3.connect(tmp_path / "test.sqlite", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    other.execute("INSERT INTO words (word) VALUES ('theirs')")

    async def write() -> None:
        async with database.write() as tx:
            await tx.execute(sa.text("INSERT INTO words (word) VALUES ('ours')"))

    task = asyncio.create_task(write())
    # The event loop runs: each read completes, and sees neither of the two writes.
    for _ in range(20):
        assert await words_of(database) == []
    assert not task.done()
    other.execute("COMMIT")
    await asyncio.wait_for(task, 10)
    assert await words_of(database) == ["theirs", "ours"]
    other.close()


async def test_waiting_for_another_writer_times_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database_module, "SQLITE_BUSY_SECONDS", 0.05)
    database = Database(f"sqlite+aiosqlite:///{tmp_path}/busy.sqlite")
    async with database.write() as tx:
        await tx.execute(sa.text("CREATE TABLE words (id INTEGER PRIMARY KEY, word TEXT)"))
    other = sqlite3.connect(tmp_path / "busy.sqlite", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(Unavailable):
        async with database.write():
            pass
    other.execute("ROLLBACK")
    other.close()
    async with database.write() as tx:
        await tx.execute(sa.text("INSERT INTO words (word) VALUES ('after')"))
    assert await words_of(database) == ["after"]
    await database.close()


async def test_cancelled_statement_leaves_a_working_connection(database: Database) -> None:
    async def count() -> None:
        async with database.write() as tx:
            await tx.execute(sa.text("INSERT INTO words (word) VALUES ('half')"))
            await tx.scalar(sa.text(LONG))

    for _ in range(10):  # More statements than the driver has connections.
        task = asyncio.create_task(count())
        for _ in range(50):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    async with database.write() as tx:
        await tx.execute(sa.text("INSERT INTO words (word) VALUES ('whole')"))
    assert await words_of(database) == ["whole"]


@pytest.mark.parametrize(
    "code",
    [
        pytest.param(sqlite3.SQLITE_BUSY, id="another writer"),
        pytest.param(sqlite3.SQLITE_BUSY_RECOVERY, id="another connection recovers the WAL"),
    ],
)
async def test_busy_database_is_retried(tmp_path: Path, code: int) -> None:
    """SQLITE_BUSY_RECOVERY occurs if two connections open a database after a crash."""
    connections = Connections(str(tmp_path / "test.sqlite"), 5, 1)
    connection = await connections.open()
    calls = []

    def busy_at_first() -> None:
        calls.append(code)
        if len(calls) == 1:
            error = sqlite3.OperationalError("database is locked")
            error.sqlite_errorcode = code
            raise error

    await connection.run("SELECT 1", busy_at_first, 0)
    assert len(calls) == 2
    await connection.close()
    connections.close()


async def test_opening_waits_for_a_writer_of_a_new_database(tmp_path: Path) -> None:
    """SQLite does not wait for the lock that a switch to WAL mode needs, so the driver waits."""
    other = sqlite3.connect(tmp_path / "new.sqlite", isolation_level=None)
    other.execute("CREATE TABLE words (word TEXT)")
    other.execute("BEGIN IMMEDIATE")
    database = Database(f"sqlite+aiosqlite:///{tmp_path}/new.sqlite")
    opening = asyncio.create_task(database.check())
    done, _ = await asyncio.wait([opening], timeout=0.2)
    assert not done
    other.execute("COMMIT")
    await opening
    await database.close()
    other.close()


async def test_io_error_is_not_reported_as_a_full_disk(database: Database) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    # Limit the size of files, so that the write-ahead log cannot grow.
    resource.setrlimit(resource.RLIMIT_FSIZE, (2**16, limits[1]))
    try:
        with pytest.raises(Unavailable, match="I/O error of its disk") as caught:
            async with database.write() as tx:
                await tx.execute(
                    sa.text("INSERT INTO words (word) VALUES (:word)"), {"word": "x" * 2**18}
                )
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert caught.value.details == {}
    assert await words_of(database) == []
