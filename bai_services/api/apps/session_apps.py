"""`/sessions/{key}/apps`: the apps that a session offers."""

from __future__ import annotations

from collections.abc import Sequence

from bai_services.core.apps import catalogue

from ..base import APIHandler, operation
from ..fields import ResponseModel


class SessionApp(ResponseModel):
    """An app of a running session, at ``path`` below the session's ``url``.

    ``kind``: builtin (part of Jupyter), process (started when it is opened), port (a program that
    the user starts in the session), tcp (reached with the command line; ``path`` is empty).
    ``is_shareable``: the app can be shared, because it does not give access to the whole session.
    ``port``: the port on which the app listens in the session, or null if the session chooses it.
    """

    name: str
    title: str
    category: str
    kind: catalogue.AppKind
    path: str
    is_shareable: bool
    port: int | None


class SessionAppList(ResponseModel):
    items: list[SessionApp]


class SessionAppsHandler(APIHandler):
    @operation("List the apps that a session offers", tag="sessions", returns=SessionAppList)
    async def get(self, key: str) -> dict[str, Sequence[catalogue.SessionApp]]:
        return {"items": await self.manager.session_apps.of(self.caller, key)}


ROUTES = [(r"/sessions/(?P<key>[^/]+)/apps", SessionAppsHandler)]
