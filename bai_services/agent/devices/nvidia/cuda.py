"""Device kind of NVIDIA GPUs, whole, in shares or as MIG instances."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bai_services.core.cluster.device_sharing import Level
from bai_services.core.errors import Unavailable
from bai_services.core.resources import SHARE_UNIT, format_amount

from ..base import (
    Device,
    DeviceGrant,
    DeviceInjection,
    DeviceKind,
    DeviceProcess,
    Finding,
    GrantedDevice,
)
from ..enforcement_levels import (
    AvailableLevel,
    ComputeMode,
    allowed_shares,
    cgroup_problem,
    compute_mode_problem,
    highest_level,
)
from ..host_access import HostAccess
from .gpu_reader import FAMILY, GpuReader
from .mps import RESERVE_BYTES
from .mps_servers import MpsServers
from .nccl import nccl_defaults
from .nvml import Nvml

# Hides every GPU: from containers, and from programs that use CUDA.
HIDDEN: Mapping[str, str] = {"NVIDIA_VISIBLE_DEVICES": "void", "CUDA_VISIBLE_DEVICES": ""}
CONTROL_NODES = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools")
CAPABILITIES = ["gpu", "utility", "compute"]
MIG_ACCESS = "/proc/driver/nvidia/capabilities/gpu{minor}/mig/gi{gi}/{file}"
# Path of the MPS daemon's pipe inside a container.
MPS_PIPE = "/run/mps"
MPS_DISABLED = "MPS is disabled: SharingSettings.mps_share is empty"
NOTICES: Mapping[Level, str] = {
    Level.NONE: "Shares of the GPU are counted but not enforced: stay within your share of its "
    "memory and time.",
    Level.SOFT: "Shares of the GPU are not enforced: stay within your share of its memory and "
    "time. If a session uses more memory than its share, its largest program may be terminated.",
    Level.PROCESS: "Each of your programs is limited to the session's share of the GPU's memory "
    "and time; their total use is monitored. Programs of other users run in the same MPS server: "
    "an error in one program can end all programs on the GPU.",
    Level.CGROUP: "The driver limits the session to its share of the GPU's memory; its compute "
    "time is not limited.",
}
OPEN_MPS_NOTICE = (
    "A program that uses MPS is limited to the session's share of the GPU's memory and time. The "
    "use of MPS is not enforced; the total use of your programs is monitored. An error in one "
    "program on the GPU can end programs of other users."
)
ONE_PROGRAM_NOTICE = (
    "The GPU is in the compute mode EXCLUSIVE_PROCESS: only one of your programs at a time can use "
    "it."
)


@dataclass(frozen=True, slots=True)
class GpuRules:
    """Rules for sharing the GPUs of this machine."""

    engine: str = "process"
    # Shares with a lower enforcement level are not offered.
    minimum: Level = Level.NONE
    mps: MpsServers | None = None
    # The reason why MPS is not used; only needed without ``mps``.
    mps_disabled_reason: str = MPS_DISABLED
    # The reason why the watchdog does not act on sessions over their share; empty if it acts.
    watchdog_disabled_reason: str = ""
    # Whether the agent may change the compute mode of GPUs.
    may_set_mode: bool = False


class CudaGpus(DeviceKind):
    """Real GPUs and their MIG instances; a GPU that the driver has lost is unhealthy."""

    family = FAMILY
    reports_processes = True

    def __init__(
        self,
        nvml: Nvml | None = None,
        rules: GpuRules | None = None,
        host: HostAccess | None = None,
    ) -> None:
        self._nvml = nvml or Nvml()
        self._reader = GpuReader(self._nvml)
        self._rules = rules or GpuRules()
        self._host = host or HostAccess()
        self._known: dict[str, Device] = {}
        self._available_level: AvailableLevel | None = None
        # Why the compute mode of a GPU could not be changed, by the uuid of the GPU.
        self._mode_problems: dict[str, str] = {}
        self._lock = threading.Lock()

    def discover(self) -> list[Device]:
        with self._lock:
            if not self._nvml.open():
                return []
            found = [
                device if device.slot else self._with_sharing(device) for device in self._read()
            ]
            for device in found:
                self._known[device.id] = device
            present_ids = {device.id for device in found if device.is_healthy}
            lost = [
                replace(d, is_healthy=False)
                for d in self._known.values()
                if d.id not in present_ids
            ]
            for device in lost:
                self._reader.invalidate(device.id)
            return sorted(
                [*(d for d in found if d.is_healthy), *lost], key=lambda d: (d.index, d.id)
            )

    def finding(self) -> Finding:
        count = sum(device.is_healthy for device in self._known.values())
        reason = "" if count else self._nvml.unavailable_reason or "the driver reports no GPU"
        if self._reader.without_instances:
            names = ", ".join(self._reader.without_instances)
            reason = f"MIG is enabled, but there is no instance on {names}"
        return Finding(self.family, "NVIDIA GPU", tried="stand-in", found=count, reason=reason)

    def sample(self) -> dict[str, dict[str, Any]]:
        with self._lock:
            if not self._nvml.is_open:
                return {}
            samples = {device_id: self._reader.sample(device_id) for device_id in self._known}
            return {key: sample for key, sample in samples.items() if sample is not None}

    def processes(self) -> list[DeviceProcess]:
        with self._lock:
            if not self._nvml.is_open:
                return []
            return [p for device_id in self._known for p in self._reader.processes(device_id)]

    def reconcile(self, grants: Sequence[DeviceGrant]) -> None:
        if self._rules.mps is not None:
            self._rules.mps.reconcile(grant for grant in grants if grant.amount < SHARE_UNIT)

    def maintain(self) -> None:
        if self._rules.mps is not None:
            self._rules.mps.maintain()

    def detach(self, processes: Sequence[DeviceProcess]) -> None:
        if self._rules.mps is None:
            return
        for device_id in sorted({process.device_id for process in processes}):
            self._rules.mps.detach(
                device_id, {p.pid for p in processes if p.device_id == device_id}
            )

    def close(self) -> None:
        if self._rules.mps is not None:
            self._rules.mps.close()
            self._restore_compute_modes(self._rules.mps)

    def hidden(self) -> Mapping[str, str]:
        return HIDDEN

    def inject(self, granted: Sequence[GrantedDevice], engine: str) -> DeviceInjection:
        """Return the injection for a kernel with these GPUs.

        Raises
        ------
        Unavailable
            If a share requires MPS, but MPS cannot provide a share of this size on the GPU now.
        """
        # Select GPUs by uuid, because their indices differ inside a container and can change at a
        # restart.
        uuids = [g.device.id for g in granted]
        environ = {
            "NVIDIA_VISIBLE_DEVICES": ",".join(uuids),
            "NVIDIA_DRIVER_CAPABILITIES": "compute,utility",
            "CUDA_VISIBLE_DEVICES": ",".join(uuids),
            "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        }
        level = _level_of(granted, engine)
        is_share = any(g.is_share for g in granted)
        mounts: list[Mapping[str, Any]] = []
        notices = [NOTICES[level]] if is_share else []
        if is_share and granted[0].device.sharing.is_uniform:
            mps_environ, mounts = self._inject_mps(granted[0], engine)
            environ |= mps_environ
            notices = [NOTICES[level] if level is Level.PROCESS else OPEN_MPS_NOTICE]
        elif not is_share and not all([self._allow_all_programs(g.device) for g in granted]):
            notices = [ONE_PROGRAM_NOTICE]
        injection = DeviceInjection(
            environ,
            mounts=mounts,
            notices=notices,
            level=level,
            defaults=nccl_defaults(granted, self._host, engine),
        )
        if engine != "docker":
            return replace(injection, device_nodes=self._nodes(granted))
        request = {"driver": "nvidia", "device_ids": uuids, "capabilities": [CAPABILITIES]}
        if is_share and level is Level.CGROUP:
            # The hook that sets the memory limit requires a request with CDI device names instead
            # of plain GPU uuids.
            names = [f"nvidia.com/gpu={uuid}" for uuid in uuids]
            request = {"driver": "cdi", "device_ids": names}
            environ["NVIDIA_GPU_MEMORY_LIMIT"] = str(granted[0].memory_bytes)
        return replace(injection, device_requests=[request])

    def _read(self) -> list[Device]:
        found = self._reader.read()
        if self._available_level is None and found:
            # Compute the level once, because the capabilities of the driver do not change while the
            # agent runs. Whether MPS is running is checked at each discovery.
            has_limits = self._reader.has_memory_limits()
            self._available_level = self._highest_level(
                cgroup_problem(self._rules.engine, self._host, has_limits),
                "" if self._rules.mps is not None else self._rules.mps_disabled_reason,
            )
        if self._rules.mps is not None and self._available_level is not None:
            gpus = [d for d in found if self._is_for_mps(d, self._available_level)]
            self._rules.mps.set_gpus({d.id: d.memory_bytes for d in gpus if d.memory_bytes})
        return found

    def _highest_level(self, cgroup_problem: str, process_problem: str) -> AvailableLevel:
        return highest_level(
            {
                Level.CGROUP: cgroup_problem,
                Level.PROCESS: process_problem,
                Level.SOFT: self._rules.watchdog_disabled_reason,
            }
        )

    def _is_for_mps(self, device: Device, available: AvailableLevel) -> bool:
        """Return whether shares of a GPU are offered through MPS."""
        is_offered = self._level(device, available).level.is_at_least(self._rules.minimum)
        is_process_level = available.level is Level.PROCESS and is_offered
        return is_process_level and device.is_healthy and not device.slot

    def _level(self, device: Device, available: AvailableLevel) -> AvailableLevel:
        """Return the enforcement level of one GPU.

        The level is lower than ``available`` if programs can bypass MPS on this GPU.
        """
        if available.level is not Level.PROCESS:
            return available
        problem = self._mode_problems.get(device.id) or compute_mode_problem(
            _mode_of(device), self._rules.may_set_mode
        )
        if not problem:
            return available
        return self._highest_level(available.problems[Level.CGROUP.value], problem)

    def _allow_all_programs(self, device: Device) -> bool:
        """Set the compute mode of a whole GPU to DEFAULT, if the agent may change it.

        Return whether several programs can use the GPU at the same time.
        """
        mode = _mode_of(device)
        if mode is not None and self._rules.may_set_mode and self._rules.mps is not None:
            # Set the mode even if ``mode`` is DEFAULT: ``mode`` is a cached value, and the agent
            # may have changed the mode since then to share the GPU.
            with self._lock:
                return not self._reader.set_mode(device.id, ComputeMode.DEFAULT)
        return mode != ComputeMode.EXCLUSIVE_PROCESS.name

    def _with_sharing(self, device: Device) -> Device:
        """Return the device with the shares that are available now, its enforcement level, and the
        reasons for limitations.
        """
        available, mps = self._available_level, self._rules.mps
        if available is None:
            return device
        sharing = allowed_shares(available.level, mps.share if mps is not None else 0)
        is_mps = available.level is Level.PROCESS
        available = self._level(device, available)
        sharing = replace(sharing, level=available.level)
        mode = _mode_of(device)
        withheld, is_paused = self._withheld_reason(device, available.level, is_mps), False
        if not withheld and is_mps and mps is not None:
            # This state is temporary, because MPS is being started or is recovering.
            withheld = mps.unavailable_reason(device.id)
            is_paused = bool(withheld)
        if is_paused:
            sharing = replace(sharing, is_paused=True)
        elif withheld:
            sharing = replace(sharing, most=0)
        facts = {
            **device.facts,
            "unavailable_levels": dict(available.problems),
            "shares_withheld": withheld,
        }
        is_healthy = device.is_healthy and mode != ComputeMode.PROHIBITED.name
        return replace(device, sharing=sharing, facts=facts, is_healthy=is_healthy)

    def _withheld_reason(self, device: Device, level: Level, is_mps: bool) -> str:
        """Return why a GPU offers no shares; empty if it offers them."""
        mode = _mode_of(device)
        if mode == ComputeMode.PROHIBITED.name:
            return f"the compute mode is {mode}: no program can use the GPU"
        if mode == ComputeMode.EXCLUSIVE_PROCESS.name and not is_mps:
            return f"the compute mode is {mode}: without MPS a second program is rejected"
        if not level.is_at_least(self._rules.minimum):
            return f"the GPU's enforcement level is {level}, but {self._rules.minimum} is required"
        if (is_mps or level is Level.CGROUP) and device.memory_bytes is None:
            return "the driver does not report the memory of the GPU"
        return ""

    def _inject_mps(
        self, granted: GrantedDevice, engine: str
    ) -> tuple[Mapping[str, str], list[Mapping[str, Any]]]:
        """Set the share of a GPU's MPS daemon; return the environment and mounts of a client."""
        mps, device = self._rules.mps, granted.device
        if mps is None:
            raise Unavailable(
                f"GPU {device.id} cannot be shared: {self._rules.mps_disabled_reason}"
            )
        limits = mps.set_share(device.id, granted.amount)
        self._restrict_to_mps(device.id)
        control = mps.control(device.id)
        if control is None:
            raise Unavailable(
                f"GPU {device.id} cannot be shared now: {mps.unavailable_reason(device.id)}"
            )
        target = MPS_PIPE if engine == "docker" else str(control.pipe)
        mounts: list[Mapping[str, Any]] = []
        # A session without isolation (without a separate /dev/shm) opens the pipe at its real path.
        if engine == "docker" or control.shm is not None:
            mounts.append({"source": str(control.pipe), "target": target, "read_only": False})
        if control.shm is not None:
            mounts.append({"source": str(control.shm), "target": "/dev/shm", "read_only": False})
        return {"CUDA_MPS_PIPE_DIRECTORY": target, **limits.environ()}, mounts

    def _restrict_to_mps(self, device_id: str) -> None:
        """Set the compute mode to EXCLUSIVE_PROCESS, so that programs cannot bypass MPS.

        Do nothing if the agent may not change the mode.

        Raises
        ------
        Unavailable
            If the driver rejects the mode; from then on the GPU has a lower enforcement level.
        """
        if not self._rules.may_set_mode:
            return
        with self._lock:
            problem = self._reader.set_mode(device_id, ComputeMode.EXCLUSIVE_PROCESS)
            self._mode_problems[device_id] = problem
        if problem:
            raise Unavailable(f"GPU {device_id} cannot be shared now: {problem}", device=device_id)

    def _restore_compute_modes(self, mps: MpsServers) -> None:
        """Set the compute mode of GPUs without an MPS daemon back to DEFAULT.

        Do nothing if the agent may not change the mode.
        """
        with self._lock:
            for device_id, device in self._known.items():
                may_set = self._rules.may_set_mode and _mode_of(device) is not None
                if may_set and not mps.has_daemon(device_id):
                    self._reader.set_mode(device_id, ComputeMode.DEFAULT)

    def _nodes(self, granted: Sequence[GrantedDevice]) -> list[str]:
        minors = [g.device.facts.get("minor", g.device.index) for g in granted]
        nodes = [*(f"/dev/nvidia{minor}" for minor in dict.fromkeys(minors)), *CONTROL_NODES]
        for minor, g in zip(minors, granted, strict=True):
            gi, ci = (g.device.facts.get(n) for n in ("gpu_instance", "compute_instance"))
            if g.device.slot:
                nodes += self._capability_nodes(minor, gi, ci)
        return nodes

    def _capability_nodes(self, minor: int, gi: Any, ci: Any) -> list[str]:
        """Return the device nodes that give access to one MIG instance only."""
        nodes = []
        for file in ("access", f"ci{ci}/access"):
            text = self._host.read(MIG_ACCESS.format(minor=minor, gi=gi, file=file)) or ""
            numbers = [line.split()[-1] for line in text.splitlines() if "DeviceFileMinor" in line]
            nodes += [f"/dev/nvidia-caps/nvidia-cap{number}" for number in numbers]
        return nodes


