"""Sessions on several machines: nodes of a Swarm in network namespaces join a running Hub."""

from __future__ import annotations

import os
import secrets
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from tests.e2e.conftest import LISTEN_ON_ALL_ADDRESSES
from tests.e2e.sessions import JSON, checked, stop, wait_for
from tests.e2e.test_cluster_sessions import three_kernels_allowed
from tests.hub import RunningHub
from tests.testbed import ComponentMissing, images, nodes, swarm
from tests.testbed.docker_engine import DockerEngine
from tests.testbed.jupyter import JupyterServer
from tests.testbed.nodes import Node
from tests.testbed.skip import skip_or_fail
from tests.testbed.wait import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.docker]

GROUP = "nodes"
USERS = ("user", "user2", "domain-admin", "admin")
SESSIONS = int(os.environ.get("BAI_NODE_SESSIONS", "4"))
CONNECT = (
    "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), 3).close(); "
    "print('reached')"
)


@dataclass(frozen=True)
class Cluster:
    """The Hub, two further machines, and an image that they have."""

    hub: RunningHub
    nodes: list[Node]
    image: str

    def node_of(self, session: JSON) -> Node:
        (name,) = {kernel["agent"] for kernel in session["kernels"]}
        return next(node for node in self.nodes if node.agent_id == name)

    def run(self, session: JSON, *command: str) -> str:
        """Run a command in the main kernel, and return its output."""
        (kernel,) = [one for one in session["kernels"] if one["hostname"] == "main1"]
        node = next(node for node in self.nodes if node.agent_id == kernel["agent"])
        return node.engine.run("exec", f"bai-{session['id']}-main1", *command)

    def start(self, username: str, **fields: object) -> JSON:
        """Create a session, wait until it is RUNNING, and return it."""
        created = self.create(username, **fields)
        return wait_for(self.hub.rest(username), created["id"], "RUNNING")

    def create(self, username: str, **fields: object) -> JSON:
        body = {"resource_group": GROUP, "image": self.image, "project": "default", **fields}
        body.setdefault("resources", {"cpu": "1", "mem": "512m"})
        body["name"] = f"node-{secrets.token_hex(4)}"
        created: JSON = checked(self.hub.rest(username).post("/sessions", json=body), 201)
        return created


