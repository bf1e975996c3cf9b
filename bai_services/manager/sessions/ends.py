"""Reported ends of sessions: status change, result, and masked output."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from bai_services.core.coded_text import REPORTED_ENDS, CodedText, TextTemplate
from bai_services.core.errors import NotFound
from bai_services.core.sessions.end_reason import EndReason, SessionEnd
from bai_services.core.sessions.kernel_group import MAIN_HOST, kernel_end_text
from bai_services.core.sessions.lifecycle import (
    ENDED,
    Event,
    Result,
    SessionType,
    Status,
    command_end,
    result_of,
)
from bai_services.db.sessions.kernels import KernelStore
from bai_services.db.sessions.rows import SessionRow
from bai_services.db.sessions.store import SessionStore
from bai_services.db.sessions.transitions import Move, TransitionValues

from ..clock import Clock
from .lifecycle import Lifecycle
from .lost_kernels import LostKernels
from .setups import SECRETS_KEPT, SessionSetups

MAX_REASON_CHARACTERS = 1000


class SessionEnds:
    """Records the ends that the Hub's spawner and agents report."""

    def __init__(
        self,
        sessions: SessionStore,
        kernels: KernelStore,
        lifecycle: Lifecycle,
        clock: Clock,
        setups: SessionSetups,
        lost: LostKernels,
    ) -> None:
        self._sessions = sessions
        self._kernels = kernels
        self._lifecycle = lifecycle
        self._clock = clock
        self._setups = setups
        self._lost = lost

    async def record(self, session_id: str, end: SessionEnd) -> SessionRow:
        """Record that all containers of the session have ended; idempotent.

        Raises
        ------
        NotFound
            If the session does not exist.
        """
        rows = await self.record_all({session_id: end})
        if session_id not in rows:
            raise NotFound(f"there is no session {session_id}", session=session_id)
        return rows[session_id]

    async def record_all(self, ends: Mapping[str, SessionEnd]) -> dict[str, SessionRow]:
        """Record that all containers of several sessions have ended; idempotent.

        ``ends`` and the result have session ids as keys. Sessions that do not exist are skipped.
        """
        rows = {row.id: row for row in await self._sessions.rows(sorted(ends))}
        masked = await self._masked(rows, ends)
        moves: list[Move] = []
        for key, end in masked.items():
            if await self._is_of_earlier_run(rows[key]):
                await self._store_earlier_logs(key, end)
                continue
            for hostname, text in sorted(end.sub_logs.items()):
                await self._kernels.store_log(key, text, hostname)
            if rows[key].status in ENDED:
                await self._store_late_log(key, end)
                continue
            rows[key] = await self._lost.requeue_if_fenced(rows[key], end) or rows[key]
            event, reason, result = _map_end(rows[key], end)
            facts = TransitionValues(
                reason=reason, exit_code=end.exit_code, result=result, log=end.log or None
            )
            moves.append(Move(key, event, facts))
        moved = await self._lifecycle.apply_all(moves) if moves else {}
        for move in moves:
            if move.session_id not in moved:
                # The session had already ended: only store its log.
                await self._store_late_log(move.session_id, masked[move.session_id])
                moved[move.session_id] = await self._sessions.find(move.session_id)
        return rows | moved

    async def _masked(
        self, rows: Mapping[str, SessionRow], ends: Mapping[str, SessionEnd]
    ) -> dict[str, SessionEnd]:
        """Mask the secrets in the ends of existing sessions, and limit the texts."""
        texts = {key: (ends[key].text, ends[key].log, *ends[key].sub_logs.values()) for key in rows}
        now = self._clock()
        masked: dict[str, SessionEnd] = {}
        for key, (text, log, *sub_logs) in (await self._setups.mask_all(texts)).items():
            ended_at = rows[key].terminated_at
            if ended_at is not None and now - ended_at >= SECRETS_KEPT:
                # The Hub reports the end after the secrets were removed, so the output cannot be
                # masked.
                masked[key] = replace(ends[key], text="", log="", sub_logs={})
            else:
                masked[key] = replace(
                    ends[key],
                    text=text[:MAX_REASON_CHARACTERS],
                    log=log,
                    sub_logs=dict(zip(ends[key].sub_logs, sub_logs, strict=True)),
                )
        return masked

    async def _store_earlier_logs(self, session_id: str, end: SessionEnd) -> None:
        for hostname, text in sorted(end.sub_logs.items()):
            await self._kernels.store_earlier_log(session_id, text, hostname)
        await self._kernels.store_earlier_log(session_id, end.log or "")

    async def _store_late_log(self, session_id: str, end: SessionEnd) -> None:
        if end.log:
            await self._kernels.store_log(session_id, end.log)

    async def _is_of_earlier_run(self, row: SessionRow) -> bool:
        """Return whether a reported end must belong to the run before a suspension or a preemption.

        The Hub may report that end later than the agent, when the session is already pending again.
        """
        if row.status is Status.SUSPENDED:
            return True
        if row.status in ENDED or row.restart_count == 0 or row.status in _LAUNCHED_ONCE:
            return False
        view = await self._sessions.with_kernels(row.id)
        return all(kernel.launched_at is None for kernel in view.kernels)


