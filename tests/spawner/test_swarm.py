"""Cluster sessions on several nodes of a Docker Swarm: kernels connect to each other by name."""

from __future__ import annotations

import asyncio
import ipaddress
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

import pytest

from bai_services.agent.docker.calls import DockerCalls
from bai_services.agent.docker.networks import Networks
from bai_services.agent.kernels import Cluster
from bai_services.core.errors import Unavailable
from bai_services.core.sessions.launch_plan import LaunchPlan
from bai_services.engines.base import EngineError, Running
from bai_services.engines.docker import DockerEngine as Docker
from bai_spawner import kernel_group
from tests.spawner.test_kernel_group import kernel_group_plan
from tests.testbed import ComponentMissing, images, swarm
from tests.testbed.docker_engine import DockerEngine
from tests.testbed.skip import skip_or_fail
from tests.testbed.wait import wait_until_async

pytestmark = [
    pytest.mark.docker,
    pytest.mark.filterwarnings(
        "ignore:Exception ignored in. <socket:pytest.PytestUnraisableExceptionWarning"
    ),
]

SLEEP = ["sleep", "600"]
POOL = ipaddress.IPv4Network("10.251.0.0/24")
SERVER = "import socket; s = socket.create_server(('', 9000)); [s.accept() for _ in range(9)]"
CONNECT = "import socket, sys; socket.create_connection((sys.argv[1], 9000), 3); print('reached')"


@pytest.fixture(scope="module")
def nodes(docker_engine: DockerEngine) -> Iterator[list[DockerEngine]]:
    """Provide the engines of a two-node Swarm, the Swarm manager first, with the base image."""
    try:
        image = images.base_image(docker_engine)
        context = swarm.running(2)
        engines = context.__enter__()
    except ComponentMissing as reason:
        skip_or_fail("docker", reason)
    try:
        swarm.copy_image(image, docker_engine, *engines)
        yield engines
    finally:
        context.__exit__(None, None, None)


class Nodes:
    """The networks of the agents on all nodes, and the Hub's engine, which starts the kernels."""

    def __init__(self, nodes: list[DockerEngine], image: str) -> None:
        self.nodes = nodes
        self.image = image
        self._shared: dict[str, Any] = {}
        self.engine = Docker(self._shared, stop_grace_seconds=1)
        self._calls = [DockerCalls(node.host, 60) for node in nodes]
        self.networks = [
            Networks(calls, f"machine-{n}", POOL, 28) for n, calls in enumerate(self._calls)
        ]

    async def close(self) -> None:
        for calls in self._calls:
            await asyncio.to_thread(calls.close)
        self._shared["docker"].close()

    async def prepare_network(self, user: str, *nodes: int) -> LaunchPlan:
        """Prepare the network of a session, as the agents do; return the plan of the session.

        ``nodes`` has the number of the node for each kernel.
        """
        cluster = Cluster(f"bai-c-{uuid.uuid4()}", is_spread=len(set(nodes)) > 1)
        agents = [self.networks[n].ensure_cluster(cluster, user) for n in sorted(set(nodes))]
        assert set(await asyncio.gather(*agents)) == {cluster.network}
        return self.plan(cluster.network, user, *nodes)

    def plan(self, network: str, user: str, *nodes: int) -> LaunchPlan:
        given = {"image": self.image, "user": user, "engine": "docker", "command": SLEEP}
        plan = kernel_group_plan(
            len(nodes), lambda host: {"network": network}, **given, sub_command=SLEEP
        )
        main, *subs = (self.nodes[n].host for n in nodes)
        placed = [replace(sub, endpoint=host) for sub, host in zip(plan.subs, subs, strict=True)]
        return replace(plan, endpoint=main, subs=tuple(placed))

    @asynccontextmanager
    async def running(self, plan: LaunchPlan) -> AsyncIterator[Running]:
        started = await kernel_group.start(self.engine, plan, {}, [])
        try:
            yield started
        finally:
            await kernel_group.stop(self.engine, started, now=True)
            await kernel_group.remove(self.engine, started)

    async def run(self, kernel: Running, *command: str) -> tuple[int, str]:
        """Run a command inside a kernel; return its exit code and output."""
        node = next(node for node in self.nodes if node.host == kernel.endpoint)
        container = node.client.containers.get(kernel.container_id)
        code, output = await asyncio.to_thread(container.exec_run, list(command))
        return int(code), output.decode().strip()

    async def reaches(self, kernel: Running, host: str) -> bool:
        code, text = await self.run(kernel, "python3", "-c", CONNECT, host)
        return (code, text) == (0, "reached")

    async def serve(self, kernel: Running) -> None:
        node = next(node for node in self.nodes if node.host == kernel.endpoint)
        container = node.client.containers.get(kernel.container_id)
        await asyncio.to_thread(container.exec_run, ["python3", "-c", SERVER], detach=True)

        async def listens() -> bool:
            return await self.reaches(kernel, "127.0.0.1")

        await wait_until_async(listens, 30, "a server in the kernel")


