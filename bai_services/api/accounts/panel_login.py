"""The page on which a signed-in user authorizes the session panel of JupyterLab.

The panel opens this page in a new window. The code is sent on a broadcast channel, which pages of
other origins cannot read. Other pages of this origin can read the code, but cannot use it without
the verifier.
"""

from __future__ import annotations

from tornado.web import RequestHandler

from bai_services.core.accounts.roles import Caller

from .authorization_page import AuthorizationPageHandler


class PanelLoginHandler(AuthorizationPageHandler):
    """GET asks for consent; POST renders a page that sends the code to the panel."""

    retry_hint = "try again in the panel"

    def render_question(self, caller: Caller) -> None:
        self.render_page("panel_login.html", caller, request=self, message=None)

    def deliver_code(self, caller: Caller, code: str) -> None:
        message = {"code": code, "state": self.state}
        self.render_page("panel_login.html", caller, request=self, message=message)


PAGES: list[tuple[str, type[RequestHandler]]] = [(r"/panel-login", PanelLoginHandler)]
