"""Routes ``bai/api/…`` of a session's Jupyter server: the API of the panel in JupyterLab."""

from __future__ import annotations

import asyncio
import json
import zlib
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from jupyter_server.base.handlers import APIHandler
from tornado import web

from bai_labext.apps.running_apps import AppState, RunningApps
from bai_labext.manager_link import ManagerLink
from bai_services.core import errors
from bai_services.i18n.catalogue import DEFAULT, translator, translator_for

STATUSES = {
    errors.NotFound: HTTPStatus.NOT_FOUND,
    errors.InvalidRequest: HTTPStatus.BAD_REQUEST,
    errors.Forbidden: HTTPStatus.FORBIDDEN,
    # Not 401, with which the browser would ask the user to sign in again: the session's token is
    # invalid, not the user's credential.
    errors.NotSignedIn: HTTPStatus.SERVICE_UNAVAILABLE,
    errors.Conflict: HTTPStatus.CONFLICT,
    errors.AlreadyExists: HTTPStatus.CONFLICT,
    errors.Unavailable: HTTPStatus.SERVICE_UNAVAILABLE,
}


UNAVAILABLE = HTTPStatus.SERVICE_UNAVAILABLE
# Fields of an app for the panel. ``used_at`` is omitted, because it changes often and every poll
# would then send all apps.
APP_FIELDS = ("name", "title", "kind", "path", "state", "message", "arguments")


class PanelHandler(APIHandler):
    """Base class: JSON responses, and our errors as ``{"error": code, "message": text}``."""

    # Requests of an open panel do not count as activity, because the panel polls by itself.
    _track_activity = False

    def initialize(self, link: ManagerLink, running: RunningApps) -> None:
        self.link = link
        self.running = running

    def write_json(self, content: Any, status: HTTPStatus = HTTPStatus.OK) -> None:
        self.set_status(status)
        self.set_header("Cache-Control", "no-store")
        self.finish(json.dumps(content, ensure_ascii=False))

    def compute_etag(self) -> None:
        """Send no ETag; the responses are not cached."""

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        error = (kwargs.get("exc_info") or (None, None, None))[1]
        if not isinstance(error, errors.BaiError):
            super().write_error(status_code, **kwargs)
            return
        status = STATUSES.get(type(error), HTTPStatus.BAD_GATEWAY)
        self.write_json({"error": error.code, "message": str(error)}, status)

    def log_exception(self, *exc_info: Any) -> None:
        # A BaiError is a message to the user, not a defect of this server.
        if not isinstance(exc_info[1], errors.BaiError):
            super().log_exception(*exc_info)

    def _log(self) -> None:
        # The panel polls every few seconds; a line for each poll would fill the session's log.
        is_routine = self.request.method == "GET"
        if not is_routine or self.get_status() not in (HTTPStatus.OK, UNAVAILABLE):
            super()._log()

    def field(self, name: str) -> str:
        """Return a string field of the JSON body.

        Raises
        ------
        InvalidRequest
            If the field is missing, empty or not a string.
        """
        body = self.get_json_body()
        value = body.get(name) if isinstance(body, dict) else None
        if not isinstance(value, str) or not value:
            raise errors.InvalidRequest(
                f"the body must contain {name!r}, a string that is not empty", field=name
            )
        return value


class SessionHandler(PanelHandler):
    @web.authenticated
    async def get(self) -> None:
        self.write_json(await self.link.session())

    @web.authenticated
    async def patch(self) -> None:
        self.write_json(await self.link.rename(self.field("name")))

    @web.authenticated
    async def delete(self) -> None:
        await self.link.stop(self.link.session_id)
        self.write_json({}, HTTPStatus.ACCEPTED)


class PollHandler(PanelHandler):
    """GET ``?usage=ETAG&apps=ETAG…`` returns the named sections in one response.

    An ETag is a hash of a section. A section is omitted if the request contains its current ETag.
    If the manager is unavailable or returns an error, ``error`` and ``message`` contain the reason,
    and the response contains the sections that could be read.
    """

    @web.authenticated
    async def get(self) -> None:
        known = {name: self.get_query_argument(name) for name in self.request.query_arguments}
        sections, failure = await self.link.read_sections(known)
        if "apps" in known:
            sections["apps"] = {"items": self._apps()}
        etags = {name: _etag(section) for name, section in sections.items()}
        changed = {name: etag for name, etag in etags.items() if etag != known[name]}
        error = {} if failure is None else {"error": failure.code, "message": str(failure)}
        self.write_json({**{name: sections[name] for name in changed}, "etags": changed, **error})

    def _apps(self) -> list[dict[str, Any]]:
        return [
            {name: app[name] for name in APP_FIELDS}
            for app in self.running.describe()
            # JupyterLab itself is omitted, because the panel is a part of it.
            if app["state"] is not AppState.MISSING and app["name"] != "jupyterlab"
        ]


