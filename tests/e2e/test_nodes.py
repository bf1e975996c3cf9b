"""Sessions on several machines: nodes of a Swarm in network namespaces join a running Hub."""

from __future__ import annotations

import glob
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx
import pytest

from bai_services.agent.agent import CLEANUP_INTERVAL_SECONDS
from bai_services.agent.docker.networks import CLUSTER_PREFIX, CLUSTER_UNUSED_SECONDS
from bai_services.manager.pipelines.templates import built_in_templates
from tests.e2e.cluster import GROUP, Cluster, running
from tests.e2e.node_faults import CYCLES, FaultySoak
from tests.e2e.sessions import JSON, checked, stop, wait_for
from tests.e2e.test_cluster_sessions import (
    assert_allocations_are_consistent,
    three_kernels_allowed,
)
from tests.e2e.test_faults import SEED, active_servers
from tests.hub import RunningHub
from tests.testbed import ComponentMissing, glusterfs, images
from tests.testbed.docker_engine import DockerEngine
from tests.testbed.jupyter import JupyterServer
from tests.testbed.nodes import Node
from tests.testbed.skip import skip_or_fail
from tests.testbed.wait import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.docker]

USERS = ("user", "user2", "domain-admin", "admin")
# With more cycles than this (`make soak`), also wait until the last network has been removed.
CYCLES_WITHOUT_WAIT = 50
SESSIONS = int(os.environ.get("BAI_NODE_SESSIONS", "4"))
# Environment of an agent whose clock is an hour slow, but whose measured durations are correct.
SKEWED_CLOCK = {
    "LD_PRELOAD": next(iter(glob.glob("/usr/lib/*/faketime/libfaketime.so.1")), ""),
    "FAKETIME": "-3600",
    "FAKETIME_DONT_FAKE_MONOTONIC": "1",
}
# Rank 0 contributes 500,000 ones, rank 1 as many twos.
ALL_REDUCE = """
from array import array
from mpi4py import MPI
world = MPI.COMM_WORLD
own = array("d", [world.rank + 1.0]) * 500_000
total = array("d", own)
world.Allreduce([own, MPI.DOUBLE], [total, MPI.DOUBLE])
print(MPI.Get_processor_name(), sum(total) / world.size, flush=True)
"""
CRASHED = """
version: 1
name: crashed-engine
defaults: {image: "IMAGE", resource_group: nodes, resources: {cpu: 1, mem: 256m}}
tasks:
- name: each
  retries: 2
  for_each: {values: [a, b, c]}
  command: |
    until [ -e /pipeline/continue ]; do sleep 0.2; done
    echo "$PIPELINE_ITEM" >> /pipeline/done.txt
"""
# Codes of the reasons with which the sessions of a crashed engine end.
ENGINE_ENDS = {"container-disappeared", "ended-unexpectedly", "command-exited", "command-killed"}
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
            folder = tmp_path_factory.mktemp("nodes")
            image = images.mpi_image(docker_engine)
            made = stack.enter_context(running(docker_engine, folder, size=3, image=image))
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


