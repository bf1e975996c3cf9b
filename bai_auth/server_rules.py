"""Handlers for the Hub's routes that start and stop servers, with bai-hub's additional rules.

A server may be started by its owner or by a service, not by another user. Changes and removals of
one server are serialized, and starts wait for them: otherwise concurrent requests fail with
HTTP 500. The upstream issue jupyterhub/jupyterhub#2510 covers removals only. The handlers
override methods of JupyterHub 6 (tested: 6.1.1); `tests/spawner/test_hub_patches.py` fails when one
of these methods changes.
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

from bai_services.core.sessions.lifecycle import SESSION_ID_OPTION

# Maximum time to wait for a pending start, stop or removal of the same server.
PENDING_TIMEOUT_SECONDS = 20.0
POLL_SECONDS = 0.05

# The name of the owner and the name of the server.
ServerKey = tuple[str, str]


class ServerLocks:
    """Serializes changes and removals of each server; starts wait for them.

    Between reading the record of a server and using or deleting it, the Hub awaits other work. A
    concurrent request for the same server would then fail with an internal error.
    """

    def __init__(self) -> None:
        self.starting: Counter[ServerKey] = Counter()
        self._removals: dict[ServerKey, asyncio.Task[None]] = {}
        # Weak values: a lock is deleted when no task holds it or waits for it.
        self._locks: WeakValueDictionary[ServerKey, asyncio.Lock] = WeakValueDictionary()

    @contextmanager
    def count_start(self, key: ServerKey) -> Iterator[None]:
        """Count a start in ``starting`` while the block runs."""
        self.starting[key] += 1
        try:
            yield
        finally:
            self.starting[key] -= 1
            if not self.starting[key]:
                del self.starting[key]

    @asynccontextmanager
    async def exclusive(self, key: ServerKey) -> AsyncIterator[None]:
        """Hold the server's exclusive lock: other changes, removals and new starts wait."""
        lock = self._locks.setdefault(key, asyncio.Lock())
        async with lock:
            yield

    def begin_removal(self, key: ServerKey, user: User) -> None:
        """Block starts until the server's record is deleted, for at most 20 s."""
        if key not in self._removals:
            task = asyncio.create_task(_wait_until_removed_or_timeout(user, key[1]))
            self._removals[key] = task
            task.add_done_callback(lambda _: self._removals.pop(key, None))

    def abandon_removal(self, key: ServerKey) -> None:
        """Allow starts again, because the removal has failed."""
        if task := self._removals.get(key):
            task.cancel()

    def is_being_removed(self, key: ServerKey) -> bool:
        return key in self._removals

    async def wait_until_free(self, key: ServerKey) -> None:
        """Wait until no change or removal of the server is in progress."""
        while True:
            lock = self._locks.get(key)
            if task := self._removals.get(key):
                await asyncio.wait([task])
                # Let the done callback of the task remove the task from ``_removals``.
                await asyncio.sleep(0)
            elif lock is not None and lock.locked():
                async with lock:
                    pass
            else:
                return


async def _wait_until_removed_or_timeout(user: User, server: str) -> None:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + PENDING_TIMEOUT_SECONDS
    # Poll, because the Hub has no event for the removal.
    while server in user.orm_user.orm_spawners and loop.time() < deadline:  # noqa: ASYNC110
        await asyncio.sleep(POLL_SECONDS)


class OwnerOnlyStartMixin(BaseHandler):
    """Denies starts by users who do not own the server; a start waits for changes and removals."""

    @property
    def server_locks(self) -> ServerLocks:
        locks: ServerLocks = self.settings.setdefault("bai_server_locks", ServerLocks())
        return locks

    def require_owner(self, owner: str) -> None:
        """Raise a 403 if the caller is a user other than the owner; admins are no exception."""
        caller = self.current_user
        if isinstance(caller, User) and caller.name != owner:
            raise web.HTTPError(
                HTTPStatus.FORBIDDEN,
                f"{caller.name} may not create, start or change servers of another user: only the"
                " owner of a server may start it through the Hub",
            )

    async def spawn_single_user(
        self,
        user: User,
        server_name: str = "",
        display_name: str = "",
        options: Any = None,
    ) -> Any:
        key = (user.name, server_name)
        await self.server_locks.wait_until_free(key)
        with self.server_locks.count_start(key):
            spawner = user.get_or_create_spawner(server_name, display_name, replace_failed=True)
            try:
                return await super().spawn_single_user(user, server_name, display_name, options)
            except asyncio.CancelledError:
                task = asyncio.current_task()
                if task is not None and task.cancelling():
                    raise
                # The start was cancelled by a stop of the server, not by a cancellation of this
                # request.
                raise web.HTTPError(
                    HTTPStatus.CONFLICT,
                    f"the start of server {server_name or user.name} was cancelled by a stop;"
                    " start it again if you still need it",
                ) from None
            except RuntimeError as error:
                # The Hub raises RuntimeError if a start or stop of this server is pending.
                if not spawner.pending:
                    raise
                raise web.HTTPError(
                    HTTPStatus.CONFLICT,
                    f"a {spawner.pending} of server {server_name or user.name} is pending; wait"
                    " until it has finished",
                ) from error

    def is_about_to_start(self, user: User, server_name: str) -> bool:
        """Return whether a start is in progress that the Hub has not recorded yet."""
        if not self.server_locks.starting[(user.name, server_name)]:
            return False
        return server_name not in user.orm_spawners or not user.spawners[server_name].active


