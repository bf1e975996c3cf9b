"""Tests that each backend must pass on a real file system of its type; CephFS is simulated."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from bai_services.core.cluster.storage_checks import MARKER_FILE
from bai_services.core.errors import BaiError, NotFound, QuotaExceeded, Unavailable
from bai_services.storage.backends.backend import Backend
from bai_services.storage.backends.btrfs import BtrfsBackend
from bai_services.storage.backends.cephfs import CephfsBackend
from bai_services.storage.backends.glusterfs import GlusterfsBackend
from bai_services.storage.backends.local import LocalBackend
from bai_services.storage.backends.project_quota import Ext4Backend, XfsBackend
from bai_services.storage.backends.registry import BUILT_IN, find_backend
from bai_services.storage.base import Capability, CopyProgress, HostStatus, Location, Scope
from bai_services.storage.host import StorageHost
from tests.testbed import ComponentMissing, glusterfs
from tests.testbed.skip import skip_or_fail

MIB = 2**20
IMAGE_BYTES = 400 * MIB


class FakeCephfs(CephfsBackend):
    """CephFS simulated by user attributes: limits are stored, but nothing is counted or limited."""

    filesystems = ("ext4", "xfs", "btrfs", "tmpfs", "overlay", "ext3", "ext2")
    limit_attribute = "user.ceph.quota.max_bytes"
    usage_attribute = "user.ceph.dir.rbytes"

    def create(self, scope: Path) -> None:
        super().create(scope)
        os.setxattr(scope, self.usage_attribute, b"0")


@dataclass
class BackendCase:
    """A backend, and the commands that create a file system for it."""

    name: str
    backend: type[Backend]
    make: list[str] = field(default_factory=list)
    options: str = "loop"
    after: list[str] = field(default_factory=list)
    is_enforced: bool = False


BACKENDS = [
    BackendCase("local", LocalBackend),
    BackendCase(
        "btrfs", BtrfsBackend, ["mkfs.btrfs", "-q"], after=["btrfs", "quota", "enable"],
        is_enforced=True,
    ),
    BackendCase("xfs", XfsBackend, ["mkfs.xfs", "-q"], "loop,prjquota", is_enforced=True),
    BackendCase(
        "ext4", Ext4Backend, ["mkfs.ext4", "-q", "-O", "project,quota", "-E", "quotatype=prjquota"],
        "loop,prjquota", is_enforced=True,
    ),
    BackendCase("cephfs", FakeCephfs),
    BackendCase("glusterfs", GlusterfsBackend, is_enforced=True),
]  # fmt: skip


def run(*words: str) -> str | None:
    """Run a command; return why it failed, or None if it succeeded."""
    if shutil.which(words[0]) is None:
        return f"{words[0]} is not installed"
    done = subprocess.run(words, capture_output=True, text=True, env={**os.environ, "LC_ALL": "C"})
    return None if done.returncode == 0 else f"{' '.join(words)}: {done.stderr.strip()}"


@pytest.fixture(scope="module", params=BACKENDS, ids=lambda case: case.name)
def mounted(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[BackendCase, Path]]:
    """A backend, and the root of a new file system of its type."""
    case: BackendCase = request.param
    place = tmp_path_factory.mktemp(case.name)
    if case.backend is GlusterfsBackend:
        with pytest.MonkeyPatch.context() as patch, ExitStack() as stack:
            try:
                volume = stack.enter_context(glusterfs.with_quotas(place))
            except ComponentMissing as reason:
                skip_or_fail(case.name, reason)
            patch.setenv("PATH", f"{volume.tools}{os.pathsep}{os.environ['PATH']}")
            yield case, volume.mounts[0]
        return
    if not case.make:
        yield case, place / "root"
        return
    image, root = place / "image", place / "mounted"
    root.mkdir()
    with image.open("wb") as file:
        file.truncate(IMAGE_BYTES)
    for words in ([*case.make, str(image)], ["mount", "-o", case.options, str(image), str(root)]):
        if problem := run(*words):
            skip_or_fail(case.name, problem)
    try:
        if case.after and (problem := run(*case.after, str(root))):
            skip_or_fail(case.name, problem)
        yield case, root
    finally:
        subprocess.run(["umount", str(root)], check=True)


@pytest.fixture
async def host(mounted: tuple[BackendCase, Path]) -> AsyncIterator[StorageHost]:
    case, root = mounted
    made = StorageHost(case.name, case.backend(root))
    await made.start()
    assert made.health.status is HostStatus.READY, made.health.message
    yield made
    await made.stop()


def read(path: Path) -> bytes:
    return path.read_bytes()


def fresh(scope: Scope | None = None) -> Location:
    return Location(scope or Scope("user", str(uuid.uuid4())), str(uuid.uuid4()))


async def put(host: StorageHost, location: Location, path: str, content: bytes) -> None:
    writer = await host.writer(location)
    try:
        for start in range(0, len(content), MIB):
            await host.run(writer.write, content[start : start + MIB])
        await host.commit(location, writer, path, None)
    finally:
        await host.discard(writer)


async def test_capabilities_match_file_system(
    mounted: tuple[BackendCase, Path], host: StorageHost
) -> None:
    case, _ = mounted
    if case.is_enforced:
        assert {Capability.QUOTA, Capability.FAST_USAGE} <= host.capabilities
    else:
        assert Capability.QUOTA not in host.capabilities


async def test_folder_is_created_filled_and_deleted(host: StorageHost) -> None:
    location = fresh()
    await host.create(location)
    await put(host, location, "a/b", b"x" * 1000)
    counted = await host.usage(location)
    assert (counted.files, counted.bytes) == (2, 1000)
    await host.delete(location)
    await host.delete(location)
    with pytest.raises(NotFound):
        await host.list(location, "")


async def test_folders_of_one_scope_share_its_quota(
    mounted: tuple[BackendCase, Path], host: StorageHost
) -> None:
    case, root = mounted
    one = fresh()
    other = fresh(one.scope)
    await host.create(one)
    await host.create(other)
    await host.set_quota(one.scope, 8 * MIB)
    await put(host, one, "first", os.urandom(5 * MIB))
    if not case.is_enforced:
        await put(host, other, "second", os.urandom(5 * MIB))
        return
    assert host.backend.quota(root.joinpath(*one.scope.parts)) == 8 * MIB
    with pytest.raises(QuotaExceeded, match="quota is used up"):
        await put(host, other, "second", os.urandom(5 * MIB))
    # A session writes without the manager; the operating system enforces the same limit.
    failure = run(
        "dd", "if=/dev/urandom", f"of={host.source_path(other)}/by-hand", "bs=1M", "count=6",
        "conv=fsync",
    )  # fmt: skip
    assert "Disk quota exceeded" in (failure or "")
    # GlusterFS rejects the creation of the file; the others reject its content.
    with suppress(FileNotFoundError):
        os.unlink(f"{host.source_path(other)}/by-hand")
    await host.set_quota(one.scope, None)
    await put(host, other, "second", os.urandom(5 * MIB))
    assert host.backend.quota(root.joinpath(*one.scope.parts)) is None


async def test_limit_applies_to_writes_on_another_machine(
    mounted: tuple[BackendCase, Path], host: StorageHost
) -> None:
    """Another machine has mounted the same file system: the second client of the volume."""
    case, root = mounted
    if case.name != "glusterfs":
        pytest.skip("only GlusterFS has several clients here")
    location = fresh()
    await host.create(location)
    await host.set_quota(location.scope, 8 * MIB)
    other = root.with_name("other") / Path(host.source_path(location)).relative_to(root)
    write = ["dd", "if=/dev/urandom", f"of={other}/by-hand", "bs=1M", "conv=fsync"]
    assert run(*write, "count=4") is None
    assert "Disk quota exceeded" in (run(*write, "count=20") or "")
    assert (other / "by-hand").stat().st_size < 16 * MIB


async def test_scope_bytes_match_stored_files(
    mounted: tuple[BackendCase, Path], host: StorageHost
) -> None:
    case, _ = mounted
    location = fresh()
    await host.create(location)
    await put(host, location, "f", os.urandom(3 * MIB))
    used = await host.scope_bytes(location.scope)
    if case.is_enforced:
        assert used is not None and 3 * MIB <= used < 4 * MIB
    else:
        assert used is None or case.name == "cephfs"


async def test_clone_is_complete_and_independent(host: StorageHost) -> None:
    source, target = fresh(), fresh()
    await host.create(source)
    await put(host, source, "a/b", b"one")
    path = Path(host.source_path(source))
    os.symlink("a/b", path / "link")
    os.mkfifo(path / "pipe")
    (path / "run").write_bytes(b"#!")
    (path / "run").chmod(0o755)
    progress = CopyProgress()
    await host.copy_folder(source, host, target, progress)
    await host.copy_folder(source, host, target, progress)  # like a retry after an interruption
    there = Path(host.source_path(target))
    assert (there / "a/b").read_bytes() == b"one"
    assert os.readlink(there / "link") == "a/b"
    assert (there / "run").stat().st_mode & 0o111
    assert not (there / "pipe").exists()
    (there / "a/b").write_bytes(b"two")
    assert (path / "a/b").read_bytes() == b"one"
    assert progress.bytes >= 5


async def test_move_to_another_scope_is_idempotent(host: StorageHost) -> None:
    source = fresh()
    target = Location(fresh().scope, source.vfolder_id)
    await host.create(source)
    await put(host, source, "f", b"mine")
    await host.move_folder(source, target, CopyProgress())
    await host.move_folder(source, target, CopyProgress())
    assert read(Path(host.source_path(target), "f")) == b"mine"
    with pytest.raises(NotFound):
        await host.check_access(source, 5)


async def test_delete_of_scope_removes_its_folders(
    mounted: tuple[BackendCase, Path], host: StorageHost
) -> None:
    _, root = mounted
    location = fresh()
    await host.create(location)
    await put(host, location, "f", b"x")
    scope = root.joinpath(*location.scope.parts)
    host.backend.delete(scope)
    host.backend.delete(scope)
    assert not scope.exists()


def test_find_backend_returns_built_in_backends() -> None:
    assert all(find_backend(name) is cls for name, cls in BUILT_IN.items())
    with pytest.raises(Unavailable, match="available: btrfs, cephfs, ext4, glusterfs, local, xfs"):
        find_backend("tape")


@pytest.mark.parametrize("backend", [BtrfsBackend, XfsBackend, CephfsBackend])
async def test_wrong_file_system_is_reported(tmp_path: Path, backend: type[Backend]) -> None:
    host = StorageHost("odd", backend(tmp_path))
    await host.start()
    assert host.health.status is HostStatus.GONE
    assert "needs a file system of type" in host.health.message
    await host.stop()


class HangingBackend(LocalBackend):
    """A backend on a mount that does not respond until the test releases the mount."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.released = threading.Event()

    def create(self, scope: Path) -> None:
        self.released.wait(30)


