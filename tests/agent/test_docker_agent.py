"""The agent process with a real Docker engine: images, networks, usage, orphaned containers."""

from __future__ import annotations

import asyncio
import json
import threading
import time
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import docker
import pytest
from docker.models.containers import Container

from bai_services.agent.docker.calls import DockerCalls
from bai_services.agent.docker.commits import commit
from bai_services.agent.docker.networks import (
    CLUSTER_PREFIX,
    CLUSTER_UNUSED_SECONDS,
    Networks,
    NoFreeSubnet,
    network_name,
    read_pool,
)
from bai_services.agent.kernels import Cluster
from bai_services.client import Client
from bai_services.core.cluster.custom_images import CommitRequest
from bai_services.core.errors import Conflict, Unavailable
from bai_services.core.scheduling.placement import warm_up
from tests.testbed.docker_engine import DockerEngine
from tests.testbed.images import base_image
from tests.testbed.manager import Api
from tests.testbed.registry import Registry, serve_registry
from tests.testbed.wait import wait_until_async

from .conftest import Agents, RunningAgent, wait_for_session
from .test_cuda import driver

__all__ = ["driver"]

POOL = "10.251.0.0/20"
MISSING_IMAGE = "registry.invalid/nobody/nothing:1"

pytestmark = [pytest.mark.docker, pytest.mark.usefixtures("refused_sockets")]


@pytest.fixture
def engine(docker_engine: DockerEngine) -> Iterator[DockerEngine]:
    """The Docker engine. Containers and networks of the test are removed after the test."""
    yield docker_engine
    client = docker_engine.client
    for container in client.containers.list(all=True, filters={"label": "bai.test"}):
        container.remove(force=True)
    for network in client.networks.list(filters={"label": "bai.agent-id=docker-test"}):
        network.remove()


@pytest.fixture
async def image(api: Api, engine: DockerEngine) -> str:
    """The name of a small image in the engine.

    Its alias is ``base``. The alias ``missing`` names an image that cannot be pulled.
    """
    name = await asyncio.to_thread(base_image, engine)
    admin = await api.client("admin")
    await admin.patch("/resource-groups/default", {"engine": "docker"})
    for alias, real in (("base", name), ("missing", MISSING_IMAGE)):
        made = await admin.post("/images", {"name": real})
        await admin.post("/image-aliases", {"alias": alias, "image": made["id"]})
    return name


@pytest.fixture
async def agent(agents: Agents, image: str, engine: DockerEngine) -> RunningAgent:
    return await start_agent(agents, engine)


async def start_agent(agents: Agents, engine: DockerEngine, **environ: str) -> RunningAgent:
    return await agents.start(
        "docker-test",
        BAI_AGENT_ENGINE="docker",
        BAI_AGENT_DOCKER_HOST=engine.host,
        **{"BAI_AGENT_NETWORK_POOL": POOL, **environ},
    )


async def create_session(user: Client, image: str, name: str = "lab1") -> dict[str, Any]:
    spec = {"cpu": "1", "mem": "1g", "cuda.shares": "0.25"}
    session = await user.post("/sessions", {"name": name, "image": image, "resources": spec})
    return dict(session)


async def plan_of(api: Api, user: Client, image: str, name: str = "lab1") -> dict[str, Any]:
    """Create a session, wait until it is PREPARED, and return its launch plan."""
    session = await create_session(user, image, name)
    session = await wait_for_session(user, session["id"], lambda s: s["status"] != "PREPARING")
    session = await wait_for_session(user, session["id"], lambda s: s["status"] == "PREPARED")
    where = {"user": session["hub_user"], "server": session["hub_server"]}
    return dict(await api.hub.post(f"/sessions/{session['id']}/launch", where))


def start_container(
    engine: DockerEngine, image: str, plan: dict[str, Any], command: str
) -> Container:
    """Start a container as the spawner does, with the plan's labels, network, home and user."""
    home = plan["injection"]["mounts"][0]
    return engine.client.containers.run(
        image,
        ["/bin/sh", "-c", command],
        detach=True,
        labels={**plan["labels"], "bai.test": "yes"},
        network=plan["injection"]["network"],
        environment=plan["injection"]["environ"],
        user=f"{plan['uid']}:{plan['gid']}",
        mounts=[docker.types.Mount(home["target"], home["source"], "bind")],
        init=True,
    )


