"""The page that ends a repeated sign-in, which a page of the web UI has opened in a new window.

The page notifies the web UI on a broadcast channel and closes itself.
"""

from __future__ import annotations

from tornado.web import RequestHandler

from bai_services.core import errors

from ..sessions.page import PageHandler


class SignedInHandler(PageHandler):
    """GET redirects to the Hub's sign-in, and then shows that the user is signed in."""

    async def get(self) -> None:
        try:
            caller = await self.caller()
        except errors.BaiError as error:
            self.render_error(error, None)
            return
        if caller is not None:
            self.render_page("signed_in.html", caller)


PAGES: list[tuple[str, type[RequestHandler]]] = [(r"/signed-in", SignedInHandler)]
