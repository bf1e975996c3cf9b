"""Connection to bai-hub's database: SQLite (WAL) or PostgreSQL behind one interface."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import make_url
from sqlalchemy.exc import DBAPIError, DisconnectionError, OperationalError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from bai_services.core.errors import Unavailable, WriteConflict

from . import sqlite_driver

# Time that SQLite waits for a lock before it fails with "database is locked".
SQLITE_BUSY_SECONDS = 30

CONNECTIONS = 8

# A PostgreSQL connection is pinged before use if it was idle for at least this time.
PING_AFTER_SECONDS = 1.0
# Maximum number of prepared statements per connection: the code uses more than the driver's
# default, 100.
MAX_PREPARED_STATEMENTS = 500
# PostgreSQL ends a transaction that has executed no statement for this time: the locks of a
# suspended manager must not block the manager that takes over.
IDLE_TRANSACTION_SECONDS = 20

# PostgreSQL's error codes for transactions to repeat: serialization failure, deadlock.
_CONFLICT_STATES = {"40001", "40P01"}

_IS_WRITE = "bai_is_write"

_EMPTY = {"{}": dict, b"{}": dict, "[]": list, b"[]": list}


class Database:
    """Opens transactions. Code inside a transaction must wait only for the database."""

    def __init__(self, url: str) -> None:
        """Create the engines; ``url`` names ``sqlite+aiosqlite`` or ``postgresql+psycopg``."""
        self.url = make_url(url)
        self.is_sqlite = self.url.get_backend_name() == "sqlite"
        self._sqlite: sqlite_driver.Connections | None = None
        if self.is_sqlite:
            self._sqlite = _connections(self.url)
            self._engine = create_async_engine(
                self.url,
                pool_size=CONNECTIONS,
                max_overflow=0,
                async_creator=self._sqlite.open,
                json_deserializer=_read_json,
            )
            _prepare_sqlite(self._engine.sync_engine)
            self._reader = self._engine
        else:
            self._engine, self._reader = _postgres(self.url), _postgres(self.url, "AUTOCOMMIT")
        self._writer = self._engine.execution_options(**{_IS_WRITE: True})
        # SQLite's write lock is not fair: a task that acquires the lock repeatedly, such as a
        # scheduling pass, would starve other writers for seconds. This additional lock is fair.
        self._turn = asyncio.Lock() if self.is_sqlite else contextlib.nullcontext()

    @asynccontextmanager
    async def write(self) -> AsyncIterator[AsyncConnection]:
        """Open a write transaction; commit it at the end, or roll it back on an error."""
        with _translate_errors():
            async with self._turn, self._writer.begin() as tx:
                yield tx

    @asynccontextmanager
    async def dry_run(self) -> AsyncIterator[AsyncConnection]:
        """Open a write transaction and always roll it back at the end."""
        with _translate_errors():
            async with self._turn, self._writer.connect() as tx:
                transaction = await tx.begin()
                try:
                    yield tx
                finally:
                    await transaction.rollback()

    @asynccontextmanager
    async def read(self) -> AsyncIterator[AsyncConnection]:
        """Open a read-only transaction without a lock.

        On PostgreSQL, each statement sees all data committed before that statement.
        """
        with _translate_errors():
            async with self._reader.begin() as tx:
                yield tx

    @asynccontextmanager
    async def read_one_state(self) -> AsyncIterator[AsyncConnection]:
        """Open a read-only transaction; all its statements see the same snapshot."""
        with _translate_errors():
            async with self._engine.begin() as tx:
                if tx.dialect.name == "postgresql":
                    await tx.execute(sa.text("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ"))
                yield tx

    def connection_counts(self) -> dict[str, int]:
        """Return the number of connections in use, and their maximum number (``limit``)."""
        engines = {self._engine, self._reader}
        per_engine = CONNECTIONS if self.is_sqlite else 2 * CONNECTIONS
        # Both engines have queue pools of the size that was passed to ``create_async_engine``.
        used = sum(engine.pool.checkedout() for engine in engines)  # type: ignore[attr-defined]
        return {"used": used, "limit": per_engine * len(engines)}

    async def check(self) -> None:
        """Raise ``Unavailable`` unless the database executes a query."""
        async with self.read() as tx:
            await tx.execute(sa.text("SELECT 1"))

    async def close(self) -> None:
        await self._engine.dispose()
        await self._reader.dispose()
        if self._sqlite is not None:
            self._sqlite.close()


def _postgres(url: sa.URL, isolation_level: str = "READ COMMITTED") -> AsyncEngine:
    """Return an engine for PostgreSQL.

    The pool is LIFO, to prefer the busiest connections, which have the most prepared statements.
    Reads use the isolation level AUTOCOMMIT, because BEGIN and COMMIT would triple the number of
    round trips.
    """
    engine = create_async_engine(
        url,
        isolation_level=isolation_level,
        pool_size=CONNECTIONS,
        max_overflow=CONNECTIONS,
        pool_use_lifo=True,
        json_deserializer=_read_json,
    )

    @sa.event.listens_for(engine.sync_engine, "connect")
    def configure(connection: Any, record: Any) -> None:
        connection.driver_connection.prepared_max = MAX_PREPARED_STATEMENTS
        cursor = connection.cursor()
        cursor.execute(f"SET idle_in_transaction_session_timeout = '{IDLE_TRANSACTION_SECONDS}s'")
        cursor.close()
        connection.commit()

    @sa.event.listens_for(engine.sync_engine, "checkin")
    def record_use(connection: object, record: Any) -> None:
        record.info["used_at"] = time.monotonic()

    @sa.event.listens_for(engine.sync_engine, "checkout")
    def ping_idle(connection: Any, record: Any, proxy: object) -> None:
        used_at = record.info.get("used_at")
        if used_at is None or time.monotonic() - used_at < PING_AFTER_SECONDS:
            return
        try:
            engine.dialect.do_ping(connection)
        except engine.dialect.loaded_dbapi.Error as error:
            raise DisconnectionError from error  # makes the pool open a new connection

    return engine


def _read_json(text: str | bytes) -> Any:
    """Parse JSON, with a fast path for the most frequent values, empty objects and lists."""
    empty = _EMPTY.get(text)
    return json.loads(text) if empty is None else empty()


def _connections(url: sa.URL) -> sqlite_driver.Connections:
    path = url.database or ":memory:"
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    return sqlite_driver.Connections(path, SQLITE_BUSY_SECONDS, CONNECTIONS)


def _prepare_sqlite(engine: sa.Engine) -> None:
    @sa.event.listens_for(engine, "connect")
    def set_pragmas(connection: Any, record: object) -> None:
        cursor = connection.cursor()
        # With WAL, killing a process loses no commit; a power failure may lose the last commits.
        cursor.execute("PRAGMA synchronous=NORMAL")
        cursor.execute("PRAGMA foreign_keys=ON")
        cursor.close()

    @sa.event.listens_for(engine, "begin")
    def begin(connection: sa.Connection) -> None:
        # IMMEDIATE acquires the write lock at the beginning, where SQLite can wait. A transaction
        # that reads first and then writes would fail if the lock is taken.
        if connection.get_execution_options().get(_IS_WRITE):
            connection.exec_driver_sql("BEGIN IMMEDIATE")
        else:
            # Call the driver directly: exec_driver_sql takes three times as long.
            cursor = connection.connection.cursor()
            cursor.execute("BEGIN")
            cursor.close()


class _translate_errors:
    """Convert errors of an unreachable database and of its disk to ``Unavailable``.

    Deadlocks and serialization failures become ``WriteConflict``.
    """

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if not isinstance(error, DBAPIError):
            return
        text = str(error.orig).lower()
        name = getattr(error.orig, "sqlite_errorname", "")
        # SQLITE_IOERR_SHMSIZE: no space for the index of the write-ahead log.
        if "disk is full" in text or "no space left" in text or name == "SQLITE_IOERR_SHMSIZE":
            raise Unavailable(
                "the disk of the database is full; nothing was changed. An administrator must free "
                "space; no restart is needed",
                reason="database-full",
            ) from error
        if name.startswith("SQLITE_IOERR"):
            raise Unavailable(
                f"the database reports an I/O error of its disk ({name}); an administrator must "
                "check the disk"
            ) from error
        if getattr(error.orig, "sqlstate", None) in _CONFLICT_STATES:
            raise WriteConflict(
                "the database has rolled back this change because of a concurrent change of "
                "the same rows; nothing was changed, try again"
            ) from error
        if error.connection_invalidated or isinstance(error, OperationalError):
            raise Unavailable("the database cannot be reached; try again shortly") from error
