"""Lease of the queue: only the manager that holds and renews it writes the queue.

Clocks of different machines are never compared: a standby manager measures with its own clock how
long the holder has not renewed the lease. A previous holder cannot write, because each write checks
its token (fencing).
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
import time
import uuid
from collections.abc import Awaitable, Callable

from bai_services.core.errors import Unavailable
from bai_services.db.open_work import Work
from bai_services.db.scheduling.lease import LeaseRow, LeaseStore
from bai_services.system.procfs import boot_id, process_stat

from ..clock import Clock
from ..loop import Loop
from ..open_work import OpenWork

log = logging.getLogger(__name__)

# Number of renewals within the lifetime of the lease.
RENEWALS_PER_LIFETIME = 5
# Interval at which a standby manager checks whether it can acquire the lease.
STANDBY_POLL_SECONDS = 0.25


class Lease:
    """The lease as seen by this manager; a loop acquires and renews it."""

    def __init__(
        self,
        store: LeaseStore,
        clock: Clock,
        seconds: float,
        monotonic: Callable[[], float] = time.monotonic,
        open_work: OpenWork | None = None,
    ) -> None:
        """``open_work``: the work of the loops that `loop` returns; None: these never rest."""
        self._store = store
        self._open_work = open_work
        self._clock = clock
        self._seconds = seconds
        self._monotonic = monotonic
        self._holder = own_identity()
        self._token: int | None = None
        self._renewed_at = 0.0
        self._seen: LeaseRow | None = None
        self._seen_at = 0.0
        self._lock = asyncio.Lock()
        self._loop = Loop("lease", self._step, seconds / RENEWALS_PER_LIFETIME)

    def loop(
        self, name: str, step: Callable[[], Awaitable[None]], tick_seconds: float, work: Work
    ) -> Loop:
        """Return a loop for work that only the holder of the lease does."""
        source = None if self._open_work is None else self._open_work.of(work)
        return Loop(name, step, tick_seconds, source)

    @property
    def is_held(self) -> bool:
        return self._token is not None

    @property
    def other(self) -> str:
        """Return the name of another manager that holds the lease, "" if none is known."""
        return "" if self.is_held or self._seen is None else _name(self._seen.holder)

    def start(self) -> None:
        self._loop.start()

    async def stop(self) -> None:
        """Stop renewing and release the lease."""
        await self._loop.stop()
        token, self._token = self._token, None
        if token is not None:
            try:
                await self._store.release(token)
            except Unavailable as error:
                log.warning(
                    "the lease could not be released, so other managers wait until it expires: %s",
                    error,
                )

    async def hold(self) -> int | None:
        """Acquire or renew the lease; return its token, None if another manager holds it."""
        async with self._lock:
            return await self._hold()

    async def _hold(self) -> int | None:
        now = self._monotonic()
        if self._token is not None:
            if now - self._renewed_at < self._seconds / RENEWALS_PER_LIFETIME:
                return self._token
            if await self._store.renew(self._token):
                self._renewed_at = now
                return self._token
            self.lost()
        await self._try_to_acquire(now)
        return self._token

    def lost(self) -> None:
        """Mark the lease as lost; call this if a write or a renewal with its token was rejected."""
        if self._token is not None:
            log.warning("the lease of the queue was lost to another manager")
        self._token = self._seen = None

    async def _try_to_acquire(self, now: float) -> None:
        row = await self._store.read()
        if row is not None and row.holder and not holder_has_ended(row.holder):
            if row != self._seen:
                if self._seen is None or row.token != self._seen.token:
                    log.warning(
                        "%s holds the lease of the queue; this manager is on standby",
                        _name(row.holder),
                    )
                self._seen, self._seen_at = row, now
                return
            if now - self._seen_at < self._seconds:
                return
            log.warning("%s has not renewed its lease", _name(row.holder))
        self._token = await self._store.acquire(self._holder, row, self._clock())
        self._renewed_at = now
        if self._token is not None:
            log.info("this manager holds the lease of the queue (token %d)", self._token)

    async def _step(self) -> None:
        if await self.hold() is None:
            asyncio.get_running_loop().call_later(STANDBY_POLL_SECONDS, self._loop.wake)


def own_identity() -> str:
    """Return JSON that identifies this process, for liveness checks by managers on this machine."""
    return json.dumps(
        {
            "host": socket.gethostname()[:64],
            "pid": os.getpid(),
            "started": _start_of(os.getpid()),
            "space": _pid_namespace(),
            "id": uuid.uuid4().hex[:8],
        }
    )


def _name(holder: str) -> str:
    facts = json.loads(holder)
    return f"the manager on {facts['host']} (process {facts['pid']})"


def holder_has_ended(holder: str) -> bool:
    """Return whether the holder's process is known to have ended; False if unknown."""
    facts = json.loads(holder)
    pid_namespace = _pid_namespace()
    if not pid_namespace or facts["space"] != pid_namespace:
        return False
    return bool(_start_of(facts["pid"]) != facts["started"])


def _pid_namespace() -> str:
    """Return boot id and PID namespace, which together determine the scope of a process id; empty
    if unknown.
    """
    try:
        return f"{boot_id()} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""


def _start_of(pid: int) -> str:
    """Return the start time of a process in clock ticks; empty if it does not run."""
    found = process_stat(pid)
    return "" if found is None or found.state == "Z" else found.start_tick
