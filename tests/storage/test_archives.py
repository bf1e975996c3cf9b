"""Downloads of archives, and the unpacking of valid, invalid and hostile archives."""

from __future__ import annotations

import asyncio
import gzip
import io
import lzma
import os
import shutil
import signal
import stat
import subprocess
import sys
import tarfile
import tempfile
import threading
import tracemalloc
import uuid
import zipfile
import zlib
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest

from bai_services.core.errors import BaiError, Conflict, InvalidRequest, Unavailable
from bai_services.storage.backends.local import LocalBackend
from bai_services.storage.base import Location, Scope
from bai_services.storage.folder import OpenFolder
from bai_services.storage.host import StorageHost
from bai_services.storage.safe_paths import best_opener, parse_new_path
from bai_services.storage.transfers import unpacking
from bai_services.storage.transfers.archives import generate_archive
from bai_services.storage.transfers.staging import DIRECTORY, remove_any
from bai_services.storage.transfers.unpacking import Unpacking
from bai_services.storage.trees import descriptor
from bai_services.storage.workers import translate_errors
from bai_services.system.descent import remove_tree
from tests.testbed.wait import wait_until, wait_until_async

GIB = 2**30


@pytest.fixture
async def host(tmp_path: Path) -> AsyncIterator[StorageHost]:
    made = StorageHost("local", LocalBackend(tmp_path / "root"))
    await made.start()
    yield made
    await made.stop()


@pytest.fixture
async def folder(host: StorageHost) -> Location:
    location = Location(Scope("user", str(uuid.uuid4())), str(uuid.uuid4()))
    await host.create(location)
    return location


def member(
    name: str, content: bytes = b"x", kind: bytes = tarfile.REGTYPE, link: str = ""
) -> bytes:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, link
    info.size = len(content) if kind == tarfile.REGTYPE else 0
    body = content + b"\0" * (-len(content) % 512) if info.size else b""
    return info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape") + body


END = b"\0" * 1024


def unpack_here(host: StorageHost, folder: Location, archive: bytes, path: str = "") -> None:
    """Unpack in this process: another process for each of the many small cases would be slow."""
    staging = host.staging(folder)
    source, place = staging.new_path(".tar"), staging.new_path(".unpacked")
    source.write_bytes(archive)
    try:
        with descriptor(os.open(host.source_path(folder), os.O_RDONLY)) as root:
            opened = OpenFolder(root, best_opener())
            translate_errors(Unpacking(opened, parse_new_path(path), place, GIB).run, source)
    finally:
        source.unlink()
        remove_any(place)


async def unpack(host: StorageHost, folder: Location, archive: bytes, path: str = "") -> None:
    writer = await host.writer(folder)
    try:
        await host.run(writer.write, archive)
        await host.unpack(folder, writer, path, None, GIB)
    finally:
        await host.discard(writer)


