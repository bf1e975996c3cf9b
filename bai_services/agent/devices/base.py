"""Interface of device kinds, and the data that they exchange with the agent."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bai_services.core.cluster.device_sharing import Level, Sharing
from bai_services.core.resources import SHARE_UNIT


@dataclass(frozen=True, slots=True)
class Device:
    """One device of this machine; ``id`` is unique across all machines."""

    id: str
    family: str
    index: int
    model: str
    memory_bytes: int | None  # None: unknown
    numa_node: int | None = None
    is_simulated: bool = False
    is_healthy: bool = True
    # Number of processors, which is divided among shares; None: unknown.
    processors: int | None = None
    # For a part of a divided device, such as a MIG instance: the slot by which it is requested.
    # Empty for a device that is allocated as a whole or in shares.
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
class GrantedDevice:
    """A device and the amount of it that is allocated to a kernel, in thousandths."""

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
class DeviceGrant:
    """The amount of a device, in thousandths, that is granted to a kernel until the removal of the
    kernel.
    """

    kernel_id: str
    device_id: str
    family: str
    amount: int
    memory_bytes: int | None
    slot: str


@dataclass(frozen=True, slots=True)
class DeviceInjection:
    """Additions of a device kind to the injection of a kernel.

    ``device_nodes`` and ``device_requests`` have the format of the engine.
    """

    environ: Mapping[str, str] = field(default_factory=dict)
    device_nodes: Sequence[str] = ()
    device_requests: Sequence[Mapping[str, Any]] = ()
    mounts: Sequence[Mapping[str, Any]] = ()
    notices: Sequence[str] = ()
    capabilities: Sequence[str] = ()
    # Whether to lift the limit on locked memory; some drivers lock memory in order to map it.
    memlock: bool = False
    groups: Sequence[str] = ()
    # Enforcement level of the kernel's shares.
    level: Level = Level.NONE
    # Default variables, which the user's environment overrides.
    defaults: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DeviceProcess:
    """A process that uses memory of a device; None means unknown."""

    device_id: str
    pid: int
    memory_bytes: int | None
    utilization_percent: float | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """Result of the discovery of one device kind."""

    family: str
    title: str
    # How the code was tested: with a real ``device``, with a ``stand-in`` (a fake), or with ``no``
    # device.
    tried: str
    found: int
    # Reason why no devices, or fewer than expected, were found.
    reason: str = ""


class DeviceKind(ABC):
    """Devices of one family. The methods may block; the agent calls them in a thread."""

    family: str
    # Whether the driver reports memory per process; if not, the device's total is used.
    reports_processes = False

    @abstractmethod
    def discover(self) -> list[Device]:
        """Return the devices of this machine, including unhealthy ones; [] for no devices."""

    @abstractmethod
    def finding(self) -> Finding:
        """Return the result of the last ``discover``."""

    def sample(self) -> dict[str, dict[str, Any]]:
        """Return the metrics of each device by id; devices with unknown usage are left out."""
        return {}

    def processes(self) -> list[DeviceProcess]:
        """Return the processes that use memory of each device; [] if the driver does not
        report them.
        """
        return []

    @abstractmethod
    def hidden(self) -> Mapping[str, str]:
        """Return the environment that hides this family's devices from kernels without them."""

    @abstractmethod
    def inject(self, granted: Sequence[GrantedDevice], engine: str) -> DeviceInjection:
        """Return the injection for a kernel with these devices; ``engine`` is the engine's name."""

    def release(self, grants: Sequence[DeviceGrant]) -> None:
        """Undo ``inject`` for a removed kernel; idempotent."""
        return None

    def reconcile(self, grants: Sequence[DeviceGrant]) -> None:
        """Restore the state of the existing grants after a restart of the agent."""
        return None

    def maintain(self) -> None:
        """Maintain helper processes of the devices; called every few seconds, but never before the
        previous call has returned.
        """
        return None

    def detach(self, processes: Sequence[DeviceProcess]) -> None:
        """Disconnect processes from the devices gracefully before they are killed."""
        return None

    def close(self) -> None:
        """Stop helper processes that are no longer needed."""
        return None
