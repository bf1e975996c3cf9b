"""Google TPUs: up to v4 with their own driver, from v5 on with VFIO passthrough."""

from __future__ import annotations

from typing import Any

from ..base import Device
from ..table_devices import FoundDevice, TableDevices

VFIO_DEVICES = "/sys/bus/pci/drivers/vfio-pci/0000:*"
GOOGLE_VENDOR_ID = "0x1ae0"
VFIO_CONTAINER_NODE = "/dev/vfio/vfio"


class Tpus(TableDevices):
    """TPU chips with the device nodes of Google's driver or of their IOMMU groups."""

    def find_devices(self) -> list[FoundDevice]:
        google_devices = super().find_devices()
        if google_devices:
            return google_devices
        folders = [match.path for match in self.host.find(VFIO_DEVICES)]
        chips = [path for path in folders if self.host.read(f"{path}/vendor") == GOOGLE_VENDOR_ID]
        return [FoundDevice(index, path=path) for index, path in enumerate(chips)]

    def value(self, found_device: FoundDevice, key: str) -> Any:
        if not found_device.path.startswith(VFIO_DEVICES.rstrip("*")):
            return super().value(found_device, key)
        if key == "@address":
            return found_device.path.rpartition("/")[2]
        # For Google's driver, keys begin with the link `device/` to the PCI device. The path of a
        # VFIO device is the PCI device itself.
        return super().value(found_device, key.removeprefix("device/"))

    def nodes_of(self, device: Device, local: int) -> list[Any]:
        group = self.host.link_target_name(
            f"/sys/bus/pci/devices/{device.facts['pci']}/iommu_group"
        )
        own = self.host.paths(f"/dev/vfio/{group}", 0) if group else []
        return [*own, VFIO_CONTAINER_NODE] if own else super().nodes_of(device, local)
