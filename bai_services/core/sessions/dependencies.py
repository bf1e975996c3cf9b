"""Which sessions wait for which: met, still open, or in vain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter

from ..errors import Conflict, InvalidRequest
from ..user_input import shown
from .lifecycle import ENDED, Result, Status

MAX_DEPENDENCIES = 100
# How the reason of a session begins that was cancelled because of another one.
FAILED = "DEPENDENCY_FAILED"


@dataclass(frozen=True, slots=True)
class Dependency:
    """A session that another one waits for, as it is now."""

    id: str
    name: str
    status: Status
    result: str

    @property
    def is_met(self) -> bool:
        return self.status is Status.TERMINATED and self.result == Result.SUCCESS

    @property
    def is_failed(self) -> bool:
        """Return whether it ended, but not with success: whoever waits for it waits in vain."""
        return self.status in ENDED and not self.is_met

    @property
    def end(self) -> str:
        """Return how it ended, for people: ``TERMINATED with failure``."""
        if self.status is Status.TERMINATED:
            return f"{self.status} with {self.result}"
        return str(self.status)


def refuse_circles(items: Mapping[str, Sequence[str]]) -> None:
    """Check that sessions filed together, by name with what each depends on, can all start.

    Names that are no key are sessions outside.

    Raises
    ------
    InvalidRequest
        If some wait for each other in a circle, naming it.
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
            f"depends on what has ended without success: {names}; a session starts only after the "
            "success of all that it depends on",
            dependencies=[d.id for d in failed],
        )


def failure_reason(dependency: Dependency) -> str:
    """Return why a session is cancelled whose dependency failed."""
    return f"{FAILED}: session {dependency.name} it depends on is {dependency.end}"


def waiting_text(dependencies: Sequence[Dependency]) -> str:
    """Return what a session waits for; empty when all are met."""
    left = [f"{d.name} ({d.status})" for d in dependencies if not d.is_met]
    if not left:
        return ""
    more = f" and {len(left) - 5} more" if len(left) > 5 else ""
    return f"waits for the success of {', '.join(left[:5])}{more}"
