"""Egress policies on a real Docker engine: which addresses containers can reach."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from docker.models.containers import Container

from bai_services.agent.docker.calls import DockerCalls
from bai_services.agent.docker.containers import DockerEngine as Agent
from bai_services.agent.docker.egress import Egress, name_servers
from bai_services.agent.docker.image_uses import ImageUses
from bai_services.agent.docker.layers import Layers
from bai_services.agent.docker.networks import CLUSTER_PREFIX, Networks, read_pool
from bai_services.agent.docker.runtime import Runtime
from bai_services.agent.kernels import Cluster, Task
from bai_services.core.cluster.egress import Chains, Policy, Target, parse_targets
from tests.testbed import ComponentMissing, second_machine
from tests.testbed.docker_engine import DockerEngine
from tests.testbed.images import base_image
from tests.testbed.ports import free_port
from tests.testbed.second_machine import SecondMachine
from tests.testbed.skip import skip_or_fail
from tests.testbed.wait import wait_until

pytestmark = [pytest.mark.docker, pytest.mark.usefixtures("refused_sockets")]

PORT = 8000
# Prints the outcome of a connection to each address: reached, timeout, or refused (another error).
PROBE = """
import json, socket, sys
found = []
for host, port in json.loads(sys.argv[1]):
    try:
        socket.create_connection((host, port), timeout=3).close()
        found.append("reached")
    except TimeoutError:
        found.append("timeout")
    except OSError as error:
        found.append("refused")
