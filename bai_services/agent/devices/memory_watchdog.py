"""Watchdog for device memory: acts on sessions that use more than their share.

It reacts afterwards: between two checks a session may use more. It works at every enforcement level
at which the driver reports the memory of each process.
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
from .inventory import Inventory

log = logging.getLogger(__name__)

LOOK_SECONDS = 1.0
# Memory that the driver uses per process is not counted against a session.
TOLERANCE_PERCENT = 102
# Unused devices may report some memory in use, as Gaudi does.
IDLE_BYTES = 2**30
# A single excess may be a moment between two allocations.
LOOKS_BEFORE_ACTING = 2

# Allowed and used bytes of a session, by device.
Limits = Mapping[str, int]
Held = dict[str, list[DeviceProcess]]


class Action(StrEnum):
    """What happens to a session that uses more than its share."""

    WARN = "warn"
    TERMINATE = "terminate"
    STOP = "stop"


@dataclass(frozen=True, slots=True)
class DeviceUse:
    """Usage of one device by a session; None: the driver does not report it."""

    id: str
    memory_bytes: int | None
    limit_bytes: int
    processes: int
    # Utilization by the session's own programs; for a device that is not shared, all of it.
    utilization_percent: float | None = None
    # Time at which it was last seen active.
    active_at: str | None = None

    @property
    def is_over(self) -> bool:
        held = self.memory_bytes
        return held is not None and held * 100 > self.limit_bytes * TOLERANCE_PERCENT


@dataclass(slots=True)
class Watched:
    """One session: its usage at the last check, and what was done about it."""

    uses: list[DeviceUse] = field(default_factory=list)
    looks_over: dict[str, int] = field(default_factory=dict)
    asked_to_end: set[int] = field(default_factory=set)
    notice: str = ""


class Watchdog:
    """Checks once a second while any session here has a device with known memory."""

    def __init__(
        self, inventory: Inventory, engine: Engine, holdings: DeviceGrants, action: Action
    ) -> None:
        self._inventory = inventory
        self._engine = engine
        self._holdings = holdings
        self._action = action
        self._sessions: dict[str, Watched] = {}

    async def let_go(self, session_id: str) -> None:
        """Let the session's programs finish their work on devices before the session is removed."""
        if session_id not in self._holdings.sessions():
            return
        found = await self._inventory.processes()
        owners = await self._engine.owners({process.pid for process in found})
        await self._inventory.end(p for p in found if owners.get(p.pid) == session_id)

    def usage(self, session_id: str) -> dict[str, Any]:
        """Return the heartbeat's facts about a session's devices."""
        watched = self._sessions.get(session_id)
        if watched is None:
            return {}
        said = {"device_notice": watched.notice} if watched.notice else {}
        return {"devices": [asdict(use) for use in watched.uses], **said}

    async def run(self) -> None:
        """Check in a loop; a failed check is logged and repeated."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            if not self._holdings.sessions():
                continue
            try:
                await self.look()
            except Exception:
                log.exception("the usage of devices cannot be read")

    async def look(self) -> None:
        """Sum up the usage of every session, and act where it is too high."""
        found = await self._inventory.processes()
        owners = await self._engine.owners({process.pid for process in found})
        held: dict[str, Held] = defaultdict(lambda: defaultdict(list))
        for process in found:
            if process.pid in owners:
                held[owners[process.pid]][process.device_id].append(process)
        for session_id, watched in self._watched():
            mine = held.get(session_id, {})
            before = {use.id: use.active_at for use in watched.uses}
            limit = self._holdings.limit(session_id)
            watched.uses = [
                self._with_activity(use, before.get(use.id)) for use in uses_of(limit, mine)
            ]
            for use in watched.uses:
                looks = watched.looks_over.get(use.id, 0) + 1 if use.is_over else 0
                watched.looks_over[use.id] = looks
                if looks >= LOOKS_BEFORE_ACTING:
                    await self._act(session_id, watched, use, mine[use.id])

    def _watched(self) -> list[tuple[str, Watched]]:
        """Return the sessions that have devices now; forget all others."""
        self._sessions = {
            session_id: self._sessions.get(session_id) or Watched()
            for session_id in sorted(self._holdings.sessions())
        }
        return list(self._sessions.items())

    def _with_activity(self, use: DeviceUse, active_at: str | None) -> DeviceUse:
        """Add the device's own figures: its utilization, and when it was last active."""
        device = self._inventory.devices.get(use.id)
        sample = self._inventory.sample(use.id)
        if device is None:
            return use
        busy = sample.get("utilization_percent")
        if not self._inventory.kinds[device.family].tells_processes:
            # No other session has this device, so all its used memory belongs to this one.
            use = replace(use, memory_bytes=sample.get("memory_used_bytes"))
        if use.limit_bytes == device.memory_bytes:
            use = replace(use, utilization_percent=busy)
        own = busy if use.utilization_percent is None else use.utilization_percent
        # If no driver reports utilization, used memory counts as activity.
        is_active = (own is None or own > 0) and _holds(use)
        return replace(
            use,
            active_at=datetime.now(UTC).isoformat() if is_active else active_at,
        )

    async def _act(
        self,
        session_id: str,
        watched: Watched,
        use: DeviceUse,
        processes: Sequence[DeviceProcess],
    ) -> None:
        text = (
            f"The session used {use.memory_bytes} bytes of device {use.id}, of which it may use "
            f"{use.limit_bytes}."
        )
        if self._action is Action.TERMINATE:
            largest = max(processes, key=lambda p: p.memory_bytes or 0)
            if largest.pid not in watched.asked_to_end:
                await self._inventory.end([largest])
            _end(largest.pid, watched.asked_to_end)
            text += f" Its largest process there ({largest.pid}) was ended."
        elif self._action is Action.STOP:
            await self._inventory.end(processes)
            text += " It was stopped."
        if watched.notice != text:
            log.warning("session %s: %s", session_id, text)
        watched.notice = text
        if self._action is Action.STOP:
            try:
                for kernel_id in self._holdings.kernels(session_id):
                    await self._engine.remove(Task("watchdog", "remove", session_id, kernel_id))
            except BaiError as error:
                # Checked again in a second.
                log.warning("session %s cannot be stopped: %s", session_id, error)


def uses_of(limits: Limits, held: Mapping[str, Sequence[DeviceProcess]]) -> list[DeviceUse]:
    """Return a session's usage of each device that it uses or was assigned.

    A device that was not assigned to it has the limit 0.
    """
    uses = []
    for device_id in sorted({*limits, *held}):
        processes = held.get(device_id, ())
        amounts = [process.memory_bytes for process in processes]
        total = None if None in amounts else sum(filter(None, amounts))
        limit = limits.get(device_id, 0)
        uses.append(DeviceUse(device_id, total, limit, len(processes), _utilization(processes)))
    return uses


def _utilization(processes: Sequence[DeviceProcess]) -> float | None:
    """Return the utilization by a session's processes; unknown if that of one is unknown."""
    parts = [process.utilization_percent for process in processes]
    known = [part for part in parts if part is not None]
    if not parts or len(known) < len(parts):
        return None
    return min(100.0, round(sum(known), 1))


def _holds(use: DeviceUse) -> bool:
    """Return whether a session uses more of a device than a driver uses for itself."""
    return use.processes > 0 or (use.memory_bytes or 0) > IDLE_BYTES


def _end(pid: int, asked: set[int]) -> None:
    """Ask a process to end; kill one that was asked before and still runs."""
    number = signal.SIGKILL if pid in asked else signal.SIGTERM
    asked.add(pid)
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)
