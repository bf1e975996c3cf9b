"""Google TPUs: up to v4 with a driver of their own, from v5 on passed through with VFIO."""

from __future__ import annotations

from typing import Any

from ..base import Device
from ..table_devices import FoundDevice, TableDevices

PASSED = "/sys/bus/pci/drivers/vfio-pci/0000:*"
GOOGLE = "0x1ae0"
CONTAINER = "/dev/vfio/vfio"


class Tpus(TableDevices):
    """Chips by their own driver's nodes, or, if there are none, by their IOMMU groups."""

    def look(self) -> list[FoundDevice]:
        found = super().look()
        if found:
            return found
        folders = [match.path for match in self.host.find(PASSED)]
        chips = [path for path in folders if self.host.read(f"{path}/vendor") == GOOGLE]
        return [FoundDevice(index, path=path) for index, path in enumerate(chips)]

    def value(self, seen: FoundDevice, key: str) -> Any:
        if not seen.path.startswith(PASSED.rstrip("*")):
            return super().value(seen, key)
        if key == "@address":
            return seen.path.rpartition("/")[2]
        # The folder itself is the PCI device.
        return super().value(seen, key.removeprefix("device/"))

    def nodes_of(self, device: Device, local: int) -> list[Any]:
        group = self.host.target(f"/sys/bus/pci/devices/{device.facts['pci']}/iommu_group")
        own = self.host.paths(f"/dev/vfio/{group}", 0) if group else []
        return [*own, CONTAINER] if own else super().nodes_of(device, local)
