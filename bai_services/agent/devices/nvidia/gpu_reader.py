"""Reads GPUs and MIG instances through NVML: identity, and current usage."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from bai_services.core.cluster.device_sharing import Level, Sharing

from ..base import Device, DeviceProcess
from ..enforcement_levels import COMPUTE_MODES
from .nvml import Nvml, peers

FAMILY = "cuda"
# Minimum compute capability for common uses of a GPU.
GOOD_FOR: Mapping[str, tuple[int, int]] = {"training": (8, 0), "inference": (9, 0)}
PROCESS_LISTS = (
    "nvmlDeviceGetComputeRunningProcesses",
    "nvmlDeviceGetMPSComputeRunningProcesses",
)
# The library names an instance "NVIDIA H200 MIG 1g.18gb"; some profiles end with +me.
PROFILE = re.compile(r"MIG ((?:\d+c\.)?\d+g\.\d+gb(?:\+[a-z.]+)*)\s*$", re.IGNORECASE)
MIB = 2**20
# The driver samples processes at most once a second.
LOOK_BACK_SECONDS = 2.0


class GpuReader:
    """Reads the driver's GPUs; a GPU divided by MIG is read as its instances."""

    def __init__(self, nvml: Nvml) -> None:
        self._nvml = nvml
        # Constant facts of each GPU: reading them costs hundreds of calls.
        self._constant: dict[str, dict[str, Any]] = {}
        self.undivided: list[str] = []

    def read(self) -> list[Device]:
        """Return the GPUs and instances that the driver knows now, unhealthy ones included.

        ``undivided`` names GPUs with MIG switched on but without an instance: nothing on them can
        be used.
        """
        count = self._nvml.ask("nvmlDeviceGetCount") or 0
        handles = [self._nvml.ask("nvmlDeviceGetHandleByIndex", index) for index in range(count)]
        by_uuid: dict[str, tuple[int, Any]] = {}
        for index, handle in enumerate(handles):
            uuid = None if handle is None else self._nvml.text("nvmlDeviceGetUUID", handle)
            if uuid is not None:
                by_uuid[uuid] = (index, handle)
        self._learn({uuid: handle for uuid, (_, handle) in by_uuid.items()})
        self.undivided = []
        found: list[Device] = []
        for uuid, (index, handle) in by_uuid.items():
            if not self._is_divided(handle):
                found.append(self._read(index, handle, uuid))
                continue
            instances = self._instances(index, handle, uuid)
            found += instances
            if not instances:
                self.undivided.append(uuid)
        return found

    def forget(self, uuid: str) -> None:
        """Read the facts of a GPU again when it comes back."""
        self._constant.pop(uuid, None)

    def sample(self, device_id: str) -> dict[str, Any] | None:
        """Return the usage of a GPU or an instance; figures that the driver does not report are
        None.
        """
        handle = self._nvml.ask("nvmlDeviceGetHandleByUUID", device_id)
        if handle is None:
            return None
        ask = self._nvml.ask
        memory = ask("nvmlDeviceGetMemoryInfo", handle)
        busy = ask("nvmlDeviceGetUtilizationRates", handle)
        milliwatts = ask("nvmlDeviceGetPowerUsage", handle)
        return {
            "memory_used_bytes": None if memory is None else int(memory.used),
            "utilization_percent": None if busy is None else int(busy.gpu),
            "temperature_celsius": ask("nvmlDeviceGetTemperature", handle, 0),
            "power_watts": None if milliwatts is None else round(milliwatts / 1000, 1),
        }

    def processes(self, device_id: str) -> list[DeviceProcess]:
        """Return the processes that hold memory of a GPU or an instance, with their utilization."""
        handle = self._nvml.ask("nvmlDeviceGetHandleByUUID", device_id)
        found: dict[int, DeviceProcess] = {}
        # MPS clients are listed separately; some drivers list them in both places.
        for name in PROCESS_LISTS if handle is not None else ():
            for process in self._nvml.ask(name, handle, otherwise=()):
                held = DeviceProcess(device_id, process.pid, process.usedGpuMemory)
                found.setdefault(process.pid, held)
        if not found:
            return []
        since = int((time.time() - LOOK_BACK_SECONDS) * 1e6)
        busy = self._nvml.busy_processes(handle, since)
        if busy is None:
            return list(found.values())
        # The driver attributes the work of MPS clients to the MPS server. If an unlisted process
        # was busy, the utilization of seemingly idle processes is therefore unknown.
        idle = None if set(busy) - set(found) else 0.0
        return [
            replace(held, utilization_percent=busy.get(pid, idle)) for pid, held in found.items()
        ]

    def set_mode(self, device_id: str, mode: str) -> str:
        """Set the compute mode of a GPU; return why that failed, or an empty text."""
        handle = self._nvml.ask("nvmlDeviceGetHandleByUUID", device_id)
        if handle is not None and self._mode(handle) != mode:
            number = next(n for n, name in COMPUTE_MODES.items() if name == mode)
            self._nvml.ask("nvmlDeviceSetComputeMode", handle, number)
        is_so = handle is not None and self._mode(handle) == mode
        return "" if is_so else f"the driver does not set the compute mode {mode}"

    def _mode(self, handle: Any) -> str | None:
        number = self._nvml.ask("nvmlDeviceGetComputeMode", handle)
        return None if number is None else COMPUTE_MODES.get(number)

    def has_memory_limits(self) -> bool:
        """Return whether the driver can limit the memory of a container."""
        return self._nvml.has("nvmlDeviceGetMemoryLimits_v1")

    def _is_divided(self, handle: Any) -> bool:
        mode = self._nvml.ask("nvmlDeviceGetMigMode", handle)
        return bool(mode) and mode[0] == 1

    def _instances(self, index: int, handle: Any, parent: str) -> list[Device]:
        ask, text = self._nvml.ask, self._nvml.text
        most = ask("nvmlDeviceGetMaxMigDeviceCount", handle, otherwise=0)
        found = []
        for number in range(most):
            instance = ask("nvmlDeviceGetMigDeviceHandleByIndex", handle, number)
            uuid = None if instance is None else text("nvmlDeviceGetUUID", instance)
            if instance is None or uuid is None:
                continue
            memory = ask("nvmlDeviceGetMemoryInfo", instance)
            attributes = ask("nvmlDeviceGetAttributes", instance)
            model = text("nvmlDeviceGetName", instance) or "NVIDIA MIG instance"
            found.append(
                Device(
                    id=uuid,
                    family=FAMILY,
                    index=index,
                    model=model,
                    memory_bytes=None if memory is None else int(memory.total),
                    numa_node=ask("nvmlDeviceGetNumaNodeId", handle),
                    is_healthy=memory is not None,
                    processors=getattr(attributes, "multiprocessorCount", None),
                    slot=f"{FAMILY}.mig-{profile_of(model, attributes)}",
                    sharing=Sharing(Level.HARDWARE, most=0),
                    facts={
                        **self._constant[parent],
                        # An instance has no direct links to other devices.
                        "links": {},
                        "pci_peers": [],
                        "minor": ask("nvmlDeviceGetMinorNumber", handle, otherwise=index),
                        "parent": parent,
                        "gpu_instance": ask("nvmlDeviceGetGpuInstanceId", instance),
                        "compute_instance": ask("nvmlDeviceGetComputeInstanceId", instance),
                    },
                )
            )
        return found

    def _learn(self, handles: Mapping[str, Any]) -> None:
        """Read the constant facts when a GPU has appeared or disappeared."""
        if handles.keys() == self._constant.keys():
            return
        nvml = self._nvml
        cuda = nvml.ask("nvmlSystemGetCudaDriverVersion")
        links = peers(
            {uuid: nvml.bus_of(handle) for uuid, handle in handles.items()},
            {uuid: nvml.link_ends(handle) for uuid, handle in handles.items()},
        )
        near = nvml.pci_peers(handles)
        self._constant = {
            uuid: {
                "pci": nvml.bus_of(handle),
                "driver": nvml.text("nvmlSystemGetDriverVersion"),
                # 13010 is CUDA 13.1, the newest version that programs here may require.
                "cuda": None if cuda is None else f"{cuda // 1000}.{cuda % 1000 // 10}",
                **_capability(nvml.ask("nvmlDeviceGetCudaComputeCapability", handle)),
                "links": links[uuid],
                "pci_peers": near[uuid],
            }
            for uuid, handle in handles.items()
        }

    def _read(self, index: int, handle: Any, uuid: str) -> Device:
        ask = self._nvml.ask
        memory = ask("nvmlDeviceGetMemoryInfo", handle)
        minor = ask("nvmlDeviceGetMinorNumber", handle, otherwise=index)
        return Device(
            id=uuid,
            family=FAMILY,
            index=index,
            model=self._nvml.text("nvmlDeviceGetName", handle) or "NVIDIA GPU",
            memory_bytes=None if memory is None else int(memory.total),
            numa_node=ask("nvmlDeviceGetNumaNodeId", handle),
            is_healthy=memory is not None,
            processors=ask("nvmlDeviceGetNumGpuCores", handle),
            facts={
                **self._constant[uuid],
                "minor": minor,
                "compute_mode": self._mode(handle),
            },
        )


def profile_of(model: str, attributes: Any) -> str:
    """Return the profile of an instance in the form of its slot: ``1g.18gb``, ``1g.18gb-me``."""
    match = PROFILE.search(model)
    if match is not None:
        return match[1].lower().replace("+", "-")
    slices = getattr(attributes, "gpuInstanceSliceCount", None)
    memory_mib = getattr(attributes, "memorySizeMB", None)
    if slices is None or memory_mib is None:
        return "unknown"
    return f"{slices}g.{-(-memory_mib * MIB // 2**30)}gb"


def _capability(version: tuple[int, int] | None) -> dict[str, Any]:
    """Return the compute capability and the uses that it suits; unknown stays None."""
    if version is None:
        return {"compute_capability": None, "good_for": None}
    good_for = [name for name, least in GOOD_FOR.items() if version >= least]
    return {"compute_capability": f"{version[0]}.{version[1]}", "good_for": good_for}
