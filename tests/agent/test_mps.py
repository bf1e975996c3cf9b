"""Supervision of MPS daemons, with a fake MPS program that records the commands it receives."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from bai_services.agent.devices.base import Device, DeviceGrant, GrantedDevice
from bai_services.agent.devices.nvidia import mps, mps_servers
from bai_services.agent.devices.nvidia.cuda import CudaGpus, GpuRules
from bai_services.agent.devices.nvidia.mps import Limits, MpsControl
from bai_services.agent.devices.nvidia.mps_servers import MpsServers
from bai_services.core.cluster.device_sharing import Level, Sharing
from bai_services.core.errors import Unavailable
from tests.testbed.manager import MovableClock
from tests.testbed.wait import wait_until

GIB = 2**30
GPU = "GPU-0"
LIMITS = Limits(25, 19 * 1024 + 768, 250)


@dataclass
class Program:
    """The fake MPS program: the commands it received, its servers and its faults."""

    folder: Path

    def commands(self) -> list[str]:
        try:
            lines = (self.folder / "commands").read_text().splitlines()
        except FileNotFoundError:
            return []
        return [line.partition(" ")[2] for line in lines]

    def clear_commands(self) -> None:
        (self.folder / "commands").unlink(missing_ok=True)

    def set_fault(self, name: str, *, is_on: bool = True) -> None:
        file = self.folder / name
        file.touch() if is_on else file.unlink()

    def set_server(self, status: str = "ACTIVE", clients: tuple[int, ...] = (7, 8)) -> None:
        text = json.dumps({"101": {"status": status, "clients": clients}})
        (self.folder / "servers").write_text(text)

    def stop_all(self, root: Path) -> None:
        """Kill all daemons whose files are below ``root``, and remove all mounts there."""
        for process in self.processes(root):
            process.kill()
        for place in root.rglob("shm"):
            if place.is_mount():
                subprocess.run(["umount", "--lazy", str(place)], check=True)

    def processes(self, root: Path) -> list[psutil.Process]:
        matches = []
        for process in psutil.process_iter():
            try:
                pipe = process.environ().get("CUDA_MPS_PIPE_DIRECTORY", "")
                if pipe.startswith(str(root)) and process.status() != psutil.STATUS_ZOMBIE:
                    matches.append(process)
            except psutil.Error:
                continue
        return matches


def install(folder: Path) -> Path:
    """Install the fake program into a folder, under the name of the real one."""
    folder.mkdir(exist_ok=True)
    program = folder / mps.PROGRAM
    text = Path(__file__).with_name("fake_mps.py").read_text()
    program.write_text(text.replace("#!/usr/bin/env python3", f"#!{sys.executable} -IS", 1))
    program.chmod(0o755)
    return program


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Program:
    folder = tmp_path / "bin"
    install(folder)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return Program(folder)


@pytest.fixture
def root(tmp_path_factory: pytest.TempPathFactory, program: Program) -> Iterator[Path]:
    # A short path, because the length of socket addresses is limited.
    root = tmp_path_factory.mktemp("m")
    yield root
    program.stop_all(root)


@pytest.fixture
def clock() -> MovableClock:
    return MovableClock()


@pytest.fixture
def servers(root: Path, clock: MovableClock) -> MpsServers:
    return make_servers(root, clock)


def make_servers(root: Path, clock: MovableClock, share: int = 250) -> MpsServers:
    servers = MpsServers(root, share, has_own_shm=False, clock=lambda: clock().timestamp())
    servers.set_gpus({GPU: 80 * GIB})
    return servers


def test_limits_are_in_force_before_the_gpu_is_offered(
    servers: MpsServers, program: Program, root: Path
) -> None:
    assert servers.unavailable_reason(GPU) == "MPS is being started"
    assert servers.control(GPU) is None
    servers.maintain()
    assert servers.unavailable_reason(GPU) == ""
    flags = "-d -M" if os.geteuid() == 0 else "-d"
    assert program.commands() == [
        f"start {GPU} {flags}",
        f"set_default_device_pinned_mem_limit 0 {LIMITS.memory_mib}M",
        "set_default_active_thread_percentage 25",
        "get_default_active_thread_percentage",
    ]
    folder = root / GPU
    modes = {name: (folder / name).stat().st_mode & 0o777 for name in (".", "pipe", "log")}
    assert modes == {".": 0o711, "pipe": 0o755, "log": 0o700}
    control = servers.control(GPU)
    assert control is not None and control.pipe == folder / "pipe"


def test_each_gpu_has_a_separate_daemon(servers: MpsServers, program: Program, root: Path) -> None:
    servers.set_gpus({"GPU-0": 80 * GIB, "GPU-1": 40 * GIB})
    servers.maintain()
    assert sorted(path.name for path in root.iterdir()) == ["GPU-0", "GPU-1"]
    starts = sorted(line.split()[1] for line in program.commands() if line.startswith("start"))
    assert starts == ["GPU-0", "GPU-1"]
    servers.set_gpus({"GPU-1": 40 * GIB})
    servers.maintain()
    assert [path.name for path in root.iterdir()] == ["GPU-1"]
    assert len(program.processes(root)) == 1


def test_failed_start_is_retried_after_backoff(
    servers: MpsServers, program: Program, clock: MovableClock
) -> None:
    program.set_fault("no-start")
    servers.maintain()
    assert "MPS cannot be used on this device" in servers.unavailable_reason(GPU)
    program.set_fault("no-start", is_on=False)
    servers.maintain()
    assert program.commands() == []
    clock.advance(seconds=5)
    servers.maintain()
    assert servers.unavailable_reason(GPU) == ""


def test_gpu_is_not_offered_if_its_daemon_rejects_limits(
    servers: MpsServers, program: Program, root: Path
) -> None:
    program.set_fault("refuse")
    servers.maintain()
    assert "Invalid command" in servers.unavailable_reason(GPU)
    assert program.processes(root) == []


def test_dead_daemon_is_restarted(servers: MpsServers, program: Program, root: Path) -> None:
    servers.maintain()
    for process in program.processes(root):
        process.kill()
    servers.maintain()
    assert "does not work" in servers.unavailable_reason(GPU)
    servers.maintain()
    assert servers.control(GPU) is None
    servers.maintain()
    assert servers.unavailable_reason(GPU) == ""
    assert len(program.processes(root)) == 1


def test_hung_daemon_is_killed_and_restarted(
    servers: MpsServers, program: Program, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    servers.maintain()
    (before,) = program.processes(root)
    program.set_fault("hang")
    with monkeypatch.context() as patch:
        patch.setattr(mps, "COMMAND_SECONDS", 0.5)
        servers.maintain()
        assert "no response" in servers.unavailable_reason(GPU)
        servers.maintain()
    program.set_fault("hang", is_on=False)
    servers.maintain()
    assert servers.unavailable_reason(GPU) == ""
    assert before not in program.processes(root)


def test_single_failed_check_does_not_restart_daemon(
    servers: MpsServers, program: Program, root: Path
) -> None:
    servers.maintain()
    before = program.processes(root)
    program.set_fault("refuse")
    servers.maintain()
    assert servers.control(GPU) is None
    program.set_fault("refuse", is_on=False)
    servers.maintain()
    assert servers.unavailable_reason(GPU) == ""
    assert program.processes(root) == before


def test_clients_of_a_faulty_server_are_disconnected(servers: MpsServers, program: Program) -> None:
    servers.maintain()
    program.set_server("FAULT")
    program.clear_commands()
    servers.maintain()
    assert servers.unavailable_reason(GPU) == "MPS is recovering from the fault of a program"
    assert [line for line in program.commands() if line.startswith("term")] == [
        "terminate_client 101 7",
        "terminate_client 101 8",
    ]
    servers.maintain()
    assert servers.unavailable_reason(GPU) == ""


def test_report_of_a_fault_resets_the_count_of_failed_checks(
    servers: MpsServers, program: Program, root: Path
) -> None:
    servers.maintain()
    before = program.processes(root)
    for _ in range(mps_servers.MAX_FAILED_CHECKS):
        program.set_fault("refuse")
        servers.maintain()
        program.set_fault("refuse", is_on=False)
        program.set_server("FAULT")
        servers.maintain()
    assert program.processes(root) == before


def test_detach_terminates_only_the_given_clients(servers: MpsServers, program: Program) -> None:
    servers.maintain()
    program.set_server(clients=(7, 8, 9))
    program.clear_commands()
    servers.detach(GPU, {8, 4711})
    assert [line for line in program.commands() if line.startswith("term")] == [
        "terminate_client 101 8"
    ]


def test_daemon_survives_a_killed_agent(
    servers: MpsServers, program: Program, root: Path, clock: MovableClock
) -> None:
    servers.maintain()
    before = program.processes(root)
    program.clear_commands()
    # Simulate a new agent process, which finds the daemon by its folder.
    again = make_servers(root, clock)
    again.maintain()
    assert again.unavailable_reason(GPU) == ""
    assert program.processes(root) == before
    assert not [line for line in program.commands() if line.startswith(("start", "set"))]


def test_daemon_with_clients_survives_a_missing_gpu(
    servers: MpsServers, program: Program, root: Path, clock: MovableClock
) -> None:
    servers.maintain()
    before = program.processes(root)
    again = MpsServers(root, 250, has_own_shm=False)
    again.maintain()
    assert program.processes(root) == before
    # Simulate a temporary failure of the driver, which then reports no GPU.
    program.set_server()
    again.set_gpus({})
    again.maintain()
    assert program.processes(root) == before
    program.set_server(clients=())
    again.maintain()
    assert program.processes(root) == []


def test_interrupted_start_is_repeated(
    servers: MpsServers, program: Program, root: Path, clock: MovableClock
) -> None:
    servers.maintain()
    # Simulate an agent that was killed before it had set the limits.
    (root / GPU / "limits.json").unlink()
    before = program.processes(root)
    again = make_servers(root, clock)
    again.maintain()
    assert again.unavailable_reason(GPU) == ""
    assert program.processes(root) != before


def test_new_limits_are_set_after_the_clients_with_old_limits_have_ended(
    servers: MpsServers, program: Program, root: Path, clock: MovableClock
) -> None:
    servers.maintain()
    program.set_server()
    again = make_servers(root, clock, share=500)
    again.maintain()
    assert "limits of an earlier configuration" in again.unavailable_reason(GPU)
    program.set_server(clients=())
    again.maintain()
    assert again.unavailable_reason(GPU) == ""
    assert "set_default_active_thread_percentage 50" in program.commands()


def last_limits(program: Program) -> list[str]:
    return [line for line in program.commands() if line.startswith("set")][-2:]


def limit_commands(share: int) -> list[str]:
    limits = Limits.of(share, 80 * GIB)
    return [
        f"set_default_device_pinned_mem_limit 0 {limits.memory_mib}M",
        f"set_default_active_thread_percentage {limits.percent}",
    ]


def test_first_session_sets_the_share_of_an_empty_gpu(
    program: Program, root: Path, clock: MovableClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    servers = make_servers(root, clock, share=0)
    with pytest.raises(Unavailable, match="MPS is being started"):
        servers.set_share(GPU, 500)
    servers.maintain()
    # The smallest share is in force until a session sets another share.
    assert last_limits(program) == limit_commands(50)
    assert servers.set_share(GPU, 500) == Limits.of(500, 80 * GIB)
    assert last_limits(program) == limit_commands(500)
    assert len(program.processes(root)) == 1
    program.clear_commands()
    servers.set_share(GPU, 500)
    assert program.commands() == []
    program.set_server()
    with monkeypatch.context() as patch:
        patch.setattr(mps_servers, "CLIENT_EXIT_TIMEOUT_SECONDS", 0.2)
        with pytest.raises(Unavailable, match="programs with shares of 0.5 are running on it"):
            servers.set_share(GPU, 250)
    program.set_server(clients=())
    servers.set_share(GPU, 250)
    assert last_limits(program) == limit_commands(250)


def test_failed_change_of_share_makes_gpu_unavailable(
    program: Program, root: Path, clock: MovableClock
) -> None:
    servers = make_servers(root, clock, share=0)
    servers.maintain()
    program.set_fault("no-start")
    with pytest.raises(Unavailable, match="MPS cannot be used on this device"):
        servers.set_share(GPU, 500)
    assert servers.control(GPU) is None
    program.set_fault("no-start", is_on=False)
    servers.maintain()
    assert servers.control(GPU) is None  # a failed start is repeated only after a backoff
    clock.advance(seconds=mps_servers.FIRST_RETRY_SECONDS)
    servers.maintain()
    assert servers.set_share(GPU, 500).percent == 50


def test_share_in_use_survives_restart_of_agent_and_daemon(
    program: Program, root: Path, clock: MovableClock
) -> None:
    servers = make_servers(root, clock, share=0)
    servers.maintain()
    servers.set_share(GPU, 500)
    before = program.processes(root)
    held = [DeviceGrant("k", GPU, "cuda", 500, 39 * GIB, "cuda.shares")]
    # Simulate that the agent is killed and its daemon continues.
    again = make_servers(root, clock, share=0)
    again.reconcile(held)
    again.maintain()
    assert program.processes(root) == before
    assert again.limits(GPU) == Limits.of(500, 80 * GIB)
    # Simulate that agent and daemon are killed while a session with this share is running.
    for process in program.processes(root):
        process.kill()
    program.clear_commands()
    both = make_servers(root, clock, share=0)
    both.reconcile(held)
    both.maintain()
    assert last_limits(program) == limit_commands(500)
    # Simulate an agent that was killed while it started the daemon: the folder is incomplete.
    (root / GPU / "limits.json").unlink()
    again = make_servers(root, clock, share=0)
    again.reconcile(held)
    again.maintain()
    assert again.limits(GPU) == Limits.of(500, 80 * GIB)
    # Simulate that only the daemon is killed.
    for process in program.processes(root):
        process.kill()
    program.clear_commands()
    for _ in range(3):
        both.maintain()
    assert last_limits(program) == limit_commands(500)
    # Simulate that the session ends. The new agent continues to use the daemon, and the next
    # session sets the share.
    empty = make_servers(root, clock, share=0)
    empty.maintain()
    assert empty.limits(GPU) == Limits.of(500, 80 * GIB)
    assert empty.set_share(GPU, 250).share == 250


def test_close_stops_unused_daemon(servers: MpsServers, program: Program, root: Path) -> None:
    servers.maintain()
    servers.close()
    assert program.commands()[-1] == "quit"
    assert list(root.iterdir()) == []
    assert program.processes(root) == []


def test_close_keeps_daemon_with_clients(servers: MpsServers, program: Program, root: Path) -> None:
    servers.maintain()
    program.set_server()
    servers.close()
    assert len(program.processes(root)) == 1


def test_daemon_starts_despite_stale_socket(
    servers: MpsServers, program: Program, root: Path, clock: MovableClock
) -> None:
    servers.maintain()
    (daemon,) = program.processes(root)
    os.kill(daemon.pid, signal.SIGKILL)
    wait_until(lambda: not program.processes(root), 10, "the exit of the daemon")
    assert (root / GPU / "pipe" / "control").exists()
    again = make_servers(root, clock)
    again.maintain()
    assert again.unavailable_reason(GPU) == ""


def test_path_too_long_for_a_socket_is_reported(tmp_path: Path, clock: MovableClock) -> None:
    assert "too long" in make_servers(tmp_path / ("x" * 80), clock).configuration_problem()
    assert make_servers(Path("/run/bai-hub/mps"), clock).configuration_problem() == ""


def test_daemon_has_separate_shared_memory(program: Program, root: Path) -> None:
    if os.geteuid() or shutil.which("unshare") is None:
        pytest.skip("needs root and unshare")
    control = MpsControl(root / GPU, GPU, has_own_shm=True)
    try:
        control.start(LIMITS)
    except mps.MpsFailed as error:
        control.kill()
        pytest.skip(f"mounting is not possible here: {error}")
    assert control.shm is not None
    (control.shm / "seen").touch()
    (daemon,) = program.processes(root)
    assert os.listdir(f"/proc/{daemon.pid}/root/dev/shm") == ["seen"]
    control.quit()
    assert not (root / GPU).exists()


def granted_gpu(level: Level) -> GrantedDevice:
    sharing = Sharing(level, 250, 250, is_uniform=level is Level.PROCESS)
    return GrantedDevice(Device(GPU, "cuda", 0, "H", 80 * GIB, sharing=sharing), 250, "cuda.shares")


def test_container_gets_mps_pipe_and_limits(servers: MpsServers, program: Program) -> None:
    gpus = CudaGpus(rules=GpuRules(engine="docker", mps=servers))
    with pytest.raises(
        Unavailable, match="GPU GPU-0 cannot serve this share now: MPS is being started"
    ):
        gpus.inject([granted_gpu(Level.PROCESS)], "docker")
    servers.maintain()
    part = gpus.inject([granted_gpu(Level.PROCESS)], "docker")
    control = servers.control(GPU)
    assert control is not None
    assert list(part.mounts) == [
        {"source": str(control.pipe), "target": "/run/mps", "read_only": False}
    ]
    assert part.environ["CUDA_MPS_PIPE_DIRECTORY"] == "/run/mps"
    assert part.environ["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == f"0={LIMITS.memory_mib}M"
    assert part.level is Level.PROCESS
    assert "error in one" in part.notices[0]


def test_cgroup_level_requests_gpu_through_cdi() -> None:
    part = CudaGpus().inject([granted_gpu(Level.CGROUP)], "docker")
    assert part.environ["NVIDIA_GPU_MEMORY_LIMIT"] == str(20 * GIB)
    assert list(part.device_requests) == [{"driver": "cdi", "device_ids": ["nvidia.com/gpu=GPU-0"]}]
    assert (part.level, list(part.mounts)) == (Level.CGROUP, [])


@pytest.mark.parametrize(
    "share, memory, limits",
    [
        pytest.param(250, 81 * GIB, Limits(25, 20 * 1024, 250), id="a quarter of a GPU"),
        pytest.param(50, 17 * GIB, Limits(5, 819, 50), id="the smallest share"),
        pytest.param(125, 9 * GIB, Limits(13, 1024, 125), id="the percentage is rounded half up"),
    ],
)
def test_share_determines_the_mps_limits(share: int, memory: int, limits: Limits) -> None:
    assert Limits.of(share, memory) == limits