def _mode_of(device: Device) -> str | None:
    mode: str | None = device.facts.get("compute_mode")
    return mode


def _level_of(granted: Sequence[GrantedDevice], engine: str) -> Level:
    """Return the enforcement level of these devices for a session.

    Whole devices have the level HARDWARE with the docker engine, because a container cannot access
    other devices, and NONE with the process engine.
    """
    levels = [g.device.sharing.level for g in granted if g.is_share or g.device.slot]
    if not levels:
        return Level.HARDWARE if engine == "docker" else Level.NONE
    return Level.weakest(levels)


def limit_environ(granted: Sequence[GrantedDevice]) -> dict[str, str]:
    """Return variables that pass the limits of a session's GPUs to programs.

    Each limit is preceded by the index of the GPU in the session:
    ``CUDA_MEMORY_LIMITS=0:4294967296`` (bytes), ``CUDA_PROCESSOR_LIMITS=0:1728`` (CUDA cores;
    multiprocessors for a MIG instance). A preloaded library can enforce the limits; without such a
    library the variables only inform. Unknown values are left out.
    """
    total = sum(g.amount for g in granted)
    return {
        "BAI_CUDA_SHARES": format_amount("cuda.shares", total),
        "CUDA_GLOBAL_DEVICE_IDS": _pairs((i, g.device.index) for i, g in enumerate(granted)),
        "CUDA_RESOURCE_VIRTUALIZED": str(int(any(g.is_share for g in granted))),
        "CUDA_MEMORY_LIMITS": _pairs((i, g.memory_bytes) for i, g in enumerate(granted)),
        # Bytes that MPS uses on each device in addition to the session's share.
        "CUDA_RESERVED_MEMORY": str(_reserved(granted)),
        "CUDA_PROCESSOR_LIMITS": _pairs((i, g.processors) for i, g in enumerate(granted)),
    }


def _reserved(granted: Sequence[GrantedDevice]) -> int:
    return RESERVE_BYTES if any(g.device.sharing.is_uniform and g.is_share for g in granted) else 0


def _pairs(values: Iterable[tuple[int, int | None]]) -> str:
    return ",".join(f"{first}:{second}" for first, second in values if second is not None)
