"""Base class of all pages in the Hub's design, and the permanent URL of a session."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from jinja2 import ChoiceLoader, Environment, FileSystemLoader, PackageLoader, PrefixLoader
from jupyterhub._data import DATA_FILES_PATH
from jupyterhub.services.auth import HubOAuthCallbackHandler, HubOAuthenticated
from tornado.web import HTTPError, RequestHandler

from bai_services.core import errors
from bai_services.core.accounts.roles import Caller
from bai_services.i18n.catalogue import translator_for
from bai_services.script_json import script_json

from ..base import manager_of, set_status_of, to_json

# Templates of the installed Hub, and bai-hub's templates of the frame and header, which replace
# those of the Hub.
_HUB_TEMPLATES = FileSystemLoader(Path(DATA_FILES_PATH) / "templates")
_FRAME_TEMPLATES = FileSystemLoader(Path(__file__).parents[3] / "bai_auth" / "templates")

# The Hub searches for templates in the same order. With the prefix ``templates/``, the Hub's own
# template is used even if another template replaces it.
_templates = Environment(
    loader=ChoiceLoader(
        [
            PackageLoader("bai_services.api"),
            PrefixLoader({"templates": _HUB_TEMPLATES}),
            _FRAME_TEMPLATES,
            _HUB_TEMPLATES,
        ]
    ),
    autoescape=True,
    trim_blocks=True,
    lstrip_blocks=True,
)


@dataclass(frozen=True, slots=True)
class PageUser:
    """The user object that the Hub's templates expect."""

    name: str

    @property
    def json_escaped_name(self) -> str:
        return json.dumps(self.name)[1:-1]


class PageHandler(HubOAuthenticated, RequestHandler):  # type: ignore[misc]  # jupyterhub has no types
    """A page for signed-in users; redirects other browsers to the Hub's sign-in."""

    def initialize(self) -> None:
        self.hub_auth = self.settings["hub_oauth"]

    def set_default_headers(self) -> None:
        self.set_header("X-Content-Type-Options", "nosniff")
        self.set_header("Cache-Control", "no-store")
        self.set_header("Content-Security-Policy", "frame-ancestors 'none'")
        self.set_header("Referrer-Policy", "same-origin")
        # Apps of sessions have the same origin. They must not access a page of the manager in a
        # window that they have opened.
        self.set_header("Cross-Origin-Opener-Policy", "noopener-allow-popups")
        self.clear_header("Server")

    def prepare(self) -> None:
        """Reject requests by scripts.

        A page contains the XSRF token, which an app with the same origin as the Hub must not read.
        """
        if self.request.headers.get("Sec-Fetch-Mode", "navigate") != "navigate":
            raise HTTPError(403, "pages can be opened, but not read by scripts")

    async def caller(self) -> Caller | None:
        """Return the caller, or None after a redirect to the Hub's sign-in.

        Raises
        ------
        NotSignedIn
            If the user is signed in to the Hub, but the account may not sign in.
        Unavailable
            If the Hub is unavailable.
        """
        sign_in = self.settings["sign_in"]
        if await sign_in.hub_user(self) is None:
            self.redirect(self.get_login_url())
            return None
        caller: Caller = await sign_in.caller_of(self)
        return caller

    def render_page(self, template: str, caller: Caller | None, **values: Any) -> None:
        settings = manager_of(self).settings
        hub = settings.hub_base_url.rstrip("/") + "/hub/"
        translate = translator_for(self)
        page = _templates.get_template(template).render(
            translate=translate,
            brand=settings.brand,
            script_json=partial(script_json, encode=to_json),
            user=PageUser(caller.username) if caller else None,
            no_spawner_check=True,
            base_url=hub,
            prefix=settings.hub_base_url,
            logout_url=hub + "logout",
            login_url=hub + "login",
            static_url=lambda path, **_: f"{hub}static/{path}",
            xsrf_token=self.xsrf_token.decode("ascii"),
            parsed_scopes=(),
            **values,
        )
        self.set_header("Content-Type", "text/html; charset=utf-8")
        self.finish(page)

    def render_error(self, error: errors.BaiError, caller: Caller | None) -> None:
        set_status_of(self, error)
        self.render_page("page_error.html", caller, error=error)


class SessionPageHandler(PageHandler):
    """Permanent URL of a session: redirects to the session in the web UI."""

    async def get(self, session_id: str) -> None:
        caller: Caller | None = None
        try:
            caller = await self.caller()
            if caller is None:
                return
            session = await manager_of(self).sessions.sessions.get(caller, session_id)
        except errors.BaiError as error:
            self.render_error(error, caller)
        else:
            base = manager_of(self).settings.base_url.rstrip("/")
            self.redirect(f"{base}/sessions?" + urlencode({"tab": "all", "session": session.id}))


# Routes below the service's base URL.
PAGES: list[tuple[str, type[RequestHandler]]] = [
    (r"/sessions/(?P<session_id>[^/]+)", SessionPageHandler),
    (r"/oauth_callback", HubOAuthCallbackHandler),
]
