"""Adds up what each session holds of a device's memory, and acts when it is more than its share.

A reaction, not a wall: between two looks a session may hold more. It works at
every level of enforcement, because the driver tells whose memory it is.
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
# What a driver keeps for itself per process is not held against a session.
TOLERANCE_PERCENT = 102
# A device that nobody uses holds some memory for itself, as Gaudi does.
IDLE_BYTES = 2**30
# Once may be a moment between two allocations.
LOOKS_BEFORE_ACTING = 2

# Bytes that a session may hold, and holds, by device.
Limits = Mapping[str, int]
Held = dict[str, list[DeviceProcess]]


class Action(StrEnum):
    """What happens to a session that holds more than its share."""

    WARN = "warn"
    TERMINATE = "terminate"
    STOP = "stop"


@dataclass(frozen=True, slots=True)
class DeviceUse:
    """What a session holds of one device; None: the driver does not tell."""

    id: str
    memory_bytes: int | None
    limit_bytes: int
    processes: int
    # What the session's own programs make of it; of a device that is not shared, all of it.
    utilization_percent: float | None = None
    # When it was last seen at work, as a time of day.
    active_at: str | None = None

    @property
    def is_over(self) -> bool:
        held = self.memory_bytes
        return held is not None and held * 100 > self.limit_bytes * TOLERANCE_PERCENT


@dataclass(slots=True)
class Watched:
    """One session: its use at the last look, and what was done."""

    uses: list[DeviceUse] = field(default_factory=list)
    looks_over: dict[str, int] = field(default_factory=dict)
    asked_to_end: set[int] = field(default_factory=set)
    notice: str = ""


class Watchdog:
    """Looks once a second while any session here has a device with memory."""

    def __init__(
        self, inventory: Inventory, engine: Engine, holdings: DeviceGrants, action: Action
    ) -> None:
        self._inventory = inventory
        self._engine = engine
        self._holdings = holdings
        self._action = action
        self._sessions: dict[str, Watched] = {}

    async def let_go(self, session_id: str) -> None:
        """Let the session's programs finish their work on devices, before it is removed."""
        if session_id not in self._holdings.sessions():
            return
        found = await self._inventory.processes()
        owners = await self._engine.owners({process.pid for process in found})
        await self._inventory.end(p for p in found if owners.get(p.pid) == session_id)

    def usage(self, session_id: str) -> dict[str, Any]:
        """Return what the heartbeat says of a session's devices."""
        watched = self._sessions.get(session_id)
        if watched is None:
            return {}
        said = {"device_notice": watched.notice} if watched.notice else {}
        return {"devices": [asdict(use) for use in watched.uses], **said}

    async def run(self) -> None:
        """Look for ever; a look that fails is logged and the next one comes."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            if not self._holdings.sessions():
                continue
            try:
                await self.look()
            except Exception:
                log.exception("the use of devices cannot be read")

    async def look(self) -> None:
        """Add up what every session holds now, and act where that is too much."""
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
            watched.uses = [self._at_work(use, before.get(use.id)) for use in uses_of(limit, mine)]
            for use in watched.uses:
                looks = watched.looks_over.get(use.id, 0) + 1 if use.is_over else 0
                watched.looks_over[use.id] = looks
                if looks >= LOOKS_BEFORE_ACTING:
                    await self._act(session_id, watched, use, mine[use.id])

    def _watched(self) -> list[tuple[str, Watched]]:
        """Return the sessions that have devices now; what was known of others is forgotten."""
        self._sessions = {
            session_id: self._sessions.get(session_id) or Watched()
            for session_id in sorted(self._holdings.sessions())
        }
        return list(self._sessions.items())

    def _at_work(self, use: DeviceUse, active_at: str | None) -> DeviceUse:
        """Add what the device itself says: how busy it is, and when it was last."""
        device = self._inventory.devices.get(use.id)
        sample = self._inventory.sample(use.id)
        if device is None:
            return use
        busy = sample.get("utilization_percent")
        if not self._inventory.kinds[device.family].tells_processes:
            # Nobody else has this device: what it holds, the session holds.
            use = replace(use, memory_bytes=sample.get("memory_used_bytes"))
        if use.limit_bytes == device.memory_bytes:
            use = replace(use, utilization_percent=busy)
        own = busy if use.utilization_percent is None else use.utilization_percent
        # Where no driver tells how busy a device is, memory that is held counts as work.
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
            f"The session held {use.memory_bytes} bytes of device {use.id}, of which it may hold "
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
                # Looked at again in a second.
                log.warning("session %s cannot be stopped: %s", session_id, error)


def uses_of(limits: Limits, held: Mapping[str, Sequence[DeviceProcess]]) -> list[DeviceUse]:
    """Return what a session holds of each device that it holds anything of, or was given.

    A device that it was not given at all has the limit 0.
    """
    uses = []
    for device_id in sorted({*limits, *held}):
        processes = held.get(device_id, ())
        amounts = [process.memory_bytes for process in processes]
        total = None if None in amounts else sum(filter(None, amounts))
        limit = limits.get(device_id, 0)
        uses.append(DeviceUse(device_id, total, limit, len(processes), _busy(processes)))
    return uses


def _busy(processes: Sequence[DeviceProcess]) -> float | None:
    """Return how busy the processes of a session keep a device; one unknown, all is unknown."""
    parts = [process.utilization_percent for process in processes]
    known = [part for part in parts if part is not None]
    if not parts or len(known) < len(parts):
        return None
    return min(100.0, round(sum(known), 1))


def _holds(use: DeviceUse) -> bool:
    """Return whether a session has more on a device than a driver keeps for itself."""
    return use.processes > 0 or (use.memory_bytes or 0) > IDLE_BYTES


def _end(pid: int, asked: set[int]) -> None:
    """Ask a process to end; one that was asked before and still is there is killed."""
    number = signal.SIGKILL if pid in asked else signal.SIGTERM
    asked.add(pid)
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)
