"""The Hub's routes that start and stop servers, under bai-hub's rules."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any

from jupyterhub import orm
from jupyterhub.apihandlers.users import UserServerAPIHandler
from jupyterhub.handlers import BaseHandler
from jupyterhub.scopes import needs_scope
from jupyterhub.user import User
from tornado import web

from bai_services.core.session import HUB_OPTION

# A stop is over before that, or has failed; then the Hub's own answer is as good.
REMOVAL_SECONDS = 20.0
REMOVAL_STEP_SECONDS = 0.05

Key = tuple[str, str]


class Turns:
    """Starts and removals in progress, by user and server.

    The Hub awaits other things between the look at a server's record and its use or deletion: a
    removal in between makes a start fail with an internal error.
    """

    def __init__(self) -> None:
        self.starting: Counter[Key] = Counter()
        self._removals: dict[Key, asyncio.Task[None]] = {}

    @contextmanager
    def start(self, key: Key) -> Iterator[None]:
        self.starting[key] += 1
        try:
            yield
        finally:
            self.starting[key] -= 1
            if not self.starting[key]:
                del self.starting[key]

    def begin_removal(self, key: Key, user: User) -> None:
        """Let starts wait until the server's record is gone, or its stop has failed."""
        if key not in self._removals:
            task = asyncio.create_task(_until_removed(user, key[1]))
            self._removals[key] = task
            task.add_done_callback(lambda _: self._removals.pop(key, None))

    def abandon_removal(self, key: Key) -> None:
        if task := self._removals.get(key):
            task.cancel()

    async def removed(self, key: Key) -> None:
        """Return when no removal of the server is in progress."""
        if task := self._removals.get(key):
            await asyncio.wait([task])


async def _until_removed(user: User, server: str) -> None:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + REMOVAL_SECONDS
    # The Hub has no event for it.
    while server in user.orm_user.orm_spawners and loop.time() < deadline:  # noqa: ASYNC110
        await asyncio.sleep(REMOVAL_STEP_SECONDS)


class StartsOwnServers(BaseHandler):
    """Only the owner of a server starts it; a start waits for a removal of the same server."""

    @property
    def turns(self) -> Turns:
        found: Turns = self.settings.setdefault("bai_turns", Turns())
        return found

    def require_owner(self, owner: str) -> None:
        """Raise a 403 where a user asks for a server of another user, whatever their role."""
        caller = self.current_user
        if isinstance(caller, User) and caller.name != owner:
            raise web.HTTPError(
                HTTPStatus.FORBIDDEN,
                f"{caller.name} may not create, start or change servers of another user: only its"
                " owner starts a session through the Hub",
            )

    async def spawn_single_user(
        self,
        user: User,
        server_name: str = "",
        display_name: str = "",
        options: Any = None,
    ) -> Any:
        key = (user.name, server_name)
        await self.turns.removed(key)
        with self.turns.start(key):
            user.get_or_create_spawner(server_name, display_name, replace_failed=True)
            return await super().spawn_single_user(user, server_name, display_name, options)


class ServerHandler(StartsOwnServers, UserServerAPIHandler):
    """Create, start, change and remove a server."""

    async def put(self, user_name: str, server_name: str = "") -> None:
        self._check(user_name)
        await self.turns.removed((user_name, server_name))
        await super().put(user_name, server_name)

    async def post(self, user_name: str, server_name: str = "") -> None:
        self._check(user_name)
        await self.turns.removed((user_name, server_name))
        await super().post(user_name, server_name)

    async def patch(self, user_name: str, server_name: str = "") -> None:
        self.require_owner(user_name)
        if isinstance(self.current_user, orm.Service):
            raise web.HTTPError(
                HTTPStatus.FORBIDDEN, "a service may not change servers: only their owner may"
            )
        await super().patch(user_name, server_name)

    def _check(self, owner: str) -> None:
        """Raise a 403 unless the owner asks, or a service with the id of a session alone."""
        self.require_owner(owner)
        options = self.get_server_json_body()["user_options"] or {}
        if isinstance(self.current_user, orm.Service) and set(options) - {HUB_OPTION}:
            raise web.HTTPError(
                HTTPStatus.FORBIDDEN,
                f"a service may send no user option but {HUB_OPTION}: only the owner of a server"
                " chooses its options",
            )

    @needs_scope("delete:servers")  # type: ignore[untyped-decorator]  # jupyterhub has no types
    async def delete(self, user_name: str, server_name: str = "") -> None:
        body = self.get_json_body() or {}
        user = self.find_user(user_name)
        if user is None or server_name not in user.orm_spawners:
            await super().delete(user_name, server_name)
            return
        if HUB_OPTION in body and not self._serves(user, server_name, str(body[HUB_OPTION])):
            # A newer session has the server, or is about to have it.
            self.set_status(HTTPStatus.NO_CONTENT)
            return
        if body.get("remove"):
            self._begin_removal(user, server_name)
        try:
            await super().delete(user_name, server_name)
        except BaseException:
            self.turns.abandon_removal((user.name, server_name))
            raise

    def _begin_removal(self, user: User, server_name: str) -> None:
        key = (user.name, server_name)
        if self.turns.starting[key] and not user.spawners[server_name].active:
            raise web.HTTPError(
                HTTPStatus.CONFLICT,
                f"the server {server_name} is just being started; stop it first, or try again",
            )
        if server_name:
            self.turns.begin_removal(key, user)

    def _serves(self, user: User, server_name: str, session_id: str) -> bool:
        """Return whether the server is that session's, and not a later one's."""
        spawner = user.spawners[server_name]
        if self.turns.starting[(user.name, server_name)] and not spawner.active:
            return False
        ask = getattr(spawner, "serves", None)
        return ask is None or bool(ask(session_id))
