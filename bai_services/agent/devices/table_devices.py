"""Device kind for a row of the table of accelerators: find, inject and monitor its devices."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any

from bai_services.core.cluster.device_sharing import Level, Sharing

from .base import Device, DeviceInjection, DeviceKind, Finding, GrantedDevice
from .host_access import HostAccess, ToolFailed, json_pointer
from .table import PCI, Row

# Shares of the devices in the table cannot be enforced, so no shares are allocated.
WHOLE = Sharing(most=0)
NUMBER = re.compile(r"-?\d+(\.\d+)?")


@dataclass(frozen=True, slots=True)
class FoundDevice:
    """A device that is present: its number, and its path or its entry in the tool's output."""

    index: int
    path: str = ""
    item: Any = None


class TableDevices(DeviceKind):
    """Devices of one family, or parts of such devices; none of them is allocated in shares.

    A device that has disappeared is reported as unhealthy.
    """

    def __init__(self, row: Row, machine: str, host: HostAccess) -> None:
        """``machine`` is a prefix that makes the ids of devices without a serial number unique."""
        self.family = row.family
        self.row = row
        self._machine = machine
        self.host = host
        self._known: dict[str, Device] = {}
        self._seen: dict[str, FoundDevice] = {}
        self._finding = Finding(row.family, row.title, row.tried, 0, "not discovered yet")

    def discover(self) -> list[Device]:
        try:
            found = self.find_devices()
            reason = "" if found else self._nothing_found_reason()
        except ToolFailed as error:
            # Report the known devices as unhealthy instead of omitting them, because sessions may
            # use them.
            found, reason = [], str(error)
        self._seen = {}
        for found_device in found:
            device = self._read(found_device)
            if device.id in self._seen:
                reason = f"duplicate device id {device.id}; only the first device is used"
                continue
            self._seen[device.id] = found_device
            self._known[device.id] = device
        row = self.row
        self._finding = Finding(row.family, row.title, row.tried, len(self._seen), reason)
        return sorted(
            (
                device if device.id in self._seen else replace(device, is_healthy=False)
                for device in self._known.values()
            ),
            key=lambda d: (d.index, d.id),
        )

    def finding(self) -> Finding:
        return self._finding

    def sample(self) -> dict[str, dict[str, Any]]:
        items = self._fresh_items() if self.row.find.command else {}
        samples = {}
        for device_id, found_device in self._seen.items():
            refreshed = replace(found_device, item=items.get(found_device.index, found_device.item))
            samples[device_id] = {
                name: self._number(refreshed, metric.path, metric.scale)
                for name, metric in self.row.metrics.items()
            }
        return samples

    def hidden(self) -> Mapping[str, str]:
        return self.row.hidden if self._known else {}

    def inject(self, granted: Sequence[GrantedDevice], engine: str) -> DeviceInjection:
        row = self.row
        indices = [g.device.index for g in granted]
        placeholders = {
            "indices": ",".join(map(str, indices)),
            "ids": ",".join(g.device.id for g in granted),
            "local": ",".join(str(n) for n in range(len(granted))),
            "count": str(len(granted)),
        }
        nodes = [
            node
            for local, granted_one in enumerate(granted)
            for node in self.nodes_of(granted_one.device, local)
        ]
        for pattern in row.shared_nodes:
            nodes.extend(self.host.paths(pattern, 0))
        mounts = [
            {"source": path, "target": path, "read_only": mode == "ro"}
            for path, mode in row.mounts.items()
            if self.host.paths(path, 0)
        ]
        return DeviceInjection(
            environ={name: _substitute(text, placeholders) for name, text in row.environ.items()},
            device_nodes=[node for at, node in enumerate(nodes) if node not in nodes[:at]],
            mounts=mounts,
            notices=list(row.notices),
            capabilities=list(row.capabilities),
            memlock=row.memlock,
            groups=list(row.groups),
            level=level_of(granted, engine),
        )

    def nodes_of(self, device: Device, local: int) -> list[Any]:
        """Return the nodes of one device; ``local`` is its number in the session, from 0."""
        nodes: list[Any] = []
        for pattern in self.row.nodes:
            nodes += self.host.paths(pattern, device.index)
        for pattern, target in self.row.renumbered_nodes.items():
            nodes += [
                {"path": path, "target": target.replace("{local}", str(local))}
                for path in self.host.paths(pattern, device.index)
            ]
        return nodes

    def find_devices(self) -> list[FoundDevice]:
        """Search for the devices of the row; return the devices that are present now.

        Raises
        ------
        ToolFailed
            If the vendor tool fails or its output cannot be parsed.
        """
        find = self.row.find
        if find.command:
            items = self._items()
            if items is not None and not isinstance(items, list):
                raise ToolFailed(f"the output of {find.command[0]} has no list at {find.items}")
            found = []
            for position, item in enumerate(items or []):
                index = self.row.facts.index
                number = json_pointer(item, index) if index else position
                if not isinstance(number, int | str) or not str(number).isdigit():
                    raise ToolFailed(f"{find.command[0]} reports a device number {number!r}")
                found.append(FoundDevice(int(number), item=item))
        else:
            found = [
                FoundDevice(match.index, path=match.path) for match in self.host.find(find.path)
            ]
        return [device for device in found if self._matches_where(device)]

    def _items(self) -> Any:
        """Return the items that the vendor tool lists: from JSON, or from lines of columns."""
        find = self.row.find
        if not find.columns:
            return json_pointer(self.host.run_json_tool(find.command), find.items)
        lines = (self.host.run_tool(find.command) or "").splitlines()
        rows = [[cell.strip() for cell in line.split(",")] for line in lines if line.strip()]
        invalid = next((row for row in rows if len(row) != len(find.columns)), None)
        if invalid is not None:
            raise ToolFailed(
                f"{find.command[0]} printed {len(invalid)} columns instead of "
                f"{len(find.columns)}: {invalid}"
            )
        return [dict(zip(find.columns, row, strict=True)) for row in rows]

    def _matches_where(self, found_device: FoundDevice) -> bool:
        return all(
            any(fnmatchcase(str(self.value(found_device, key)), pattern) for pattern in patterns)
            for key, patterns in self.row.find.where.items()
        )

    def _nothing_found_reason(self) -> str:
        find = self.row.find
        if find.command:
            return f"{find.command[0]} is not installed, or lists no device"
        if not self.host.find(find.path):
            return f"there is no {find.path}"
        conditions = "; ".join(f"{key} is {' or '.join(v)}" for key, v in find.where.items())
        return f"no {find.path} where {conditions}"

    def _fresh_items(self) -> dict[int, Any]:
        try:
            return {device.index: device.item for device in self.find_devices()}
        except ToolFailed:
            return {}

    def value(self, found_device: FoundDevice, key: str) -> Any:
        """Return a fact of a device.

        For a device that a vendor tool lists, ``key`` is a JSON pointer into the tool's item. For a
        device with a path, ``key`` is a file below this path, an absolute path, or ``@address`` for
        the bus address.
        """
        if found_device.item is not None:
            return json_pointer(found_device.item, key)
        if key.startswith("/"):
            if PCI in key:
                key = key.replace(PCI, str(self.value(found_device, self.row.facts.pci)))
            paths = self.host.paths(key, found_device.index)
            return self.host.read(paths[0]) if paths else None
        if key == "@address":
            return self.host.link_target_name(
                f"{found_device.path}/device"
            ) or self.host.link_target_name(found_device.path)
        paths = self.host.paths(f"{found_device.path}/{key}", found_device.index)
        return self.host.read(paths[0]) if paths else None

    def _number(self, found_device: FoundDevice, key: str, scale: float = 1.0) -> float | None:
        if not key:
            return None
        # Ignore a unit after the number, as in ``98304 MiB``.
        match = NUMBER.match(str(self.value(found_device, key)).strip())
        if match is None:
            return None
        number = float(match[0]) * scale
        return int(number) if number == int(number) else round(number, 2)

    def _part_kind(self, found_device: FoundDevice) -> str:
        """Return the kind of a part, such as ``cpx``; empty if the device is a whole device."""
        divided = self.row.divided
        mode = str(self.value(found_device, divided.mode) or "") if divided.mode else ""
        return "" if mode in divided.whole else re.sub(r"[^a-z0-9]+", "-", mode.lower()).strip("-")

    def _read(self, found_device: FoundDevice) -> Device:
        facts, row = self.row.facts, self.row
        model = str(self.value(found_device, facts.model) or "") if facts.model else ""
        numa = self._number(found_device, facts.numa_node)
        memory = self._number(found_device, facts.memory_bytes, row.memory_unit)
        own_id = self.value(found_device, facts.id) if facts.id else None
        mode = self._part_kind(found_device)
        # Add the device number, because all parts of a device may report the same serial number.
        own_id = f"{own_id}.{found_device.index}" if own_id and mode else own_id
        return Device(
            id=str(own_id or f"{self._machine}-{row.family}-{found_device.index}"),
            family=row.family,
            index=found_device.index,
            model=row.models.get(model, model) or row.title,
            memory_bytes=int(memory) if memory is not None else row.memory_bytes or None,
            # Linux reports -1 if the node is unknown.
            numa_node=int(numa) if numa is not None and numa >= 0 else None,
            slot=f"{row.family}.{mode}" if mode else "",
            sharing=Sharing(Level.HARDWARE, most=0) if mode else WHOLE,
            facts={
                "pci": self.value(found_device, facts.pci) if facts.pci else None,
                "tried": row.tried,
            },
        )


def level_of(granted: Sequence[GrantedDevice], engine: str) -> Level:
    """Return the enforcement level of the granted devices, of which there must be at least one.

    Parts of a divided device have the level HARDWARE. Whole devices have the level HARDWARE in a
    container. Without a container they have the level NONE, because the session can open other
    devices.
    """
    is_divided = all(g.device.slot for g in granted)
    return Level.HARDWARE if is_divided or engine == "docker" else Level.NONE


def _substitute(text: str, placeholders: Mapping[str, str]) -> str:
    for name, value in placeholders.items():
        text = text.replace(f"{{{name}}}", value)
    return text