def test_sessions_with_a_folder_start_only_where_its_file_system_works(cluster: Cluster) -> None:
    """Two nodes have a real network file system, and a third node lacks it."""
    admin = cluster.hub.rest("admin")
    hosts = checked(admin.get("/domains/default"), 200)["allowed_vfolder_hosts"]
    both = {**hosts, "shared": next(iter(hosts.values()))}
    with ExitStack() as stack:
        try:
            folder = Path(stack.enter_context(TemporaryDirectory(prefix="bai-glusterfs-")))
            volume = stack.enter_context(glusterfs.serving(cluster.nodes[0], folder))
        except ComponentMissing as reason:
            skip_or_fail("glusterfs", reason)
        checked(admin.patch("/domains/default", json={"allowed_vfolder_hosts": both}), 200)
        volume.mount(cluster.shared)
        stack.callback(glusterfs.unmount, cluster.shared)
        first, second, third = cluster.nodes
        for node in (first, second):
            volume.mount_on(node, cluster.shared)
            stack.callback(glusterfs.unmount_on, node, cluster.shared)
        # The manager and then the agents check the new file system.
        checked(admin.post("/cluster-checks"), 200, 201)
        wait_for_storage(cluster, (first, ""), (second, ""), (third, "not-mounted"))
        body = {"name": "on-glusterfs", "host": "shared"}
        made = checked(admin.post("/vfolders", json=body), 201)
        mounts = [{"vfolder": made["id"], "path": "data", "permission": "rw"}]

        def start_on(node: Node, **fields: object) -> JSON:
            return cluster.start("admin", agent_list=[node.agent_id], mounts=mounts, **fields)

        writer, reader = start_on(first), start_on(second)
        cluster.run(writer, "sh", "-c", "echo from the first > data/note.txt")
        assert cluster.run(reader, "cat", "data/note.txt") == "from the first"
        assert any(cluster.shared.rglob("note.txt"))
        for session in (writer, reader):
            stop(admin, session["id"])

        def start_elsewhere(node: Node) -> None:
            """Start a session with the folder that would prefer the node."""
            chosen = {"agent_list": [node.agent_id], "agent_selection": "preferred"}
            session = cluster.start("admin", mounts=mounts, **chosen)
            assert cluster.node_of(session) is not node
            # It was never placed on the node: no start has failed.
            assert node.agent_id not in _history(cluster, session)
            stop(admin, session["id"])

        start_elsewhere(third)
        waiting = cluster.create("admin", agent_list=[third.agent_id], mounts=mounts)
        reason = "1 on which storage host shared does not work"
        wait_until(lambda: reason in _status_info(cluster, "admin", waiting), 60, "the reason")
        stop(admin, waiting["id"])
        glusterfs.unmount_on(second, cluster.shared)
        volume.mount_on(second, cluster.shared, read_only=True)
        wait_for_storage(cluster, (second, "read-only"))
        start_elsewhere(second)
        glusterfs.kill_client(second, cluster.shared)
        wait_for_storage(cluster, (second, "failing"))
        start_elsewhere(second)
        checked(admin.delete(f"/vfolders/{made['id']}"), 204)
        checked(admin.patch("/domains/default", json={"allowed_vfolder_hosts": hosts}), 200)


def wait_for_storage(cluster: Cluster, *states: tuple[Node, str]) -> None:
    """Wait until the agents have reported these problems of the storage host ``shared``."""

    def are_reported() -> bool:
        return all(
            cluster.agent(node)["storage_problems"].get("shared", "") == state
            for node, state in states
        )

    wait_until(are_reported, 60, f"the agents to report {[state for _, state in states]}")


def _history(cluster: Cluster, session: JSON) -> str:
    path = f"/sessions/{session['id']}/history"
    return cluster.hub.rest("admin").get(path).text


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
            # mpirun gets hosts and interface from variables.
            output = cluster.run(session, "mpirun", "/usr/bin/python3", "-c", ALL_REDUCE)
            assert sorted(output.splitlines()) == ["main1 750000.0", "sub1 750000.0"]
        finally:
            stop(cluster.hub.rest("user"), session["id"])


def test_only_the_machine_of_the_hub_reaches_the_published_port(cluster: Cluster) -> None:
    mine = cluster.start("user")
    theirs = cluster.start("user2")
    try:
        node = cluster.node_of(mine)
        other = next(one for one in cluster.nodes if one is not node)
        name = f"bai-{mine['id']}-main1"
        published = node.engine.client.api.port(name, 8888)
        (address, port) = published[0]["HostIp"], int(published[0]["HostPort"])
        assert address == node.address
        assert reaches([], address, port)
        # Neither another machine nor the session of another user may reach the port.
        assert not reaches(other.command(), address, port)
        # The session of another user may run on any node.
        container = f"bai-{theirs['id']}-main1"
        inside = ["docker", "-H", cluster.node_of(theirs).engine.host, "exec", container]
        assert not reaches(inside, address, port)
        assert reaches(inside, *_hub_address(inside))
    finally:
        stop(cluster.hub.rest("user"), mine["id"])
        stop(cluster.hub.rest("user2"), theirs["id"])


