"""Device injection: environment, order, and missing devices."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bai_services.agent.devices import simulated
from bai_services.agent.devices.nvidia import cuda
from bai_services.agent.devices.nvidia.cuda import CudaGpus
from bai_services.agent.devices.simulated import SimulatedGpus
from bai_services.agent.injection import make_injection, resolve_devices, resource_file
from bai_services.agent.kernels import DeviceShare
from bai_services.core import errors
from bai_services.i18n.catalogue import translator

SIMULATED = SimulatedGpus("m1", 2)
DEVICES = {device.id: device for device in SIMULATED.discover()}


def injection(*shares: DeviceShare, engine: str = "docker") -> dict[str, Any]:
    granted = resolve_devices(shares, DEVICES)
    return make_injection(granted, {"cuda": SIMULATED}, engine, Path("/h"), "net").to_json()


def test_injection_lists_devices_by_index() -> None:
    made = injection(DeviceShare("SIM-m1-1", 500), DeviceShare("SIM-m1-0", 750))
    environ = made["environ"]
    assert environ["BAI_CUDA_SHARES"] == "1.25"
    assert environ["CUDA_GLOBAL_DEVICE_IDS"] == "0:0,1:1"
    assert environ["CUDA_MEMORY_LIMITS"] == f"0:{12 * 2**30},1:{8 * 2**30}"
    assert environ["CUDA_PROCESSOR_LIMITS"] == "0:75,1:50"
    assert environ["CUDA_RESOURCE_VIRTUALIZED"] == "1"
    assert [d["share"] for d in json.loads(environ["BAI_DEVICES"])] == ["0.75", "0.5"]
    assert made["network"] == "net"
    assert made["enforcement"] == {"cuda": "none"}
    assert len(made["notices"]) == 1


@pytest.mark.parametrize("kind", [SIMULATED, CudaGpus()], ids=["simulated GPUs", "real GPUs"])
def test_session_without_devices_sees_no_devices(kind: Any) -> None:
    made = make_injection([], {"cuda": kind}, "docker", Path("/h"), "").to_json()
    assert made["environ"]["CUDA_VISIBLE_DEVICES"] == ""
    assert made["environ"]["NVIDIA_VISIBLE_DEVICES"] == "void"
    assert (made["device_requests"], made["device_nodes"], made["notices"]) == ([], [], [])


def test_resource_file_matches_environment() -> None:
    environ = injection(DeviceShare("SIM-m1-0", 250))["environ"]
    assert resource_file(environ).splitlines() == [
        "CUDA_GLOBAL_DEVICE_IDS=0:0",
        "CUDA_RESOURCE_VIRTUALIZED=1",
        f"CUDA_MEMORY_LIMITS=0:{4 * 2**30}",
        "CUDA_PROCESSOR_LIMITS=0:25",
        "CUDA_RESERVED_MEMORY=0",
    ]
    assert resource_file({"HOME": "/"}) == ""


def test_injection_is_json_serializable() -> None:
    assert json.loads(json.dumps(injection(DeviceShare("SIM-m1-0", 1000))))["network"] == "net"


def test_missing_device_is_named_in_error() -> None:
    with pytest.raises(errors.NotFound, match="SIM-m1-7"):
        injection(DeviceShare("SIM-m1-7", 1000))


def test_every_notice_about_devices_has_translations() -> None:
    """JupyterLab and the web UI recognize a notice by its English text."""
    notices = [simulated.NOTICE, *cuda.NOTICES.values(), cuda.OPEN_MPS_NOTICE]
    notices.append(cuda.ONE_PROGRAM_NOTICE)
    assert sorted(translator("en").area("device_notices").values()) == sorted(notices)
