"""Routes ``shared/APP/`` below a session's URL, for the users that an app is shared with.

These visitors are not signed in to the session and cannot use its other routes, not even the route
that the owner uses for the same app.
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

from bai_labext.apps.activity import activity_recording_handler
from bai_labext.apps.apps import Offer
from bai_labext.apps.catalogue import App
from bai_labext.apps.running_apps import RunningApps
from bai_labext.apps.shared_app_access import Visit, Visits
from bai_labext.manager_link import ManagerLink
from bai_services.core.apps.catalogue import AppKind
from bai_services.core.apps.shares import WHOLE_SESSION
from bai_services.core.errors import BaiError, Unavailable
from bai_services.core.ip_addresses import normal_address

ENTRY = "bai_entry"
COOKIE = "bai-visit"
# Interval at which the permission of a visitor with an open websocket is checked again.
RECHECK_INTERVAL_SECONDS = 2.5


def serve(web_app: Application, running: RunningApps, link: ManagerLink) -> None:
    """Add the routes of all apps that can be shared; jupyter-server-proxy must be loaded."""
    visits = Visits(link.visit)
    base_url = web_app.settings["base_url"]
    routes: list[tuple[Any, ...]] = []
    for offer in running.offers:
        owner_route = _owner_handler(offer, running)
        if owner_route is None:
            continue
        handler, arguments = owner_route
        pattern = url_path_join(base_url, "shared", offer.app.name, "(.*)")
        routes.append((pattern, shared_handler(handler, offer.app, visits), arguments))
    web_app.add_handlers(".*$", routes)


def _owner_handler(offer: Offer, running: RunningApps) -> tuple[type, dict[str, Any]] | None:
    """Return the handler that serves an app to the session's owner, and its arguments.

    None if the app cannot be shared.
    """
    app = offer.app
    if not offer.is_offered or app.name in WHOLE_SESSION:
        return None
    if app.kind is AppKind.PORT:

        class Port(NamedLocalProxyHandler):
            port = offer.port

        return activity_recording_handler(Port, app, running.uses), {}
    route = running.proxy_route(app.name)
    if route is None:
        return None
    handler: Any = route.handler
    return handler, dict(route.arguments)


def client_ip(request: HTTPServerRequest) -> str:
    """Return the client's address, which our proxy appends to ``X-Forwarded-For``."""
    forwarded = request.headers.get("X-Forwarded-For", "")
    return normal_address(forwarded.rpartition(",")[2].strip() or request.remote_ip or "")


def without_cookie(header: str) -> str:
    """Return a ``Cookie`` header without our cookie, so that the app does not receive its token."""
    cookies = [cookie.strip() for cookie in header.split(";")]
    return "; ".join(one for one in cookies if one.partition("=")[0].strip() != COOKIE)


def shared_handler(handler: type, app: App, visits: Visits) -> type:
    """Return a subclass of an app's handler that requires a visit token instead of a sign-in."""
    return type("SharedHandler", (_VisitMixin, handler), {"shared_app": app, "visits": visits})


class _VisitMixin(LocalProxyHandler):
    """Mixin for the handler of an app; such a handler is a subclass of ``LocalProxyHandler``."""

    shared_app: App
    visits: Visits

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.proxy_base = f"shared/{self.shared_app.name}"
        self._rechecking: asyncio.Task[None] | None = None

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
        self.record_request()

    async def open(self, *args: Any, **kwargs: Any) -> None:
        self._rechecking = asyncio.create_task(self._recheck())
        await super().open(*args, **kwargs)

    def on_close(self) -> None:
        if self._rechecking is not None:
            self._rechecking.cancel()
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
            visit.token,
            path=path,
            httponly=True,
            samesite="Lax",
            secure=self.request.protocol == "https",
        )
        # Remove the entry token from the URL, so that neither browser history nor app receives it.
        query = [pair for pair in parse_qsl(self.request.query) if pair[0] != ENTRY]
        self.redirect(self.request.path + ("?" + urlencode(query) if query else ""), status=303)

    def _visit(self, address: str) -> Visit:
        cookie: SimpleCookie = SimpleCookie()
        with suppress(CookieError):
            cookie.load(self.request.headers.get("Cookie", ""))
        token = cookie[COOKIE].value if COOKIE in cookie else ""
        return Visit(self.shared_app.name, address, token)

    async def _recheck(self) -> None:
        """Check the visit every 2.5 s, and close the websocket if a check fails."""
        visit = self._visit(client_ip(self.request))
        while True:
            await asyncio.sleep(RECHECK_INTERVAL_SECONDS)
            try:
                await self.visits.check(visit)
            except BaiError as error:
                self.close(1008, str(error)[:100])
                return
