"""Dependencies between sessions: their state, cycles, and messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter

from ..coded_text import CodedText, TextTemplate
from ..errors import Conflict, InvalidRequest
from ..user_input import shown
from .lifecycle import ENDED, Result, Status

MAX_DEPENDENCIES = 100


@dataclass(frozen=True, slots=True)
class Dependency:
    """Current state of a session on which another session depends."""

    id: str
    name: str
    status: Status
    result: str

    @property
    def is_met(self) -> bool:
        return self.status is Status.TERMINATED and self.result == Result.SUCCESS

    @property
    def is_failed(self) -> bool:
        """Whether the session ended without success, so that dependent sessions can never start."""
        return self.status in ENDED and not self.is_met

    @property
    def end(self) -> str:
        """The end of the session as text for users: ``TERMINATED with failure``."""
        if self.status is Status.TERMINATED:
            return f"{self.status} with {self.result}"
        return str(self.status)


def check_no_cycles(dependencies: Mapping[str, Sequence[str]]) -> None:
    """Check that sessions created together have no cyclic dependencies.

    ``dependencies`` maps the name of each session to the names of its dependencies. Names of
    existing sessions are not keys.

    Raises
    ------
    InvalidRequest
        If there is a cycle; the message names its sessions.
    """
    sorter = TopologicalSorter(
        {
            name: [other for other in names if other in dependencies]
            for name, names in dependencies.items()
        }
    )
    try:
        sorter.prepare()
    except CycleError as error:
        cycle = [shown(name) for name in reversed(error.args[1])]
        raise InvalidRequest(
            f"these sessions depend on each other: {' -> '.join(cycle)}",
            field="dependencies",
            circle=cycle,
        ) from None


def check_none_failed(dependencies: Sequence[Dependency]) -> None:
    """Raise ``Conflict`` if a dependency has ended without success."""
    failed = [d for d in dependencies if d.is_failed]
    if failed:
        names = ", ".join(f"{d.name} ({d.end})" for d in failed)
        raise Conflict(
            f"the session depends on sessions that ended without success: {names}; it can start "
            "only after the success of all its dependencies",
            field="dependencies",
            dependencies=[d.id for d in failed],
        )


def failure_reason(dependency: Dependency) -> CodedText:
    """Return the end reason of a session after the failure of ``dependency``."""
    if dependency.status is not Status.TERMINATED:
        return TextTemplate.DEPENDENCY_ENDED.text(
            name=dependency.name, status=str(dependency.status)
        )
    if dependency.result == Result.FAILURE:
        return TextTemplate.DEPENDENCY_FAILED.text(name=dependency.name)
    return TextTemplate.DEPENDENCY_STOPPED.text(name=dependency.name)


def unmet_dependencies_text(dependencies: Sequence[Dependency]) -> CodedText | None:
    """Return a text that names up to five unmet dependencies; None if all are met."""
    unmet = [
        TextTemplate.SESSION_IN_STATUS.text(name=d.name, status=str(d.status))
        for d in dependencies
        if not d.is_met
    ]
    if not unmet:
        return None
    named, more = unmet[:5], len(unmet[5:])
    if more:
        return TextTemplate.MORE_DEPENDENCIES_UNMET.text(*named, more=more)
    return TextTemplate.DEPENDENCIES_UNMET.text(*named)
