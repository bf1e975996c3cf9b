"""Routes ``bai/api/…`` of a session's Jupyter server, for the panel in JupyterLab."""

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
from bai_services.i18n.catalogue import translator_for

STATUSES = {
    errors.NotFound: HTTPStatus.NOT_FOUND,
    errors.InvalidRequest: HTTPStatus.BAD_REQUEST,
    errors.Forbidden: HTTPStatus.FORBIDDEN,
    # Not 401, which would redirect the browser to sign in: the session, not the user, is unknown.
    errors.NotSignedIn: HTTPStatus.SERVICE_UNAVAILABLE,
    errors.Conflict: HTTPStatus.CONFLICT,
    errors.AlreadyExists: HTTPStatus.CONFLICT,
    errors.Unavailable: HTTPStatus.SERVICE_UNAVAILABLE,
}


UNAVAILABLE = HTTPStatus.SERVICE_UNAVAILABLE
# Fields of an app in the panel; the time of last use would change all the time.
OF_AN_APP = ("name", "title", "kind", "path", "state", "message", "arguments")


class PanelHandler(APIHandler):
    """Answers in JSON; our errors as ``{"error": code, "message": text}``."""

    # An open panel polls by itself, which does not count as activity.
    _track_activity = False

    def initialize(self, link: ManagerLink, running: RunningApps) -> None:
        self.link = link
        self.running = running

    def write_json(self, content: Any, status: HTTPStatus = HTTPStatus.OK) -> None:
        self.set_status(status)
        self.set_header("Cache-Control", "no-store")
        self.finish(json.dumps(content, ensure_ascii=False))

    def compute_etag(self) -> None:
        """No Etag: the answers are not cached, so it would only be overhead."""

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        error = (kwargs.get("exc_info") or (None, None, None))[1]
        if not isinstance(error, errors.BaiError):
            super().write_error(status_code, **kwargs)
            return
        status = STATUSES.get(type(error), HTTPStatus.BAD_GATEWAY)
        self.write_json({"error": error.code, "message": str(error)}, status)

    def log_exception(self, *exc_info: Any) -> None:
        # Errors that users may read are not defects of this server.
        if not isinstance(exc_info[1], errors.BaiError):
            super().log_exception(*exc_info)

    def _log(self) -> None:
        # Polled every few seconds; such requests would fill the session's log.
        is_routine = self.request.method == "GET"
        if not is_routine or self.get_status() not in (HTTPStatus.OK, UNAVAILABLE):
            super()._log()

    def field(self, name: str) -> str:
        """Return a text of the JSON body.

        Raises
        ------
        InvalidRequest
            If it is missing or not a text.
        """
        body = self.get_json_body()
        found = body.get(name) if isinstance(body, dict) else None
        if not isinstance(found, str) or not found:
            raise errors.InvalidRequest(f"the body needs the text {name!r}", field=name)
        return found


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


class LookHandler(PanelHandler):
    """``?usage=MARK&apps=MARK…``: everything that an open panel polls, in one answer.

    A part that has not changed since the given mark is left out. If the manager does not answer,
    ``error`` and ``message`` say why, and the parts that this server knows are still sent.
    """

    @web.authenticated
    async def get(self) -> None:
        known = {name: self.get_query_argument(name) for name in self.request.query_arguments}
        found, failure = await self.link.parts(known)
        if "apps" in known:
            found["apps"] = {"items": self._apps()}
        marks = {name: _mark(part) for name, part in found.items()}
        news = {name: mark for name, mark in marks.items() if mark != known[name]}
        said = {} if failure is None else {"error": failure.code, "message": str(failure)}
        self.write_json({**{name: found[name] for name in news}, "marks": news, **said})

    def _apps(self) -> list[dict[str, Any]]:
        return [
            {name: app[name] for name in OF_AN_APP}
            for app in self.running.described()
            # A user who sees the panel is in JupyterLab already.
            if app["state"] is not AppState.MISSING and app["name"] != "jupyterlab"
        ]


class LogHandler(PanelHandler):
    """``?kernel=`` selects a kernel; with the ``?mark=`` of an earlier answer, only new output.

    ``?times=true``: each line begins with its time.
    """

    @web.authenticated
    async def get(self) -> None:
        kernel, mark = (self.get_query_argument(name, "") for name in ("kernel", "mark"))
        has_times = self.get_query_argument("times", "") == "true"
        self.write_json(await self.link.log(kernel, mark, has_times))


class LifetimeHandler(PanelHandler):
    """``{"seconds": n}``: extend the lifetime of the session."""

    @web.authenticated
    async def post(self) -> None:
        body = self.get_json_body()
        seconds = body.get("seconds") if isinstance(body, dict) else None
        if not isinstance(seconds, int) or isinstance(seconds, bool) or seconds <= 0:
            raise errors.InvalidRequest("the body needs 'seconds', a whole number above 0")
        self.write_json(await self.link.extend(seconds))


class OtherSessionHandler(PanelHandler):
    @web.authenticated
    async def delete(self, session_id: str) -> None:
        await self.link.stop(session_id)
        self.write_json({}, HTTPStatus.ACCEPTED)


class AppsHandler(PanelHandler):
    @web.authenticated
    def get(self) -> None:
        self.write_json({"items": self.running.described()})


class AppHandler(PanelHandler):
    """POST starts or restarts, DELETE stops; the answer contains the new state."""

    @web.authenticated
    async def post(self, name: str) -> None:
        body = self.get_json_body() or {}
        arguments = body.get("arguments") or {} if isinstance(body, dict) else None
        if not isinstance(arguments, dict):
            raise errors.InvalidRequest(
                "the body must be {arguments?: {NAME: text}, restart?: bool}"
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
    """The texts of the panel in the user's language: ``?lang=``, cookie, Accept-Language."""

    @web.authenticated
    def get(self) -> None:
        translate = translator_for(self)  # type: ignore[arg-type]  # read only of what it is typed
        self.write_json({"language": translate.language, "texts": translate.area("lab")})


def _mark(part: Mapping[str, Any]) -> str:
    """Return a short hash by which an unchanged part is recognized."""
    return f"{zlib.crc32(json.dumps(part).encode()):x}"


ROUTES = [
    ("session", SessionHandler),
    ("session/log", LogHandler),
    ("session/lifetime", LifetimeHandler),
    ("look", LookHandler),
    ("sessions/([^/]+)", OtherSessionHandler),
    ("apps", AppsHandler),
    ("apps/([^/]+)", AppHandler),
    ("apps/([^/]+)/log", AppLogHandler),
    ("shares", SharesHandler),
    ("texts", TextsHandler),
]
