"""MIG instances as separate slots, with a fake driver."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bai_services.agent.devices.base import Device, GrantedDevice
from bai_services.agent.devices.host_access import HostAccess
from bai_services.agent.devices.nvidia.cuda import CudaGpus
from bai_services.agent.devices.nvidia.gpu_reader import profile_of
from bai_services.client import Client
from bai_services.core.cluster.device_sharing import Level, Sharing
from bai_services.core.errors import InvalidRequest
from bai_services.core.scheduling.placement import warm_up
from tests.testbed.manager import Api
from tests.testbed.wait import wait_until_async

from .conftest import Agents
from .test_cuda import driver
from .test_process_agent import create_prepared

__all__ = ["driver"]

DISCOVER_AT_EACH_STEP = """
import json, os, sys
from bai_services.agent.devices.nvidia.cuda import CudaGpus
gpus, seen = CudaGpus(), []
for number in sys.argv[1:]:
    if number == "off":
        os.unlink(os.environ["NVML_MIG"])
    else:
        open(os.environ["NVML_MIG"], "w").write(number)
    devices = [d.to_report() for d in gpus.discover()]
    seen.append([devices, gpus.finding().reason, sorted(gpus.sample())])
print(json.dumps(seen))
"""
SLOT = "cuda.mig-1g.10gb-me"


def discover_at_each_step(driver: Path, tmp_path: Path, *steps: str) -> Any:
    done = subprocess.run(
        [sys.executable, "-c", DISCOVER_AT_EACH_STEP, *steps],
        env={
            "PATH": os.environ["PATH"],
            "LD_LIBRARY_PATH": str(driver),
            "NVML_MIG": str(tmp_path / "mig"),
        },
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_mig_can_be_enabled_and_disabled_at_run_time(driver: Path, tmp_path: Path) -> None:
    divided, bare, whole = discover_at_each_step(driver, tmp_path, "3", "0", "off")
    healthy = [
        {d["id"]: d["facts"].get("slot") for d in devices if d["is_healthy"]}
        for devices, _, _ in (divided, bare, whole)
    ]
    assert healthy == [
        {"MIG-0000-0": "cuda.mig-3g.40gb", "MIG-0000-1": SLOT, "MIG-0000-2": SLOT,
         "GPU-0000-1": None},
        {"GPU-0000-1": None},
        {"GPU-0000-0": None, "GPU-0000-1": None},
    ]  # fmt: skip
    assert bare[1] == "MIG is enabled, but there is no instance on GPU-0000-0"
    # Removed instances remain registered, because a running session may still use them.
    gone = {d["id"] for d in whole[0] if not d["is_healthy"]}
    assert gone == {"MIG-0000-0", "MIG-0000-1", "MIG-0000-2"}
    assert divided[2] == ["GPU-0000-1", "MIG-0000-0", "MIG-0000-1", "MIG-0000-2"]


def test_mig_instance_reports_model_memory_and_parent(driver: Path, tmp_path: Path) -> None:
    ((devices, _, _),) = discover_at_each_step(driver, tmp_path, "2")
    instance = next(d for d in devices if d["id"] == "MIG-0000-1")
    assert (instance["model"], instance["memory_bytes"]) == (
        "Fake H100 MIG 1g.10gb+me",
        10 * 2**30,
    )
    facts = instance["facts"]
    assert facts["enforcement"] == "hardware"
    assert (facts["shares"], facts["processors"]) == (None, None)
    assert (facts["parent"], facts["gpu_instance"], facts["compute_instance"]) == (
        "GPU-0000-0",
        2,
        0,
    )


@pytest.mark.parametrize(
    "model, attributes, profile",
    [
        pytest.param("NVIDIA H200 MIG 1g.18gb", None, "1g.18gb", id="profile in the name"),
        pytest.param(
            "NVIDIA A100 MIG 1c.2g.10gb",
            None,
            "1c.2g.10gb",
            id="name of a compute instance",
        ),
        pytest.param(
            "NVIDIA H200",
            SimpleNamespace(gpuInstanceSliceCount=2, memorySizeMB=35 * 1024 - 7),
            "2g.35gb",
            id="profile from the attributes",
        ),
        pytest.param("", None, "unknown", id="neither name nor attributes"),
    ],
)
def test_mig_profile_is_read_from_the_name_or_the_attributes(
    model: str, attributes: Any, profile: str
) -> None:
    assert profile_of(model, attributes) == profile


def instance(number: int) -> GrantedDevice:
    device = Device(
        f"MIG-{number}", "cuda", 0, "H100 MIG 1g.10gb", 10 * 2**30, slot="cuda.mig-1g.10gb",
        sharing=Sharing(Level.HARDWARE, most=0),
        facts={"minor": 3, "gpu_instance": number, "compute_instance": 0},
    )  # fmt: skip
    return GrantedDevice(device, 1000, device.slot)


def test_session_gets_capability_nodes_of_its_mig_instance_only(tmp_path: Path) -> None:
    for number in (1, 2):
        folder = tmp_path / f"proc/driver/nvidia/capabilities/gpu3/mig/gi{number}"
        (folder / "ci0").mkdir(parents=True)
        text = "DeviceFileMinor: {}\nDeviceFileMode: 292\n"
        (folder / "access").write_text(text.format(10 * number))
        (folder / "ci0" / "access").write_text(text.format(10 * number + 1))
    gpus = CudaGpus(host=HostAccess(tmp_path))
    part = gpus.inject([instance(2)], "process")
    assert list(part.device_nodes) == [
        "/dev/nvidia3", "/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools",
        "/dev/nvidia-caps/nvidia-cap20", "/dev/nvidia-caps/nvidia-cap21",
    ]  # fmt: skip
    part = gpus.inject([instance(2)], "docker")
    assert part.device_requests[0]["device_ids"] == ["MIG-2"]
    assert part.environ["CUDA_VISIBLE_DEVICES"] == "MIG-2"
    assert (part.level, list(part.notices)) == (Level.HARDWARE, [])


async def create(client: Client, name: str, resources: dict[str, str]) -> Any:
    return await client.post(
        "/sessions", {"name": name, "resources": {"cpu": "1", "mem": "1g", **resources}}
    )


async def test_sessions_request_mig_instances_by_profile(
    api: Api, agents: Agents, driver: Path, tmp_path: Path
) -> None:
    mig = tmp_path / "mig"
    mig.write_text("2")
    await agents.start(LD_LIBRARY_PATH=str(driver), NVML_MIG=str(mig))
    # The first scheduling pass may JIT-compile its code, which can take a minute.
    await asyncio.to_thread(warm_up)
    user = await api.client("user")
    session = await create_prepared(user, **{SLOT: "1"})
    assert [a["device"] for a in session["allocations"] if a["slot"] == SLOT] == ["MIG-0000-1"]
    assert session["enforcement"] == {"cuda": "hardware"}
    options = await user.get("/sessions/options")
    limit = options["limits"][SLOT]
    assert (limit["min"], limit["max"], limit["now"], limit["largest"]) == ("0", "1", "0", "1")
    assert options["limits"]["cuda.mig-3g.40gb"]["now"] == "1"
    with pytest.raises(InvalidRequest, match="mutually exclusive"):
        await create(user, "mixed", {SLOT: "1", "cuda.shares": "0.5"})
    with pytest.raises(InvalidRequest, match="one MIG instance"):
        await create(user, "two", {SLOT: "2"})
    # The administrator disables MIG: the instances are no longer offered.
    mig.unlink()
    admin = await api.client("admin")

    async def is_whole() -> bool:
        page = await admin.get("/devices")
        return [d["id"] for d in page["items"] if d["is_healthy"]] == ["GPU-0000-0", "GPU-0000-1"]

    await wait_until_async(is_whole, 30, "the undivided GPU")