@pytest.fixture(scope="module")
def cluster(
    docker_engine: DockerEngine, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("nodes")
    with ExitStack() as stack:
        try:
            image = images.minimal_image(docker_engine)
            engines = stack.enter_context(swarm.running(2))
        except ComponentMissing as reason:
            skip_or_fail("docker", reason)
        for engine in engines:
            swarm.copy_image(image, docker_engine, engine)
        yield stack.enter_context(_cluster(docker_engine, engines, image, folder))


@contextmanager
def _cluster(
    own: DockerEngine, engines: list[DockerEngine], image: str, folder: Path
) -> Iterator[Cluster]:
    further = folder / "further.py"
    further.write_text(LISTEN_ON_ALL_ADDRESSES)
    address = nodes.gateway(engines[0])
    environment = {"DOCKER_HOST": own.host, "BAI_IMAGE": image, "BAI_CONFIG": str(further)}
    environment |= {"BAI_INTERNAL_ADDRESS": address, "BAI_SWARM_HOST": engines[0].host}
    hub = RunningHub(folder / "hub", "docker", environment)
    try:
        hub.start()
        admin = hub.rest("admin")
        checked(admin.post("/resource-groups", json={"name": GROUP, "engine": "docker"}), 201)
        checked(admin.put(f"/resource-groups/{GROUP}/links/domain/default"), 200, 204)
        invitation = {"resource_group": GROUP}
        tokens = [
            checked(admin.post("/agent-invitations", json=invitation), 201)["token"]
            for _ in engines
        ]
        with nodes.joined(f"http://{address}:{hub.port}", tokens, engines, folder) as joined:
            wait_until(lambda: _alive(admin) == len(joined), 60, "the agents to register")
            yield Cluster(hub, joined, image)
    finally:
        hub.stop()


def _alive(admin: httpx.Client) -> int:
    query = {"resource_group": GROUP, "status": "ALIVE"}
    return int(checked(admin.get("/agents", params=query), 200)["total"])


def server_of(hub: RunningHub, session: JSON, username: str) -> JupyterServer:
    token = hub.rest(username).headers["Authorization"].split()[1]
    return JupyterServer(hub.url + session["url"], token)


def reaches(command: list[str], address: str, port: int) -> bool:
    done = subprocess.run(
        [*command, "python3", "-c", CONNECT, address, str(port)], capture_output=True, text=True
    )
    return done.stdout.strip() == "reached"


def test_sessions_of_four_users_on_two_nodes_open_through_the_proxy(cluster: Cluster) -> None:
    rest = cluster.hub.rest("user")
    folder = checked(rest.post("/vfolders", json={"name": "across-nodes"}), 201)
    large = {
        "resources": {"cpu": "1", "mem": "5g"},  # two such sessions do not fit on one node
        "mounts": [{"vfolder": folder["name"], "path": "data", "permission": "rw"}],
    }
    sessions = [("user", cluster.create("user", **large)) for _ in range(2)]
    for number in range(SESSIONS):
        username = USERS[number % len(USERS)]
        sessions.append((username, cluster.create(username)))
    try:
        sessions = [
            (username, wait_for(cluster.hub.rest(username), session["id"], "RUNNING"))
            for username, session in sessions
        ]
        writer, reader = sessions[0][1], sessions[1][1]
        assert cluster.node_of(writer) != cluster.node_of(reader)
        for username, session in sessions:
            page = server_of(cluster.hub, session, username).request("GET", "api/status")
            assert page.status_code == 200, (username, session)
        # A file that is written on one node can be read on the other.
        cluster.run(writer, "sh", "-c", "echo from another node > data/note.txt")
        assert cluster.run(reader, "cat", "data/note.txt") == "from another node"
    finally:
        for username, session in sessions:
            stop(cluster.hub.rest(username), session["id"])
        checked(rest.delete(f"/vfolders/{folder['id']}"), 204)


def test_kernels_of_a_cluster_session_run_on_two_nodes(cluster: Cluster) -> None:
    with three_kernels_allowed(cluster.hub):
        session = cluster.start(
            "user",
            cluster_size=2,
            cluster_mode="multi-node",
            resources={"cpu": "1", "mem": "5g"},  # for each kernel
        )
        try:
            assert len({kernel["agent"] for kernel in session["kernels"]}) == 2
            page = server_of(cluster.hub, session, "user").request("GET", "api/status")
            assert page.status_code == 200
            assert cluster.run(session, "ssh", "sub1", "hostname") == "sub1"
        finally:
            stop(cluster.hub.rest("user"), session["id"])


def test_only_the_machine_of_the_hub_reaches_the_published_port(cluster: Cluster) -> None:
    mine = cluster.start("user")
    theirs = cluster.start("user2")
    try:
        node = cluster.node_of(mine)
        (other,) = (one for one in cluster.nodes if one != node)
        name = f"bai-{mine['id']}-main1"
        published = node.engine.client.api.port(name, 8888)
        (address, port) = published[0]["HostIp"], int(published[0]["HostPort"])
        assert address == node.address
        assert reaches([], address, port)
        # Another machine of the network.
        assert not reaches(other.command(), address, port)
        # The session of another user, on any node.
        container = f"bai-{theirs['id']}-main1"
        inside = ["docker", "-H", cluster.node_of(theirs).engine.host, "exec", container]
        assert not reaches(inside, address, port)
        assert reaches(inside, *_hub_address(inside))
    finally:
        stop(cluster.hub.rest("user"), mine["id"])
        stop(cluster.hub.rest("user2"), theirs["id"])


def _hub_address(inside: list[str]) -> tuple[str, int]:
    """Return address and port of the Hub's API, from the environment of a session."""
    done = subprocess.run([*inside, "env"], capture_output=True, text=True, check=True)
    variables = dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)
    url = httpx.URL(variables["JUPYTERHUB_API_URL"])
    return url.host, url.port or 80
