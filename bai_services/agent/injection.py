"""The injection of a session: devices, home, network."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bai_services.core.errors import NotFound
from bai_services.core.folders.mounts import HOME
from bai_services.core.resources import format_amount
from bai_services.core.sessions.launch_plan import Injection, Mount

from .devices.base import Device, DeviceKind, Granted
from .devices.nvidia.cuda import limit_environ
from .kernels import DeviceShare

# File in containers that repeats the resource variables, and the variables in it.
RESOURCE_FILE = "/home/config/resource.txt"
TOLD = (
    "CUDA_GLOBAL_DEVICE_IDS",
    "CUDA_RESOURCE_VIRTUALIZED",
    "CUDA_MEMORY_LIMITS",
    "CUDA_PROCESSOR_LIMITS",
    "CUDA_RESERVED_MEMORY",
)
LISTS = ("device_nodes", "device_requests", "notices", "capabilities", "groups")


def granted_of(shares: Iterable[DeviceShare], devices: Mapping[str, Device]) -> list[Granted]:
    """Return the devices of a session, lowest index first.

    Raises
    ------
    NotFound
        If one of them is no longer on this machine, or not healthy.
    """
    found = []
    for share in shares:
        device = devices.get(share.id)
        if device is None or not device.is_healthy:
            raise NotFound(
                f"device {share.id} was chosen for the session, but the machine has lost it",
                device=share.id,
            )
        found.append(Granted(device, share.amount, share.slot or f"{device.family}.shares"))
    return sorted(found, key=lambda g: (g.device.family, g.device.index))


def make_injection(
    granted: Sequence[Granted],
    kinds: Mapping[str, DeviceKind],
    engine: str,
    home: Path,
    network: str,
) -> Injection:
    """Return the injection of one session; its format is in docs/protocols.md.

    ``kinds`` are by family. A session without devices of a kind cannot see any device of that kind.
    """
    environ: dict[str, str] = {}
    defaults: dict[str, str] = {}
    enforcement: dict[str, str] = {}
    memlock = False
    mounts = [Mount(str(home), HOME, read_only=False, is_own=True)]
    lists: dict[str, list[Any]] = {name: [] for name in LISTS}
    for family, kind in sorted(kinds.items()):
        mine = [g for g in granted if g.device.family == family]
        if not mine:
            environ.update(kind.hidden())
            continue
        part = kind.inject(mine, engine)
        environ.update(part.environ)
        defaults.update(part.defaults)
        enforcement[family] = part.level.value
        memlock |= part.memlock
        found = map(Mount.from_json, part.mounts)
        mounts += [mount for mount in found if mount not in mounts]
        for name, items in lists.items():
            items += [one for one in getattr(part, name) if one not in items]
    environ.update(limit_environ([g for g in granted if g.device.family == "cuda"]))
    devices = tuple(_described(g, enforcement[g.device.family]) for g in granted)
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
    """Return the content of a file that tells programs the session's share of GPUs."""
    told = [name for name in TOLD if name in environ]
    return "".join(f"{name}={environ[name]}\n" for name in told)


def _described(granted: Granted, level: str) -> dict[str, Any]:
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
