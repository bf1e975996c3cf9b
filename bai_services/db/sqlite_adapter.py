"""Between SQLAlchemy and ``sqlite_driver``: what needs no waiting is done without a way to wait.

SQLAlchemy takes each call of an async driver for one that waits: it goes from its greenlet to
the event loop's and back, once for making a cursor, again for the statement, the commit, and the
rollback of a connection that goes back to its pool. That costs more than a statement which finds
a row by its key. Here only what really waits takes that way.
"""

from __future__ import annotations

import asyncio
import collections
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Generator
from contextlib import asynccontextmanager
from typing import Any

import aiosqlite
from sqlalchemy.dialects.sqlite.aiosqlite import (
    AsyncAdapt_aiosqlite_connection,
    AsyncAdapt_aiosqlite_cursor,
    AsyncAdapt_aiosqlite_dbapi,
)
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine
from sqlalchemy.util.concurrency import await_


@asynccontextmanager
async def begun(engine: AsyncEngine) -> AsyncIterator[AsyncConnection]:
    """Open a transaction as ``AsyncEngine.begin`` does, whose end needs no task of its own.

    The task is there so that nobody who is cancelled leaves a connection behind. After a commit
    there is nothing to wait for, and so nothing to be cancelled in.
    """
    tx = engine.connect()
    await tx.start()
    try:
        async with tx.begin():
            yield tx
    except BaseException:
        await asyncio.shield(asyncio.create_task(tx.close()))
        raise
    await tx.close()


class _Nothing(Awaitable[None]):
    """What is awaited where SQLAlchemy insists that something is."""

    def __await__(self) -> Generator[Any, None, None]:
        return
        yield


_NOTHING = _Nothing()


class _Cursor(AsyncAdapt_aiosqlite_cursor):
    __slots__ = ()

    _awaitable_cursor_close = False
    _cursor: Any  # sqlite_driver.Cursor

    def _aenter_cursor(self, cursor: Any) -> Any:
        return cursor

    def execute(self, operation: str, parameters: Any = None) -> Any:
        try:
            rows = self._cursor.execute_here(operation, parameters or ())
        except Exception as error:
            self._adapt_connection._handle_exception(error)
        if rows is None:
            return super().execute(operation, parameters)
        self._rows = collections.deque(rows)
        await_(_NOTHING)
        return self._cursor


class _Connection(AsyncAdapt_aiosqlite_connection):
    __slots__ = ()

    _cursor_cls = _Cursor
    _connection: Any  # sqlite_driver.Connection

    def commit(self) -> None:
        try:
            is_done = self._connection.commit_here()
        except Exception as error:
            self._handle_exception(error)
        if not is_done:
            super().commit()

    def rollback(self) -> None:
        try:
            is_done = self._connection.rollback_here()
        except Exception as error:
            self._handle_exception(error)
        if not is_done:
            super().rollback()


class Dbapi(AsyncAdapt_aiosqlite_dbapi):
    """The module that the engine is given in place of aiosqlite's."""

    def __init__(self) -> None:
        super().__init__(aiosqlite, sqlite3)

    def connect(self, *arguments: Any, **options: Any) -> _Connection:
        opening = options.pop("async_creator_fn")
        return _Connection(self, await_(opening(*arguments, **options)))
