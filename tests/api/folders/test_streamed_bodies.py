"""Streamed request bodies of known length on keep-alive connections."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from bai_services.client import Client
from bai_services.core.accounts import signature
from bai_services.manager.folders.write_buffer import CHUNK_BYTES
from bai_services.manager.settings import StorageHostSettings
from bai_services.storage.transfers.staging import DIRECTORY
from tests.testbed.manager import Api, MovableClock, known_world, manager_on, serving
from tests.testbed.skip import skip_or_fail
from tests.testbed.wait import wait_until_async

from .test_uploads import CHUNK_HEADERS, MIB, create_upload, offset_of

CONTENT = "/vfolders/data/content"
# Sizes below, equal to and above the size of the write buffer.
SIZES = [0, 1, 5000, MIB, CHUNK_BYTES, 3 * CHUNK_BYTES + 7]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "disk"
    place.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", "size=64m", "none", str(place)]
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode:
        skip_or_fail("mount", done.stderr)
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


@pytest.fixture
async def api(tmp_path: Path, disk: Path, demo_database_url: str) -> AsyncIterator[Api]:
    clock = MovableClock()
    hosts = (StorageHostSettings("local", "local", disk),)
    async with (
        manager_on(demo_database_url, tmp_path, clock, storage_hosts=hosts) as manager,
        serving(await known_world(manager, clock)) as served,
    ):
        await manager.folders.vfolders.start()
        yield served


@pytest.fixture
async def user(api: Api) -> Client:
    client = await api.client("user")
    await client.post("/vfolders", {"name": "data"})
    return client


class Wire:
    """A raw HTTP connection: the test decides when each byte is sent."""

    def __init__(
        self, api: Api, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._api = api
        self._reader = reader
        self._writer = writer

    def send(self, content: bytes) -> None:
        self._writer.write(content)

    def head(self, method: str, path: str, length: int, more: Mapping[str, str]) -> None:
        address = urlsplit(f"{self._api.url}/api/v1{path}")
        target, keys = f"{address.path}?{address.query}".rstrip("?"), self._api.world.keys["user"]
        now = datetime.now(UTC).replace(microsecond=0)
        made = signature.sign(
            keys.secret_key,
            method=method,
            path=target,
            host=address.netloc,
            date=now,
            content_type=more.get("Content-Type", ""),
        )
        headers = {
            "Host": address.netloc,
            "Date": now.isoformat(),
            signature.VERSION_HEADER: signature.VERSION,
            "Authorization": signature.authorization(keys.access_key, made),
            "Content-Length": str(length),
            **more,
        }
        lines = [f"{name}: {value}" for name, value in headers.items()]
        self.send("\r\n".join([f"{method} {target} HTTP/1.1", *lines, "", ""]).encode())

    async def read_response(self) -> tuple[int, bytes]:
        """Return the status and the body of the next response."""
        head = (await asyncio.wait_for(self._reader.readuntil(b"\r\n\r\n"), 60)).decode()
        lengths = [
            int(line.partition(":")[2])
            for line in head.splitlines()
            if line.lower().startswith("content-length:")
        ]
        return int(head.split()[1]), await self._reader.readexactly(sum(lengths))


@asynccontextmanager
async def wire(api: Api) -> AsyncIterator[Wire]:
    address = urlsplit(api.url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    try:
        yield Wire(api, reader, writer)
    finally:
        writer.close()
        await asyncio.gather(writer.wait_closed(), return_exceptions=True)


async def content_of(user: Client, path: str) -> bytes:
    return (await user.http.get(CONTENT, params={"path": path})).content


async def test_connection_is_reused_after_a_streamed_body(api: Api, user: Client) -> None:
    async with wire(api) as connection:
        for size in SIZES:
            content = os.urandom(size)
            # The head of the next request arrives together with the end of this body. The server
            # must not read that head as a part of the body.
            connection.head("PUT", f"{CONTENT}?path=f{size}", size, {})
            connection.send(content)
            connection.head("PUT", f"{CONTENT}?path=next", 4, {})
            connection.send(b"next")
            statuses = [(await connection.read_response())[0] for _ in range(2)]
            assert statuses == [200, 200]
            assert await content_of(user, f"f{size}") == content
            assert await content_of(user, "next") == b"next"


async def test_expect_100_continue_is_answered(api: Api, user: Client) -> None:
    async with wire(api) as connection:
        connection.head("PUT", f"{CONTENT}?path=f", MIB, {"Expect": "100-continue"})
        assert (await connection.read_response())[0] == 100
        content = os.urandom(MIB)
        connection.send(content)
        assert (await connection.read_response())[0] == 200
    assert await content_of(user, "f") == content


async def test_tus_upload_keeps_bytes_received_before_a_disconnect(api: Api, user: Client) -> None:
    content = os.urandom(CHUNK_BYTES + 300_000)
    upload = await create_upload(user, len(content), "f")
    sent = [100_000, CHUNK_BYTES + 200_000, len(content)]
    offset = 0
    for end in sent:
        # The first two bodies are incomplete. The first is smaller than the write buffer, the
        # second is larger.
        async with wire(api) as connection:
            headers = {**CHUNK_HEADERS, "Upload-Offset": str(offset)}
            connection.head("PATCH", upload, len(content) - offset, headers)
            connection.send(content[offset:end])
            if end == len(content):
                assert (await connection.read_response())[0] == 204
        if end < len(content):
            await wait_until_async(
                lambda end=end: _has_offset(user, upload, end), 60, f"{end} bytes to be kept"
            )
            offset = end
    assert await content_of(user, "f") == content


async def _has_offset(user: Client, upload: str, end: int) -> bool:
    return await offset_of(user, upload) == end


def fill(path: Path) -> None:
    """Write to a file until no space is left on the disk."""
    with suppress(OSError), open(path, "wb", buffering=0) as filler:
        while True:
            filler.write(bytes(64 * 1024))


async def test_disk_full_during_an_upload_is_reported_after_the_body(
    api: Api, user: Client, disk: Path
) -> None:
    size = 20 * MIB
    async with wire(api) as connection:
        connection.head("PUT", f"{CONTENT}?path=f", size, {})
        connection.send(b"x" * 4 * MIB)
        await wait_until_async(
            lambda: any(p.stat().st_size for p in disk.glob(f"*/*/{DIRECTORY}/*")), 60, "a chunk"
        )
        fill(disk / "filler")
        connection.send(b"x" * (size - 4 * MIB))
        status, body = await connection.read_response()
        assert (status, b"full" in body) == (507, True)
        (disk / "filler").unlink()
        # The rest of the rejected body was discarded, so the connection can be reused.
        connection.head("PUT", f"{CONTENT}?path=g", 4, {})
        connection.send(b"next")
        assert (await connection.read_response())[0] == 200
    assert [i["name"] for i in (await user.get("/vfolders/data/files"))["items"]] == ["g"]
    await wait_until_async(
        lambda: not list(disk.glob(f"*/*/{DIRECTORY}/*")), 60, "the incomplete file to be deleted"
    )