@pytest.fixture
async def swarm_nodes(
    nodes: list[DockerEngine], docker_engine: DockerEngine
) -> AsyncIterator[Nodes]:
    swarm_nodes = Nodes(nodes, images.base_image(docker_engine))
    yield swarm_nodes
    await swarm_nodes.close()


@pytest.mark.checklist("CLU-02")
async def test_kernels_on_two_nodes_reach_only_their_own_session(
    swarm_nodes: Nodes,
) -> None:
    anns, bobs = (
        await swarm_nodes.prepare_network("ann", 0, 1),
        await swarm_nodes.prepare_network("bob", 1, 0),
    )
    async with swarm_nodes.running(anns) as mine, swarm_nodes.running(bobs) as theirs:
        (my_sub,), (their_sub,) = mine.subs, theirs.subs
        assert (mine.endpoint, my_sub.endpoint) == tuple(n.host for n in swarm_nodes.nodes)
        for kernel in (mine, my_sub, theirs, their_sub):
            await swarm_nodes.serve(kernel)
        addresses = {}
        for kernel in (mine, my_sub, theirs, their_sub):
            for name in ("main1", "sub1"):
                assert await swarm_nodes.reaches(kernel, name), (kernel.hostname, name)
            code, text = await swarm_nodes.run(kernel, "hostname", "-i")
            assert code == 0
            addresses[kernel.kernel_id] = text.split()
        # Kernels of other sessions have the same names; a name resolves to the kernel of the same
        # session.
        code, entry = await swarm_nodes.run(my_sub, "getent", "hosts", "main1")
        assert code == 0 and entry.split()[0] in addresses[mine.kernel_id]
        # The node of the main kernel, on which the Hub may run, can connect to that kernel.
        machine = swarm_nodes.nodes[0].client.info()["Name"]
        inside = ["nsenter", f"--net=/var/run/netns/{machine}", "python3", "-c", CONNECT]
        host = urlsplit(mine.url).hostname or ""
        reached = await asyncio.create_subprocess_exec(*inside, host)
        assert await reached.wait() == 0
        attempts = [
            swarm_nodes.reaches(kernel, address)
            for target in (theirs, their_sub)
            for address in addresses[target.kernel_id]
            for kernel in (mine, my_sub)
        ]
        assert not any(await asyncio.gather(*attempts))


async def test_unused_overlay_network_is_removed(swarm_nodes: Nodes) -> None:
    plan = await swarm_nodes.prepare_network("ann", 0, 1)
    manager = swarm_nodes.networks[0]
    async with swarm_nodes.running(plan):
        assert plan.injection.network not in await manager.remove_unused(0)
    # An agent that did not create the network does not remove it.
    assert await swarm_nodes.networks[1].remove_unused(0) == []

    async def is_removed() -> bool:
        return plan.injection.network in await manager.remove_unused(0)

    await wait_until_async(is_removed, 30, "the removal of the network")


async def test_concurrent_calls_create_only_one_network(swarm_nodes: Nodes) -> None:
    cluster = Cluster(f"bai-c-{uuid.uuid4()}", is_spread=True)
    calls = DockerCalls(swarm_nodes.nodes[0].host, 60)
    other = Networks(calls, "machine-9", POOL, 28)
    await asyncio.gather(
        *(networks.ensure_cluster(cluster, "ann") for networks in (swarm_nodes.networks[0], other))
    )
    await asyncio.to_thread(calls.close)
    client = swarm_nodes.nodes[0].client
    assert [n.name for n in client.networks.list(names=[cluster.network])] == [cluster.network]
    client.networks.get(cluster.network).remove()


async def test_start_without_a_swarm_manager_names_the_missing_network(swarm_nodes: Nodes) -> None:
    # Only the agent on the Swarm manager creates the network, and no kernel is placed there.
    cluster = Cluster(f"bai-c-{uuid.uuid4()}", is_spread=True)
    await swarm_nodes.networks[1].ensure_cluster(cluster, "ann")
    plan = swarm_nodes.plan(cluster.network, "ann", 1, 1)
    with pytest.raises(EngineError, match=f"network.*{cluster.network}") as caught:
        async with swarm_nodes.running(plan):
            raise AssertionError("the session has started")
    assert "Swarm manager" in str(caught.value)


async def test_node_outside_of_a_swarm_is_an_error(docker_engine: DockerEngine) -> None:
    calls = DockerCalls(docker_engine.host, 60)
    networks = Networks(calls, "alone", POOL, 28)
    cluster = Cluster(f"bai-c-{uuid.uuid4()}", is_spread=True)
    with pytest.raises(
        Unavailable, match="requires a Docker Swarm, but this machine is not part of one"
    ):
        await networks.ensure_cluster(cluster, "ann")
    await asyncio.to_thread(calls.close)
