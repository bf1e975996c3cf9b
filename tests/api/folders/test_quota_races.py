"""Quotas hold when several requests write to a quota scope at the same time."""

from __future__ import annotations

import asyncio
import io
import os
import tarfile
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import httpx
import pytest

from bai_services.client import Client
from bai_services.core.errors import QuotaExceeded
from bai_services.storage.transfers.staging import DIRECTORY
from tests.testbed.manager import Api
from tests.testbed.wait import wait_until_async

from .test_uploads import CHUNK_HEADERS, metadata

KIB = 1024
LIMIT = 100 * KIB


@pytest.fixture
async def api(api: Api) -> AsyncIterator[Api]:
    await api.world.manager.folders.vfolders.start()
    yield api


@pytest.fixture
async def user(api: Api) -> Client:
    client = await api.client("user")
    await client.post("/vfolders", {"name": "data"})
    scope = f"user:{await api.world.user_id('user')}"
    admin = await api.client("admin")
    await admin.put(f"/quota-scopes/local/{scope}", {"limit_bytes": LIMIT})
    return client


async def put(client: Client, path: str, content: bytes) -> int:
    answer = await client.http.put("/vfolders/data/content", params={"path": path}, content=content)
    return answer.status_code


async def copy(client: Client, source: str, target: str) -> int:
    answer = await client.http.post(
        "/vfolders/data/copy", json={"source": source, "target": target}
    )
    return answer.status_code


async def at_once(count: int, request: Callable[[int], Awaitable[int]]) -> list[int]:
    return sorted(await asyncio.gather(*(request(number) for number in range(count))))


def root_of(api: Api) -> Path:
    return api.world.manager.settings.storage_root


def stored_bytes(api: Api) -> int:
    return sum(path.stat().st_size for path in root_of(api).glob("user/*/[!.]*/**/*")
               if path.is_file())  # fmt: skip


def staged_bytes(api: Api) -> int:
    return sum(path.stat().st_size for path in root_of(api).glob(f"*/*/{DIRECTORY}/**/*")
               if path.is_file())  # fmt: skip


def archive(name: str, size: int) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as made:
        member = tarfile.TarInfo(name)
        member.size = size
        made.addfile(member, io.BytesIO(bytes(size)))
    return buffer.getvalue()


async def test_concurrent_uploads_cannot_exceed_the_quota(api: Api, user: Client) -> None:
    codes = await at_once(8, lambda n: put(user, f"f{n}", b"x" * 60 * KIB))
    assert codes == [200] + [403] * 7
    assert stored_bytes(api) == 60 * KIB
    # The rejected uploads have released their reserved bytes.
    assert await put(user, "rest", b"x" * 40 * KIB) == 200


async def test_copy_larger_than_the_remaining_quota_is_rejected(api: Api, user: Client) -> None:
    assert await put(user, "d/f", b"x" * 60 * KIB) == 200
    assert await copy(user, "d/f", "g") == 403
    assert await copy(user, "d", "e") == 403
    assert stored_bytes(api) == 60 * KIB


async def test_concurrent_copies_cannot_exceed_the_quota(api: Api, user: Client) -> None:
    assert await put(user, "d/f", b"x" * 40 * KIB) == 200
    assert await at_once(8, lambda n: copy(user, "d", f"c{n}")) == [200] + [403] * 7
    assert stored_bytes(api) == 80 * KIB


async def test_concurrent_archives_cannot_exceed_the_quota(api: Api, user: Client) -> None:
    async def unpack(number: int) -> int:
        content = archive(f"t{number}", 60 * KIB)
        return (await user.http.put("/vfolders/data/archive", content=content)).status_code

    codes = await at_once(3, unpack)
    assert codes[0] == 200 and all(code in (400, 403) for code in codes[1:])
    assert stored_bytes(api) == 60 * KIB


async def test_concurrent_clones_cannot_exceed_the_quota(api: Api, user: Client) -> None:
    assert await put(user, "f", b"x" * 40 * KIB) == 200
    await user.patch("/vfolders/data", {"cloneable": True})
    clones = (user.post("/vfolders/data/clone", {"name": f"clone{n}"}) for n in range(4))
    await asyncio.gather(*clones)
    await api.world.manager.folders.vfolders.wait_for_tasks()
    folders = (await user.get("/vfolders"))["items"]
    statuses = [item["status"] for item in folders if item["name"].startswith("clone")]
    assert sorted(statuses) == ["error"] * 3 + ["ready"]
    assert stored_bytes(api) == 80 * KIB


async def create(client: Client, name: str, size: int) -> httpx.Response:
    headers = {"Upload-Length": str(size), "Upload-Metadata": metadata(path=name)}
    return await client.http.post("/vfolders/data/uploads", headers=headers)


async def test_concurrent_resumable_uploads_cannot_exceed_the_quota(api: Api, user: Client) -> None:
    answers = await asyncio.gather(*(create(user, f"g{n}", 60 * KIB) for n in range(8)))
    assert sorted(answer.status_code for answer in answers) == [201] + [403] * 7
    # Bytes announced for an upload are not available to other requests.
    assert await put(user, "f", b"x" * 60 * KIB) == 403
    (location,) = (a.headers["Location"] for a in answers if a.status_code == 201)
    chunk = await user.http.patch(
        "/vfolders/" + location.partition("/vfolders/")[2],
        content=b"x" * 60 * KIB,
        headers={**CHUNK_HEADERS, "Upload-Offset": "0"},
    )
    assert chunk.status_code == 204
    assert await put(user, "f", b"x" * 40 * KIB) == 200
    assert stored_bytes(api) == LIMIT


async def test_upload_of_unknown_length_ends_when_it_exceeds_the_quota(
    api: Api, user: Client
) -> None:
    sent, ended = asyncio.Event(), asyncio.Event()

    async def body() -> AsyncIterator[bytes]:
        for _ in range(64):
            yield os.urandom(256 * KIB)
        sent.set()
        await ended.wait()
        yield b"x"

    task = asyncio.create_task(
        user.call("PUT", "/vfolders/data/content", query={"path": "big"}, content=body())
    )
    await sent.wait()
    # The request of the upload has not ended.
    await wait_until_async(lambda: staged_bytes(api) == 0, 10, "the upload to be discarded")
    ended.set()
    with pytest.raises(QuotaExceeded):
        await task
    assert await put(user, "f", b"x" * LIMIT) == 200
