"""Bind mounts of directories in folders: links cannot lead out of a folder.

This includes links that are created after the mount.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bai_services.agent import work
from bai_services.agent.folders.bind_mounts import BindMounts, StorageUnavailable, check_sources
from bai_services.agent.folders.kernel_folders import Folders
from bai_services.agent.kernels import Task
from bai_services.core.errors import Forbidden, NotFound, Unavailable
from tests.testbed import ComponentMissing
from tests.testbed.dead_mount import dead_mount
from tests.testbed.skip import skip_or_fail

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount")

NAME = "11111111-1111-1111-1111-111111111111"
ATTEMPTS = 3000


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the file ``sub/own``; next to the folder are files of another user."""
    (tmp_path / "folder/sub").mkdir(parents=True)
    (tmp_path / "folder/sub/own").write_text("mine")
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret/precious").write_text("somebody else's")
    return tmp_path / "folder"


@pytest.fixture
def binds(tmp_path: Path) -> Iterator[BindMounts]:
    made = BindMounts(tmp_path / "agent")
    yield made
    assert made.remove(NAME)


def requested_mounts(folder: Path, subpath: str = "sub") -> list[dict[str, Any]]:
    whole = {"source": str(folder), "target": "/home/work/all", "read_only": False}
    return [whole, {**whole, "target": "/home/work/data", "read_only": True, "subpath": subpath}]


def test_only_the_subdirectory_is_bind_mounted(binds: BindMounts, folder: Path) -> None:
    (mount,) = binds.create(NAME, requested_mounts(folder))
    assert (mount["target"], mount["read_only"]) == ("/home/work/data", True)
    place = Path(mount["source"])
    assert os.listdir(place) == ["own"]
    assert place.parent.stat().st_mode & 0o077 == 0
    # After a crash, the agent creates the same mounts again.
    assert binds.create(NAME, requested_mounts(folder)) == [mount]


def test_bind_mount_is_unaffected_by_a_later_link(binds: BindMounts, folder: Path) -> None:
    (mount,) = binds.create(NAME, requested_mounts(folder))
    (folder / "sub").rename(folder / "aside")
    (folder / "sub").symlink_to(folder.parent / "secret")
    assert os.listdir(mount["source"]) == ["own"]


@pytest.mark.parametrize(
    "link, subpath, error",
    [
        pytest.param("../secret", "link", Forbidden, id="link out of the folder"),
        pytest.param("/", "link/etc", Forbidden, id="absolute link"),
        pytest.param("/proc/self/root", "link", Forbidden, id="link in /proc"),
        pytest.param("link", "link", Forbidden, id="link to itself"),
        pytest.param("sub", "link/../..", Forbidden, id="parent directory"),
        pytest.param("sub/own", "link", NotFound, id="link to a file"),
        pytest.param("nowhere", "link", NotFound, id="dangling link"),
        pytest.param("sub", "none", NotFound, id="missing directory"),
    ],
)
def test_path_that_is_not_a_directory_of_the_folder_is_rejected(
    binds: BindMounts, folder: Path, link: str, subpath: str, error: type[Exception]
) -> None:
    (folder / "link").symlink_to(link)
    with pytest.raises(error):
        binds.create(NAME, requested_mounts(folder, subpath))


def test_link_inside_the_folder_is_followed(binds: BindMounts, folder: Path) -> None:
    (folder / "link").symlink_to("sub")
    (mount,) = binds.create(NAME, requested_mounts(folder, "link"))
    assert os.listdir(mount["source"]) == ["own"]


def test_swapping_directory_and_link_never_binds_the_link(binds: BindMounts, folder: Path) -> None:
    """A thread swaps a directory and a link continuously; each bind mount shows the directory."""
    (folder / "link").symlink_to(folder.parent / "secret")
    is_over = threading.Event()

    def swap() -> None:
        while not is_over.is_set():
            for old, new in (("sub", "spare"), ("link", "sub"), ("sub", "link"), ("spare", "sub")):
                os.rename(folder / old, folder / new)

    swapping = threading.Thread(target=swap)
    swapping.start()
    bound = 0
    try:
        for _ in range(ATTEMPTS):
            try:
                (mount,) = binds.create(NAME, requested_mounts(folder))
            except (Forbidden, NotFound):
                continue
            bound += 1
            assert os.listdir(mount["source"]) == ["own"]
    finally:
        is_over.set()
        swapping.join()
    assert bound
    binds.create(NAME, requested_mounts(folder))


