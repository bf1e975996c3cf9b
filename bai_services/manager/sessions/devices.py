"""Devices of a session, their enforcement level and their usage."""

from __future__ import annotations

from collections.abc import Sequence

from bai_services.core.cluster.device_sharing import Level
from bai_services.core.sessions.records import AllocatedDevice
from bai_services.db.sessions.rows import KernelRow


def enforcement_of(kernels: Sequence[KernelRow]) -> dict[str, str]:
    """Return the weakest enforcement level of each device family over all kernels."""
    levels: dict[str, Level] = {}
    for kernel in kernels:
        for family, text in ((kernel.injection or {}).get("enforcement") or {}).items():
            level = Level(text) if text in set(Level) else Level.NONE
            levels[family] = Level.weakest([level, levels.get(family, level)])
    return {family: level.value for family, level in sorted(levels.items())}


def devices_of(kernels: Sequence[KernelRow]) -> list[AllocatedDevice]:
    """Return the devices assigned to the session, with their usage.

    Metrics that the driver does not report are None.
    """
    devices = []
    for kernel in kernels:
        uses = {use.get("id"): use for use in (kernel.usage or {}).get("devices") or ()}
        for device in (kernel.injection or {}).get("devices") or ():
            use = uses.get(device.get("id"), {})
            devices.append(
                AllocatedDevice(
                    **{name: device.get(name) for name in _DEVICE_FIELDS},
                    kernel=kernel.hostname,
                    used_memory_bytes=use.get("memory_bytes"),
                    utilization_percent=use.get("utilization_percent"),
                    processes=use.get("processes"),
                    active_at=use.get("active_at"),
                )
            )
    return devices


_DEVICE_FIELDS = ("id", "family", "model", "share", "memory_bytes", "enforcement", "is_simulated")