_LAUNCHED_ONCE = (Status.RUNNING, Status.TERMINATING)
_BEFORE_PREPARED = (Status.PENDING, Status.SCHEDULED, Status.PREPARING)


def _map_end(row: SessionRow, end: SessionEnd) -> tuple[Event, str | CodedText, Result | None]:
    """Map the reported end of a session to a lifecycle event, a reason and a result."""
    if row.status is Status.RUNNING and end.reason is EndReason.KERNEL_ENDED:
        return Event.EXITED, _text_of(end), Result.FAILURE
    if end.reason is EndReason.STOPPED and row.status in _BEFORE_PREPARED:
        return Event.STOP_REQUESTED, _text_of(end), None
    if end.reason is EndReason.STOPPED and row.status is Status.PREPARED:
        # The user cancelled the start in the Hub.
        return Event.ABORTED, _text_of(end), None
    if row.type == SessionType.BATCH:
        return _map_batch_end(row, end)
    if row.status is Status.TERMINATING:
        # Keep the result that the stop request has stored; a stop by a user stores none.
        return Event.EXITED, _text_of(end), None
    is_replica = row.type == SessionType.INFERENCE and row.cluster_size == 1
    if is_replica and end.reason is EndReason.EXITED and end.exit_code:
        # The main process of a replica ends with the exit code of its command.
        return Event.FAILED, command_end(end.exit_code), Result.FAILURE
    if row.status is not Status.RUNNING:
        return Event.FAILED, _text_of(end), Result.FAILURE
    if end.reason is EndReason.STOPPED:
        return Event.EXITED, _text_of(end), Result.UNDEFINED
    if end.exit_code == 0:
        return Event.EXITED, _text_of(end), Result.SUCCESS
    if row.cluster_size > 1:
        # Use EXITED instead of FAILED, so that the session becomes TERMINATED with the same reason
        # as after a report of the agent (``Kernels._end_kernel_group``).
        return Event.EXITED, kernel_end_text(MAIN_HOST, end.text, end.exit_code), Result.FAILURE
    return Event.FAILED, _text_of(end), Result.FAILURE


def _map_batch_end(
    row: SessionRow, end: SessionEnd
) -> tuple[Event, str | CodedText, Result | None]:
    """Map the end of a batch session; only the exit of its command can be a success."""
    if row.status is Status.TERMINATING:
        # Keep the result that the stop request has stored; a stop by a user stores none.
        return Event.EXITED, _text_of(end), None
    if end.reason is EndReason.STOPPED:
        return Event.EXITED, _text_of(end), Result.UNDEFINED
    # The runner starts the command only after the Hub has registered the server. An exit that was
    # not requested is therefore the exit of the command, even if the session is not RUNNING yet.
    code = end.exit_code
    if code is None or (row.status is not Status.RUNNING and end.reason is not EndReason.EXITED):
        return Event.FAILED, _text_of(end), Result.FAILURE
    if code and end.text == TextTemplate.OUT_OF_MEMORY.value:
        return Event.EXITED, _text_of(end), Result.FAILURE
    is_plain = end.reason is EndReason.EXITED
    reason = command_end(code) if is_plain else f"{end.text}; {command_end(code)}"
    return Event.EXITED, reason, result_of(code)


_REPORTED = {template.value: template.text() for template in REPORTED_ENDS}


def _text_of(end: SessionEnd) -> str | CodedText:
    """Return the reason of a reported end: a coded text if the text is one of ``REPORTED_ENDS``."""
    if end.reason is EndReason.BOOTSTRAP_FAILED:
        return TextTemplate.BOOTSTRAP_FAILED.text(message=end.text)
    return _REPORTED.get(end.text, end.text)
