"""Requests that several tests of folders send."""

from __future__ import annotations

from typing import Any

from bai_services.client import Client


async def put(client: Client, path: str, content: bytes, key: str = "data") -> Any:
    where = f"/vfolders/{key}/content"
    return await client.call("PUT", where, query={"path": path}, content=content)


async def content_of(client: Client, path: str, key: str = "data") -> bytes:
    answer = await client.send("GET", f"/vfolders/{key}/content", query={"path": path})
    return answer.content


async def invite(client: Client, user: str, permission: str = "ro") -> dict[str, Any]:
    spec = {"user": user, "permission": permission}
    made: dict[str, Any] = await client.post("/vfolders/data/invitations", spec)
    return made
