"""Trees as one stream: what an archive may hold, and what it never does."""

from __future__ import annotations

import asyncio
import io
import os
import tarfile
import threading
import uuid
import zipfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bai_services.core.errors import BaiError, Conflict, InvalidRequest
from bai_services.storage.base import Location, Scope
from bai_services.storage.host import StorageHost
from bai_services.storage.local import LocalBackend
from bai_services.storage.staging import DIRECTORY

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


async def unpack(host: StorageHost, folder: Location, archive: bytes, path: str = "") -> None:
    writer = await host.writer(folder)
    try:
        await host.run(writer.write, archive)
        await host.unpack(folder, writer, path, None, GIB)
    finally:
        await host.discard(writer)


def below(host: StorageHost, folder: Location) -> dict[str, bytes]:
    root = Path(host.source_path(folder))
    return {str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*") if p.is_file()}


def waiting(host: StorageHost) -> list[Path]:
    return list(host._root.glob(f"*/*/{DIRECTORY}/*"))


async def test_a_tree_is_unpacked_with_its_execute_bits(
    host: StorageHost, folder: Location
) -> None:
    script = tarfile.TarInfo("bin/run")
    script.size, script.mode = 2, 0o755
    archive = member("a/b/c", b"deep") + member("e/", b"", tarfile.DIRTYPE)
    archive += script.tobuf() + b"#!" + b"\0" * 510 + END
    await unpack(host, folder, archive, "into/here")
    assert below(host, folder) == {"into/here/a/b/c": b"deep", "into/here/bin/run": b"#!"}
    root = Path(host.source_path(folder), "into/here")
    assert (root / "e").is_dir()
    assert (root / "bin/run").stat().st_mode & 0o100
    assert waiting(host) == []


BAD = [
    pytest.param(member("../x"), "'..'", id="up"),
    pytest.param(member("a/../../x"), "'..'", id="up inside"),
    pytest.param(member("/etc/x"), "relative", id="absolute"),
    pytest.param(member("x", b"", tarfile.SYMTYPE, "/etc"), "link", id="a link out"),
    pytest.param(
        member("d", b"", tarfile.SYMTYPE, "/tmp") + member("d/x"), "link", id="through its own link"
    ),
    pytest.param(member("x", b"", tarfile.LNKTYPE, "/etc/passwd"), "link", id="a hard link"),
    pytest.param(member("x", b"", tarfile.CHRTYPE), "special", id="a device"),
    pytest.param(member("x", b"", tarfile.FIFOTYPE), "special", id="a pipe"),
    pytest.param(member("a\nb"), "control", id="a control character"),
    pytest.param(member("x" * 300), "too long", id="a name too long"),
    pytest.param(member("/".join(["x" * 100] * 50)), "too long", id="a path too long"),
    pytest.param(member("a") + member("a"), "twice", id="one name twice"),
    pytest.param(member("a") + member("./a"), "twice", id="one name twice in two spellings"),
    pytest.param(b"no archive at all" * 100, "no tar archive", id="something else"),
    pytest.param(b"", "no tar archive", id="nothing"),
    pytest.param(member("a", b"x" * 5000)[:2000], "no tar archive", id="cut off"),
    pytest.param(member("dir"), "is a directory", id="a directory is in the way"),
    pytest.param(member("out"), "is a link", id="a link is in the way"),
    pytest.param(member("out/x"), "leads out", id="through a link of the folder"),
    pytest.param(member("file/x"), "not a directory", id="below a file"),
]


@pytest.mark.parametrize("bad, reason", BAD)
async def test_one_bad_member_refuses_the_whole_archive(
    host: StorageHost, folder: Location, tmp_path: Path, bad: bytes, reason: str
) -> None:
    root, outside = Path(host.source_path(folder)), tmp_path / "outside"
    outside.mkdir()
    (root / "dir").mkdir()
    (root / "out").symlink_to(outside)
    (root / "file").write_bytes(b"old")
    with pytest.raises(BaiError, match=reason):
        await unpack(host, folder, (member("good") + bad + END) if bad else b"")
    assert below(host, folder) == {"file": b"old"}
    assert list(outside.iterdir()) == []
    assert waiting(host) == []


async def test_an_archive_without_its_end_is_not_whole(host: StorageHost, folder: Location) -> None:
    with pytest.raises(InvalidRequest, match="no tar archive"):
        await unpack(host, folder, member("a") + member("b"))
    assert below(host, folder) == {}


async def test_an_archive_that_holds_more_than_it_may(host: StorageHost, folder: Location) -> None:
    writer = await host.writer(folder)
    await host.run(writer.write, member("a", b"x" * 2000) + END)
    with pytest.raises(InvalidRequest, match="more than 1000 bytes"):
        await host.unpack(folder, writer, "", None, 1000)
    await host.discard(writer)


async def test_a_bomb_is_measured_before_it_is_unpacked(
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
    assert waiting(host) == []


async def test_a_link_that_is_swapped_in_while_unpacking_leads_nowhere(
    host: StorageHost, folder: Location, tmp_path: Path
) -> None:
    root, outside = Path(host.source_path(folder)), tmp_path / "outside"
    outside.mkdir()
    (root / "way").mkdir()
    stop = threading.Event()

    def flip() -> None:
        while not stop.is_set():
            try:
                os.rename(root / "way", root / "aside")
                os.symlink(outside, root / "way")
                os.unlink(root / "way")
                os.rename(root / "aside", root / "way")
            except OSError:
                continue

    attacker = threading.Thread(target=flip)
    attacker.start()
    try:
        for number in range(60):
            archive = b"".join(member(f"way/{number}-{i}") for i in range(5)) + END
            try:
                await unpack(host, folder, archive)
            except BaiError:
                continue
    finally:
        stop.set()
        attacker.join()
    assert list(outside.iterdir()) == []


async def packed(host: StorageHost, folder: Location, form: str, *paths: str) -> bytes:
    stream = await host.open_archive(folder, paths, form)
    try:
        return b"".join([piece async for piece in stream.chunks()])
    finally:
        await stream.close()


@pytest.fixture
def tree(host: StorageHost, folder: Location, tmp_path: Path) -> dict[str, bytes]:
    """Files, with links and special files that must not lead anywhere."""
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


async def test_a_tree_goes_out_as_zip(
    host: StorageHost, folder: Location, tree: dict[str, bytes]
) -> None:
    with zipfile.ZipFile(io.BytesIO(await packed(host, folder, "zip", ""))) as archive:
        assert archive.testzip() is None
        found = {name: archive.read(name) for name in archive.namelist() if name[-1] != "/"}
        assert "empty/" in archive.namelist()
    assert found == tree


async def test_a_tree_goes_out_as_tar_with_links_as_links(
    host: StorageHost, folder: Location, tree: dict[str, bytes]
) -> None:
    content = await packed(host, folder, "tar", "a", "top")
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        members = {m.name: m for m in archive}
        files = {n: archive.extractfile(m).read() for n, m in members.items() if m.isreg()}  # type: ignore[union-attr]
    assert files == {name: tree[name] for name in ("a/big", "a/b/한글.txt", "top")}
    assert members["a/out"].issym()
    assert "a/pipe" not in members and "a/b" in members


async def test_what_goes_out_comes_in_again(
    host: StorageHost, folder: Location, tree: dict[str, bytes]
) -> None:
    content = await packed(host, folder, "tar", "z", "a/b", "a/big")
    await unpack(host, folder, content, "again")
    names = {name.removeprefix("again/") for name in below(host, folder) if name[:6] == "again/"}
    assert names == {"z/x", "b/한글.txt", "big"}


async def test_an_archive_of_what_is_not_there(host: StorageHost, folder: Location) -> None:
    for paths, form in ((["none"], "zip"), (["../x"], "zip"), ([""], "rar"), ([], "zip")):
        with pytest.raises(BaiError):
            await packed(host, folder, form, *paths)


async def test_a_file_that_shrinks_breaks_the_stream(host: StorageHost, folder: Location) -> None:
    path = Path(host.source_path(folder), "f")
    await asyncio.to_thread(path.write_bytes, bytes(8 * 2**20))
    stream = await host.open_archive(folder, ["f"], "tar")
    with pytest.raises(Conflict, match="became shorter"):
        async for _ in stream.chunks():
            os.truncate(path, 2**20)
    await stream.close()
