"""What the agent needs of a kind of devices."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bai_services.core.cluster.device_sharing import Level, Sharing
from bai_services.core.resources import SHARE_UNIT


@dataclass(frozen=True, slots=True)
class Device:
    """One device of this machine; ``id`` is unique over all machines."""

    id: str
    family: str
    index: int
    model: str
    memory_bytes: int | None  # None: nobody knows, as with the processors
    numa_node: int | None = None
    is_simulated: bool = False
    is_healthy: bool = True
    # Processors that a share is a part of.
    processors: int | None = None
    # By what sessions ask for it where it is a part of a device; empty: whole or in shares.
    slot: str = ""
    sharing: Sharing = field(default_factory=Sharing)
    facts: Mapping[str, Any] = field(default_factory=dict)

    def to_report(self) -> dict[str, Any]:
        """Return the device as a heartbeat has it."""
        report = {name: getattr(self, name) for name in self.__dataclass_fields__}
        facts = {"processors": report.pop("processors"), **self.sharing.to_facts()}
        if slot := report.pop("slot"):
            facts["slot"] = slot
        del report["sharing"]
        report["facts"] = {**self.facts, **facts}
        return report


@dataclass(frozen=True, slots=True)
class Granted:
    """A device and how much of it a session has, in thousandths."""

    device: Device
    amount: int
    slot: str

    @property
    def is_share(self) -> bool:
        return self.amount < SHARE_UNIT

    @property
    def memory_bytes(self) -> int | None:
        whole = self.device.memory_bytes
        return None if whole is None else whole * self.amount // SHARE_UNIT

    @property
    def processors(self) -> int | None:
        whole = self.device.processors
        return None if whole is None else max(1, whole * self.amount // SHARE_UNIT)


@dataclass(frozen=True, slots=True)
class Holding:
    """What one kernel of this machine has of a device, in thousandths, until it is removed."""

    kernel_id: str
    device_id: str
    family: str
    amount: int
    memory_bytes: int | None
    slot: str


@dataclass(frozen=True, slots=True)
class DeviceInjection:
    """What a session needs to reach its devices. Node and request forms are the engines'."""

    environ: Mapping[str, str] = field(default_factory=dict)
    device_nodes: Sequence[str] = ()
    device_requests: Sequence[Mapping[str, Any]] = ()
    mounts: Sequence[Mapping[str, Any]] = ()
    notices: Sequence[str] = ()
    capabilities: Sequence[str] = ()
    # Whether the session may lock memory without limit, as drivers that map theirs need.
    memlock: bool = False
    groups: Sequence[str] = ()
    # What keeps this session to what it was given.
    level: Level = Level.NONE
    # Variables that serve well here; whatever the user has set instead counts.
    defaults: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DeviceProcess:
    """A process of this machine that holds memory of a device; None: nobody knows how much."""

    device_id: str
    pid: int
    memory_bytes: int | None
    # How busy it keeps the device; None: nobody knows.
    utilization_percent: float | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """What a look for devices of one sort gave; ``reason`` says why it was not more."""

    family: str
    title: str
    # device, stand-in or no: what the code for them was tried against.
    tried: str
    found: int
    reason: str = ""


class DeviceKind(ABC):
    """Devices of one sort. Every method may block; the agent calls it in a thread."""

    family: str
    # Whether the driver says which process holds how much; otherwise a device's own sum serves.
    tells_processes = False

    @abstractmethod
    def discover(self) -> list[Device]:
        """Return the devices of this machine, unhealthy ones too; [] where there is none."""

    @abstractmethod
    def finding(self) -> Finding:
        """Return what the last `discover` found, and why not more."""

    def sample(self) -> dict[str, dict[str, Any]]:
        """Return what each device is doing, by id; a device that is left out is unknown."""
        return {}

    def processes(self) -> list[DeviceProcess]:
        """Return who holds memory of which device; [] too where the driver does not tell."""
        return []

    @abstractmethod
    def hidden(self) -> Mapping[str, str]:
        """Return the environment of a session that has none of these devices and must see none."""

    @abstractmethod
    def inject(self, granted: Sequence[Granted], engine: str) -> DeviceInjection:
        """Return what a session with these devices needs, for an engine by its name."""

    def release(self, held: Sequence[Holding]) -> None:
        """Undo what `inject` made for a kernel that is gone; told twice, it does nothing more."""
        return None

    def reconcile(self, held: Sequence[Holding]) -> None:
        """Know again what kernels of this machine have: an agent before this one gave it out."""
        return None

    def tend(self) -> None:
        """Look after what runs beside the devices; called every few seconds, one at a time."""
        return None

    def end(self, processes: Sequence[DeviceProcess]) -> None:
        """Let processes finish their work on the devices, in order, before they are killed."""
        return None

    def close(self) -> None:
        """End what runs beside the devices and is of no more use."""
        return None
