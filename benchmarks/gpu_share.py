"""Enforcement of GPU shares: memory, compute, overhead of MPS, neighbors, watchdog.

``python -m benchmarks.gpu_share`` requires an NVIDIA GPU with driver and cuBLAS. It needs neither
Docker nor root, and does not change settings of the device (compute mode, MIG, clocks). Without
nvidia-cuda-mps-control, the results that need MPS are null or missing. Exits with 6 if there is no
usable GPU.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
import uuid as uuids
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bai_services.agent.devices.base import Device, GrantedDevice
from bai_services.agent.devices.device_grants import DeviceGrants
from bai_services.agent.devices.machine_devices import MachineDevices
from bai_services.agent.devices.memory_watchdog import CHECK_INTERVAL_SECONDS, Action, Watchdog
from bai_services.agent.devices.nvidia.cuda import CudaGpus
from bai_services.agent.devices.nvidia.mps import Limits, MpsFailed, program_problem
from bai_services.agent.folders.kernel_folders import Folders
from bai_services.agent.kernels import Task
from bai_services.agent.processes import ProcessEngine

from .gpu_neighbours import Workloads, fault_of_a_neighbour, killed_neighbour
from .gpu_tenants import Tenant, median_rate, mps, run_worker

MISSING = 6
AGENT = "bench"
PERCENTS = (5, 10, 25, 50, 75, 100)
# Smaller shares, in percent, are not compared: they are below the granularity of the GPU.
MIN_COMPARED = 10
WHOLE, QUARTER = 1000, 250
TENANT_COUNTS = (2, 4, 10)
GIB = 2**30
TIMEOUT_SECONDS = 30.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=5.0, help="duration of each computation")
    parser.add_argument("--runs", type=int, default=5, help="runs per median")
    parser.add_argument("--size", type=int, default=8192, help="number of matrix rows")
    spec = parser.parse_args()
    gpus = [device for device in CudaGpus().discover() if device.is_healthy and not device.slot]
    if not gpus or not gpus[0].memory_bytes:
        print("there is no NVIDIA GPU whose driver reports its memory", file=sys.stderr)
        return MISSING
    gpu = gpus[0]
    if why_not := run_worker(["check"], direct_environment(gpu))["why_not"]:
        print(f"nothing can be computed on {gpu.model}: {why_not}", file=sys.stderr)
        return MISSING
    with tempfile.TemporaryDirectory(prefix="bai-") as name:
        print(json.dumps(measure(gpu, gpus[0].memory_bytes, Path(name), spec), indent=2))
    return 0


def measure(gpu: Device, total: int, folder: Path, spec: argparse.Namespace) -> dict[str, Any]:
    """Return all results; a result that the machine cannot produce is None or missing.

    ``total`` is the memory of the GPU in bytes.
    """
    workloads = Workloads.measure(direct_environment(gpu), spec.seconds, spec.size, spec.runs)
    figures: dict[str, Any] = {
        "level": "soft",
        "max_memory_percent_at_quarter": None,
        "compute_error_percent": None,
        "overhead_percent": None,
        "watchdog_seconds": asyncio.run(watchdog_seconds(gpu, total, folder)),
        "gpu": gpu.model,
        "driver": gpu.facts.get("driver"),
        "compute_mode": gpu.facts.get("compute_mode"),
        "memory_bytes": total,
        "without_mps": {
            "teraflops": teraflops(workloads.baseline["large"]),
            "copy_gigabytes_per_second": round(workloads.baseline["copy"] / 1e9, 1),
            "launch_microseconds": launch(direct_environment(gpu)),
            "max_memory_percent": percent(
                run_worker(["fill"], direct_environment(gpu))["bytes"], total
            ),
            "pairs": workloads.pairs(direct_environment(gpu)),
            **{
                f"{n}_tenants": workloads.tenants(n, direct_environment(gpu)) for n in TENANT_COUNTS
            },
        },
        "why_no_mps": program_problem(),
    }
    if figures["why_no_mps"]:
        return figures
    try:
        return {**figures, **with_mps(gpu, total, workloads, folder, spec)}
    except (MpsFailed, RuntimeError) as error:
        return {**figures, "why_no_mps": str(error)}


def with_mps(
    gpu: Device, total: int, workloads: Workloads, folder: Path, spec: argparse.Namespace
) -> dict[str, Any]:
    """Return the results with MPS.

    ``fault_of_a_neighbour`` runs last, because its memory fault can break the MPS daemon.
    """
    large = workloads.args["large"]
    rates, measured = {}, {}
    for share in PERCENTS:
        with mps(folder, gpu.id, Limits.of(share * 10, total)) as environ:
            rates[share] = median_rate(large, environ, spec.runs)
    with mps(folder, gpu.id, Limits.of(WHOLE, total)) as environ:
        copied = median_rate(workloads.args["copy"], environ, spec.runs)
        measured["launch_microseconds"] = launch(environ)
        measured["pairs_at_100_percent"] = workloads.pairs(environ)
    with mps(folder, gpu.id, Limits.of(QUARTER, total)) as environ:
        memory = quarter_share(environ, total)
        bypass = percent(run_worker(["fill"], direct_environment(gpu))["bytes"], total)
        killed = killed_neighbour(large, environ)
    for count in TENANT_COUNTS:
        with mps(folder, gpu.id, Limits.of(WHOLE // count, total)) as environ:
            if count == 2:
                measured["pairs_at_50_percent"] = workloads.pairs(environ)
            measured[f"{count}_tenants"] = workloads.tenants(count, environ)
    with mps(folder, gpu.id, Limits.of(QUARTER, total)) as environ:
        fault = fault_of_a_neighbour(large, environ)
    return {
        "level": "process",
        "max_memory_percent_at_quarter": max(memory.values()),
        "compute_error_percent": compute_error(rates),
        "overhead_percent": overhead(workloads.baseline["large"], rates[100]),
        "copy_overhead_percent": overhead(workloads.baseline["copy"], copied),
        "memory_percent_at_quarter": memory,
        # Known limit: in compute mode DEFAULT a client can bypass MPS. The watchdog detects it.
        "memory_percent_past_mps": bypass,
        "teraflops_by_percent": {str(p): teraflops(rate) for p, rate in rates.items()},
        "with_mps": measured,
        "recovery": killed,
        "fault": fault,
    }


def overhead(before: float, after: float) -> float:
    """Return the decrease of a rate in percent."""
    return round((1 - after / before) * 100, 2)


def launch(environ: Mapping[str, str]) -> float:
    return round(float(run_worker(["launch"], environ)["microseconds"]), 1)


def quarter_share(environ: Mapping[str, str], total: int) -> dict[str, float]:
    """Return the memory that a quarter share can allocate, in percent of the GPU's memory.

    ``unset`` is the value if the tenant does not set its own limits, ``raised`` the value if it
    sets limits above those of the daemon.
    """
    raised = {
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=1000G",
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "100",
    }
    tries = {"unset": environ, "raised": {**environ, **raised}}
    return {name: percent(run_worker(["fill"], own)["bytes"], total) for name, own in tries.items()}


def compute_error(rates: Mapping[int, float]) -> float:
    """Return the largest deviation from a rate that is proportional to the share.

    ``rates`` maps shares in percent to rates. The deviation is in percent of the expected rate.
    """
    whole = rates[100]
    errors = [
        abs(rate / whole * 100 - share) / share * 100
        for share, rate in rates.items()
        if share >= MIN_COMPARED
    ]
    return round(max(errors), 2)


async def watchdog_seconds(gpu: Device, total: int, folder: Path) -> float | None:
    """Return the seconds until the watchdog stops a session that exceeds its memory share.

    None means that the session was not stopped within ``TIMEOUT_SECONDS``.
    """
    devices, folders = MachineDevices([CudaGpus()]), Folders(folder)
    await devices.refresh()
    engine = ProcessEngine(AGENT, folders, 1.0)
    grants = DeviceGrants(folders)
    watchdog = Watchdog(devices, engine, grants, Action.TERMINATE)
    session = str(uuids.uuid4())
    task = Task("bench", "prepare", session, session)
    folders.create(task, None, None)
    tags = {"BAI_AGENT_ID": AGENT, "BAI_SESSION_ID": session, "BAI_KERNEL_ID": session}
    granted = GrantedDevice(gpu, 50, "cuda.shares")
    grants.add(task, [granted])
    size = min(2 * (granted.memory_bytes or 0) + GIB, total // 2)
    with Tenant(["hold", size], {**direct_environment(gpu), **tags}) as tenant:
        await asyncio.to_thread(tenant.message)
        started = time.perf_counter()
        watching = asyncio.create_task(watchdog.run())
        try:
            async with asyncio.timeout(TIMEOUT_SECONDS):
                await asyncio.to_thread(
                    tenant.process.wait, TIMEOUT_SECONDS + CHECK_INTERVAL_SECONDS
                )
        except TimeoutError:
            return None
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
        return round(time.perf_counter() - started, 2)


def direct_environment(gpu: Device) -> dict[str, str]:
    """Return the environment of a tenant that uses the GPU without MPS."""
    return {"CUDA_VISIBLE_DEVICES": gpu.id, "CUDA_MPS_PIPE_DIRECTORY": os.devnull}


def percent(part: int, whole: int) -> float:
    return round(part / whole * 100, 2)


def teraflops(operations_per_second: float) -> float:
    return round(operations_per_second / 1e12, 2)


if __name__ == "__main__":
    sys.exit(main())
