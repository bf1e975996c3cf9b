"""Read GPUs and MIG instances through NVML: identity, metrics, processes. Set compute modes."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from bai_services.core.cluster.device_sharing import Level, Sharing

from ..base import Device, DeviceProcess
from ..enforcement_levels import ComputeMode
from .nvml import Nvml, peers

FAMILY = "cuda"
# Minimum compute capability of a GPU for common uses.
GOOD_FOR: Mapping[str, tuple[int, int]] = {"training": (8, 0), "inference": (9, 0)}
PROCESS_LISTS = (
    "nvmlDeviceGetComputeRunningProcesses",
    "nvmlDeviceGetMPSComputeRunningProcesses",
)
# NVML names an instance "NVIDIA H200 MIG 1g.18gb"; some profiles end with +me.
PROFILE = re.compile(r"MIG ((?:\d+c\.)?\d+g\.\d+gb(?:\+[a-z.]+)*)\s*$", re.IGNORECASE)
MIB = 2**20
# Maximum age of the utilization samples of processes; the driver takes at most one per second.
UTILIZATION_PERIOD_SECONDS = 2.0


class GpuReader:
    """Reads the driver's GPUs; a GPU divided by MIG is represented by its instances."""

    def __init__(self, nvml: Nvml) -> None:
        self._nvml = nvml
        # Constant facts of each GPU, cached because reading them takes hundreds of calls.
        self._constant: dict[str, dict[str, Any]] = {}
        # Uuids of GPUs with MIG enabled but without an instance: they cannot be used.
        self.without_instances: list[str] = []

    def read(self) -> list[Device]:
        """Return the GPUs and instances that the driver reports now, including unhealthy ones.

        Also update ``without_instances``.
        """
        count = self._nvml.call("nvmlDeviceGetCount") or 0
        handles = [self._nvml.call("nvmlDeviceGetHandleByIndex", index) for index in range(count)]
        by_uuid: dict[str, tuple[int, Any]] = {}
        for index, handle in enumerate(handles):
            uuid = None if handle is None else self._nvml.text("nvmlDeviceGetUUID", handle)
            if uuid is not None:
                by_uuid[uuid] = (index, handle)
        self._read_constant_facts({uuid: handle for uuid, (_, handle) in by_uuid.items()})
        self.without_instances = []
        found: list[Device] = []
        for uuid, (index, handle) in by_uuid.items():
            if not self._is_divided(handle):
                found.append(self._read(index, handle, uuid))
                continue
            instances = self._instances(index, handle, uuid)
            found += instances
            if not instances:
                self.without_instances.append(uuid)
        return found

    def invalidate(self, uuid: str) -> None:
        """Drop the cached facts of a GPU, so that they are read again when it comes back."""
        self._constant.pop(uuid, None)

    def sample(self, device_id: str) -> dict[str, Any] | None:
        """Return the metrics of a GPU or instance; None if the driver does not report the device.

        An unknown metric has the value None.
        """
        handle = self._nvml.call("nvmlDeviceGetHandleByUUID", device_id)
        if handle is None:
            return None
        call = self._nvml.call
        memory = call("nvmlDeviceGetMemoryInfo", handle)
        busy = call("nvmlDeviceGetUtilizationRates", handle)
        milliwatts = call("nvmlDeviceGetPowerUsage", handle)
        return {
            "memory_used_bytes": None if memory is None else int(memory.used),
            "utilization_percent": None if busy is None else int(busy.gpu),
            "temperature_celsius": call("nvmlDeviceGetTemperature", handle, 0),
            "power_watts": None if milliwatts is None else round(milliwatts / 1000, 1),
        }

    def processes(self, device_id: str) -> list[DeviceProcess]:
        """Return the processes that use memory of a GPU or instance, with their utilization."""
        handle = self._nvml.call("nvmlDeviceGetHandleByUUID", device_id)
        found: dict[int, DeviceProcess] = {}
        # NVML has a separate list for MPS clients; some drivers list them in both lists.
        for name in PROCESS_LISTS if handle is not None else ():
            for entry in self._nvml.call(name, handle, default=()):
                process = DeviceProcess(device_id, entry.pid, entry.usedGpuMemory)
                found.setdefault(entry.pid, process)
        if not found:
            return []
        since = int((time.time() - UTILIZATION_PERIOD_SECONDS) * 1e6)
        busy = self._nvml.busy_processes(handle, since)
        if busy is None:
            return list(found.values())
        # The driver attributes the work of MPS clients to the MPS server, which it does not list.
        # If an unlisted process was busy, it may be the MPS server, and the utilization of
        # processes without samples is unknown.
        without_sample = None if set(busy) - set(found) else 0.0
        return [
            replace(process, utilization_percent=busy.get(pid, without_sample))
            for pid, process in found.items()
        ]

    def set_mode(self, device_id: str, mode: ComputeMode) -> str:
        """Set the compute mode of a GPU; return the reason of a failure, empty on success."""
        handle = self._nvml.call("nvmlDeviceGetHandleByUUID", device_id)
        if handle is not None and self._mode(handle) != mode.name:
            self._nvml.call("nvmlDeviceSetComputeMode", handle, int(mode))
        is_set = handle is not None and self._mode(handle) == mode.name
        return "" if is_set else f"the driver does not set the compute mode {mode.name}"

    def _mode(self, handle: Any) -> str | None:
        """Return the name of a GPU's compute mode; None: unknown."""
        number = self._nvml.call("nvmlDeviceGetComputeMode", handle)
        return ComputeMode(number).name if number in set(ComputeMode) else None

    def has_memory_limits(self) -> bool:
        """Return whether the driver can limit the memory of a container."""
        return self._nvml.has("nvmlDeviceGetMemoryLimits_v1")

    def _is_divided(self, handle: Any) -> bool:
        mode = self._nvml.call("nvmlDeviceGetMigMode", handle)
        return bool(mode) and mode[0] == 1

    def _instances(self, index: int, handle: Any, parent: str) -> list[Device]:
        call, text = self._nvml.call, self._nvml.text
        max_instances = call("nvmlDeviceGetMaxMigDeviceCount", handle, default=0)
        found = []
        for number in range(max_instances):
            instance = call("nvmlDeviceGetMigDeviceHandleByIndex", handle, number)
            uuid = None if instance is None else text("nvmlDeviceGetUUID", instance)
            if instance is None or uuid is None:
                continue
            memory = call("nvmlDeviceGetMemoryInfo", instance)
            attributes = call("nvmlDeviceGetAttributes", instance)
            model = text("nvmlDeviceGetName", instance) or "NVIDIA MIG instance"
            found.append(
                Device(
                    id=uuid,
                    family=FAMILY,
                    index=index,
                    model=model,
                    memory_bytes=None if memory is None else int(memory.total),
                    numa_node=call("nvmlDeviceGetNumaNodeId", handle),
                    is_healthy=memory is not None,
                    processors=getattr(attributes, "multiprocessorCount", None),
                    slot=f"{FAMILY}.mig-{profile_of(model, attributes)}",
                    sharing=Sharing(Level.HARDWARE, most=0),
                    facts={
                        **self._constant[parent],
                        # An instance has no direct links to other devices.
                        "links": {},
                        "pci_peers": [],
                        "minor": call("nvmlDeviceGetMinorNumber", handle, default=index),
                        "parent": parent,
                        "gpu_instance": call("nvmlDeviceGetGpuInstanceId", instance),
                        "compute_instance": call("nvmlDeviceGetComputeInstanceId", instance),
                    },
                )
            )
        return found

    def _read_constant_facts(self, handles: Mapping[str, Any]) -> None:
        """Read the constant facts of all GPUs if one is new, has disappeared or was invalidated."""
        if handles.keys() == self._constant.keys():
            return
        nvml = self._nvml
        cuda = nvml.call("nvmlSystemGetCudaDriverVersion")
        links = peers(
            {uuid: nvml.bus_of(handle) for uuid, handle in handles.items()},
            {uuid: nvml.link_ends(handle) for uuid, handle in handles.items()},
        )
        pci_peers = nvml.pci_peers(handles)
        self._constant = {
            uuid: {
                "pci": nvml.bus_of(handle),
                "driver": nvml.text("nvmlSystemGetDriverVersion"),
                # Newest CUDA version that the driver supports; 13010 is 13.1.
                "cuda": None if cuda is None else f"{cuda // 1000}.{cuda % 1000 // 10}",
                **_capability(nvml.call("nvmlDeviceGetCudaComputeCapability", handle)),
                "links": links[uuid],
                "pci_peers": pci_peers[uuid],
            }
            for uuid, handle in handles.items()
        }

    def _read(self, index: int, handle: Any, uuid: str) -> Device:
        call = self._nvml.call
        memory = call("nvmlDeviceGetMemoryInfo", handle)
        minor = call("nvmlDeviceGetMinorNumber", handle, default=index)
        return Device(
            id=uuid,
            family=FAMILY,
            index=index,
            model=self._nvml.text("nvmlDeviceGetName", handle) or "NVIDIA GPU",
            memory_bytes=None if memory is None else int(memory.total),
            numa_node=call("nvmlDeviceGetNumaNodeId", handle),
            is_healthy=memory is not None,
            processors=call("nvmlDeviceGetNumGpuCores", handle),
            facts={
                **self._constant[uuid],
                "minor": minor,
                "compute_mode": self._mode(handle),
            },
        )


def profile_of(model: str, attributes: Any) -> str:
    """Return the profile of an instance as in its slot name: ``1g.18gb`` or ``1g.18gb-me``.

    Return ``unknown`` if NVML does not report the profile.
    """
    match = PROFILE.search(model)
    if match is not None:
        return match[1].lower().replace("+", "-")
    slices = getattr(attributes, "gpuInstanceSliceCount", None)
    memory_mib = getattr(attributes, "memorySizeMB", None)
    if slices is None or memory_mib is None:
        return "unknown"
    return f"{slices}g.{-(-memory_mib * MIB // 2**30)}gb"


def _capability(version: tuple[int, int] | None) -> dict[str, Any]:
    """Return the compute capability and the common uses that it supports; None: unknown."""
    if version is None:
        return {"compute_capability": None, "good_for": None}
    good_for = [name for name, minimum in GOOD_FOR.items() if version >= minimum]
    return {"compute_capability": f"{version[0]}.{version[1]}", "good_for": good_for}
