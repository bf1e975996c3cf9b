"""Sessions on several machines: nodes of a Swarm in network namespaces join a running Hub."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack

import httpx
import pytest

from tests.e2e.cluster import Cluster, running
from tests.e2e.sessions import JSON, checked, stop, wait_for
from tests.e2e.test_cluster_sessions import three_kernels_allowed
from tests.hub import RunningHub
from tests.testbed import ComponentMissing
from tests.testbed.docker_engine import DockerEngine
from tests.testbed.jupyter import JupyterServer
from tests.testbed.skip import skip_or_fail
from tests.testbed.wait import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.docker]

USERS = ("user", "user2", "domain-admin", "admin")
SESSIONS = int(os.environ.get("BAI_NODE_SESSIONS", "4"))
CONNECT = (
    "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), 3).close(); "
    "print('reached')"
)


@pytest.fixture(scope="module")
def cluster(
    docker_engine: DockerEngine, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    with ExitStack() as stack:
        try:
            made = stack.enter_context(running(docker_engine, tmp_path_factory.mktemp("nodes")))
        except ComponentMissing as reason:
            skip_or_fail("docker", reason)
        yield made


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


def test_partitioned_node_stops_its_batch_session_which_then_runs_elsewhere(
    cluster: Cluster,
) -> None:
    rest = cluster.hub.rest("user")
    folder = checked(rest.post("/vfolders", json={"name": "partition"}), 201)
    batch = cluster.start_counting("user", folder)
    node = cluster.node_of(batch)
    interactive = cluster.start("admin", agent_list=[node.agent_id])
    container = node.engine.client.containers.get(f"bai-{interactive['id']}-main1")
    node.cut()
    try:
        again = cluster.wait_for_restart("user", batch["id"])
        assert cluster.node_of(again) != node
        waiting = checked(cluster.hub.rest("admin").get(f"/sessions/{interactive['id']}"), 200)
        assert waiting["status"] == "RUNNING"
        assert waiting["status_coded"]["code"] == "agent-silent"
        node.reconnect()
        wait_until(lambda: not _status_info(cluster, "admin", interactive), 60, "the agent")
        # The interactive session was not stopped.
        container.reload()
        assert container.status == "running"
        page = server_of(cluster.hub, interactive, "admin").request("GET", "api/status")
        assert page.status_code == 200
        assert f"bai-{batch['id']}-main1" not in node.engine.run("ps", "--format", "{{.Names}}")
        lines = [line.split() for line in cluster.run(again, "cat", "count/log").splitlines()]
        first = [float(at) for attempt, at in lines if attempt == "0"]
        second = [float(at) for attempt, at in lines if attempt == "1"]
        assert max(first) < min(second)
        # The node has sent the output of the first attempt, with what it wrote after SIGTERM.
        log = wait_until(lambda: _log_with(cluster, batch, "saved"), 60, "the output")
        lines_of_interest = ("attempt", "saved", "-----")
        outputs = [
            line.split(" at ")[0] for line in log.splitlines() if line.startswith(lines_of_interest)
        ]
        assert outputs == ["attempt 0", "saved", "----- attempt 1 ended", "attempt 1"], log
    finally:
        node.reconnect()
        stop(rest, batch["id"])
        stop(cluster.hub.rest("admin"), interactive["id"])
        checked(rest.delete(f"/vfolders/{folder['id']}"), 204)


def _log_with(cluster: Cluster, session: JSON, text: str) -> str:
    """Return the log of a session if it contains a text, else ""."""
    path = f"/sessions/{session['id']}/logs"
    log = str(checked(cluster.hub.rest("user").get(path), 200)["log"])
    return log if text in log else ""


def _status_info(cluster: Cluster, username: str, session: JSON) -> str:
    found = checked(cluster.hub.rest(username).get(f"/sessions/{session['id']}"), 200)
    return str(found["status_info"])


def _hub_address(inside: list[str]) -> tuple[str, int]:
    """Return address and port of the Hub's API, from the environment of a session."""
    done = subprocess.run([*inside, "env"], capture_output=True, text=True, check=True)
    variables = dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)
    url = httpx.URL(variables["JUPYTERHUB_API_URL"])
    return url.host, url.port or 80
