"""Last use of a session, reported to the manager.

Requests that an open page sends by itself do not count. Jupyter's own notion of activity does count
them: every poll of JupyterLab's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from jupyter_core.utils import ensure_async
from jupyter_server.utils import url_path_join
from tornado import web
from tornado.httputil import HTTPHeaders, HTTPServerRequest
from tornado.web import Application, OutputTransform

from bai_labext.apps.activity import AppActivity
from bai_labext.handlers import PanelHandler
from bai_labext.manager_link import ManagerLink
from bai_services.core.errors import BaiError
from bai_services.core.sessions.idle import REPORT_SECONDS

# The first report must not slow down the start.
FIRST_REPORT_SECONDS = 10.0
READING = frozenset({"GET", "HEAD", "OPTIONS"})
# Use of Jupyter's own interface: writing files, running kernels and terminals.
JUPYTER = "jupyterlab"


class Activity:
    """Reports to the manager, regularly and on request, how long the session has been unused."""

    def __init__(self, settings: Mapping[str, Any], uses: AppActivity, link: ManagerLink) -> None:
        self._settings = settings
        self._uses = uses
        self._link = link
        self._pause = FIRST_REPORT_SECONDS
        self._is_told = asyncio.Event()

    async def idle_seconds(self) -> float:
        """Return for how long nobody and nothing has used the session."""
        kernels = self._settings["kernel_manager"]
        models = await ensure_async(kernels.list_kernels())
        if any(model["execution_state"] == "busy" for model in models):
            return 0.0
        times = [
            self._settings["started"],
            kernels.last_kernel_activity,
            *self._settings["last_activity_times"].values(),
        ]
        # Missing until the first terminal is opened.
        if (terminals := self._settings.get("terminal_last_activity")) is not None:
            times.append(terminals)
        last: datetime = max(times)
        return max((datetime.now(UTC) - last).total_seconds(), 0.0)

    async def report(self) -> None:
        """Report to the manager; its answer says when to report again.

        Raises
        ------
        BaiError
            As ``ManagerLink`` raises.
        """
        found = await self._link.report_use(await self.idle_seconds())
        self._pause = float(found["next_report_seconds"])
        self._is_told.set()

    async def keep_reporting(self) -> None:
        """Report to the manager in a loop."""
        while self._link.session_id:
            self._is_told.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._pause):
                    # Somebody else has reported: the pause begins again.
                    await self._is_told.wait()
                continue
            try:
                await self.report()
            except BaiError:
                self._pause = REPORT_SECONDS

    async def use(self) -> None:
        """Record a use now, and report it to the manager."""
        self._uses.used(JUPYTER)
        await self.report()


class ActivityHandler(PanelHandler):
    """POST: the user is active, or wants to keep the session alive."""

    def initialize(self, activity: Activity) -> None:  # type: ignore[override]
        self.activity = activity

    @web.authenticated
    async def post(self) -> None:
        await self.activity.use()
        self.write_json({})


def note_writes(web_app: Application, uses: AppActivity) -> None:
    """Count each request to Jupyter's own interface that changes something as a use."""
    below = url_path_join(web_app.settings["base_url"], "api", "/")
    web_app.transforms.append(_noting(below, lambda: uses.used(JUPYTER)))


def _noting(below: str, note: Callable[[], None]) -> type[OutputTransform]:
    class Noting(OutputTransform):
        def __init__(self, request: HTTPServerRequest) -> None:
            self._is_write = request.method not in READING and request.path.startswith(below)

        def transform_first_chunk(
            self, status_code: int, headers: HTTPHeaders, chunk: bytes, finishing: bool
        ) -> tuple[int, HTTPHeaders, bytes]:
            # A refused request is not a use.
            if self._is_write and status_code < 400:
                note()
            return status_code, headers, chunk

    return Noting
