"""The page on which a signed-in user authorizes the panel in their JupyterLab.

The panel opens it in a new window. The code is passed to the page that opened the window, and only
if that has the same origin.
"""

from __future__ import annotations

from tornado.web import RequestHandler

from bai_services.core.accounts.roles import Caller

from .code_page import CodePageHandler


class PanelLoginHandler(CodePageHandler):
    """GET asks the user, POST passes the code to the window that asked."""

    again = "try again in the panel"

    def ask(self, caller: Caller, answer: dict[str, str] | None = None) -> None:
        self.render_page("panel_login.html", caller, asked=self, answer=answer)

    def hand_over(self, caller: Caller, code: str) -> None:
        self.ask(caller, {"bai": "panel-login", "code": code, "state": self.state})


PAGES: list[tuple[str, type[RequestHandler]]] = [(r"/panel-login", PanelLoginHandler)]