def files_below(host: StorageHost, folder: Location) -> dict[str, bytes]:
    root = Path(host.source_path(folder))
    return {str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*") if p.is_file()}


def staged_files(host: StorageHost) -> list[Path]:
    return list(host.backend.root.glob(f"*/*/{DIRECTORY}/*"))


async def test_unpack_preserves_tree_and_execute_bits(host: StorageHost, folder: Location) -> None:
    script = tarfile.TarInfo("bin/run")
    script.size, script.mode = 2, 0o755
    archive = member("a/b/c", b"deep") + member("e/", b"", tarfile.DIRTYPE)
    archive += script.tobuf() + b"#!" + b"\0" * 510 + END
    await unpack(host, folder, archive, "into/here")
    assert files_below(host, folder) == {"into/here/a/b/c": b"deep", "into/here/bin/run": b"#!"}
    root = Path(host.source_path(folder), "into/here")
    assert (root / "e").is_dir()
    assert (root / "bin/run").stat().st_mode & 0o100
    assert staged_files(host) == []


BAD = [
    pytest.param(member("../x"), "'..'", id="leading .."),
    pytest.param(member("a/../../x"), "'..'", id=".. in the middle"),
    pytest.param(member("/etc/x"), "relative", id="absolute path"),
    pytest.param(member("x", b"", tarfile.SYMTYPE, "/etc"), "link", id="symbolic link"),
    pytest.param(
        member("d", b"", tarfile.SYMTYPE, "/tmp") + member("d/x"),
        "link",
        id="member below a symbolic link of the same archive",
    ),
    pytest.param(member("x", b"", tarfile.LNKTYPE, "/etc/passwd"), "link", id="hard link"),
    pytest.param(member("x", b"", tarfile.CHRTYPE), "special", id="device"),
    pytest.param(member("x", b"", tarfile.FIFOTYPE), "special", id="pipe"),
    pytest.param(member("a\nb"), "control", id="control character"),
    pytest.param(member("x" * 300), "too long", id="name too long"),
    pytest.param(member("/".join(["x" * 100] * 50)), "too long", id="path too long"),
    pytest.param(member("a") + member("a"), "twice", id="duplicate path"),
    pytest.param(member("a") + member("./a"), "twice", id="duplicate path in another spelling"),
    pytest.param(
        member("a") + member("a/b"), "file and as a directory", id="file, then a path below it"
    ),
    pytest.param(
        member("a/b/c") + member("a"),
        "file and as a directory",
        id="path below a file, then the file",
    ),
    pytest.param(
        member("a") + member("a/", b"", tarfile.DIRTYPE),
        "file and as a directory",
        id="file, then directory",
    ),
    pytest.param(
        member("a/", b"", tarfile.DIRTYPE) + member("a"),
        "file and as a directory",
        id="directory, then file",
    ),
    pytest.param(b"no archive at all" * 100, "not a tar or zip archive", id="not a tar archive"),
    pytest.param(b"", "not a tar or zip archive", id="empty file"),
    pytest.param(
        member("a", b"x" * 5000)[:2000], "not a tar or zip archive", id="truncated archive"
    ),
    pytest.param(member("dir"), "is a directory", id="path of an existing directory"),
    pytest.param(member("out"), "is a link", id="path of an existing link"),
    pytest.param(
        member("out/x"), "leads out", id="path through a symbolic link that exists in the folder"
    ),
    pytest.param(member("file/x"), "not a directory", id="path below a file"),
    pytest.param(
        member("new/", b"", tarfile.DIRTYPE) + member("file/", b"", tarfile.DIRTYPE),
        "not a directory",
        id="directory at the path of a file",
    ),
]


@pytest.mark.parametrize("bad, reason", BAD)
async def test_invalid_archive_changes_no_file(
    host: StorageHost, folder: Location, tmp_path: Path, bad: bytes, reason: str
) -> None:
    root, outside = Path(host.source_path(folder)), tmp_path / "outside"
    outside.mkdir()
    (root / "dir").mkdir()
    (root / "out").symlink_to(outside)
    (root / "file").write_bytes(b"old")
    with pytest.raises(BaiError, match=reason):
        unpack_here(host, folder, (member("good") + bad + END) if bad else b"")
    assert files_below(host, folder) == {"file": b"old"}
    assert set(os.listdir(root)) == {"dir", "out", "file"}
    assert list(outside.iterdir()) == []
    assert staged_files(host) == []


async def test_archive_without_end_blocks_is_rejected(host: StorageHost, folder: Location) -> None:
    with pytest.raises(InvalidRequest, match="not a tar or zip archive"):
        await unpack(host, folder, member("a") + member("b"))
    assert files_below(host, folder) == {}


async def test_archive_larger_than_max_bytes_is_rejected(
    host: StorageHost, folder: Location
) -> None:
    writer = await host.writer(folder)
    await host.run(writer.write, member("a", b"x" * 2000) + END)
    with pytest.raises(InvalidRequest, match="more than 1000 bytes"):
        await host.unpack(folder, writer, "", None, 1000)
    await host.discard(writer)


async def test_decompression_bomb_is_rejected_by_its_unpacked_size(
    host: StorageHost, folder: Location
) -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        info = tarfile.TarInfo("zeros")
        info.size = 64 * 2**20
        archive.addfile(info, io.BytesIO(bytes(info.size)))
    writer = await host.writer(folder)
    await host.run(writer.write, packed.getvalue())
    with pytest.raises(InvalidRequest, match="more than 1048576 bytes"):
        await host.unpack(folder, writer, "", None, 2**20)
    await host.discard(writer)
    assert staged_files(host) == []


async def test_unpacking_never_follows_link_that_replaces_directory(
    host: StorageHost, folder: Location, tmp_path: Path
) -> None:
    root, outside = Path(host.source_path(folder)), tmp_path / "outside"
    way, aside = root / "way", root / "aside"
    outside.mkdir()
    way.mkdir()
    stop = threading.Event()
    swaps: list[None] = []

    def swap() -> None:
        while not stop.is_set():
            os.rename(way, aside)
            with suppress(OSError):  # unpacking has just created the directory
                os.symlink(outside, way)
                os.unlink(way)
            while aside.exists():
                try:
                    os.rename(aside, way)
                except OSError:
                    shutil.rmtree(way, ignore_errors=True)
            swaps.append(None)

    attacker = threading.Thread(target=swap)
    attacker.start()
    rejected = 0
    try:
        for number in range(60):
            archive = b"".join(member(f"way/{number}-{i}") for i in range(5)) + END
            before = len(swaps)

            def has_swapped(before: int = before) -> bool:
                return len(swaps) > before

            try:
                unpack_here(host, folder, archive)
            except BaiError:
                rejected += 1
            wait_until(has_swapped, 20, "the next swap")
    finally:
        stop.set()
        attacker.join()
    assert 0 < rejected < 60
    assert list(outside.iterdir()) == []


def long_header(kind: bytes, size: int = 64 * 2**20) -> bytes:
    """Return an extension header that states ``size`` bytes, with at most 1 MiB of content."""
    info = tarfile.TarInfo("header")
    info.type, info.size = kind, size
    content = b"30 comment=" if kind in (tarfile.XHDTYPE, tarfile.SOLARIS_XHDTYPE) else b"n"
    return info.tobuf() + content.ljust(min(size, 2**20), b"x")


def record_and(rest: bytes) -> bytes:
    """Return a pax header with one valid record, followed by ``rest``."""
    content = b"11 a=bbbbb\n" + rest
    info = tarfile.TarInfo("header")
    info.type, info.size = tarfile.XHDTYPE, len(content)
    return info.tobuf() + content.ljust(512, b"\0")


def gnu_name(name: bytes = b"n") -> bytes:
    return long_header(tarfile.GNUTYPE_LONGNAME, len(name)) + bytes(511)


def records(value: bytes, kind: bytes = tarfile.XHDTYPE) -> bytes:
    content = b"comment=" + value + b"\n"
    content = b"%d " % (len(content) + 7) + content
    info = tarfile.TarInfo("header")
    info.type, info.size = kind, len(content)
    return info.tobuf() + content + b"\0" * (-len(content) % 512)


def members_with_global_headers(count: int) -> bytes:
    """Return ``count`` members, each after a global pax header of 128 KiB."""
    header = records(b"a" * (128 * 2**10 - len("131072 comment=\n")), tarfile.XGLTYPE)
    return b"".join(header + member(f"member-{number}") for number in range(count))


def negative_size() -> bytes:
    head = bytearray(member("x"))
    head[124:136] = b"\xff" * 12
    head[148:156] = b"        "
    head[148:156] = b"%06o\0 " % sum(head[:512])
    return bytes(head)


def sparse_map(text: bytes) -> bytes:
    """Return a sparse file in GNU format 1.0 whose map is ``text``."""
    body = text + b"\0" * (-len(text) % 512)
    info = tarfile.TarInfo("GNUSparseFile.0/s")
    info.size = len(body)
    info.pax_headers = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0",
                        "GNU.sparse.name": "s", "GNU.sparse.realsize": "100"}  # fmt: skip
    return info.tobuf(tarfile.PAX_FORMAT) + body


