"""A fake Hub: a server with the routes of the Hub's REST API that the manager calls."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tornado.httpserver import HTTPServer
from tornado.testing import bind_unused_port
from tornado.web import Application, RequestHandler

from bai_services.manager.manager import Manager

from .manager import MovableClock, manager_on

Key = tuple[str, str]


@dataclass
class FakeHub:
    """The state of a fake Hub.

    ``start_statuses`` are the HTTP statuses of the next start requests; later requests get 201.
    """

    url: str = ""
    users: set[str] = field(default_factory=set)
    servers: dict[Key, dict[str, Any]] = field(default_factory=dict)
    start_statuses: list[int] = field(default_factory=list)
    start_requests: list[Key] = field(default_factory=list)
    # The token that came with each start request.
    start_tokens: list[str] = field(default_factory=list)
    deleted_servers: list[Key] = field(default_factory=list)
    # For each token, the Hub's model of its user, with ``kind`` and ``scopes``.
    tokens: dict[str, dict[str, Any]] = field(default_factory=dict)
    # Called after a token was created, before the response.
    token_created: Callable[[], Awaitable[object]] | None = None

    def add(self, user: str, server: str, options: dict[str, Any], **facts: Any) -> dict[str, Any]:
        self.users.add(user)
        model = {
            "name": server,
            "ready": False,
            "pending": None,
            "user_options": options,
            **facts,
        }
        return self.servers.setdefault((user, server), model)

    def mark_ready(self, key: Key) -> None:
        self.servers[key].update(ready=True, pending=None)


class _Handler(RequestHandler):
    @property
    def hub(self) -> FakeHub:
        hub: FakeHub = self.settings["hub"]
        return hub

    def answer(self, status: int, content: Any = None) -> None:
        self.set_status(status)
        if content is not None:
            self.finish(json.dumps(content))

    def servers_of(self, user: str) -> dict[str, Any]:
        return {key[1]: model for key, model in self.hub.servers.items() if key[0] == user}


class _CurrentUser(_Handler):
    def get(self) -> None:
        token = self.request.headers["Authorization"].rpartition(" ")[2]
        model = self.hub.tokens.get(token)
        self.answer(403 if model is None else 200, model or {"message": "no such token"})


class _User(_Handler):
    def get(self, user: str) -> None:
        if user not in self.hub.users:
            return self.answer(404, {"message": "no such user"})
        return self.answer(200, {"name": user, "servers": self.servers_of(user)})

    def post(self, user: str) -> None:
        is_known = user in self.hub.users
        self.hub.users.add(user)
        self.answer(409 if is_known else 201, {"message": "exists"})


class _Tokens(_Handler):
    def get(self, user: str) -> None:
        tokens = [t for t in self.hub.tokens.values() if t["name"] == user]
        items = [{"id": t["token_id"], "session_id": None, "scopes": t["scopes"]} for t in tokens]
        self.answer(200, {"api_tokens": items})

    async def post(self, user: str) -> None:
        key = f"t{len(self.hub.tokens)}"
        model = {"kind": "user", "name": user, "token_id": key, "scopes": []}
        self.hub.tokens[f"value-of-{key}"] = model
        if self.hub.token_created is not None:
            await self.hub.token_created()
        self.answer(201, {"id": key, "token": f"value-of-{key}"})

    def delete(self, user: str, key: str) -> None:
        values = [
            v for v, t in self.hub.tokens.items() if (t["name"], t["token_id"]) == (user, key)
        ]
        for value in values:
            del self.hub.tokens[value]
        self.answer(204 if values else 404)


class _Users(_Handler):
    def get(self) -> None:
        items = []
        for user in sorted(self.hub.users):
            servers = {n: m for n, m in self.servers_of(user).items() if m["ready"] or m["pending"]}
            items.append({"name": user, "servers": servers})
        self.answer(200, {"items": items, "_pagination": {"next": None}})


class _Server(_Handler):
    def _key(self, user: str, server: str | None) -> Key:
        return user, server or ""

    def get(self, user: str, server: str | None = None) -> None:
        model = self.hub.servers.get(self._key(user, server))
        if model is None:
            return self.answer(404, {"message": "no such server"})
        return self.answer(200, model)

    def put(self, user: str, server: str) -> None:
        key = self._key(user, server)
        if user not in self.hub.users:
            return self.answer(404, {"message": "no such user"})
        if key in self.hub.servers:
            return self.answer(409, {"message": "exists"})
        body = json.loads(self.request.body)
        self.hub.add(*key, body["user_options"])
        return self.answer(201)

    def post(self, user: str, server: str | None = None) -> None:
        key = self._key(user, server)
        if user not in self.hub.users:
            return self.answer(404, {"message": "no such user"})
        self.hub.start_requests.append(key)
        self.hub.start_tokens.append(self.request.headers["Authorization"].rpartition(" ")[2])
        status = self.hub.start_statuses.pop(0) if self.hub.start_statuses else 201
        if status == 429:
            self.set_header("Retry-After", "0.05")
        if status >= 400:
            return self.answer(status, {"message": f"error set by the test: {status}"})
        body = json.loads(self.request.body or "{}")
        model = self.hub.add(*key, {})
        model.update(user_options=body.get("user_options") or {}, pending="spawn")
        if status == 201:
            self.hub.mark_ready(key)
        return self.answer(status)

    def delete(self, user: str, server: str | None = None) -> None:
        key = self._key(user, server)
        if self.hub.servers.pop(key, None) is None:
            return self.answer(404, {"message": "no such server"})
        self.hub.deleted_servers.append(key)
        return self.answer(204)


@asynccontextmanager
async def serve_fake_hub() -> AsyncIterator[FakeHub]:
    """Serve a fake Hub's API on a free port, in the running event loop."""
    hub = FakeHub()
    app = Application(
        [
            (r"/hub/api/user", _CurrentUser),
            (r"/hub/api/users", _Users),
            (r"/hub/api/users/([^/]+)", _User),
            (r"/hub/api/users/([^/]+)/tokens", _Tokens),
            (r"/hub/api/users/([^/]+)/tokens/([^/]+)", _Tokens),
            (r"/hub/api/users/([^/]+)/server", _Server),
            (r"/hub/api/users/([^/]+)/servers/([^/]+)", _Server),
        ],
        hub=hub,
        log_function=lambda handler: None,
    )
    server = HTTPServer(app)
    socket, port = bind_unused_port()
    server.add_socket(socket)
    hub.url = f"http://127.0.0.1:{port}/hub/api"
    try:
        yield hub
    finally:
        server.stop()
        await server.close_all_connections()


@asynccontextmanager
async def manager_with_hub(
    demo_database_url: str, home: Path, clock: MovableClock, **others: Any
) -> AsyncIterator[tuple[FakeHub, Manager]]:
    """Yield a fake Hub, and a manager that has the demo data and calls the fake Hub.

    ``others``: further settings of the manager.
    """
    async with serve_fake_hub() as hub:
        options = {"hub_api_url": hub.url, "hub_api_token": "t", "is_migrated": True, **others}
        async with manager_on(demo_database_url, home, clock, **options) as manager:
            yield hub, manager