print(json.dumps(found))
"""


@dataclass(frozen=True)
class Neighbours:
    """Other machines that listen on ``PORT``; ``here`` is a port on which this machine listens."""

    public: SecondMachine
    private: SecondMachine
    link_local: SecondMachine
    here: int


@contextmanager
def listening(words: list[str], address: str, port: int) -> Iterator[None]:
    server = [*words, sys.executable, "-m", "http.server", str(port), "--bind", address]
    process = subprocess.Popen(server, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        probe_command = [*words, sys.executable, "-c", PROBE, json.dumps([["127.0.0.1", port]])]
        wait_until(
            lambda: b"reached" in subprocess.check_output(probe_command),
            20,
            "the HTTP server to respond",
        )
        yield
    finally:
        process.kill()
        process.wait()


@pytest.fixture(scope="module")
def neighbours() -> Iterator[Neighbours]:
    with ExitStack() as stack:
        try:
            # 11.0.0.0/8 is public address space, so the default policy allows it.
            machines = [
                stack.enter_context(second_machine.running(network))
                for network in ("11.77", "198.19", "169.254")
            ]
        except ComponentMissing as reason:
            skip_or_fail("docker", reason)
        for machine in machines:
            stack.enter_context(listening(machine.command(), "0.0.0.0", PORT))
        port = free_port()
        stack.enter_context(listening([], "0.0.0.0", port))
        yield Neighbours(*machines, here=port)


@dataclass
class AgentNetworks:
    """The networks of one agent, and the containers on these networks."""

    engine: DockerEngine
    calls: DockerCalls
    agent_id: str
    image_uses: Path

    def agent(self, policy: Policy = Policy.DEFAULT, allowed: str = "", url: str = "") -> Agent:
        pool = read_pool("10.250.0.0/20", 26)
        return Agent(
            self.agent_id,
            self.calls,
            Networks(self.calls, self.agent_id, pool, 26),
            Egress(self.agent_id, policy, parse_targets(allowed), [url]),
            Layers(self.calls, 0),
            ImageUses(self.image_uses, 0),
            Runtime(self.calls, "", self.image_uses.with_name("image-facts.json")),
            endpoint=self.engine.host,
            stop_grace_seconds=0,
        )

    async def container(self, agent: Agent, user: str, cluster: Cluster | None = None) -> Container:
        ids = str(uuid.uuid4()), str(uuid.uuid4())
        image = await asyncio.to_thread(base_image, self.engine)
        task = Task("w", "prepare", *ids, image=image, user=user, cluster=cluster)
        prepared = await agent.prepare(task, lambda *_: None)
        return await asyncio.to_thread(
            self.engine.client.containers.run,
            image,
            ["python3", "-m", "http.server", str(PORT)],
            detach=True,
            init=True,
            labels={"bai.agent-id": self.agent_id},
            network=prepared.network,
            cap_drop=["ALL"],
        )

    def rules(self) -> str:
        key = Chains.of(self.agent_id).forwarded.removesuffix("-FWD")
        found = []
        for program in ("iptables", "ip6tables"):
            text = subprocess.check_output([program, "-w", "-S"], text=True)
            found += [line for line in text.splitlines() if key in line]
        return "\n".join(found)


@pytest.fixture
async def agent_networks(
    docker_engine: DockerEngine, tmp_path: Path
) -> AsyncIterator[AgentNetworks]:
    calls = DockerCalls(docker_engine.host, 30)
    made = AgentNetworks(
        docker_engine, calls, f"egress-{uuid.uuid4().hex[:8]}", tmp_path / "image-uses.json"
    )
    yield made
    label = {"label": f"bai.agent-id={made.agent_id}"}
    for container in docker_engine.client.containers.list(all=True, filters=label):
        container.remove(force=True)
    for network in docker_engine.client.networks.list(filters=label):
        network.remove()
    await made.agent(Policy.OPEN).close()
    calls.close()
    assert made.rules() == ""


def drop_jump(parent: str, chain: str) -> None:
    """Remove the rule that jumps from ``parent`` to ``chain``, as a firewall reload does."""
    subprocess.run(["iptables", "-w", "-D", parent, "-j", chain], check=True)


async def probe(container: Container, *targets: tuple[str, int]) -> list[str]:
    done = await asyncio.to_thread(
        container.exec_run, ["python3", "-c", PROBE, json.dumps(targets)]
    )
    assert done.exit_code == 0, done.output
    return list(json.loads(done.output))


def address_of(container: Container) -> str:
    container.reload()
    (about,) = container.attrs["NetworkSettings"]["Networks"].values()
    return str(about["IPAddress"])


def gateway_of(container: Container) -> str:
    container.reload()
    (about,) = container.attrs["NetworkSettings"]["Networks"].values()
    return str(about["Gateway"])


async def test_default_policy_allows_internet_and_hub_only(
    agent_networks: AgentNetworks, neighbours: Neighbours
) -> None:
    hub = free_port()
    with listening([], "0.0.0.0", hub):
        agent = agent_networks.agent(url=f"http://{neighbours.public.peer_address}:{hub}/hub/api")
        mine = await agent_networks.container(agent, "ann")
        assert await probe(
            mine,
            (neighbours.public.address, PORT),
            (neighbours.public.peer_address, hub),
            (neighbours.public.peer_address, neighbours.here),
            (gateway_of(mine), neighbours.here),
            (neighbours.private.address, PORT),
            (neighbours.link_local.address, PORT),
        ) == ["reached", "reached", "refused", "refused", "refused", "refused"]
    facts = await agent.facts()
    assert facts["egress"] == {"policy": "default", "is_enforced": True, "problem": ""}
    assert facts["notices"] == []


async def test_containers_reach_only_containers_on_the_same_network(
    agent_networks: AgentNetworks,
) -> None:
    agent = agent_networks.agent()
    cluster = Cluster(f"{CLUSTER_PREFIX}{uuid.uuid4()}")
    one, two = (
        await agent_networks.container(agent, "ann"),
        await agent_networks.container(agent, "ann"),
    )
    other = await agent_networks.container(agent, "ben")
    main = await agent_networks.container(agent, "ann", cluster)
    sub = await agent_networks.container(agent, "ann", cluster)
    targets = [(address_of(c), PORT) for c in (two, sub, other)]
    seen = [await probe(one, *targets), await probe(main, *targets)]
    assert [answers[0] for answers in seen] == ["reached", "refused"]
    assert [answers[1] for answers in seen] == ["refused", "reached"]
    assert [answers[2] for answers in seen] == ["refused", "refused"]


async def test_policy_and_allow_list_decide_which_addresses_are_reached(
    agent_networks: AgentNetworks, neighbours: Neighbours
) -> None:
    targets = (
        (neighbours.public.address, PORT),
        (neighbours.private.address, PORT),
        (neighbours.private.peer_address, neighbours.here),
    )
    closed = agent_networks.agent(Policy.CLOSED, f"{neighbours.private.address}:{PORT}")
    mine = await agent_networks.container(closed, "ann")
    assert await probe(mine, *targets) == ["refused", "reached", "refused"]
    allowed = agent_networks.agent(allowed=f"{neighbours.private.address}/24")
    await allowed.facts()
    assert await probe(mine, *targets) == ["reached", "reached", "reached"]
    opened = agent_networks.agent(Policy.OPEN)
    facts = await opened.facts()
    assert (facts["egress"]["is_enforced"], agent_networks.rules()) == (False, "")
    assert await probe(mine, *targets) == ["reached", "reached", "reached"]


async def test_rules_are_restored_after_a_firewall_reload_and_removed_with_the_last_network(
    agent_networks: AgentNetworks, neighbours: Neighbours
) -> None:
    agent = agent_networks.agent()
    mine = await agent_networks.container(agent, "ann")
    target = (neighbours.private.address, PORT)
    chains = Chains.of(agent_networks.agent_id)
    before = agent_networks.rules()
    for parent, chain in (("DOCKER-USER", chains.forwarded), ("INPUT", chains.local)):
        drop_jump(parent, chain)
    assert await probe(mine, target) == ["reached"]
    await agent.facts()
    assert await probe(mine, target) == ["refused"]
    await agent.facts()
    assert sorted(agent_networks.rules().splitlines()) == sorted(before.splitlines())
    # An address that a new session needs is allowed without waiting for the next check.
    drop_jump("INPUT", chains.local)
    agent.allow_url("http://11.99.0.1:8081/hub/api")
    await agent.observe()
    assert "11.99.0.1/32" in agent_networks.rules()
    before += "\n" + "\n".join(
        line for line in agent_networks.rules().splitlines() if "11.99" in line
    )
    assert sorted(agent_networks.rules().splitlines()) == sorted(before.splitlines())
    await asyncio.to_thread(mine.remove, force=True)
    networks = Networks(
        agent_networks.calls, agent_networks.agent_id, read_pool("10.250.0.0/20", 26), 26
    )
    assert len(await networks.remove_unused(0)) == 1
    await agent.facts()
    assert agent_networks.rules() == ""


async def test_agent_without_iptables_reports_unenforced_policy(
    agent_networks: AgentNetworks, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    agent = agent_networks.agent()
    await agent_networks.container(agent, "ann")
    monkeypatch.setenv("PATH", str(tmp_path))
    facts = await agent.facts()
    assert not facts["egress"]["is_enforced"]
    (notice,) = facts["notices"]
    assert "cannot be enforced" in notice and "iptables is not installed" in notice


def test_name_servers_are_read_from_resolv_conf_and_docker_settings(tmp_path: Path) -> None:
    resolver, settings = tmp_path / "resolv.conf", tmp_path / "daemon.json"
    resolver.write_text(
        "search x\nnameserver 127.0.0.53\nnameserver 10.0.0.2\nnameserver fe80::1%e"
    )
    settings.write_text('{"dns": ["1.1.1.1"]}')
    assert name_servers([resolver], settings) == ["1.1.1.1/32", "10.0.0.2/32", "fe80::1/128"]
    assert name_servers([tmp_path / "none"], tmp_path / "none") == []
    assert all(Target(network).version in (4, 6) for network in name_servers())
