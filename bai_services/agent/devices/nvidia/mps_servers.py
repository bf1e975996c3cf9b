"""Supervision of the MPS daemons of a machine's GPUs: start, health checks, restart, shutdown."""

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

from ..base import DeviceGrant
from ..enforcement_levels import allowed_shares
from .mps import MAX_PIPE_PATH_BYTES, PIPE, Limits, MpsControl, MpsFailed

log = logging.getLogger(__name__)

FIRST_RETRY_SECONDS = 5.0
MAX_RETRY_SECONDS = 300.0
# After a client fault an MPS server normally disconnects its clients and restarts. If it still
# reports the fault after this many checks, the daemon is restarted.
MAX_CHECKS_WITH_FAULT = 6
# Consecutive checks without a response after which the daemon is restarted.
MAX_FAILED_CHECKS = 2
DISCONNECT_TIMEOUT_SECONDS = 2.0
CLIENT_EXIT_TIMEOUT_SECONDS = 20.0

STARTING = "MPS is being started"


class RestartRequired(MpsFailed):
    """The daemon responds, but must be restarted immediately."""


@dataclass(slots=True)
class Daemon:
    """The daemon of one GPU, and the results of its checks."""

    control: MpsControl
    memory_bytes: int
    limits: Limits
    unavailable_reason: str = STARTING  # empty: it is ready for clients
    is_running: bool = False
    failed_checks: int = 0  # consecutive checks without a response
    checks_with_fault: int = 0
    failed_starts: int = 0
    retry_at: float = 0.0


