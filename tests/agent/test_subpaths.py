"""Subpath mounts on both engines, from the request to the process in the session."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import docker.errors
import pytest

from bai_services.agent.folders.bind_mounts import BindMounts
from bai_services.client import Client
from bai_services.core.errors import InvalidRequest
from bai_services.core.sessions.launch_plan import LaunchPlan
from bai_services.core.sessions.logs import without_times
from bai_services.engines import bubblewrap
from bai_services.engines.base import Engine, EngineError
from bai_services.engines.docker import DockerEngine as ContainerEngine
from bai_services.engines.docker_container import container_name
from bai_services.engines.process import ProcessEngine
from tests.testbed.docker_engine import DockerEngine
from tests.testbed.images import base_image
from tests.testbed.manager import Api
from tests.testbed.wait import wait_until_async

from .conftest import Agents, wait_for_session

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount"),
    pytest.mark.usefixtures("refused_sockets"),
]
# Command prefix that removes the capability to mount.
UNPRIVILEGED = ("setpriv", "--bounding-set", "-sys_admin")
END = "the-end-of-the-script"
ENVIRON = {"JUPYTERHUB_SERVICE_URL": "http://127.0.0.1:9999/user/ada/", "LC_ALL": "C"}


@dataclass
class Machine:
    """An agent, and the spawner's engine, which starts the prepared sessions."""

    api: Api
    user: Client
    engine: Engine
    spec: Mapping[str, Any]
    home: Path

    async def create_session(self, name: str, *mounts: Mapping[str, str]) -> dict[str, Any]:
        """Create a session with mounts; return it when its status is PREPARED or ERROR."""
        body = {"name": name, **self.spec, "mounts": list(mounts)}
        session = await self.user.post("/sessions", body)
        return await wait_for_session(
            self.user, session["id"], lambda s: s["status"] in ("PREPARED", "ERROR"), 180
        )

    async def run(self, session: Mapping[str, Any], script: str) -> str:
        """Start the session with a script as its command; return the script's output."""
        where = {"user": session["hub_user"], "server": session["hub_server"]}
        data = await self.api.hub.post(f"/sessions/{session['id']}/launch", where)
        plan = LaunchPlan.from_json(dict(data))
        # After the script, sleep: the engine reports an exit at the start as a failure.
        command = ["sh", "-c", f"{script}; echo {END}; sleep 600"]
        running = await self.engine.start(plan, ENVIRON, command)

        async def output_if_ended() -> str | None:
            log = without_times(await self.engine.read_log(running, 9999))
            return log if END in log else None

        try:
            return str(await wait_until_async(output_if_ended, 180, "the end of the script"))
        finally:
            await self.engine.stop(running, now=True)
            await self.engine.remove(running)


async def _process_machine(
    api: Api, agents: Agents, words: Sequence[str] = (), isolation: str = "bubblewrap"
) -> Machine:
    problem = bubblewrap.probe(1000, 1000)
    if isolation == "bubblewrap" and isinstance(problem, str):
        pytest.skip(problem)
    await agents.start(words=words)
    engine = ProcessEngine(state_dir=str(agents.home), isolation=isolation)
    spec = {"resources": {"cpu": "1", "mem": "1g"}}
    return Machine(api, await api.client("user"), engine, spec, agents.home)


async def _docker_machine(
    api: Api,
    agents: Agents,
    docker_engine: DockerEngine,
    shared: dict[str, Any],
    words: Sequence[str] = (),
) -> Machine:
    image = await asyncio.to_thread(base_image, docker_engine)
    admin = await api.client("admin")
    await admin.patch("/resource-groups/default", {"engine": "docker"})
    await admin.post("/images", {"name": image})
    await agents.start(
        "docker-subpaths",
        words,
        BAI_AGENT_ENGINE="docker",
        BAI_AGENT_DOCKER_HOST=docker_engine.host,
        BAI_AGENT_NETWORK_POOL="10.251.16.0/20",
    )
    engine = ContainerEngine(shared, stop_grace_seconds=3)
    spec = {"resources": {"cpu": "1", "mem": "1g"}, "image": image}
    return Machine(api, await api.client("user"), engine, spec, agents.home)


@pytest.fixture
def shared() -> Iterator[dict[str, Any]]:
    parts: dict[str, Any] = {}
    yield parts
    if "docker" in parts:
        parts["docker"].close()


@pytest.fixture(params=["process", pytest.param("docker", marks=pytest.mark.docker)])
async def machine(
    request: pytest.FixtureRequest, api: Api, agents: Agents, shared: dict[str, Any]
) -> AsyncIterator[Machine]:
    if request.param == "process":
        made = await _process_machine(api, agents)
        yield made
    else:
        engine: DockerEngine = request.getfixturevalue("docker_engine")
        made = await _docker_machine(api, agents, engine, shared)
        yield made
        _remove_containers(engine, (await made.user.get("/sessions", limit=100))["items"])
    _unmount_all(made.home)


def _remove_containers(engine: DockerEngine, sessions: Sequence[Mapping[str, Any]]) -> None:
    for session in sessions:
        with suppress(docker.errors.NotFound):
            engine.client.api.remove_container(container_name(session["id"]), force=True)
    for network in engine.client.networks.list(filters={"label": "bai.agent-id=docker-subpaths"}):
        network.remove()


def _unmount_all(home: Path) -> None:
    for folder in (home / "mounts").glob("*"):
        assert BindMounts(home).remove(folder.name)


