"""HyperAccel LPUs: the names of a card's device nodes are derived from its two PCI functions."""

from __future__ import annotations

import re
from typing import Any

from ..base import Device
from ..table_devices import TableDevices

ADDRESS = re.compile(r"([0-9a-f]{4}):([0-9a-f]{2}):([0-9a-f]{2})\.([0-7])")


class Lpus(TableDevices):
    """Cards with a management node, named after the card's PCI address, and the render nodes of PCI
    function 1.
    """

    def nodes_of(self, device: Device, local: int) -> list[Any]:
        address = ADDRESS.fullmatch(str(device.facts["pci"]))
        if address is None:
            return []
        domain, bus, slot, function = (int(part, 16) for part in address.groups())
        number = domain << 16 | bus << 8 | slot << 3 | function
        renders = self.host.paths(
            f"/sys/bus/pci/devices/{address[1]}:{address[2]}:{address[3]}.1/drm/renderD*", 0
        )
        return [
            *self.host.paths(f"/dev/xfpga/xvc_pri.m{number}.0", 0),
            *(f"/dev/dri/{path.rpartition('/')[2]}" for path in renders),
        ]
