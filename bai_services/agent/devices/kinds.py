"""All device kinds that this machine is searched for."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import entry_points

from bai_services.core.errors import InvalidRequest, Unavailable

from .base import Device, DeviceInjection, DeviceKind, Finding, Granted
from .host_files import HostFiles
from .nvidia.cuda import CudaGpus, GpuRules
from .simulated import SimulatedGpus
from .table import built_in, with_file
from .table_devices import TableDevices
from .vendors.amd import Instincts
from .vendors.furiosa import Npus
from .vendors.hyperaccel import Lpus
from .vendors.rebellions import Atoms
from .vendors.rngd import Rngds
from .vendors.tpu import Tpus

log = logging.getLogger(__name__)

# Other distributions can add kinds: a callable that takes the Machine and returns a DeviceKind.
GROUP = "bai.accelerators"
# Families that need code in addition to their row in the table.
CODE: Mapping[str, type[TableDevices]] = {
    "rocm": Instincts,
    "atom": Atoms,
    "atom-plus": Atoms,
    "atom-max": Atoms,
    "hyperaccel-lpu": Lpus,
    "warboy": Npus,
    "rngd": Rngds,
    "tpu": Tpus,
}


@dataclass(frozen=True, slots=True)
class Machine:
    """Facts that a device kind may need: the machine's owner, its files, how GPUs are shared."""

    agent_id: str
    host: HostFiles = HostFiles()
    gpus: GpuRules = GpuRules()
    rngd_parts: int = 1


class WrongRow(DeviceKind):
    """An invalid row of an administrator's table, or the whole invalid table."""

    def __init__(self, name: str, why: str) -> None:
        # Not a real family's name, so that the built-in row of that name remains in use.
        self.family = f"table:{name}"
        self._finding = Finding(name or "table", "wrong row of the table", "no", 0, why)
        log.error("%s", why)

    def discover(self) -> list[Device]:
        return []

    def finding(self) -> Finding:
        return self._finding

    def hidden(self) -> Mapping[str, str]:
        return {}

    def inject(self, granted: Sequence[Granted], engine: str) -> DeviceInjection:
        raise Unavailable(self._finding.reason)


def all_kinds(machine: Machine, simulated_gpus: int, table_file: str) -> list[DeviceKind]:
    """Return every device kind, one per family; it searches for GPUs, so it may block.

    Simulated GPUs replace real ones where there are none. An error in the table file is a kind of
    its own, which finds nothing and says why.

    Raises
    ------
    InvalidRequest
        If a plugin has the family of another kind.
    """
    real = CudaGpus(rules=machine.gpus, host=machine.host)
    is_simulated = simulated_gpus and not real.discover()
    gpus = SimulatedGpus(machine.agent_id, simulated_gpus) if is_simulated else real
    rows, wrong = with_file(built_in(), table_file)
    rows["rngd"] = replace(rows["rngd"], parts=machine.rngd_parts)
    tabled = [
        CODE.get(row.family, TableDevices)(row, machine.agent_id, machine.host)
        for row in rows.values()
    ]
    unusable = [WrongRow(family, why) for family, why in wrong.items()]
    kinds: list[DeviceKind] = [gpus, *tabled, *_plugins(machine), *unusable]
    taken: set[str] = set()
    for kind in kinds:
        if kind.family in taken:
            raise InvalidRequest(
                f"two device kinds have the name {kind.family}; remove one plugin, or the row "
                f"{kind.family} of {table_file or 'the table'}",
                family=kind.family,
            )
        taken.add(kind.family)
    return kinds


def _plugins(machine: Machine) -> Sequence[DeviceKind]:
    kinds = []
    for entry in entry_points(group=GROUP):
        try:
            kinds.append(entry.load()(machine))
        except Exception:
            # A broken package of one vendor must not hide the machine's other devices.
            log.exception("the accelerator plugin %s cannot be used", entry.name)
    return kinds