class LogHandler(PanelHandler):
    """GET returns the output of the kernel ``?kernel=``.

    If ``?cursor=`` is the cursor of an earlier response, GET returns only the output since that
    response. ``?times=true`` prefixes each line with its timestamp.
    """

    @web.authenticated
    async def get(self) -> None:
        kernel, cursor = (self.get_query_argument(name, "") for name in ("kernel", "cursor"))
        has_times = self.get_query_argument("times", "") == "true"
        self.write_json(await self.link.log(kernel, cursor, has_times))


class LifetimeHandler(PanelHandler):
    """POST ``{"seconds": n}`` extends the maximum run time of the session."""

    @web.authenticated
    async def post(self) -> None:
        body = self.get_json_body()
        seconds = body.get("seconds") if isinstance(body, dict) else None
        if not isinstance(seconds, int) or isinstance(seconds, bool) or seconds <= 0:
            raise errors.InvalidRequest("the body must contain 'seconds', a whole number above 0")
        self.write_json(await self.link.extend(seconds))


class KeepAliveHandler(PanelHandler):
    """POST restarts the time windows of the session's idle checkers."""

    @web.authenticated
    async def post(self) -> None:
        self.write_json(await self.link.keep_alive())


class OtherSessionHandler(PanelHandler):
    @web.authenticated
    async def delete(self, session_id: str) -> None:
        await self.link.stop(session_id)
        self.write_json({}, HTTPStatus.ACCEPTED)


class AppsHandler(PanelHandler):
    @web.authenticated
    def get(self) -> None:
        self.write_json({"items": self.running.describe()})


class AppHandler(PanelHandler):
    """POST starts or restarts an app, DELETE stops it; the response contains the new state."""

    @web.authenticated
    async def post(self, name: str) -> None:
        body = self.get_json_body() or {}
        arguments = body.get("arguments") or {} if isinstance(body, dict) else None
        if not isinstance(arguments, dict):
            raise errors.InvalidRequest(
                "the body must be {arguments?: {NAME: string}, restart?: bool}"
            )
        is_restart = bool(body.get("restart"))
        await self.running.start(name, self.request, arguments, is_restart)
        self.write_json({"state": self.running.state(name)}, HTTPStatus.ACCEPTED)

    @web.authenticated
    async def delete(self, name: str) -> None:
        await self.running.stop(name)
        self.write_json({"state": self.running.state(name)})


class AppLogHandler(PanelHandler):
    @web.authenticated
    async def get(self, name: str) -> None:
        self.write_json({"log": await asyncio.to_thread(self.running.log, name)})


class SharesHandler(PanelHandler):
    @web.authenticated
    async def get(self) -> None:
        self.write_json(await self.link.shares())


class TextsHandler(PanelHandler):
    """GET returns the panel's texts in the language of ``?lang=``, cookie or Accept-Language.

    The keys ``reasons.CODE`` have the texts of the manager's reasons, except in English. The key of
    a notice about devices is its English text, because agents send notices without a code.
    """

    @web.authenticated
    def get(self) -> None:
        # `translator_for` is typed for tornado's web handlers of the Hub, but reads only the query,
        # the cookie and the headers.
        translate = translator_for(self)  # type: ignore[arg-type]
        reasons = {f"reasons.{code}": text for code, text in translate.area("reasons").items()}
        notices = translate.area("device_notices")
        english = translator(DEFAULT).area("device_notices")
        texts = translate.area("lab") | reasons
        texts |= {english[key]: text for key, text in notices.items()}
        self.write_json({"language": translate.language, "texts": texts})


def _etag(section: Mapping[str, Any]) -> str:
    """Return a short hash that changes when the section changes."""
    return f"{zlib.crc32(json.dumps(section).encode()):x}"


ROUTES = [
    ("session", SessionHandler),
    ("session/log", LogHandler),
    ("session/lifetime", LifetimeHandler),
    ("session/keep-alive", KeepAliveHandler),
    ("poll", PollHandler),
    ("sessions/([^/]+)", OtherSessionHandler),
    ("apps", AppsHandler),
    ("apps/([^/]+)", AppHandler),
    ("apps/([^/]+)/log", AppLogHandler),
    ("shares", SharesHandler),
    ("texts", TextsHandler),
]
