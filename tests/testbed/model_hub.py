"""A fake Hugging Face Hub with fault injection."""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

COMMIT = "c0ffee" + "0" * 34
TOKEN = "hub-token"


@dataclass
class ModelHub:
    """One model with ``files``; requests for large files are redirected to ``/cdn``.

    ``cut_after``: each entry closes the connection of one response after this number of bytes.
    ``has_ranges``: whether range requests are supported. ``wrong``: files whose content does not
    match their checksum. ``is_slow``: 10 kB are sent per second. ``failures``: statuses of the next
    responses of ``info``. ``redirect``: URL to redirect to, instead of ``/cdn``.
    ``before_content``: called before a file of ``/cdn`` is sent.
    """

    files: dict[str, bytes]
    repository: str = "org/tiny"
    description: Mapping[str, Any] = field(default_factory=dict)
    cut_after: list[int] = field(default_factory=list)
    has_ranges: bool = True
    wrong: set[str] = field(default_factory=set)
    is_slow: bool = False
    failures: list[int] = field(default_factory=list)
    redirect: str | None = None
    before_content: Callable[[], object] | None = None
    need_token: bool = False
    url: str = ""
    requests: Counter[str] = field(default_factory=Counter)
    ranges: list[str] = field(default_factory=list)
    tokens: dict[str, set[str | None]] = field(default_factory=dict)

    def _record(self, request: web.Request, kind: str) -> None:
        self.requests[kind] += 1
        self.tokens.setdefault(kind, set()).add(request.headers.get("Authorization"))

    async def info(self, request: web.Request) -> web.Response:
        self._record(request, "info")
        if self.failures:
            return web.Response(status=self.failures.pop(0))
        if self.need_token and request.headers.get("Authorization") != f"Bearer {TOKEN}":
            return web.Response(status=401)
        if request.match_info["name"] != self.repository:
            return web.Response(status=404)
        siblings = [
            {
                "rfilename": name,
                "size": len(content),
                "lfs": {"sha256": hashlib.sha256(content).hexdigest(), "size": len(content)},
            }
            if len(content) > 1000
            else {"rfilename": name, "size": len(content)}
            for name, content in self.files.items()
        ]
        return web.json_response({"sha": COMMIT, "siblings": siblings, **self.description})

    async def resolve(self, request: web.Request) -> web.StreamResponse:
        self._record(request, "resolve")
        name = request.match_info["path"]
        content = self.files.get(name)
        if content is None:
            return web.Response(status=404)
        if len(content) <= 1000:
            return await self._send(request, name, content)
        headers = {
            "Location": self.redirect or f"/cdn/{name}?signature=secret",
            "X-Linked-Size": str(len(content)),
            "X-Linked-ETag": f'"{hashlib.sha256(content).hexdigest()}"',
        }
        return web.Response(status=302, headers=headers)

    async def cdn(self, request: web.Request) -> web.StreamResponse:
        self._record(request, "cdn")
        if self.before_content is not None:
            self.before_content()
        name = request.match_info["path"]
        return await self._send(request, name, self.files[name])

    async def _send(self, request: web.Request, name: str, content: bytes) -> web.StreamResponse:
        if name in self.wrong:
            content = content[:-1] + b"?"
        start, wanted = 0, request.headers.get("Range")
        answer = web.StreamResponse(headers={"ETag": f'"{len(content)}"'})
        if wanted is not None:
            self.ranges.append(wanted)
            if self.has_ranges:
                start = int(wanted.removeprefix("bytes=").removesuffix("-"))
                answer.set_status(206)
                last = len(content) - 1
                answer.headers["Content-Range"] = f"bytes {start}-{last}/{len(content)}"
        answer.content_length = len(content) - start
        await answer.prepare(request)
        if self.cut_after:
            await answer.write(content[start : start + self.cut_after.pop(0)])
            assert request.transport is not None
            request.transport.close()
            return answer
        while self.is_slow and start < len(content):
            await answer.write(content[start : start + 100])
            start += 100
            await asyncio.sleep(0.01)
        await answer.write(content[start:])
        return answer


@asynccontextmanager
async def serve_model_hub(hub: ModelHub) -> AsyncIterator[ModelHub]:
    app = web.Application()
    app.router.add_get("/api/models/{name:.+}/revision/{revision}", hub.info)
    app.router.add_get("/cdn/{path:.+}", hub.cdn)
    app.router.add_get("/{name:.+}/resolve/{revision}/{path:.+}", hub.resolve)
    runner = web.AppRunner(app, handler_cancellation=True)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    hub.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield hub
    finally:
        await runner.cleanup()


@asynccontextmanager
async def serve_bytes(start: bytes, repeated: bytes = b"") -> AsyncIterator[str]:
    """Yield the URL of a server that responds with ``start``, then with ``repeated`` forever."""

    running: dict[asyncio.StreamWriter, asyncio.Event] = {}

    async def respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        has_ended = running[writer] = asyncio.Event()
        with suppress(OSError, EOFError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(start)
            await writer.drain()
            while repeated:
                writer.write(repeated)
                await writer.drain()
        writer.close()
        has_ended.set()

    server = await asyncio.start_server(respond, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for writer, has_ended in running.items():
            writer.transport.abort()
            await has_ended.wait()


@asynccontextmanager
async def serve_endless_head(is_silent: bool) -> AsyncIterator[tuple[str, asyncio.Event]]:
    """Yield the URL of a server whose response headers never end; its first request sets the event.

    ``is_silent``: the server sends nothing. Otherwise it sends interim responses (100) forever.
    """
    is_requested = asyncio.Event()

    async def respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        is_requested.set()
        with suppress(ConnectionError):
            while not is_silent:
                writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
                await writer.drain()
            await reader.read()
        writer.close()

    server = await asyncio.start_server(respond, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", is_requested
    finally:
        server.close()
