"""Furiosa NPUs: metrics from Linux hwmon sensors, and for RNGD cards from furiosa-smi."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..host_access import HostAccess
from ..table import METRICS
from ..table_devices import TableDevices

SENSORS = "/sys/bus/pci/devices/{address}/hwmon/hwmon*"
# Label of the sensor for the whole card's power; other sensors measure parts of the card.
CARD_POWER_LABEL = "RMS_TOTAL"


class FuriosaNpus(TableDevices):
    """NPUs of one family, with hwmon metrics."""

    def sample(self) -> dict[str, dict[str, Any]]:
        return {
            device_id: with_fallback(sample, self._sensor_metrics(device_id))
            for device_id, sample in super().sample().items()
        }

    def address(self, device_id: str) -> str:
        return str(self._known[device_id].facts["pci"]).lower()

    def _sensor_metrics(self, device_id: str) -> Mapping[str, float | None]:
        """Return the temperature and the power of a card; None if no sensor reports them."""
        folder = SENSORS.replace("{address}", self.address(device_id))
        millidegrees = _values(self.host, f"{folder}/temp*_input").values()
        microwatts = self._card_microwatts(folder)
        return {
            "temperature_celsius": max(millidegrees) / 1e3 if millidegrees else None,
            "power_watts": None if microwatts is None else microwatts / 1e6,
        }

    def _card_microwatts(self, folder: str) -> float | None:
        """Return the power of the card in microwatts; None: unknown.

        Use the only sensor, or the sensor that measures the whole card.
        """
        power = _values(self.host, f"{folder}/power*_average")
        for path, microwatts in power.items():
            label = self.host.read(path.replace("_average", "_label"))
            if len(power) == 1 or label == CARD_POWER_LABEL:
                return microwatts
        return None


@dataclass(frozen=True, slots=True)
class PeCounters:
    """Cycle counters of a processing element (PE): all cycles and busy cycles."""

    cycles: int
    busy_cycles: int

    def utilization_since(self, before: PeCounters | None) -> float | None:
        """Return the utilization since an earlier reading, in percent; None: unknown."""
        if not self.cycles:
            # The counters are 0 as long as no process has opened the processing element.
            return 0.0
        if before is None or self.cycles < before.cycles or self.busy_cycles < before.busy_cycles:
            # This is the first reading, or the counters were reset.
            return None
        elapsed = self.cycles - before.cycles
        busy = self.busy_cycles - before.busy_cycles
        return min(100.0, 100.0 * busy / elapsed) if elapsed else 0.0


@dataclass(frozen=True, slots=True)
class MemoryBlock:
    """A memory block of a card, and the processing elements that use it."""

    elements: frozenset[int]
    used_bytes: int | None


class FuriosaSmi:
    """Wrapper around the optional ``furiosa_smi_py`` binding; without it ``cards`` returns {}."""

    def __init__(self, module: Any | None = None) -> None:
        """``module`` is the binding; None imports it if it is installed."""
        self._module = module
        self._is_open = False

    def cards(self) -> dict[str, Any]:
        """Return the binding's cards by PCI address; {} while the library cannot be initialized.

        After a failure, the next call tries again.
        """
        if not self._open():
            return {}
        found = {}
        for card in call_chain(self._module, "list_devices") or ():
            address = call_chain(card, "device_info", "bdf")
            if address is not None:
                found[str(address).lower()] = card
        return found

    def _open(self) -> bool:
        if self._is_open:
            return True
        if self._module is None:
            try:
                import furiosa_smi_py
            except ImportError:
                return False
            self._module = furiosa_smi_py
        try:
            self._module.init()
        except RuntimeError:
            return False
        self._is_open = True
        return True


def with_fallback(sample: Mapping[str, Any], fallback: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metrics of ``sample``, with unknown metrics taken from ``fallback``."""
    return {
        name: fallback.get(name) if sample.get(name) is None else sample[name] for name in METRICS
    }


def smi_metrics(card: Any) -> dict[str, Any]:
    """Return the binding's metrics of a card as a whole."""
    return {
        "temperature_celsius": call_chain(card, "device_temperature", "soc_peak"),
        "power_watts": call_chain(card, "power_consumption"),
    }


def counters_of(card: Any) -> dict[int, PeCounters]:
    """Return the cycle counters of a card's processing elements, by core number."""
    found = {}
    for pe in call_chain(card, "device_performance_counter", "pe_performance_counters") or ():
        cycles, busy_cycles = call_chain(pe, "cycle_count"), call_chain(pe, "task_execution_cycle")
        if cycles is not None and busy_cycles is not None:
            found[call_chain(pe, "core")] = PeCounters(cycles, busy_cycles)
    return found


def memory_of(card: Any) -> list[MemoryBlock]:
    """Return the card's exclusive and shared memory blocks."""
    utilization = call_chain(card, "memory_utilization")
    blocks: list[Any] = []
    for kind in ("dram", "dram_shared"):
        blocks += call_chain(utilization, kind, "memory") or ()
    return [
        MemoryBlock(frozenset(call_chain(block, "core") or ()), call_chain(block, "in_use_bytes"))
        for block in blocks
    ]


def used_by(blocks: Sequence[MemoryBlock], elements: Collection[int]) -> int | None:
    """Return the used bytes of the blocks that only these elements use; None: unknown."""
    own = [
        block.used_bytes for block in blocks if block.elements and block.elements <= set(elements)
    ]
    known = [used for used in own if used is not None]
    return sum(known) if own and len(known) == len(own) else None


def call_chain(target: Any, *names: str) -> Any:
    """Call a method of ``target``, then a method of the result, and so on; return the last result.

    Return None if one of the methods is missing or fails.
    """
    for name in names:
        method = getattr(target, name, None)
        if method is None:
            return None
        try:
            target = method()
        except RuntimeError:
            # The binding raises RuntimeError for every error.
            return None
    return target


def _values(host: HostAccess, pattern: str) -> dict[str, float]:
    """Return the numbers in the files that match a pattern, by path, without unreadable files."""
    found = {}
    for path in host.paths(pattern, 0):
        text = host.read(path) or ""
        if text.removeprefix("-").isdigit():
            found[path] = float(text)
    return found
