"""Disk usage of sessions outside of virtual folders: measurement, reports, and limits in Docker."""

from __future__ import annotations

import asyncio
import os
import subprocess
import uuid
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from bai_services.agent.docker.calls import DockerCalls
from bai_services.agent.docker.containers import DockerEngine as AgentDockerEngine
from bai_services.agent.docker.egress import Egress
from bai_services.agent.docker.image_uses import ImageUses
from bai_services.agent.docker.layers import Layers
from bai_services.agent.docker.networks import Networks, read_pool
from bai_services.agent.docker.runtime import Runtime
from bai_services.agent.folders.disk import (
    DiskSettings,
    DiskWatch,
    ExcessAction,
    measure,
)
from bai_services.agent.folders.kernel_folders import Folders
from bai_services.agent.kernels import Kernel, Task
from bai_services.agent.processes import ProcessEngine
from bai_services.core.cluster.egress import Policy
from bai_services.core.errors import InvalidRequest, Unavailable
from tests.testbed.docker_engine import DockerEngine
from tests.testbed.images import base_image

MIB = 2**20
ENOUGH_SECONDS = 60


def fill(path: Path, mebibytes: int) -> None:
    path.write_bytes(os.urandom(MIB) * mebibytes)


def test_disk_usage_of_a_deep_tree_follows_no_links_and_counts_hard_links_once(
    tmp_path: Path,
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    # Each file of 20 MiB exceeds the tolerance below. The test fails if the target of the link is
    # counted, or if the file with two hard links is counted twice.
    fill(outside / "big", 20)
    home = tmp_path / "home"
    home.mkdir()
    (home / "link").symlink_to(outside)
    fill(home / "one", 20)
    os.link(home / "one", home / "same")
    with open(home / "sparse", "wb") as sparse:
        sparse.truncate(2**30)
    here = os.open(home, os.O_RDONLY)
    for _ in range(2000):
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    deepest = os.open("deepest", os.O_WRONLY | os.O_CREAT, dir_fd=here)
    os.write(deepest, os.urandom(2 * MIB))
    os.fsync(deepest)
    os.close(deepest)
    os.close(here)
    space = measure([home, tmp_path / "gone"], ENOUGH_SECONDS)
    assert space.is_complete
    # Tolerance: each directory occupies up to two blocks of 4 KiB.
    assert 22 * MIB <= space.used_bytes < 22 * MIB + 2100 * 8192
    assert not measure([home], 0).is_complete
    # shutil cannot remove such a deep tree.
    subprocess.run(["rm", "-rf", str(home / "d")], check=True)


@pytest.mark.parametrize(
    "mebibytes, excess, notice",
    [
        pytest.param(1, ExcessAction.STOP, set(), id="below the limit"),
        pytest.param(19, ExcessAction.STOP, {"disk_notice"}, id="close to the limit"),
        pytest.param(
            22, ExcessAction.STOP, {"disk_notice", "stop_reason"}, id="above the limit, action stop"
        ),
        pytest.param(22, ExcessAction.WARN, {"disk_notice"}, id="above the limit, action warn"),
    ],
)
async def test_disk_usage_near_or_over_the_limit_is_reported(
    tmp_path: Path, mebibytes: int, excess: ExcessAction, notice: set[str]
) -> None:
    folders = Folders(tmp_path)
    session, kernel = str(uuid.uuid4()), str(uuid.uuid4())
    fill(folders.create(Task("w", "prepare", session, kernel), None, None) / "data", mebibytes)
    engine = ProcessEngine("disk", folders, 0)
    watch = DiskWatch(engine, folders, 20 * MIB, excess)
    watch.set_kernels([Kernel(kernel, session, is_running=True)])
    await watch.check()
    usage = watch.usage(kernel)
    assert mebibytes * MIB <= usage["disk_bytes"] < (mebibytes + 1) * MIB
    assert usage["disk_limit_bytes"] == 20 * MIB
    assert usage.keys() - {"disk_bytes", "disk_limit_bytes"} == notice
    assert watch.facts()["disk"]["home"] == "watched"
    watch.set_kernels([])
    assert watch.usage(kernel) == {}
    unlimited = DiskWatch(engine, folders, 0, excess)
    unlimited.set_kernels([Kernel(kernel, session, is_running=True)])
    await unlimited.check()
    assert unlimited.usage(kernel) == {}


class UnreachableEngine(ProcessEngine):
    """An engine that cannot measure layers."""

    async def writable_layer(self, kernel: Kernel) -> tuple[Sequence[Path], int]:
        raise Unavailable("the engine does not respond")


async def test_disk_usage_without_the_layer_is_partial(tmp_path: Path) -> None:
    folders = Folders(tmp_path)
    session, kernel = str(uuid.uuid4()), str(uuid.uuid4())
    fill(folders.create(Task("w", "prepare", session, kernel), None, None) / "data", 1)
    watch = DiskWatch(UnreachableEngine("disk", folders, 0), folders, 20 * MIB, ExcessAction.STOP)
    watch.set_kernels([Kernel(kernel, session, is_running=True)])
    await watch.check()
    usage = watch.usage(kernel)
    assert usage["disk_bytes"] >= MIB
    assert usage["disk_is_partial"]


def test_invalid_disk_limit_is_rejected() -> None:
    assert DiskSettings().limit_bytes() == 50 * 2**30
    with pytest.raises(InvalidRequest):
        DiskSettings(limit="a lot").limit_bytes()


@pytest.fixture
async def calls(docker_engine: DockerEngine) -> AsyncIterator[DockerCalls]:
    made = DockerCalls(docker_engine.host, 30)
    yield made
    made.close()


@pytest.mark.docker
@pytest.mark.usefixtures("refused_sockets")
async def test_container_layer_counts_as_disk_usage(
    docker_engine: DockerEngine, calls: DockerCalls, tmp_path: Path
) -> None:
    agent_id = f"disk-{uuid.uuid4().hex[:8]}"
    layers = Layers(calls, 50 * MIB)
    networks = Networks(calls, agent_id, read_pool("10.249.0.0/20", 26), 26)
    egress = Egress(agent_id, Policy.OPEN, (), ())
    engine = AgentDockerEngine(
        agent_id,
        calls,
        networks,
        egress,
        layers,
        ImageUses(tmp_path / "image-uses.json", 0),
        Runtime(calls, "", tmp_path / "image-facts.json"),
        endpoint=docker_engine.host,
        stop_grace_seconds=0,
    )
    assert engine.layer_limit() == "unknown"
    image = await asyncio.to_thread(base_image, docker_engine)
    size = await layers.size_option(image)
    # If ``size`` is 0, Docker cannot limit the layer with the storage driver of this machine.
    assert engine.layer_limit() == ("enforced" if size else "watched")
    assert size == 0 or size >= 50 * MIB
    command = ["sh", "-c", "head -c 20971520 /dev/urandom > /var/tmp/x; sync; echo done; sleep 60"]
    container = await asyncio.to_thread(
        docker_engine.client.containers.run, image, command, detach=True, init=True
    )
    try:
        logs = container.logs(stream=True, follow=True)
        assert await asyncio.to_thread(next, logs) == b"done\n"
        folders = Folders(tmp_path)
        kernel = Kernel(str(uuid.uuid4()), str(uuid.uuid4()), container.id, is_running=True)
        watch = DiskWatch(engine, folders, 15 * MIB, ExcessAction.STOP)
        watch.set_kernels([kernel])
        await watch.check()
        usage = watch.usage(kernel.kernel_id)
        assert 20 * MIB <= usage["disk_bytes"] < 24 * MIB
        assert "disk space" in usage["stop_reason"]
        assert watch.facts()["disk"]["layer"] == engine.layer_limit()
        # With ``reads_layers=False``, the agent uses Docker's count of the layer's bytes.
        paths, counted = await Layers(calls, 50 * MIB, reads_layers=False).writable_layer(
            container.id
        )
        assert paths == () and 20 * MIB <= counted < 24 * MIB
    finally:
        await asyncio.to_thread(container.remove, force=True)
