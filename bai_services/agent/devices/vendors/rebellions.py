"""Rebellions ATOM: several devices of a session work as one group (RSD), created by the
vendor's tool.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from bai_services.core.errors import Unavailable

from ..base import DeviceInjection, DeviceProcess, Granted, Holding
from ..host_files import HostFiles, ToolFailed, pointed
from ..table import Row
from ..table_devices import TableDevices

TOOL = "rbln-stat"
NODE = "/dev/rsd{i}"
# The path at which programs in a session look for a group.
INSIDE = "/dev/rsd0"


class Atoms(TableDevices):
    """A group has the number of its first device, plus one; 0 belongs to the driver."""

    tells_processes = True

    def __init__(self, row: Row, machine: str, host: HostFiles) -> None:
        super().__init__(row, machine, host)
        self._groups: set[frozenset[str]] = set()

    def inject(self, granted: Sequence[Granted], engine: str) -> DeviceInjection:
        """Return what the session needs; several devices are joined into one group.

        Raises
        ------
        Unavailable
            If the vendor's tool cannot create the group.
        """
        part = super().inject(granted, engine)
        if len(granted) < 2:
            return part
        indices = sorted(g.device.index for g in granted)
        number = indices[0] + 1
        self._remove_strays()
        words = [TOOL, "group", "-c", str(number), "-a", ",".join(map(str, indices))]
        try:
            answer = self.host.ask(words)
        except ToolFailed as error:
            raise Unavailable(f"the devices cannot be joined into a group: {error}") from error
        if answer is None:
            raise Unavailable(f"the devices cannot be joined into a group: there is no {TOOL}")
        self._groups.add(frozenset(g.device.id for g in granted))
        node: Any = {"path": NODE.replace("{i}", str(number)), "target": INSIDE}
        return replace(part, device_nodes=[*part.device_nodes, node])

    def release(self, held: Sequence[Holding]) -> None:
        group = frozenset(one.device_id for one in held)
        if group in self._groups:
            self._groups.discard(group)
            self._remove(self._number_of(group))

    def reconcile(self, held: Sequence[Holding]) -> None:
        of_kernel: dict[str, set[str]] = {}
        for one in held:
            of_kernel.setdefault(one.kernel_id, set()).add(one.device_id)
        self._groups = {frozenset(ids) for ids in of_kernel.values() if len(ids) > 1}

    def processes(self) -> list[DeviceProcess]:
        """Return the processes that hold memory of each device, as listed by the tool."""
        by_index = {str(self._known[key].index): key for key in self._seen}
        try:
            contexts = pointed(self.host.ask_json(self.row.find.command), "/contexts")
        except ToolFailed:
            return []
        found = []
        for context in contexts if isinstance(contexts, list) else ():
            device_id = by_index.get(str(pointed(context, "/npu")))
            pid, memory = (pointed(context, key) for key in ("/pid", "/memalloc"))
            if device_id is not None and str(pid).isdigit():
                held = int(memory) if str(memory).isdigit() else None
                found.append(DeviceProcess(device_id, int(pid), held))
        return found

    def _number_of(self, group: frozenset[str]) -> int | None:
        """Return the number of a group; None while its devices are unknown."""
        if not group <= self._known.keys():
            return None
        return min(self._known[device_id].index for device_id in group) + 1

    def _remove_strays(self) -> None:
        """Remove groups that no session has; an agent that was killed may have left them."""
        live = {self._number_of(group) for group in self._groups}
        mine = {device.index + 1 for device in self._known.values()}
        for match in self.host.find(NODE):
            if match.index in mine - live:
                self._remove(match.index)

    def _remove(self, number: int | None) -> None:
        if number is None:
            return
        try:
            self.host.ask([TOOL, "group", "-d", str(number)])
        except ToolFailed:
            # It remains, and its removal is tried again before the next group is created.
            return
