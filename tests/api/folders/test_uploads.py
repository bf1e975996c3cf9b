"""Resumable uploads with hand-written tus requests and with a third-party tus client."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import io
import json
import os
import tarfile
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from tusclient.client import TusClient

from bai_services.client import Client
from bai_services.core.accounts import signature
from bai_services.core.errors import Forbidden, QuotaExceeded
from bai_services.db.folders.vfolders import VfolderStore
from bai_services.manager.folders.open_uploads import OpenUploads
from bai_services.manager.folders.quotas import location_of
from tests.testbed.manager import Api, MovableClock, known_world, manager_on, serving
from tests.testbed.wait import wait_until, wait_until_async

from .killable_manager import KillableManager

MIB = 2**20
HOUR = 3600
CHUNK_HEADERS = {"Content-Type": "application/offset+octet-stream", "Tus-Resumable": "1.0.0"}
UPLOADS = "/vfolders/data/uploads"
NOTHING: dict[str, str] = {}


@pytest.fixture
async def user(api: Api) -> Client:
    await api.world.manager.folders.vfolders.start()
    client = await api.client("user")
    await client.post("/vfolders", {"name": "data"})
    return client


def metadata(**facts: str) -> str:
    return ",".join(f"{k} {base64.b64encode(v.encode()).decode()}" for k, v in facts.items())


async def create_upload(
    client: Client, length: int, path: str, more: dict[str, str] = NOTHING,
    headers: dict[str, str] = NOTHING,
) -> str:  # fmt: skip
    """Create an upload and return its URL path relative to the API.

    ``more`` is additional metadata. If ``path`` is empty, the upload has no metadata.
    """
    answer = await client.http.post(
        UPLOADS,
        headers={
            "Upload-Length": str(length),
            **({"Upload-Metadata": metadata(path=path, **more)} if path else {}),
            **headers,
        },
    )
    assert answer.status_code == 201, answer.text
    return "/vfolders/" + answer.headers["Location"].partition("/vfolders/")[2]


async def send_chunk(
    client: Client, upload: str, offset: int, content: bytes, **headers: str | bytes
) -> httpx.Response:
    more = {name.replace("_", "-"): value for name, value in headers.items()}
    return await client.http.patch(
        upload, content=content, headers={**CHUNK_HEADERS, "Upload-Offset": str(offset), **more}
    )


async def content_of(client: Client, path: str) -> bytes:
    answer = await client.http.get("/vfolders/data/content", params={"path": path})
    assert answer.status_code == 200, answer.text
    return answer.content


def expiry_of(answer: httpx.Response) -> float:
    """Return the Unix time at which an upload expires."""
    return parsedate_to_datetime(answer.headers["Upload-Expires"]).timestamp()


async def offset_of(client: Client, upload: str) -> int:
    return int((await client.http.head(upload)).headers["Upload-Offset"])


async def names(client: Client) -> list[str]:
    return [item["name"] for item in (await client.get("/vfolders/data/files"))["items"]]


async def test_options_response_lists_tus_features(api: Api) -> None:
    async with httpx.AsyncClient() as http:
        answer = await http.options(f"{api.url}/api/v1{UPLOADS}")
    assert answer.status_code == 204
    assert answer.headers["Tus-Version"] == "1.0.0"
    assert set(answer.headers["Tus-Extension"].split(",")) == {
        "creation", "termination", "checksum", "concatenation", "expiration",
    }  # fmt: skip
    assert "sha256" in answer.headers["Tus-Checksum-Algorithm"]


async def test_file_appears_with_the_last_chunk(user: Client) -> None:
    content = os.urandom(3 * MIB + 5)
    upload = await create_upload(user, len(content), "deep/file.bin")
    assert await offset_of(user, upload) == 0
    first = await send_chunk(user, upload, 0, content[:MIB])
    assert (first.status_code, first.headers["Upload-Offset"]) == (204, str(MIB))
    assert "Upload-Expires" in first.headers
    assert await names(user) == []
    wrong = await send_chunk(user, upload, 17, content[MIB:])
    assert wrong.status_code == 409 and wrong.json()["details"]["offset"] == MIB
    last = await send_chunk(user, upload, MIB, content[MIB:])
    assert (last.status_code, last.headers["Upload-Offset"]) == (204, str(len(content)))
    assert await content_of(user, "deep/file.bin") == content
    # A client that missed the last response can still read the offset.
    assert await offset_of(user, upload) == len(content)


async def test_invalid_upload_request_is_rejected(api: Api, user: Client) -> None:
    upload = await create_upload(user, 5, "f")
    assert (await send_chunk(user, upload, 0, b"123456")).status_code == 413
    untyped = await user.http.patch(upload, content=b"1", headers={"Upload-Offset": "0"})
    assert untyped.status_code == 415
    old = await user.http.post(UPLOADS, headers={"Tus-Resumable": "0.2.2", "Upload-Length": "5"})
    assert (old.status_code, old.headers["Tus-Version"]) == (412, "1.0.0")
    for headers in (
        {},
        {"Upload-Length": "-1"},
        {"Upload-Length": "5", "Upload-Metadata": "path %"},
    ):
        assert (await user.http.post(UPLOADS, headers=headers)).status_code == 400
    outside = {"Upload-Length": "1", "Upload-Metadata": metadata(path="../x")}
    assert (await user.http.post(UPLOADS, headers=outside)).status_code == 400
    # Other users do not see the upload, even with write permission on the folder.
    await api.share_folder("user", "data", "user2", "rw")
    guest = await api.client("user2")
    folder = (await user.get("/vfolders/data"))["id"]
    theirs = upload.replace(upload.split("/")[2], folder)
    assert (await guest.http.head(theirs)).status_code == 404
    assert (await user.http.head(f"{UPLOADS}/..%2F..%2Fx")).status_code == 404


async def test_chunk_with_wrong_checksum_is_discarded(user: Client) -> None:
    content = os.urandom(MIB)
    upload = await create_upload(user, len(content), "f")
    good = base64.b64encode(hashlib.sha256(content[:1000]).digest()).decode()
    wrong = await send_chunk(user, upload, 0, b"x" * 1000, Upload_Checksum=f"sha256 {good}")
    assert wrong.status_code == 460
    assert await offset_of(user, upload) == 0
    unknown = await send_chunk(user, upload, 0, b"x", Upload_Checksum="crc32 AAAA")
    assert unknown.status_code == 400
    for not_base64 in ("sha256 =", "sha256 é".encode()):
        refused = await send_chunk(user, upload, 0, b"x", Upload_Checksum=not_base64)
        assert (refused.status_code, refused.json()["error"]) == (400, "invalid-request")
    right = await send_chunk(user, upload, 0, content[:1000], Upload_Checksum=f"sha256 {good}")
    assert right.status_code == 204
    assert (await send_chunk(user, upload, 1000, content[1000:])).status_code == 204
    assert await content_of(user, "f") == content


async def test_parallel_partial_uploads_are_concatenated(user: Client) -> None:
    content = os.urandom(4 * MIB + 3)
    cuts = [content[i : i + MIB + 1] for i in range(0, len(content), MIB + 1)]
    uploads = [
        await create_upload(user, len(cut), "", headers={"Upload-Concat": "partial"})
        for cut in cuts
    ]
    done = await asyncio.gather(
        *(send_chunk(user, upload, 0, cut) for upload, cut in zip(uploads, cuts, strict=True))
    )
    assert {answer.status_code for answer in done} == {204}
    assert await names(user) == []
    final = {"Upload-Concat": "final;" + " ".join(uploads), "Upload-Metadata": metadata(path="big")}
    answer = await user.http.post(UPLOADS, headers=final)
    assert answer.status_code == 201, answer.text
    assert await content_of(user, "big") == content
    again = await user.http.post(UPLOADS, headers=final)
    assert again.status_code == 404  # The partial uploads have been deleted.


async def test_aborted_upload_is_deleted(user: Client) -> None:
    upload = await create_upload(user, 10, "f")
    await send_chunk(user, upload, 0, b"12345")
    assert (await user.http.delete(upload)).status_code == 204
    assert (await user.http.head(upload)).status_code == 404


async def test_abandoned_upload_expires(api: Api, user: Client) -> None:
    upload = await create_upload(user, 10, "f")
    (host,) = api.world.manager.folders.storage_hosts.all()
    (row,) = await VfolderStore(api.world.manager.database).by_id(upload.split("/")[2])
    staging = host.staging(location_of(row))
    assert staging.sweep(0, is_start=False) == 0
    assert staging.sweep(2**40, is_start=False) == 1
    assert (await user.http.head(upload)).status_code == 404


async def test_upload_expires_a_day_after_the_last_received_byte(api: Api, user: Client) -> None:
    upload = await create_upload(user, 10, "f")
    (host,) = api.world.manager.folders.storage_hosts.all()
    (row,) = await VfolderStore(api.world.manager.database).by_id(upload.split("/")[2])
    staging = host.staging(location_of(row))
    data = staging.data_path(upload.rpartition("/")[2])
    start = time.time()
    # Simulate that the upload started 23 hours ago.
    state = json.loads(data.with_suffix(".json").read_text())
    state["created_at"] -= 23 * HOUR
    state["expires_at"] -= 23 * HOUR
    data.with_suffix(".json").write_text(json.dumps(state))
    os.utime(data, (state["created_at"], state["created_at"]))
    assert expiry_of(await user.http.head(upload)) < start + 2 * HOUR
    answer = await send_chunk(user, upload, 0, b"12345")
    assert expiry_of(answer) > start + 23 * HOUR
    assert expiry_of(await user.http.head(upload)) > start + 23 * HOUR
    ((_, stored),) = await host.unfinished()
    assert stored.expires_at > start + 23 * HOUR
    assert staging.sweep(start + 23 * HOUR, is_start=False) == 0
    assert staging.sweep(start + 25 * HOUR, is_start=False) == 1


@pytest.mark.parametrize("content", ["", '{"id": ', "[]", "{}", "null"])
async def test_damaged_upload_does_not_stop_the_sweep(api: Api, user: Client, content: str) -> None:
    damaged = await create_upload(user, 10, "f")
    whole = [await create_upload(user, 10, f"f{n}") for n in range(3)]
    (host,) = api.world.manager.folders.storage_hosts.all()
    (row,) = await VfolderStore(api.world.manager.database).by_id(damaged.split("/")[2])
    staging = host.staging(location_of(row))
    data = staging.data_path(damaged.rpartition("/")[2])
    data.with_suffix(".json").write_text(content)
    stray = data.with_name("stray.json")
    stray.write_text(content)
    assert (await user.http.head(damaged)).status_code == 404
    # The periodic sweep keeps the files of a damaged upload for a day after their last change. The
    # sweep at the start of the manager deletes them.
    assert staging.sweep(time.time(), is_start=False) == 0
    assert data.exists() and stray.exists()
    assert staging.sweep(time.time(), is_start=True) == 0
    assert not data.exists() and not stray.exists()
    assert not data.with_suffix(".json").exists()
    assert {(await user.http.head(upload)).status_code for upload in whole} == {200}
    assert staging.sweep(2**40, is_start=False) == 3


async def test_latest_chunk_request_takes_over_an_upload(api: Api, user: Client) -> None:
    content = os.urandom(4 * MIB)
    upload = await create_upload(user, len(content), "f")
    staged = api.world.manager.settings.storage_root

    async def stalled_chunk() -> Any:
        yield content[: 3 * MIB]
        await asyncio.Event().wait()

    headers = {**CHUNK_HEADERS, "Upload-Offset": "0", "Content-Length": str(len(content))}
    first = asyncio.create_task(user.http.patch(upload, content=stalled_chunk(), headers=headers))
    await wait_until_async(
        lambda: any(path.stat().st_size for path in staged.glob("*/*/.staging/*.data")),
        60,
        "a part of the first chunk to be written",
    )
    offset = await offset_of(user, upload)
    assert (await send_chunk(user, upload, offset, content[offset:])).status_code == 204
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    assert await content_of(user, "f") == content


async def test_uploaded_archive_is_unpacked_when_complete(user: Client) -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        info = tarfile.TarInfo("a/b.txt")
        info.size = 2
        archive.addfile(info, io.BytesIO(b"hi"))
    body = packed.getvalue()
    upload = await create_upload(user, len(body), "into", {"unpack": "tar"})
    assert (await send_chunk(user, upload, 0, body)).status_code == 204
    assert await content_of(user, "into/a/b.txt") == b"hi"


@pytest.fixture
async def api_with_three_uploads(tmp_path: Path, demo_database_url: str) -> AsyncIterator[Api]:
    """The API of a manager that allows three unfinished uploads per user."""
    clock, options = MovableClock(), {"is_migrated": True, "max_open_uploads": 3}
    async with (
        manager_on(demo_database_url, tmp_path, clock, **options) as manager,
        serving(await known_world(manager, clock)) as api,
    ):
        await manager.folders.vfolders.start()
        yield api


async def test_unfinished_uploads_per_user_are_limited(api_with_three_uploads: Api) -> None:
    api = api_with_three_uploads
    user = await api.client("user")
    await user.post("/vfolders", {"name": "data"})

    async def post(length: int = 4) -> httpx.Response:
        headers = {"Upload-Length": str(length), "Upload-Metadata": metadata(path="f")}
        return await user.http.post(UPLOADS, headers=headers)

    # Send the requests concurrently, to detect a race between check and count.
    answers = await asyncio.gather(*(post() for _ in range(12)))
    assert sorted(answer.status_code for answer in answers) == [201] * 3 + [403] * 9
    refused = next(answer for answer in answers if answer.status_code == 403)
    assert refused.json()["error"] == "quota-exceeded"
    assert "3 unfinished uploads" in refused.json()["message"]
    made = [a.headers["Location"] for a in answers if a.status_code == 201]
    paths = ["/vfolders/" + location.partition("/vfolders/")[2] for location in made]
    # The limit is per user. Finished and aborted uploads do not count.
    guest = await api.client("user2")
    await guest.post("/vfolders", {"name": "theirs"})
    answer = await guest.http.post(
        "/vfolders/theirs/uploads",
        headers={"Upload-Length": "4", "Upload-Metadata": metadata(path="f")},
    )
    assert answer.status_code == 201
    assert (await user.http.delete(paths[0])).status_code == 204
    assert (await send_chunk(user, paths[1], 0, b"done")).status_code == 204
    assert [(await post()).status_code for _ in range(3)] == [201, 201, 403]


async def test_unfinished_uploads_count_after_a_restart_until_they_expire(
    api: Api, user: Client
) -> None:
    await create_upload(user, 4, "f")
    moment = time.time()
    hosts = api.world.manager.folders.storage_hosts
    # A new instance, as in a manager that has just started.
    open_uploads = OpenUploads(hosts, 1, lambda: moment)
    await open_uploads.read()
    ((scope, stored),) = await hosts.get("local").unfinished()
    another = replace(stored, id="another")
    with pytest.raises(QuotaExceeded, match="1 unfinished upload; the limit is 1"):
        open_uploads.begin("local", str(scope), another)
    moment += 23 * HOUR
    open_uploads.extend(stored.id, moment + 24 * HOUR)
    moment += 2 * HOUR
    with pytest.raises(QuotaExceeded, match="1 unfinished upload; the limit is 1"):
        open_uploads.begin("local", str(scope), another)
    moment += 23 * HOUR
    open_uploads.begin("local", str(scope), another)


async def test_unfinished_uploads_count_towards_the_quota(api: Api, user: Client) -> None:
    folder = await user.get("/vfolders/data")
    scopes = (await user.get("/quota-scopes"))["items"]
    scope = next(scope for scope in scopes if scope["host"] == folder["host"])
    admin = await api.client("admin")
    await admin.put(f"/quota-scopes/{scope['host']}/{scope['scope']}", {"limit_bytes": 10})
    await create_upload(user, 6, "f")
    headers = {"Upload-Length": "6", "Upload-Metadata": metadata(path="g")}
    answer = await user.http.post(UPLOADS, headers=headers)
    assert (answer.status_code, answer.json()["error"]) == (403, "quota-exceeded")


async def test_write_permission_is_checked_again_when_an_upload_completes(
    api: Api, user: Client
) -> None:
    await api.share_folder("user", "data", "user2", "rw")
    folder = (await user.get("/vfolders/data"))["id"]
    guest = await api.client("user2")
    answer = await guest.http.post(
        f"/vfolders/{folder}/uploads",
        headers={"Upload-Length": "4", "Upload-Metadata": metadata(filename="f")},
    )
    upload = "/vfolders/" + answer.headers["Location"].partition("/vfolders/")[2]
    assert (await send_chunk(guest, upload, 0, b"12")).status_code == 204
    await user.put("/vfolders/data/grants/user2", {"permission": "ro"})
    assert (await send_chunk(guest, upload, 2, b"34")).status_code == 403
    with pytest.raises(Forbidden):
        await guest.call("PUT", f"/vfolders/{folder}/content", query={"path": "x"}, content=b"x")
    assert await names(user) == []


def signed_headers(
    url: str, access: str, secret: str, method: str, kind: str = ""
) -> dict[str, str]:
    now = datetime.now(UTC).replace(microsecond=0)
    address = urlsplit(url)
    made = signature.sign(
        secret, method=method, path=address.path, host=address.netloc, date=now, content_type=kind
    )
    return {
        "Date": now.isoformat(),
        signature.VERSION_HEADER: signature.VERSION,
        "Authorization": signature.authorization(access, made),
    }


def test_tuspy_resumes_after_a_kill_of_the_manager(tmp_path: Path) -> None:
    """Kill the manager between two chunks of an upload; tuspy resumes, and the checksums match."""
    content = os.urandom(12 * MIB)
    (tmp_path / "big.bin").write_bytes(content)
    server = KillableManager(tmp_path / "home")
    (tmp_path / "home").mkdir()
    try:
        url, access, secret, folder, port = server.start()
        target = f"{url}/api/v1/vfolders/{folder}/uploads"
        client = TusClient(target, headers=signed_headers(target, access, secret, "POST"))
        with (tmp_path / "big.bin").open("rb") as source:
            uploader = client.uploader(
                file_stream=source,
                chunk_size=2 * MIB,
                metadata={"path": "sub/big.bin"},
                upload_checksum=True,
            )

            def send() -> None:
                kind = "application/offset+octet-stream"
                client.set_headers(signed_headers(uploader.url, access, secret, "PATCH", kind))
                uploader.upload_chunk()

            uploader.set_url(uploader.create_url())
            for _ in range(3):
                send()
            assert uploader.offset == 6 * MIB
            server.kill()
            server.start(int(port))
            client.set_headers(signed_headers(uploader.url, access, secret, "HEAD"))
            uploader.offset = uploader.get_offset()
            assert uploader.offset == 6 * MIB  # No acknowledged bytes are lost.
            while uploader.offset < len(content):
                send()
        (landed,) = (tmp_path / "home" / "vfolders").glob("user/*/*/sub/big.bin")
        wait_until(landed.exists, 10, "the file to appear")
        assert hashlib.sha256(landed.read_bytes()).digest() == hashlib.sha256(content).digest()
    finally:
        server.kill()
