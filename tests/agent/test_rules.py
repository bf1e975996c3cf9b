"""Pure functions of the agent: injections, subnets, progress of pulls, usage, settings."""

from __future__ import annotations

import json
from ipaddress import IPv4Network
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from bai_services.agent.app import AgentApp, DockerSettings
from bai_services.agent.devices.nvidia.cuda import CudaGpus
from bai_services.agent.devices.simulated import SimulatedGpus
from bai_services.agent.docker.container_usage import Meter
from bai_services.agent.docker.images import Progress, pull_error
from bai_services.agent.docker.networks import free_subnets, network_name, read_pool
from bai_services.agent.injection import make_injection, resolve_devices, resource_file
from bai_services.agent.kernels import DeviceShare
from bai_services.core import errors

SIMULATED = SimulatedGpus("m1", 2)
DEVICES = {device.id: device for device in SIMULATED.discover()}


def injection(*shares: DeviceShare, engine: str = "docker") -> dict[str, Any]:
    granted = resolve_devices(shares, DEVICES)
    return make_injection(granted, {"cuda": SIMULATED}, engine, Path("/h"), "net").to_json()


def test_shares_on_two_devices_in_their_order() -> None:
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


@pytest.mark.parametrize("kind", [SIMULATED, CudaGpus()], ids=["simulated", "real"])
def test_a_session_without_devices_sees_none(kind: Any) -> None:
    made = make_injection([], {"cuda": kind}, "docker", Path("/h"), "").to_json()
    assert made["environ"]["CUDA_VISIBLE_DEVICES"] == ""
    assert made["environ"]["NVIDIA_VISIBLE_DEVICES"] == "void"
    assert (made["device_requests"], made["device_nodes"], made["notices"]) == ([], [], [])


def test_a_file_says_what_the_variables_say() -> None:
    environ = injection(DeviceShare("SIM-m1-0", 250))["environ"]
    assert resource_file(environ).splitlines() == [
        "CUDA_GLOBAL_DEVICE_IDS=0:0",
        "CUDA_RESOURCE_VIRTUALIZED=1",
        f"CUDA_MEMORY_LIMITS=0:{4 * 2**30}",
        "CUDA_PROCESSOR_LIMITS=0:25",
        "CUDA_RESERVED_MEMORY=0",
    ]
    assert resource_file({"HOME": "/"}) == ""


def test_an_injection_can_be_sent() -> None:
    assert json.loads(json.dumps(injection(DeviceShare("SIM-m1-0", 1000))))["network"] == "net"


def test_a_device_that_is_gone_is_named() -> None:
    with pytest.raises(errors.NotFound, match="SIM-m1-7"):
        injection(DeviceShare("SIM-m1-7", 1000))


def test_subnets_avoid_what_is_used() -> None:
    pool = read_pool("10.213.0.0/16", 26)
    used = [IPv4Network("10.213.0.0/25"), IPv4Network("172.17.0.0/16")]
    assert [str(s) for s in islice(free_subnets(pool, 26, used), 2)] == [
        "10.213.0.128/26",
        "10.213.0.192/26",
    ]
    assert len(list(free_subnets(pool, 26, []))) == 1024
    assert list(free_subnets(pool, 26, [IPv4Network("10.0.0.0/8")])) == []


@pytest.mark.parametrize("text", ["10.213.0.1/16", "x", "10.0.0.0/28", "::/64"])
def test_pools_that_are_refused(text: str) -> None:
    with pytest.raises(errors.InvalidRequest, match="BAI_AGENT_NETWORK_POOL"):
        read_pool(text, 26)


def test_network_names() -> None:
    assert network_name("ann.b_c-d", "m1").startswith("bai-u-ann.b_c-d-")
    # Two installations on one engine keep their users apart.
    assert network_name("ann", "m1") != network_name("ann", "m2")
    for user in ("../x", "", "a b", "x" * 65):
        with pytest.raises(errors.InvalidRequest):
            network_name(user, "m1")


def test_progress_of_a_pull() -> None:
    progress = Progress()
    assert progress.read({"status": "Pulling from team/py", "id": "1"}) is None
    assert progress.read({"id": "a", "status": "Pulling fs layer"}) is None

    def step(layer: str, status: str, current: int, total: int) -> int | None:
        detail = {"current": current, "total": total}
        return progress.read({"id": layer, "status": status, "progressDetail": detail})

    assert step("a", "Downloading", 50, 100) == 25
    assert step("a", "Extracting", 50, 100) == 75
    assert step("b", "Downloading", 0, 300) == 18
    assert progress.read({"id": "a", "status": "Pull complete"}) == 25
    # Whole only when Docker says that the image is there.
    assert progress.read({"id": "b", "status": "Pull complete"}) == 99


@pytest.mark.parametrize(
    "text, kind",
    [
        ("manifest for x not found: manifest unknown", errors.NotFound),
        ("pull access denied for x, repository does not exist", errors.NotFound),
        ("Get https://r/v2/: dial tcp: lookup r: no such host", errors.Unavailable),
        ("net/http: request canceled (Client.Timeout exceeded)", errors.Unavailable),
        ("write /x: no space left on device", errors.StorageFull),
    ],
)
def test_failures_of_a_pull_name_the_image(text: str, kind: type[errors.BaiError]) -> None:
    error = pull_error("team/py:1", text)
    assert type(error) is kind
    assert "team/py:1" in error.message


def test_memory_without_the_page_cache() -> None:
    meter = Meter()
    stats = {
        "cpu_stats": {"cpu_usage": {"total_usage": 2_500_000_000}},
        "memory_stats": {"usage": 100, "limit": 1000, "stats": {"inactive_file": 30}},
        "networks": {"eth0": {"rx_bytes": 1, "tx_bytes": 2}, "eth1": {"rx_bytes": 3}},
        "blkio_stats": {
            "io_service_bytes_recursive": [{"op": "Read", "value": 5}, {"op": "write", "value": 7}]
        },
        "pids_stats": {"current": 4},
    }
    assert meter.read("c", stats) == {
        "cpu_seconds": 2.5,
        "cpu_cores": 0.0,
        "mem_bytes": 70,
        "mem_limit_bytes": 1000,
        "net_rx_bytes": 4,
        "net_tx_bytes": 2,
        "io_read_bytes": 5,
        "io_write_bytes": 7,
        "processes": 4,
    }
    # A container that has just ended returns almost no data.
    assert meter.read("c", {"blkio_stats": {"io_service_bytes_recursive": None}})["mem_bytes"] == 0


def test_the_environment_sets_what_the_command_line_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("BAI_ENGINE", "docker")
    monkeypatch.setenv("BAI_AGENT_SIMULATED_GPUS", "5")
    monkeypatch.setenv("BAI_AGENT_ID", "from-environment")
    monkeypatch.setenv("DOCKER_HOST", "unix:///x.sock")
    monkeypatch.delenv("BAI_AGENT_ENGINE", raising=False)
    monkeypatch.delenv("BAI_AGENT_DOCKER_HOST", raising=False)
    app = AgentApp()
    app.initialize(["--id=from-line"])
    assert (app.engine, app.simulated_gpus, app.agent_id) == ("docker", 5, "from-line")
    settings = DockerSettings(parent=app)
    assert (settings.host, settings.hub_endpoint()) == ("unix:///x.sock", "unix:///x.sock")
