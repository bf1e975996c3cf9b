"""Execution of commits: work items that make an image from a session."""

from __future__ import annotations

import asyncio
from typing import Any

from bai_services.core.cluster.custom_images import CommitRequest

from .engine import Engine
from .image_pulls import run_with_reports
from .link import Link

COMMIT = "commit"
# The removal of an image whose commit was cancelled, or whose custom image was deleted.
DISCARD = "discard"


class CommitExecutor:
    """Commits sessions and reports the progress; stops a commit that the manager has cancelled."""

    def __init__(self, link: Link, engine: Engine) -> None:
        self._link = link
        self._engine = engine
        # A second commit would only delay the first one.
        self._turn = asyncio.Lock()

    async def execute(self, request: CommitRequest) -> None:
        """Execute one commit and report its result; raises only if it is cancelled."""

        def report(state: str, **facts: Any) -> dict[str, Any]:
            ids = {"session_id": request.session_id, "kernel_id": request.kernel_id}
            return {"work_id": request.id, "kind": COMMIT, "state": state, **ids, **facts}

        async with self._turn:
            await run_with_reports(
                self._link,
                lambda progress: self._engine.commit(request, progress),
                report,
                f"commit of session {request.session_id}",
                {
                    "bai.work.kind": COMMIT,
                    "bai.session.id": request.session_id,
                    "bai.kernel.id": request.kernel_id,
                },
            )
