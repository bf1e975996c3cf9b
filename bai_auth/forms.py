"""Base of the self-service pages."""

from __future__ import annotations

import math
from http import HTTPStatus
from typing import Any

from jupyterhub.utils import url_path_join
from tornado import web
from tornado.httputil import url_concat

from bai_services.core import errors
from bai_services.i18n import catalogue

from .failures import password_text, sign_in_failed
from .handlers import Page
from .self_service import SelfService

MAX_FIELD_CHARACTERS = 1024


class FormPage(Page):
    """A page with a form. Its responses are not cached, and requests from it have no Referer."""

    @property
    def self_service(self) -> SelfService:
        service: SelfService = self.authenticator.self_service
        return service

    def set_default_headers(self) -> None:
        super().set_default_headers()
        self.set_header("Cache-Control", "no-store")
        self.set_header("Referrer-Policy", "no-referrer")

    def check_xsrf_cookie(self) -> None:
        try:
            super().check_xsrf_cookie()
        except web.HTTPError as error:
            text = catalogue.translator_for(self)("common.form_expired")
            raise web.HTTPError(error.status_code, text) from error

    def field(self, name: str, *, strip: bool = True) -> str:
        """Return a field of the submitted form, cut off after 1,024 characters."""
        return str(self.get_body_argument(name, "", strip=strip))[:MAX_FIELD_CHARACTERS]

    def hub_url(self, page: str, **query: str) -> str:
        """Return the URL path of a page of the Hub."""
        return str(url_concat(url_path_join(self.hub.base_url, page), query))

    def caller_fields(self) -> dict[str, str]:
        """Return the fields of a request to the manager that describe the user's browser."""
        return {
            "client_ip": self.authenticator.client_address(self.request),
            "language": catalogue.translator_for(self).language,
        }

    def failure(self, error: errors.BaiError) -> tuple[HTTPStatus, str]:
        """Return status and text of a manager's error; set ``Retry-After`` if a delay is known."""
        translate = catalogue.translator_for(self)
        if isinstance(error, errors.InvalidRequest):
            return HTTPStatus.BAD_REQUEST, password_text(error, translate)
        failed = sign_in_failed(error, translate)
        for name, value in failed.headers.items():
            self.set_header(name, value)
        if isinstance(error, errors.SignInBlocked) and "reason" not in error.details:
            minutes = math.ceil(int(failed.headers["Retry-After"]) / 60)
            return HTTPStatus.TOO_MANY_REQUESTS, translate("self_service.too_many", count=minutes)
        if isinstance(error, errors.NotSignedIn) or failed.headers:
            return HTTPStatus(failed.status_code), str(failed.log_message).replace("%%", "%")
        self.log.error("The manager cannot process a form: %s", error)
        return HTTPStatus.SERVICE_UNAVAILABLE, translate("self_service.unavailable")

    async def show(self, template: str, **ns: Any) -> None:
        """Finish the response with a page."""
        ns.setdefault("xsrf", self.xsrf_token.decode("ascii"))
        self.finish(await self.render_template(template, **ns))
