"""Report to the manager how long the session has been idle.

Requests that an open page sends by itself do not count as use. Jupyter's ``api_last_activity``
cannot be used, because it includes such requests, for example every poll of JupyterLab.
"""

from __future__ import annotations

import asyncio
import time
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
from bai_services.core.sessions.idle import REPORT_INTERVAL_SECONDS, IdleTimer

# Delay of the first report, so that the report does not slow down the start of the session.
FIRST_REPORT_SECONDS = 10.0
READ_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
# Name of the app to which requests to Jupyter's own API are attributed.
JUPYTER = "jupyterlab"


class Activity:
    """Reports to the manager, periodically and on request, how long the session has been idle."""

    def __init__(self, settings: Mapping[str, Any], uses: AppActivity, link: ManagerLink) -> None:
        self._settings = settings
        self._uses = uses
        self._link = link
        self._timer = IdleTimer(time.monotonic())
        self._pause = FIRST_REPORT_SECONDS
        self._reported = asyncio.Event()

    async def idle_seconds(self) -> float:
        """Return the seconds since the session was last used; 0 while a Jupyter kernel is busy."""
        return self._timer.limited(await self._seconds_by_clock(), time.monotonic())

    async def _seconds_by_clock(self) -> float:
        kernels = self._settings["kernel_manager"]
        models = await ensure_async(kernels.list_kernels())
        if any(model["execution_state"] == "busy" for model in models):
            return 0.0
        times = [
            self._settings["started"],
            kernels.last_kernel_activity,
            *self._settings["last_activity_times"].values(),
        ]
        # Jupyter adds this setting when the first terminal is opened.
        if (terminals := self._settings.get("terminal_last_activity")) is not None:
            times.append(terminals)
        last: datetime = max(times)
        return max((datetime.now(UTC) - last).total_seconds(), 0.0)

    async def report(self) -> None:
        """Report to the manager, whose response contains the seconds until the next report.

        Raises
        ------
        BaiError
            See ``ManagerLink``.
        """
        response = await self._link.report_idle_time(await self.idle_seconds())
        self._pause = float(response["next_report_seconds"])
        self._reported.set()

    async def keep_reporting(self) -> None:
        """Report to the manager in a loop."""
        while self._link.session_id:
            self._reported.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._pause):
                    # A report on request also restarts the interval.
                    await self._reported.wait()
                continue
            try:
                await self.report()
            except BaiError:
                self._pause = REPORT_INTERVAL_SECONDS

    async def record_use(self) -> None:
        """Record a use of the session now, and report it to the manager."""
        self._uses.record_use(JUPYTER)
        await self.report()


class ActivityHandler(PanelHandler):
    """POST records a use: the user is active in the page, or has requested to keep the session."""

    def initialize(self, activity: Activity) -> None:  # type: ignore[override]
        self.activity = activity

    @web.authenticated
    async def post(self) -> None:
        await self.activity.record_use()
        self.write_json({})


def count_writes_as_use(web_app: Application, uses: AppActivity) -> None:
    """Record a use for each successful write request to Jupyter's own API."""
    api_path = url_path_join(web_app.settings["base_url"], "api", "/")
    web_app.transforms.append(_write_recorder(api_path, lambda: uses.record_use(JUPYTER)))


def _write_recorder(api_path: str, record: Callable[[], None]) -> type[OutputTransform]:
    class WriteRecorder(OutputTransform):
        def __init__(self, request: HTTPServerRequest) -> None:
            is_read = request.method in READ_METHODS
            self._is_write = not is_read and request.path.startswith(api_path)

        def transform_first_chunk(
            self, status_code: int, headers: HTTPHeaders, chunk: bytes, finishing: bool
        ) -> tuple[int, HTTPHeaders, bytes]:
            if self._is_write and status_code < 400:
                record()
            return status_code, headers, chunk

    return WriteRecorder
