"""A server with the distribution protocol and token authentication, with faults."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from tornado.testing import bind_unused_port

TOKEN = "short-lived-token"
PASSWORD = "registry-password"
BASIC = f"Basic {base64.b64encode(f'robot:{PASSWORD}'.encode()).decode()}"


@dataclass
class FakeRegistry:
    """One repository ``team/py`` with ``tags``.

    ``blob_redirect``: URL of another server with the configurations. ``realm``: URL of another
    token service. ``failures``: statuses of the next responses. ``refused``: statuses of the
    manifests of some tags. ``is_endless``: the list of tags has no last page. ``has_digests``:
    responses with a manifest have its digest as a header. ``body``: content of every manifest.
    ``is_silent``: no response to requests of manifests until ``is_released`` is set.
    """

    tags: list[str] = field(default_factory=lambda: ["1"])
    needs_token: bool = False
    realm: str = ""
    blob_redirect: str = ""
    failures: list[int] = field(default_factory=list)
    refused: dict[str, int] = field(default_factory=dict)
    is_endless: bool = False
    has_digests: bool = True
    is_silent: bool = False
    body: bytes | None = None
    labels: dict[str, str] = field(default_factory=dict)
    is_released: asyncio.Event = field(default_factory=asyncio.Event)
    url: str = ""
    methods: list[str] = field(default_factory=list)
    # Values of the header Authorization by kind of request.
    seen: dict[str, list[str | None]] = field(default_factory=dict)

    @property
    def host(self) -> str:
        return self.url.partition("://")[2]

    @property
    def config(self) -> bytes:
        document = {"architecture": "amd64", "os": "linux", "config": {"Labels": self.labels}}
        return json.dumps(document).encode()

    @property
    def manifest(self) -> bytes:
        if self.body is not None:
            return self.body
        digest = f"sha256:{hashlib.sha256(self.config).hexdigest()}"
        config = {"digest": digest, "size": len(self.config)}
        return json.dumps({"config": config, "layers": [{"size": 100}]}).encode()

    def _note(self, request: web.Request, kind: str) -> None:
        self.seen.setdefault(kind, []).append(request.headers.get("Authorization"))
        self.methods.append(f"{request.method} {kind}")
        if self.failures:
            raise _Failure(status=self.failures.pop(0))
        is_allowed = request.headers.get("Authorization") == f"Bearer {TOKEN}"
        if self.needs_token and kind != "token" and not is_allowed:
            realm = self.realm or f"{self.url}/token"
            challenge = f'Bearer realm="{realm}",service="registry"'
            raise _Failure(status=401, headers={"WWW-Authenticate": challenge})

    async def token(self, request: web.Request) -> web.Response:
        self._note(request, "token")
        if request.headers.get("Authorization") != BASIC:
            return web.Response(status=401)
        return web.json_response({"token": TOKEN, "scope": request.query["scope"]})

    async def list_repositories(self, request: web.Request) -> web.Response:
        self._note(request, "catalog")
        return web.json_response({"repositories": ["team/py"]})

    async def list_tags(self, request: web.Request) -> web.Response:
        self._note(request, "tags")
        start = int(request.query.get("last", 0))
        if self.is_endless:
            tags = [f"t{number}" for number in range(start, start + 100)]
        else:
            tags = self.tags[start : start + 100]
        headers = {}
        if self.is_endless or start + 100 < len(self.tags):
            headers["Link"] = f'</v2/team/py/tags/list?last={start + 100}&n=100>; rel="next"'
        return web.json_response({"tags": tags}, headers=headers)

    async def get_manifest(self, request: web.Request) -> web.Response:
        self._note(request, "manifest")
        if self.is_silent:
            await self.is_released.wait()
        if status := self.refused.get(request.match_info["reference"]):
            return web.Response(status=status)
        digest = f"sha256:{hashlib.sha256(self.manifest).hexdigest()}"
        headers = {"Docker-Content-Digest": digest} if self.has_digests else {}
        return web.Response(body=self.manifest, headers=headers)

    async def get_blob(self, request: web.Request) -> web.Response:
        self._note(request, "blob")
        if self.blob_redirect:
            return web.Response(status=307, headers={"Location": self.blob_redirect})
        return web.Response(body=self.config)

    async def storage(self, request: web.Request) -> web.Response:
        """The object storage to which the registry may redirect."""
        self.seen.setdefault("storage", []).append(request.headers.get("Authorization"))
        return web.Response(body=self.config)


class _Failure(web.HTTPException):
    def __init__(self, status: int, headers: dict[str, str] | None = None) -> None:
        self.status_code = status
        super().__init__(headers=headers)


@asynccontextmanager
async def serve_fake_registry(registry: FakeRegistry | None = None) -> AsyncIterator[FakeRegistry]:
    registry = registry or FakeRegistry()
    app = web.Application()
    routes: list[tuple[str, Any]] = [
        ("/token", registry.token),
        ("/storage", registry.storage),
        ("/v2/_catalog", registry.list_repositories),
        ("/v2/team/py/tags/list", registry.list_tags),
        ("/v2/team/py/manifests/{reference}", registry.get_manifest),
        ("/v2/team/py/blobs/{digest}", registry.get_blob),
    ]
    for path, handler in routes:
        app.router.add_get(path, handler)
    runner = web.AppRunner(app)
    await runner.setup()
    socket, port = bind_unused_port()
    await web.SockSite(runner, socket).start()
    registry.url = f"http://127.0.0.1:{port}"
    try:
        yield registry
    finally:
        registry.is_released.set()
        await runner.cleanup()
