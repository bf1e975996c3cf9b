"""Queue of runs that serves the users in turn."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Generic, Protocol, TypeVar


class Queued(Protocol):
    """A run in the queue. Its cost is ``task_count``, its number of task runs."""

    @property
    def id(self) -> str: ...

    @property
    def owner_id(self) -> str: ...

    @property
    def task_count(self) -> int: ...


R = TypeVar("R", bound=Queued)


class FairQueue(Generic[R]):
    """Queue that takes one run per user in turn, so that users with many runs do not delay others.

    The runs of a user are taken in the order in which they were added.
    """

    def __init__(self) -> None:
        self._runs: OrderedDict[str, OrderedDict[str, R]] = OrderedDict()

    def __len__(self) -> int:
        return sum(map(len, self._runs.values()))

    def add(self, run: R) -> None:
        """Add a run; a run that is already in the queue keeps its position."""
        self._runs.setdefault(run.owner_id, OrderedDict()).setdefault(run.id, run)

    def take(self, max_runs: int, max_tasks: int) -> Sequence[R]:
        """Remove and return the next runs with at most ``max_tasks`` task runs in total; the first
        run may have more.
        """
        taken: list[R] = []
        tasks = 0
        while self._runs and len(taken) < max_runs:
            owner_id, runs = next(iter(self._runs.items()))
            run = next(iter(runs.values()))
            tasks += run.task_count
            if taken and tasks > max_tasks:
                break
            del runs[run.id]
            taken.append(run)
            if runs:
                self._runs.move_to_end(owner_id)
            else:
                del self._runs[owner_id]
        return taken