def test_batch_sessions_of_a_partitioned_node_and_of_a_hanging_agent_run_elsewhere(
    cluster: Cluster,
) -> None:
    """No command runs twice at the same time, not even after node and agent are back."""
    rest = cluster.hub.rest("user")
    folder = checked(rest.post("/vfolders", json={"name": "partition"}), 201)
    batch = cluster.start_counting("user", folder)
    node = cluster.node_of(batch)
    interactive = cluster.start("admin", agent_list=[node.agent_id])
    cluster.set_schedulable(node, False)
    other = cluster.start_counting("user", folder, "other-log")
    hanging = cluster.node_of(other)
    cluster.set_schedulable(node, True)
    container = node.engine.client.containers.get(f"bai-{interactive['id']}-main1")
    node.cut()
    os.kill(hanging.agent.pid, signal.SIGSTOP)
    try:
        again = cluster.wait_for_restart("user", batch["id"])
        other_again = cluster.wait_for_restart("user", other["id"])
        assert not {cluster.node_of(one).agent_id for one in (again, other_again)} & {
            node.agent_id,
            hanging.agent_id,
        }
        waiting = checked(cluster.hub.rest("admin").get(f"/sessions/{interactive['id']}"), 200)
        assert waiting["status"] == "RUNNING"
        assert waiting["status_coded"]["code"] == "agent-silent"
        node.reconnect()
        os.kill(hanging.agent.pid, signal.SIGCONT)
        wait_until(lambda: not _status_info(cluster, "admin", interactive), 60, "the agent")
        wait_until(lambda: cluster.agent(hanging)["status"] == "ALIVE", 60, "the agent")
        # The interactive session was not stopped.
        container.reload()
        assert container.status == "running"
        page = server_of(cluster.hub, interactive, "admin").request("GET", "api/status")
        assert page.status_code == 200
        assert f"bai-{batch['id']}-main1" not in containers(node)
        wait_until(lambda: f"bai-{other['id']}-main1" not in containers(hanging), 60, "the removal")
        for log in ("log", "other-log"):
            lines = [line.split() for line in cluster.run(again, "cat", f"count/{log}").split("\n")]
            first = [float(at) for attempt, at in lines if attempt == "0"]
            second = [float(at) for attempt, at in lines if attempt == "1"]
            assert max(first) < min(second)
        # The node has sent the complete output of the first attempt, also the text written after
        # SIGTERM.
        log = wait_until(lambda: _log_with(cluster, batch, "saved"), 60, "the output")
        lines_of_interest = ("attempt", "saved", "-----")
        outputs = [
            line.split(" at ")[0] for line in log.splitlines() if line.startswith(lines_of_interest)
        ]
        assert outputs == ["attempt 0", "saved", "----- attempt 1 ended", "attempt 1"], log
    finally:
        node.reconnect()
        os.kill(hanging.agent.pid, signal.SIGCONT)
        stop(rest, batch["id"])
        stop(rest, other["id"])
        stop(cluster.hub.rest("admin"), interactive["id"])
        checked(rest.delete(f"/vfolders/{folder['id']}"), 204)


