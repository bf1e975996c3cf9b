"""Furiosa RNGD: eight processing elements, assigned together or in equal parts of 1, 2 or 4."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from bai_services.core.cluster.device_sharing import Level, Sharing

from ..base import Device
from ..host_files import HostFiles
from ..table import Row
from .furiosa import (
    Block,
    Counter,
    FuriosaSmi,
    Npus,
    counters_of,
    filled,
    memory_of,
    told_by,
    used_by,
)

ELEMENTS = 8
NODES = "/dev/rngd/npu{i}*"


class Rngds(Npus):
    """Cards, or the configured number of parts of each; the card itself divides them."""

    def __init__(
        self, row: Row, machine: str, host: HostFiles, library: FuriosaSmi | None = None
    ) -> None:
        super().__init__(row, machine, host)
        self._library = library or FuriosaSmi()
        self._counters: dict[str, Mapping[int, Counter]] = {}

    def discover(self) -> list[Device]:
        return [part for device in super().discover() for part in self._parts(device)]

    def sample(self) -> dict[str, dict[str, Any]]:
        """Return the usage of each card or part; the power of a part is unknown."""
        whole = super().sample()
        cards = self._library.cards() if whole else {}
        found = {}
        for card_id, sensed in whole.items():
            card = cards.get(self.address(card_id))
            sample = filled(sensed, told_by(card))
            busy, blocks = self._busy(card_id, counters_of(card)), memory_of(card)
            for part in self._parts(self._known[card_id]):
                of_card = {"temperature_celsius": sample["temperature_celsius"]}
                found[part.id] = filled(
                    of_card if part.slot else sample, _use_of(part, busy, blocks)
                )
        return found

    def _busy(self, card_id: str, now: Mapping[int, Counter]) -> dict[int, float | None]:
        """Return the utilization of each element of a card since the previous reading."""
        before = self._counters.get(card_id, {})
        self._counters[card_id] = now
        return {number: one.busy_since(before.get(number)) for number, one in now.items()}

    def nodes_of(self, device: Device, local: int) -> list[Any]:
        """Return the nodes of a card, or those of a part and the nodes that every part needs."""
        nodes: list[Any] = self.host.paths(NODES, device.index)
        own = device.facts.get("elements")
        if own is None:
            return nodes
        of_elements = re.compile(rf"/dev/rngd/npu{device.index}pe[0-9]")
        mine = f"/dev/rngd/npu{device.index}{own}"
        return [node for node in nodes if node == mine or not of_elements.match(node)]

    def _parts(self, device: Device) -> Iterator[Device]:
        count = self.row.parts
        if count == 1:
            yield device
            return
        width = ELEMENTS // count
        for first in range(0, ELEMENTS, width):
            name = f"pe{first}" if width == 1 else f"pe{first}-{first + width - 1}"
            memory = device.memory_bytes
            yield replace(
                device,
                id=f"{device.id}.{name}",
                memory_bytes=None if memory is None else memory // count,
                slot=f"{self.family}.pe-{width}",
                sharing=Sharing(Level.HARDWARE, most=0),
                facts={**device.facts, "parent": device.id, "elements": name},
            )


def _use_of(
    part: Device, busy: Mapping[int, float | None], blocks: list[Block]
) -> dict[str, float | None]:
    """Return the utilization and used memory of a part; unknown if unknown for one element."""
    bounds = re.findall(r"\d+", part.facts.get("elements", f"pe0-{ELEMENTS - 1}"))
    elements = range(int(bounds[0]), int(bounds[-1]) + 1)
    each = [busy.get(number) for number in elements]
    known = [one for one in each if one is not None]
    mean = round(sum(known) / len(known), 2) if len(known) == len(each) else None
    return {"utilization_percent": mean, "memory_used_bytes": used_by(blocks, elements)}
