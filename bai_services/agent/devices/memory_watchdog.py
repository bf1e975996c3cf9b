"""Watchdog for device memory: acts on sessions that use more than their share.

A session can exceed its share between two checks. The watchdog works at every enforcement level if
the driver reports the used memory.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from bai_services.core.errors import BaiError

from ..engine import Engine
from ..kernels import Task
from .base import DeviceProcess
from .device_grants import DeviceGrants
from .machine_devices import MachineDevices

log = logging.getLogger(__name__)

CHECK_INTERVAL_SECONDS = 1.0
# Tolerated usage in percent of the limit, because the driver itself uses memory in each process.
TOLERANCE_PERCENT = 102
# Some devices, such as Gaudi, report up to this amount of used memory while no process uses them.
IDLE_BYTES = 2**30
# Number of consecutive checks over the limit before an action, because a session may free the
# memory at once.
CHECKS_BEFORE_ACTING = 2

# Bytes that a session may use, by device id.
Limits = Mapping[str, int]
# Processes of a session, by device id.
ProcessesByDevice = dict[str, list[DeviceProcess]]


class Action(StrEnum):
    """Action on a session that uses more device memory than its share."""

    WARN = "warn"
    TERMINATE = "terminate"
    STOP = "stop"


@dataclass(frozen=True, slots=True)
class DeviceUsage:
    """Usage of one device by a session; None: unknown."""

    id: str
    memory_bytes: int | None
    limit_bytes: int
    processes: int
    # Utilization by the session's own programs; for a whole device, the device's utilization.
    utilization_percent: float | None = None
    # Time of the last check that found activity, in ISO 8601; None: no check has found any.
    active_at: str | None = None
    # Power of the device; None also for a part of a device.
    power_watts: float | None = None

    @property
    def is_over_limit(self) -> bool:
        used = self.memory_bytes
        return used is not None and used * 100 > self.limit_bytes * TOLERANCE_PERCENT


@dataclass(slots=True)
class WatchedSession:
    """State of one session: its usage at the last check, and the actions taken."""

    usages: list[DeviceUsage] = field(default_factory=list)
    # Consecutive checks over the limit, by device id.
    checks_over_limit: dict[str, int] = field(default_factory=dict)
    # Processes that have been sent SIGTERM.
    terminated_pids: set[int] = field(default_factory=set)
    notice: str = ""


class Watchdog:
    """Checks the device memory of sessions once per second."""

    def __init__(
        self, devices: MachineDevices, engine: Engine, grants: DeviceGrants, action: Action
    ) -> None:
        self._devices = devices
        self._engine = engine
        self._grants = grants
        self._action = action
        self._sessions: dict[str, WatchedSession] = {}

    async def detach_session(self, session_id: str) -> None:
        """Disconnect a session's programs from their devices before the session is removed."""
        if session_id not in self._grants.sessions():
            return
        processes = (await self._devices.processes()).processes
        owners = await self._engine.owners({process.pid for process in processes})
        await self._devices.detach(p for p in processes if owners.get(p.pid) == session_id)

    def usage(self, session_id: str) -> dict[str, Any]:
        """Return the device usage of a session, as reported by heartbeats."""
        session = self._sessions.get(session_id)
        if session is None:
            return {}
        notice = {"device_notice": session.notice} if session.notice else {}
        return {"devices": [asdict(usage) for usage in session.usages], **notice}

    async def run(self) -> None:
        """Check in a loop; a failed check is logged and repeated."""
        while True:
            await asyncio.sleep(CHECK_INTERVAL_SECONDS)
            if not self._grants.sessions():
                continue
            try:
                await self.check()
            except Exception:
                log.exception("the usage of devices cannot be read")

    async def check(self) -> None:
        """Sum up the usage of each session with devices, and act on sessions over their limit."""
        reading = await self._devices.processes()
        owners = await self._engine.owners({process.pid for process in reading.processes})
        by_session: dict[str, ProcessesByDevice] = defaultdict(lambda: defaultdict(list))
        for process in reading.processes:
            if process.pid in owners:
                by_session[owners[process.pid]][process.device_id].append(process)
        for session_id, session in self._current_sessions():
            by_device = by_session.get(session_id, {})
            known = {usage.id: usage for usage in session.usages}
            limits = self._grants.limit(session_id)
            current, unread = [], []
            for usage in device_usages(limits, by_device):
                if self._family(usage.id) in reading.unread_families:
                    unread.append(known.get(usage.id) or replace(usage, memory_bytes=None))
                else:
                    previous = known.get(usage.id)
                    active_at = None if previous is None else previous.active_at
                    current.append(self._with_activity(usage, active_at))
            session.usages = sorted([*current, *unread], key=lambda usage: usage.id)
            for usage in current:
                checks = session.checks_over_limit.get(usage.id, 0) + 1
                session.checks_over_limit[usage.id] = checks if usage.is_over_limit else 0
                if session.checks_over_limit[usage.id] >= CHECKS_BEFORE_ACTING:
                    await self._act(session_id, session, usage, by_device.get(usage.id, ()))

    def _family(self, device_id: str) -> str | None:
        device = self._devices.by_id.get(device_id)
        return None if device is None else device.family

    def _current_sessions(self) -> list[tuple[str, WatchedSession]]:
        """Return the sessions that now have devices with known memory; discard all others."""
        self._sessions = {
            session_id: self._sessions.get(session_id) or WatchedSession()
            for session_id in sorted(self._grants.sessions())
        }
        return list(self._sessions.items())

    def _with_activity(self, usage: DeviceUsage, active_at: str | None) -> DeviceUsage:
        """Return the usage with the device's metrics and the time of the last activity added."""
        device = self._devices.by_id.get(usage.id)
        sample = self._devices.sample(usage.id)
        if device is None:
            return usage
        utilization = sample.get("utilization_percent")
        if not self._devices.kinds[device.family].reports_processes:
            # Devices of such a family are not shared, so all used memory belongs to this session.
            usage = replace(usage, memory_bytes=sample.get("memory_used_bytes"))
        if usage.limit_bytes == device.memory_bytes:
            watts = sample.get("power_watts")
            usage = replace(usage, utilization_percent=utilization, power_watts=watts)
        own = utilization if usage.utilization_percent is None else usage.utilization_percent
        # If the utilization is unknown, any use of the device counts as activity.
        is_active = (own is None or own > 0) and _is_using(usage)
        return replace(
            usage,
            active_at=datetime.now(UTC).isoformat() if is_active else active_at,
        )

    async def _act(
        self,
        session_id: str,
        session: WatchedSession,
        usage: DeviceUsage,
        processes: Sequence[DeviceProcess],
    ) -> None:
        """Apply the configured action to a session that is over the limit of a device."""
        text = (
            f"The session used {usage.memory_bytes} bytes of device {usage.id}; its limit is "
            f"{usage.limit_bytes} bytes."
        )
        if self._action is Action.TERMINATE and processes:
            largest = max(processes, key=lambda p: p.memory_bytes or 0)
            if largest.pid not in session.terminated_pids:
                await self._devices.detach([largest])
            _terminate(largest.pid, session.terminated_pids)
            text += f" Its largest process on the device ({largest.pid}) was terminated."
        elif self._action is Action.STOP:
            await self._devices.detach(processes)
            text += " The session was stopped."
        if session.notice != text:
            log.warning("session %s: %s", session_id, text)
        session.notice = text
        if self._action is Action.STOP:
            try:
                for kernel_id in self._grants.kernels(session_id):
                    await self._engine.remove(Task("watchdog", "remove", session_id, kernel_id))
            except BaiError as error:
                # The next check, a second later, tries again.
                log.warning("session %s cannot be stopped: %s", session_id, error)


