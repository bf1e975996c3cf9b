"""Rebellions ATOM: the vendor tool joins several devices of a session into one group (RSD)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from bai_services.core.errors import Unavailable

from ..base import DeviceGrant, DeviceInjection, DeviceProcess, GrantedDevice
from ..host_access import HostAccess, ToolFailed, json_pointer
from ..table import Row
from ..table_devices import TableDevices

TOOL = "rbln-stat"
NODE = "/dev/rsd{i}"
# The path of the group's node inside a session.
NODE_IN_SESSION = "/dev/rsd0"


class Atoms(TableDevices):
    """ATOM devices and their groups.

    The number of a group is the lowest index of its devices plus one; the driver reserves 0.
    """

    reports_processes = True

    def __init__(self, row: Row, machine: str, host: HostAccess) -> None:
        super().__init__(row, machine, host)
        self._groups: set[frozenset[str]] = set()

    def inject(self, granted: Sequence[GrantedDevice], engine: str) -> DeviceInjection:
        """Return the injection; several devices are joined into one group.

        Raises
        ------
        Unavailable
            If the vendor tool cannot create the group.
        """
        part = super().inject(granted, engine)
        if len(granted) < 2:
            return part
        indices = sorted(g.device.index for g in granted)
        number = indices[0] + 1
        self._remove_unused_groups()
        command = [TOOL, "group", "-c", str(number), "-a", ",".join(map(str, indices))]
        try:
            output = self.host.run_tool(command)
        except ToolFailed as error:
            raise Unavailable(f"the devices cannot be joined into a group: {error}") from error
        if output is None:
            raise Unavailable(f"the devices cannot be joined into a group: {TOOL} is not installed")
        self._groups.add(frozenset(g.device.id for g in granted))
        node: Any = {"path": NODE.replace("{i}", str(number)), "target": NODE_IN_SESSION}
        return replace(part, device_nodes=[*part.device_nodes, node])

    def release(self, grants: Sequence[DeviceGrant]) -> None:
        group = frozenset(grant.device_id for grant in grants)
        if group in self._groups:
            self._groups.discard(group)
            self._remove(self._number_of(group))

    def reconcile(self, grants: Sequence[DeviceGrant]) -> None:
        by_kernel: dict[str, set[str]] = {}
        for grant in grants:
            by_kernel.setdefault(grant.kernel_id, set()).add(grant.device_id)
        self._groups = {frozenset(ids) for ids in by_kernel.values() if len(ids) > 1}

    def processes(self) -> list[DeviceProcess]:
        """Return the processes that use memory of each device, as listed by the vendor tool."""
        by_index = {str(self._known[key].index): key for key in self._seen}
        try:
            contexts = json_pointer(self.host.run_json_tool(self.row.find.command), "/contexts")
        except ToolFailed:
            return []
        processes = []
        for context in contexts if isinstance(contexts, list) else ():
            device_id = by_index.get(str(json_pointer(context, "/npu")))
            pid, memory = (json_pointer(context, key) for key in ("/pid", "/memalloc"))
            if device_id is not None and str(pid).isdigit():
                memory_bytes = int(memory) if str(memory).isdigit() else None
                processes.append(DeviceProcess(device_id, int(pid), memory_bytes))
        return processes

    def _number_of(self, group: frozenset[str]) -> int | None:
        """Return the number of a group; None while one of its devices is unknown."""
        if not group <= self._known.keys():
            return None
        return min(self._known[device_id].index for device_id in group) + 1

    def _remove_unused_groups(self) -> None:
        """Remove groups without a session, which a killed agent process may have left."""
        in_use = {self._number_of(group) for group in self._groups}
        possible = {device.index + 1 for device in self._known.values()}
        for match in self.host.find(NODE):
            if match.index in possible - in_use:
                self._remove(match.index)

    def _remove(self, number: int | None) -> None:
        if number is None:
            return
        try:
            self.host.run_tool([TOOL, "group", "-d", str(number)])
        except ToolFailed:
            # The next creation of a group will try again to remove this group.
            return