def test_removing_a_kernel_keeps_the_files_of_mounted_folders(tmp_path: Path, folder: Path) -> None:
    folders = Folders(tmp_path / "agent")
    item = {
        "id": "w",
        "kind": "prepare",
        "session_id": NAME,
        "kernel_id": str(uuid.uuid4()),
        "user": "ann",
        "mounts": requested_mounts(folder),
    }
    task = Task.from_json(item)
    folders.create(task, None, None)
    (mount,) = folders.bind(task)
    assert folders.remove(task.folder)
    assert not Path(mount["source"]).parent.exists()
    assert (folder / "sub/own").read_text() == "mine"


def test_mount_points_without_a_mount_are_removed(binds: BindMounts, folder: Path) -> None:
    (kept,) = binds.create(NAME, requested_mounts(folder))
    stale = Path(kept["source"]).parent / "7"
    stale.mkdir()
    binds.remove_stale_mount_points()
    assert not stale.exists()
    assert os.listdir(kept["source"]) == ["own"]


def test_bind_mount_without_permission_names_the_reason() -> None:
    script = """
import os, pathlib
from bai_services.agent.folders.bind_mounts import BindMounts
from bai_services.core.errors import Unavailable
os.setgid(65534); os.setuid(65534)
pathlib.Path("folder/sub").mkdir(parents=True)
mount = {"source": "folder", "target": "/in", "subpath": "sub"}
try:
    BindMounts(pathlib.Path("home")).create("s", [mount])
except Unavailable as error:
    print(error.message)
"""
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    words = [sys.executable, "-c", script]
    # ``tmp_path`` cannot be used here, because other users cannot enter its parent directories.
    with tempfile.TemporaryDirectory() as place:
        os.chmod(place, 0o777)
        done = subprocess.run(words, cwd=place, env=environ, capture_output=True, text=True)
    assert "which requires root; mount the whole folder" in done.stdout, done.stderr


async def test_access_to_a_dead_mount_times_out(
    binds: BindMounts, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(work, "MOUNT_TIMEOUT_SECONDS", 0.2)
    try:
        with dead_mount(folder):
            for operation in (
                lambda: os.listdir(folder),
                lambda: binds.create(NAME, requested_mounts(folder)),
            ):
                with pytest.raises(Unavailable, match="does not respond on the chosen agent"):
                    await work.with_mount_timeout(operation)
    except ComponentMissing as reason:
        skip_or_fail("fuse", reason)
    assert await work.with_mount_timeout(os.listdir, folder) == ["sub"]
    with pytest.raises(NotFound):
        await work.with_mount_timeout(binds.create, NAME, requested_mounts(folder, "none"))


def test_a_session_needs_a_folder_on_a_file_system_that_works(folder: Path) -> None:
    mount = {"source": str(folder), "target": "/home/work/data", "read_only": False}
    check_sources([mount])
    with pytest.raises(StorageUnavailable, match="may not be mounted"):
        check_sources([{**mount, "source": f"{folder}/none"}])
    try:
        with dead_mount(folder, is_disconnected=True):
            with pytest.raises(StorageUnavailable, match="not connected") as caught:
                check_sources([mount])
            assert caught.value.details == {"target": "/home/work/data"}
    except ComponentMissing as reason:
        skip_or_fail("fuse", reason)


def test_a_session_writes_to_no_file_system_that_is_mounted_read_only(folder: Path) -> None:
    mount = {"source": str(folder), "target": "/home/work/data", "read_only": False}
    words = ["mount", "-t", "tmpfs", "-o", "ro", "tmpfs", str(folder)]
    if subprocess.run(words, capture_output=True).returncode:
        pytest.skip("mounting requires root")
    try:
        check_sources([{**mount, "read_only": True}])
        with pytest.raises(StorageUnavailable, match="is mounted read-only on the chosen agent"):
            check_sources([mount])
    finally:
        subprocess.run(["umount", str(folder)], check=True)
