"""Interface of device kinds."""

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
    memory_bytes: int | None  # None: unknown, as with the processors
    numa_node: int | None = None
    is_simulated: bool = False
    is_healthy: bool = True
    # Number of processors, of which a share is a part.
    processors: int | None = None
    # Slot by which sessions request it if it is a part of a device; empty: whole or in shares.
    slot: str = ""
    sharing: Sharing = field(default_factory=Sharing)
    facts: Mapping[str, Any] = field(default_factory=dict)

    def to_report(self) -> dict[str, Any]:
        """Return the device in the format of heartbeats."""
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
    """What one kernel has of a device, in thousandths, until the kernel is removed."""

    kernel_id: str
    device_id: str
    family: str
    amount: int
    memory_bytes: int | None
    slot: str


@dataclass(frozen=True, slots=True)
class DeviceInjection:
    """What a session needs to use its devices, in the format that engines take for nodes and
    requests.
    """

    environ: Mapping[str, str] = field(default_factory=dict)
    device_nodes: Sequence[str] = ()
    device_requests: Sequence[Mapping[str, Any]] = ()
    mounts: Sequence[Mapping[str, Any]] = ()
    notices: Sequence[str] = ()
    capabilities: Sequence[str] = ()
    # Whether the session may lock memory without limit, as some drivers require to map memory.
    memlock: bool = False
    groups: Sequence[str] = ()
    # Enforcement level of the session's share.
    level: Level = Level.NONE
    # Recommended variables; values set by the user take precedence.
    defaults: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DeviceProcess:
    """A process that holds memory of a device; None: amount unknown."""

    device_id: str
    pid: int
    memory_bytes: int | None
    # How much of the device it uses; None: unknown.
    utilization_percent: float | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """Result of a search for devices of one kind; ``reason`` says why it found no more."""

    family: str
    title: str
    # device, stand-in or no: what the code was tested with.
    tried: str
    found: int
    reason: str = ""


class DeviceKind(ABC):
    """Devices of one kind. Every method may block; the agent calls it in a thread."""

    family: str
    # Whether the driver reports memory per process; otherwise the device's total is used.
    tells_processes = False

    @abstractmethod
    def discover(self) -> list[Device]:
        """Return the devices of this machine, unhealthy ones included; [] if there are none."""

    @abstractmethod
    def finding(self) -> Finding:
        """Return the result of the last `discover`, with the reason if it found less than
        expected.
        """

    def sample(self) -> dict[str, dict[str, Any]]:
        """Return the usage of each device, by id; a missing device is unknown."""
        return {}

    def processes(self) -> list[DeviceProcess]:
        """Return the processes that hold memory of each device; [] if the driver does not
        report them.
        """
        return []

    @abstractmethod
    def hidden(self) -> Mapping[str, str]:
        """Return the environment that hides these devices from a session that has none."""

    @abstractmethod
    def inject(self, granted: Sequence[Granted], engine: str) -> DeviceInjection:
        """Return what a session with these devices needs, for the engine of that name."""

    def release(self, held: Sequence[Holding]) -> None:
        """Undo `inject` for a kernel that is gone; idempotent."""
        return None

    def reconcile(self, held: Sequence[Holding]) -> None:
        """Restore what kernels of this machine have, as assigned by an earlier agent process."""
        return None

    def tend(self) -> None:
        """Maintain helper processes of the devices; called every few seconds, never
        concurrently.
        """
        return None

    def end(self, processes: Sequence[DeviceProcess]) -> None:
        """Let processes finish their work on the devices in order before they are killed."""
        return None

    def close(self) -> None:
        """Stop helper processes that are no longer needed."""
        return None
