"""Furiosa's cards: figures of the kernel's sensors, and of the vendor's library for an RNGD."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..host_files import HostFiles
from ..table import METRICS
from ..table_devices import TableDevices

SENSORS = "/sys/bus/pci/devices/{address}/hwmon/hwmon*"
# The sensor of the whole card's power; other sensors measure parts of it.
TOTAL = "RMS_TOTAL"


class Npus(TableDevices):
    """Whole cards of a family, with the figures of the kernel's sensors."""

    def sample(self) -> dict[str, dict[str, Any]]:
        return {
            device_id: filled(sample, self._sensed(device_id))
            for device_id, sample in super().sample().items()
        }

    def address(self, device_id: str) -> str:
        return str(self._known[device_id].facts["pci"]).lower()

    def _sensed(self, device_id: str) -> Mapping[str, float | None]:
        """Return the temperature and the power of a card; None if no sensor reports them."""
        folder = SENSORS.replace("{address}", self.address(device_id))
        degrees = _values(self.host, f"{folder}/temp*_input").values()
        power = _values(self.host, f"{folder}/power*_average")
        of_card = {
            path: number
            for path, number in power.items()
            if len(power) == 1 or self.host.read(path.replace("_average", "_label")) == TOTAL
        }
        microwatts = next(iter(of_card.values()), None)
        return {
            "temperature_celsius": max(degrees) / 1e3 if degrees else None,
            "power_watts": None if microwatts is None else microwatts / 1e6,
        }


@dataclass(frozen=True, slots=True)
class Counter:
    """Counters of a processing element: all cycles, and those in which it worked."""

    cycles: int
    worked: int

    def busy_since(self, before: Counter | None) -> float | None:
        """Return the utilization since an earlier reading, in percent; None: unknown."""
        if not self.cycles:
            # The element is not open.
            return 0.0
        if before is None or self.cycles < before.cycles or self.worked < before.worked:
            # The first reading, or the counters were reset.
            return None
        passed = self.cycles - before.cycles
        return min(100.0, 100.0 * (self.worked - before.worked) / passed) if passed else 0.0


@dataclass(frozen=True, slots=True)
class Block:
    """Memory that belongs to some of the elements of a card."""

    elements: frozenset[int]
    used_bytes: int | None


class FuriosaSmi:
    """The binding ``furiosa_smi_py``, if it is installed; unknown values are left out."""

    def __init__(self, module: Any | None = None) -> None:
        """``module`` is the binding; None imports it if it is installed."""
        self._module = module
        self._is_open = False

    def cards(self) -> dict[str, Any]:
        """Return the binding's cards by PCI address; tried again until its library works."""
        if not self._open():
            return {}
        found = {}
        for card in ask(self._module, "list_devices") or ():
            address = ask(card, "device_info", "bdf")
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


def filled(sample: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Return every metric of a sample, else that of another sample; None if unknown."""
    return {name: other.get(name) if sample.get(name) is None else sample[name] for name in METRICS}


def told_by(card: Any) -> dict[str, Any]:
    """Return the binding's figures for a card as a whole."""
    return {
        "temperature_celsius": ask(card, "device_temperature", "soc_peak"),
        "power_watts": ask(card, "power_consumption"),
    }


def counters_of(card: Any) -> dict[int, Counter]:
    """Return the counters of a card's elements, by their numbers."""
    found = {}
    for one in ask(card, "device_performance_counter", "pe_performance_counters") or ():
        cycles, worked = ask(one, "cycle_count"), ask(one, "task_execution_cycle")
        if cycles is not None and worked is not None:
            found[ask(one, "core")] = Counter(cycles, worked)
    return found


def memory_of(card: Any) -> list[Block]:
    """Return the used memory of a card: of single elements, and shared among elements."""
    utilization = ask(card, "memory_utilization")
    blocks: list[Any] = []
    for kind in ("dram", "dram_shared"):
        blocks += ask(utilization, kind, "memory") or ()
    return [Block(frozenset(ask(one, "core") or ()), ask(one, "in_use_bytes")) for one in blocks]


def used_by(blocks: Sequence[Block], elements: Collection[int]) -> int | None:
    """Return the used memory that belongs to these elements alone; None: unknown."""
    own = [one.used_bytes for one in blocks if one.elements and one.elements <= set(elements)]
    known = [used for used in own if used is not None]
    return sum(known) if own and len(known) == len(own) else None


def ask(thing: Any, *names: str) -> Any:
    """Call a method, then a method of its result; None if one is missing or fails."""
    for name in names:
        call = getattr(thing, name, None)
        if call is None:
            return None
        try:
            thing = call()
        except RuntimeError:
            # The binding has no exception classes of its own.
            return None
    return thing


def _values(host: HostFiles, pattern: str) -> dict[str, float]:
    """Return the numbers in files by path, without those that cannot be read."""
    found = {}
    for path in host.paths(pattern, 0):
        text = host.read(path) or ""
        if text.removeprefix("-").isdigit():
            found[path] = float(text)
    return found
