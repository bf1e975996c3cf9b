"""Registry of all device kinds that the agent searches for on its machine."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import entry_points

from bai_services.core.errors import InvalidRequest, Unavailable

from .base import Device, DeviceInjection, DeviceKind, Finding, GrantedDevice
from .host_access import HostAccess
from .nvidia.cuda import CudaGpus, GpuRules
from .simulated import SimulatedGpus
from .table import load_table
from .table_devices import TableDevices
from .vendors.amd import AmdGpus
from .vendors.furiosa import FuriosaNpus
from .vendors.hyperaccel import Lpus
from .vendors.rebellions import Atoms
from .vendors.rngd import Rngds
from .vendors.tpu import Tpus

log = logging.getLogger(__name__)

# Entry points of plugins: callables that take the Machine and return a DeviceKind.
ENTRY_POINT_GROUP = "bai.accelerators"
# Number of simulated GPUs on a machine without accelerators.
DEFAULT_SIMULATED_GPUS = 2
# Classes of those families that need code in addition to their row in the table.
VENDOR_CLASSES: Mapping[str, type[TableDevices]] = {
    "rocm": AmdGpus,
    "atom": Atoms,
    "atom-plus": Atoms,
    "atom-max": Atoms,
    "hyperaccel-lpu": Lpus,
    "warboy": FuriosaNpus,
    "rngd": Rngds,
    "tpu": Tpus,
}


@dataclass(frozen=True, slots=True)
class Machine:
    """Facts that device kinds need: agent id, host files, and how to share or partition devices."""

    agent_id: str
    host: HostAccess = HostAccess()
    gpus: GpuRules = GpuRules()
    rngd_parts: int = 1


class InvalidRow(DeviceKind):
    """Kind without devices that reports an error in the accelerator table: an invalid row or an
    invalid file.
    """

    def __init__(self, name: str, problem: str) -> None:
        # With this prefix, the built-in row of the same family remains in use.
        self.family = f"table:{name}"
        self._finding = Finding(
            name or "table", "invalid row of the table", tried="no", found=0, reason=problem
        )
        log.error("%s", problem)

    def discover(self) -> list[Device]:
        return []

    def finding(self) -> Finding:
        return self._finding

    def hidden(self) -> Mapping[str, str]:
        return {}

    def inject(self, granted: Sequence[GrantedDevice], engine: str) -> DeviceInjection:
        raise Unavailable(self._finding.reason)


def all_kinds(machine: Machine, simulated_gpus: int | None, table_file: str) -> list[DeviceKind]:
    """Return every device kind, one per family; blocking, because it searches for devices.

    On a machine without an NVIDIA GPU, the kind ``cuda`` has ``simulated_gpus`` simulated GPUs.
    None: two if the machine has no other accelerator, else 0. Each error in the table file becomes
    an ``InvalidRow``.

    Raises
    ------
    InvalidRequest
        If two device kinds (built-in, from a plugin or from the accelerator table) have the same
        family.
    """
    rows, problems = load_table(table_file)
    rows["rngd"] = replace(rows["rngd"], parts=machine.rngd_parts)
    table_kinds = [
        VENDOR_CLASSES.get(row.family, TableDevices)(row, machine.agent_id, machine.host)
        for row in rows.values()
    ]
    invalid = [InvalidRow(family, problem) for family, problem in problems.items()]
    others: list[DeviceKind] = [*table_kinds, *_plugins(machine), *invalid]
    kinds = [_gpus(machine, simulated_gpus, others), *others]
    families: set[str] = set()
    for kind in kinds:
        if kind.family in families:
            raise InvalidRequest(
                f"duplicate device kind {kind.family}; remove one plugin, or the row "
                f"{kind.family} of {table_file or 'the table'}",
                family=kind.family,
            )
        families.add(kind.family)
    return kinds


def _gpus(machine: Machine, simulated_gpus: int | None, others: Sequence[DeviceKind]) -> DeviceKind:
    """Return the kind ``cuda``: real or simulated GPUs."""
    real = CudaGpus(rules=machine.gpus, host=machine.host)
    if simulated_gpus == 0 or real.discover():
        return real
    if simulated_gpus is None:
        if any(_has_devices(kind) for kind in others):
            return real
        simulated_gpus = DEFAULT_SIMULATED_GPUS
    return SimulatedGpus(machine.agent_id, simulated_gpus)


def _has_devices(kind: DeviceKind) -> bool:
    try:
        return bool(kind.discover())
    except Exception:
        log.exception("the search for devices of the kind %s failed", kind.family)
        return False


def _plugins(machine: Machine) -> Sequence[DeviceKind]:
    kinds = []
    for entry in entry_points(group=ENTRY_POINT_GROUP):
        try:
            kinds.append(entry.load()(machine))
        except Exception:
            # A broken plugin of one vendor must not hide the machine's other devices.
            log.exception("the accelerator plugin %s cannot be loaded", entry.name)
    return kinds