def test_agents_are_upgraded_while_sessions_run(cluster: Cluster) -> None:
    """During the test, the clock of one node is wrong. Only `doctor` reports it."""
    if not SKEWED_CLOCK["LD_PRELOAD"]:
        skip_or_fail("docker", ComponentMissing("libfaketime is missing (scripts/testbed install)"))
    admin = cluster.hub.rest("admin")
    sessions = [
        cluster.start("admin", agent_list=[node.agent_id], **fields)
        for node in cluster.nodes[:2]
        for fields in ({}, {"type": "batch", "startup_command": "sleep 600"})
    ]
    before = {node.agent_id: containers(node) for node in cluster.nodes}
    skewed = cluster.nodes[0]
    try:
        for node in cluster.nodes[:2]:
            node.stop_agent()
            assert cluster.agent(node)["status"] == "TERMINATED"
            node.start_agent(**(SKEWED_CLOCK if node is skewed else {}))
            wait_until(lambda one=node: cluster.agent(one)["status"] == "ALIVE", 60, "the agent")  # type: ignore[misc]
        assert {node.agent_id: containers(node) for node in cluster.nodes} == before
        for session in sessions:
            shown = checked(admin.get(f"/sessions/{session['id']}"), 200)
            assert (shown["status"], shown["restart_count"]) == ("RUNNING", 0)
        report = checked(admin.post("/cluster-checks"), 200, 201)
        levels = {
            found["agent_id"]: [
                one["level"] for one in found["findings"] if one["check"] == "clock skew"
            ]
            for found in report["nodes"]
        }
        assert levels[skewed.agent_id] == ["error"], report
        assert levels[cluster.nodes[1].agent_id] == ["ok"]
        later = cluster.start("admin", agent_list=[skewed.agent_id])
        stop(admin, later["id"])
    finally:
        for session in sessions:
            stop(admin, session["id"])
        skewed.stop_agent()
        skewed.start_agent()
        wait_until(lambda: cluster.agent(skewed)["status"] == "ALIVE", 60, "the agent")


def test_other_nodes_start_sessions_while_the_leader_of_the_swarm_hangs(cluster: Cluster) -> None:
    leader, other = cluster.nodes[:2]
    kept = cluster.start("admin", agent_list=[leader.agent_id])
    before = containers(leader)
    with leader.suspended_engine():
        elsewhere = cluster.start("admin", agent_list=[other.agent_id])
        here = cluster.create("admin", agent_list=[leader.agent_id])
        assert _status_info(cluster, "admin", kept) == ""
    try:
        here = wait_for(cluster.hub.rest("admin"), here["id"], "RUNNING")
        assert containers(leader) == before | {f"bai-{here['id']}-main1"}
        page = server_of(cluster.hub, kept, "admin").request("GET", "api/status")
        assert page.status_code == 200
        with three_kernels_allowed(cluster.hub):
            large = {"cpu": "1", "mem": "5g"}
            spread = cluster.start(
                "user", cluster_size=2, cluster_mode="multi-node", resources=large
            )
        stop(cluster.hub.rest("user"), spread["id"])
    finally:
        for session in (kept, elsewhere, here):
            stop(cluster.hub.rest("admin"), session["id"])


def test_sessions_of_a_crashed_engine_end_and_others_start(cluster: Cluster) -> None:
    """A Swarm does not allow live restore, so an engine that starts again stops its containers."""
    node = cluster.nodes[1]
    rest = cluster.hub.rest("admin")
    lost = cluster.start("admin", agent_list=[node.agent_id])
    elsewhere = cluster.start("admin", agent_list=[cluster.nodes[2].agent_id])
    node.crash_engine()
    try:
        ended = wait_for(rest, lost["id"], "TERMINATED", "ERROR")
        assert ended["status_info"], ended
        again = cluster.start("admin", agent_list=[node.agent_id])
        wait_until(lambda: containers(node) == {f"bai-{again['id']}-main1"}, 60, "the removal")
        stop(rest, again["id"])
        shown = checked(rest.get(f"/sessions/{elsewhere['id']}"), 200)
        assert shown["status"] == "RUNNING"
    finally:
        stop(rest, elsewhere["id"])


