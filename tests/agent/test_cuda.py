"""NVIDIA GPUs through the real NVML binding, with a fake driver."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bai_services.agent.devices.base import Device, GrantedDevice
from bai_services.agent.devices.nvidia.cuda import CudaGpus
from bai_services.agent.devices.nvidia.nvml import peers
from tests.testbed.manager import Api

from .conftest import Agents

DISCOVER_TWICE = """
import json, os, sys
from bai_services.agent.devices.nvidia.cuda import CudaGpus
gpus = CudaGpus()
first = gpus.discover()
used = gpus.sample()
open(sys.argv[1], "w").close()
print(json.dumps({
    "first": [d.to_report() for d in first],
    "used": used,
    "later": [[d.id, d.is_healthy] for d in gpus.discover()],
    "used_later": sorted(gpus.sample()),
}))
"""


@pytest.fixture(scope="session")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a library that implements NVML."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    folder = tmp_path_factory.mktemp("nvml")
    source = Path(__file__).with_name("fake_nvml.c")
    words = [compiler, "-shared", "-fPIC", "-o", str(folder / "libnvidia-ml.so.1"), str(source)]
    subprocess.run(words, check=True)
    return folder


def discover_twice(driver: Path, tmp_path: Path, **environ: str) -> Any:
    lost = tmp_path / "lost"
    done = subprocess.run(
        [sys.executable, "-c", DISCOVER_TWICE, str(lost)],
        env={
            "PATH": os.environ["PATH"],
            "LD_LIBRARY_PATH": str(driver),
            "NVML_LOST": str(lost),
            **environ,
        },
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_devices_are_found_and_a_lost_one_is_unhealthy(driver: Path, tmp_path: Path) -> None:
    devices = discover_twice(driver, tmp_path)
    assert devices["first"][1] == {
        "id": "GPU-0000-1",
        "family": "cuda",
        "index": 1,
        "model": "Fake H200",
        "memory_bytes": 80 * 2**30,
        # The fake library lacks the function for this value.
        "numa_node": None,
        "is_simulated": False,
        "is_healthy": True,
        "facts": {
            "processors": 132,
            "pci": "00000000:01:00.0",
            "driver": "580.00",
            "cuda": "13.1",
            "compute_capability": "9.0",
            "good_for": ["training", "inference"],
            "links": {"GPU-0000-0": 2},
            "pci_peers": ["GPU-0000-0"],
            "minor": 5,
            "compute_mode": "DEFAULT",
            "enforcement": "soft",
            "shares": {
                "least": "0.05",
                "most": "1",
                "on_one_device": False,
                "is_paused": False,
                "is_uniform": False,
                "clients": 20,
            },
            "shares_withheld": "",
            "unavailable_levels": {
                "cgroup": "the driver can limit containers only",
                "process": "MPS is disabled: SharingSettings.mps_share is empty",
            },
        },
    }
    assert devices["first"][0]["facts"]["good_for"] == ["training"]
    assert devices["used"]["GPU-0000-0"] == {
        "memory_used_bytes": 5 * 2**30,
        "utilization_percent": 42,
        "temperature_celsius": 61,
        "power_watts": 350.5,
    }
    # The second GPU has no sensors: the values are unknown, not zero.
    unknown = {"temperature_celsius": None, "power_watts": None}
    assert devices["used"]["GPU-0000-1"] == {**devices["used"]["GPU-0000-0"], **unknown}
    assert devices["later"] == [["GPU-0000-0", True], ["GPU-0000-1", False]]
    assert devices["used_later"] == ["GPU-0000-0"]


def test_gpus_behind_one_nvswitch_are_linked_to_each_other(driver: Path, tmp_path: Path) -> None:
    devices = discover_twice(driver, tmp_path, NVML_SWITCH="1")
    assert [d["facts"]["links"] for d in devices["first"]] == [{"GPU-0000-1": 2}, {"GPU-0000-0": 2}]


@pytest.mark.parametrize(
    "level, near",
    [
        pytest.param("10", ["GPU-0000-1", "GPU-0000-2"], id="path through one PCI switch"),
        pytest.param("20", ["GPU-0000-1", "GPU-0000-2"], id="path through several PCI switches"),
        pytest.param("30", [], id="path through the host bridge"),
        pytest.param("", None, id="common ancestor is unknown"),
    ],
)
def test_pci_peers_are_the_gpus_behind_common_pci_switches(
    driver: Path, tmp_path: Path, level: str, near: list[str] | None
) -> None:
    devices = discover_twice(driver, tmp_path, NVML_COUNT="3", NVML_ANCESTOR=level)
    assert devices["first"][0]["facts"]["pci_peers"] == near


def test_unknown_nvlinks_are_reported_as_unknown() -> None:
    bus = {"a": "0:1", "b": "0:2", "c": None}
    assert peers(bus, {"a": {"0:2": 4}, "b": {"0:1": 4}, "c": None}) == {
        "a": {"b": 4},
        "b": {"a": 4},
        "c": None,
    }


def test_nvml_without_a_driver_reports_no_gpu(driver: Path, tmp_path: Path) -> None:
    assert discover_twice(driver, tmp_path, NVML_NO_DRIVER="1")["first"] == []


def gpu(index: int) -> Device:
    return Device(f"GPU-{index}", "cuda", index, "H", 8 * 2**30, processors=100)


def test_containers_get_their_devices_by_uuid() -> None:
    granted = [
        GrantedDevice(gpu(0), 250, "cuda.shares"),
        GrantedDevice(gpu(3), 1000, "cuda.device"),
    ]
    part = CudaGpus().inject(granted, "docker")
    assert part.environ["NVIDIA_VISIBLE_DEVICES"] == "GPU-0,GPU-3"
    assert part.environ["CUDA_VISIBLE_DEVICES"] == "GPU-0,GPU-3"
    assert part.device_requests == [
        {
            "driver": "nvidia",
            "device_ids": ["GPU-0", "GPU-3"],
            "capabilities": [["gpu", "utility", "compute"]],
        }
    ]
    assert list(part.device_nodes) == []
    assert "not enforced" in part.notices[0]


def test_processes_get_the_nodes_of_their_devices() -> None:
    part = CudaGpus().inject([GrantedDevice(gpu(1), 1000, "cuda.device")], "process")
    assert part.device_nodes[:2] == ["/dev/nvidia1", "/dev/nvidiactl"]
    assert (list(part.device_requests), list(part.notices)) == ([], [])


async def test_real_gpu_replaces_simulated_gpus(api: Api, agents: Agents, driver: Path) -> None:
    await agents.start(LD_LIBRARY_PATH=str(driver), BAI_AGENT_SIMULATED_GPUS="2")
    admin = await api.client("admin")
    page = await admin.get("/devices")
    assert [(d["id"], d["is_simulated"]) for d in page["items"]] == [
        ("GPU-0000-0", False),
        ("GPU-0000-1", False),
    ]
    assert page["items"][0]["facts"]["usage"]["utilization_percent"] == 42
