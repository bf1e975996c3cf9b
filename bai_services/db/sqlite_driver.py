"""SQLite driver for asyncio: runs short statements in the event loop, long ones in a thread.

Switching to a thread and back costs several times as much as a SELECT by primary key. SQLAlchemy's
driver aiosqlite needs four thread switches per statement. This driver implements the same
interface, so SQLAlchemy's aiosqlite dialect works with it.

Each SELECT in the event loop has a budget: a number of steps of SQLite's virtual machine. A SELECT
that exceeds the budget is interrupted and repeated in a thread. From then on, it runs in a thread
until the set of slow statements is cleared (``MAX_SLOW``). The commit of a change also runs in a
thread, because it waits for the disk. A statement that finds the database locked is repeated in a
thread.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

T = TypeVar("T")

# The budget of a SELECT in the event loop: 20,000 steps of SQLite's virtual machine, about 1 ms.
# SQLite calls ``Connection._on_progress`` every 1,000 steps, and the 20th call interrupts the
# SELECT. A budget in steps instead of time does not depend on the load of the machine.
STEPS_PER_CALLBACK = 1000
MAX_CALLBACKS = 20
# A statement with this prefix after its first word runs in a thread.
LONG = "/* long */"
# A statement with more bound values runs in a thread, because it reads or writes many rows.
MAX_INLINE_VALUES = 400
# The set of slow statements is cleared at this size.
MAX_SLOW = 500

# Number of consecutive statements in the event loop before other tasks may run.
STATEMENTS_PER_TURN = 8

# Mask of the primary code in an error code; the higher bits hold details, as in
# SQLITE_BUSY_RECOVERY.
PRIMARY_CODE = 0xFF

WAL_RETRY_SECONDS = 0.01

_READS = ("SELECT", "PRAGMA")
_INLINE = (*_READS, "INSERT", "UPDATE", "DELETE", "BEGIN")


class Connections:
    """Opens connections that share a thread pool and the set of slow statements."""

    def __init__(self, path: str, busy_seconds: float, threads: int) -> None:
        self._path = path
        self.busy_seconds = busy_seconds
        self.pool = ThreadPoolExecutor(threads, thread_name_prefix="bai-sqlite")
        self.slow: set[str] = set()

    async def open(self) -> Connection:
        """Return a new connection in autocommit mode.

        SQLAlchemy's dialect begins and ends transactions explicitly.
        """
        opened = await asyncio.get_running_loop().run_in_executor(self.pool, self._connect)
        return Connection(opened, self)

    def close(self) -> None:
        self.pool.shutdown(wait=False)

    def mark_slow(self, statement: str) -> None:
        """Add a statement to the slow statements, which run in a thread."""
        if len(self.slow) >= MAX_SLOW:
            self.slow.clear()
        self.slow.add(statement)

    def _connect(self) -> sqlite3.Connection:
        # With timeout 0, a statement fails at once if the database is locked. The driver then
        # repeats it in a thread, which waits for the lock.
        opened = sqlite3.connect(
            self._path,
            timeout=0,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=512,
        )
        self._switch_to_wal(opened)
        return opened

    def _switch_to_wal(self, opened: sqlite3.Connection) -> None:
        """Switch to WAL; retry while the database is locked.

        SQLite does not wait for the lock, because it ignores the busy timeout during a change of
        the journal mode.
        """
        deadline = time.monotonic() + self.busy_seconds
        while True:
            try:
                opened.execute("PRAGMA journal_mode=WAL")
                return
            except sqlite3.OperationalError as error:
                is_busy = error.sqlite_errorcode & PRIMARY_CODE == sqlite3.SQLITE_BUSY
                if not is_busy or time.monotonic() > deadline:
                    raise
            time.sleep(WAL_RETRY_SECONDS)


class Connection:
    """A connection for one task at a time, with the interface of an aiosqlite connection."""

    def __init__(self, opened: sqlite3.Connection, shared: Connections) -> None:
        self._connection: sqlite3.Connection | None = opened
        self._shared = shared
        self._callbacks_left = 0
        self._statements_in_turn = 0
        self._has_written = False
        self._busy: asyncio.Future[Any] | None = None
        opened.set_progress_handler(self._on_progress, STEPS_PER_CALLBACK)

    def cursor(self) -> Cursor:
        return Cursor(self, self._conn.cursor())

    async def commit(self) -> None:
        await self._wait_until_idle()
        if self._has_written:
            await self._run_in_thread(self._conn.commit)  # it may wait for the disk
        else:
            self._conn.commit()

    async def rollback(self) -> None:
        await self._wait_until_idle()
        self._conn.rollback()

    async def create_function(self, *args: Any, **options: Any) -> None:
        self._conn.create_function(*args, **options)

    async def close(self) -> None:
        opened = self._connection
        if opened is not None:
            await self._submit(lambda: _close(opened))
            self._connection = None

    def stop(self) -> None:
        """Interrupt the running statement and close the connection without waiting."""
        opened, self._connection = self._connection, None
        if opened is not None:
            opened.interrupt()
            self._shared.pool.submit(_close, opened)

    async def run(self, statement: str, call: Callable[[], object], n_values: int) -> None:
        """Execute ``statement`` by calling ``call``, in the event loop or in a thread.

        ``n_values`` is the number of its bound values.
        """
        await self._wait_until_idle()
        if self._statements_in_turn >= STATEMENTS_PER_TURN:
            self._statements_in_turn = 0
            await asyncio.sleep(0)
        if not self._run_inline(statement, call, n_values):
            await self._run_in_thread(call, may_interrupt=_first_word(statement) == "SELECT")

    def _run_inline(self, statement: str, call: Callable[[], object], n_values: int) -> bool:
        """Call ``call`` in the event loop if ``statement`` is short.

        Return False if the statement is long or must wait for a lock. The statement has then
        changed nothing.
        """
        word = _first_word(statement)
        if word == "BEGIN":
            self._has_written = False
        elif word not in _READS:
            self._has_written = True
        is_slow = n_values > MAX_INLINE_VALUES or statement in self._shared.slow
        is_slow |= statement.startswith(LONG, len(word) + 1)
        if word not in _INLINE or is_slow:
            return False
        self._statements_in_turn += 1
        self._callbacks_left = MAX_CALLBACKS if word == "SELECT" else 0
        try:
            call()
            return True
        except sqlite3.OperationalError as error:
            code = error.sqlite_errorcode & PRIMARY_CODE
            if code == sqlite3.SQLITE_INTERRUPT:
                self._shared.mark_slow(statement)
            elif code != sqlite3.SQLITE_BUSY:
                raise
        finally:
            self._callbacks_left = 0
        return False

    @property
    def _conn(self) -> sqlite3.Connection:
        if self._connection is None:
            # The dialect recognizes a closed connection by this text.
            raise sqlite3.OperationalError("no active connection")
        return self._connection

    async def _run_in_thread(self, call: Callable[[], T], may_interrupt: bool = False) -> T:
        """Call ``call`` in a thread, which may wait for locks for ``busy_seconds``."""
        opened = self._conn

        def wait_and_call() -> T:
            # Disable the progress callbacks: each callback would wait for the GIL.
            opened.set_progress_handler(None, 0)
            opened.execute(f"PRAGMA busy_timeout={self._shared.busy_seconds * 1000:.0f}")
            try:
                return call()
            finally:
                opened.execute("PRAGMA busy_timeout=0")
                opened.set_progress_handler(self._on_progress, STEPS_PER_CALLBACK)

        return await self._submit(wait_and_call, may_interrupt)

    async def _submit(self, call: Callable[[], T], may_interrupt: bool = False) -> T:
        await self._wait_until_idle()
        future = asyncio.get_running_loop().run_in_executor(self._shared.pool, call)
        future.add_done_callback(_consume_error)
        self._busy = future
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            # The thread continues after the cancellation. Interrupt the statement if it is a
            # SELECT; otherwise, the next call waits until the thread has finished.
            if may_interrupt and self._connection is not None:
                self._connection.interrupt()
            raise

    async def _wait_until_idle(self) -> None:
        """Wait for a statement that still runs in a thread after a cancellation."""
        if self._busy is not None and not self._busy.done():
            await asyncio.wait([self._busy])

    def _on_progress(self) -> int:
        """Count down the budget. If the result is not 0, SQLite interrupts the statement.

        For a statement without a budget (``_callbacks_left`` is 0), the result is always 0.
        """
        if not self._callbacks_left:
            return 0
        self._callbacks_left -= 1
        return not self._callbacks_left


def _first_word(statement: str) -> str:
    return statement[:12].split(None, 1)[0].upper()


def _close(opened: sqlite3.Connection) -> None:
    # Roll back first: otherwise, a cursor that is still referenced would keep the connection and
    # its lock.
    opened.rollback()
    opened.close()


def _consume_error(future: asyncio.Future[Any]) -> None:
    # Retrieve the error: otherwise, asyncio logs it if the waiting task was cancelled.
    if not future.cancelled():
        future.exception()


class Cursor:
    """Executes a statement, and fetches all its rows immediately."""

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
