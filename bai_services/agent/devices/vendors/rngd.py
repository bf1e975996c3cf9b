"""Furiosa RNGD: cards of eight processing elements, whole or in parts of 1, 2 or 4 elements."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from bai_services.core.cluster.device_sharing import Level, Sharing

from ..base import Device
from ..host_access import HostAccess
from ..table import Row
from .furiosa import (
    FuriosaNpus,
    FuriosaSmi,
    MemoryBlock,
    PeCounters,
    counters_of,
    memory_of,
    smi_metrics,
    used_by,
    with_fallback,
)

ELEMENTS = 8
NODES = "/dev/rngd/npu{i}*"


class Rngds(FuriosaNpus):
    """RNGD cards, or the configured number of parts of each card; the hardware isolates parts."""

    def __init__(
        self, row: Row, machine: str, host: HostAccess, library: FuriosaSmi | None = None
    ) -> None:
        super().__init__(row, machine, host)
        self._library = library or FuriosaSmi()
        self._counters: dict[str, Mapping[int, PeCounters]] = {}

    def discover(self) -> list[Device]:
        return [part for device in super().discover() for part in self._parts(device)]

    def sample(self) -> dict[str, dict[str, Any]]:
        """Return the metrics of each card or part; the power of a part is unknown."""
        sensor_samples = super().sample()
        cards = self._library.cards() if sensor_samples else {}
        samples = {}
        for card_id, sensor_sample in sensor_samples.items():
            card = cards.get(self.address(card_id))
            sample = with_fallback(sensor_sample, smi_metrics(card))
            utilization = self._utilization(card_id, counters_of(card))
            blocks = memory_of(card)
            for part in self._parts(self._known[card_id]):
                common = {"temperature_celsius": sample["temperature_celsius"]}
                samples[part.id] = with_fallback(
                    common if part.slot else sample, _usage_of(part, utilization, blocks)
                )
        return samples

    def _utilization(self, card_id: str, now: Mapping[int, PeCounters]) -> dict[int, float | None]:
        """Return the utilization of each element of a card since the previous call, in percent."""
        before = self._counters.get(card_id, {})
        self._counters[card_id] = now
        return {
            number: counters.utilization_since(before.get(number))
            for number, counters in now.items()
        }

    def nodes_of(self, device: Device, local: int) -> list[Any]:
        """Return the nodes of a card. For a part, return its own node and the nodes that every part
        needs.
        """
        nodes: list[Any] = self.host.paths(NODES, device.index)
        elements = device.facts.get("elements")
        if elements is None:
            return nodes
        part_node = re.compile(rf"/dev/rngd/npu{device.index}pe[0-9]")
        own_node = f"/dev/rngd/npu{device.index}{elements}"
        return [node for node in nodes if node == own_node or not part_node.match(node)]

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


def _usage_of(
    part: Device, utilization: Mapping[int, float | None], blocks: list[MemoryBlock]
) -> dict[str, float | None]:
    """Return the utilization and used memory of a card or part.

    ``utilization`` is by element. The mean is None if the utilization of one of the elements is
    unknown.
    """
    bounds = re.findall(r"\d+", part.facts.get("elements", f"pe0-{ELEMENTS - 1}"))
    elements = range(int(bounds[0]), int(bounds[-1]) + 1)
    percents = [utilization.get(number) for number in elements]
    known = [percent for percent in percents if percent is not None]
    mean = round(sum(known) / len(known), 2) if len(known) == len(percents) else None
    return {"utilization_percent": mean, "memory_used_bytes": used_by(blocks, elements)}
