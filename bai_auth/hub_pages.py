"""The Hub's pages for servers and users, with the manager's sessions added.

These handlers override routes of JupyterHub 6 (tested: 6.1.1). The setting `extra_handlers` cannot
do that: its routes come after the Hub's own (jupyterhub/jupyterhub#1853, #1854).
`tests/spawner/test_hub_patches.py` fails when an overridden method changes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any
from urllib.parse import urlencode

from jupyterhub import orm
from jupyterhub.apihandlers.users import UserServerAPIHandler, UserTokenListAPIHandler
from jupyterhub.apihandlers.users import default_handlers as API_ROUTES
from jupyterhub.handlers import BaseHandler
from jupyterhub.handlers.base import UserUrlHandler
from jupyterhub.handlers.base import default_handlers as BASE_ROUTES
from jupyterhub.handlers.pages import AdminHandler, HomeHandler, SpawnHandler
from jupyterhub.handlers.pages import default_handlers as PAGE_ROUTES
from jupyterhub.scopes import Scope, needs_scope
from jupyterhub.user import User
from sqlalchemy import func
from tornado import web

from bai_services.core import errors
from bai_services.core.sessions.lifecycle import ENDED, LIVE, Status

from .handlers import Page
from .server_rules import OwnerOnlyStartMixin, ServerHandler
from .token_rules import TokenListHandler

# Maximum page size of the manager's lists.
MAX_SESSIONS = 500
USERS_PER_PAGE = 50
# A short timeout: if the manager does not respond, the page is shown without sessions.
SESSIONS_TIMEOUT_SECONDS = 5.0
NOT_STARTED = (
    Status.SUSPENDED,
    Status.PENDING,
    Status.SCHEDULED,
    Status.PREPARING,
    Status.PREPARED,
)

Session = Mapping[str, Any]


class SessionsPage(Page):
    """A page that shows sessions of the manager."""

    async def sessions(
        self, owners: Sequence[str], statuses: Sequence[Status], servers: Sequence[str] = ()
    ) -> list[Session]:
        """Return the users' sessions that the caller may see, oldest first, at most 500.

        With ``servers``, return only the sessions of these Hub servers. Return an empty list while
        the manager is unavailable.
        """
        if not owners or self.current_user is None:
            return []
        query = {
            "viewer": self.current_user.name,
            "hub_user__in": ",".join(owners),
            "status__in": ",".join(statuses),
            "sort": "created_at",
            "limit": MAX_SESSIONS,
            **({"hub_server__in": ",".join(servers)} if servers else {}),
        }
        try:
            page = await self.authenticator.client.get(
                "/sessions", timeout_seconds=SESSIONS_TIMEOUT_SECONDS, **query
            )
        except errors.BaiError as error:
            self.log.warning("Sessions of %s are not shown: %s", ", ".join(owners), error)
            return []
        sessions: list[Session] = page["items"]
        return sessions

    async def unstarted_sessions(self, owner: str) -> dict[str, Session]:
        """Return a user's sessions that have not started yet, by name of the Hub server."""
        sessions = await self.sessions([owner], NOT_STARTED)
        return {session["hub_server"]: session for session in sessions}


class HomePage(SessionsPage, HomeHandler):
    """The user's servers, and the user's sessions that have not started yet.

    The manager removes the server of an ended session soon after its end. Until then, the page
    shows the status of the session instead of the buttons of the server.
    """

    _unstarted: Mapping[str, Session] = {}
    _ended: Mapping[str, Session] = {}

    async def get(self) -> None:
        user = self.current_user
        if isinstance(user, User):
            self._unstarted = await self.unstarted_sessions(user.name)
            stopped = [one.name for one in user.all_spawners(False) if not one.active]
            if stopped:
                ended = await self.sessions([user.name], sorted(ENDED), servers=stopped)
                self._ended = {session["hub_server"]: session for session in ended}
        if (awaitable := super().get()) is not None:
            await awaitable

    def render_template(self, name: str, sync: bool = False, **ns: Any) -> Any:
        ns.setdefault("unstarted", self._unstarted)
        ns.setdefault("ended", self._ended)
        return super().render_template(name, sync=sync, **ns)


class ServerPage(SessionsPage, UserUrlHandler):
    """The page at the URL of a server while the server is not running.

    If the server's session has not started yet (for example after a preemption) or has ended, the
    page says so, links to the session, and has no start button.
    """

    def render_template(self, name: str, sync: bool = False, **ns: Any) -> Any:
        if name == "not_running.html":
            return self._render_not_running(**ns)
        return super().render_template(name, sync=sync, **ns)

    async def _render_not_running(self, **ns: Any) -> str:
        # The Hub passes an empty ``server_name`` if it has no server of this name, but the manager
        # can have a waiting session for it. Therefore, take the name from the path.
        path = self.path_kwargs.get("user_path") or ""
        server = path.lstrip("/").partition("/")[0]
        owner = ns["user"].name
        waiting = (await self.unstarted_sessions(owner)).get(server)
        ended = None
        if waiting is None and server:
            # A server has several sessions one after the other; the last one is the newest.
            ended = next(reversed(await self.sessions([owner], sorted(ENDED), [server])), None)
        return str(
            await super().render_template("not_running.html", waiting=waiting, ended=ended, **ns)
        )


