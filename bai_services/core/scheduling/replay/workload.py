"""A recorded workload: jobs with their times, agents, and rows that could not be read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...errors import InvalidRequest
from ...resources import ResourceSlots
from ...user_input import read_whole, shown
from ..placement import AgentState, Mode, Request

GROUP = "replay"
ARCHITECTURE = "x86_64"
ENGINE = "docker"

# Maximum number of invalid rows that the message lists.
_MAX_NAMED = 10


@dataclass(frozen=True, slots=True)
class Job:
    """A recorded session. Times are in seconds from the origin of the record.

    ``slots`` are the resources of one kernel. ``seconds`` is the run time, ``limit`` the maximum
    run time; None: no limit. The job enters the queue at the later of ``submitted`` and
    ``not_before``. It leaves the queue at ``cancelled`` if it has not started by then. ``request``
    is the placement request; None: derived from the other fields.
    """

    id: str
    submitted: int
    seconds: int
    slots: ResourceSlots
    user: str = ""
    project: str = ""
    domain: str = ""
    kernels: int = 1
    mode: Mode = Mode.SINGLE_NODE
    limit: int | None = None
    priority: int | None = None
    kind: str = ""
    device_models: tuple[str, ...] = ()
    architecture: str = ARCHITECTURE
    keypair: str = ""
    not_before: int | None = None
    cancelled: int | None = None
    request: Request | None = None
    job_priority: int = 0
    is_preemptible: bool = True

    @property
    def ready(self) -> int:
        """The second from which the job can start."""
        return self.submitted if self.not_before is None else max(self.submitted, self.not_before)


@dataclass(frozen=True, slots=True)
class InvalidRow:
    """Position of a row that cannot be read, and the error."""

    file: str
    row: int
    column: str
    message: str

    def __str__(self) -> str:
        return f"{self.file}, row {self.row}, column {self.column}: {self.message}"


class RowError(Exception):
    """A value of a row is invalid for its column."""

    def __init__(self, column: str, message: str) -> None:
        super().__init__(message)
        self.column = column


@dataclass(frozen=True, slots=True)
class Workload:
    """The content of a record.

    ``agents`` is empty if the record has no agents. ``skipped`` counts, by reason, the valid rows
    that are not replayed.
    """

    jobs: tuple[Job, ...]
    agents: tuple[AgentState, ...] = ()
    invalid_rows: tuple[InvalidRow, ...] = ()
    skipped: Mapping[str, int] | None = None


def check_new(column: str, name: str, known: set[str]) -> None:
    """Add a name to ``known``; raise ``RowError`` for a duplicate."""
    if name in known:
        raise RowError(column, f"duplicate {shown(name)!r}")
    known.add(name)


def whole(row: Mapping[str, str | None], column: str, least: int = 0) -> int:
    """Return a column as a whole number.

    Raises
    ------
    RowError
        If the value is not a whole number from ``least`` to 2**53 - 1.
    """
    text = (row.get(column) or "").strip()
    number = read_whole(text.removeprefix("-"))
    if number is None:
        raise RowError(column, f"{shown(text)!r} is not a whole number")
    if text.startswith("-"):
        number = -number
    if not least <= number < 2**53:
        raise RowError(column, f"{number} is not a whole number from {least} to {2**53 - 1}")
    return number


def reject_invalid_rows(invalid_rows: Sequence[InvalidRow]) -> None:
    """Reject a file with invalid rows.

    Raises
    ------
    InvalidRequest
        If ``invalid_rows`` is not empty; the message contains the first rows.
    """
    if not invalid_rows:
        return
    named = "; ".join(map(str, invalid_rows[:_MAX_NAMED]))
    more = len(invalid_rows) - _MAX_NAMED
    rest = f"; and {more} more" if more > 0 else ""
    rows = "row" if len(invalid_rows) == 1 else "rows"
    raise InvalidRequest(
        f"{len(invalid_rows)} invalid {rows}: {named}{rest}. "
        "Correct the file, or skip such rows with --skip-broken",
        rows=[{"row": b.row, "column": b.column, "message": b.message} for b in invalid_rows],
    )
