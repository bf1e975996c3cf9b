"""Dependencies between sessions: met, pending, or failed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter

from ..errors import Conflict, InvalidRequest
from ..user_input import shown
from .end_reason import EndReason
from .lifecycle import ENDED, Result, Status

MAX_DEPENDENCIES = 100


@dataclass(frozen=True, slots=True)
class Dependency:
    """The current state of a session that another one depends on."""

    id: str
    name: str
    status: Status
    result: str

    @property
    def is_met(self) -> bool:
        return self.status is Status.TERMINATED and self.result == Result.SUCCESS

    @property
    def is_failed(self) -> bool:
        """Return whether it ended without success, so that its dependents can never start."""
        return self.status in ENDED and not self.is_met

    @property
    def end(self) -> str:
        """Return how it ended as text for users: ``TERMINATED with failure``."""
        if self.status is Status.TERMINATED:
            return f"{self.status} with {self.result}"
        return str(self.status)


def refuse_cycles(items: Mapping[str, Sequence[str]]) -> None:
    """Check that sessions created together, by name with their dependencies, have no cycle.

    Names that are not keys are sessions outside.

    Raises
    ------
    InvalidRequest
        If there is a cycle, naming it.
    """
    sorter = TopologicalSorter(
        {name: [other for other in after if other in items] for name, after in items.items()}
    )
    try:
        sorter.prepare()
    except CycleError as error:
        circle = [shown(name) for name in reversed(error.args[1])]
        raise InvalidRequest(
            f"these sessions would wait for each other for ever: {' -> '.join(circle)}",
            field="dependencies",
            circle=circle,
        ) from None


def refuse_failed(dependencies: Sequence[Dependency]) -> None:
    """Raise ``Conflict`` if one of them has ended without success."""
    failed = [d for d in dependencies if d.is_failed]
    if failed:
        names = ", ".join(f"{d.name} ({d.end})" for d in failed)
        raise Conflict(
            f"depends on sessions that ended without success: {names}; a session starts only "
            "after the success of all its dependencies",
            dependencies=[d.id for d in failed],
        )


def failure_reason(dependency: Dependency) -> str:
    """Return the end reason of a session whose dependency failed."""
    return EndReason.DEPENDENCY_FAILED.explained(
        f"session {dependency.name} it depends on is {dependency.end}"
    )


def waiting_text(dependencies: Sequence[Dependency]) -> str:
    """Return which dependencies a session waits for; empty when all are met."""
    left = [f"{d.name} ({d.status})" for d in dependencies if not d.is_met]
    if not left:
        return ""
    more = f" and {len(left) - 5} more" if len(left) > 5 else ""
    return f"waits for the success of {', '.join(left[:5])}{more}"
