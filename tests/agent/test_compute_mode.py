"""Compute modes of a GPU, and the enforcement level of shares in each mode."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .test_cuda import driver
from .test_mps import Program, install

__all__ = ["driver"]

# Grants a share and a whole GPU, and prints the results. The script runs in a separate process,
# because the NVML binding loads its library once per process.
STEPS_SCRIPT = """
import json, sys
from pathlib import Path
from bai_services.agent.devices.base import GrantedDevice
from bai_services.agent.devices.nvidia.cuda import CudaGpus, GpuRules
from bai_services.agent.devices.nvidia.mps_servers import MpsServers
from bai_services.core.errors import Unavailable

root, mode, may_set = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3] == "may-set"
mps = None if sys.argv[4] == "no-mps" else MpsServers(root, 0, has_own_shm=False)
gpus = CudaGpus(rules=GpuRules("docker", mps=mps, may_set_mode=may_set))
gpus.discover()
gpus.maintain()
gpu = gpus.discover()[0]
result = {"level": gpu.sharing.level, "facts": dict(gpu.facts), "healthy": gpu.is_healthy}
result["most"] = gpu.sharing.max_share_now
for name, amount in (("share", 250), ("whole", 1000)):
    try:
        part = gpus.inject([GrantedDevice(gpu, amount, "cuda.shares")], "docker")
        result[name] = {"notices": list(part.notices), "level": part.level}
    except Unavailable as error:
        result[name] = {"error": error.message}
    else:
        result[name]["mps"] = "CUDA_MPS_PIPE_DIRECTORY" in part.environ
    result[name]["mode"] = mode.read_text().strip() if mode.exists() else "0"
gpu = gpus.discover()[0]
result["level_after"] = gpu.sharing.level
gpus.close()
result["mode_after"] = mode.read_text().strip() if mode.exists() else "0"
print(json.dumps(result))
"""

WHOLE_GPUS = """
import json
from bai_services.agent.devices.base import GrantedDevice
from bai_services.agent.devices.nvidia.cuda import CudaGpus, GpuRules
from bai_services.agent.devices.nvidia.gpu_reader import GpuReader
from bai_services.agent.devices.nvidia.mps_servers import MpsServers
from pathlib import Path
import sys

changed = []

def set_mode(reader, device_id, mode):
    changed.append(device_id)
    return "" if len(changed) > 1 else "the driver does not set the compute mode"

GpuReader.set_mode = set_mode
mps = MpsServers(Path(sys.argv[1]), 0, has_own_shm=False)
gpus = CudaGpus(rules=GpuRules("docker", mps=mps, may_set_mode=True))
whole = [GrantedDevice(gpu, 1000, "cuda.shares") for gpu in gpus.discover() if not gpu.slot][:2]
part = gpus.inject(whole, "docker")
print(json.dumps([[one.device.id for one in whole], changed, list(part.notices)]))
"""


@pytest.fixture
def root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    root = tmp_path_factory.mktemp("m")
    program = Program(root / "bin")
    install(program.folder)
    yield root
    program.stop_all(root)


def run_steps(root: Path, driver: Path, mode: str, *words: str) -> Any:
    # If the folder ``root`` is missing, the fake driver cannot set the mode and returns an error.
    file = root / "mode"
    root = root.parent if root.name == "nowhere" else root
    if mode:
        file.write_text(mode)
    may_set, mps = words if words else ("leave", "mps")
    done = subprocess.run(
        [sys.executable, "-c", STEPS_SCRIPT, str(root / "mps"), str(file), may_set, mps],
        env={
            "PATH": f"{root / 'bin'}:{os.environ['PATH']}",
            "LD_LIBRARY_PATH": str(driver),
            "NVML_MODE": str(file),
        },
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_default_compute_mode_has_soft_level_because_mps_can_be_bypassed(
    root: Path, driver: Path
) -> None:
    result = run_steps(root, driver, "0")
    assert (result["level"], result["share"]["level"]) == ("soft", "soft")
    assert result["facts"]["compute_mode"] == "DEFAULT"
    assert "a program can bypass MPS" in result["facts"]["unavailable_levels"]["process"]
    assert result["share"]["mps"] and "MPS is not enforced" in result["share"]["notices"][0]
    # The mode is unchanged, because the agent is configured not to change it.
    assert result["mode_after"] == "0"


def test_exclusive_process_mode_has_process_level(root: Path, driver: Path) -> None:
    result = run_steps(root, driver, "3")
    assert (result["level"], result["share"]["level"]) == ("process", "process")
    assert "one of your programs at a time" in result["whole"]["notices"][0]
    assert result["mode_after"] == "3"


def test_agent_sets_compute_mode_if_allowed(root: Path, driver: Path) -> None:
    result = run_steps(root, driver, "0", "may-set", "mps")
    assert (result["level"], result["share"]["level"], result["share"]["mode"]) == (
        "process",
        "process",
        "3",
    )
    # With a whole GPU, all programs of the session can use the GPU at the same time.
    assert (result["whole"]["mode"], result["whole"]["notices"]) == ("0", [])
    assert result["mode_after"] == "0"


def test_failed_change_of_compute_mode_lowers_the_level(root: Path, driver: Path) -> None:
    result = run_steps(root / "nowhere", driver, "", "may-set", "mps")
    assert "does not set the compute mode" in result["share"]["error"]
    assert result["level_after"] == "soft"


def test_compute_mode_of_the_second_gpu_is_set_even_if_the_first_gpu_rejects_it(
    root: Path, driver: Path
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WHOLE_GPUS, str(root / "mps")],
        env={
            "PATH": f"{root / 'bin'}:{os.environ['PATH']}",
            "LD_LIBRARY_PATH": str(driver),
            "NVML_MODE": str(root / "mode"),
        },
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    granted, changed, notices = json.loads(done.stdout)
    assert len(granted) == 2
    assert changed == granted
    assert "one of your programs at a time" in notices[0]


def test_exclusive_mode_without_mps_offers_no_shares(root: Path, driver: Path) -> None:
    result = run_steps(root, driver, "3", "leave", "no-mps")
    assert result["most"] == 0
    assert "a second program is rejected" in result["facts"]["shares_withheld"]


def test_prohibited_compute_mode_makes_gpu_unhealthy(root: Path, driver: Path) -> None:
    result = run_steps(root, driver, "2")
    assert (result["healthy"], result["most"]) == (False, 0)
    assert "PROHIBITED" in result["facts"]["shares_withheld"]
