"""The Hub's pages about servers and users, extended by the manager's sessions.

They override routes of JupyterHub 6 (tested: 6.1.1), whose own `extra_handlers` come after its
routes and cannot replace them (jupyterhub/jupyterhub#1853, #1854).
`tests/spawner/test_hub_patches.py` fails when an overridden method changes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any
from urllib.parse import urlencode

from jupyterhub import orm
from jupyterhub.apihandlers.users import UserServerAPIHandler
from jupyterhub.apihandlers.users import default_handlers as API_ROUTES
from jupyterhub.handlers import BaseHandler
from jupyterhub.handlers.pages import AdminHandler, HomeHandler, SpawnHandler
from jupyterhub.handlers.pages import default_handlers as PAGE_ROUTES
from jupyterhub.scopes import Scope, needs_scope
from jupyterhub.user import User
from sqlalchemy import func
from tornado import web

from bai_services.core import errors
from bai_services.core.sessions.lifecycle import LIVE, Status

from .handlers import Page
from .server_rules import ServerHandler, StartsOwnServers

# Maximum page size of the manager's lists.
MAX_SESSIONS = 500
USERS_PER_PAGE = 50
# Short, because the manager is local and a page without its sessions is better than no page.
SESSIONS_SECONDS = 5.0
WAITING = (Status.PENDING, Status.SCHEDULED, Status.PREPARING, Status.PREPARED)

Session = Mapping[str, Any]


class SessionsPage(Page):
    """A page that shows sessions of the manager."""

    async def sessions(self, owners: Sequence[str], statuses: Sequence[Status]) -> list[Session]:
        """Return sessions of these users that the caller may see, oldest first.

        Empty while the manager is unavailable.
        """
        if not owners or self.current_user is None:
            return []
        query = {
            "viewer": self.current_user.name,
            "hub_user__in": ",".join(owners),
            "status__in": ",".join(statuses),
            "sort": "created_at",
            "limit": MAX_SESSIONS,
        }
        try:
            page = await self.authenticator.client.get(
                "/sessions", timeout_seconds=SESSIONS_SECONDS, **query
            )
        except errors.BaiError as error:
            self.log.warning("Sessions of %s are not shown: %s", ", ".join(owners), error)
            return []
        found: list[Session] = page["items"]
        return found

    async def waiting(self, owner: str) -> dict[str, Session]:
        """Return a user's sessions that have not started yet, by Hub server."""
        return {found["hub_server"]: found for found in await self.sessions([owner], WAITING)}


class HomePage(SessionsPage, HomeHandler):
    """The user's servers; a server whose session waits is shown as waiting."""

    waiting_sessions: Mapping[str, Session] = {}

    async def get(self) -> None:
        if self.current_user is not None:
            self.waiting_sessions = await self.waiting(self.current_user.name)
        if (answer := super().get()) is not None:
            await answer

    def render_template(self, name: str, sync: bool = False, **ns: Any) -> Any:
        ns.setdefault("waiting", self.waiting_sessions)
        return super().render_template(name, sync=sync, **ns)


class SpawnPage(StartsOwnServers, SessionsPage, SpawnHandler):
    """The start form, only for the user's own servers."""

    async def get(self, user_name: str | None = None, server_name: str = "") -> None:
        if user_name is not None:
            self.require_owner(user_name)
        user = self.current_user
        if isinstance(user, User) and not self._is_active(user, server_name):
            session = (await self.waiting(user.name)).get(server_name)
            if session is not None:
                # The form would be refused: the session exists and starts by itself.
                self.redirect(session["page"])
                return
        if (answer := super().get(user_name, server_name)) is not None:
            await answer

    @web.authenticated
    async def delete(self, user_name: str | None = None, server_name: str = "") -> None:
        """Delete the options of the last start, which the form would offer again."""
        user = self.current_user
        if not isinstance(user, User):
            raise web.HTTPError(HTTPStatus.FORBIDDEN, "only users have a start form")
        self.require_owner(user.name if user_name is None else user_name)
        async with self.turns.alone((user.name, server_name)):
            if self.turns.starting[(user.name, server_name)] or self._is_active(user, server_name):
                raise web.HTTPError(
                    HTTPStatus.CONFLICT,
                    f"the server {server_name or user.name} is in use; its options are needed"
                    " until it stops",
                )
            if server_name in user.orm_spawners:
                user.spawners[server_name].forget_options()
        self.set_status(HTTPStatus.NO_CONTENT)

    def _is_active(self, user: User, server_name: str) -> bool:
        return server_name in user.orm_spawners and bool(user.spawners[server_name].active)

    async def post(
        self, user_name: str | None = None, server_name: str = "", display_name: str = ""
    ) -> None:
        if user_name is not None:
            self.require_owner(user_name)
        user = self.current_user
        if not isinstance(user, User):
            if (answer := super().post(user_name, server_name, display_name)) is not None:
                await answer
            return
        key = (user.name, server_name)
        await self.turns.free(key)
        if self.is_about_to_start(user, server_name):
            raise web.HTTPError(
                HTTPStatus.CONFLICT,
                f"the server {server_name or user.name} is being started already; see the Hub's"
                " home page",
            )
        with self.turns.start(key):
            if (answer := super().post(user_name, server_name, display_name)) is not None:
                await answer


class AdminPage(SessionsPage, AdminHandler):
    """Users of the caller's domain, or all users, with their live sessions.

    It replaces the Hub's own page, whose buttons add and change users, start servers of others and
    shut the Hub down: none of that is allowed. Actions on a session are on the session's page.
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
            raise web.HTTPError(HTTPStatus.BAD_REQUEST, "offset must be a whole number from 0")
        return int(text)

    def _link(self, part: str, offset: int) -> str:
        return "?" + urlencode({"name": part, "offset": max(0, offset)})

    def _visible_users(self) -> Any:
        """Return the users that the caller's scopes let them list."""
        query = self.db.query(orm.User)
        limits = self.parsed_scopes.get("list:users", {})
        if limits == Scope.ALL:
            return query
        return query.filter(
            orm.User.groups.any(orm.Group.name.in_(limits.get("group", ())))
            | orm.User.name.in_(limits.get("user", ()))
        )


def _replacing_routes(
    stock: type[BaseHandler], ours: type[BaseHandler]
) -> list[tuple[str, type[BaseHandler]]]:
    """Return our handler for every route of the Hub's own one; the first match of a path wins."""
    found = [(path, ours) for path, cls, *_ in (*PAGE_ROUTES, *API_ROUTES) if cls is stock]
    if not found:
        raise RuntimeError(f"this JupyterHub has no route for {stock.__name__}")
    return found


HANDLERS: list[tuple[str, type[BaseHandler]]] = [
    *_replacing_routes(HomeHandler, HomePage),
    *_replacing_routes(SpawnHandler, SpawnPage),
    *_replacing_routes(AdminHandler, AdminPage),
    *_replacing_routes(UserServerAPIHandler, ServerHandler),
]
