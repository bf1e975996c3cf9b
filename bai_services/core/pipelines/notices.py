"""Notifications about runs, for the user who started the run.

The sessions of task runs raise no events of their own: a run can have 1,000 of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

from ..notifications.events import Event, approval_requested, run_ended
from .requests import RUN_VARIABLE
from .states import RunStatus, TaskRun, TaskStatus

_REPORTED = (RunStatus.SUCCEEDED, RunStatus.FAILED)


@dataclass(frozen=True, slots=True)
class RunNotices:
    """The run and the user who started it; ``domain``: domain of the pipeline's project."""

    run_id: str
    owner_id: str
    domain: str
    pipeline: str

    def of_step(
        self, before: RunStatus, after: RunStatus, changed: Iterable[TaskRun], at: datetime
    ) -> Iterator[Event]:
        """Yield the events of a step that has changed task runs and the status of the run.

        The end of a cancelled run is not reported, because a user requested it.
        """
        run = (self.run_id, at, self.owner_id, self.domain, self.pipeline)
        for each in changed:
            if each.status is TaskStatus.APPROVAL:
                yield approval_requested(*run, each.task)
        if after is not before and after in _REPORTED:
            yield run_ended(*run, has_succeeded=after is RunStatus.SUCCEEDED)


def is_of_run(environ: Mapping[str, str]) -> bool:
    """Return whether a session with these variables was created for a task run."""
    return RUN_VARIABLE in environ
