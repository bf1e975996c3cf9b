"""NVIDIA GPUs through NVML; a machine without the library or a driver has none."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bai_services.core.cluster.device_sharing import Level
from bai_services.core.errors import Unavailable
from bai_services.core.resources import SHARE_UNIT, format_amount

from ..base import Device, DeviceInjection, DeviceKind, DeviceProcess, Finding, Granted, Holding
from ..enforcement_levels import (
    DEFAULT,
    EXCLUSIVE,
    PROHIBITED,
    ReachedLevel,
    cgroup_problem,
    highest_level,
    mode_problem,
    sharing_of,
)
from ..host_files import HostFiles
from .gpu_reader import FAMILY, GpuReader
from .mps import RESERVE_BYTES
from .mps_servers import MpsServers
from .nccl import nccl_defaults
from .nvml import Nvml

# Hides every GPU from a session, in containers and from programs that use CUDA.
HIDDEN: Mapping[str, str] = {"NVIDIA_VISIBLE_DEVICES": "void", "CUDA_VISIBLE_DEVICES": ""}
CONTROL_NODES = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools")
CAPABILITIES = ["gpu", "utility", "compute"]
MIG_ACCESS = "/proc/driver/nvidia/capabilities/gpu{minor}/mig/gi{gi}/{file}"
# Path of the MPS daemon's pipe inside a container.
MPS_PIPE = "/run/mps"
NOTICES: Mapping[Level, str] = {
    Level.NONE: "Shares of the GPU are counted, not enforced: keep to your part of its memory "
    "and time.",
    Level.SOFT: "Shares of the GPU are not enforced: keep to your part of its memory and time. "
    "If a session uses more memory than that, its largest program may be ended.",
    Level.PROCESS: "Each of your programs is limited to the session's part of the GPU's memory and "
    "time; their sum is monitored. Programs of other users run in the same MPS server: an "
    "error of one on the GPU can end all of them.",
    Level.CGROUP: "The driver limits the session to its part of the GPU's memory; its time is "
    "not limited.",
}


OPEN_MPS_NOTICE = (
    "Each of your programs is limited to the session's part of the GPU's memory and time while "
    "it uses MPS, which is not enforced; their sum is monitored. An error of one "
    "program on the GPU can end those of others."
)
ONE_PROGRAM_NOTICE = (
    "The GPU is in the compute mode EXCLUSIVE_PROCESS: one of your programs at a time can use it."
)


@dataclass(frozen=True, slots=True)
class GpuRules:
    """How GPUs may be shared on this machine."""

    engine: str = "process"
    # Shares with a lower enforcement level are not offered.
    minimum: Level = Level.NONE
    mps: MpsServers | None = None
    # Why MPS is not used, and why sessions that use too much are not stopped.
    no_mps: str = "it is switched off: SharingSettings.mps_share is empty"
    no_watchdog: str = ""
    # Whether the compute mode of a GPU may be changed; otherwise it is left as found.
    may_set_mode: bool = False


class CudaGpus(DeviceKind):
    """Real GPUs and their MIG instances; a GPU that the driver lost stays known, as unhealthy."""

    family = FAMILY
    tells_processes = True

    def __init__(
        self,
        nvml: Nvml | None = None,
        rules: GpuRules | None = None,
        host: HostFiles | None = None,
    ) -> None:
        self._nvml = nvml or Nvml()
        self._reader = GpuReader(self._nvml)
        self._rules = rules or GpuRules()
        self._host = host or HostFiles()
        self._known: dict[str, Device] = {}
        self._reached: ReachedLevel | None = None
        # Reason why the compute mode of a GPU could not be changed, by uuid.
        self._stuck: dict[str, str] = {}
        self._lock = threading.Lock()

    def discover(self) -> list[Device]:
        with self._lock:
            if not self._nvml.open():
                return []
            found = [device if device.slot else self._shared(device) for device in self._read()]
            for device in found:
                self._known[device.id] = device
            here = {device.id for device in found if device.is_healthy}
            gone = [replace(d, is_healthy=False) for d in self._known.values() if d.id not in here]
            for device in gone:
                self._reader.forget(device.id)
            return sorted(
                [*(d for d in found if d.is_healthy), *gone], key=lambda d: (d.index, d.id)
            )

    def finding(self) -> Finding:
        here = sum(device.is_healthy for device in self._known.values())
        why = "" if here else self._nvml.why_not or "the driver knows no GPU"
        if self._reader.undivided:
            names = ", ".join(self._reader.undivided)
            why = f"MIG is on and there is no instance on {names}"
        return Finding(self.family, "NVIDIA GPU", "stand-in", here, why)

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

    def reconcile(self, held: Sequence[Holding]) -> None:
        if self._rules.mps is not None:
            self._rules.mps.reconcile(one for one in held if one.amount < SHARE_UNIT)

    def tend(self) -> None:
        if self._rules.mps is not None:
            self._rules.mps.tend()

    def end(self, processes: Sequence[DeviceProcess]) -> None:
        if self._rules.mps is None:
            return
        for device_id in sorted({process.device_id for process in processes}):
            self._rules.mps.end(device_id, {p.pid for p in processes if p.device_id == device_id})

    def close(self) -> None:
        if self._rules.mps is not None:
            self._rules.mps.close()
            self._open_again(self._rules.mps)

    def hidden(self) -> Mapping[str, str]:
        return HIDDEN

    def inject(self, granted: Sequence[Granted], engine: str) -> DeviceInjection:
        """Return what the session needs.

        Raises
        ------
        Unavailable
            If its share needs MPS, which does not work at the moment or serves other shares of
            this GPU.
        """
        # By uuid: an index names another device inside a container or after a restart.
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
            more, mounts = self._through_mps(granted[0], engine)
            environ |= more
            notices = [NOTICES[level] if level is Level.PROCESS else OPEN_MPS_NOTICE]
        elif not is_share and any(self._only_one_program(g.device) for g in granted):
            notices = [ONE_PROGRAM_NOTICE]
        part = DeviceInjection(
            environ,
            mounts=mounts,
            notices=notices,
            level=level,
            defaults=nccl_defaults(granted, self._host, engine),
        )
        if engine != "docker":
            return replace(part, device_nodes=self._nodes(granted))
        request = {"driver": "nvidia", "device_ids": uuids, "capabilities": [CAPABILITIES]}
        if is_share and level is Level.CGROUP:
            # The hook that sets the limit only works on devices that are requested in this way.
            names = [f"nvidia.com/gpu={uuid}" for uuid in uuids]
            request = {"driver": "cdi", "device_ids": names}
            environ["NVIDIA_GPU_MEMORY_LIMIT"] = str(granted[0].memory_bytes)
        return replace(part, device_requests=[request])

    def _read(self) -> list[Device]:
        found = self._reader.read()
        if self._reached is None and found:
            # Capabilities are read once; whether MPS works is checked every time.
            has_limits = self._reader.has_memory_limits()
            self._reached = highest_level(
                cgroup=cgroup_problem(self._rules.engine, self._host, has_limits),
                process="" if self._rules.mps is not None else self._rules.no_mps,
                soft=self._rules.no_watchdog,
            )
        if self._rules.mps is not None and self._reached is not None:
            gpus = [d for d in found if self._is_for_mps(d, self._reached)]
            self._rules.mps.want({d.id: d.memory_bytes for d in gpus if d.memory_bytes})
        return found

    def _is_for_mps(self, device: Device, reached: ReachedLevel) -> bool:
        is_offered = self._level(device, reached).level.is_at_least(self._rules.minimum)
        is_level = reached.level is Level.PROCESS and is_offered
        return is_level and device.is_healthy and not device.slot

    def _level(self, device: Device, reached: ReachedLevel) -> ReachedLevel:
        """Return the level of one GPU: soft if programs can bypass MPS."""
        if reached.level is not Level.PROCESS:
            return reached
        mode = _mode_of(device)
        problem = self._stuck.get(device.id) or mode_problem(mode, self._rules.may_set_mode)
        if not problem:
            return reached
        return highest_level(reached.why_not[Level.CGROUP.value], problem, self._rules.no_watchdog)

    def _only_one_program(self, device: Device) -> bool:
        """Give every program of a session its whole GPU; return whether only one program can
        use it.
        """
        mode = _mode_of(device)
        if mode is not None and self._rules.may_set_mode and self._rules.mps is not None:
            # Read now, because the GPU was shared until a moment ago.
            with self._lock:
                return bool(self._reader.set_mode(device.id, DEFAULT))
        return mode == EXCLUSIVE

    def _shared(self, device: Device) -> Device:
        """Return which shares of a GPU are available now, and the reason for limits and for the
        level.
        """
        reached, mps = self._reached, self._rules.mps
        if reached is None:
            return device
        sharing = sharing_of(reached.level, mps.share if mps is not None else 0)
        reached, is_mps, mode = (
            self._level(device, reached),
            reached.level is Level.PROCESS,
            _mode_of(device),
        )
        sharing = replace(sharing, level=reached.level)
        withheld, is_paused = "", False
        if mode == PROHIBITED:
            withheld = f"the compute mode is {PROHIBITED}: no program can use it"
        elif mode == EXCLUSIVE and not is_mps:
            withheld = (
                f"the compute mode is {EXCLUSIVE}, and without MPS a second program is refused"
            )
        elif not reached.level.is_at_least(self._rules.minimum):
            withheld = (
                f"the machine reaches only {reached.level}, and {self._rules.minimum} is required"
            )
        elif (is_mps or reached.level is Level.CGROUP) and device.memory_bytes is None:
            withheld = "the driver does not report how much memory there is"
        elif is_mps and mps is not None:
            # It is being started or recovers: a temporary state.
            withheld = mps.why_not(device.id)
            is_paused = bool(withheld)
        if is_paused:
            sharing = replace(sharing, is_paused=True)
        elif withheld:
            sharing = replace(sharing, most=0)
        facts = {**device.facts, "not_firmer": dict(reached.why_not), "shares_withheld": withheld}
        is_healthy = device.is_healthy and mode != PROHIBITED
        return replace(device, sharing=sharing, facts=facts, is_healthy=is_healthy)

    def _through_mps(
        self, granted: Granted, engine: str
    ) -> tuple[Mapping[str, str], list[Mapping[str, Any]]]:
        mps, device = self._rules.mps, granted.device
        if mps is None:
            raise Unavailable(f"GPU {device.id} cannot be shared: {self._rules.no_mps}")
        limits = mps.serve(device.id, granted.amount)
        self._close_bypass(device.id)
        control = mps.control(device.id)
        if control is None:
            raise Unavailable(f"GPU {device.id} cannot be shared now: {mps.why_not(device.id)}")
        # A fixed path in a container; without a container the machine's own path.
        target = MPS_PIPE if engine == "docker" else str(control.pipe)
        mounts: list[Mapping[str, Any]] = []
        if engine == "docker" or control.shm is not None:
            # Sessions without isolation use the pipe at its real path.
            mounts.append({"source": str(control.pipe), "target": target, "read_only": False})
        if control.shm is not None:
            mounts.append({"source": str(control.shm), "target": "/dev/shm", "read_only": False})
        return {"CUDA_MPS_PIPE_DIRECTORY": target, **limits.environ()}, mounts

    def _close_bypass(self, device_id: str) -> None:
        """Let only MPS use a GPU, if the agent may change the compute mode.

        Raises
        ------
        Unavailable
            If the driver refuses; from then on the GPU has the level that remains without it.
        """
        if not self._rules.may_set_mode:
            return
        with self._lock:
            problem = self._reader.set_mode(device_id, EXCLUSIVE)
            self._stuck[device_id] = problem
        if problem:
            raise Unavailable(f"GPU {device_id} cannot be shared now: {problem}", device=device_id)

    def _open_again(self, mps: MpsServers) -> None:
        """Set GPUs that no session shares back to the mode in which every program can use them."""
        with self._lock:
            for device_id, device in self._known.items():
                is_ours = self._rules.may_set_mode and _mode_of(device) is not None
                if is_ours and not mps.is_left(device_id):
                    self._reader.set_mode(device_id, DEFAULT)

    def _nodes(self, granted: Sequence[Granted]) -> list[str]:
        minors = [g.device.facts.get("minor", g.device.index) for g in granted]
        nodes = [*(f"/dev/nvidia{minor}" for minor in dict.fromkeys(minors)), *CONTROL_NODES]
        for minor, one in zip(minors, granted, strict=True):
            gi, ci = (one.device.facts.get(n) for n in ("gpu_instance", "compute_instance"))
            if one.device.slot:
                nodes += self._capability_nodes(minor, gi, ci)
        return nodes

    def _capability_nodes(self, minor: int, gi: Any, ci: Any) -> list[str]:
        """Return the device nodes that open one MIG instance, and no other."""
        nodes = []
        for file in ("access", f"ci{ci}/access"):
            text = self._host.read(MIG_ACCESS.format(minor=minor, gi=gi, file=file)) or ""
            numbers = [line.split()[-1] for line in text.splitlines() if "DeviceFileMinor" in line]
            nodes += [f"/dev/nvidia-caps/nvidia-cap{number}" for number in numbers]
        return nodes


def _mode_of(device: Device) -> str | None:
    mode: str | None = device.facts.get("compute_mode")
    return mode


def _level_of(granted: Sequence[Granted], engine: str) -> Level:
    """Return the enforcement level of these devices for a session.

    A whole device belongs to one session; the container keeps it from reaching others.
    """
    levels = [g.device.sharing.level for g in granted if g.is_share or g.device.slot]
    if not levels:
        return Level.HARDWARE if engine == "docker" else Level.NONE
    return min(levels, key=lambda level: level.firmness)


def limit_environ(granted: Sequence[Granted]) -> dict[str, str]:
    """Return the variables for the limits of a share, by the device's index in the session.

    ``CUDA_MEMORY_LIMITS=0:4294967296`` and ``CUDA_PROCESSOR_LIMITS=0:25``: an enforcing library
    reads them; without one they inform programs. Unknown figures are left out.
    """
    total = sum(g.amount for g in granted)
    return {
        "BAI_CUDA_SHARES": format_amount("cuda.shares", total),
        "CUDA_GLOBAL_DEVICE_IDS": _pairs((i, g.device.index) for i, g in enumerate(granted)),
        "CUDA_RESOURCE_VIRTUALIZED": str(int(any(g.is_share for g in granted))),
        "CUDA_MEMORY_LIMITS": _pairs((i, g.memory_bytes) for i, g in enumerate(granted)),
        # Bytes that the system needs on each device in addition to the session's share.
        "CUDA_RESERVED_MEMORY": str(_reserved(granted)),
        "CUDA_PROCESSOR_LIMITS": _pairs((i, g.processors) for i, g in enumerate(granted)),
    }


def _reserved(granted: Sequence[Granted]) -> int:
    return RESERVE_BYTES if any(g.device.sharing.is_uniform and g.is_share for g in granted) else 0


def _pairs(values: Iterable[tuple[int, int | None]]) -> str:
    return ",".join(f"{first}:{second}" for first, second in values if second is not None)
