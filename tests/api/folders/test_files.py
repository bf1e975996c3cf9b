"""Files over REST: uploads, downloads, ranges, permissions, limits and back-pressure."""

from __future__ import annotations

import asyncio
import errno
import gzip
import json
import os
import subprocess
import sys
import tarfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from bai_services.api.folders.files import (
    MAX_DISCARDED_BYTES,
    SENDFILE_MIN_BYTES,
    byte_range,
    content_disposition,
)
from bai_services.client import Client, Keypair
from bai_services.core.errors import (
    BaiError,
    Changed,
    Conflict,
    Forbidden,
    InvalidRequest,
    NotFound,
    NotSignedIn,
    TooLarge,
)
from bai_services.storage.host import THREADS
from bai_services.storage.transfers.downloads import Download
from bai_services.storage.transfers.staging import DIRECTORY
from tests.testbed.manager import Api
from tests.testbed.wait import wait_until_async

MIB = 2**20


@pytest.fixture
async def api(api: Api) -> Api:
    await api.world.manager.folders.vfolders.start()
    return api


@pytest.fixture
async def user(api: Api) -> Client:
    client = await api.client("user")
    await client.post("/vfolders", {"name": "data"})
    return client


async def put(client: Client, path: str, content: Any, key: str = "data") -> dict[str, Any]:
    answer: dict[str, Any] = await client.call(
        "PUT", f"/vfolders/{key}/content", query={"path": path}, content=content
    )
    return answer


async def get(client: Client, path: str, **headers: str) -> httpx.Response:
    return await client.http.get(
        "/vfolders/data/content",
        params={"path": path},
        headers={name.replace("_", "-"): value for name, value in headers.items()},
    )


def staged_uploads(api: Api) -> list[str]:
    root = api.world.manager.settings.storage_root
    return [str(path) for path in root.glob(f"*/*/{DIRECTORY}/*")]


async def test_uploaded_file_is_downloaded_unchanged(api: Api, user: Client) -> None:
    content = os.urandom(2 * MIB + 17)
    entry = await put(user, "in/a file.bin", content)
    assert (entry["name"], entry["type"], entry["size"]) == ("a file.bin", "file", len(content))
    answer = await get(user, "in/a file.bin")
    assert (answer.status_code, answer.content) == (200, content)
    listed = await user.get("/vfolders/data/files", path="in")
    assert [(i["name"], i["size"]) for i in listed["items"]] == [("a file.bin", len(content))]
    assert (await user.get("/vfolders/data/files"))["items"][0]["type"] == "directory"
    usage = await user.get("/vfolders/data/usage")
    assert (usage["files"], usage["bytes"]) == (2, len(content))
    await user.delete("/vfolders/data/content", path="in/a file.bin")
    with pytest.raises(NotFound):
        await user.delete("/vfolders/data/content", path="in/a file.bin")
    assert staged_uploads(api) == []


async def test_chunked_and_empty_bodies_are_stored(user: Client) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for number in range(5):
            yield bytes([number]) * 300_000

    assert (await put(user, "chunked", chunks()))["size"] == 1_500_000
    assert (await put(user, "empty", b""))["size"] == 0
    assert (await get(user, "empty")).content == b""


async def test_concurrent_edit_is_detected_by_etag(user: Client) -> None:
    first = await put(user, "notes", b"one")
    where, path = "/vfolders/data/content", {"path": "notes"}
    read = await user.send("GET", where, query=path)
    assert read.headers["ETag"] == f'"{first["etag"]}"'
    mine = {"If-Match": read.headers["ETag"]}
    await user.send("PUT", where, query=path, content=b"two", headers=mine)
    with pytest.raises(Changed, match="has changed"):
        await user.send("PUT", where, query=path, content=b"three", headers=mine)
    assert (await get(user, "notes")).content == b"two"
    with pytest.raises(Changed, match="already exists"):
        await user.send("PUT", where, query=path, content=b"x", headers={"If-None-Match": "*"})