async def test_docker_agent_reports_facts_of_its_engine(
    api: Api, agent: RunningAgent, image: str, engine: DockerEngine
) -> None:
    shown = await (await api.client("admin")).get("/agents/docker-test")
    assert (shown["engine"], shown["endpoint"]) == ("docker", engine.host)
    assert shown["facts"]["isolation"] == "docker"
    assert shown["facts"]["docker"]
    assert image in shown["facts"]["images"]


async def test_session_gets_home_and_user_network(
    api: Api, agent: RunningAgent, image: str, engine: DockerEngine
) -> None:
    plan = await plan_of(api, await api.client("user"), "base")
    injection = plan["injection"]
    assert injection["network"] == network_name("user", "docker-test")
    network = engine.client.networks.get(network_name("user", "docker-test"))
    assert network.attrs["IPAM"]["Config"][0]["Subnet"].endswith("/26")
    command = "touch /home/work/made && id -u && env"
    container = await asyncio.to_thread(start_container, engine, image, plan, command)
    assert (await asyncio.to_thread(container.wait))["StatusCode"] == 0
    printed = container.logs().decode().splitlines()
    assert printed[0] == str(plan["uid"])
    assert "NVIDIA_VISIBLE_DEVICES=void" in printed
    made = agent.home / "sessions" / plan["session_id"] / "home" / "made"
    assert made.stat().st_uid == plan["uid"]


async def test_sessions_wait_for_a_free_subnet_and_start_when_a_network_is_removed(
    api: Api, agents: Agents, image: str, engine: DockerEngine
) -> None:
    await start_agent(agents, engine, BAI_AGENT_NETWORK_POOL="10.251.16.0/26")
    user, other, admin = [await api.client(name) for name in ("user", "user2", "admin")]
    first = await create_session(user, "base")
    second = await create_session(other, "base")
    both = [(user, first), (other, second)]

    async def waiting() -> list[tuple[Client, dict[str, Any]]]:
        shown = [(one, await one.get(f"/sessions/{made['id']}")) for one, made in both]
        has_started = any(session["status"] == "PREPARED" for _, session in shown)
        left = [each for each in shown if "without a free subnet" in each[1]["status_info"]]
        return left if has_started else []

    ((owner, session),) = await wait_until_async(waiting, 60, "one session to wait")
    assert session["status"] == "PENDING"
    assert session["status_coded"]["code"] == "only-agent-unable"
    assert (await admin.get("/agents/docker-test"))["is_network_full"]
    why = await owner.get(f"/sessions/{session['id']}/why")
    failed = [check["message"] for check in why["checks"] if not check["passed"]]
    assert failed == [session["status_info"]]
    done = "user" if owner is other else "user2"
    network = engine.client.networks.get(network_name(done, "docker-test"))
    await asyncio.to_thread(network.remove)
    await wait_for_session(owner, session["id"], lambda s: s["status"] == "PREPARED")


async def test_sessions_of_different_users_cannot_connect(
    api: Api, agent: RunningAgent, image: str, engine: DockerEngine
) -> None:
    user, user2 = await api.client("user"), await api.client("user2")
    one = await plan_of(api, user, "base")
    two = await plan_of(api, user2, "base")
    mine = await plan_of(api, user, "base", "lab2")
    assert one["injection"]["network"] != two["injection"]["network"]
    serve = "cd /tmp && exec python3 -m http.server 8888"
    server = await asyncio.to_thread(start_container, engine, image, one, serve)
    server.reload()
    (about,) = server.attrs["NetworkSettings"]["Networks"].values()
    request = (
        "import urllib.request; "
        f"print(urllib.request.urlopen('http://{about['IPAddress']}:8888', timeout=3).status)"
    )
    friend = await asyncio.to_thread(start_container, engine, image, mine, "sleep 60")
    stranger = await asyncio.to_thread(start_container, engine, image, two, "sleep 60")

    async def can_connect() -> bool:
        return (await asyncio.to_thread(friend.exec_run, ["python3", "-c", request])).exit_code == 0

    # Positive control: sessions of the same user can connect.
    await wait_until_async(can_connect, 20, "a response in the server's own network")
    refused = await asyncio.to_thread(stranger.exec_run, ["python3", "-c", request])
    assert refused.exit_code != 0
    # Docker drops packets between networks, so the connection times out. If egress rules are
    # enforced, they reject the packets before that, so the network is unreachable.
    assert any(text in refused.output for text in (b"timed out", b"unreachable", b"No route"))


