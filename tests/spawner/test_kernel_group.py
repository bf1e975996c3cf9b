"""Cluster sessions on real engines: kernels start together, reach each other and stop together."""

from __future__ import annotations

import asyncio
import os
import socket
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from bai_services.core.sessions.end_reason import EndReason
from bai_services.core.sessions.kernel_group import (
    cluster_environ,
    folder_name,
    kernel_names,
)
from bai_services.core.sessions.launch_plan import LaunchPlan
from bai_services.engines import processes
from bai_services.engines.base import Engine, EngineError, Running
from bai_services.engines.docker import DockerEngine as Docker
from bai_services.engines.docker_container import container_name
from bai_services.engines.process import ProcessEngine
from bai_services.manager.sessions.kernel_group import SUB_COMMAND, new_cluster_key
from bai_spawner import kernel_group
from tests.spawner import standin
from tests.spawner.plans import plan
from tests.spawner.standin import ask
from tests.testbed import ComponentMissing, images
from tests.testbed.docker_engine import DockerEngine
from tests.testbed.skip import skip_or_fail
from tests.testbed.wait import wait_until_async

pytestmark = pytest.mark.filterwarnings(
    "ignore:Exception ignored in. <socket:pytest.PytestUnraisableExceptionWarning"
)

UID = images.SSH_UID


def kernel_group_plan(
    size: int, injections: Callable[[str], dict[str, Any]], **shared: Any
) -> LaunchPlan:
    """Return a plan for a cluster session, with the fields that the manager sends."""
    names = kernel_names(size)
    hosts = [name.hostname for name in names]
    base = {
        "session_id": str(uuid.uuid4()),
        "cluster_key": new_cluster_key("test"),
        **shared,
    }
    plans = [
        {
            **base,
            "kernel_id": str(uuid.uuid4()),
            "hostname": name.hostname,
            "environ": {
                **cluster_environ(name, hosts, "single-node", name.index),
                "MASTER_PORT": "29600",  # set by the user
            },
            "injection": injections(name.hostname),
        }
        for name in names
    ]
    whole = {key: getattr(plan(), key) for key in ("agent_id", "name", "user", "uid", "gid")}
    subs = [
        {**whole, "engine": "", **sub, "command": list(shared.get("sub_command") or SUB_COMMAND)}
        for sub in plans[1:]
    ]
    return plan(**plans[0], subs=subs)


@pytest.fixture
def network(docker_engine: DockerEngine) -> Iterator[str]:
    made = docker_engine.client.networks.create(f"bai-c-{uuid.uuid4()}")
    yield made.name
    made.remove()


@pytest.fixture
async def docker(
    docker_engine: DockerEngine, network: str, tmp_path: Path
) -> AsyncIterator[tuple[Engine, Callable[..., LaunchPlan]]]:
    """The docker engine, and a function that creates plans for it."""
    shared: dict[str, Any] = {}
    engine = Docker(shared, stop_grace_seconds=1)
    image = images.base_image(docker_engine)
    made: list[LaunchPlan] = []

    def injection(hostname: str) -> dict[str, Any]:
        home = tmp_path / hostname
        home.mkdir(exist_ok=True)
        os.chown(home, UID, UID)
        mounts = [{"source": str(home), "target": "/home/work", "read_only": False}]
        return {"network": network, "mounts": mounts}

    def make(**changes: Any) -> LaunchPlan:
        given = {
            "engine": "docker",
            "endpoint": docker_engine.host,
            "image": image,
            "uid": UID,
            "gid": UID,
            "command": ["python3", "-c", standin.SOURCE],
            **changes,
        }
        made.append(kernel_group_plan(3, injection, **given))
        return made[-1]

    yield engine, make
    for one in made:
        for container in containers_of(docker_engine, one.session_id):
            docker_engine.client.api.remove_container(container, force=True, v=True)
    shared["docker"].close()


@pytest.fixture(scope="module")
def ssh_image(docker_engine: DockerEngine) -> str:
    try:
        return images.ssh_image(docker_engine)
    except ComponentMissing as reason:
        skip_or_fail("docker", reason)


def containers_of(docker_engine: DockerEngine, session_id: str) -> list[str]:
    filters = {"label": f"bai.session-id={session_id}"}
    return [c["Id"] for c in docker_engine.client.api.containers(all=True, filters=filters)]


async def start_group(engine: Engine, given: LaunchPlan) -> Running:
    ip, port = await engine.address(given)
    environ = {"JUPYTERHUB_SERVICE_URL": f"http://{ip}:{port}/user/ada/", "JUPYTERHUB_X": "token"}
    return await kernel_group.start(engine, given, environ, [])


async def wait_for_response(running: Running) -> None:
    async def responds() -> bool:
        try:
            return bool(await ask(running, "whoami"))
        except httpx.TransportError:
            return False

    await wait_until_async(responds, 30, "a response of the main kernel")


