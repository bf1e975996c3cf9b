"""Injection of a kernel: the settings for its devices, home and network."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bai_services.core.errors import NotFound
from bai_services.core.folders.mounts import HOME
from bai_services.core.resources import format_amount
from bai_services.core.sessions.launch_plan import Injection, Mount

from .devices.base import Device, DeviceKind, GrantedDevice
from .devices.nvidia.cuda import limit_environ
from .kernels import DeviceShare

# Path of the resource file in the container, and the variables that the file can contain.
RESOURCE_FILE = "/home/config/resource.txt"
RESOURCE_FILE_VARIABLES = (
    "CUDA_GLOBAL_DEVICE_IDS",
    "CUDA_RESOURCE_VIRTUALIZED",
    "CUDA_MEMORY_LIMITS",
    "CUDA_PROCESSOR_LIMITS",
    "CUDA_RESERVED_MEMORY",
)
# Fields of an injection that collect the entries of all device kinds.
LIST_FIELDS = ("device_nodes", "device_requests", "notices", "capabilities", "groups")


def resolve_devices(
    shares: Iterable[DeviceShare], devices: Mapping[str, Device]
) -> list[GrantedDevice]:
    """Return the allocated devices of a kernel, sorted by family and index.

    Raises
    ------
    NotFound
        If a device is missing on this machine or unhealthy.
    """
    granted = []
    for share in shares:
        device = devices.get(share.id)
        if device is None or not device.is_healthy:
            raise NotFound(
                f"device {share.id} was allocated to the session, but it is missing or unhealthy "
                "on this agent",
                device=share.id,
            )
        granted.append(GrantedDevice(device, share.amount, share.slot or f"{device.family}.shares"))
    return sorted(granted, key=lambda g: (g.device.family, g.device.index))


def make_injection(
    granted: Sequence[GrantedDevice],
    kinds: Mapping[str, DeviceKind],
    engine: str,
    home: Path,
    network: str,
) -> Injection:
    """Return the injection of one kernel; docs/protocols.md describes its fields.

    ``kinds`` maps a device family to its kind. The devices of a kind are hidden from a kernel to
    which none of them was allocated.
    """
    environ: dict[str, str] = {}
    defaults: dict[str, str] = {}
    enforcement: dict[str, str] = {}
    memlock = False
    mounts = [Mount(str(home), HOME, read_only=False, is_own=True)]
    lists: dict[str, list[Any]] = {name: [] for name in LIST_FIELDS}
    for family, kind in sorted(kinds.items()):
        of_family = [g for g in granted if g.device.family == family]
        if not of_family:
            environ.update(kind.hidden())
            continue
        part = kind.inject(of_family, engine)
        environ.update(part.environ)
        defaults.update(part.defaults)
        enforcement[family] = part.level.value
        memlock |= part.memlock
        part_mounts = map(Mount.from_json, part.mounts)
        mounts += [mount for mount in part_mounts if mount not in mounts]
        for name, items in lists.items():
            items += [item for item in getattr(part, name) if item not in items]
    environ.update(limit_environ([g for g in granted if g.device.family == "cuda"]))
    devices = tuple(_describe(g, enforcement[g.device.family]) for g in granted)
    environ["BAI_DEVICES"] = json.dumps(devices)
    return Injection(
        environ=environ,
        defaults=defaults,
        mounts=tuple(mounts),
        network=network,
        memlock=memlock,
        enforcement=enforcement,
        devices=devices,
        device_nodes=tuple(lists["device_nodes"]),
        device_requests=tuple(lists["device_requests"]),
        notices=tuple(lists["notices"]),
        capabilities=tuple(lists["capabilities"]),
        groups=tuple(lists["groups"]),
    )


def resource_file(environ: Mapping[str, str]) -> str:
    """Return the content of the resource file, one ``NAME=value`` line per variable."""
    names = [name for name in RESOURCE_FILE_VARIABLES if name in environ]
    return "".join(f"{name}={environ[name]}\n" for name in names)


def _describe(granted: GrantedDevice, level: str) -> dict[str, Any]:
    device = granted.device
    return {
        "id": device.id,
        "family": device.family,
        "model": device.model,
        "share": format_amount(f"{device.family}.shares", granted.amount),
        "memory_bytes": granted.memory_bytes,
        "is_simulated": device.is_simulated,
        "enforcement": level,
    }