HOSTILE = [
    pytest.param(long_header(tarfile.XHDTYPE), "header of 67108864", id="huge pax header"),
    pytest.param(
        long_header(tarfile.XGLTYPE), "global headers of 67108864", id="huge global pax header"
    ),
    pytest.param(
        members_with_global_headers(3), "global headers of 393216", id="many global pax headers"
    ),
    pytest.param(
        long_header(tarfile.SOLARIS_XHDTYPE), "header of 67108864", id="huge Solaris header"
    ),
    pytest.param(long_header(tarfile.GNUTYPE_LONGNAME), "header of 67108864", id="huge long name"),
    pytest.param(long_header(tarfile.GNUTYPE_LONGLINK), "header of 67108864", id="huge long link"),
    pytest.param(gnu_name() * 2000, "more than 8 headers", id="nested extension headers"),
    pytest.param(long_header(tarfile.XHDTYPE, 2**17), "malformed", id="malformed pax records"),
    pytest.param(record_and(bytes(20)), "malformed", id="pax record without a length"),
    pytest.param(record_and(b"0 a=b\n"), "malformed", id="pax record of length 0"),
    pytest.param(records(b"1" * 2**17), "too long", id="number whose parsing takes quadratic time"),
    pytest.param(negative_size(), "not a tar or zip archive", id="negative size"),
    pytest.param(sparse_map(b"1\n200\n5\n"), "sparse", id="sparse segment beyond the end"),
    pytest.param(sparse_map(b"2\n50\n9\n0\n9\n"), "sparse", id="overlapping sparse segments"),
    pytest.param(sparse_map(b"9" * 5000), "not a tar or zip archive", id="sparse map without end"),
    pytest.param(member("d/" * 300 + "x"), "nested more than 256", id="deep directories"),
    pytest.param(
        b"".join(member(f"{i}/" + "d/" * 250 + "x") for i in range(850)),
        "more than 200000 files and directories",
        id="too many implied directories",
    ),
]


