"""Kill of the manager during an upload chunk: acknowledged bytes are kept."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import os
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from tests.testbed.wait import wait_until_async

from .killable_manager import KillableManager
from .test_uploads import CHUNK_HEADERS, MIB, metadata, signed_headers

CONTENT_BYTES = 48 * MIB
FIRST_BYTES = 2 * MIB


@pytest.mark.parametrize(
    "has_checksum", [False, True], ids=["chunk without checksum", "chunk with checksum"]
)
async def test_kill_during_a_chunk_keeps_acknowledged_bytes(
    tmp_path: Path, has_checksum: bool
) -> None:
    content = os.urandom(CONTENT_BYTES)
    home = tmp_path / "home"
    home.mkdir()
    server = KillableManager(home)
    try:
        url, access, secret, folder, port = await asyncio.to_thread(server.start)
        async with httpx.AsyncClient(timeout=60) as http:
            target = f"{url}/api/v1/vfolders/{folder}/uploads"
            facts = {"Upload-Length": str(len(content)), "Upload-Metadata": metadata(path="f")}
            made = await http.post(
                target, headers=signed_headers(target, access, secret, "POST") | facts
            )
            assert made.status_code == 201, made.text
            upload = f"{url.partition('/services')[0]}{urlsplit(made.headers['Location']).path}"

            async def send(offset: int, body: bytes | AsyncIterator[bytes], length: int) -> int:
                headers = (
                    signed_headers(upload, access, secret, "PATCH", CHUNK_HEADERS["Content-Type"])
                    | CHUNK_HEADERS
                )
                headers |= {"Upload-Offset": str(offset), "Content-Length": str(length)}
                if has_checksum:
                    digest = hashlib.sha256(content[offset : offset + length]).digest()
                    headers["Upload-Checksum"] = f"sha256 {base64.b64encode(digest).decode()}"
                answer = await http.patch(upload, content=body, headers=headers)
                assert answer.status_code == 204, answer.text
                return int(answer.headers["Upload-Offset"])

            async def offset_now() -> int:
                headers = signed_headers(upload, access, secret, "HEAD")
                return int((await http.head(upload, headers=headers)).headers["Upload-Offset"])

            def staged_bytes() -> int:
                places = home.glob("vfolders/user/*/.staging/*")
                return sum(path.stat().st_size for path in places)

            async def chunk_until_kill() -> AsyncIterator[bytes]:
                yield content[FIRST_BYTES : -4 * MIB]
                # Kill the manager when it has written a part of this chunk and waits for the rest.
                await wait_until_async(
                    lambda: staged_bytes() > FIRST_BYTES + 4 * MIB,
                    60,
                    "a part of the chunk to arrive",
                )
                await asyncio.to_thread(server.kill)
                yield content[-4 * MIB :]

            acknowledged = await send(0, content[:FIRST_BYTES], FIRST_BYTES)
            assert acknowledged == FIRST_BYTES
            with pytest.raises(httpx.TransportError):
                await send(FIRST_BYTES, chunk_until_kill(), len(content) - FIRST_BYTES)
            await asyncio.to_thread(server.start, int(port))
            kept = await offset_now()
            # The manager discards an incomplete chunk with a checksum. Without a checksum, it can
            # keep the bytes that it has written.
            assert kept == FIRST_BYTES if has_checksum else FIRST_BYTES <= kept < len(content)
            assert await send(kept, content[kept:], len(content) - kept) == len(content)
        (uploaded,) = home.glob("vfolders/user/*/*/f")
        assert hashlib.sha256(uploaded.read_bytes()).digest() == hashlib.sha256(content).digest()
    finally:
        server.kill()
