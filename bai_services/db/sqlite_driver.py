"""SQLite for asyncio: a short statement runs where it is, a long one in a thread.

A hop to a thread and back costs several times what a statement costs that finds a row by its
key, and the driver that SQLAlchemy knows (aiosqlite) makes four of them for each statement.
This one stands behind the same dialect. A SELECT gets a budget of SQLite's own steps: one that
uses it up is cut off (it has changed nothing) and begins again in a thread, and so does that
statement from then on. Whatever may wait for the disk or for another process goes there at once.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

T = TypeVar("T")

# The budget: about a millisecond. Counted in steps, so that a busy machine changes nothing.
STEPS_PER_LOOK = 1000
LOOKS = 20
# A statement with more values than that writes many rows.
MANY_VALUES = 400
MAX_SLOW = 500

# Statements in a row, after which other tasks get their turn.
IN_A_ROW = 8

# An error's code says more in its higher bits: it is busy because somebody reads the log anew, say.
PRIMARY_CODE = 0xFF

_READS = ("SELECT", "PRAGMA")
_SHORT = (*_READS, "INSERT", "UPDATE", "DELETE", "BEGIN")


class Connections:
    """Opens connections to one database; they share threads and what is known to be slow."""

    def __init__(self, path: str, busy_seconds: float, threads: int) -> None:
        self._path = path
        self.busy_seconds = busy_seconds
        self.pool = ThreadPoolExecutor(threads, thread_name_prefix="bai-sqlite")
        self.slow: set[str] = set()

    async def open(self) -> Connection:
        """Return a new connection; transactions are begun and ended by statements."""
        opened = await asyncio.get_running_loop().run_in_executor(self.pool, self._connect)
        return Connection(opened, self)

    def close(self) -> None:
        self.pool.shutdown(wait=False)

    def mark_slow(self, statement: str) -> None:
        """Run that statement in a thread from now on."""
        if len(self.slow) >= MAX_SLOW:
            self.slow.clear()
        self.slow.add(statement)

    def _connect(self) -> sqlite3.Connection:
        # Not waiting here: what finds the database locked waits in a thread.
        return sqlite3.connect(
            self._path,
            timeout=0,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=512,
        )


class Connection:
    """One connection, used by one task at a time; looks like aiosqlite's to SQLAlchemy."""

    def __init__(self, opened: sqlite3.Connection, of: Connections) -> None:
        self._connection: sqlite3.Connection | None = opened
        self._of = of
        self._looks = 0
        self._in_a_row = 0
        self._has_written = False
        self._busy: asyncio.Future[Any] | None = None
        opened.set_progress_handler(self._look, STEPS_PER_LOOK)

    def cursor(self) -> Cursor:
        return Cursor(self, self._conn.cursor())

    async def commit(self) -> None:
        await self._idle()
        if self._has_written:
            await self._patiently(self._conn.commit)  # it may wait for the disk
        else:
            self._conn.commit()

    async def rollback(self) -> None:
        await self._idle()
        self._conn.rollback()

    async def create_function(self, *args: Any, **options: Any) -> None:
        self._conn.create_function(*args, **options)

    async def close(self) -> None:
        opened = self._connection
        if opened is not None:
            await self._elsewhere(lambda: _end(opened))
            self._connection = None

    def stop(self) -> None:
        """Give the connection up without waiting for what it does."""
        opened, self._connection = self._connection, None
        if opened is not None:
            opened.interrupt()
            self._of.pool.submit(_end, opened)

    async def run(self, statement: str, call: Callable[[], object], n_values: int) -> None:
        """Let ``call`` run ``statement``, however long it takes."""
        await self._idle()
        if self._in_a_row >= IN_A_ROW:
            self._in_a_row = 0
            await asyncio.sleep(0)
        if not self._run_here(statement, call, n_values):
            await self._patiently(call, _word_of(statement) == "SELECT")

    def _run_here(self, statement: str, call: Callable[[], object], n_values: int) -> bool:
        """Let ``call`` run a short ``statement`` in this thread.

        False if it is long or would have to wait: then it has done nothing.
        """
        word = _word_of(statement)
        if word == "BEGIN":
            self._has_written = False
        elif word not in _READS:
            self._has_written = True
        if word not in _SHORT or n_values > MANY_VALUES or statement in self._of.slow:
            return False
        self._in_a_row += 1
        self._looks = LOOKS if word == "SELECT" else 0
        try:
            call()
            return True
        except sqlite3.OperationalError as error:
            code = error.sqlite_errorcode & PRIMARY_CODE
            if code == sqlite3.SQLITE_INTERRUPT:
                self._of.mark_slow(statement)
            elif code != sqlite3.SQLITE_BUSY:
                raise
        finally:
            self._looks = 0
        return False

    @property
    def _conn(self) -> sqlite3.Connection:
        if self._connection is None:
            # The words by which the dialect knows a connection that is gone.
            raise sqlite3.OperationalError("no active connection")
        return self._connection

    async def _patiently(self, call: Callable[[], T], may_stop: bool = False) -> T:
        opened = self._conn

        def wait_and_call() -> T:
            # Without the look: each one would wait for the interpreter's lock.
            opened.set_progress_handler(None, 0)
            opened.execute(f"PRAGMA busy_timeout={self._of.busy_seconds * 1000:.0f}")
            try:
                return call()
            finally:
                opened.execute("PRAGMA busy_timeout=0")
                opened.set_progress_handler(self._look, STEPS_PER_LOOK)

        return await self._elsewhere(wait_and_call, may_stop)

    async def _elsewhere(self, call: Callable[[], T], may_stop: bool = False) -> T:
        await self._idle()
        future = asyncio.get_running_loop().run_in_executor(self._of.pool, call)
        future.add_done_callback(_look_at)
        self._busy = future
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            # A thread cannot be stopped, but what only reads can; the next one waits for its end.
            if may_stop and self._connection is not None:
                self._connection.interrupt()
            raise

    async def _idle(self) -> None:
        if self._busy is not None and not self._busy.done():
            await asyncio.wait([self._busy])

    def _look(self) -> int:
        """Count down; SQLite stops the statement when the answer is not 0."""
        if not self._looks:
            return 0
        self._looks -= 1
        return not self._looks


