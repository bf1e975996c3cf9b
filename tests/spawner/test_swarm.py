"""Cluster sessions over the machines of a Docker Swarm: kernels reach each other by name."""

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
from bai_spawner import kernel_group
from bai_spawner.engines.base import EngineError, Running
from bai_spawner.engines.docker import DockerEngine as Docker
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
    """The engines of a two-machine Swarm, the manager first, with the base image."""
    try:
        image = images.base_image(docker_engine)
        made = swarm.running(2)
        engines = made.__enter__()
    except ComponentMissing as reason:
        skip_or_fail("docker", reason)
    try:
        for engine in engines:
            swarm.copy_image(image, docker_engine, engine)
        yield engines
    finally:
        made.__exit__(None, None, None)


class Machines:
    """The networks of each agent of the Swarm, and the Hub's engine that starts kernels on all of
    them.
    """

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

    async def prepared(self, user: str, *places: int) -> LaunchPlan:
        """Prepare a session with a kernel on each of these machines, as their agents do."""
        cluster = Cluster(f"bai-c-{uuid.uuid4()}", is_spread=len(set(places)) > 1)
        agents = [self.networks[n].ensure_cluster(cluster, user) for n in sorted(set(places))]
        assert set(await asyncio.gather(*agents)) == {cluster.network}
        return self.plan(cluster.network, user, *places)

    def plan(self, network: str, user: str, *places: int) -> LaunchPlan:
        given = {"image": self.image, "user": user, "engine": "docker", "command": SLEEP}
        plan = kernel_group_plan(
            len(places), lambda host: {"network": network}, **given, sub_command=SLEEP
        )
        main, *subs = (self.nodes[n].host for n in places)
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
        """Run a command inside a kernel; return its exit code and its output."""
        node = next(node for node in self.nodes if node.host == kernel.endpoint)
        container = node.client.containers.get(kernel.container_id)
        code, output = await asyncio.to_thread(container.exec_run, list(command))
        return int(code), output.decode().strip()

    async def reaches(self, kernel: Running, where: str) -> bool:
        code, text = await self.run(kernel, "python3", "-c", CONNECT, where)
        return (code, text) == (0, "reached")

    async def serve(self, kernel: Running) -> None:
        node = next(node for node in self.nodes if node.host == kernel.endpoint)
        container = node.client.containers.get(kernel.container_id)
        await asyncio.to_thread(container.exec_run, ["python3", "-c", SERVER], detach=True)

        async def listens() -> bool:
            return await self.reaches(kernel, "127.0.0.1")

        await wait_until_async(listens, 30, "a server in the kernel")


@pytest.fixture
async def machines(
    nodes: list[DockerEngine], docker_engine: DockerEngine
) -> AsyncIterator[Machines]:
    made = Machines(nodes, images.base_image(docker_engine))
    yield made
    await made.close()


async def test_kernels_on_two_machines_reach_each_other_and_nobody_elses(
    machines: Machines,
) -> None:
    anns, bobs = await machines.prepared("ann", 0, 1), await machines.prepared("bob", 1, 0)
    async with machines.running(anns) as mine, machines.running(bobs) as theirs:
        (my_sub,), (their_sub,) = mine.subs, theirs.subs
        assert (mine.endpoint, my_sub.endpoint) == tuple(n.host for n in machines.nodes)
        for kernel in (mine, my_sub, theirs, their_sub):
            await machines.serve(kernel)
        addresses = {}
        for kernel in (mine, my_sub, theirs, their_sub):
            for name in ("main1", "sub1"):
                assert await machines.reaches(kernel, name), (kernel.hostname, name)
            code, text = await machines.run(kernel, "hostname", "-i")
            assert code == 0
            addresses[kernel.kernel_id] = text.split()
        # Equal names on other machines: only those of one's own session respond, also on the same
        # machine.
        code, found = await machines.run(my_sub, "getent", "hosts", "main1")
        assert code == 0 and found.split()[0] in addresses[mine.kernel_id]
        # The machine of the main kernel reaches it; so a Hub on that machine does, too.
        machine = machines.nodes[0].client.info()["Name"]
        inside = ["nsenter", f"--net=/var/run/netns/{machine}", "python3", "-c", CONNECT]
        host = urlsplit(mine.url).hostname or ""
        reached = await asyncio.create_subprocess_exec(*inside, host)
        assert await reached.wait() == 0
        attempts = [
            machines.reaches(kernel, address)
            for target in (theirs, their_sub)
            for address in addresses[target.kernel_id]
            for kernel in (mine, my_sub)
        ]
        assert not any(await asyncio.gather(*attempts))


async def test_a_network_over_machines_is_tidied_away(machines: Machines) -> None:
    plan = await machines.prepared("ann", 0, 1)
    manager = machines.networks[0]
    async with machines.running(plan):
        assert plan.injection.network not in await manager.tidy(0)
    # Whichever agent tries: only the one that created the network may remove it.
    assert await machines.networks[1].tidy(0) == []

    async def is_removed() -> bool:
        return plan.injection.network in await manager.tidy(0)

    await wait_until_async(is_removed, 30, "its removal")


async def test_making_it_twice_at_once_makes_one(machines: Machines) -> None:
    cluster = Cluster(f"bai-c-{uuid.uuid4()}", is_spread=True)
    calls = DockerCalls(machines.nodes[0].host, 60)
    other = Networks(calls, "machine-9", POOL, 28)
    await asyncio.gather(
        *(networks.ensure_cluster(cluster, "ann") for networks in (machines.networks[0], other))
    )
    await asyncio.to_thread(calls.close)
    client = machines.nodes[0].client
    assert [n.name for n in client.networks.list(names=[cluster.network])] == [cluster.network]
    client.networks.get(cluster.network).remove()


async def test_without_a_manager_among_them_the_start_says_so(machines: Machines) -> None:
    # The only machine that could create the network has no kernel of the session.
    cluster = Cluster(f"bai-c-{uuid.uuid4()}", is_spread=True)
    await machines.networks[1].ensure_cluster(cluster, "ann")
    plan = machines.plan(cluster.network, "ann", 1, 1)
    with pytest.raises(EngineError, match=f"network.*{cluster.network}") as refused:
        async with machines.running(plan):
            raise AssertionError("it has started")
    assert "Swarm manager" in str(refused.value)


async def test_a_machine_in_no_swarm_says_what_is_missing(docker_engine: DockerEngine) -> None:
    calls = DockerCalls(docker_engine.host, 60)
    networks = Networks(calls, "alone", POOL, 28)
    cluster = Cluster(f"bai-c-{uuid.uuid4()}", is_spread=True)
    with pytest.raises(
        Unavailable, match="requires a Docker Swarm, but this machine is not part of one"
    ):
        await networks.ensure_cluster(cluster, "ann")
    await asyncio.to_thread(calls.close)
