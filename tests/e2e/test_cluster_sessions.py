"""Cluster sessions on the real Hub: their kernels start, end and fail together."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import httpx
import psutil
import pytest

from bai_services.db.database import Database
from bai_services.db.scheduling.allocations import AllocationStore
from bai_services.engines import processes
from tests.e2e.sessions import JSON, checked, stop, wait_for
from tests.e2e.test_serving import endpoint
from tests.hub import RunningHub
from tests.testbed.wait import wait_until

if TYPE_CHECKING:
    from tests.testbed.docker_engine import DockerEngine

pytestmark = pytest.mark.e2e

SMALL = {"cpu": "1", "mem": "512m"}
SIZES = {"process": 2, "docker": 3}
TIMEOUT_SECONDS = 60


@contextmanager
def three_kernels_allowed(hub: RunningHub) -> Iterator[None]:
    """During the block, let all keypair policies allow three containers per session, not one."""
    admin = hub.rest("admin")
    before = {}
    try:
        for policy in checked(admin.get("/keypair-policies"), 200)["items"]:
            path = f"/keypair-policies/{policy['name']}"
            before[path] = policy["max_containers_per_session"]
            checked(admin.patch(path, json={"max_containers_per_session": 3}), 200)
        yield
    finally:
        for path, count in before.items():
            checked(admin.patch(path, json={"max_containers_per_session": count}), 200)


@pytest.fixture(scope="module")
def large_hub(
    docker_engine: DockerEngine, session_image: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningHub]:
    """The demo on the docker engine, with capacity for two sessions of three kernels."""
    environment = {
        "DOCKER_HOST": docker_engine.host,
        "BAI_IMAGE": session_image,
        "BAI_AGENT_CPU": "6",
        "BAI_AGENT_MEM": "4g",
    }
    running = RunningHub(tmp_path_factory.mktemp("clusters"), "docker", environment)
    try:
        yield running.start()
    finally:
        running.stop()


@pytest.fixture(params=["process", pytest.param("docker", marks=pytest.mark.docker)])
def cluster_hub(request: pytest.FixtureRequest) -> Iterator[RunningHub]:
    name = {"process": "hub", "docker": "large_hub"}[request.param]
    hub: RunningHub = request.getfixturevalue(name)
    with three_kernels_allowed(hub):
        yield hub


def create(rest: httpx.Client, size: int) -> JSON:
    body = {"name": f"cluster-{secrets.token_hex(4)}", "project": "default", "resources": SMALL}
    made: JSON = checked(rest.post("/sessions", json={**body, "cluster_size": size}), 201)
    return made


def remaining_kernels(
    request: pytest.FixtureRequest, hub: RunningHub, session_id: str
) -> list[str]:
    """Return the kernel ids of all containers or processes of a session that still exist."""
    if hub.engine == "process":
        return [_kernel_id_of(process) for process in processes.session_processes(session_id)]
    api = request.getfixturevalue("docker_engine").client.api
    filters = {"label": f"bai.session-id={session_id}"}
    return [c["Labels"]["bai.kernel-id"] for c in api.containers(all=True, filters=filters)]


def kill(request: pytest.FixtureRequest, hub: RunningHub, kernel: JSON) -> None:
    if hub.engine == "process":
        processes.kill_kernel(kernel["id"])
    else:
        api = request.getfixturevalue("docker_engine").client.api
        api.kill(kernel["container_id"], "SIGKILL")


def _kernel_id_of(process: psutil.Process) -> str:
    try:
        return str(process.environ().get("BAI_KERNEL_ID", ""))
    except psutil.Error:
        return ""


async def assert_allocations_are_consistent(hub: RunningHub, *ended: str) -> None:
    """Assert that ended sessions have no allocations, and that counters match the allocations."""
    held = checked(hub.rest("admin").get("/allocations", params={"limit": "500"}), 200)["items"]
    assert not {item["session_id"] for item in held} & set(ended)
    database = Database(f"sqlite+aiosqlite:///{hub.home}/bai.sqlite")
    try:
        assert await AllocationStore(database).audit() == []
    finally:
        await database.close()


@pytest.mark.checklist("CLU-01", "CLU-05")
async def test_all_kernels_of_a_cluster_session_stop_and_fail_together(
    request: pytest.FixtureRequest, cluster_hub: RunningHub
) -> None:
    size = SIZES[cluster_hub.engine]
    names = ["main1", *(f"sub{n}" for n in range(1, size))]
    with cluster_hub.rest("user") as rest:
        # Run one session after the other: the agent's capacity may not be enough for two.
        first = wait_for(rest, create(rest, size)["id"], "RUNNING")
        assert [kernel["hostname"] for kernel in first["kernels"]] == names
        kernels = {kernel["id"] for kernel in first["kernels"]}
        assert set(remaining_kernels(request, cluster_hub, first["id"])) == kernels
        path = f"/sessions/{first['id']}/logs"

        def sub1_has_logged() -> bool:
            log = checked(rest.get(path, params={"kernel": "sub1"}), 200)["log"]
            return "sshd" in log or "Server listening" in log

        wait_until(sub1_has_logged, TIMEOUT_SECONDS, "the log of sub1")
        assert "Jupyter" in checked(rest.get(path), 200)["log"]
        done = await asyncio.to_thread(stop, rest, first["id"])
        assert done["status"] == "TERMINATED"
        # TERMINATED means that all kernels have ended. Their containers are removed later.
        wait_until(
            lambda: not remaining_kernels(request, cluster_hub, first["id"]),
            TIMEOUT_SECONDS,
            "the removal of all kernels",
        )
        assert checked(rest.get(path, params={"kernel": "sub1"}), 200)["log"]

        second = wait_for(rest, create(rest, size)["id"], "RUNNING")
        kill(request, cluster_hub, second["kernels"][-1])
        failed = wait_for(rest, second["id"], "TERMINATED")
        assert failed["result"] == "failure"
        assert failed["status_info"].startswith(f"{names[-1]} ")
        assert failed["status_info"].endswith("requires all of its kernels")
        wait_until(
            lambda: not remaining_kernels(request, cluster_hub, second["id"]),
            TIMEOUT_SECONDS,
            "the removal of all kernels",
        )
    await assert_allocations_are_consistent(cluster_hub, first["id"], second["id"])


def test_replica_of_an_endpoint_may_have_several_kernels(
    request: pytest.FixtureRequest, cluster_hub: RunningHub
) -> None:
    """The main kernel responds to requests. All kernels end when the endpoint is deleted."""
    size, name = SIZES[cluster_hub.engine], "e2e-cluster"
    command = (
        "echo $BAI_CLUSTER_SIZE $BAI_CLUSTER_HOST > index.html; "
        "exec python3 -m http.server --bind 127.0.0.1 $PORT"
    )
    settings = {
        "command": command,
        "health": {"path": "/index.html"},
        "request": {"resources": SMALL, "cluster_size": size},
    }
    with cluster_hub.rest("user") as rest, endpoint(rest, name, settings=settings) as token:
        url = f"{cluster_hub.url}/services/bai-serve/{name}/index.html"
        headers = {"Authorization": f"Bearer {token}"}

        def served() -> str:
            response = httpx.get(url, headers=headers, timeout=60)
            return response.text.strip() if response.status_code == 200 else ""

        assert wait_until(served, 2 * TIMEOUT_SECONDS, "a response") == f"{size} main1"
        (replica,) = checked(rest.get(f"/endpoints/{name}/replicas"), 200)["items"]
        assert len(set(remaining_kernels(request, cluster_hub, replica["id"]))) == size
    wait_until(
        lambda: not remaining_kernels(request, cluster_hub, replica["id"]),
        TIMEOUT_SECONDS,
        "the removal of all kernels",
    )


async def test_a_hub_killed_during_a_start_leaks_no_container(
    request: pytest.FixtureRequest, large_hub: RunningHub
) -> None:
    hub = large_hub
    with three_kernels_allowed(hub), hub.rest("user") as rest:
        stopped, restarted = create(rest, 3), create(rest, 3)
        for session in (stopped, restarted):
            wait_until(
                lambda key=session["id"]: remaining_kernels(request, hub, key),  # type: ignore[misc]
                TIMEOUT_SECONDS,
                "the first container",
            )
        hub.kill("hub")
        hub.start()
        checked(rest.delete(f"/sessions/{stopped['id']}"), 202)
        # The manager starts the other session again, and new kernels replace those of the killed
        # Hub.
        running = wait_for(rest, restarted["id"], "RUNNING")
        kernels = sorted(kernel["id"] for kernel in running["kernels"])
        assert sorted(remaining_kernels(request, hub, running["id"])) == kernels
        stop(rest, running["id"])
        # CANCELLED if the session was stopped before it was RUNNING, otherwise TERMINATED.
        wait_for(rest, stopped["id"], "CANCELLED", "TERMINATED")
        wait_until(
            lambda: not any(remaining_kernels(request, hub, s["id"]) for s in (stopped, running)),
            TIMEOUT_SECONDS,
            "the removal of the last container",
        )
    await assert_allocations_are_consistent(hub, stopped["id"], restarted["id"])