def test_tasks_builds_and_commits_of_a_crashed_engine_end_with_a_reason(cluster: Cluster) -> None:
    """Tasks are retried; each result exists exactly once."""
    node, rest = cluster.nodes[1], cluster.hub.rest("admin")
    others = [one for one in cluster.nodes if one is not node]
    for one in others:
        cluster.set_schedulable(one, False)
    committed = cluster.start("admin", agent_list=[node.agent_id])
    definition = CRASHED.replace("IMAGE", cluster.image)
    pipeline = checked(rest.post("/pipelines", json={"definition": definition}), 201)
    content = f"/vfolders/{pipeline['folder']}/content"
    key = checked(rest.post(f"/pipelines/{pipeline['id']}/runs", json={}), 202)["id"]
    build = {"name": "crashed-build", "image": cluster.image, "resource_group": GROUP}
    build |= {"recipe": {"Dockerfile": "FROM base\nRUN echo step-began && sleep 600\n"}}
    built = checked(rest.post("/custom-images", json=build), 201, 202)
    pid = node.engine_pid()
    try:
        wait_until(lambda: _statuses(rest, key) == ["running"] * 3, 240, "the tasks")
        first = {each["session"] for each in _each(rest, key)}
        log = f"/custom-images/{built['id']}/log"
        wait_until(lambda: "step-began" in checked(rest.get(log), 200)["log"], 120, "the build")
        for one in others:
            cluster.set_schedulable(one, True)
        # Suspend the engine, so that the commit is still waiting for it when the engine crashes.
        os.kill(pid, signal.SIGSTOP)
        path = f"/sessions/{committed['id']}/commit"
        commit = checked(rest.post(path, json={"name": "crashed-commit"}), 202)
        wait_until(lambda: _custom(rest, commit)["status"] == "committing", 60, "the commit")
        node.crash_engine()

        def retried() -> bool:
            found = _each(rest, key)
            return all(each["attempt"] == 2 and each["status"] == "running" for each in found)

        wait_until(retried, 240, "the second attempts")
        for session in first:
            ended = checked(rest.get(f"/sessions/{session}"), 200)
            assert (ended["status"], ended["result"]) == ("TERMINATED", "failure")
            assert ended["status_coded"]["code"] in ENGINE_ENDS, ended
        messages = []
        for made in (built, commit):
            failed = wait_until(lambda one=made: _failed(rest, one), 120, "the end")  # type: ignore[misc]
            messages.append(failed["message"])
        assert all("does not respond" in text for text in messages), messages
        checked(rest.put(content, params={"path": "continue"}, content=b""), 200, 201, 204)
        detail = wait_until(lambda: _ended(rest, key), 240, "the end of the run")
        assert detail["run"]["status"] == "succeeded", detail
        noted = rest.get(content, params={"path": "done.txt"}).text.split()
        assert sorted(noted) == ["a", "b", "c"]
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
        for one in others:
            cluster.set_schedulable(one, True)
        rest.delete(f"/pipeline-runs/{key}")
        rest.delete(f"/pipelines/{pipeline['id']}")
        rest.delete(f"/custom-images/{built['id']}")
        rest.delete(f"/sessions/{committed['id']}")


def test_the_template_for_several_machines_trains_on_two_nodes(cluster: Cluster) -> None:
    rest = cluster.hub.rest("user")
    (template,) = [one for one in built_in_templates() if one.name == "train-on-machines"]
    settings = f"defaults:\n  image: {cluster.image}\n  resource_group: {GROUP}\n"
    # Two of its containers do not fit on one node.
    text = template.definition.replace("defaults:\n", settings).replace("mem: 1g", "mem: 5g")
    pipeline = checked(rest.post("/pipelines", json={"definition": text}), 201)
    try:
        with three_kernels_allowed(cluster.hub):
            key = checked(rest.post(f"/pipelines/{pipeline['id']}/runs", json={}), 202)["id"]
            detail = wait_until(lambda: _ended(rest, key), 240, "the end of the run")
        train = detail["task_runs"][0]
        log = checked(rest.get(f"/sessions/{train['session']}/logs"), 200)["log"]
        assert detail["run"]["status"] == "succeeded", (detail, log)
        assert "machines main1 sub1" in log
        kernels = checked(rest.get(f"/sessions/{train['session']}"), 200)["kernels"]
        assert len({kernel["agent"] for kernel in kernels}) == 2
        metrics = checked(rest.get(f"/pipeline-runs/{key}/results"), 200)["metrics"]
        assert metrics["processes"] == 2
        assert abs(metrics["slope"] - 3) < 0.01 and abs(metrics["offset"] - 1) < 0.01
    finally:
        rest.delete(f"/pipelines/{pipeline['id']}")
        rest.delete(f"/vfolders/{pipeline['folder']}")