async def test_calls_on_dead_mount_time_out(tmp_path: Path) -> None:
    backend = HangingBackend(tmp_path)
    host = StorageHost("dead", backend)
    await host.start()
    try:
        for _ in range(8):
            with pytest.raises(Unavailable, match="does not respond"):
                await host.workers.run(backend.create, tmp_path, seconds=0.05)
        # All worker threads hang: further calls fail immediately.
        with pytest.raises(Unavailable, match="does not respond"):
            await host.check_access(fresh(), 5)
        assert (await host.probe()).status is HostStatus.GONE
    finally:
        backend.released.set()
        await host.stop()


async def test_marker_of_a_host_is_the_same_for_all_managers_and_on_each_file_system_different(
    tmp_path: Path,
) -> None:
    first, second = (StorageHost("nas", LocalBackend(tmp_path)) for _ in range(2))
    for host in (first, second):
        await host.start()
        await host.stop()
    assert first.marker == second.marker == (tmp_path / MARKER_FILE).read_text() != ""
    if problem := run("mount", "-t", "tmpfs", "-o", "ro,size=1m", "none", str(tmp_path)):
        skip_or_fail("mount", problem)
    try:
        await second.start()
        assert second.marker == ""  # the file system is read-only
        assert run("mount", "-o", "remount,rw", str(tmp_path)) is None
        await second.probe()
        assert second.marker not in ("", first.marker)
    finally:
        await second.stop()
        run("umount", str(tmp_path))


async def test_read_only_host_is_reported(tmp_path: Path) -> None:
    if problem := run("mount", "-t", "tmpfs", "-o", "size=64m", "none", str(tmp_path)):
        skip_or_fail("mount", problem)
    try:
        host = StorageHost("still", LocalBackend(tmp_path))
        await host.start()
        location = fresh()
        await host.create(location)
        await put(host, location, "f", b"kept")
        assert run("mount", "-o", "remount,ro", str(tmp_path)) is None
        assert (await host.probe()).status is HostStatus.READ_ONLY
        with pytest.raises(BaiError, match="read-only"):
            await put(host, location, "g", b"x")
        download = await host.open_download(location, "f")
        assert download.size == 4
        await download.close()
        await host.stop()
    finally:
        assert run("umount", str(tmp_path)) is None
