"""The tornado application of the manager."""

from __future__ import annotations

import asyncio
from functools import cache
from typing import Any

from tornado.web import Application, RequestHandler

from bai_services.manager.manager import Manager
from bai_services.webui.assets import WebUI

from . import manual, openapi, web_pages
from .accounts import cli_login, panel_login, signed_in
from .apps import shares as app_shares
from .base import APIHandler, NotFoundHandler
from .metrics import AccessLog
from .routes import ROUTES
from .running_requests import RunningRequests
from .sessions.page import PAGES

API = "/api/v1"


class OpenAPIHandler(APIHandler):
    async def get(self) -> None:
        # The document is rarely needed and takes long to build, so it is built at the first
        # request, in a thread.
        self.write_json(await asyncio.to_thread(_document, self.settings["prefix"]))


@cache
def _document(prefix: str) -> dict[str, Any]:
    return openapi.document(ROUTES, prefix)


def make_app(manager: Manager, sign_in: Any, **settings: Any) -> Application:
    """Return the application that serves ``manager`` below its base URL.

    HTML pages are only served with the settings ``hub_oauth`` and ``cookie_secret``, because
    browsers sign in through the Hub.
    """
    base = manager.settings.base_url.rstrip("/")
    prefix = base + API
    has_pages = settings.get("hub_oauth") is not None
    pages: list[tuple[Any, ...]] = []
    if has_pages:
        pages = [*PAGES, *cli_login.PAGES, *panel_login.PAGES, *signed_in.PAGES]
        pages += [*app_shares.PAGES, *manual.PAGES]
    web_ui = WebUI.load() if has_pages else None
    # These routes must be last, because their patterns also match the paths of other routes.
    web_ui_pages = web_pages.PAGES if web_ui is not None else []
    paths: dict[type[RequestHandler], str] = {
        handler: openapi.path_of(pattern) for pattern, handler in ROUTES
    }
    return Application(
        [
            *((base + pattern, *handler) for pattern, *handler in pages),
            (prefix + "/openapi.json", OpenAPIHandler),
            *((prefix + pattern, handler) for pattern, handler in ROUTES),
            *((base + pattern, handler) for pattern, handler in web_ui_pages),
        ],
        default_handler_class=NotFoundHandler,
        log_function=AccessLog(manager.metrics, paths),
        manager=manager,
        sign_in=sign_in,
        prefix=prefix,
        routes_of_handlers=paths,
        running_requests=RunningRequests(),
        web_ui=web_ui,
        # The cookie is HttpOnly, because apps of sessions have the same origin as the manager and
        # their scripts could otherwise read the XSRF token. The manager's pages get the token in
        # their HTML.
        xsrf_cookie_kwargs={"httponly": True},
        **settings,
    )
