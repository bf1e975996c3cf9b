"""Spans of work items that do not belong to the start of a session: pulls, commits, logs."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest
from opentelemetry.trace import StatusCode

from bai_services.agent.commits import CommitExecutor
from bai_services.agent.image_pulls import PullExecutor, PullTask
from bai_services.agent.kernels import Task
from bai_services.agent.link import Link
from bai_services.core.cluster.custom_images import CommitRequest
from bai_services.core.errors import NotFound, Unavailable
from tests.agent.test_work_order import Recorder
from tests.testbed.recorded_spans import recording_spans


class Engine:
    """Completes each operation on an image at once, or raises an error."""

    def __init__(self, error: Exception | None) -> None:
        self._error = error

    async def pull_image(self, *_: Any) -> Mapping[str, Any]:
        if self._error is not None:
            raise self._error
        return {}

    commit = pull_image


def link_that(is_wanted: bool = True) -> Link:
    async def report_or_raise(report: Any) -> None:
        if not is_wanted:
            raise NotFound("cancelled")

    async def deliver(report: Any) -> None:
        pass

    return cast("Link", SimpleNamespace(report_or_raise=report_or_raise, deliver=deliver))


@pytest.mark.parametrize("error", [None, Unavailable("the registry does not respond")])
async def test_pull_is_a_span(error: Exception | None) -> None:
    with recording_spans() as spans:
        pulls = PullExecutor(link_that(), cast("Any", Engine(error)))
        await pulls.execute(PullTask("pull-1", "team/py:1", ""))
        span = spans.only("agent pull")
    attributes = dict(span.attributes or {})
    assert attributes.pop("error.type", "") == ("unavailable" if error else "")
    assert attributes == {"bai.work.kind": "pull", "bai.image": "team/py:1"}
    assert span.status.status_code is (StatusCode.ERROR if error else StatusCode.UNSET)


async def test_cancelled_commit_is_a_span_that_says_so() -> None:
    request = CommitRequest("commit-1", str(uuid.uuid4()), str(uuid.uuid4()), "team/py:1")
    with recording_spans() as spans:
        commits = CommitExecutor(link_that(is_wanted=False), cast("Any", Engine(None)))
        await commits.execute(request)
        span = spans.only("agent commit")
    assert dict(span.attributes or {}) == {
        "bai.work.kind": "commit",
        "bai.session.id": request.session_id,
        "bai.kernel.id": request.kernel_id,
        "bai.cancelled": True,
    }


class LogReader(Recorder):
    """Returns a log, or raises an error."""

    async def _log(self, task: Task) -> dict[str, Any]:
        if task.user:
            raise Unavailable(f"the log of {task.user} cannot be read")
        return {"log": ""}


async def test_only_a_failed_log_is_a_span() -> None:
    with recording_spans() as spans:
        reader, ids = LogReader(), (str(uuid.uuid4()), str(uuid.uuid4()))
        await reader.execute(Task("log-1", "logs", *ids))
        assert spans.named("agent logs") == []
        await reader.execute(Task("log-2", "logs", *ids, user="ann"))
        span = spans.only("agent logs")
    assert span.status.description == "the log of [user] cannot be read"
    assert dict(span.attributes or {})["bai.session.id"] == ids[0]
