"""The web UI: a single-page application, served at every path, and its assets."""

from __future__ import annotations

import json
from html import escape

from tornado.web import HTTPError, RequestHandler

from bai_services.core import errors
from bai_services.i18n.catalogue import translator_for
from bai_services.webui.assets import WebUI

from .accounts.sign_in import page_token
from .base import manager_of
from .sessions.page import PageHandler

# Assets never change: the name of a file changes with its content.
IMMUTABLE = "public, max-age=31536000, immutable"
# First path segments of the UI's pages, as in bai_services/webui/frontend/src/app/router.tsx.
PAGE_NAMES = frozenset(
    {
        "",
        "start",
        "dashboard",
        "sessions",
        "launch",
        "data",
        "statistics",
        "reservations",
        "users",
        "credentials",
        "projects",
        "policies",
        "presets",
        "idle-checkers",
        "images",
        "agents",
        "agent-summary",
        "storage",
        "resource-groups",
        "scheduler",
        "schedules",
        "custom-images",
        "endpoints",
        "chat",
        "models",
        "pipelines",
        "import",
        "announcements",
        "maintenance",
        "audit",
        "settings",
        "webhooks",
        "notifications",
        "system",
    }
)
# 'unsafe-inline' is needed because Ant Design creates style elements. Other content comes from this
# origin; images may also be data or blob URLs.
CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; font-src 'self'; connect-src 'self'; base-uri 'self'; "
    "form-action 'self'; frame-ancestors 'none'"
)


class AssetHandler(RequestHandler):
    """An asset of the web UI; it needs no sign-in because it is the same for all users."""

    def set_default_headers(self) -> None:
        self.set_header("X-Content-Type-Options", "nosniff")
        self.clear_header("Server")

    def get(self, path: str) -> None:
        asset = _built(self).assets.get(path)
        if asset is None:
            raise HTTPError(404)
        encoding, content = asset.best(self.request.headers.get("Accept-Encoding", ""))
        self.set_header("Content-Type", asset.media_type)
        self.set_header("Cache-Control", IMMUTABLE)
        self.set_header("Vary", "Accept-Encoding")
        if encoding:
            self.set_header("Content-Encoding", encoding)
        self.write(content)


class WebPageHandler(PageHandler):
    """The HTML page of the web UI, the same for every path; its router selects the view."""

    def set_default_headers(self) -> None:
        super().set_default_headers()
        self.set_header("Content-Security-Policy", CONTENT_SECURITY_POLICY)

    async def get(self, path: str | None) -> None:
        try:
            caller = await self.caller()
            if caller is None:
                return
        except errors.BaiError as error:
            self.render_error(error, None)
            return
        settings = manager_of(self).settings
        base, hub = settings.base_url.rstrip("/"), settings.hub_base_url.rstrip("/") + "/hub/"
        brand = settings.brand
        config = {
            "base": base,
            "api": base + "/api/v1",
            "hub": hub,
            "language": translator_for(self).language,
            "username": caller.username,
            "xsrfToken": page_token(self, caller.username),
            "brand": brand.name,
            "brandColor": brand.color,
            "logo": f"{hub}logo" if brand.logo else "",
            "showsAgents": settings.shows_agents,
            "masksUsers": settings.masks_users,
            "buildsRecipes": settings.builds_recipes,
        }
        page = (
            _built(self)
            .index.replace(
                '<meta name="bai-config" content="" />',
                f'<base href="{escape(base)}/" />\n'
                f'    <meta name="bai-config" content="{escape(json.dumps(config))}" />',
            )
            .replace("<title>bai-hub</title>", f"<title>{escape(brand.name)}</title>")
        )
        if (path or "").rstrip("/") not in PAGE_NAMES:
            # The web UI shows its own message for an unknown path.
            self.set_status(404)
        self.set_header("Content-Type", "text/html; charset=utf-8")
        self.finish(page)


class TrailingSlashHandler(RequestHandler):
    """Adds the missing trailing slash to the URL of the web UI."""

    def get(self) -> None:
        self.redirect(manager_of(self).settings.base_url.rstrip("/") + "/")


def _built(handler: RequestHandler) -> WebUI:
    web_ui: WebUI = handler.settings["web_ui"]
    return web_ui


# Routes below the manager's base URL, used only if the application has the setting ``web_ui``.
PAGES: list[tuple[str, type[RequestHandler]]] = [
    (r"/(assets/[^/]+)", AssetHandler),
    ("", TrailingSlashHandler),
    # Addresses that users type have any number of segments, capital letters and a final slash.
    (r"/(?!api(?:/|$))(.*)", WebPageHandler),
]