class SpawnPage(OwnerOnlyStartMixin, SessionsPage, SpawnHandler):
    """The start form, only for the user's own servers.

    Without a query, a script on ``/hub/spawn`` redirects to the launcher of the web UI. The Hub's
    buttons lead to ``/hub/spawn/USER/SERVER``, whose form starts that server.
    """

    _leads_to_launcher = False

    async def get(self, user_name: str | None = None, server_name: str = "") -> None:
        self._leads_to_launcher = user_name is None and not self.request.query
        if user_name is not None:
            self.require_owner(user_name)
        user = self.current_user
        if isinstance(user, User) and not self._is_active(user, server_name):
            session = (await self.unstarted_sessions(user.name)).get(server_name)
            if session is not None:
                # A submitted form would be rejected: the session exists and starts automatically.
                self.redirect(session["page"])
                return
        if (awaitable := super().get(user_name, server_name)) is not None:
            await awaitable

    @web.authenticated
    async def delete(self, user_name: str | None = None, server_name: str = "") -> None:
        """Delete the options of the last start; the form is prefilled with them."""
        user = self.current_user
        if not isinstance(user, User):
            raise web.HTTPError(HTTPStatus.FORBIDDEN, "the start form is only for users")
        self.require_owner(user.name if user_name is None else user_name)
        key = (user.name, server_name)
        async with self.server_locks.exclusive(key):
            if self.server_locks.starting[key] or self._is_active(user, server_name):
                raise web.HTTPError(
                    HTTPStatus.CONFLICT,
                    f"server {server_name or user.name} is starting or running and needs its"
                    " options; stop it first",
                )
            if server_name in user.orm_spawners:
                user.spawners[server_name].forget_options()
        self.set_status(HTTPStatus.NO_CONTENT)

    def render_template(self, name: str, sync: bool = False, **ns: Any) -> Any:
        ns.setdefault("leads_to_launcher", self._leads_to_launcher)
        return super().render_template(name, sync=sync, **ns)

    def _is_active(self, user: User, server_name: str) -> bool:
        return server_name in user.orm_spawners and bool(user.spawners[server_name].active)

    async def post(
        self, user_name: str | None = None, server_name: str = "", display_name: str = ""
    ) -> None:
        if user_name is not None:
            self.require_owner(user_name)
        user = self.current_user
        if not isinstance(user, User):
            if (awaitable := super().post(user_name, server_name, display_name)) is not None:
                await awaitable
            return
        key = (user.name, server_name)
        await self.server_locks.wait_until_free(key)
        if self.is_about_to_start(user, server_name):
            raise web.HTTPError(
                HTTPStatus.CONFLICT,
                f"server {server_name or user.name} is already starting; see the Hub's home page",
            )
        with self.server_locks.count_start(key):
            if (awaitable := super().post(user_name, server_name, display_name)) is not None:
                await awaitable


class AdminPage(SessionsPage, AdminHandler):
    """The users that the caller may list, with their live sessions.

    This page replaces the Hub's own, whose buttons add and change users, start servers of other
    users and shut the Hub down. None of these actions is allowed. A session is controlled on its
    own page.
    """

    @web.authenticated
    @needs_scope("admin-ui")  # type: ignore[untyped-decorator]  # jupyterhub has no types
    async def get(self) -> None:
        part = self.get_query_argument("name", "")
        offset = self._offset()
        query = self._visible_users()
        if part:
            query = query.filter(orm.User.name.contains(part.lower(), autoescape=True))
        total = query.with_entities(func.count(orm.User.id)).scalar() or 0
        users = query.order_by(orm.User.name).offset(offset).limit(USERS_PER_PAGE).all()
        sessions: dict[str, list[Session]] = {user.name: [] for user in users}
        for session in await self.sessions(list(sessions), sorted(LIVE)):
            sessions[session["hub_user"]].append(session)
        page = self.render_template(
            "admin.html",
            users=users,
            sessions=sessions,
            part=part,
            first=offset + 1,
            last=offset + len(users),
            total=total,
            earlier=self._link(part, offset - USERS_PER_PAGE) if offset else "",
            later=self._link(part, offset + USERS_PER_PAGE) if offset + len(users) < total else "",
        )
        self.finish(await page)

    def _offset(self) -> int:
        text = self.get_query_argument("offset", "0")
        if not (text.isascii() and text.isdigit() and len(text) < 10):
            raise web.HTTPError(
                HTTPStatus.BAD_REQUEST, "offset must be a whole number from 0 to 999999999"
            )
        return int(text)

    def _link(self, part: str, offset: int) -> str:
        return "?" + urlencode({"name": part, "offset": max(0, offset)})

    def _visible_users(self) -> Any:
        """Return a database query for the users that the caller may list."""
        query = self.db.query(orm.User)
        limits = self.parsed_scopes.get("list:users", {})
        if limits == Scope.ALL:
            return query
        return query.filter(
            orm.User.groups.any(orm.Group.name.in_(limits.get("group", ())))
            | orm.User.name.in_(limits.get("user", ()))
        )


def _replacing_routes(
    original: type[BaseHandler], replacement: type[BaseHandler]
) -> list[tuple[str, type[BaseHandler]]]:
    """Return a route to ``replacement`` for each route of the Hub's handler ``original``.

    The Hub uses the first route that matches, and ours come first.
    """
    hub_routes = (*PAGE_ROUTES, *BASE_ROUTES, *API_ROUTES)
    routes = [(path, replacement) for path, handler, *_ in hub_routes if handler is original]
    if not routes:
        raise RuntimeError(f"this JupyterHub has no route for {original.__name__}")
    return routes


HANDLERS: list[tuple[str, type[BaseHandler]]] = [
    *_replacing_routes(HomeHandler, HomePage),
    *_replacing_routes(SpawnHandler, SpawnPage),
    *_replacing_routes(AdminHandler, AdminPage),
    *_replacing_routes(UserUrlHandler, ServerPage),
    *_replacing_routes(UserServerAPIHandler, ServerHandler),
    *_replacing_routes(UserTokenListAPIHandler, TokenListHandler),
]