@pytest.mark.checklist("CLU-02", "CLU-03")
async def test_main_kernel_resolves_the_sub_kernels_and_all_stop_together(
    docker: tuple[Engine, Callable[..., LaunchPlan]], docker_engine: DockerEngine
) -> None:
    engine, make = docker
    given = make()
    running = await start_group(engine, given)
    await wait_for_response(running)
    assert [sub.hostname for sub in running.subs] == ["sub1", "sub2"]
    assert len(containers_of(docker_engine, given.session_id)) == 3

    _, (code, text) = await ask(running, "run", command="getent hosts main1 sub1 sub2 | wc -l")
    assert (code, text.strip()) == (0, "3"), text
    _, environ = await ask(running, "environ")
    assert environ["BAI_CLUSTER_HOSTS"] == "main1,sub1,sub2"
    assert (environ["BAI_CLUSTER_HOST"], environ["BAI_CLUSTER_INDEX"]) == ("main1", "0")
    facts = docker_engine.client.api.inspect_container(container_name(given.session_id, "sub2"))
    of_sub = dict(line.split("=", 1) for line in facts["Config"]["Env"])
    assert (of_sub["BAI_CLUSTER_ROLE"], of_sub["BAI_CLUSTER_INDEX"]) == ("sub", "2")
    assert of_sub["BAI_KERNEL_ID"] == given.subs[1].kernel_id
    assert (of_sub["BAI_CLUSTER_HOST"], of_sub["BAI_CLUSTER_HOSTS"]) == ("sub2", "main1,sub1,sub2")
    assert (of_sub["BAI_CLUSTER_SIZE"], of_sub["BAI_CLUSTER_MODE"]) == ("3", "single-node")
    assert not [name for name in of_sub if name.startswith("JUPYTERHUB_")]
    _, (code, text) = await ask(
        running, "run", command="stat -c '%a %u' /opt/bai-cluster/id_ed25519"
    )
    assert text.split() == ["600", str(UID)]

    saved = Running.from_state(running.to_state())
    assert saved == running
    assert await kernel_group.poll(engine, saved) is None
    ended = await kernel_group.stop(engine, saved)
    assert ended.code is not None
    main_log, sub_logs = await kernel_group.read_logs(engine, saved, 4096)
    assert set(sub_logs) == {"sub1", "sub2"}
    assert "image has no sshd" in sub_logs["sub1"]
    await kernel_group.remove(engine, saved)
    assert containers_of(docker_engine, given.session_id) == []


@pytest.mark.checklist("CLU-02")
async def test_the_main_kernel_connects_to_the_sub_kernels_with_ssh(
    docker: tuple[Engine, Callable[..., LaunchPlan]], ssh_image: str
) -> None:
    engine, make = docker
    running = await start_group(engine, make(image=ssh_image))
    await wait_for_response(running)

    async def run(command: str) -> tuple[int, str]:
        _, (code, text) = await ask(running, "run", command=command)
        return code, text.strip()

    async def name_of(host: str) -> str:
        code, text = await run(f"ssh {host} hostname")
        return text if code == 0 else ""

    for host in ("sub1", "sub2"):
        # The SSH server of a container starts later than the container.
        assert (
            await wait_until_async(
                lambda host=host: name_of(host), 30, "the SSH server of the other kernel"
            )
            == host
        )
        output = await run(f"ssh {host} 'echo $BAI_CLUSTER_HOST $BAI_CLUSTER_SIZE; id -u'")
        assert output == (0, f"{host} 3\n{UID}")
        # torchrun and Open MPI get their options from variables; the host file names all kernels.
        output = await run(
            f"ssh {host} 'echo $PET_NODE_RANK/$PET_NNODES $PET_MASTER_ADDR $MASTER_PORT; "
            "cat $OMPI_MCA_orte_default_hostfile'"
        )
        hosts = "main1 slots=1\nsub1 slots=1\nsub2 slots=1"
        assert output == (0, f"{host[-1]}/3 main1 29600\n{hosts}")
    # The sign-in fails with any key except the key of the session.
    await run("ssh-keygen -q -t ed25519 -N '' -f /tmp/other")
    for key in ("/dev/null", "/tmp/other"):
        code, text = await run(f"ssh -F none -p 2200 -i {key} -o StrictHostKeyChecking=no sub1 id")
        assert code == 255 and "Permission denied (publickey)" in text, text
    # A server with another host key is rejected.
    code, text = await run(
        "ssh-keygen -q -t ed25519 -N '' -f /tmp/host; echo \"* $(cut -d' ' -f1,2 /tmp/host.pub)\" "
        "> /tmp/known; ssh -o UserKnownHostsFile=/tmp/known sub1 id"
    )
    assert code == 255 and "Host key verification failed" in text, text


