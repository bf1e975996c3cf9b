"""Stop kernels while the manager cannot be reached, so that it can start them elsewhere.

The last heartbeat that the manager has acknowledged is a lease. A kernel with ``fence_seconds`` is
stopped when the lease has this age (``core/sessions/lost_agents.py``).
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from bai_services.core.errors import BaiError
from bai_services.core.sessions.lost_agents import MIN_FENCE_SECONDS, is_fenced

from .engine import Engine
from .folders.kernel_folders import Folders, KernelFolder, write_atomically
from .kernels import Kernel

log = logging.getLogger(__name__)

LEASE_FILE = "lease.json"
TICK_SECONDS = 1.0
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
# Exit codes of containers that were running when their machine was restarted.
KILLED = frozenset({137, 143, 255})

Stop = Callable[[KernelFolder], Awaitable[None]]


def seconds_since_boot() -> float:
    """Return the time since the start of this machine, including the time in which it slept."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Fence:
    """Tracks the age of the lease, and stops the kernels that must not run at this age.

    The age survives a restart of the agent.
    """

    def __init__(
        self,
        home: Path,
        folders: Folders,
        engine: Engine,
        clock: Callable[[], float] = seconds_since_boot,
        boot_id: str | None = None,
    ) -> None:
        self._path = home / LEASE_FILE
        self._folders = folders
        self._engine = engine
        self._clock = clock
        self._boot_id = BOOT_ID.read_text().strip() if boot_id is None else boot_id
        self._renewed_at: float | None = None
        # The lease that ``keep_guard`` guards.
        self._guarded_from: float | None = None
        # While this is set, the age of the lease is 0: the manager does not start the sessions of
        # an agent that has signed off on other agents.
        self._is_signed_off = False
        self._lock = asyncio.Lock()
        self._stop: Stop | None = None

    def on_fenced(self, stop: Stop) -> None:
        """Set the function that stops a kernel that must not run."""
        self._stop = stop

    def now(self) -> float:
        """Return the time for ``renew``, to be read before a heartbeat is sent."""
        return self._clock()

    @property
    def age_seconds(self) -> float:
        """The age of the lease; infinite if there is none, 0 while the agent is signed off."""
        if self._is_signed_off:
            return 0.0
        return float("inf") if self._renewed_at is None else self._clock() - self._renewed_at

    def restore(self) -> None:
        """Read the lease of an earlier process of this agent; blocking.

        After a restart of the machine, the lease counts as expired: no kernel survives a restart.
        """
        try:
            lease = json.loads(self._path.read_text())
            if lease["boot_id"] == self._boot_id:
                self._renewed_at = float(lease["renewed_at"])
                self._is_signed_off = lease.get("is_signed_off") is True
        except (OSError, ValueError, KeyError, TypeError):
            self._renewed_at = None

    async def renew(self, sent_at: float) -> None:
        """Renew the lease: the manager has acknowledged a heartbeat that was sent at ``sent_at``.

        ``check`` must have been called before the heartbeat was sent: if the lease had expired, the
        manager may have started the sessions elsewhere.
        """
        self._renewed_at = sent_at
        await self._store()

    async def sign_off(self) -> None:
        """Suspend the lease: the manager has acknowledged that this agent signs off.

        The next process of this agent then stops no kernels until it sends a heartbeat, however
        long no process runs.
        """
        self._is_signed_off = True
        await self._store()

    async def begin(self, sent_at: float) -> None:
        """Begin a lease after a sign-off, before the first heartbeat is sent at ``sent_at``.

        The manager may receive the heartbeat, even if its answer does not arrive.
        """
        if self._is_signed_off:
            self._renewed_at, self._is_signed_off = sent_at, False
            # Delete first: if the disk is full, no new file can replace the outdated one.
            await asyncio.to_thread(self._path.unlink, missing_ok=True)
            await self._store()

    async def _store(self) -> None:
        content = {"boot_id": self._boot_id, "renewed_at": self._renewed_at}
        lease = json.dumps({**content, "is_signed_off": self._is_signed_off})
        try:
            await asyncio.to_thread(write_atomically, self._path, lease)
        except OSError as error:
            # Continue: at worst, a restarted agent finds an older lease and stops kernels too
            # early.
            log.error("the lease cannot be stored: %s", error)

    async def run(self) -> None:
        """Check the lease once a second."""
        while True:
            await asyncio.sleep(TICK_SECONDS)
            try:
                await self.check()
            except Exception:
                log.exception("kernels could not be stopped; next try in %g s", TICK_SECONDS)

    async def check(self) -> None:
        """Stop the kernels that must not run at the age of the lease; idempotent."""
        if self.age_seconds < MIN_FENCE_SECONDS:
            return
        async with self._lock:
            for folder in await self._to_stop(self.age_seconds):
                await self._fence(folder)

    async def has_work(self) -> bool:
        """Return whether there is a kernel that must stop when the lease expires.

        This is never the case while the agent is signed off.
        """
        return not self._is_signed_off and bool(await self._to_stop(float("inf")))

    def begin_guard(self) -> None:
        """Read the lease of an agent that has ended, before ``keep_guard``; blocking."""
        self.restore()
        self._guarded_from = self._renewed_at

    async def keep_guard(self) -> bool:
        """Stop the kernels that must not run, in place of an agent that has ended.

        Return whether to repeat this call. It is over when no kernel is left to stop, or when
        another process of the agent has renewed the lease or signed off: that process then stops
        the kernels.
        """
        await asyncio.to_thread(self.restore)
        if self._renewed_at is None:
            # Use the last known time, because the lease continues to age even if the file cannot be
            # read now.
            self._renewed_at = self._guarded_from
        if self._renewed_at != self._guarded_from or self._is_signed_off:
            return False
        await self.check()
        return await self.has_work()

    async def _to_stop(self, lease_age_seconds: float) -> Sequence[KernelFolder]:
        """Return the kernels that have not ended and must not run at this age of the lease."""
        folders = await asyncio.to_thread(self._folders.all)
        due = [
            folder
            for folder in folders
            if is_fenced(lease_age_seconds, folder.fence_seconds) and not folder.is_kept
        ]
        if not due:
            return []
        observed = await self._engine.observe()
        kernels = {kernel.kernel_id: kernel for kernel in observed or ()}
        return [folder for folder in due if self._must_stop(folder, kernels.get(folder.kernel_id))]

    def _must_stop(self, folder: KernelFolder, kernel: Kernel | None) -> bool:
        if kernel is not None and kernel.is_running:
            return True
        return not (folder.is_fenced or self._has_exited(folder, kernel))

    def _has_exited(self, folder: KernelFolder, kernel: Kernel | None) -> bool:
        """Return whether the command has ended by itself: its exit code is then the session's
        result.
        """
        code = self._folders.exit_code(folder.name) if kernel is None else kernel.exit_code
        # Without a valid lease, the machine was probably restarted, so the kernel was killed.
        return code is not None and not (self._renewed_at is None and code in KILLED)

    async def _fence(self, folder: KernelFolder) -> None:
        log.warning(
            "session %s is stopped: the manager has not acknowledged a heartbeat for %d s",
            folder.session_id,
            min(self.age_seconds, 1e9),
        )
        try:
            if self._stop is not None:
                await self._stop(folder)
        except BaiError as error:
            log.error("session %s could not be stopped: %s", folder.session_id, error)
