"""Persistent records of the devices that are granted to the kernels of this machine."""

from __future__ import annotations

import json
import logging
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from ..folders.kernel_folders import Folders, write_atomically
from ..kernels import Task
from .base import DeviceGrant, GrantedDevice

log = logging.getLogger(__name__)

GRANTS_FILE = "devices.json"


class DeviceGrants:
    """Device grants of each kernel until its removal.

    They are also stored in the kernel's folder, so that they survive a restart of the agent.
    """

    def __init__(self, folders: Folders) -> None:
        self._folders = folders
        self._of_kernel: dict[str, tuple[str, list[DeviceGrant]]] = {}

    def restore(self) -> None:
        """Load the grants of an earlier agent process; blocking."""
        for folder in self._folders.all():
            try:
                text = (self._folders.path(folder.name) / GRANTS_FILE).read_text()
            except OSError:
                continue
            try:
                grants = [DeviceGrant(**entry) for entry in json.loads(text)]
            except (ValueError, TypeError) as error:
                log.error("the device grants of kernel %s cannot be parsed: %s", folder.name, error)
                continue
            self._of_kernel[folder.kernel_id] = (folder.session_id, grants)

    def add(self, task: Task, granted: Sequence[GrantedDevice]) -> None:
        """Store the devices of a kernel, in memory and in its folder; blocking."""
        if not granted:
            return
        grants = [
            DeviceGrant(
                task.kernel_id, g.device.id, g.device.family, g.amount, g.memory_bytes, g.slot
            )
            for g in granted
        ]
        self._of_kernel[task.kernel_id] = (task.session_id, grants)
        text = json.dumps([asdict(grant) for grant in grants])
        write_atomically(self._folders.path(task.folder) / GRANTS_FILE, text)

    def remove(self, kernel_id: str) -> list[DeviceGrant]:
        """Delete a kernel's grants and return them; [] for no grants."""
        return self._of_kernel.pop(kernel_id, ("", []))[1]

    def all(self) -> list[DeviceGrant]:
        return [grant for _, grants in self._of_kernel.values() for grant in grants]

    def sessions(self) -> set[str]:
        """Return the ids of the sessions that have a device with known memory."""
        return {
            session_id
            for session_id, grants in self._of_kernel.values()
            if any(grant.memory_bytes for grant in grants)
        }

    def kernels(self, session_id: str) -> list[str]:
        return [key for key, (owner, _) in self._of_kernel.items() if owner == session_id]

    def limit(self, session_id: str) -> dict[str, int]:
        """Return the memory that a session may use on each device, in bytes, summed over its
        kernels.
        """
        total: dict[str, int] = defaultdict(int)
        for kernel_id in self.kernels(session_id):
            for grant in self._of_kernel[kernel_id][1]:
                total[grant.device_id] += grant.memory_bytes or 0
        return {device_id: limit for device_id, limit in total.items() if limit}

    def facts(self, device_id: str) -> dict[str, Any]:
        """Return the grants of one device, as reported by heartbeats."""
        grants = [grant for grant in self.all() if grant.device_id == device_id]
        return {
            "kernels": sorted({grant.kernel_id for grant in grants}),
            "thousandths": sum(grant.amount for grant in grants),
        }
