"""Commits to a registry whose disk is full: a real registry on a small file system."""

from __future__ import annotations

import asyncio
import os
import subprocess
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from bai_services.agent.docker.calls import DockerCalls
from bai_services.agent.docker.commits import commit
from bai_services.core.cluster.custom_images import CommitRequest
from bai_services.core.cluster.image_store import RegistryAuth
from bai_services.core.errors import Unavailable
from tests.testbed.docker_engine import DockerEngine
from tests.testbed.image_registry import PASSWORD, USERNAME, TlsRegistry, serving_registry
from tests.testbed.images import busybox_image
from tests.testbed.wait import wait_until

pytestmark = [
    pytest.mark.docker,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a file system"),
]

CHANGED_MIB = 8
SMALL, LARGE = "size=6m", "size=64m"


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system that is too small for the changes."""
    folder = tmp_path / "disk"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", SMALL, "registry", str(folder)], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.fixture
def registry(disk: Path) -> Iterator[TlsRegistry]:
    with serving_registry(disk) as made:
        yield made


@pytest.fixture
async def calls(docker_engine: DockerEngine) -> AsyncIterator[DockerCalls]:
    made = DockerCalls(docker_engine.host, 60)
    yield made
    made.close()


async def test_a_commit_to_a_full_registry_fails_with_the_reason_and_succeeds_when_there_is_room(
    docker_engine: DockerEngine, registry: TlsRegistry, disk: Path, calls: DockerCalls
) -> None:
    mark = uuid.uuid4().hex
    base = await asyncio.to_thread(busybox_image, docker_engine)
    write = f"dd if=/dev/urandom of=/changed bs=1M count={CHANGED_MIB} && echo written && sleep 600"
    container = await asyncio.to_thread(
        docker_engine.client.containers.run,
        base,
        ["/bin/sh", "-c", write],
        detach=True,
        labels={"bai.test": mark},
    )
    image = f"{registry.host}/team/changed:1"
    request = CommitRequest(
        id="commit-1",
        session_id=str(uuid.uuid4()),
        kernel_id=str(uuid.uuid4()),
        image=image,
        is_pushed=True,
        auth=RegistryAuth(USERNAME, PASSWORD),
    )
    filters = {"label": [f"bai.test={mark}"]}
    try:
        await asyncio.to_thread(
            wait_until, lambda: b"written" in container.logs(), 30, "the change in the container"
        )
        with pytest.raises(Unavailable, match="500 Internal.*its disk may be full"):
            await commit(calls, filters, request, lambda *_: None)
        assert docker_engine.client.images.list(image) == []
        with registry.client() as client:
            assert client.get("/v2/team/changed/tags/list").status_code == 404

        remount = ["mount", "-o", f"remount,{LARGE}", str(disk)]
        await asyncio.to_thread(subprocess.run, remount, check=True)
        made = await commit(calls, filters, request, lambda *_: None)
        with registry.client() as client:
            assert client.get("/v2/team/changed/tags/list").json()["tags"] == ["1"]
            found = client.head(f"/v2/team/changed/manifests/{made['digest']}")
            assert found.status_code == 200
    finally:
        await asyncio.to_thread(container.remove, force=True)
        if docker_engine.client.images.list(image):
            await asyncio.to_thread(docker_engine.run, "rmi", "--force", image)