def device_usages(
    limits: Limits, by_device: Mapping[str, Sequence[DeviceProcess]]
) -> list[DeviceUsage]:
    """Return a session's usage of each device that it uses or that is granted to it.

    The limit of a device that is not granted to the session is 0.
    """
    usages = []
    for device_id in sorted({*limits, *by_device}):
        processes = by_device.get(device_id, ())
        amounts = [process.memory_bytes for process in processes]
        total = None if None in amounts else sum(filter(None, amounts))
        limit = limits.get(device_id, 0)
        usages.append(DeviceUsage(device_id, total, limit, len(processes), _utilization(processes)))
    return usages


def _utilization(processes: Sequence[DeviceProcess]) -> float | None:
    """Return the summed utilization of processes in percent, at most 100.

    Return None if there are no processes, or if the utilization of one of them is unknown.
    """
    percents = [process.utilization_percent for process in processes]
    known = [percent for percent in percents if percent is not None]
    if not percents or len(known) < len(percents):
        return None
    return min(100.0, round(sum(known), 1))


def _is_using(usage: DeviceUsage) -> bool:
    """Return whether a session has a process on a device, or uses more than ``IDLE_BYTES`` of its
    memory.
    """
    return usage.processes > 0 or (usage.memory_bytes or 0) > IDLE_BYTES


def _terminate(pid: int, terminated: set[int]) -> None:
    """Send SIGTERM to a process, or SIGKILL if it is in ``terminated`` already."""
    number = signal.SIGKILL if pid in terminated else signal.SIGTERM
    terminated.add(pid)
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)
