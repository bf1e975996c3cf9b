"""Devices of any vendor, found and assigned as described by a row of the table."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any

from bai_services.core.cluster.device_sharing import Level, Sharing

from .base import Device, DeviceInjection, DeviceKind, Finding, Granted
from .host_files import HostFiles, ToolFailed, pointed
from .table import PCI, Row

# Nothing limits the use of such a device, so it is only assigned whole.
WHOLE = Sharing(most=0)
NUMBER = re.compile(r"-?\d+(\.\d+)?")


@dataclass(frozen=True, slots=True)
class FoundDevice:
    """A found device: its number, and its folder below /sys or its JSON item."""

    index: int
    path: str = ""
    item: Any = None


class TableDevices(DeviceKind):
    """Whole devices of one family; a device that has disappeared stays known, as unhealthy."""

    def __init__(self, row: Row, machine: str, host: HostFiles) -> None:
        """``machine`` makes the ids of devices without a serial number unique."""
        self.family = row.family
        self.row = row
        self._machine = machine
        self.host = host
        self._known: dict[str, Device] = {}
        self._seen: dict[str, FoundDevice] = {}
        self._finding = Finding(row.family, row.title, row.tried, 0, "not searched for yet")

    def discover(self) -> list[Device]:
        try:
            seen = self.look()
            reason = "" if seen else self._why_none()
        except ToolFailed as error:
            # Its devices may be in use right now: known devices stay, as unhealthy.
            seen, reason = [], str(error)
        self._seen = {}
        for one in seen:
            device = self._read(one)
            if device.id in self._seen:
                reason = f"two devices have the id {device.id}; only the first is used"
                continue
            self._seen[device.id] = one
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
        answers = self._fresh_items() if self.row.find.command else {}
        found = {}
        for device_id, seen in self._seen.items():
            now = replace(seen, item=answers.get(seen.index, seen.item))
            found[device_id] = {
                name: self._number(now, metric.path, metric.scale)
                for name, metric in self.row.metrics.items()
            }
        return found

    def hidden(self) -> Mapping[str, str]:
        # Without such a device there is nothing to hide.
        return self.row.hidden if self._known else {}

    def inject(self, granted: Sequence[Granted], engine: str) -> DeviceInjection:
        row = self.row
        indices = [g.device.index for g in granted]
        words = {
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
            environ={name: _filled(text, words) for name, text in row.environ.items()},
            device_nodes=[node for at, node in enumerate(nodes) if node not in nodes[:at]],
            mounts=mounts,
            notices=list(row.notices),
            capabilities=list(row.capabilities),
            memlock=row.memlock,
            groups=list(row.groups),
            level=level_of(granted, engine),
        )

    def nodes_of(self, device: Device, local: int) -> list[Any]:
        """Return the nodes of one device, which has the number ``local`` in the session."""
        nodes: list[Any] = []
        for pattern in self.row.nodes:
            nodes += self.host.paths(pattern, device.index)
        for pattern, target in self.row.renumbered_nodes.items():
            nodes += [
                {"path": path, "target": target.replace("{local}", str(local))}
                for path in self.host.paths(pattern, device.index)
            ]
        return nodes

    def look(self) -> list[FoundDevice]:
        """Return the devices that can be found now.

        Raises
        ------
        ToolFailed
            If the vendor's tool gives no answer that can be read.
        """
        find = self.row.find
        if find.command:
            items = self._items()
            if items is not None and not isinstance(items, list):
                raise ToolFailed(f"{find.command[0]} lists no devices at {find.items}")
            seen = []
            for place, item in enumerate(items or []):
                number = pointed(item, self.row.facts.index) if self.row.facts.index else place
                if not isinstance(number, int | str) or not str(number).isdigit():
                    raise ToolFailed(f"{find.command[0]} gives a device the number {number!r}")
                seen.append(FoundDevice(int(number), item=item))
        else:
            seen = [
                FoundDevice(match.index, path=match.path) for match in self.host.find(find.path)
            ]
        return [one for one in seen if self._is_meant(one)]

    def _items(self) -> Any:
        find = self.row.find
        if not find.columns:
            return pointed(self.host.ask_json(find.command), find.items)
        lines = (self.host.ask(find.command) or "").splitlines()
        rows = [[cell.strip() for cell in line.split(",")] for line in lines if line.strip()]
        odd = next((row for row in rows if len(row) != len(find.columns)), None)
        if odd is not None:
            raise ToolFailed(
                f"{find.command[0]} printed {len(odd)} columns, not {len(find.columns)}: {odd}"
            )
        return [dict(zip(find.columns, row, strict=True)) for row in rows]

    def _is_meant(self, seen: FoundDevice) -> bool:
        wanted = self.row.find.where
        return all(
            any(fnmatchcase(str(self.value(seen, key)), value) for value in values)
            for key, values in wanted.items()
        )

    def _why_none(self) -> str:
        find = self.row.find
        if find.command:
            return f"{find.command[0]} is not installed, or lists no device"
        if not self.host.find(find.path):
            return f"there is no {find.path}"
        wanted = "; ".join(f"{key} is {' or '.join(v)}" for key, v in find.where.items())
        return f"no {find.path} where {wanted}"

    def _fresh_items(self) -> dict[int, Any]:
        try:
            return {one.index: one.item for one in self.look()}
        except ToolFailed:
            return {}

    def value(self, seen: FoundDevice, key: str) -> Any:
        """Return a fact: by a pointer into the tool's item, else from a file in the device's
        folder.
        """
        if seen.item is not None:
            return pointed(seen.item, key)
        if key.startswith("/"):
            if PCI in key:
                key = key.replace(PCI, str(self.value(seen, self.row.facts.pci)))
            places = self.host.paths(key, seen.index)
            return self.host.read(places[0]) if places else None
        if key == "@address":
            return self.host.target(f"{seen.path}/device") or self.host.target(seen.path)
        places = self.host.paths(f"{seen.path}/{key}", seen.index)
        return self.host.read(places[0]) if places else None

    def _number(self, seen: FoundDevice, key: str, scale: float = 1.0) -> float | None:
        if not key:
            return None
        # Tools append units to numbers: 98304 MiB.
        match = NUMBER.match(str(self.value(seen, key)).strip())
        if match is None:
            return None
        number = float(match[0]) * scale
        return int(number) if number == int(number) else round(number, 2)

    def _part(self, seen: FoundDevice) -> str:
        """Return which kind of part of a device this is, or an empty text for a whole device."""
        divided = self.row.divided
        mode = str(self.value(seen, divided.mode) or "") if divided.mode else ""
        return "" if mode in divided.whole else re.sub(r"[^a-z0-9]+", "-", mode.lower()).strip("-")

    def _read(self, seen: FoundDevice) -> Device:
        facts, row = self.row.facts, self.row
        model = str(self.value(seen, facts.model) or "") if facts.model else ""
        numa = self._number(seen, facts.numa_node)
        memory = self._number(seen, facts.memory_bytes, row.memory_unit)
        own_id = self.value(seen, facts.id) if facts.id else None
        mode = self._part(seen)
        # The parts of a device may all report the device's number.
        own_id = f"{own_id}.{seen.index}" if own_id and mode else own_id
        return Device(
            id=str(own_id or f"{self._machine}-{row.family}-{seen.index}"),
            family=row.family,
            index=seen.index,
            model=row.models.get(model, model) or row.title,
            memory_bytes=int(memory) if memory is not None else row.memory_bytes or None,
            # The kernel reports -1 if it does not know.
            numa_node=int(numa) if numa is not None and numa >= 0 else None,
            slot=f"{row.family}.{mode}" if mode else "",
            sharing=Sharing(Level.HARDWARE, most=0) if mode else WHOLE,
            facts={
                "pci": self.value(seen, facts.pci) if facts.pci else None,
                "tried": row.tried,
            },
        )


def level_of(granted: Sequence[Granted], engine: str) -> Level:
    """Return the enforcement level for parts of devices, or for whole ones."""
    if all(g.device.slot for g in granted):
        return Level.HARDWARE
    return Level.HARDWARE if engine == "docker" else Level.NONE


def _filled(text: str, words: Mapping[str, str]) -> str:
    for name, value in words.items():
        text = text.replace(f"{{{name}}}", value)
    return text
