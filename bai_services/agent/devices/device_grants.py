"""Devices assigned to the kernels of this machine, stored so that they outlive the agent."""

from __future__ import annotations

import json
import logging
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from ..folders.kernel_folders import Folders
from ..kernels import Task
from .base import Granted, Holding

log = logging.getLogger(__name__)

HOLDINGS_FILE = "devices.json"


class DeviceGrants:
    """Knows the devices of each kernel until the kernel is removed.

    They are stored in the kernel's folder, so that a restarted agent finds the assignments of all
    kernels that still have a folder.
    """

    def __init__(self, folders: Folders) -> None:
        self._folders = folders
        self._of_kernel: dict[str, tuple[str, list[Holding]]] = {}

    def restore(self) -> None:
        """Load the assignments of an earlier agent process; it blocks."""
        for folder in self._folders.all():
            try:
                text = (self._folders.path(folder.name) / HOLDINGS_FILE).read_text()
            except OSError:
                continue
            try:
                held = [Holding(**one) for one in json.loads(text)]
            except (ValueError, TypeError) as error:
                log.error("the devices of kernel %s cannot be read: %s", folder.name, error)
                continue
            self._of_kernel[folder.kernel_id] = (folder.session_id, held)

    def add(self, task: Task, granted: Sequence[Granted]) -> None:
        """Store the devices of a kernel, in memory and in its folder; it blocks."""
        if not granted:
            return
        held = [
            Holding(task.kernel_id, g.device.id, g.device.family, g.amount, g.memory_bytes, g.slot)
            for g in granted
        ]
        self._of_kernel[task.kernel_id] = (task.session_id, held)
        place = self._folders.path(task.folder) / HOLDINGS_FILE
        written = place.with_name(f".{HOLDINGS_FILE}")
        written.write_text(json.dumps([asdict(one) for one in held]))
        written.replace(place)

    def remove(self, kernel_id: str) -> list[Holding]:
        """Delete a kernel's entry and return its devices; nothing if there is no entry."""
        return self._of_kernel.pop(kernel_id, ("", []))[1]

    def all(self) -> list[Holding]:
        return [one for _, held in self._of_kernel.values() for one in held]

    def sessions(self) -> set[str]:
        """Return the sessions that have a device with known memory."""
        return {
            session_id
            for session_id, held in self._of_kernel.values()
            if any(one.memory_bytes for one in held)
        }

    def kernels(self, session_id: str) -> list[str]:
        return [key for key, (owner, _) in self._of_kernel.items() if owner == session_id]

    def limit(self, session_id: str) -> dict[str, int]:
        """Return the bytes that a session may use on each device, over all its kernels."""
        total: dict[str, int] = defaultdict(int)
        for kernel_id in self.kernels(session_id):
            for one in self._of_kernel[kernel_id][1]:
                total[one.device_id] += one.memory_bytes or 0
        return {device_id: held for device_id, held in total.items() if held}

    def facts(self, device_id: str) -> dict[str, Any]:
        """Return the heartbeat's facts about the kernels that have a device."""
        held = [one for one in self.all() if one.device_id == device_id]
        return {
            "kernels": sorted({one.kernel_id for one in held}),
            "thousandths": sum(one.amount for one in held),
        }
