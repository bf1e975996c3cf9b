"""The Hub's routes that start and stop servers, with bai-hub's additional rules.

They override methods of JupyterHub 6 (tested: 6.1.1). That starts, changes and removals of one
server at the same time end in an internal error: no upstream issue known (related, about removals:
jupyterhub/jupyterhub#2510). `tests/spawner/test_hub_patches.py` fails when a method changes.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from http import HTTPStatus
from typing import Any
from weakref import WeakValueDictionary

from jupyterhub import orm
from jupyterhub.apihandlers.users import UserServerAPIHandler
from jupyterhub.handlers import BaseHandler
from jupyterhub.scopes import needs_scope
from jupyterhub.user import User
from tornado import web

from bai_services.core.sessions.lifecycle import HUB_OPTION

# A stop finishes or fails within this time; afterwards the Hub's own response is correct.
REMOVAL_SECONDS = 20.0
REMOVAL_STEP_SECONDS = 0.05

Key = tuple[str, str]


class Turns:
    """Starts, changes and removals in progress, by user and server.

    The Hub awaits between reading a server's record and using or deleting it: a concurrent request
    for the same server would make it fail with an internal error.
    """

    def __init__(self) -> None:
        self.starting: Counter[Key] = Counter()
        self._removals: dict[Key, asyncio.Task[None]] = {}
        # Weak values: a lock lives as long as a task holds it or waits for it.
        self._locks: WeakValueDictionary[Key, asyncio.Lock] = WeakValueDictionary()

    @contextmanager
    def start(self, key: Key) -> Iterator[None]:
        self.starting[key] += 1
        try:
            yield
        finally:
            self.starting[key] -= 1
            if not self.starting[key]:
                del self.starting[key]

    @asynccontextmanager
    async def alone(self, key: Key) -> AsyncIterator[None]:
        """Exclude other changes and removals of the server, and new starts."""
        lock = self._locks.setdefault(key, asyncio.Lock())
        async with lock:
            yield

    def begin_removal(self, key: Key, user: User) -> None:
        """Block starts until the server's record is deleted, or its stop has failed."""
        if key not in self._removals:
            task = asyncio.create_task(_until_removed(user, key[1]))
            self._removals[key] = task
            task.add_done_callback(lambda _: self._removals.pop(key, None))

    def abandon_removal(self, key: Key) -> None:
        if task := self._removals.get(key):
            task.cancel()

    def is_removed(self, key: Key) -> bool:
        """Return whether a removal of the server is in progress."""
        return key in self._removals

    async def free(self, key: Key) -> None:
        """Return when no change or removal of the server is in progress."""
        while True:
            lock = self._locks.get(key)
            if task := self._removals.get(key):
                await asyncio.wait([task])
                # The task's own callback removes it from the list, possibly after this point.
                await asyncio.sleep(0)
            elif lock is not None and lock.locked():
                async with lock:
                    pass
            else:
                return


async def _until_removed(user: User, server: str) -> None:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + REMOVAL_SECONDS
    # The Hub has no event for it, so poll.
    while server in user.orm_user.orm_spawners and loop.time() < deadline:  # noqa: ASYNC110
        await asyncio.sleep(REMOVAL_STEP_SECONDS)


class StartsOwnServers(BaseHandler):
    """Only the owner of a server may start it; a start waits for a removal of the same server."""

    @property
    def turns(self) -> Turns:
        found: Turns = self.settings.setdefault("bai_turns", Turns())
        return found

    def require_owner(self, owner: str) -> None:
        """Raise a 403 if a user requests another user's server, whatever their role."""
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
        await self.turns.free(key)
        with self.turns.start(key):
            spawner = user.get_or_create_spawner(server_name, display_name, replace_failed=True)
            try:
                return await super().spawn_single_user(user, server_name, display_name, options)
            except asyncio.CancelledError:
                task = asyncio.current_task()
                if task is not None and task.cancelling():
                    raise
                # The stop cancelled the start, not this request.
                raise web.HTTPError(
                    HTTPStatus.CONFLICT,
                    f"the start of the server {server_name or user.name} was stopped; start it"
                    " again if it is still wanted",
                ) from None
            except RuntimeError as error:
                # The same error as the Hub's, if another start came first.
                if not spawner.pending:
                    raise
                raise web.HTTPError(
                    HTTPStatus.CONFLICT,
                    f"the server {server_name or user.name} is in its {spawner.pending} already;"
                    " wait until that is over",
                ) from error

    def is_about_to_start(self, user: User, server_name: str) -> bool:
        """Return whether a start is in progress that the Hub does not show yet."""
        if not self.turns.starting[(user.name, server_name)]:
            return False
        return server_name not in user.orm_spawners or not user.spawners[server_name].active