async def create_folder(user: Client, paths: Sequence[str]) -> dict[str, Any]:
    """Create the folder ``data``; the content of each file is the path of the file."""
    made = await user.post("/vfolders", {"name": "data"})
    for path in paths:
        await user.call(
            "PUT", "/vfolders/data/content", query={"path": path}, content=_one_chunk(path)
        )
    return dict(made)


async def _one_chunk(text: str) -> AsyncIterator[bytes]:
    yield text.encode()


def path_of(api: Api, folder: Mapping[str, Any]) -> Path:
    root = api.world.manager.settings.storage_root
    return Path(root) / "user" / folder["owner_id"] / folder["id"]


async def test_subpath_mount_shows_only_its_directory(machine: Machine) -> None:
    await create_folder(machine.user, ["raw/2024/f", "raw/other", "top"])
    session = await machine.create_session(
        "lab1",
        {"vfolder": "data", "subpath": "raw/2024", "path": "/in", "permission": "ro"},
        {"vfolder": "data", "subpath": "raw", "path": "out"},
    )
    assert [(m["subpath"], m["path"]) for m in session["mounts"]] == [
        ("raw/2024", "/in"),
        ("raw", "/home/work/out"),
    ]
    output = await machine.run(
        session,
        "ls /in /home/work/out; cat /in/f; echo; echo x > /in/g; ls /in/..; "
        "echo new > /home/work/out/new",
    )
    assert "raw/2024/f" in output and "Read-only file system" in output
    assert "top" not in output.split()
    answer = [e["name"] async for e in machine.user.items("/vfolders/data/files", path="raw")]
    assert answer == ["2024", "new", "other"]


async def test_link_created_after_preparation_is_not_followed(
    machine: Machine,
) -> None:
    folder = await create_folder(machine.user, ["own/f"])
    session = await machine.create_session(
        "lab1", {"vfolder": "data", "subpath": "own", "path": "/in"}
    )
    place = path_of(machine.api, folder)
    (place / "own").rename(place / "aside")
    (place / "own").symlink_to("/etc")
    output = await machine.run(session, "ls /in; cat /in/f; echo")
    assert output.split() == ["f", "own/f", END]


@pytest.mark.parametrize(
    "target, reason",
    [("/etc", "leads out of its folder"), ("../..", "leads out of its folder"), ("no", "has no")],
    ids=["absolute link", "link to a parent directory", "dangling link"],
)
async def test_invalid_subpath_fails_the_start(machine: Machine, target: str, reason: str) -> None:
    folder = await create_folder(machine.user, ["f"])
    (path_of(machine.api, folder) / "way").symlink_to(target)
    session = await machine.create_session("lab1", {"vfolder": "data", "subpath": "way"})
    assert session["status"] == "ERROR"
    assert reason in session["status_info"]


@pytest.fixture(params=["bubblewrap", "none"])
async def unprivileged_machine(request: pytest.FixtureRequest, api: Api, agents: Agents) -> Machine:
    """A machine whose agent may not mount: the engine opens the directories of subpaths itself."""
    return await _process_machine(api, agents, UNPRIVILEGED, request.param)


async def test_process_engine_provides_subpaths_if_agent_may_not_mount(
    unprivileged_machine: Machine,
) -> None:
    await create_folder(unprivileged_machine.user, ["raw/2024/f", "top"])
    session = await unprivileged_machine.create_session(
        "lab1",
        {"vfolder": "data", "subpath": "raw/2024", "path": "in"},
        {"vfolder": "data", "subpath": "raw", "path": "again", "permission": "ro"},
    )
    assert session["status"] == "PREPARED", session["status_info"]
    assert not list((unprivileged_machine.home / "mounts").glob("*/*"))
    output = await unprivileged_machine.run(
        session,
        "cd ~; cat in/f; echo; echo new > in/new; ls again/2024; echo x > again/x; "
        "ls in/.. /home/work",
    )
    assert "raw/2024/f" in output
    is_isolated = unprivileged_machine.engine.isolation == "bubblewrap"  # type: ignore[attr-defined]
    assert ("Read-only file system" in output) == is_isolated
    if is_isolated:
        assert "top" not in output.split()
    names = [
        e["name"]
        async for e in unprivileged_machine.user.items("/vfolders/data/files", path="raw/2024")
    ]
    assert names == ["f", "new"]


async def test_process_engine_rejects_link_created_after_preparation(
    unprivileged_machine: Machine,
) -> None:
    folder = await create_folder(unprivileged_machine.user, ["own/f"])
    session = await unprivileged_machine.create_session(
        "lab1", {"vfolder": "data", "subpath": "own", "path": "in"}
    )
    place = path_of(unprivileged_machine.api, folder)
    (place / "own").rename(place / "aside")
    (place / "own").symlink_to("/etc")
    with pytest.raises(EngineError, match="own of the folder at /home/work/in cannot be mounted"):
        await unprivileged_machine.run(session, "ls in")


@pytest.mark.docker
async def test_subpath_in_container_is_rejected_if_agent_may_not_mount(
    api: Api, agents: Agents, docker_engine: DockerEngine, shared: dict[str, Any]
) -> None:
    machine = await _docker_machine(api, agents, docker_engine, shared, UNPRIVILEGED)
    await create_folder(machine.user, ["raw/f"])
    with pytest.raises(InvalidRequest, match="the agents of resource group default cannot mount"):
        await machine.create_session("lab1", {"vfolder": "data", "subpath": "raw"})
    whole = await machine.create_session("lab2", {"vfolder": "data"})
    assert whole["status"] == "PREPARED", whole["status_info"]
    _remove_containers(docker_engine, [whole])
