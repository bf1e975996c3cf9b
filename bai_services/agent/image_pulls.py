"""Execution of pulls: work items that pull an image before the first session needs it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bai_services.core.cluster.image_store import RegistryAuth, read_auth
from bai_services.core.errors import BaiError, InvalidRequest, NotFound

from .engine import Engine
from .link import Link

log = logging.getLogger(__name__)

PULL = "pull"
REPORT_INTERVAL_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class PullTask:
    """A pull of an image; a ``digest`` selects exactly that version of the image."""

    id: str
    image: str
    digest: str
    auth: RegistryAuth | None = None

    @classmethod
    def from_json(cls, item: Mapping[str, Any]) -> PullTask:
        """Parse a work item.

        Raises
        ------
        InvalidRequest
            If a field is missing.
        """
        try:
            digest = str(item.get("digest") or "")
            return cls(str(item["id"]), str(item["image"]), digest, read_auth(item))
        except KeyError as error:
            raise InvalidRequest(f"a work item cannot be parsed: {error!r}") from error

    def to_report(self, state: str, **facts: Any) -> dict[str, Any]:
        return {"work_id": self.id, "kind": PULL, "state": state, **facts}


class PullExecutor:
    """Pulls images, reports the progress, and stops a pull that the manager has cancelled."""

    def __init__(self, link: Link, engine: Engine) -> None:
        self._link = link
        self._engine = engine
        # A second large pull would only delay the first one.
        self._turn = asyncio.Lock()

    async def execute(self, task: PullTask) -> None:
        """Execute one pull and report its result; raises only if it is cancelled."""
        async with self._turn:
            percent: list[int | None] = [None]

            def report(stage: str, message: str, now: int | None) -> None:
                percent[0] = now

            pull = asyncio.create_task(
                self._engine.pull_image(task.image, task.digest, report, task.auth), name=task.id
            )
            try:
                while not pull.done():
                    if not await self._is_wanted(task, percent[0]):
                        log.info("the pull of %s was cancelled", task.image)
                        return
                    await asyncio.wait([pull], timeout=REPORT_INTERVAL_SECONDS)
                await self._link.deliver(_result(task, pull))
            finally:
                pull.cancel()
                await asyncio.gather(pull, return_exceptions=True)

    async def _is_wanted(self, task: PullTask, percent: int | None) -> bool:
        """Report the progress; return False if the manager has cancelled the pull."""
        try:
            await self._link.report_or_raise(
                task.to_report("progress", progress={"percent": percent})
            )
        except NotFound:
            return False
        except BaiError as error:
            log.info("a report on %s was lost: %s", task.id, error)
        return True


def _result(task: PullTask, pull: asyncio.Task[Mapping[str, Any]]) -> dict[str, Any]:
    error = pull.exception()
    if error is None:
        return task.to_report("done", image=dict(pull.result()))
    if not isinstance(error, BaiError):
        log.error("the pull of %s failed", task.image, exc_info=error)
        error = BaiError("internal error of the agent; see the agent's log")
    return task.to_report("failed", error={"code": error.code, "message": error.message})