class ServerHandler(StartsOwnServers, UserServerAPIHandler):
    """Create, start, change and remove a server."""

    async def put(self, user_name: str, server_name: str = "") -> None:
        self._check(user_name)
        async with self.turns.alone((user_name, server_name)):
            await super().put(user_name, server_name)

    async def post(self, user_name: str, server_name: str = "") -> None:
        self._check(user_name)
        key = (user_name, server_name)
        await self.turns.free(key)
        user = self.find_user(user_name)
        if user is not None and self.is_about_to_start(user, server_name):
            # The same response as the Hub's when it sees the start.
            self.set_status(HTTPStatus.ACCEPTED)
            return
        with self.turns.start(key):
            await super().post(user_name, server_name)

    async def patch(self, user_name: str, server_name: str = "") -> None:
        self.require_owner(user_name)
        if isinstance(self.current_user, orm.Service):
            raise web.HTTPError(
                HTTPStatus.FORBIDDEN, "a service may not change servers: only their owner may"
            )
        async with self.turns.alone((user_name, server_name)):
            await super().patch(user_name, server_name)

    def _check(self, owner: str) -> None:
        """Raise a 403 unless the caller is the owner, or a service that sends only the id of a
        session.
        """
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
        async with self.turns.alone((user_name, server_name)):
            await self._delete(user_name, server_name)

    async def _delete(self, user_name: str, server_name: str) -> None:
        body = self.get_json_body() or {}
        user = self.find_user(user_name)
        if user is None or server_name not in user.orm_spawners:
            await super().delete(user_name, server_name)
            return
        if HUB_OPTION in body and not self._serves(user, server_name, str(body[HUB_OPTION])):
            # A newer session has the server, or is about to get it.
            self.set_status(HTTPStatus.NO_CONTENT)
            return
        key = (user.name, server_name)
        if self.turns.is_removed(key):
            self.set_status(HTTPStatus.ACCEPTED)
            return
        if body.get("remove"):
            self._begin_removal(user, server_name)
        try:
            await super().delete(user_name, server_name)
        except BaseException:
            self.turns.abandon_removal(key)
            raise

    def _begin_removal(self, user: User, server_name: str) -> None:
        if self.is_about_to_start(user, server_name):
            raise web.HTTPError(
                HTTPStatus.CONFLICT,
                f"the server {server_name} is just being started; stop it first, or try again",
            )
        if server_name:
            self.turns.begin_removal((user.name, server_name), user)

    async def stop_single_user(self, user: User, server_name: str = "") -> Any:
        """Stop a server; a cancelled start that has already stopped it counts as success."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + REMOVAL_SECONDS
        while server_name in user.spawners and user.spawners[server_name].pending:
            if loop.time() >= deadline:
                raise web.HTTPError(
                    HTTPStatus.CONFLICT,
                    f"the server {server_name or user.name} is still in its"
                    f" {user.spawners[server_name].pending}; try again",
                )
            await asyncio.sleep(REMOVAL_STEP_SECONDS)
        if server_name not in user.spawners or not user.spawners[server_name].active:
            return None
        return await super().stop_single_user(user, server_name)

    def _serves(self, user: User, server_name: str, session_id: str) -> bool:
        """Return whether the server belongs to that session, and not to a later one."""
        spawner = user.spawners[server_name]
        if self.is_about_to_start(user, server_name):
            return False
        ask = getattr(spawner, "serves", None)
        return ask is None or bool(ask(session_id))