async def test_missing_image_fails_without_blocking_other_users(
    api: Api, agent: RunningAgent, image: str
) -> None:
    user, user2 = await api.client("user"), await api.client("user2")
    lost = [await create_session(user, "missing", f"lost{i}") for i in range(3)]
    began = time.monotonic()
    await plan_of(api, user2, "base")
    seconds = time.monotonic() - began
    for session in lost:
        ended = await wait_for_session(user, session["id"], lambda s: s["status"] == "ERROR", 60)
        assert MISSING_IMAGE in str(ended["status_info"])
        assert ended["allocations"] == []
    assert seconds < 15, seconds
    assert await api.world.manager.sessions.records.check_consistency() == []


@pytest.fixture
async def registry(engine: DockerEngine) -> AsyncIterator[Registry]:
    server, served = await serve_registry()
    yield served
    server.stop()
    await server.close_all_connections()
    with suppress(docker.errors.ImageNotFound):
        engine.client.images.remove(served.name)


async def test_concurrent_sessions_share_one_pull(
    api: Api, agent: RunningAgent, image: str, registry: Registry
) -> None:
    admin, user, user2 = [await api.client(name) for name in ("admin", "user", "user2")]
    made = await admin.post("/images", {"name": registry.name})
    waiting = [await create_session(user, made["name"], f"wait{i}") for i in range(3)]

    def pulls(session: dict[str, Any]) -> bool:
        return session["progress"] == {
            "stage": "pull",
            "message": f"pulling image {registry.name}",
            "percent": None,
        }

    for session in waiting:
        await wait_for_session(user, session["id"], pulls)
    await wait_until_async(lambda: registry.blob_requests, 30, "the engine's request for the blobs")
    # While the pull hangs, other sessions are prepared.
    await plan_of(api, user2, "base")
    assert (await user.get("/sessions/wait0"))["status"] == "PREPARING"
    registry.are_blobs_released.set()
    for session in waiting:
        await wait_for_session(user, session["id"], lambda s: s["status"] == "PREPARED")
    assert set(registry.blob_requests.values()) == {1}


async def test_container_usage_and_log_are_reported(
    api: Api, agent: RunningAgent, image: str, engine: DockerEngine
) -> None:
    user = await api.client("user")
    plan = await plan_of(api, user, "base")
    command = "echo hello; while true; do :; done"
    container = await asyncio.to_thread(start_container, engine, image, plan, command)
    path = f"/sessions/{plan['session_id']}"
    await api.hub.post(f"{path}/started", {"container_id": container.id})

    async def is_seen() -> bool:
        (kernel,) = (await user.get(f"{path}/usage"))["kernels"]
        return float(kernel["usage"].get("cpu_cores", 0)) > 0.05

    await wait_until_async(is_seen, 30, "the reported usage")
    (kernel,) = (await user.get(f"{path}/usage"))["kernels"]
    # Not every kernel measures the block I/O of containers.
    assert {"mem_bytes", "net_rx_bytes", "processes"} <= set(kernel["usage"])
    assert "hello" in json.dumps(await user.get(f"{path}/logs"))


async def test_restarted_agent_removes_container_of_ended_session(
    api: Api, agents: Agents, agent: RunningAgent, image: str, engine: DockerEngine
) -> None:
    user = await api.client("user")
    plan = await plan_of(api, user, "base")
    container = await asyncio.to_thread(start_container, engine, image, plan, "sleep 300")
    await agent.kill()
    path = f"/sessions/{plan['session_id']}/exited"
    await api.hub.post(path, {"exit_code": 0, "reason": "test"})
    await start_agent(agents, engine)

    def is_there() -> bool:
        return bool(engine.client.api.containers(all=True, filters={"id": container.id}))

    async def is_gone() -> bool:
        await agents.time_passes("docker-test", seconds=15)
        return not await asyncio.to_thread(is_there)

    await wait_until_async(is_gone, 60, "the removal of the container")
    folder = agent.home / "sessions" / plan["session_id"]
    await wait_until_async(lambda: not folder.exists(), 30, "the removal of the session's folder")
    assert not await asyncio.to_thread(is_there)


