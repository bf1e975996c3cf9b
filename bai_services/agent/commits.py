"""Execution of commits: work items that make an image from a session."""

from __future__ import annotations

import asyncio
from typing import Any

from bai_services.core.cluster.custom_images import CommitRequest
from bai_services.core.cluster.recipes import MAX_LOG_CHARACTERS

from .engine import Engine, ReportProgress
from .image_pulls import run_with_reports
from .link import Link

COMMIT = "commit"
# Kind of the work item that removes an image whose commit was cancelled, or whose custom image was
# deleted.
DISCARD = "discard"
# Stage of a progress report that contains output of a build.
OUTPUT = "output"
MAX_BUILDS = 2


class CommitExecutor:
    """Commits sessions, builds recipes, and reports the progress; stops work that the manager has
    cancelled.
    """

    def __init__(self, link: Link, engine: Engine) -> None:
        self._link = link
        self._engine = engine
        # One commit at a time, because a second one would only delay the first.
        self._turn = asyncio.Semaphore(1)
        # Builds have a separate limit, because a build takes much longer than a commit.
        self._build_turn = asyncio.Semaphore(MAX_BUILDS)

    async def execute(self, request: CommitRequest) -> None:
        """Execute one commit and report its result; raises only if it is cancelled."""

        log, reported = "", ""

        def report(state: str, **facts: Any) -> dict[str, Any]:
            nonlocal reported
            ids = {"session_id": request.session_id, "kernel_id": request.kernel_id}
            if log != reported or (log and state != "progress"):
                facts["log"] = reported = log
            return {"work_id": request.id, "kind": COMMIT, "state": state, **ids, **facts}

        def with_output(progress: ReportProgress) -> ReportProgress:
            def receive(stage: str, text: str, percent: int | None) -> None:
                nonlocal log
                if stage == OUTPUT:
                    log = (log + text)[-MAX_LOG_CHARACTERS:]
                else:
                    progress(stage, text, percent)

            return receive

        async with self._build_turn if request.recipe else self._turn:
            await run_with_reports(
                self._link,
                lambda progress: self._engine.commit(request, with_output(progress)),
                report,
                f"commit of session {request.session_id}",
                {
                    "bai.work.kind": COMMIT,
                    "bai.session.id": request.session_id,
                    "bai.kernel.id": request.kernel_id,
                },
            )
