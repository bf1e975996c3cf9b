"""The manual: the built documentation, served by the manager.

Its pages load nothing from other hosts, and need no sign-in, because all users get the same
content.
"""

from __future__ import annotations

import base64
import hashlib
import re
from functools import lru_cache
from pathlib import Path
from typing import Any

from tornado.web import RequestHandler, StaticFileHandler

from .base import manager_of
from .sessions.page import PageHandler

# `make docs` writes this directory, and the wheel contains it.
DIRECTORY = Path(__file__).parents[1] / "manual"
FIRST_PAGE = "index.html"
# Maximum number of pages in memory; the manual has about 30 pages with 2 MB in total.
CACHED_PAGES = 100
_INLINE_SCRIPT = re.compile(r"<script(?![^>]*\bsrc=)[^>]*>(.*?)</script>", re.DOTALL)


class ManualPageHandler(PageHandler):
    """A page of the manual."""

    def prepare(self) -> None:
        """Allow requests by scripts: the search of the manual reads pages to show excerpts."""

    def get(self, path: str) -> None:
        try:
            page, policy = read_page(DIRECTORY / path, (DIRECTORY / path).stat().st_mtime_ns)
        except OSError:
            self._render_missing()
            return
        self.set_header("Content-Security-Policy", policy)
        self.set_header("Content-Type", "text/html; charset=utf-8")
        self.finish(page)

    def _render_missing(self) -> None:
        # Unlike the manual's pages, this page contains the XSRF token: reject requests by scripts.
        super().prepare()
        self.set_status(404)
        self.render_page(
            "manual_missing.html",
            None,
            is_built=(DIRECTORY / FIRST_PAGE).is_file(),
            manual_url=first_page_of(self),
        )


class ManualFileHandler(StaticFileHandler):
    """A style sheet, script, font, image or search index of the manual."""

    def set_extra_headers(self, path: str) -> None:
        self.set_header("X-Content-Type-Options", "nosniff")
        self.clear_header("Server")


@lru_cache(maxsize=CACHED_PAGES)
def read_page(path: Path, _modified: int) -> tuple[bytes, str]:
    """Return a page and its content security policy, which allows the page's inline scripts."""
    page = path.read_bytes()
    scripts = _INLINE_SCRIPT.findall(page.decode())
    sources = ["'self'", *sorted({_hash_source(script) for script in scripts})]
    policy = (
        f"default-src 'none'; script-src {' '.join(sources)}; style-src 'self' 'unsafe-inline'; "
        "img-src 'self' data:; font-src 'self'; connect-src 'self'; base-uri 'none'; "
        "form-action 'self'; frame-ancestors 'none'"
    )
    return page, policy


def _hash_source(script: str) -> str:
    digest = hashlib.sha256(script.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode('ascii')}'"


class ManualIndexHandler(RequestHandler):
    """Redirects to the first page of the manual."""

    def get(self) -> None:
        self.redirect(first_page_of(self))


def first_page_of(handler: RequestHandler) -> str:
    return f"{manager_of(handler).settings.base_url.rstrip('/')}/manual/{FIRST_PAGE}"


# No part of a path starts with a dot, and no part contains a percent sign (an escaped slash).
_FILES = r"/manual/(searchindex\.js|(?:_static|_images|_downloads)(?:/[\w-][\w.-]*)+)"
# Routes below the service's base URL. The only dot in the path of a page is in its suffix.
PAGES: list[tuple[Any, ...]] = [
    (r"/manual/?", ManualIndexHandler),
    (r"/manual/((?:[\w-]+/)*[\w-]+\.html)", ManualPageHandler),
    (_FILES, ManualFileHandler, {"path": str(DIRECTORY)}),
]
