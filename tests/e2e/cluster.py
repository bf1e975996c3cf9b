"""A Hub with additional machines: engines of a Swarm whose agents have joined the Hub."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from bai_services.core.sessions.lost_agents import MIN_REQUEUE_SECONDS
from tests.e2e.conftest import LISTEN_ON_ALL_ADDRESSES
from tests.e2e.sessions import JSON, checked, wait_for
from tests.hub import RunningHub
from tests.testbed import images, nodes, swarm
from tests.testbed.docker_engine import DockerEngine
from tests.testbed.nodes import Node
from tests.testbed.wait import wait_until

GROUP = "nodes"
OPTIONS = {"lost_agents": {"requeue_after": MIN_REQUEUE_SECONDS}}


@dataclass(frozen=True)
class Cluster:
    """The Hub, the additional machines, and an image that exists on all of them."""

    hub: RunningHub
    nodes: list[Node]
    image: str
    shared: Path
    """Path of the storage host ``shared``, on which no machine has mounted a file system."""

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

    def start_counting(self, username: str, folder: JSON, log: str = "log") -> JSON:
        """Start a batch session that appends its attempt and the time to ``log``, a file in
        ``folder``.

        It does so five times a second.
        """
        return self.start(
            username,
            type="batch",
            startup_command="echo attempt $BAI_RESTART_COUNT; trap 'echo saved; exit 143' TERM; "
            f"while :; do echo $BAI_RESTART_COUNT $(date +%s.%N) >> count/{log}; "
            "sleep 0.2; done",
            mounts=[{"vfolder": folder["name"], "path": "count", "permission": "rw"}],
        )

    @contextmanager
    def sessions_spread(self) -> Iterator[None]:
        """During the block, each session starts on the node with the most free resources."""
        try:
            self._set_placement("spread")
            yield
        finally:
            self._set_placement(None)

    def _set_placement(self, policy: str | None) -> None:
        body = {"scheduler_opts_changes": {"placement": policy}}
        checked(self.hub.rest("admin").patch(f"/resource-groups/{GROUP}", json=body), 200)

    def set_schedulable(self, node: Node, is_schedulable: bool) -> None:
        change = {"schedulable": is_schedulable}
        checked(self.hub.rest("admin").patch(f"/agents/{node.agent_id}", json=change), 200)

    def agent(self, node: Node) -> JSON:
        found: JSON = checked(self.hub.rest("admin").get(f"/agents/{node.agent_id}"), 200)
        return found

    def wait_for_restart(self, username: str, session_id: str, count: int = 1) -> JSON:
        """Wait until a session runs again, and return it."""
        rest = self.hub.rest(username)

        def session_that_runs_again() -> JSON | None:
            session: JSON = checked(rest.get(f"/sessions/{session_id}"), 200)
            is_again = session["restart_count"] == count and session["status"] == "RUNNING"
            return session if is_again else None

        return wait_until(session_that_runs_again, 120, f"session {session_id} to run again")


@contextmanager
def running(own: DockerEngine, folder: Path, size: int = 2, image: str = "") -> Iterator[Cluster]:
    """Yield a Hub with ``size`` additional machines; ``own`` is the engine of the Hub's machine.

    ``image`` is the image of the sessions; default: the minimal image.

    Raises
    ------
    ComponentMissing
        If the image or the Swarm cannot be created.
    """
    image = image or images.minimal_image(own)
    with swarm.running(size) as engines:
        swarm.copy_image(image, own, *engines)
        with _joined(own, engines, image, folder) as cluster:
            yield cluster


@contextmanager
def _joined(
    own: DockerEngine, engines: list[DockerEngine], image: str, folder: Path
) -> Iterator[Cluster]:
    further = folder / "further.py"
    further.write_text(LISTEN_ON_ALL_ADDRESSES)
    local, shared = folder / "local", folder / "shared"
    for path in (local, shared):
        path.mkdir()
    address = nodes.gateway(engines[0])
    environment = {"DOCKER_HOST": own.host, "BAI_IMAGE": image, "BAI_CONFIG": str(further)}
    environment |= {"BAI_BUILD_RECIPES": "1"}
    environment |= {"BAI_INTERNAL_ADDRESS": address, "BAI_SWARM_HOST": engines[0].host}
    environment["BAI_STORAGE_HOSTS"] = f"local=local:{local},shared=local:{shared}"
    hub = RunningHub(folder / "hub", "docker", environment)
    try:
        hub.start()
        admin = hub.rest("admin")
        group = {"name": GROUP, "engine": "docker", "scheduler_opts": OPTIONS}
        checked(admin.post("/resource-groups", json=group), 201)
        checked(admin.put(f"/resource-groups/{GROUP}/links/domain/default"), 200, 204)
        invitation = {"resource_group": GROUP}
        tokens = [
            checked(admin.post("/agent-invitations", json=invitation), 201)["token"]
            for _ in engines
        ]
        with nodes.joined(f"http://{address}:{hub.port}", tokens, engines, folder) as joined:
            wait_until(lambda: _alive(admin) == len(joined), 60, "the agents to register")
            yield Cluster(hub, joined, image, shared)
    finally:
        hub.stop()


def _alive(admin: httpx.Client) -> int:
    query = {"resource_group": GROUP, "status": "ALIVE"}
    return int(checked(admin.get("/agents", params=query), 200)["total"])
