"""Execution of pulls: work items that pull an image before the first session needs it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any

from bai_services import tracing
from bai_services.core.cluster.image_store import RegistryAuth, read_auth
from bai_services.core.errors import BaiError, InvalidRequest, NotFound
from bai_services.span_content import Attribute, Span

from .engine import Engine, ReportProgress
from .link import Link

log = logging.getLogger(__name__)

PULL, PRUNE, SBOM = "pull", "prune", "sbom"
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
        # One pull at a time, because a second large pull would only delay the first.
        self._turn = asyncio.Lock()

    async def execute(self, task: PullTask) -> None:
        """Execute one pull and report its result; raises only if it is cancelled."""
        async with self._turn:
            await run_with_reports(
                self._link,
                lambda report: self._engine.pull_image(task.image, task.digest, report, task.auth),
                task.to_report,
                f"pull of {task.image}",
                {"bai.work.kind": PULL, "bai.image": task.image},
            )


async def run_with_reports(
    link: Link,
    start: Callable[[ReportProgress], Coroutine[Any, Any, Mapping[str, Any]]],
    to_report: Callable[..., dict[str, Any]],
    what: str,
    attributes: Mapping[str, Attribute],
) -> None:
    """Run long work on an image, and report its progress and result to the manager.

    The work is cancelled when the manager no longer wants it. ``to_report`` returns the report with
    a state and facts. ``attributes``: attributes of the span that records the work.
    """
    with tracing.span(f"agent {attributes['bai.work.kind']}", attributes=attributes) as span:
        await _run(link, start, to_report, what, span)


async def _run(
    link: Link,
    start: Callable[[ReportProgress], Coroutine[Any, Any, Mapping[str, Any]]],
    to_report: Callable[..., dict[str, Any]],
    what: str,
    span: Span,
) -> None:
    latest: dict[str, Any] = {"percent": None}

    def progress(stage: str, _: str, percent: int | None) -> None:
        latest.update(stage=stage, percent=percent)

    async def is_wanted() -> bool:
        try:
            await link.report_or_raise(to_report("progress", progress=dict(latest)))
        except NotFound:
            return False
        except BaiError as error:
            log.info("a report on the %s was lost: %s", what, error)
        return True

    work = asyncio.create_task(start(progress), name=what)
    try:
        while not work.done():
            if not await is_wanted():
                log.info("the %s was cancelled", what)
                span.set({"bai.cancelled": True})
                return
            await asyncio.wait([work], timeout=REPORT_INTERVAL_SECONDS)
        result = _result(work, to_report, what)
        if "error" in result:
            span.fail(result["error"]["message"], result["error"]["code"])
        await link.deliver(result)
    finally:
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)


def _result(
    work: asyncio.Task[Mapping[str, Any]], to_report: Callable[..., dict[str, Any]], what: str
) -> dict[str, Any]:
    error = work.exception()
    if error is None:
        return to_report("done", image=dict(work.result()))
    if not isinstance(error, BaiError):
        log.error("the %s failed", what, exc_info=error)
        error = BaiError("internal error of the agent; see the agent's log")
    return to_report("failed", error={"code": error.code, "message": error.message})
