"""The page on which a signed-in user authorizes the command line."""

from __future__ import annotations

from urllib.parse import urlencode

from tornado.web import RequestHandler

from bai_services.core import errors
from bai_services.core.accounts.roles import Caller

from .authorization_page import AuthorizationPageHandler

LOWEST_PORT, HIGHEST_PORT = 1024, 65535


class CliLoginHandler(AuthorizationPageHandler):
    """GET asks for consent; POST redirects the browser with the code to `bai login` on the user's
    machine.
    """

    retry_hint = "run bai login again"

    @property
    def port(self) -> str:
        return self.get_argument("port", "")

    def check_parameters(self) -> None:
        is_port = self.port.isascii() and self.port.isdigit() and len(self.port) <= 5
        if not is_port or not LOWEST_PORT <= int(self.port) <= HIGHEST_PORT:
            raise errors.InvalidRequest(f"the URL contains no valid port; {self.retry_hint}")
        super().check_parameters()

    def render_question(self, caller: Caller) -> None:
        self.render_page("cli_login.html", caller, request=self)

    def deliver_code(self, caller: Caller, code: str) -> None:
        # Always the loopback address, so that only the user's own machine receives the code.
        query = urlencode({"code": code, "state": self.state})
        self.redirect(f"http://127.0.0.1:{int(self.port)}/?{query}", status=303)


PAGES: list[tuple[str, type[RequestHandler]]] = [(r"/cli-login", CliLoginHandler)]