async def test_reads_and_writes_are_in_the_audit_log(api: Api, user: Client) -> None:
    await put(user, "f", b"x")
    await get(user, "f")
    await user.post("/vfolders/data/move", {"source": "f", "target": "g"})
    await user.delete("/vfolders/data/content", path="g")
    log = await (await api.client("admin")).get("/audit-log", entity="vfolder", limit=100)
    seen = {(item["action"], item["actor"], item["details"].get("path")) for item in log["items"]}
    assert {
        ("vfolder.upload", "user", "f"),
        ("vfolder.download", "user", "f"),
        ("vfolder.move-file", "user", "f"),
        ("vfolder.remove-file", "user", "g"),
    } <= seen


async def test_a_move_of_a_missing_file_creates_no_directory(api: Api, user: Client) -> None:
    with pytest.raises(NotFound):
        await user.post("/vfolders/data/move", {"source": "missing", "target": "new/dir/file"})
    assert (await user.get("/vfolders/data/files"))["items"] == []


async def test_download_has_headers_that_prevent_rendering(user: Client) -> None:
    await put(user, 'x/한 "글".html', b"<script>alert(1)</script>")
    answer = await get(user, 'x/한 "글".html')
    headers = answer.headers
    assert headers["Content-Type"] == "application/octet-stream"
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Content-Security-Policy"] == "sandbox; default-src 'none'"
    assert headers["Content-Disposition"] == (
        "attachment; filename=\"_ ___.html\"; filename*=UTF-8''%ED%95%9C%20%22%EA%B8%80%22.html"
    )


async def test_range_request_returns_the_part_or_416(user: Client) -> None:
    content = bytes(range(256)) * 10
    await put(user, "f", content)
    whole = await get(user, "f")
    etag = whole.headers["ETag"]
    assert whole.headers["Accept-Ranges"] == "bytes"
    part = await get(user, "f", Range="bytes=10-19")
    assert (part.status_code, part.content) == (206, content[10:20])
    assert part.headers["Content-Range"] == "bytes 10-19/2560"
    assert (await get(user, "f", Range="bytes=-5")).content == content[-5:]
    assert (await get(user, "f", Range="bytes=2550-")).content == content[2550:]
    outside = await get(user, "f", Range="bytes=2560-")
    assert (outside.status_code, outside.headers["Content-Range"]) == (416, "bytes */2560")
    same = await get(user, "f", If_None_Match=etag)
    assert (same.status_code, same.content) == (304, b"")
    assert (await get(user, "f", Range="bytes=0-0", If_Range=etag)).status_code == 206
    await put(user, "f", content + b"!")
    changed = await get(user, "f", Range="bytes=0-0", If_Range=etag)
    assert (changed.status_code, len(changed.content)) == (200, 2561)
    assert (await get(user, "f", If_None_Match=etag)).status_code == 200


async def test_large_file_is_sent_whole_and_in_ranges(api: Api, user: Client) -> None:
    content = os.urandom(SENDFILE_MIN_BYTES + 12_345)
    await put(user, "big", content)
    answer = await get(user, "big")
    assert (answer.status_code, answer.content == content) == (200, True)
    assert answer.headers["Content-Length"] == str(len(content))
    part = await get(user, "big", Range="bytes=7-")
    assert (part.status_code, part.content == content[7:]) == (206, True)
    assert part.headers["Content-Range"] == f"bytes 7-{len(content) - 1}/{len(content)}"
    both = await asyncio.gather(get(user, "big"), get(user, "big"))
    assert all(answer.content == content for answer in both)


async def test_slow_client_does_not_block_others_and_disconnect_closes_the_file(
    api: Api, user: Client
) -> None:
    size = 64 * MIB  # larger than the buffers of a connection
    await put(user, "big", b"x" * size)
    async with AsyncExitStack() as stack:
        resting = [
            await stack.enter_async_context(user.stream("/vfolders/data/content", path="big"))
            for _ in range(THREADS + 1)
        ]
        assert (await user.get("/vfolders/data/files"))["items"][0]["size"] == size
        received = 0
        async for chunk in resting[0].aiter_bytes():
            received += len(chunk)
        assert received == size
    # The first client has received the whole file, and the other clients have disconnected.
    # Therefore no file should remain open.
    opened = Path(f"/proc/{os.getpid()}/fd")
    await wait_until_async(lambda: not open_files_of_folders(opened), 10, "the file to be closed")