@pytest.mark.parametrize("bad, reason", HOSTILE)
async def test_hostile_archive_is_rejected_with_bounded_memory(
    host: StorageHost, folder: Location, bad: bytes, reason: str
) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(InvalidRequest, match=reason):
            unpack_here(host, folder, member("good") + bad + END)
        assert tracemalloc.get_traced_memory()[1] < 256 * 2**20
    finally:
        tracemalloc.stop()
    assert files_below(host, folder) == {}
    assert staged_files(host) == []


async def test_global_headers_up_to_the_limit_are_read(host: StorageHost, folder: Location) -> None:
    archive = members_with_global_headers(2) + END
    unpack_here(host, folder, archive)
    assert files_below(host, folder) == {f"member-{number}": b"x" for number in range(2)}


async def test_archive_may_expand_at_most_200_times(
    host: StorageHost, folder: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = gzip.compress(member("zeros", bytes(32 * 2**20)) + END)
    monkeypatch.setattr(unpacking, "MIN_UNPACKED_BYTES", 2**20)
    with pytest.raises(InvalidRequest, match="200 times its own size"):
        unpack_here(host, folder, archive)
    monkeypatch.undo()
    unpack_here(host, folder, archive)
    # The zeros in the archive become a hole in the file.
    made = os.stat(f"{host.source_path(folder)}/zeros")
    assert (made.st_size, made.st_blocks) == (32 * 2**20, 0)


def test_archive_that_needs_too_much_memory_is_rejected(tmp_path: Path) -> None:
    """The archive claims in a header that it needs a dictionary of 1.5 GiB."""
    made = StorageHost("local", LocalBackend(tmp_path / "root"))
    archive = archive_that_claims_a_large_dictionary()

    async def run() -> None:
        await made.start()
        folder = Location(Scope("user", str(uuid.uuid4())), str(uuid.uuid4()))
        await made.create(folder)
        with pytest.raises(InvalidRequest, match="too much memory"):
            await unpack(made, folder, archive)
        assert staged_files(made) == []
        await made.stop()

    asyncio.run(run())


def archive_that_claims_a_large_dictionary() -> bytes:
    """Compress with a dictionary of 64 KiB, then claim one of 1.5 GiB in the block's header."""
    small = lzma.compress(member("a", os.urandom(2000)) + END, check=lzma.CHECK_NONE, filters=[
        {"id": lzma.FILTER_LZMA2, "preset": 0, "dict_size": 2**16}
    ])  # fmt: skip
    head = bytearray(small[12 : 12 + (small[12] + 1) * 4])
    place = head.index(b"\x21\x01") + 2
    head[place] = 37  # 1.5 GiB
    head[-4:] = zlib.crc32(head[:-4]).to_bytes(4, "little")
    return small[:12] + bytes(head) + small[12 + len(head) :]


@pytest.mark.parametrize("form", ["gnu", "pax"])
def test_unpack_preserves_holes_of_1_tib_sparse_file(tmp_path: Path, form: str) -> None:
    source = tmp_path / "sparse"
    with source.open("wb") as file:
        file.write(b"begin")
        file.seek(2**39)
        file.write(b"middle")
        file.truncate(2**40)
    archive = tmp_path / "archive"
    subprocess.run(["tar", "-cSf", archive, f"--format={form}", "sparse"], cwd=tmp_path, check=True)
    folder = tmp_path / "folder"
    folder.mkdir()
    with descriptor(os.open(folder, os.O_RDONLY)) as root:
        opened = OpenFolder(root, best_opener())
        found = Unpacking(opened, (), tmp_path / "staging", 2**41).run(archive)
    assert found.bytes == 2**40
    assert_sparse(folder / "sparse")


def assert_sparse(path: Path) -> None:
    assert path.stat().st_size == 2**40
    assert path.stat().st_blocks * 512 < 2**20
    with path.open("rb") as file:
        assert file.read(6) == b"begin\0"
        file.seek(2**39)
        assert file.read(7) == b"middle\0"


async def test_cancelled_unpacking_leaves_nothing(host: StorageHost, folder: Location) -> None:
    archive = gzip.compress(b"".join(member(f"f{n}") for n in range(50_000)) + END, 1)
    writer = await host.writer(folder)
    await host.run(writer.write, archive)
    task = asyncio.create_task(host.unpack(folder, writer, "", None, GIB))
    await wait_until_async(
        lambda: any(list(path.glob("1")) for path in staged_files(host)),
        20,
        "the first unpacked files",
    )
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await host.discard(writer)
    assert files_below(host, folder) == {}
    assert staged_files(host) == []


def child_process(module: str) -> int:
    (found,) = [
        int(pid)
        for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
        if module.encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]
    return found


async def test_killed_unpacking_is_not_reported_as_too_slow(
    host: StorageHost, folder: Location
) -> None:
    """The kernel kills a process with SIGKILL if the machine runs out of memory."""
    archive = gzip.compress(b"".join(member(f"f{n}") for n in range(50_000)) + END, 1)
    writer = await host.writer(folder)
    await host.run(writer.write, archive)
    task = asyncio.create_task(host.unpack(folder, writer, "", None, GIB))
    await wait_until_async(
        lambda: any(list(path.glob("1")) for path in staged_files(host)),
        20,
        "the first unpacked files",
    )
    os.kill(child_process("unpack_worker"), signal.SIGKILL)
    with pytest.raises(Unavailable, match="was killed"):
        await task
    await host.discard(writer)
    assert files_below(host, folder) == {}
    assert staged_files(host) == []


def test_process_that_exceeds_its_cpu_time_ends_with_sigxcpu() -> None:
    code = (
        "import resource; from bai_services.system.confinement import limit_resources\n"
        "limit_resources({resource.RLIMIT_CPU: 1})\n"
        "while True: pass"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == -signal.SIGXCPU


async def download_archive(host: StorageHost, folder: Location, form: str, *paths: str) -> bytes:
    stream = await host.open_archive(folder, paths, form)
    try:
        return b"".join([piece async for piece in stream.chunks()])
    finally:
        await stream.close()


@pytest.fixture
def tree(host: StorageHost, folder: Location, tmp_path: Path) -> dict[str, bytes]:
    """Create files, an empty directory, a link and a pipe; return the files.

    The link leads out of the folder. Nothing writes to the pipe, so reading it would never end.
    """
    root = Path(host.source_path(folder))
    files = {"a/big": os.urandom(3 * 2**20 + 1), "a/b/한글.txt": b"hi", "top": b"", "z/x": b"9"}
    for path, content in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(content)
    (root / "empty").mkdir()
    (tmp_path / "secret").write_bytes(b"secret")
    (root / "a/out").symlink_to(tmp_path / "secret")
    os.mkfifo(root / "a/pipe")
    return files


async def test_zip_contains_tree_with_links_as_links(
    host: StorageHost, folder: Location, tree: dict[str, bytes], tmp_path: Path
) -> None:
    with zipfile.ZipFile(io.BytesIO(await download_archive(host, folder, "zip", ""))) as archive:
        assert archive.testzip() is None
        found = {name: archive.read(name) for name in archive.namelist() if name[-1] != "/"}
        assert "empty/" in archive.namelist()
        assert stat.S_ISLNK(archive.getinfo("a/out").external_attr >> 16)
    assert found == {**tree, "a/out": os.fsencode(tmp_path / "secret")}


async def test_tar_contains_tree_with_links_as_links(
    host: StorageHost, folder: Location, tree: dict[str, bytes]
) -> None:
    content = await download_archive(host, folder, "tar", "a", "top")
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        members = {m.name: m for m in archive}
        files = {n: archive.extractfile(m).read() for n, m in members.items() if m.isreg()}  # type: ignore[union-attr]
    assert files == {name: tree[name] for name in ("a/big", "a/b/한글.txt", "top")}
    assert members["a/out"].issym()
    assert "a/pipe" not in members and "a/b" in members


@pytest.mark.parametrize("form", ["zip", "tar"])
async def test_link_can_be_archived_by_name_but_pipe_cannot(
    host: StorageHost, folder: Location, tree: dict[str, bytes], form: str
) -> None:
    content = io.BytesIO(await download_archive(host, folder, form, "a/out"))
    if form == "zip":
        with zipfile.ZipFile(content) as archive:
            assert archive.namelist() == ["out"]
    else:
        with tarfile.open(fileobj=content) as tar:
            assert tar.getnames() == ["out"]
    with pytest.raises(Conflict, match="pipe is a pipe, socket or device"):
        await host.open_archive(folder, ["top", "a/pipe"], form)


async def test_downloaded_tar_can_be_unpacked(
    host: StorageHost, folder: Location, tree: dict[str, bytes]
) -> None:
    content = await download_archive(host, folder, "tar", "z", "a/b", "a/big")
    await unpack(host, folder, content, "again")
    names = {
        name.removeprefix("again/") for name in files_below(host, folder) if name[:6] == "again/"
    }
    assert names == {"z/x", "b/한글.txt", "big"}


@pytest.mark.parametrize("form", ["zip", "tar"])
def test_deep_directories_are_archived_without_recursion(tmp_path: Path, form: str) -> None:
    # Use a file system in memory if possible: a disk takes about 1 s for 1,000 directories.
    shared = Path("/dev/shm")
    top = Path(tempfile.mkdtemp(dir=shared if os.access(shared, os.W_OK) else tmp_path))
    depth = 4000
    here = os.open(top, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("d", dir_fd=here)
        inner = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    os.close(os.open("f", os.O_CREAT | os.O_WRONLY, 0o600, dir_fd=here))
    os.close(here)
    try:
        with descriptor(os.open(top, os.O_RDONLY)) as root:
            content = b"".join(generate_archive(OpenFolder(root, best_opener()), [()], form))
        longest = "d/" * depth + "f"
        if form == "zip":
            with zipfile.ZipFile(io.BytesIO(content)) as archive:
                assert archive.namelist()[-1] == longest
        else:
            with tarfile.open(fileobj=io.BytesIO(content)) as tar:
                assert tar.getnames()[-1] == longest
    finally:
        remove_tree(top)


def test_tar_preserves_holes_of_1_tib_sparse_file(tmp_path: Path) -> None:
    place = tmp_path / "folder"
    (place / "in").mkdir(parents=True)
    with (place / "in/sparse").open("wb") as file:
        file.write(b"begin")
        file.seek(2**39)
        file.write(b"middle")
        file.truncate(2**40)
    (place / "after").write_bytes(b"after")
    with descriptor(os.open(place, os.O_RDONLY)) as root:
        content = b"".join(generate_archive(OpenFolder(root, best_opener()), [()], "tar"))
    assert len(content) < 2**20
    for reader in ("tar", "bai-hub"):
        target = tmp_path / reader
        target.mkdir()
        if reader == "tar":
            subprocess.run(["tar", "-xSf", "-"], input=content, cwd=target, check=True)
        else:
            (tmp_path / "archive").write_bytes(content)
            with descriptor(os.open(target, os.O_RDONLY)) as root:
                opened = OpenFolder(root, best_opener())
                Unpacking(opened, (), tmp_path / "staging", 2**41).run(tmp_path / "archive")
        assert_sparse(target / "in/sparse")
        assert (target / "after").read_bytes() == b"after"


async def test_archive_request_with_invalid_paths_or_format_is_rejected(
    host: StorageHost, folder: Location
) -> None:
    for paths, form, message in (
        (["none"], "zip", "no such file"),
        (["../x"], "zip", "must not contain"),
        ([""], "rar", "the format zip or tar"),
        ([], "zip", "1 to 1000 paths"),
    ):
        with pytest.raises(BaiError, match=message):
            await download_archive(host, folder, form, *paths)


async def test_archive_stream_fails_if_file_shrinks(host: StorageHost, folder: Location) -> None:
    path = Path(host.source_path(folder), "f")
    await asyncio.to_thread(path.write_bytes, bytes(8 * 2**20))
    stream = await host.open_archive(folder, ["f"], "tar")
    with pytest.raises(Conflict, match="became shorter"):
        async for _ in stream.chunks():
            os.truncate(path, 2**20)
    await stream.close()
