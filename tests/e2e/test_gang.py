"""Cluster sessions through the real Hub, manager and agent: they run, end and fail as a whole."""

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
from bai_spawner.engines import processes
from tests.e2e.engines import JSON, checked, stop, wait_for
from tests.hub import RunningHub
from tests.testbed.wait import wait_until

if TYPE_CHECKING:
    from tests.testbed.docker_engine import DockerEngine

pytestmark = pytest.mark.e2e

SMALL = {"cpu": "1", "mem": "512m"}
SIZES = {"process": 2, "docker": 3}
PATIENCE_SECONDS = 60


@contextmanager
def gangs_allowed(hub: RunningHub) -> Iterator[None]:
    """Let every keypair's sessions have three kernels, which the demo does not."""
    admin = hub.rest("admin")
    before = {}
    for policy in checked(admin.get("/keypair-policies"), 200)["items"]:
        path = f"/keypair-policies/{policy['name']}"
        before[path] = policy["max_containers_per_session"]
        checked(admin.patch(path, json={"max_containers_per_session": 3}), 200)
    yield
    for path, count in before.items():
        checked(admin.patch(path, json={"max_containers_per_session": count}), 200)


@pytest.fixture(scope="module")
def roomy_hub(
    docker_engine: DockerEngine, session_image: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningHub]:
    """The demo on the docker engine, with room for two sessions of three kernels."""
    environment = {
        "DOCKER_HOST": docker_engine.host,
        "BAI_IMAGE": session_image,
        "BAI_AGENT_CPU": "6",
        "BAI_AGENT_MEM": "4g",
    }
    running = RunningHub(tmp_path_factory.mktemp("gangs"), "docker", environment)
    try:
        yield running.start()
    finally:
        running.stop()


@pytest.fixture(params=["process", pytest.param("docker", marks=pytest.mark.docker)])
def gang_hub(request: pytest.FixtureRequest) -> Iterator[RunningHub]:
    name = {"process": "hub", "docker": "roomy_hub"}[request.param]
    found: RunningHub = request.getfixturevalue(name)
    with gangs_allowed(found):
        yield found


def create(rest: httpx.Client, size: int) -> JSON:
    body = {"name": f"gang-{secrets.token_hex(4)}", "project": "default", "resources": SMALL}
    made: JSON = checked(rest.post("/sessions", json={**body, "cluster_size": size}), 201)
    return made


def left_of(request: pytest.FixtureRequest, hub: RunningHub, session_id: str) -> list[str]:
    """Return what is there of a session: its containers or processes, by kernel id."""
    if hub.engine == "process":
        return [_mark(process) for process in processes.session_processes(session_id)]
    api = request.getfixturevalue("docker_engine").client.api
    filters = {"label": f"bai.session-id={session_id}"}
    return [c["Labels"]["bai.kernel-id"] for c in api.containers(all=True, filters=filters)]


def kill(request: pytest.FixtureRequest, hub: RunningHub, kernel: JSON) -> None:
    if hub.engine == "process":
        processes.kill_kernel(kernel["id"])
    else:
        api = request.getfixturevalue("docker_engine").client.api
        api.kill(kernel["container_id"], "SIGKILL")


def _mark(process: psutil.Process) -> str:
    try:
        return str(process.environ().get("BAI_KERNEL_ID", ""))
    except psutil.Error:
        return ""


async def assert_books_are_right(hub: RunningHub, *ended: str) -> None:
    """Nothing is held by sessions that have ended, and counters are what the ledger says."""
    held = checked(hub.rest("admin").get("/allocations", params={"limit": "500"}), 200)["items"]
    assert not {item["session_id"] for item in held} & set(ended)
    database = Database(f"sqlite+aiosqlite:///{hub.home}/bai.sqlite")
    try:
        assert await AllocationStore(database).audit() == []
    finally:
        await database.close()


async def test_a_cluster_session_is_stopped_and_fails_as_a_whole(
    request: pytest.FixtureRequest, gang_hub: RunningHub
) -> None:
    size = SIZES[gang_hub.engine]
    names = ["main1", *(f"sub{n}" for n in range(1, size))]
    with gang_hub.rest("user") as rest:
        # One after the other: the demo's agent has no room for more.
        first = wait_for(rest, create(rest, size)["id"], "RUNNING")
        assert [kernel["hostname"] for kernel in first["kernels"]] == names
        kernels = {kernel["id"] for kernel in first["kernels"]}
        assert set(left_of(request, gang_hub, first["id"])) == kernels
        path = f"/sessions/{first['id']}/logs"

        def sub_has_spoken() -> bool:
            log = checked(rest.get(path, params={"kernel": "sub1"}), 200)["log"]
            return "sshd" in log or "Server listening" in log

        wait_until(sub_has_spoken, PATIENCE_SECONDS, "the log of sub1")
        assert "Jupyter" in checked(rest.get(path), 200)["log"]
        done = await asyncio.to_thread(stop, rest, first["id"])
        assert done["status"] == "TERMINATED"
        # It says so when all have ended; what is left of them goes a moment later.
        wait_until(lambda: not left_of(request, gang_hub, first["id"]), PATIENCE_SECONDS, "the end")
        assert checked(rest.get(path, params={"kernel": "sub1"}), 200)["log"]

        second = wait_for(rest, create(rest, size)["id"], "RUNNING")
        kill(request, gang_hub, second["kernels"][-1])
        failed = wait_for(rest, second["id"], "TERMINATED")
        assert failed["result"] == "failure"
        assert failed["status_info"].startswith(f"{names[-1]} ")
        assert failed["status_info"].endswith("with all of its kernels or not at all")
        wait_until(
            lambda: not left_of(request, gang_hub, second["id"]), PATIENCE_SECONDS, "the end"
        )
    await assert_books_are_right(gang_hub, first["id"], second["id"])


async def test_the_hub_killed_in_the_middle_of_a_start_leaks_nothing(
    request: pytest.FixtureRequest, roomy_hub: RunningHub
) -> None:
    hub = roomy_hub
    with gangs_allowed(hub), hub.rest("user") as rest:
        given_up, waited_for = create(rest, 3), create(rest, 3)
        for session in (given_up, waited_for):
            wait_until(
                lambda key=session["id"]: left_of(request, hub, key),  # type: ignore[misc]
                PATIENCE_SECONDS,
                "the first container",
            )
        hub.kill("hub")
        hub.start()
        checked(rest.delete(f"/sessions/{given_up['id']}"), 202)
        # The manager has the other one started anew, over what the dead Hub had started.
        running = wait_for(rest, waited_for["id"], "RUNNING")
        kernels = sorted(kernel["id"] for kernel in running["kernels"])
        assert sorted(left_of(request, hub, running["id"])) == kernels
        stop(rest, running["id"])
        # A start that is stopped ends as CANCELLED, unless it ran before the stop came.
        wait_for(rest, given_up["id"], "CANCELLED", "TERMINATED")
        wait_until(
            lambda: not any(left_of(request, hub, s["id"]) for s in (given_up, running)),
            PATIENCE_SECONDS,
            "the last container to go",
        )
    await assert_books_are_right(hub, given_up["id"], waited_for["id"])