async def test_restarted_agent_restores_device_grants_of_running_containers(
    api: Api, agents: Agents, image: str, engine: DockerEngine, driver: Path
) -> None:
    gpu = {"LD_LIBRARY_PATH": str(driver), "NVML_COUNT": "1"}
    agent = await start_agent(agents, engine, **gpu)
    # The first scheduling pass may JIT-compile its code, which can take a minute.
    await asyncio.to_thread(warm_up)
    user = await api.client("user")
    plans = [await plan_of(api, user, "base", name) for name in ("running", "ended")]
    containers = []
    for plan in plans:
        assert plan["injection"]["environ"]["NVIDIA_VISIBLE_DEVICES"] == "GPU-0000-0"
        container = await asyncio.to_thread(start_container, engine, image, plan, "sleep 300")
        path = f"/sessions/{plan['session_id']}/started"
        await api.hub.post(path, {"container_id": container.id})
        containers.append(container)
    kernels = [plan["kernel_id"] for plan in plans]
    await agent.kill()
    # One of the two containers is removed while no agent is running.
    await asyncio.to_thread(containers[1].remove, force=True)
    await start_agent(agents, engine, **gpu)
    admin = await api.client("admin")

    async def device_grants() -> dict[str, Any]:
        (device,) = (await admin.get("/devices"))["items"]
        return {**device["facts"].get("held", {"kernels": []}), "used": device["used"]}

    async def is_known() -> bool:
        return kernels[0] in (await device_grants())["kernels"]

    await wait_until_async(is_known, 90, "the grants of the killed agent")

    async def is_settled() -> bool:
        await agents.time_passes("docker-test", seconds=15)
        wanted = {"kernels": kernels[:1], "thousandths": 250, "used": "0.25"}
        return await device_grants() == wanted

    await wait_until_async(is_settled, 90, "the release of the ended session's grant")
    running, ended = [await user.get(f"/sessions/{plan['session_id']}") for plan in plans]
    assert (running["status"], ended["status"]) == ("RUNNING", "ERROR")
    assert await asyncio.to_thread(containers[0].reload) is None
    assert containers[0].status == "running"


