"""Folders mounted into containers: permissions, revoked shares, and quotas."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from docker.errors import APIError
from docker.types import Mount

from bai_services.core.errors import Forbidden, NotFound
from bai_services.core.folders.mounts import MountRequest
from bai_services.core.folders.vfolders import Permission
from bai_services.manager.settings import StorageHostSettings
from tests.storage.test_backends import IMAGE_BYTES, run
from tests.testbed import ComponentMissing
from tests.testbed.docker_engine import DockerEngine
from tests.testbed.images import base_image
from tests.testbed.manager import (
    SUPERADMIN,
    MovableClock,
    World,
    known_world,
    manager_on,
)
from tests.testbed.skip import skip_or_fail

MIB = 2**20
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="requires root (mount, chown)")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A separate btrfs file system with quotas."""
    image, root = tmp_path / "image", tmp_path / "mounted"
    root.mkdir()
    with image.open("wb") as file:
        file.truncate(IMAGE_BYTES)
    for words in (
        ("mkfs.btrfs", "-q", str(image)),
        ("mount", "-o", "loop", str(image), str(root)),
        ("btrfs", "quota", "enable", str(root)),
    ):
        if problem := run(*words):
            skip_or_fail("btrfs", problem)
    yield root
    assert run("umount", "-l", str(root)) is None


@pytest.fixture
async def world(disk: Path, tmp_path: Path, demo_database_url: str) -> AsyncIterator[World]:
    hosts = (StorageHostSettings("local", "btrfs", disk),)
    async with manager_on(
        demo_database_url, tmp_path, MovableClock(), storage_hosts=hosts
    ) as manager:
        made = await known_world(manager, manager.clock)  # type: ignore[arg-type]
        await manager.folders.vfolders.start()
        yield made


@dataclass
class Containers:
    """Runs commands in containers with the uid of a user and the group of all sessions."""

    world: World
    engine: DockerEngine
    image: str

    async def mounts(self, username: str, *requested: MountRequest) -> list[Mount]:
        """Return the Docker mounts that a new session of the user would get."""
        owner = await self.world.user_id(username)
        project = await self.world.project_id()
        mounts = self.world.manager.folders.mounts
        resolved = await mounts.resolve_mounts(SUPERADMIN, owner, project, list(requested))
        sources = await mounts.sources(owner, [mount.as_row() for mount in resolved])
        return [
            Mount(s.target, s.source, "bind", s.read_only, propagation="rprivate") for s in sources
        ]

    async def sh(self, uid: int, mounts: list[Mount], script: str) -> tuple[int, str]:
        """Run a shell script in a new container; return its exit code and its output."""

        def work() -> tuple[int, str]:
            made: Any = self.engine.client.containers.create(
                self.image, ["sh", "-c", f"umask 022; {script}"], user=f"{uid}:1000",
                mounts=mounts, environment={"LC_ALL": "C"}, network_disabled=True,
            )  # fmt: skip
            try:
                made.start()
                code = made.wait(timeout=60)["StatusCode"]
                return code, made.logs().decode()
            finally:
                made.remove(force=True)

        return await asyncio.to_thread(work)


@pytest.fixture
def containers(world: World, docker_engine: DockerEngine) -> Containers:
    try:
        return Containers(world, docker_engine, base_image(docker_engine))
    except (ComponentMissing, APIError) as reason:
        skip_or_fail("docker", reason)


async def share(world: World, permission: Permission) -> None:
    """Share the folder ``data`` of ``user`` with ``user2``, who accepts."""
    owner, manager = await world.caller("user"), world.manager
    grant = await manager.folders.grants.put(owner, "data", "user2", permission)
    if grant.invitation_id is not None:
        await manager.folders.invitations.accept(await world.caller("user2"), grant.invitation_id)


async def test_permissions_are_enforced_inside_containers(containers: Containers) -> None:
    world = containers.world
    manager = world.manager
    owner = await world.caller("user")
    await manager.folders.vfolders.create(owner, {"name": "data"})
    mine = await containers.mounts("user", MountRequest("data"))
    code, output = await containers.sh(100_001, mine, "cd /home/work/data && echo mine > f && ls")
    assert (code, output) == (0, "f\n")

    # With read-only permission each write fails, even by root in the container.
    await share(world, Permission.RO)
    with pytest.raises(Forbidden):
        await containers.mounts("user2", MountRequest("data", permission=Permission.RW))
    reading = await containers.mounts("user2", MountRequest("data"))
    # Use one stream: Docker does not keep the order of outputs and errors in two streams.
    tries = "cd /home/work/data; cat f; echo x > g; echo x >> f; rm f; chmod 777 f; mkdir d; ls"
    _, output = await containers.sh(100_002, reading, f"exec 2>&1; {tries}")
    assert output.count("Read-only file system") == 5 and output.endswith("\nf\n")
    _, output = await containers.sh(
        0, reading, "mount -o remount,rw /home/work/data; echo x > /home/work/data/g"
    )
    assert "Read-only file system" in output

    # With read-write permission, each user can change the files of the other.
    await share(world, Permission.RW)
    writing = await containers.mounts("user2", MountRequest("data"))
    code, output = await containers.sh(
        100_002, writing, "cd /home/work/data && echo theirs >> f && mkdir d && echo x > d/x"
    )
    assert (code, output) == (0, "")
    code, output = await containers.sh(100_001, mine, "cd /home/work/data && cat f && echo >> d/x")
    assert (code, output) == (0, "mine\ntheirs\n")


async def test_revoked_share_stays_mounted_only_in_running_sessions(
    containers: Containers,
) -> None:
    world = containers.world
    owner = await world.caller("user")
    guest, project = await world.user_id("user2"), await world.project_id()
    await world.manager.folders.vfolders.create(owner, {"name": "data"})
    await share(world, Permission.RW)
    mounts = world.manager.folders.mounts
    created = await mounts.resolve_mounts(SUPERADMIN, guest, project, [MountRequest("data")])
    # A running session keeps the mounts that it got before the revocation.
    held = await containers.mounts("user2", MountRequest("data"))
    await world.manager.folders.grants.delete(owner, "data", "user2")
    assert (await containers.sh(100_002, held, "echo x > /home/work/data/f"))[0] == 0
    with pytest.raises(NotFound):
        await containers.mounts("user2", MountRequest("data"))
    # A session that was created before the revocation and starts after it does not get the folder.
    with pytest.raises(Forbidden, match="no longer shared"):
        await mounts.sources(guest, [mount.as_row() for mount in created])


async def test_quota_is_enforced_inside_container(containers: Containers) -> None:
    manager = containers.world.manager
    owner = await containers.world.caller("user")
    await manager.folders.vfolders.create(owner, {"name": "data"})
    scope = f"user:{owner.user_id}"
    shown = await manager.folders.quotas.put(SUPERADMIN, "local", scope, 20 * MIB)
    assert (shown.is_enforced, shown.source) == (True, "counter")
    mounts = await containers.mounts("user", MountRequest("data"))
    fill = "dd if=/dev/urandom of=/home/work/data/f bs=1M count=40 conv=fsync"
    code, output = await containers.sh(100_001, mounts, fill)
    assert code != 0 and "Disk quota exceeded" in output
    assert (await containers.sh(100_001, mounts, "rm /home/work/data/f"))[0] == 0
    await manager.folders.quotas.put(SUPERADMIN, "local", scope, -1)
    code, output = await containers.sh(100_001, mounts, fill)
    assert code == 0, output
