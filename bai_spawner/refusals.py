"""Errors of a start, in the form in which the Hub shows them to the user."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from jupyterhub.spawner import SpawnException
from markupsafe import Markup, escape

from bai_services.core import errors
from bai_services.engines.base import EngineError, EngineUnreachable
from bai_services.i18n.catalogue import Translator

QUEUED = "queued"
EXITED = "exited-at-start"
NO_ANSWER = "no-answer"

STATUS: Mapping[str, HTTPStatus] = {
    errors.InvalidRequest.code: HTTPStatus.BAD_REQUEST,
    errors.NotFound.code: HTTPStatus.NOT_FOUND,
    errors.Forbidden.code: HTTPStatus.FORBIDDEN,
    errors.QuotaExceeded.code: HTTPStatus.FORBIDDEN,
    errors.RateLimited.code: HTTPStatus.TOO_MANY_REQUESTS,
    errors.Unavailable.code: HTTPStatus.SERVICE_UNAVAILABLE,
    errors.StorageFull.code: HTTPStatus.INSUFFICIENT_STORAGE,
}


class StartRefused(SpawnException):
    """A start that failed or was refused; the Hub shows the message on its pages.

    ``session_page`` is the path of the session's page, empty if there is no session. Our template
    ``not_running.html`` uses ``title`` and ``language``.
    """

    title = ""
    language = "en"

    def __init__(
        self, message: str, *, reason: str, status: int, html: Markup, session_page: str = ""
    ) -> None:
        super().__init__(message, reason=reason, status_code=status, message_html=str(html))
        # The Hub's pages and REST API read the message from attributes with these names.
        self.jupyterhub_message = message
        self.jupyterhub_html_message = str(html)
        self.session_page = session_page


def queued(session: Mapping[str, Any], page: str, translate: Translator) -> StartRefused:
    """Return the error for a session that is still pending after the grace period."""
    name = session["name"]
    text = translate("spawn.queued", name=name)
    link = Markup('<a class="alert-link" data-bai-queued href="{}">{}</a>').format(
        page, translate("spawn.queued-link")
    )
    refused = StartRefused(
        f"{text} {page}",
        reason=QUEUED,
        status=HTTPStatus.CONFLICT,
        html=escape(text) + Markup(" ") + link,
        session_page=page,
    )
    refused.title, refused.language = translate("spawn.queued-title"), translate.language
    return refused


def of_manager(error: errors.BaiError, translate: Translator, page: str = "") -> StartRefused:
    """Return the error for a request that the manager refused or did not respond to."""
    text = error.message
    if isinstance(error, errors.Unavailable):
        # The manager may have received the request, so do not claim that nothing was started.
        text = translate("spawn.manager-no-response")
    html = escape(text)
    if page:
        html += Markup(" ") + _link(page, translate("spawn.session-link"))
    status = STATUS.get(error.code, HTTPStatus.CONFLICT)
    return StartRefused(text, reason=error.code, status=status, html=html, session_page=page)


def of_engine(error: EngineError, page: str, translate: Translator) -> StartRefused:
    """Return the error for an engine that could not start the session or keep it running."""
    text = translate("spawn.not-started", reason=str(error))
    status = (
        HTTPStatus.SERVICE_UNAVAILABLE
        if isinstance(error, EngineUnreachable)
        else HTTPStatus.INTERNAL_SERVER_ERROR
    )
    html = Markup('<span style="white-space: pre-wrap">{}</span> {}').format(
        text, _link(page, translate("spawn.session-link"))
    )
    return StartRefused(text, reason=error.reason, status=status, html=html, session_page=page)


def _link(page: str, text: str) -> Markup:
    return Markup('<a class="alert-link" href="{}">{}</a>').format(page, text)