def open_files_of_folders(opened: Path) -> list[str]:
    """Return the paths of the open files named ``big``; ``opened`` is ``/proc/PID/fd``."""
    paths = []
    for number in opened.iterdir():
        with suppress(FileNotFoundError):
            paths.append(os.readlink(number))
    return [path for path in paths if path.endswith("/big")]


async def test_download_of_a_shrinking_file_breaks_the_connection(
    api: Api, user: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    await put(user, "big", b"x" * (SENDFILE_MIN_BYTES + 1))
    (path,) = api.world.manager.settings.storage_root.glob("user/*/*/big")
    send = Download.send

    async def shrink_and_send(file: Download, *arguments: Any) -> int:
        os.truncate(path, SENDFILE_MIN_BYTES - 1)
        return await send(file, *arguments)

    monkeypatch.setattr(Download, "send", shrink_and_send)
    with pytest.raises(httpx.RemoteProtocolError):
        await get(user, "big")


async def test_download_works_without_sendfile_support(
    user: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def raise_einval(*arguments: object) -> int:
        raise OSError(errno.EINVAL, "not here")

    monkeypatch.setattr(os, "sendfile", raise_einval)
    content = os.urandom(SENDFILE_MIN_BYTES + 1)
    await put(user, "big", content)
    assert (await get(user, "big")).content == content


@pytest.mark.parametrize(
    "header, part",
    [
        pytest.param("", (0, 10), id="no header: full file"),
        pytest.param("bytes=0-", (0, 10), id="0-: full file"),
        pytest.param("bytes=3-5", (3, 3), id="range inside the file"),
        pytest.param("bytes=3-99", (3, 7), id="range is cut at the end"),
        pytest.param("bytes=-3", (7, 3), id="suffix range"),
        pytest.param("bytes=-99", (0, 10), id="suffix longer than the file"),
        pytest.param("bytes=-0", None, id="suffix of length 0 is not satisfiable"),
        pytest.param("bytes=10-", None, id="start after the end is not satisfiable"),
        pytest.param("bytes=5-3", (0, 10), id="end before start: full file"),
        pytest.param("bytes=0-1,4-5", (0, 10), id="several ranges: full file"),
        pytest.param("lines=1-2", (0, 10), id="unknown unit: full file"),
    ],
)
def test_range_header_is_parsed(header: str, part: tuple[int, int] | None) -> None:
    assert byte_range(header, 10) == part


def test_content_disposition_escapes_the_name() -> None:
    header = content_disposition('a/x"\r\nSet-Cookie: b')
    assert "\r" not in header and "\n" not in header
    assert header.count('"') == 2


@pytest.mark.parametrize(
    "path, error",
    [
        pytest.param("../../etc/passwd", InvalidRequest, id="parent directory"),
        pytest.param("/etc/passwd", InvalidRequest, id="absolute path"),
        pytest.param("a\0b", InvalidRequest, id="NUL"),
        pytest.param("", InvalidRequest, id="missing path"),
        pytest.param("dir", Conflict, id="path of a directory"),
        pytest.param("link", (Forbidden, Conflict), id="link to outside of the folder"),
        pytest.param("x" * 300, InvalidRequest, id="name too long"),
    ],
)
async def test_invalid_path_is_rejected(
    api: Api, user: Client, path: str, error: type[BaiError]
) -> None:
    await put(user, "dir/file", b"x")
    (root,) = api.world.manager.settings.storage_root.glob("user/*/[!.]*")
    (root / "link").symlink_to("/etc/passwd")
    content = "/vfolders/data/content"
    with pytest.raises(error):
        await put(user, path, b"x" * 100_000)
    with pytest.raises(error):
        await user.get(content, path=path)
    if path != "link":
        with pytest.raises(error):
            await user.delete(content, path=path)
    assert staged_uploads(api) == []


async def test_reading_and_writing_require_permission(api: Api, user: Client) -> None:
    await put(user, "f", b"mine")
    guest = await api.client("user2")
    await api.share_folder("user", "data", "user2")
    assert (await get(guest, "f")).content == b"mine"
    with pytest.raises(Forbidden, match="read-only"):
        await put(guest, "f", b"x" * MIB)
    with pytest.raises(Forbidden):
        await guest.delete("/vfolders/data/content", path="f")
    await user.put("/vfolders/data/grants/user2", {"permission": "rw"})
    await put(guest, "f", b"theirs")
    assert (await get(user, "f")).content == b"theirs"
    with pytest.raises(NotFound):
        await put(await api.client("acme-user"), "f", b"x")
    with pytest.raises(NotSignedIn):
        await put(api.nobody, "f", b"x" * MIB)
    await user.delete("/vfolders/data")
    with pytest.raises(NotFound):
        await user.get("/vfolders/data/files")


async def test_upload_is_denied_if_the_permission_is_reduced_meanwhile(
    api: Api, user: Client
) -> None:
    guest = await api.client("user2")
    await api.share_folder("user", "data", "user2", "rw")

    async def chunks() -> AsyncIterator[bytes]:
        yield b"x" * MIB
        await wait_until_async(lambda: staged_uploads(api), 10, "the upload to begin")
        await user.put("/vfolders/data/grants/user2", {"permission": "ro"})
        yield b"y"

    with pytest.raises(Forbidden):
        await put(guest, "late", chunks())
    assert (await user.get("/vfolders/data/files"))["total"] == 0
    await wait_until_async(lambda: not staged_uploads(api), 10, "the incomplete file to be deleted")


async def test_upload_over_the_size_limit_is_rejected(api: Api, user: Client) -> None:
    manager = api.world.manager
    manager.folders.files.max_file_bytes = 3 * MIB

    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(5):
            yield b"x" * MIB

    for content in (b"x" * (3 * MIB + 1), chunks()):
        with pytest.raises(TooLarge, match=str(3 * MIB)):
            await put(user, "big", content)
    assert (await put(user, "fits", b"x" * 3 * MIB))["size"] == 3 * MIB
    await wait_until_async(
        lambda: not staged_uploads(api), 10, "the incomplete files to be deleted"
    )


async def send_raw_put(api: Api, path: str, headers: str, read_until: bytes) -> bytes:
    """Send the head of a PUT request and return the response up to ``read_until``."""
    address = urlsplit(api.url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    head = f"PUT {address.path}/api/v1{path} HTTP/1.1\r\nHost: x\r\n{headers}\r\n\r\n"
    writer.write(head.encode())
    try:
        return await asyncio.wait_for(reader.readuntil(read_until), 10)
    finally:
        writer.close()
        await writer.wait_closed()


async def test_upload_without_sign_in_is_rejected_before_the_body(api: Api, user: Client) -> None:
    path = "/vfolders/data/content?path=f"
    refused = await send_raw_put(
        api, path, "Expect: 100-continue\r\nContent-Length: 99999999999", b"\r\n"
    )
    assert refused == b"HTTP/1.1 401 Unauthorized\r\n"
    refused = await send_raw_put(api, path, f"Content-Length: {MAX_DISCARDED_BYTES + 1}", b"\r\n")
    assert refused == b"HTTP/1.1 401 Unauthorized\r\n"


def hostile_archive() -> bytes:
    """Return an archive of 300 KB (compressed); its pax header is 300 MiB of digits."""
    header = tarfile.TarInfo("header")
    header.type, header.size = tarfile.XHDTYPE, 300 * MIB
    return gzip.compress(header.tobuf()) + gzip.compress(b"1" * MIB) * 300


def slow_archive() -> bytes:
    """Return a small archive with many files that takes seconds to unpack."""
    info = tarfile.TarInfo()
    members = []
    for number in range(40_000):
        info.name = f"f{number}"
        members.append(info.tobuf())
    return gzip.compress(b"".join(members) + bytes(1024), 1)


async def put_archive(client: Client, content: bytes) -> Any:
    return await client.call("PUT", "/vfolders/data/archive", query={"path": ""}, content=content)


async def test_hostile_archive_does_not_delay_other_requests(api: Api, user: Client) -> None:
    async def send() -> None:
        for _ in range(2):
            with pytest.raises(InvalidRequest, match="header"):
                await put_archive(user, hostile_archive())
        await put_archive(user, slow_archive())

    sending = asyncio.create_task(send())
    slowest = 0.0
    while not sending.done():
        began = time.monotonic()
        assert (await user.http.get("/health")).status_code == 200
        slowest = max(slowest, time.monotonic() - began)
        await asyncio.wait([sending], timeout=0.05)
    await sending
    # Regression: the server was blocked for over 40 s.
    assert slowest < 20.0
    assert staged_uploads(api) == []


async def test_unpacking_stops_when_the_client_disconnects(api: Api, user: Client) -> None:
    root = api.world.manager.settings.storage_root
    sending = asyncio.create_task(put_archive(user, slow_archive()))
    await wait_until_async(
        lambda: list(root.glob(f"*/*/{DIRECTORY}/*.unpacked/100")), 30, "the first unpacked files"
    )
    sending.cancel()
    await asyncio.wait([sending])
    await wait_until_async(lambda: not staged_uploads(api), 10, "the unpacked files to be removed")
    assert (await user.get("/vfolders/data/files"))["total"] == 0


async def test_interrupted_upload_leaves_no_files(api: Api, user: Client) -> None:
    class Broken(Exception):
        pass

    async def chunks() -> AsyncIterator[bytes]:
        yield b"x" * MIB
        await wait_until_async(lambda: staged_uploads(api), 10, "the upload to begin")
        raise Broken

    with pytest.raises(Broken):
        await put(user, "half", chunks())
    await wait_until_async(lambda: not staged_uploads(api), 10, "the incomplete file to be deleted")
    assert (await user.get("/vfolders/data/files"))["total"] == 0


async def test_directory_listing_is_paged(user: Client) -> None:
    for name in ("b", "a", "c"):
        await put(user, name, b"")
    page = await user.get("/vfolders/data/files", limit=2, offset=1)
    assert ([i["name"] for i in page["items"]], page["total"]) == (["b", "c"], 3)
    with pytest.raises(InvalidRequest, match="sorted by one of name"):
        await user.get("/vfolders/data/files", sort="colour")


# Script of a manager process. It prints its URL and the keypair of ``user``. For each line of
# input, it then prints its peak memory in KiB.
SERVER = """
import asyncio, json, resource, sys
from pathlib import Path
from tests.testbed.manager import MovableClock, make_world, manager_on, serving

async def main() -> None:
    home = Path(sys.argv[1])
    url = f"sqlite+aiosqlite:///{home}/bai.sqlite"
    async with manager_on(url, home, MovableClock()) as manager:
        world = await make_world(manager, manager.clock)
        await manager.folders.vfolders.start()
        async with serving(world) as api:
            keys = world.keys["user"]
            print(json.dumps([api.url, keys.access_key, keys.secret_key]), flush=True)
            while line := await asyncio.to_thread(sys.stdin.readline):
                print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, flush=True)

asyncio.run(main())
"""


class ManagerProcess:
    """A manager in a separate process."""

    def __init__(self, home: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", SERVER, str(home)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        url, access_key, secret_key = json.loads(self._read())
        self.client = Client(url, Keypair(access_key, secret_key), timeout_seconds=120)

    def peak_memory_kib(self) -> int:
        """Return the peak memory of the process in KiB."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return int(self._read())

    def stop(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(30)
        self._process.stdout.close()

    def _read(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline()


@pytest.fixture
def manager_process(tmp_path: Path) -> Iterator[ManagerProcess]:
    made = ManagerProcess(tmp_path)
    yield made
    made.stop()


async def test_memory_is_constant_for_a_large_file(manager_process: ManagerProcess) -> None:
    size = 200 * MIB
    block = os.urandom(MIB)

    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(size // MIB):
            yield block

    async with manager_process.client as client:
        await client.post("/vfolders", {"name": "data"})
        await put(client, "warm", block)
        before = manager_process.peak_memory_kib()
        assert (await put(client, "big", chunks()))["size"] == size
        known = {"Content-Length": str(size)}
        path = "/vfolders/data/content?path=known"
        answer = await client.http.put(path, content=chunks(), headers=known)
        assert answer.json()["size"] == size
        received = 0
        async with client.stream("/vfolders/data/content", path="big") as answer:
            async for chunk in answer.aiter_bytes():
                received += len(chunk)
    assert received == size
    assert manager_process.peak_memory_kib() - before < 32 * 1024