class FakeClock:
    """A clock in seconds that the test advances."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
async def calls(engine: DockerEngine) -> AsyncIterator[DockerCalls]:
    made = DockerCalls(engine.host, 30)
    yield made
    made.close()


async def test_unused_cluster_network_is_removed_after_its_timeout(
    calls: DockerCalls, engine: DockerEngine
) -> None:
    clock = FakeClock()
    networks = Networks(calls, "docker-test", read_pool("10.252.1.0/24", 26), 26, clock)
    cluster = Cluster(f"{CLUSTER_PREFIX}{uuid.uuid4()}")
    for _ in range(2):
        assert await networks.ensure_cluster(cluster, "user") == cluster.network
    of_user = await networks.ensure(f"p-{uuid.uuid4().hex[:6]}")
    clock.seconds = CLUSTER_UNUSED_SECONDS - 1
    assert cluster.network not in await networks.remove_unused(3600)
    clock.seconds = CLUSTER_UNUSED_SECONDS
    removed = await networks.remove_unused(3600)
    assert cluster.network in removed and of_user not in removed
    clock.seconds = 3600
    assert of_user in await networks.remove_unused(3600)


class GatedCalls(DockerCalls):
    """The first change of the engine waits for ``may_go``."""

    def __init__(self, endpoint: str) -> None:
        super().__init__(endpoint, 30)
        self.counts: Counter[str] = Counter()
        self.may_go = threading.Event()

    async def run(self, pool: str, call: Callable[[docker.APIClient], Any]) -> Any:
        def counted(client: docker.APIClient) -> Any:
            self.counts[pool] += 1
            if pool == "change":
                assert self.may_go.wait(30)
            return call(client)

        return await super().run(pool, counted)


async def test_creation_of_a_network_outlives_its_cancelled_session(engine: DockerEngine) -> None:
    """A session whose image cannot be pulled is cancelled while its network is created."""
    calls = GatedCalls(engine.host)
    networks = Networks(calls, "docker-test", read_pool("10.252.2.0/24", 26), 26)
    user = f"p-{uuid.uuid4().hex[:6]}"
    cancelled = asyncio.create_task(networks.ensure(user))
    await wait_until_async(lambda: calls.counts["change"], 30, "the creation")
    cancelled.cancel()
    with pytest.raises(asyncio.CancelledError):
        await cancelled
    other = asyncio.create_task(networks.ensure(user))
    await wait_until_async(lambda: calls.counts["query"] == 2, 30, "the second session")
    calls.may_go.set()
    name = await other
    # A second creation would have begun while the first one was running.
    assert calls.counts["change"] == 1
    found = await asyncio.to_thread(engine.client.networks.list, names=[name])
    assert [each.name for each in found] == [name]
    calls.close()


async def test_user_networks_are_limited_by_the_pool_and_removed_when_unused(
    calls: DockerCalls, engine: DockerEngine
) -> None:
    clock = FakeClock()
    pool = read_pool("10.252.0.0/24", 26)
    networks = Networks(calls, "docker-test", pool, 26, clock)
    mark = uuid.uuid4().hex[:6]
    users = [f"p{i}-{mark}" for i in range(4)]
    assert not await networks.is_full()
    names = await asyncio.gather(*map(networks.ensure, users))
    assert await networks.ensure(users[0]) == names[0]
    assert await networks.is_full()
    with pytest.raises(NoFreeSubnet, match="10.252.0.0/24"):
        await networks.ensure(f"late-{mark}")
    busy = await asyncio.to_thread(
        engine.client.containers.run,
        base_image(engine),
        ["sleep", "60"],
        detach=True,
        network=names[0],
        labels={"bai.test": "yes"},
    )
    clock.seconds = 3599
    assert set(await networks.remove_unused(3600)) & set(names) == set()
    clock.seconds = 3600
    assert set(await networks.remove_unused(3600)) & set(names) == set(names[1:])
    assert not await networks.is_full()
    await asyncio.to_thread(busy.remove, force=True)
    # The timeout of one hour starts at the last use of a network.
    clock.seconds = 7199
    assert names[0] not in await networks.remove_unused(3600)
    clock.seconds = 7201
    assert names[0] in await networks.remove_unused(3600)
    late = network_name(f"late-{mark}", "docker-test")
    assert await networks.ensure(f"late-{mark}") == late


async def test_running_container_gets_new_limits_and_keeps_memory_in_use(
    api: Api, agent: RunningAgent, image: str, engine: DockerEngine
) -> None:
    user = await api.client("user")
    plan = await plan_of(api, user, "base")
    path = f"/sessions/{plan['session_id']}"
    hold = "x=$(head -c 96m /dev/zero | tr '\\0' x); sleep 300"  # 96 MiB in use
    container = await asyncio.to_thread(start_container, engine, image, plan, hold)
    await api.hub.post(f"{path}/started", {"container_id": container.id})
    session = await user.post(
        f"{path}/resize", {"resources": {"cpu": 2, "mem": "512m", "cuda.shares": "0.5"}}
    )
    assert session["resize"]["state"] == "applied"
    assert session["devices"][0]["share"] == "0.5"
    await asyncio.to_thread(container.reload)
    limits = container.attrs["HostConfig"]
    assert (limits["NanoCpus"], limits["Memory"]) == (2_000_000_000, 2**29)
    grants = json.loads((agent.home / "sessions" / plan["session_id"] / "devices.json").read_text())
    assert [grant["amount"] for grant in grants] == [500]

    async def uses_memory() -> bool:
        usage = (await user.get(path))["usage"]
        return bool(usage.get("mem_bytes", 0) > 90 * 2**20)

    await wait_until_async(uses_memory, 60, "the memory in use")
    with pytest.raises(Conflict, match="of memory, more than mem=64m"):
        await user.post(f"{path}/resize", {"resources": {"mem": "64m"}})
    assert (await user.get(path))["requested"]["mem"] == "512m"


async def test_a_cancelled_or_failed_commit_leaves_no_image(
    calls: DockerCalls, engine: DockerEngine
) -> None:
    mark = uuid.uuid4().hex
    source = await asyncio.to_thread(
        engine.client.containers.run,
        base_image(engine),
        ["sleep", "60"],
        detach=True,
        labels={"bai.test": mark},
    )
    filters = {"label": [f"bai.test={mark}"]}
    ids = {"session_id": str(uuid.uuid4()), "kernel_id": str(uuid.uuid4())}
    has_begun = asyncio.Event()

    def start(image: str, **options: bool) -> asyncio.Task[dict[str, Any]]:
        request = CommitRequest(id="commit-1", image=image, **ids, **options)
        return asyncio.create_task(commit(calls, filters, request, lambda *_: has_begun.set()))

    def names() -> set[str]:
        return {name for image in engine.client.images.list() for name in image.tags}

    stopped, refused, done = (f"localhost/custom/user/{mark}:{n}" for n in ("1", "2", "3"))
    cancelled = start(stopped)
    await has_begun.wait()
    cancelled.cancel()
    with pytest.raises(Unavailable, match="cannot be pushed"):
        # The push fails, because there is no registry. Commits run one after another, so the
        # cancelled one has ended before this one fails.
        await start(refused.replace("localhost", "registry.invalid"), is_pushed=True)
    await start(done)
    try:
        found = await asyncio.to_thread(names)
        assert {name for name in found if mark in name} == {done}
    finally:
        await asyncio.to_thread(engine.client.images.remove, done)
        await asyncio.to_thread(source.remove, force=True)