class MpsServers:
    """Supervises one MPS daemon per shared GPU.

    ``maintain``, ``set_share``, ``detach`` and ``close`` block.

    A daemon has one limit for all its clients, so all sessions on a GPU have the same share. If the
    share is not fixed, the first session on an empty GPU sets it: the daemon is restarted with the
    limit of that share.
    """

    def __init__(
        self,
        root: Path,
        share: int,
        *,
        has_own_shm: bool,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``share``: fixed share per session in thousandths of a GPU; 0: the first session on a GPU
        sets the share. ``has_own_shm``: see ``MpsControl``.
        """
        self._root = root
        self.share = share
        self._sharing = allowed_shares(Level.PROCESS, share)
        self._has_own_shm = has_own_shm
        self._clock = clock
        # Memory in bytes by the uuid of each GPU to share. None until the first ``set_gpus``: until
        # then ``maintain`` does nothing, so that daemons of an earlier agent process continue.
        self._gpus: Mapping[str, int] | None = None
        self._daemons: dict[str, Daemon] = {}
        # Share of the sessions that an earlier agent process started, by the uuid of the GPU.
        self._granted_shares: Mapping[str, int] = {}
        # Held during maintenance and while a share is set, so that ``close`` does not run while a
        # daemon is being started.
        self._lock = threading.Lock()
        self._is_closed = False

    def configuration_problem(self) -> str:
        """Return why MPS cannot work with this configuration; empty if it can."""
        longest = self._root / ("x" * 40) / PIPE  # the uuid of a GPU has 40 characters
        if len(str(longest)) > MAX_PIPE_PATH_BYTES:
            return f"the path {self._root} is too long for MPS; choose a shorter run_folder"
        return ""

    def reconcile(self, grants: Iterable[DeviceGrant]) -> None:
        """Restore the shares that an earlier agent process granted."""
        shares: dict[str, int] = {}
        for grant in grants:
            # The grants of kernels that have ended, but are not removed yet, may be different; the
            # smallest share is safe for all.
            shares[grant.device_id] = min(grant.amount, shares.get(grant.device_id, grant.amount))
        self._granted_shares = shares

    def set_gpus(self, memory_bytes: Mapping[str, int]) -> None:
        """Set the GPUs to share and their memory, by uuid; ``maintain`` starts the daemons."""
        self._gpus = dict(memory_bytes)

    def unavailable_reason(self, uuid: str) -> str:
        """Return why a GPU cannot be shared through MPS now; empty if it can."""
        daemon = self._daemons.get(uuid)
        return STARTING if daemon is None else daemon.unavailable_reason

    def control(self, uuid: str) -> MpsControl | None:
        """Return the control of a GPU's daemon if it is ready for clients, else None."""
        daemon = self._daemons.get(uuid)
        return daemon.control if daemon is not None and not daemon.unavailable_reason else None

    def limits(self, uuid: str) -> Limits | None:
        daemon = self._daemons.get(uuid)
        return None if daemon is None else daemon.limits

    def set_share(self, uuid: str, share: int) -> Limits:
        """Limit the programs of a GPU to a share, and return the resulting limits.

        Wait up to ``CLIENT_EXIT_TIMEOUT_SECONDS`` for programs of ended sessions to exit.

        Raises
        ------
        Unavailable
            If the daemon is not available now, or programs with another share keep running.
        """
        deadline = time.monotonic() + CLIENT_EXIT_TIMEOUT_SECONDS
        while True:
            with self._lock:
                daemon = self._daemons.get(uuid)
                if daemon is None or daemon.unavailable_reason:
                    raise _unavailable(uuid, self.unavailable_reason(uuid))
                try:
                    if self._try_set_share(daemon, share):
                        return daemon.limits
                except MpsFailed as error:
                    self._record_failure(daemon, str(error), self._clock())
                    raise _unavailable(uuid, str(error)) from error
            if time.monotonic() > deadline:
                current = format_amount("cuda.shares", daemon.limits.share)
                raise _unavailable(uuid, f"programs with shares of {current} are running on it")
            time.sleep(0.1)

    def _try_set_share(self, daemon: Daemon, share: int) -> bool:
        """Restart the daemon with a share, unless it has that share already.

        Return False, without a restart, if programs with another share are running.
        """
        current = daemon.limits.share
        if current == share:
            return True
        in_force = self._sharing.in_force([current] if _clients(daemon.control) else [])
        if not self._sharing.allows(share, in_force):
            return False
        limits = Limits.of(share, daemon.memory_bytes)
        # ``start`` stops the current daemon first, so no daemon runs if it fails.
        daemon.is_running = False
        daemon.control.start(limits)
        daemon.is_running = True
        daemon.limits = limits
        uuid, text = daemon.control.uuid, format_amount("cuda.shares", share)
        log.info("each session on GPU %s now gets a share of %s", uuid, text)
        return True

    def maintain(self) -> None:
        """Start, check or restart the daemons in parallel; kill daemons that are not needed."""
        with self._lock:
            if not self._is_closed:
                self._maintain()

    def _maintain(self) -> None:
        gpus = self._gpus
        if gpus is None:
            return
        for uuid, memory in gpus.items():
            if uuid not in self._daemons:
                control = MpsControl(self._root / uuid, uuid, has_own_shm=self._has_own_shm)
                share = self.share or self._previous_share(control)
                self._daemons[uuid] = Daemon(control, memory, Limits.of(share, memory))
        self._kill_unwanted_daemons(gpus)
        daemons = [self._daemons[uuid] for uuid in gpus]
        if daemons:
            with ThreadPoolExecutor(len(daemons)) as pool:
                list(pool.map(self._maintain_one, daemons))

    def _previous_share(self, control: MpsControl) -> int:
        """Return the share that an earlier agent process set, in thousandths of a GPU.

        If that share is unknown, return the smallest allowed share.
        """
        limits = control.limits()
        if limits is not None and limits.share:
            return limits.share
        return self._granted_shares.get(control.uuid, SHARE_MINIMUM)

    def detach(self, uuid: str, pids: Collection[int]) -> None:
        """Terminate the MPS clients with these pids and wait up to ``DISCONNECT_TIMEOUT_SECONDS``
        for them to disconnect.
        """
        control = self.control(uuid)
        if control is None:
            return
        deadline = time.monotonic() + DISCONNECT_TIMEOUT_SECONDS
        terminated: set[int] = set()
        try:
            while True:
                connected = [
                    (server, client)
                    for server in control.servers()
                    for client in control.clients(server)
                    if client in pids
                ]
                for server, client in connected:
                    if client not in terminated:
                        terminated.add(client)
                        control.terminate(server, client)
                if not connected or time.monotonic() > deadline:
                    return
                time.sleep(0.05)
        except MpsFailed as error:
            log.warning("cannot terminate the MPS clients of GPU %s: %s", uuid, error)

    def close(self) -> None:
        """Stop the daemons without clients; kill daemons that do not respond.

        Daemons with clients continue.
        """
        with self._lock:
            self._is_closed = True
            for control in self._existing_daemons():
                self._stop_if_unused(control)

    def has_daemon(self, uuid: str) -> bool:
        """Return whether a daemon folder exists for a GPU, including one left by an earlier agent
        process.
        """
        return any(control.uuid == uuid for control in self._existing_daemons())

    def _stop_if_unused(self, control: MpsControl) -> None:
        try:
            if _clients(control):
                log.info("sessions are using GPU %s: its MPS daemon continues", control.uuid)
            else:
                control.quit()
        except MpsFailed as error:
            log.warning("MPS of GPU %s does not stop and is killed: %s", control.uuid, error)
            control.kill()

    def _existing_daemons(self) -> list[MpsControl]:
        """Return all daemons with a folder, including those of an earlier agent process."""
        names = sorted(path.name for path in self._root.iterdir()) if self._root.is_dir() else []
        return [
            MpsControl(self._root / name, name, has_own_shm=self._has_own_shm) for name in names
        ]

    def _kill_unwanted_daemons(self, wanted: Collection[str]) -> None:
        """Kill the daemons of GPUs that are missing or are no longer shared through MPS.

        A GPU may be missing only because the driver failed briefly, so a daemon that has clients
        continues. A daemon that does not respond is killed.
        """
        for uuid in [uuid for uuid in self._daemons if uuid not in wanted]:
            del self._daemons[uuid]
        for control in self._existing_daemons():
            if control.uuid in wanted:
                continue
            try:
                is_in_use = bool(_clients(control))
            except MpsFailed:
                is_in_use = False
            if not is_in_use:
                control.kill()

    def _maintain_one(self, daemon: Daemon) -> None:
        now = self._clock()
        if now < daemon.retry_at:
            return
        try:
            if daemon.is_running:
                self._check(daemon)
            else:
                self._start_or_take_over(daemon)
        except RestartRequired as error:
            self._stop(daemon, str(error), now)
        except MpsFailed as error:
            self._record_failure(daemon, str(error), now)

    def _start_or_take_over(self, daemon: Daemon) -> None:
        """Take over the daemon of an earlier agent process, or start a new one.

        If sessions with other limits are still running, leave the daemon unchanged.
        """
        control = daemon.control
        limits = control.limits()
        if limits is not None and _has_limits(control, limits):
            if limits == daemon.limits:
                log.info("MPS of GPU %s continues", control.uuid)
                self._mark_ready(daemon)
                return
            if _clients(control):
                daemon.unavailable_reason = (
                    "sessions with the limits of an earlier configuration are still running"
                )
                return
        control.start(daemon.limits)
        log.info("MPS of GPU %s started: %s", control.uuid, daemon.limits)
        self._mark_ready(daemon)

    def _mark_ready(self, daemon: Daemon) -> None:
        daemon.unavailable_reason, daemon.is_running = "", True
        daemon.failed_checks = daemon.checks_with_fault = daemon.failed_starts = 0

    def _check(self, daemon: Daemon) -> None:
        """Check a running daemon; disconnect the clients of a server with a fault.

        Raises
        ------
        RestartRequired
            If the daemon's limits were changed, or its server does not recover from a fault.
        MpsFailed
            If the daemon does not respond.
        """
        control = daemon.control
        if control.percent() != daemon.limits.percent:
            raise RestartRequired("its limits were changed by another program")
        faulty = [server for server in control.servers() if control.has_fault(server)]
        if not faulty:
            self._mark_ready(daemon)
            return
        daemon.failed_checks = 0
        daemon.checks_with_fault += 1
        if daemon.checks_with_fault > MAX_CHECKS_WITH_FAULT:
            raise RestartRequired("the server does not recover from a fault")
        daemon.unavailable_reason = "MPS is recovering from the fault of a program"
        log.warning("the MPS server of GPU %s has a fault; disconnecting its clients", control.uuid)
        for server in faulty:
            for client in control.clients(server):
                control.terminate(server, client)

    def _record_failure(self, daemon: Daemon, text: str, now: float) -> None:
        """Count a failed start or check.

        Stop the daemon after a failed start, or after ``MAX_FAILED_CHECKS`` consecutive failures.
        """
        daemon.failed_checks += 1
        daemon.unavailable_reason = f"MPS does not work: {text}"
        # Do not stop the daemon after the first failed check, because a stop would end all
        # programs.
        if not daemon.is_running or daemon.failed_checks >= MAX_FAILED_CHECKS:
            self._stop(daemon, text, now)

    def _stop(self, daemon: Daemon, text: str, now: float) -> None:
        """Kill a daemon. A running daemon is restarted at the next maintenance; a daemon that
        failed to start is restarted after an exponential backoff.
        """
        uuid = daemon.control.uuid
        daemon.unavailable_reason = f"MPS does not work: {text}"
        daemon.control.kill()
        if daemon.is_running:
            log.error("MPS of GPU %s is restarted: %s", uuid, text)
        else:
            log.error("MPS of GPU %s cannot be started: %s", uuid, text)
            backoff = min(FIRST_RETRY_SECONDS * 2**daemon.failed_starts, MAX_RETRY_SECONDS)
            daemon.retry_at = now + backoff
            daemon.failed_starts += 1
        daemon.is_running = False
        daemon.failed_checks = daemon.checks_with_fault = 0


def _unavailable(uuid: str, reason: str) -> Unavailable:
    return Unavailable(f"GPU {uuid} cannot serve this share now: {reason}", device=uuid)


def _has_limits(control: MpsControl, limits: Limits) -> bool:
    """Return whether the daemon responds and has the percentage of GPU threads of ``limits``."""
    try:
        return control.percent() == limits.percent
    except MpsFailed:
        return False


def _clients(control: MpsControl) -> list[int]:
    return [client for server in control.servers() for client in control.clients(server)]