class ServerHandler(OwnerOnlyStartMixin, UserServerAPIHandler):
    """Creates, starts, changes, stops and removes a server."""

    async def put(self, user_name: str, server_name: str = "") -> None:
        self._require_owner_or_session_id(user_name)
        async with self.server_locks.exclusive((user_name, server_name)):
            await super().put(user_name, server_name)

    async def post(self, user_name: str, server_name: str = "") -> None:
        self._require_owner_or_session_id(user_name)
        key = (user_name, server_name)
        await self.server_locks.wait_until_free(key)
        user = self.find_user(user_name)
        if user is not None and self.is_about_to_start(user, server_name):
            # The Hub also responds with 202 while a start is pending.
            self.set_status(HTTPStatus.ACCEPTED)
            return
        with self.server_locks.count_start(key):
            await super().post(user_name, server_name)

    async def patch(self, user_name: str, server_name: str = "") -> None:
        self.require_owner(user_name)
        if isinstance(self.current_user, orm.Service):
            raise web.HTTPError(
                HTTPStatus.FORBIDDEN, "a service may not change a server: only its owner may"
            )
        async with self.server_locks.exclusive((user_name, server_name)):
            await super().patch(user_name, server_name)

    def _require_owner_or_session_id(self, owner: str) -> None:
        """Raise a 403 if the caller is another user, or a service that sends any user option except
        the session id.
        """
        self.require_owner(owner)
        options = self.get_server_json_body()["user_options"] or {}
        if isinstance(self.current_user, orm.Service) and set(options) - {SESSION_ID_OPTION}:
            raise web.HTTPError(
                HTTPStatus.FORBIDDEN,
                f"a service may send only the user option {SESSION_ID_OPTION}: only the owner of a "
                "server may choose its options",
            )

    @needs_scope("delete:servers")  # type: ignore[untyped-decorator]  # jupyterhub has no types
    async def delete(self, user_name: str, server_name: str = "") -> None:
        async with self.server_locks.exclusive((user_name, server_name)):
            await self._delete(user_name, server_name)

    async def _delete(self, user_name: str, server_name: str) -> None:
        body = self.get_json_body() or {}
        user = self.find_user(user_name)
        if user is None or server_name not in user.orm_spawners:
            await super().delete(user_name, server_name)
            return
        if SESSION_ID_OPTION in body and not self._belongs_to(
            user, server_name, str(body[SESSION_ID_OPTION])
        ):
            # The server belongs to a newer session, or is being started for one.
            self.set_status(HTTPStatus.NO_CONTENT)
            return
        key = (user.name, server_name)
        if self.server_locks.is_being_removed(key):
            self.set_status(HTTPStatus.ACCEPTED)
            return
        if body.get("remove"):
            self._begin_removal(user, server_name)
        try:
            await super().delete(user_name, server_name)
        except BaseException:
            self.server_locks.abandon_removal(key)
            raise

    def _begin_removal(self, user: User, server_name: str) -> None:
        if self.is_about_to_start(user, server_name):
            raise web.HTTPError(
                HTTPStatus.CONFLICT,
                f"server {server_name} is starting; stop it first, or retry once it has started",
            )
        if server_name:
            self.server_locks.begin_removal((user.name, server_name), user)

    async def stop_single_user(self, user: User, server_name: str = "") -> Any:
        """Stop a server, after a pending start or stop of it has finished.

        Succeed if the server is then no longer active. Raise a 409 if that start or stop is still
        pending after 20 s.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + PENDING_TIMEOUT_SECONDS
        while server_name in user.spawners and user.spawners[server_name].pending:
            if loop.time() >= deadline:
                raise web.HTTPError(
                    HTTPStatus.CONFLICT,
                    f"a {user.spawners[server_name].pending} of server {server_name or user.name}"
                    " is still pending; try again later",
                )
            await asyncio.sleep(POLL_SECONDS)
        if server_name not in user.spawners or not user.spawners[server_name].active:
            return None
        return await super().stop_single_user(user, server_name)

    def _belongs_to(self, user: User, server_name: str, session_id: str) -> bool:
        """Return whether the server belongs to this session and not to a newer one."""
        spawner = user.spawners[server_name]
        if self.is_about_to_start(user, server_name):
            return False
        serves = getattr(spawner, "serves", None)
        return serves is None or bool(serves(session_id))
