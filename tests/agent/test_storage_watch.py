"""Checks of the storage hosts on the machine of an agent, with real file systems."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest

from bai_services.agent.folders import storage_watch
from bai_services.agent.folders.storage_watch import StorageWatch
from bai_services.core.cluster.storage_checks import MARKER_FILE, StorageCheck
from tests.testbed import ComponentMissing
from tests.testbed.dead_mount import dead_mount
from tests.testbed.skip import skip_or_fail


@pytest.fixture(autouse=True)
def short_times(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage_watch, "INTERVAL_SECONDS", 0.02)
    monkeypatch.setattr(storage_watch, "TIMEOUT_SECONDS", 1)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "storage"
    folder.mkdir()
    (folder / MARKER_FILE).write_text("m1")
    return folder


class States:
    """Records the states that a watch reports; a test can wait for a state."""

    def __init__(self) -> None:
        self.has_changed = asyncio.Event()
        self.watch = StorageWatch(self.has_changed.set)

    async def after_change(self) -> dict[str, str]:
        async with asyncio.timeout(20):
            await self.has_changed.wait()
        self.has_changed.clear()
        return self.watch.states()


@asynccontextmanager
async def watching(*checks: StorageCheck) -> AsyncIterator[States]:
    states = States()
    task = asyncio.create_task(states.watch.run())
    try:
        # The watch checks no host until the manager sends the list of hosts.
        assert states.watch.states() == {}
        states.watch.set_hosts(checks)
        yield states
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@contextmanager
def mounted(path: Path, *options: str) -> Iterator[None]:
    words = ["mount", "-t", "tmpfs", *options, "tmpfs", str(path)]
    if subprocess.run(words, capture_output=True).returncode:
        skip_or_fail("mount", "mounting requires root")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True)


def remount(path: Path, option: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{option}", str(path)], check=True)


@contextmanager
def dead(path: Path, *, is_disconnected: bool) -> Iterator[None]:
    try:
        with dead_mount(path, is_disconnected):
            yield
    except ComponentMissing as reason:
        skip_or_fail("fuse", reason)


async def test_another_file_system_is_not_mounted_until_it_is_the_right_one(root: Path) -> None:
    host, other = StorageCheck("nas", str(root), "m1"), StorageCheck("old", f"{root}/none", "m2")
    async with watching(host, other) as states:
        assert await states.after_change() == {"nas": "", "old": "not-mounted"}
        with mounted(root):
            # Another file system is mounted at the same path.
            assert (await states.after_change())["nas"] == "not-mounted"
        assert (await states.after_change())["nas"] == ""
        # The manager uses a new file system.
        states.watch.set_hosts([StorageCheck("nas", str(root), "m3")])
        assert await states.after_change() == {"nas": "not-mounted"}


async def test_read_only_file_systems_are_reported_until_they_are_writable(root: Path) -> None:
    with mounted(root):
        (root / MARKER_FILE).write_text("m1")
        remount(root, "ro")
        async with watching(StorageCheck("nas", str(root), "m1")) as states:
            assert await states.after_change() == {"nas": "read-only"}
            remount(root, "rw")
            assert await states.after_change() == {"nas": ""}


async def test_file_systems_that_fail_or_hang_are_reported_until_they_work(root: Path) -> None:
    other = StorageCheck("other", str(root.parent))
    async with watching(StorageCheck("nas", str(root), "m1"), other) as states:
        assert await states.after_change() == {"nas": "", "other": ""}
        with dead(root, is_disconnected=True):
            assert await states.after_change() == {"nas": "failing", "other": ""}
        assert await states.after_change() == {"nas": "", "other": ""}
        with dead(root, is_disconnected=False):
            assert await states.after_change() == {"nas": "not-responding", "other": ""}
        assert await states.after_change() == {"nas": "", "other": ""}
