"""The running sessions of a group that can be preempted, as columns."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from ....cluster.devices import thousandths
from ....resources import CPU as CPU_SLOT
from ....resources import MEM as MEM_SLOT
from ...preemption.rules import Rank
from ..model import RunningSession

Ints = NDArray[np.int64]

# Columns; a row is a session on one agent. SESSION, AGENT, RANK: positions in the lists of
# ``Candidates``. CPU, MEM, DEVICES (thousandths): usage of the session on the agent. STARTED: Unix
# time in microseconds. SIZE: usage on all agents, to compare sessions. TIE: hash of the id, which
# orders otherwise equal sessions independently of the order of additions.
SESSION, AGENT, RANK, CPU, MEM, DEVICES, STARTED, SIZE, TIE = range(9)
_WIDTH = 9
_GONE = -1
_ROWS = 64
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = datetime.resolution
# Minimum number of positions in the lists of a table that is rebuilt; see ``is_worn``.
_MAX_UNUSED = 4096


class Candidates:
    """Running sessions that may be preempted; updated when sessions start and end."""

    def __init__(self, running: Iterable[RunningSession]) -> None:
        self._facts: Ints = np.full((_ROWS, _WIDTH), _GONE, np.int64)
        self._free = list(range(_ROWS))
        self._rows_of: dict[str, list[int]] = {}
        # Entries remain when sessions are removed, because rows contain positions in these lists.
        self.sessions: list[RunningSession] = []
        self.ranks: list[Rank] = []
        self.agents: list[str] = []
        self._rank_numbers: dict[Rank, int] = {}
        self._agent_numbers: dict[str, int] = {}
        for session in running:
            self.add(session)

    @property
    def is_worn(self) -> bool:
        """Whether most positions in the lists are unused, so that the table should be rebuilt."""
        used = len(self.sessions) + len(self.ranks) + len(self.agents)
        return used > 4 * len(self._rows_of) + _MAX_UNUSED

    def add(self, session: RunningSession) -> None:
        """Add a session, if it is running and may be preempted."""
        self.remove(session.id)
        if not (session.is_running and session.is_preemptible):
            return
        number = len(self.sessions)
        self.sessions.append(session)
        rank = self._rank_number(Rank(session.priority, session.job_priority, session.scopes))
        used: dict[str, list[int]] = {}
        for placement in session.placements:
            amounts = used.setdefault(placement.agent_id, [0, 0, 0])
            amounts[0] += placement.slots.get(CPU_SLOT, 0)
            amounts[1] += placement.slots.get(MEM_SLOT, 0)
            amounts[2] += sum(thousandths(d.slot, d.amount) for d in placement.devices)
        # Devices dominate: any share of a device counts more than any amount of cpu.
        size = sum(devices * 10**9 + cpu for cpu, _, devices in used.values())
        started = microseconds(session.started_at)
        tie = crc32(session.id.encode())
        rows = self._rows_of[session.id] = []
        for agent_id, amounts in used.items():
            if not self._free:
                self._grow()
            row = self._free.pop()
            rows.append(row)
            agent = self._agent_number(agent_id)
            self._facts[row] = (number, agent, rank, *amounts, started, size, tie)

    def remove(self, session_id: str) -> None:
        for row in self._rows_of.pop(session_id, ()):
            self._facts[row] = _GONE
            self._free.append(row)

    def numbers_of(self, session_ids: Iterable[str]) -> list[int]:
        """Return the positions of the given sessions; skip sessions that are not in the table."""
        rows = [row for key in session_ids for row in self._rows_of.get(key, ())]
        return sorted({int(n) for n in self._facts[rows, SESSION]}) if rows else []

    def rows(self) -> Ints:
        """Return a copy of the rows of all sessions."""
        rows: Ints = self._facts[self._facts[:, SESSION] != _GONE]
        return rows

    def _grow(self) -> None:
        height = len(self._facts)
        self._facts = np.concatenate([self._facts, np.full_like(self._facts, _GONE)])
        self._free = list(range(height, 2 * height))

    def _rank_number(self, rank: Rank) -> int:
        number = self._rank_numbers.setdefault(rank, len(self.ranks))
        if number == len(self.ranks):
            self.ranks.append(rank)
        return number

    def _agent_number(self, agent_id: str) -> int:
        number = self._agent_numbers.setdefault(agent_id, len(self.agents))
        if number == len(self.agents):
            self.agents.append(agent_id)
        return number


def microseconds(at: datetime) -> int:
    """Return a time in the unit of the column STARTED."""
    return (at - _EPOCH) // _MICROSECOND
