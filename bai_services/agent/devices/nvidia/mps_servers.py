"""MPS daemons of a machine's GPUs: start, supervision, orderly end."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from bai_services.core.cluster.device_sharing import Level
from bai_services.core.errors import Unavailable
from bai_services.core.resources import SHARE_MINIMUM, format_amount

from ..base import Holding
from ..enforcement_levels import sharing_of
from .mps import LONGEST_PIPE, PIPE, Limits, MpsControl, MpsFailed

log = logging.getLogger(__name__)

FIRST_RETRY_SECONDS = 5.0
MAX_RETRY_SECONDS = 300.0
# A server with a fault should disconnect its clients and restart; otherwise it is stopped.
LOOKS_WITH_FAULT = 6
LOOKS_WITHOUT_ANSWER = 2
LET_GO_SECONDS = 2.0
LEAVE_SECONDS = 20.0


@dataclass(slots=True)
class Tended:
    """The daemon of one GPU; ``why_not`` says why it cannot be used now, empty if it can."""

    control: MpsControl
    memory_bytes: int
    limits: Limits
    why_not: str = "MPS is being started"
    is_running: bool = False
    bad_looks: int = 0
    failures: int = 0
    retry_at: float = 0.0


class MpsServers:
    """Keeps one daemon for each wanted GPU; ``tend`` and ``serve`` take time.

    All programs of a GPU have one limit, so all its sessions have the same share until the GPU is
    empty: that of the first session, for which the daemon is restarted.
    """

    def __init__(
        self,
        root: Path,
        share: int,
        *,
        has_own_shm: bool,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``share``: every session's part of a GPU, in thousandths; 0: as the first session
        requests.
        """
        self._root = root
        self.share = share
        self._sharing = sharing_of(Level.PROCESS, share)
        self._has_own_shm = has_own_shm
        self._clock = clock
        # None: not known yet, so running daemons continue.
        self._wanted: Mapping[str, int] | None = None
        self._tended: dict[str, Tended] = {}
        # Shares that an earlier agent process assigned to the sessions of each GPU.
        self._given: Mapping[str, int] = {}
        # A check in progress when the agent ends must not start anything again.
        self._lock = threading.Lock()
        self._is_closed = False

    def problem(self) -> str:
        """Return why no daemon could work here, or an empty text."""
        longest = self._root / ("x" * 40) / PIPE
        if len(str(longest)) > LONGEST_PIPE:
            return f"the path {self._root} is too long for MPS; choose a shorter run_folder"
        return ""

    def reconcile(self, held: Iterable[Holding]) -> None:
        """Take over the assignments of an earlier agent process."""
        shares: dict[str, int] = {}
        for one in held:
            # A kernel that has ended may not be removed yet; the smallest share is the safe one.
            shares[one.device_id] = min(one.amount, shares.get(one.device_id, one.amount))
        self._given = shares

    def want(self, memory_bytes: Mapping[str, int]) -> None:
        """Set which GPUs exist, and how much memory each has; returns at once."""
        self._wanted = dict(memory_bytes)

    def why_not(self, uuid: str) -> str:
        """Return why a GPU cannot be used through MPS now, or an empty text."""
        tended = self._tended.get(uuid)
        return "MPS is being started" if tended is None else tended.why_not

    def control(self, uuid: str) -> MpsControl | None:
        """Return the daemon of a GPU if it is ready for clients."""
        tended = self._tended.get(uuid)
        return tended.control if tended is not None and not tended.why_not else None

    def limits(self, uuid: str) -> Limits | None:
        tended = self._tended.get(uuid)
        return None if tended is None else tended.limits

    def serve(self, uuid: str, share: int) -> Limits:
        """Limit the programs of a GPU to a share from now on; return the resulting limits.

        Programs of a session that has just ended may need a moment to exit.

        Raises
        ------
        Unavailable
            If its daemon does not work now, or programs with other limits remain.
        """
        deadline = time.monotonic() + LEAVE_SECONDS
        while True:
            with self._lock:
                tended = self._tended.get(uuid)
                if tended is None or tended.why_not:
                    raise _not_now(uuid, self.why_not(uuid))
                try:
                    if self._is_served(tended, share):
                        return tended.limits
                except MpsFailed as error:
                    self._failed(tended, str(error), self._clock())
                    raise _not_now(uuid, str(error)) from error
            if time.monotonic() > deadline:
                held = format_amount("cuda.shares", tended.limits.share)
                raise _not_now(uuid, f"programs with shares of {held} are running there")
            time.sleep(0.1)

    def _is_served(self, tended: Tended, share: int) -> bool:
        """Restart the daemon for a share, unless programs with another one are running."""
        now = tended.limits.share
        if now == share:
            return True
        in_force = self._sharing.in_force([now] if _clients(tended.control) else [])
        if not self._sharing.bears(share, in_force):
            return False
        limits = Limits.of(share, tended.memory_bytes)
        tended.control.start(limits)
        tended.limits = limits
        uuid, text = tended.control.uuid, format_amount("cuda.shares", share)
        log.info("GPU %s serves shares of %s until it is empty", uuid, text)
        return True

    def tend(self) -> None:
        """Check every daemon and do what it needs; those that hang do not delay the others."""
        with self._lock:
            if not self._is_closed:
                self._tend()

    def _tend(self) -> None:
        now = self._wanted
        if now is None:
            return
        for uuid, memory in now.items():
            if uuid not in self._tended:
                control = MpsControl(self._root / uuid, uuid, has_own_shm=self._has_own_shm)
                share = self.share or self._share_before(control)
                self._tended[uuid] = Tended(control, memory, Limits.of(share, memory))
        self._end_strangers(now)
        wanted = [self._tended[uuid] for uuid in now]
        if wanted:
            with ThreadPoolExecutor(len(wanted)) as pool:
                list(pool.map(self._tend_one, wanted))

    def _share_before(self, control: MpsControl) -> int:
        """Return the share that a GPU had under an earlier agent; the smallest if unknown."""
        left = control.limits()
        if left is not None and left.share:
            return left.share
        return self._given.get(control.uuid, SHARE_MINIMUM)

    def end(self, uuid: str, pids: Collection[int]) -> None:
        """Let the programs with these pids end their work on a GPU, and wait for a moment."""
        control = self.control(uuid)
        if control is None:
            return
        deadline = self._clock() + LET_GO_SECONDS
        asked: set[int] = set()
        try:
            while True:
                left = [
                    (server, client)
                    for server in control.servers()
                    for client in control.clients(server)
                    if client in pids
                ]
                for server, client in left:
                    if client not in asked:
                        asked.add(client)
                        control.terminate(server, client)
                if not left or self._clock() > deadline:
                    return
                time.sleep(0.05)
        except MpsFailed as error:
            log.warning("clients of GPU %s cannot be ended in order: %s", uuid, error)

    def close(self) -> None:
        """Stop the daemons without clients; daemons of running sessions continue."""
        with self._lock:
            self._is_closed = True
            self._close()

    def is_left(self, uuid: str) -> bool:
        """Return whether a GPU still has a daemon, also after the end."""
        return any(control.uuid == uuid for control in self._left())

    def _close(self) -> None:
        for control in self._left():
            try:
                if _clients(control):
                    log.info("sessions are using GPU %s: its MPS daemon continues", control.uuid)
                else:
                    control.quit()
            except MpsFailed as error:
                log.warning("MPS of GPU %s does not stop and is killed: %s", control.uuid, error)
                control.kill()

    def _left(self) -> list[MpsControl]:
        """Return the daemons that have a folder here, also those of an earlier agent process."""
        names = sorted(path.name for path in self._root.iterdir()) if self._root.is_dir() else []
        return [
            MpsControl(self._root / name, name, has_own_shm=self._has_own_shm) for name in names
        ]

    def _end_strangers(self, wanted: Collection[str]) -> None:
        """Stop the daemons of GPUs that are gone or are no longer shared by MPS."""
        for uuid in [uuid for uuid in self._tended if uuid not in wanted]:
            del self._tended[uuid]
        for control in self._left():
            if control.uuid in wanted:
                continue
            try:
                # A driver may fail for a moment; running programs may continue when it recovers.
                is_in_use = bool(_clients(control))
            except MpsFailed:
                is_in_use = False
            if not is_in_use:
                control.kill()

    def _tend_one(self, tended: Tended) -> None:
        now = self._clock()
        if now < tended.retry_at:
            return
        try:
            if tended.is_running:
                self._check(tended)
            else:
                self._begin(tended)
        except MpsFailed as error:
            self._failed(tended, str(error), now)

    def _begin(self, tended: Tended) -> None:
        """Take over the daemon of an earlier agent process, or start one."""
        control = tended.control
        left = control.limits()
        if left is not None and _answers(control, left):
            if left == tended.limits:
                log.info("MPS of GPU %s continues", control.uuid)
                self._is_ready(tended)
                return
            if _clients(control):
                tended.why_not = "sessions with other limits than the current ones still run"
                return
        control.start(tended.limits)
        log.info("MPS of GPU %s started: %s", control.uuid, tended.limits)
        self._is_ready(tended)

    def _is_ready(self, tended: Tended) -> None:
        tended.why_not, tended.is_running = "", True
        tended.bad_looks = tended.failures = 0

    def _check(self, tended: Tended) -> None:
        control = tended.control
        if control.percent() != tended.limits.percent:
            # Changed by somebody with administrator rights: start again.
            tended.bad_looks = LOOKS_WITHOUT_ANSWER
            raise MpsFailed("the daemon's limits are not those that were set")
        faulty = [server for server in control.servers() if control.has_fault(server)]
        if not faulty:
            self._is_ready(tended)
            return
        tended.bad_looks += 1
        tended.why_not = "MPS is recovering from the fault of a program"
        log.warning("the MPS server of GPU %s has a fault: its programs end", control.uuid)
        if tended.bad_looks > LOOKS_WITH_FAULT:
            raise MpsFailed("the server does not recover from a fault")
        for server in faulty:
            for client in control.clients(server):
                control.terminate(server, client)

    def _failed(self, tended: Tended, text: str, now: float) -> None:
        tended.bad_looks += 1
        tended.why_not = f"MPS does not work: {text}"
        if tended.is_running and tended.bad_looks < LOOKS_WITHOUT_ANSWER:
            # It may answer at the next check; until then its programs continue.
            return
        if tended.is_running:
            log.error("MPS of GPU %s is restarted: %s", tended.control.uuid, text)
        else:
            log.error("MPS of GPU %s cannot be used: %s", tended.control.uuid, text)
        tended.control.kill()
        if not tended.is_running:
            wait = min(FIRST_RETRY_SECONDS * 2**tended.failures, MAX_RETRY_SECONDS)
            tended.retry_at = now + wait
            tended.failures += 1
        tended.is_running, tended.bad_looks = False, 0


def _not_now(uuid: str, why: str) -> Unavailable:
    return Unavailable(f"GPU {uuid} cannot be shared like this now: {why}", device=uuid)


def _answers(control: MpsControl, limits: Limits) -> bool:
    try:
        return control.percent() == limits.percent
    except MpsFailed:
        return False


def _clients(control: MpsControl) -> list[int]:
    return [client for server in control.servers() for client in control.clients(server)]
