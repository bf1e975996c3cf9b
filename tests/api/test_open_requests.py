"""Requests in progress have no effect and return no more data once their caller loses access."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from bai_services.client import Client
from bai_services.core.errors import BaiError, NotFound, NotSignedIn
from bai_services.manager.sessions.sessions import Sessions
from tests.testbed.manager import Api
from tests.testbed.wait import wait_until_async

MIB = 2**20


@pytest.fixture
async def owner(api: Api) -> Client:
    await api.world.manager.folders.vfolders.start()
    client = await api.client("user")
    await client.post("/vfolders", {"name": "data"})
    return client


async def revoke(api: Api, what: str) -> None:
    """Remove the access of ``user2`` to the folder ``data``, to all projects, or to everything."""
    admin = await api.client("admin")
    if what == "grant":
        await (await api.client("user")).delete("/vfolders/data/grants/user2")
    elif what == "keypair":
        key = api.world.keys["user2"].access_key
        await admin.patch(f"/keypairs/{key}", {"is_active": False})
    elif what == "user":
        await admin.patch("/users/user2", {"status": "inactive"})
    else:
        await admin.patch("/users/user2", {"projects": []})


async def shared_folder(api: Api, owner: Client) -> str:
    await api.share_folder("user", "data", "user2", "rw")
    folder: str = (await owner.get("/vfolders/data"))["id"]
    return folder


@pytest.mark.parametrize(
    ("what", "error"), [("grant", NotFound), ("keypair", NotSignedIn), ("user", NotSignedIn)]
)
async def test_upload_is_rejected_if_its_caller_has_lost_access(
    api: Api, owner: Client, what: str, error: type[BaiError]
) -> None:
    path = f"/vfolders/{await shared_folder(api, owner)}/content"
    await upload_and_revoke(api, path, what, error)
    assert (await owner.get("/vfolders/data/files"))["items"] == []


async def test_upload_is_rejected_if_its_caller_has_left_the_project(
    api: Api, owner: Client
) -> None:
    admin = await api.client("admin")
    spec = {"name": "team", "project": "default/default", "permission": "rw"}
    folder = (await admin.post("/vfolders", spec))["id"]
    await upload_and_revoke(api, f"/vfolders/{folder}/content", "project", NotFound)
    assert (await admin.get(f"/vfolders/{folder}/files"))["items"] == []


async def upload_and_revoke(api: Api, path: str, what: str, error: type[BaiError]) -> None:
    begun, revoked = asyncio.Event(), asyncio.Event()

    async def body() -> AsyncIterator[bytes]:
        yield b"x"
        begun.set()
        await revoked.wait()
        yield b"y"

    guest = await api.client("user2")
    task = asyncio.create_task(guest.call("PUT", path, query={"path": "f"}, content=body()))
    await begun.wait()
    root = api.world.manager.settings.storage_root
    await wait_until_async(lambda: any(root.glob("*/*/.*/*")), 10, "the upload to begin")
    await revoke(api, what)
    revoked.set()
    with pytest.raises(error):
        await task


@pytest.mark.parametrize("what", ["grant", "user"])
@pytest.mark.parametrize("kind", ["content", "archive"])
async def test_download_ends_when_its_caller_loses_access(
    api: Api, owner: Client, what: str, kind: str
) -> None:
    folder = await shared_folder(api, owner)
    size = 64 * MIB  # more than a connection buffers
    await owner.call("PUT", "/vfolders/data/content", query={"path": "big"}, content=b"x" * size)
    guest = await api.client("user2")
    query = {"path": "big", **({"format": "tar"} if kind == "archive" else {})}
    async with guest.stream(f"/vfolders/{folder}/{kind}", **query) as response:
        await wait_until_async(open_files, 10, "the file to be opened")
        await revoke(api, what)
        await wait_until_async(lambda: not open_files(), 10, "the file to be closed")
        with pytest.raises(httpx.RemoteProtocolError):
            await response.aread()


def open_files() -> list[Path]:
    descriptors = Path("/proc/self/fd").iterdir()
    return [path for path in descriptors if str(path.resolve()).endswith("/big")]


async def test_long_poll_does_not_return_the_session_to_a_caller_without_access(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    guest = await api.client("user2")
    spec = {"name": "pending", "resources": {"cpu": "1", "mem": "1g"}}
    await guest.post("/sessions", spec)
    find, is_waiting = Sessions.find_visible, asyncio.Event()

    async def spy(*arguments: Any) -> Any:
        found = await find(*arguments)
        is_waiting.set()
        return found

    monkeypatch.setattr(Sessions, "find_visible", spy)
    task = asyncio.create_task(guest.get("/sessions/pending", wait="RUNNING", timeout="2"))
    await is_waiting.wait()
    await revoke(api, "user")
    with pytest.raises(NotSignedIn):
        await task


@pytest.mark.usefixtures("owner")
async def test_export_ends_when_its_caller_loses_access(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bai_services.api.csv_export.MAX_LIMIT", 1)
    guest = await api.client("user2")
    for name in ("a", "b", "c"):
        await guest.post("/vfolders", {"name": name})
    vfolders = type(api.world.manager.folders.vfolders)
    page, pages = vfolders.page, 0

    async def read_and_revoke(*arguments: Any) -> Any:
        nonlocal pages
        found = await page(*arguments)
        pages += 1
        if pages == 1:
            await revoke(api, "keypair")
        return found

    monkeypatch.setattr(vfolders, "page", read_and_revoke)
    async with guest.stream("/vfolders", format="csv") as response:
        with pytest.raises(httpx.RemoteProtocolError):
            await response.aread()
    assert pages == 1
