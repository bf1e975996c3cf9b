"""When a session was last really used, and how the manager hears of it.

An open page that only asks how things are is no use, so this is not what Jupyter itself calls
activity: that counts every question of JupyterLab's own.
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

# A start is not to wait for this.
FIRST_REPORT_SECONDS = 10.0
READING = frozenset({"GET", "HEAD", "OPTIONS"})
# What people do in Jupyter's own pages: write files, run kernels and terminals.
JUPYTER = "jupyterlab"


class Activity:
    """Tells the manager, now and then and when asked to, how long nobody has used the session."""

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
        # There is none before somebody has opened a terminal.
        if (terminals := self._settings.get("terminal_last_activity")) is not None:
            times.append(terminals)
        last: datetime = max(times)
        return max((datetime.now(UTC) - last).total_seconds(), 0.0)

    async def report(self) -> None:
        """Tell the manager; its answer says when to do so again.

        Raises
        ------
        BaiError
            As ``ManagerLink`` says.
        """
        found = await self._link.report_use(await self.idle_seconds())
        self._pause = float(found["next_report_seconds"])
        self._is_told.set()

    async def keep_reporting(self) -> None:
        """Tell the manager for as long as this runs."""
        while self._link.session_id:
            self._is_told.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._pause):
                    # Somebody else has told it: the pause begins again.
                    await self._is_told.wait()
                continue
            try:
                await self.report()
            except BaiError:
                self._pause = REPORT_SECONDS

    async def use(self) -> None:
        """Note that somebody is at work here, and tell the manager."""
        self._uses.used(JUPYTER)
        await self.report()


class ActivityHandler(PanelHandler):
    """POST: somebody is at work, or wants the session to be kept alive."""

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
            # Whoever was refused has used nothing.
            if self._is_write and status_code < 400:
                note()
            return status_code, headers, chunk

    return Noting
