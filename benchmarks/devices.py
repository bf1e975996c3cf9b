"""Duration of an agent's device check: discovery, metrics, and the sums for each session.

``python -m benchmarks.devices`` builds a fake NVML library, which reports 8 GPUs and the processes
of 64 sessions, and queries the library through the real binding. Exits with 6 if there is no C
compiler.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path
from typing import Any

from bai_services.agent.devices.base import GrantedDevice
from bai_services.agent.devices.device_grants import DeviceGrants
from bai_services.agent.devices.machine_devices import MachineDevices
from bai_services.agent.devices.memory_watchdog import Action, Watchdog
from bai_services.agent.devices.nvidia.cuda import CudaGpus
from bai_services.agent.folders.kernel_folders import Folders
from bai_services.agent.kernels import Task
from bai_services.agent.processes import ProcessEngine

AGENT = "bench"
SOURCE = Path(__file__).parents[1] / "tests/agent/fake_nvml.c"
MISSING = 6


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gpus", type=int, default=8)
    parser.add_argument("--sessions", type=int, default=64)
    parser.add_argument("--runs", type=int, default=21)
    # With this option, the command measures. The command without it starts the measuring process,
    # because the library path must be set before a process starts.
    parser.add_argument("--inside", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside is not None:
        print(json.dumps(asyncio.run(measure(options.inside, options))))
        return 0
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        print("there is no C compiler to build the fake NVML library", file=sys.stderr)
        return MISSING
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        library = folder / "libnvidia-ml.so.1"
        subprocess.run([compiler, "-shared", "-fPIC", "-O2", "-o", library, SOURCE], check=True)
        environ = {
            **os.environ,
            "LD_LIBRARY_PATH": str(folder),
            "NVML_COUNT": str(options.gpus),
            "NVML_PROCESSES": str(folder / "processes"),
        }
        words = [sys.executable, "-m", "benchmarks.devices", *sys.argv[1:], "--inside", name]
        return subprocess.run(words, env=environ).returncode


async def measure(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Return the duration of the first check and the median durations of the later checks.

    All durations are in milliseconds.
    """
    devices = MachineDevices([CudaGpus()])
    engine = ProcessEngine(AGENT, Folders(folder), 1.0)
    grants = DeviceGrants(Folders(folder))
    watchdog = Watchdog(devices, engine, grants, Action.WARN)
    started = time.perf_counter()
    await devices.refresh()
    first = time.perf_counter() - started
    sessions = [str(uuid.uuid4()) for _ in range(options.sessions)]
    processes = start_sessions(sessions)
    try:
        allocate_shares(sessions, processes, folder, devices, grants)
        check_seconds, sums = [], []
        for _ in range(options.runs):
            started = time.perf_counter()
            await devices.refresh()
            seen = time.perf_counter()
            await watchdog.check()
            check_seconds.append(seen - started)
            sums.append(time.perf_counter() - seen)
        watched = sum(bool(watchdog.usage(key)["devices"][0]["processes"]) for key in sessions)
    finally:
        for process in processes:
            process.kill()
            process.wait()
    both = [check + added for check, added in zip(check_seconds, sums, strict=True)]
    return {
        "milliseconds": milliseconds(both),
        "discovery_and_sample_ms": milliseconds(check_seconds),
        "sums_per_session_ms": milliseconds(sums),
        "first_check_ms": round(first * 1000, 2),
        "gpus": len(devices.by_id),
        "sessions": watched,
    }


def start_sessions(sessions: list[str]) -> list[subprocess.Popen[bytes]]:
    """Start one process per session, and return the processes.

    The agent recognizes a process of a session by the environment variables set here.
    """
    return [
        subprocess.Popen(
            ["sleep", "600"],
            env={
                "PATH": os.environ["PATH"],
                "BAI_AGENT_ID": AGENT,
                "BAI_SESSION_ID": session,
                "BAI_KERNEL_ID": session,
            },
        )
        for session in sessions
    ]


def allocate_shares(
    sessions: list[str],
    processes: list[subprocess.Popen[bytes]],
    folder: Path,
    devices: MachineDevices,
    grants: DeviceGrants,
) -> None:
    """Allocate a GPU share to each session; report 1 GiB of that GPU as used by its process."""
    gpus = sorted(devices.by_id.values(), key=lambda d: d.index)
    lines = []
    for number, (session, process) in enumerate(zip(sessions, processes, strict=True)):
        device = gpus[number % len(gpus)]
        Folders(folder).create(Task("bench", "prepare", session, session), None, None)
        task = Task("bench", "prepare", session, session)
        grants.add(task, [GrantedDevice(device, 100, "cuda.shares")])
        lines.append(f"{device.index} {process.pid} {2**30}")
    (folder / "processes").write_text("\n".join(lines))


def milliseconds(seconds: list[float]) -> float:
    return round(statistics.median(seconds) * 1000, 2)


if __name__ == "__main__":
    sys.exit(main())