@pytest.mark.timeout(7200)
def test_sessions_start_and_stop_while_one_part_after_another_fails(
    cluster: Cluster, docker_engine: DockerEngine
) -> None:
    """`make soak` starts 1,000 sessions. The session on the Hub's node is not affected."""
    print(f"BAI_FAULT_SEED={SEED} BAI_NODE_CYCLES={CYCLES}")
    steady = cluster.start("admin", resource_group="default")
    inspect = ["inspect", "--format", "{{.Id}} {{.State.Pid}}", f"bai-{steady['id']}-main1"]
    before = docker_engine.run(*inspect)
    with three_kernels_allowed(cluster.hub), cluster.sessions_spread():
        report = FaultySoak(cluster, USERS).run()
    print(report)
    assert report.ends.total() == CYCLES
    assert set(report.nodes) == {node.agent_id for node in cluster.nodes}
    assert docker_engine.run(*inspect) == before
    page = server_of(cluster.hub, steady, "admin").request("GET", "api/status")
    assert page.status_code == 200
    stop(cluster.hub.rest("admin"), steady["id"])


@pytest.mark.timeout(3600)
async def test_faults_have_left_nothing(cluster: Cluster) -> None:
    """This test is the last one, after all faults."""
    # After a crash of the engine, the agent removes the container of the interrupted build.
    left = [name for node in cluster.nodes for name in containers(node)]
    assert len([name for name in left if not name.startswith("bai-")]) <= 1, left

    def remaining() -> list[str]:
        return [n for node in cluster.nodes for n in containers(node) if n.startswith("bai-")]

    wait_until(lambda: not remaining(), 60, "the removals")
    if CYCLES > CYCLES_WITHOUT_WAIT:
        # Overlay networks are kept for a while after the end of their session. The agent needs two
        # passes: a restarted agent does not know since when a network is unused.
        seconds = CLUSTER_UNUSED_SECONDS + 2 * CLEANUP_INTERVAL_SECONDS + 60
        wait_until(lambda: not any(map(overlays, cluster.nodes)), seconds, "the last overlay")
    wait_until(lambda: not active_servers(cluster.hub), 60, "the end of the Hub's servers")
    held = checked(cluster.hub.rest("admin").get("/allocations", params={"limit": "500"}), 200)
    assert held["items"] == []
    await assert_allocations_are_consistent(cluster.hub)
    for node in cluster.nodes:
        networks = [
            node.engine.client.api.inspect_network(found["Id"])
            for found in node.engine.client.api.networks(names=["bai-"])
        ]
        names = [network["Name"] for network in networks]
        assert len(set(names)) == len(names) <= len(USERS) + len(overlays(node)), names
        subnets = [network["IPAM"]["Config"][0]["Subnet"] for network in networks]
        assert len(set(subnets)) == len(subnets), subnets
        assert not [network["Containers"] for network in networks if network["Containers"]]


def containers(node: Node) -> set[str]:
    """Return the names of all containers of a machine."""
    return set(node.engine.run("ps", "--all", "--format", "{{.Names}}").split())


def overlays(node: Node) -> list[str]:
    """Return the names of the overlay networks of cluster sessions."""
    listed = node.engine.run("network", "ls", "--filter", "driver=overlay", "--format={{.Name}}")
    return [name for name in listed.split() if name.startswith(CLUSTER_PREFIX)]


def _each(rest: httpx.Client, key: str) -> list[JSON]:
    detail = checked(rest.get(f"/pipeline-runs/{key}"), 200)
    return [each for each in detail["task_runs"] if each["task"] == "each"]


def _statuses(rest: httpx.Client, key: str) -> list[str]:
    return [each["status"] for each in _each(rest, key)]


def _ended(rest: httpx.Client, key: str) -> JSON | None:
    found: JSON = checked(rest.get(f"/pipeline-runs/{key}"), 200)
    return found if found["run"]["status"] in ("succeeded", "failed", "cancelled") else None


def _custom(rest: httpx.Client, made: JSON) -> JSON:
    found: JSON = checked(rest.get(f"/custom-images/{made['id']}"), 200)
    return found


def _failed(rest: httpx.Client, made: JSON) -> JSON | None:
    found = _custom(rest, made)
    return found if found["status"] == "failed" else None


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