def _word_of(statement: str) -> str:
    return statement[:12].split(None, 1)[0].upper()


def _end(opened: sqlite3.Connection) -> None:
    # A statement that something still refers to keeps a closed connection, and its lock, alive.
    opened.rollback()
    opened.close()


def _look_at(future: asyncio.Future[Any]) -> None:
    # Whoever waited for it may be gone: its error is no news then.
    if not future.cancelled():
        future.exception()


class Cursor:
    """One statement and its rows, which are read at once."""

    def __init__(self, connection: Connection, cursor: sqlite3.Cursor) -> None:
        self._connection = connection
        self._cursor = cursor
        self._rows: list[Any] = []

    async def __aenter__(self) -> Cursor:
        return self

    @property
    def description(self) -> Any:
        return self._cursor.description

    @property
    def rowcount(self) -> int:
        return self._cursor.rowcount

    @property
    def lastrowid(self) -> int | None:
        return self._cursor.lastrowid

    @property
    def arraysize(self) -> int:
        return self._cursor.arraysize

    async def execute(self, statement: str, values: Sequence[Any] = ()) -> Cursor:
        call = partial(self._run, statement, values)
        await self._connection.run(statement, call, len(values))
        return self

    def _run(self, statement: str, values: Sequence[Any]) -> None:
        self._cursor.execute(statement, values)
        self._rows = self._cursor.fetchall() if self._cursor.description else []

    async def executemany(self, statement: str, rows: Sequence[Sequence[Any]]) -> Cursor:
        n_values = sum(map(len, rows))
        await self._connection.run(
            statement, lambda: self._cursor.executemany(statement, rows), n_values
        )
        return self

    async def fetchall(self) -> list[Any]:
        rows, self._rows = self._rows, []
        return rows

    async def close(self) -> None:
        self._cursor.close()
