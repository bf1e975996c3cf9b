"""Routes ``shared/APP/`` below a session's address: one app, for the visitors it is shared with.

Visitors are not signed in to the session: all its other addresses stay closed to them, including
the app's own.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qsl, urlencode

from jupyter_server.utils import url_path_join
from jupyter_server_proxy.handlers import LocalProxyHandler, NamedLocalProxyHandler
from tornado.httputil import HTTPServerRequest
from tornado.web import Application, HTTPError

from bai_labext.apps.activity import watched
from bai_labext.apps.apps import Offer
from bai_labext.apps.catalogue import App, AppKind
from bai_labext.apps.running_apps import RunningApps
from bai_labext.apps.shared_app_access import Visit, Visits
from bai_labext.manager_link import ManagerLink
from bai_services.core.apps.shares import WHOLE_SESSION
from bai_services.core.client_address import normal_address
from bai_services.core.errors import BaiError, Unavailable

ENTRY = "bai_entry"
COOKIE = "bai-visit"
# Interval at which the permission of an open websocket is checked again.
RECHECK_SECONDS = 2.5


def serve(web_app: Application, running: RunningApps, link: ManagerLink) -> None:
    """Add the routes of all apps that can be shared; jupyter-server-proxy must be loaded."""
    visits = Visits(link.visit)
    base_url = web_app.settings["base_url"]
    routes: list[tuple[Any, ...]] = []
    for offer in running.offers:
        found = _handler(offer, running)
        if found is None:
            continue
        handler, arguments = found
        pattern = url_path_join(base_url, "shared", offer.app.name, "(.*)")
        routes.append((pattern, shared(handler, offer.app, visits), arguments))
    web_app.add_handlers(".*$", routes)


def _handler(offer: Offer, running: RunningApps) -> tuple[type, dict[str, Any]] | None:
    """Return the handler that serves an app to its owner; None if it cannot be shared."""
    app = offer.app
    if not offer.is_offered or app.name in WHOLE_SESSION:
        return None
    if app.kind is AppKind.PORT:

        class Port(NamedLocalProxyHandler):
            port = offer.port

        return watched(Port, app, running.uses), {}
    proxied = running.proxied(app.name)
    if proxied is None:
        return None
    handler: Any = proxied.handler
    return handler, dict(proxied.arguments)


def client_ip(request: HTTPServerRequest) -> str:
    """Return the client's address: the last one in the header of the proxy in front."""
    forwarded = request.headers.get("X-Forwarded-For", "")
    return normal_address(forwarded.rpartition(",")[2].strip() or request.remote_ip or "")


def without_cookie(header: str) -> str:
    """Return a ``Cookie`` header without our cookie, so that the app never receives a visitor's
    pass.
    """
    parts = [part.strip() for part in header.split(";")]
    return "; ".join(part for part in parts if part.partition("=")[0].strip() != COOKIE)


def shared(handler: type, app: App, visits: Visits) -> type:
    """Return a handler of an app that requires a visitor's pass instead of a sign-in."""
    return type("Shared", (_Visited, handler), {"shared_app": app, "visits": visits})


class _Visited(LocalProxyHandler):
    """Mixin in front of an app's handler, which is a local proxy's, too."""

    shared_app: App
    visits: Visits

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.proxy_base = f"shared/{self.shared_app.name}"
        self._watch: asyncio.Task[None] | None = None

    async def prepare(self, *args: Any, **kwargs: Any) -> None:
        # Not super().prepare(), which requires a sign-in to the session.
        self.current_user = None
        address = client_ip(self.request)
        try:
            if entry := self.get_query_argument(ENTRY, ""):
                await self._enter(address, entry)
                return
            await self.visits.check(self._visit(address))
        except BaiError as error:
            status = 503 if isinstance(error, Unavailable) else 403
            raise HTTPError(status, str(error)) from None
        self.note_use()

    async def open(self, *args: Any, **kwargs: Any) -> None:
        self._watch = asyncio.create_task(self._stay())
        await super().open(*args, **kwargs)

    def on_close(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
        super().on_close()

    def proxy_request_headers(self) -> Any:
        headers = super().proxy_request_headers()
        if rest := without_cookie(headers.get("Cookie", "")):
            headers["Cookie"] = rest
        elif "Cookie" in headers:
            del headers["Cookie"]
        headers.pop("Authorization", None)
        return headers

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        error = (kwargs.get("exc_info") or (None, None, None))[1]
        text = error.log_message if isinstance(error, HTTPError) else ""
        self.set_header("Content-Type", "text/plain; charset=utf-8")
        self.set_header("Cache-Control", "no-store")
        self.finish(text or self._reason)

    async def _enter(self, address: str, entry: str) -> None:
        visit = await self.visits.enter(self.shared_app.name, address, entry)
        path = url_path_join(self.base_url, "shared", self.shared_app.name) + "/"
        self.set_cookie(
            COOKIE,
            visit.text,
            path=path,
            httponly=True,
            samesite="Lax",
            secure=self.request.protocol == "https",
        )
        # Remove the entry from the address, so that neither history nor the app receives it.
        query = [pair for pair in parse_qsl(self.request.query) if pair[0] != ENTRY]
        self.redirect(self.request.path + ("?" + urlencode(query) if query else ""), status=303)

    def _visit(self, address: str) -> Visit:
        cookie: SimpleCookie = SimpleCookie()
        with suppress(CookieError):
            cookie.load(self.request.headers.get("Cookie", ""))
        text = cookie[COOKIE].value if COOKIE in cookie else ""
        return Visit(self.shared_app.name, address, text)

    async def _stay(self) -> None:
        """Close the websocket of a visitor who is no longer allowed."""
        visit = self._visit(client_ip(self.request))
        while True:
            await asyncio.sleep(RECHECK_SECONDS)
            try:
                await self.visits.check(visit)
            except BaiError as error:
                self.close(1008, str(error)[:100])
                return
