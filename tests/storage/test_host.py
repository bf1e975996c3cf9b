"""StorageHost with the local backend: files, links, attacks and full disks."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import socket
import stat
import subprocess
import threading
import time
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from bai_services.core.errors import (
    BaiError,
    Conflict,
    Forbidden,
    InvalidRequest,
    NotFound,
    StorageFull,
    Unavailable,
)
from bai_services.core.folders.entries import FileType
from bai_services.storage.backends.local import LocalBackend
from bai_services.storage.base import CopyProgress, HostStatus, Location, Scope
from bai_services.storage.host import StorageHost
from bai_services.storage.safe_paths import Opener, best_opener, open_walking
from bai_services.storage.transfers.staging import DIRECTORY

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="requires root (mount, chown)")


@pytest.fixture(params=["kernel", "walking"])
def opener(request: pytest.FixtureRequest) -> Opener:
    """Run each test that uses this fixture with and without openat2."""
    return best_opener() if request.param == "kernel" else open_walking


@pytest.fixture
async def storage(tmp_path: Path, opener: Opener) -> AsyncIterator[StorageHost]:
    made = host_at(tmp_path / "root", opener=opener)
    await made.start()
    yield made
    await made.stop()


@pytest.fixture
async def folder(storage: StorageHost) -> Location:
    location = fresh_location()
    await storage.create(location)
    return location


def path_of(storage: StorageHost, location: Location) -> Path:
    return Path(storage.source_path(location))


def fresh_location() -> Location:
    return Location(Scope("user", str(uuid.uuid4())), str(uuid.uuid4()))


def host_at(root: Path, **options: Any) -> StorageHost:
    return StorageHost("local", LocalBackend(root), **options)


async def put(
    storage: StorageHost, location: Location, path: str, content: bytes, uid: int | None = None
) -> None:
    await storage.check_target(location, path, len(content))
    writer = await storage.writer(location)
    try:
        await storage.run(writer.write, content)
        await storage.commit(location, writer, path, uid)
    finally:
        await storage.discard(writer)


async def get(storage: StorageHost, location: Location, path: str) -> bytes:
    download = await storage.open_download(location, path)
    try:
        return b"".join([chunk async for chunk in download.chunks(0, download.size)])
    finally:
        await download.close()


def content_of(path: Path) -> bytes:
    return path.read_bytes()


def succeeds(words: list[str]) -> bool:
    return subprocess.run(words, capture_output=True).returncode == 0


def leftovers(storage: StorageHost) -> list[str]:
    """Return the paths of the files in all staging directories."""
    return [str(path) for path in storage.backend.root.glob(f"*/*/{DIRECTORY}/*")]


async def test_download_returns_the_uploaded_content(
    storage: StorageHost, folder: Location
) -> None:
    content = os.urandom(3 * 2**20 + 7)
    await put(storage, folder, "a/b/c.bin", content)
    assert await get(storage, folder, "a/b/c.bin") == content
    assert (path_of(storage, folder) / "a/b/c.bin").read_bytes() == content
    listed = await storage.list(folder, "a/b", 0, 10)
    assert [(e.name, e.type, e.size) for e in listed.items] == [
        ("c.bin", FileType.FILE, len(content))
    ]
    assert leftovers(storage) == []
    usage = await storage.usage(folder)
    assert (usage.files, usage.bytes) == (3, len(content))


async def test_folder_path_consists_of_scope_and_id(storage: StorageHost, folder: Location) -> None:
    name, scope = folder.vfolder_id, folder.scope
    assert path_of(storage, folder).relative_to(storage.backend.root) == Path(
        "user", scope.id, name
    )
    for odd in (Location(scope, "../../etc"), Location(Scope("..", scope.id), name),
                Location(Scope("user", "../x"), name)):  # fmt: skip
        with pytest.raises(ValueError):
            storage.source_path(odd)


async def test_upload_that_replaces_file_keeps_execute_bit(
    storage: StorageHost, folder: Location
) -> None:
    await put(storage, folder, "run", b"one")
    path = path_of(storage, folder) / "run"
    path.chmod(0o755)
    await put(storage, folder, "run", b"two")
    assert path.read_bytes() == b"two"
    assert path.stat().st_mode & 0o111


async def test_unfinished_upload_is_invisible(storage: StorageHost, folder: Location) -> None:
    writer = await storage.writer(folder)
    await storage.run(writer.write, b"x" * 2**21)
    assert (await storage.list(folder, "", 0, 10)).total == 0
    await storage.discard(writer)
    await storage.discard(writer)  # a second call has no effect
    assert (await storage.list(folder, "", 0, 10)).total == 0
    assert leftovers(storage) == []


async def test_sweep_at_start_removes_remains_of_crash(tmp_path: Path) -> None:
    storage = host_at(tmp_path)
    await storage.start()
    location = fresh_location()
    await storage.create(location)
    writer = await storage.writer(location)
    await storage.run(writer.write, b"half")
    storage.staging(location).new_path(".unpacked").mkdir()
    assert len(leftovers(storage)) == 2
    # Another manager is writing the file.
    await storage.sweep(is_start=True)
    assert len(leftovers(storage)) == 1
    storage.staging(location).new_path(".unpacked").mkdir()
    writer.close()
    # Files that were written after the start are kept.
    storage.staging(location).sweep(time.time() - 60, is_start=True)
    assert len(leftovers(storage)) == 2
    await storage.sweep(is_start=True)
    assert leftovers(storage) == []
    await storage.stop()


ESCAPES = [
    pytest.param("../outside", InvalidRequest, id="leading .."),
    pytest.param("a/../../outside", InvalidRequest, id=".. in the middle"),
    pytest.param("/etc/passwd", InvalidRequest, id="absolute path"),
    pytest.param("a\0b", InvalidRequest, id="NUL"),
    pytest.param("x" * 256, InvalidRequest, id="part too long"),
    pytest.param("/".join(["x" * 200] * 30), InvalidRequest, id="path too long"),
    pytest.param("\ud800", InvalidRequest, id="lone surrogate"),
    pytest.param("", InvalidRequest, id="the folder itself"),
    pytest.param("file/", InvalidRequest, id="file with trailing slash"),
    pytest.param("out-file", Forbidden, id="link to a file outside"),
    pytest.param("out-dir/outside", Forbidden, id="through a link to outside"),
    pytest.param("out-relative/outside", Forbidden, id="through a relative link to outside"),
    pytest.param("loop", Forbidden, id="link to itself"),
    pytest.param("magic/passwd", Forbidden, id="through a magic link of /proc"),
]


@pytest.fixture
def escape_target(storage: StorageHost, folder: Location, tmp_path: Path) -> Path:
    """Create links in the folder, most of which lead out; return a file outside of the folder."""
    outside = tmp_path / "outer" / "outside"
    outside.parent.mkdir()
    outside.write_bytes(b"secret")
    here = path_of(storage, folder)
    (here / "file").write_bytes(b"mine")
    (here / "out-file").symlink_to(outside)
    (here / "out-dir").symlink_to(outside.parent)
    up = os.path.relpath(outside.parent, here)
    (here / "out-relative").symlink_to(up)
    (here / "loop").symlink_to("loop")
    (here / "magic").symlink_to("/proc/self/root/etc")
    return outside


@pytest.mark.parametrize("path, error", ESCAPES)
async def test_path_that_is_invalid_or_leads_out_is_rejected(
    storage: StorageHost,
    folder: Location,
    escape_target: Path,
    path: str,
    error: type[BaiError],
) -> None:
    with pytest.raises(error):
        await get(storage, folder, path)
    if error is Forbidden and path not in ("out-file", "loop"):
        with pytest.raises(Forbidden):
            await put(storage, folder, path, b"gone")
        with pytest.raises(Forbidden):
            await storage.remove(folder, path)
        with pytest.raises(Forbidden):
            await storage.list(folder, path.partition("/")[0], 0, 10)
    elif error is InvalidRequest:
        with pytest.raises(InvalidRequest):
            await put(storage, folder, path, b"gone")
        with pytest.raises(InvalidRequest):
            await storage.remove(folder, path)
    assert content_of(escape_target) == b"secret"
    assert leftovers(storage) == []


async def test_link_is_listed_and_removed_but_not_written(
    storage: StorageHost, folder: Location, escape_target: Path
) -> None:
    listed = await storage.list(folder, "", 0, 20)
    assert {e.name: e.type for e in listed.items}["out-file"] is FileType.LINK
    with pytest.raises(Conflict, match="is a link"):
        await put(storage, folder, "out-file", b"gone")
    await storage.remove(folder, "out-file")
    assert content_of(escape_target) == b"secret"


async def test_link_within_folder_is_followed_only_with_openat2(
    storage: StorageHost, folder: Location, opener: Opener
) -> None:
    here = path_of(storage, folder)
    (here / "real").mkdir()
    (here / "real" / "file").write_bytes(b"in")
    (here / "link").symlink_to("real")
    if opener is open_walking:
        with pytest.raises(Forbidden):
            await get(storage, folder, "link/file")
    else:
        assert await get(storage, folder, "link/file") == b"in"


async def test_directory_swapped_with_link_never_leads_out(
    storage: StorageHost, folder: Location, escape_target: Path
) -> None:
    here = path_of(storage, folder)
    (here / "way").mkdir()
    (here / "way" / "outside").write_bytes(b"mine")
    (here / "trap").symlink_to(escape_target.parent)
    stop = threading.Event()

    def swap() -> None:
        # `way` is a directory, then a link to outside, then the directory again.
        steps = [("way", "safe"), ("trap", "way"), ("way", "trap"), ("safe", "way")]
        for number in itertools.count():
            for before, after in steps:
                with contextlib.suppress(OSError):
                    os.rename(here / before, here / after)
            if os.path.lexists(here / "safe"):
                # An upload has created a directory `way`, which blocks the renames.
                with contextlib.suppress(OSError):
                    os.rename(here / "way", here / f"created-{number}")
            if stop.is_set():
                return

    attacker = threading.Thread(target=swap)
    attacker.start()
    seen: set[bytes] = set()
    n_denied = 0
    try:
        for number in range(300):
            try:
                seen.add(await get(storage, folder, "way/outside"))
            except Forbidden:
                n_denied += 1
            except (NotFound, Conflict, Unavailable):
                pass  # `way` is being renamed
            with contextlib.suppress(Forbidden, NotFound, Conflict, Unavailable):
                await put(storage, folder, f"way/new-{number}", b"new")
    finally:
        stop.set()
        attacker.join()
    # Requests have found `way` both as a directory and as a link, but never followed the link.
    assert seen == {b"mine"}
    assert n_denied
    assert os.listdir(escape_target.parent) == ["outside"]
    assert content_of(escape_target) == b"secret"


async def test_special_files_are_listed_but_not_opened(
    storage: StorageHost, folder: Location
) -> None:
    here = path_of(storage, folder)
    os.mkfifo(here / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        with contextlib.chdir(
            here
        ):  # an absolute path would exceed the maximum length of a socket address
            listener.bind("socket")
        names = ["pipe", "socket"]
        if os.geteuid() == 0:
            os.mknod(here / "device", stat.S_IFCHR | 0o600, os.makedev(1, 3))
            names.append("device")
        for name in names:
            with pytest.raises(Conflict, match="not a regular file"):
                await asyncio.wait_for(get(storage, folder, name), 5)
            with pytest.raises(Conflict, match="special file"):
                await put(storage, folder, name, b"x")
    listed = await storage.list(folder, "", 0, 10)
    assert {e.type for e in listed.items} == {FileType.OTHER}


async def test_unusual_file_names_are_kept_and_control_characters_rejected(
    storage: StorageHost, folder: Location
) -> None:
    for name in ("한글 파일.txt", "ไทย", "日本語", "🙂", "e\u0301", "-rf", "a:b", "*"):
        await put(storage, folder, name, name.encode())
        assert await get(storage, folder, name) == name.encode()
    with pytest.raises(InvalidRequest, match="control"):
        await put(storage, folder, "a\nb", b"x")
    (path_of(storage, folder) / os.fsdecode(b"\xff")).write_bytes(b"x")
    names = [e.name for e in (await storage.list(folder, "", 0, 100)).items]
    assert "\ufffd" in names
    assert "".join(names).encode()


async def test_list_returns_page_and_total(storage: StorageHost, folder: Location) -> None:
    for number in range(25):
        (path_of(storage, folder) / f"{number:02}").touch()
    page = await storage.list(folder, "", 10, 10)
    assert ([e.name for e in page.items], page.total) == ([f"{n}" for n in range(10, 20)], 25)
    assert (await storage.list(folder, "", 30, 10)).items == []


@pytest.mark.parametrize(
    "path, error",
    [
        pytest.param("none", NotFound, id="missing"),
        pytest.param("file/below", Conflict, id="below a file"),
        pytest.param("dir", Conflict, id="directory"),
    ],
)
async def test_path_that_is_not_a_file_is_rejected(
    storage: StorageHost, folder: Location, path: str, error: type[BaiError]
) -> None:
    here = path_of(storage, folder)
    (here / "file").touch()
    (here / "dir").mkdir()
    (here / "dir" / "inner").touch()
    with pytest.raises(error):
        await get(storage, folder, path)
    with pytest.raises(error):
        await storage.remove(folder, path)
    if error is Conflict:
        with pytest.raises(Conflict):
            await storage.check_target(folder, path, 0)
    assert leftovers(storage) == []


async def test_remove_deletes_empty_directory(storage: StorageHost, folder: Location) -> None:
    (path_of(storage, folder) / "dir").mkdir()
    await storage.remove(folder, "dir")
    assert (await storage.list(folder, "", 0, 10)).total == 0


async def test_delete_removes_directories_without_permissions_but_not_link_targets(
    storage: StorageHost, folder: Location, tmp_path: Path
) -> None:
    here = path_of(storage, folder)
    outside = tmp_path / "outside"
    outside.write_bytes(b"stays")
    (here / "deep" / "er").mkdir(parents=True)
    (here / "deep" / "er" / "file").touch()
    (here / "deep" / "link").symlink_to(outside)
    (here / "deep").chmod(0)
    await storage.delete(folder)
    await storage.delete(folder)  # a second call has no effect
    assert not here.exists()
    assert leftovers(storage) == []
    assert outside.read_bytes() == b"stays"
    with pytest.raises(NotFound):
        await storage.list(folder, "", 0, 10)


async def test_upload_into_deleted_folder_leaves_nothing(
    storage: StorageHost, folder: Location
) -> None:
    writer = await storage.writer(folder)
    await storage.run(writer.write, b"x")
    await storage.delete(folder)
    with pytest.raises(NotFound):
        await storage.commit(folder, writer, "late", None)
    await storage.discard(writer)
    assert leftovers(storage) == []


async def test_host_that_is_not_started_raises_unavailable(tmp_path: Path) -> None:
    with pytest.raises(Unavailable):
        await host_at(tmp_path).create(fresh_location())


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """The root of a file system of 2 MiB."""
    path = tmp_path / "small"
    path.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "none", str(path)], capture_output=True, text=True
    )
    if done.returncode:
        pytest.skip(f"cannot mount a small file system: {done.stderr.strip()}")
    yield path
    subprocess.run(["umount", "-l", str(path)], check=True)


@needs_root
async def test_full_disk_is_reported_and_leaves_nothing(small_disk: Path) -> None:
    storage = host_at(small_disk)
    await storage.start()
    location = fresh_location()
    await storage.create(location)
    await put(storage, location, "keep", b"old")
    writer = await storage.writer(location)
    with pytest.raises(StorageFull):
        for _ in range(4):
            await storage.run(writer.write, os.urandom(2**20))
    await storage.discard(writer)
    with pytest.raises(StorageFull, match="bytes left"):
        await storage.check_target(location, "big", 2**30)
    assert (await storage.probe()).status is HostStatus.FULL
    assert await get(storage, location, "keep") == b"old"
    assert leftovers(storage) == []
    # A smaller file still fits.
    await put(storage, location, "fits", b"x" * 2**20)
    await storage.stop()


@needs_root
async def test_only_the_shared_group_and_the_managers_user_have_access(
    tmp_path: Path,
) -> None:
    root = tmp_path / "root"
    storage = host_at(root, shared_gid=4711)
    await storage.start()
    location = fresh_location()
    await storage.create(location)
    await put(storage, location, "a/up", b"up", uid=100_001)
    # In this test, users need access to the parent directories; containers mount the folder itself.
    for path in (
        tmp_path,
        *tmp_path.parents,
        root,
        root / "user",
        path_of(storage, location).parent,
    ):
        if path != Path("/") and not path.stat().st_mode & 0o001:
            path.chmod(path.stat().st_mode | 0o011)
    here = path_of(storage, location)

    def can_run(uid: int, gid: int, script: str) -> bool:
        who = ["setpriv", f"--reuid={uid}", f"--regid={gid}", "--clear-groups"]
        return succeeds([*who, "sh", "-c", f"umask 077; cd {here} && {script}"])

    assert can_run(100_001, 4711, "cat a/up && chmod +x a/up && echo mine > mine")
    assert can_run(100_002, 4711, "cat a/up mine && echo more >> mine && echo x > a/theirs")
    assert not can_run(100_003, 100_003, "ls")
    # A session of the process engine runs as the manager's user, without root's capabilities.
    bare = ["setpriv", "--bounding-set=-all", "--inh-caps=-all", "--clear-groups"]
    assert succeeds([*bare, "sh", "-c", f"cd {here} && cat a/up mine a/theirs && echo >> mine"])
    await storage.stop()


@needs_root
async def test_unmanaged_folder_may_be_on_another_file_system(
    small_disk: Path, tmp_path: Path
) -> None:
    storage = host_at(tmp_path / "root")
    await storage.start()
    made = fresh_location()
    location = Location(made.scope, made.vfolder_id, str(small_disk))
    await storage.create(location)
    await put(storage, location, "a/f", b"one")
    await put(storage, location, "a/f", b"two")
    assert await get(storage, location, "a/f") == b"two"
    await storage.copy(location, "a", "b", None, CopyProgress())
    await storage.copy(location, "a/f", "c", None, CopyProgress())
    with pytest.raises(Conflict):
        await storage.copy(location, "a/f", "c", None, CopyProgress())
    assert sorted(os.listdir(small_disk)) == ["a", "b", "c"]
    await storage.remove(location, "b", is_recursive=True)
    assert sorted(os.listdir(small_disk)) == ["a", "c"]
    # Staged files are not in the folder: a session could replace them by a link.
    assert Path(storage.staging(location).new_path()).is_relative_to(tmp_path / "root")
    await storage.delete(location)
    assert await get(storage, location, "a/f") == b"two"
    assert leftovers(storage) == []
    await storage.stop()