async def test_killed_kernel_is_reported(
    docker: tuple[Engine, Callable[..., LaunchPlan]], docker_engine: DockerEngine
) -> None:
    engine, make = docker
    running = await start_group(engine, make())
    docker_engine.client.api.kill(running.subs[1].container_id, "SIGKILL")

    async def poll_group() -> Any:
        return await kernel_group.poll(engine, running)

    how = await wait_until_async(poll_group, 10, "the end of sub2")
    assert how.code is None and how.text.startswith("sub2 exited with exit code 137; ")
    assert how.reason is EndReason.KERNEL_ENDED


@pytest.mark.parametrize(
    "broken", [pytest.param(0, id="main fails"), pytest.param(1, id="a sub fails")]
)
async def test_a_failed_kernel_start_removes_all_kernels(
    docker: tuple[Engine, Callable[..., LaunchPlan]],
    docker_engine: DockerEngine,
    broken: int,
) -> None:
    engine, make = docker
    given = make()
    missing = {"image": "bai-no-such-image:none"}
    data = [
        {**_plan_data(one), **(missing if n == broken else {})}
        for n, one in enumerate(_plans_of_kernels(given))
    ]
    given = LaunchPlan.from_json({**data[0], "subs": data[1:]})
    with pytest.raises(EngineError) as refused:
        await start_group(engine, given)
    assert refused.value.reason == "image-missing"
    assert str(refused.value).startswith("sub1: ") == (broken == 1)
    assert containers_of(docker_engine, given.session_id) == []


async def test_a_second_start_replaces_remaining_sub_kernels(
    docker: tuple[Engine, Callable[..., LaunchPlan]], docker_engine: DockerEngine
) -> None:
    engine, make = docker
    given = make()
    for sub in given.subs:  # like a Hub that was killed before it started the main kernel
        await engine.start(sub, {}, ())
    running = await start_group(engine, given)
    assert len(containers_of(docker_engine, given.session_id)) == 3
    await kernel_group.stop(engine, running, now=True)
    await kernel_group.remove(engine, running)
    assert containers_of(docker_engine, given.session_id) == []


@pytest.mark.parametrize("isolation", ["auto", "none"])
async def test_kernels_as_processes_have_separate_folders(tmp_path: Path, isolation: str) -> None:
    engine = ProcessEngine({}, state_dir=str(tmp_path), isolation=isolation, stop_grace_seconds=2)
    given = kernel_group_plan(
        2, lambda hostname: {}, engine="process", command=["/bin/sleep", "600"]
    )
    running = await start_group(engine, given)
    try:
        (sub,) = running.subs
        assert len({running.pid, sub.pid}) == 2
        assert await kernel_group.poll(engine, running) is None
        for hostname in ("main1", "sub1"):
            assert (tmp_path / "sessions" / folder_name(given.session_id, hostname)).is_dir()
        await asyncio.to_thread(processes.kill_kernel, sub.kernel_id)
        how = await kernel_group.poll(engine, running)
        assert how is not None and how.text.startswith("sub1 ")
    finally:
        await kernel_group.stop(engine, running, now=True)
    assert await asyncio.to_thread(processes.session_processes, given.session_id) == []


def _plans_of_kernels(given: LaunchPlan) -> list[LaunchPlan]:
    return [given, *given.subs]


def _plan_data(one: LaunchPlan) -> dict[str, Any]:
    names = ("session_id", "kernel_id", "agent_id", "name", "user", "engine", "endpoint", "image")
    more = ("command", "uid", "gid", "hostname", "environ", "cluster_key")
    injection = {"network": one.injection.network}
    return {name: getattr(one, name) for name in (*names, *more)} | {"injection": injection}


async def test_kernels_of_responding_engines_are_removed_when_an_agent_is_lost(
    docker: tuple[Engine, Callable[..., LaunchPlan]], docker_engine: DockerEngine
) -> None:
    """The engine of the lost machine accepts connections, but never responds."""
    engine, make = docker
    running = await start_group(engine, make())
    lost = running.subs[0]
    with socket.create_server(("127.0.0.1", 0)) as silent:
        endpoint = f"tcp://127.0.0.1:{silent.getsockname()[1]}"
        subs = (replace(lost, endpoint=endpoint), *running.subs[1:])
        begun = time.monotonic()
        await kernel_group.abandon(engine, replace(running, subs=subs))
        seconds = time.monotonic() - begun
    assert containers_of(docker_engine, running.session_id) == [lost.container_id]
    assert seconds < engine.stop_grace_seconds + kernel_group.ABANDON_SECONDS + 5


async def test_session_with_one_kernel_on_a_lost_machine_is_not_waited_for(
    docker: tuple[Engine, Callable[..., LaunchPlan]],
) -> None:
    engine, _ = docker
    with socket.create_server(("127.0.0.1", 0)) as silent:
        endpoint = f"tcp://127.0.0.1:{silent.getsockname()[1]}"
        running = Running("docker", str(uuid.uuid4()), "", endpoint=endpoint, container_id="c1")
        async with asyncio.timeout(2):
            await kernel_group.abandon(engine, running)
