"""Kernels: dispatch work to agents and process their reports and heartbeats."""

from __future__ import annotations

import asyncio
import uuid
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Protocol

from bai_services import tracing
from bai_services.core.cluster.devices import is_device_slot, thousandths
from bai_services.core.coded_text import TextTemplate
from bai_services.core.errors import (
    BaiError,
    Conflict,
    Forbidden,
    InvalidRequest,
    NotFound,
    Unavailable,
)
from bai_services.core.sessions.agent_launch import BY_AGENT, runs_on_agent
from bai_services.core.sessions.kernel_group import MAIN
from bai_services.core.sessions.lifecycle import (
    ENDED,
    Event,
    Result,
    Status,
    command_end,
    result_of,
)
from bai_services.db.sessions.kernels import KernelState, KernelStore, KernelWork
from bai_services.db.sessions.rows import KernelRow, SessionKernels, SessionRow, SessionView
from bai_services.db.sessions.store import SessionStore
from bai_services.db.sessions.transitions import Move, TransitionValues

from ..clock import Clock
from ..cluster.pull_secrets import PullSecrets
from . import session_spans
from .agent_launches import KINDS, AgentLaunches
from .batch import command_exit, memory_end
from .kernel_group import cluster_of
from .kernel_resizes import KernelResizes
from .launch import LaunchPlans
from .lifecycle import PROGRESS, Lifecycle
from .lost_kernels import LostKernels
from .setups import SessionSetups
from .usage.sampling import UsageSampling

# A work item without a report from its agent is sent again after this time.
RESEND_AFTER = timedelta(seconds=5)
# After a status change of a session, missing and ended kernels are ignored for this time: the agent
# may have sent the heartbeat before the kernel started. The end of a batch command is not ignored.
MIN_AGE = timedelta(seconds=15)
# Time until the removal of a reported kernel is requested if its session is ending, has ended, is
# unknown or is on another agent. Normally, the Hub removes it earlier.
REMOVAL_GRACE = timedelta(seconds=20)
MAX_MISSED_HEARTBEATS = 2
MAX_REASON_CHARACTERS = 500
LOG_TIMEOUT_SECONDS = 8.0


@dataclass(slots=True)
class _AgentWork:
    """State of one agent in memory; a restarted manager rebuilds it from the agent's reports."""

    work_available: asyncio.Event = field(default_factory=asyncio.Event)
    sent_at: dict[str, datetime] = field(default_factory=dict)
    removals: dict[str, str] = field(default_factory=dict)  # kernel id -> session id
    # Kernels in ``removals`` whose home must be kept.
    kept_homes: set[str] = field(default_factory=set)
    unexpected_since: dict[str, datetime] = field(default_factory=dict)
    missed: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    logs: dict[str, tuple[KernelRow, asyncio.Future[str]]] = field(default_factory=dict)


class WorkSource(Protocol):
    """Source of work items with ``id`` and ``kind``; an item is sent until its agent reports it."""

    async def work_items(self, agent_id: str) -> list[dict[str, Any]]: ...


class Kernels:
    """Derives work for agents from the database, and status changes from their reports."""

    def __init__(
        self,
        store: KernelStore,
        sessions: SessionStore,
        lifecycle: Lifecycle,
        plans: LaunchPlans,
        usage_sampling: UsageSampling,
        resizes: KernelResizes,
        clock: Clock,
        *,
        setups: SessionSetups,
        pull_secrets: PullSecrets,
        launches: AgentLaunches,
        lost: LostKernels,
    ) -> None:
        self._launches = launches
        self._lost = lost
        self._pull_secrets = pull_secrets
        self._setups = setups
        self._store = store
        self._resizes = resizes
        self._sessions = sessions
        self._lifecycle = lifecycle
        self._plans = plans
        self._usage_sampling = usage_sampling
        self._clock = clock
        self._agents: dict[str, _AgentWork] = defaultdict(_AgentWork)
        self._sources: list[WorkSource] = []
        # By ending session: ids of its kernels that agents have already removed.
        self._removed_kernels: dict[str, set[str]] = defaultdict(set)
        lifecycle.listen(self._on_change)

    async def work(self, agent_id: str, wait_seconds: float) -> list[dict[str, Any]]:
        """Return the current work of an agent (long poll of at most ``wait_seconds``).

        Sessions that the work prepares change from SCHEDULED to PREPARING.
        """
        agent = self._agents[agent_id]
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait_seconds
        while True:
            agent.work_available.clear()
            items = await self._work_items(agent_id, agent)
            remaining_seconds = deadline - loop.time()
            if items or remaining_seconds <= 0:
                return items
            try:
                async with asyncio.timeout(min(remaining_seconds, RESEND_AFTER.total_seconds())):
                    await agent.work_available.wait()
            except TimeoutError:
                pass

    def add_source(self, source: WorkSource) -> None:
        """Add a source of work items that do not belong to a session."""
        self._sources.append(source)

    def wake(self, agent_ids: Iterable[str]) -> None:
        """Make the polls of agents check for work items now."""
        for agent_id in agent_ids:
            self._agents[agent_id].work_available.set()

    async def report(
        self, agent_id: str, reports: Sequence[Mapping[str, Any]]
    ) -> list[bool | BaiError]:
        """Process reports on work items; outdated reports are ignored.

        The result has one element for each report. True: the agent may remove the kernel, because
        its session has ended. NotFound: the session is not on that agent. InvalidRequest: the kind
        of work or the state is unknown.
        """
        results: list[bool | BaiError] = [False] * len(reports)
        for numbers in _rounds(reports):
            prepared, launched = [], []
            for number in numbers:
                try:
                    kind = await self._receive(agent_id, reports[number])
                except Unavailable:
                    raise  # the agent sends all reports again
                except BaiError as error:
                    results[number] = error
                    continue
                if kind == "prepare":
                    prepared.append(number)
                elif kind in KINDS:
                    launched.append(number)
            for record, chosen in (
                (self._record_preparations, prepared),
                (self._launches.report, launched),
            ):
                if chosen:
                    outcomes = await record(agent_id, [reports[number] for number in chosen])
                    for number, outcome in zip(chosen, outcomes, strict=True):
                        results[number] = outcome
        return results

    async def _receive(self, agent_id: str, report: Mapping[str, Any]) -> str:
        """Check a report, and process it unless its kind is processed in sets; return its kind."""
        kind, state = str(report.get("kind")), report.get("state")
        if state not in ("progress", "done", "failed"):
            raise InvalidRequest(f"state must be progress, done or failed, not {state!r}")
        if earlier_log := report.get("earlier_log"):
            (text,) = await self._setups.mask(str(report.get("session_id")), earlier_log["log"])
            await self._store.store_attempt_log(
                str(report.get("kernel_id")), agent_id, earlier_log["attempt"], text
            )
        if kind == "prepare" or kind in KINDS:
            return kind
        if kind == "logs":
            self._receive_log(agent_id, report)
        elif kind == "resize":
            await self._resizes.receive(agent_id, report, str(state))
        elif kind in ("remove", "stop"):
            # The session can be prepared again, so send a later item with the same id at once.
            # This does not apply to reports of preparations: a poll that read the database earlier
            # would send the item again, and the agent would prepare the session twice.
            sent_at = self._agents[agent_id].sent_at
            sent_at.pop(str(report.get("work_id")), None)
            sent_at.pop(f"prepare-{report.get('kernel_id')}", None)
        else:
            raise InvalidRequest(f"{kind!r} is not a kind of work")
        return kind

    async def observe(self, reports: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
        """Compare the kernels in heartbeats with the expected ones, and correct differences.

        ``reports`` are the kernels by agent.
        """
        now = self._clock()
        by_agent = {
            agent_id: {str(kernel["kernel_id"]): kernel for kernel in reported}
            for agent_id, reported in reports.items()
        }
        usage = {
            agent_id: {key: kernel.get("usage") for key, kernel in by_id.items()}
            for agent_id, by_id in by_agent.items()
        }
        states = await self._store.observe(usage, now)
        for agent_id, by_id in by_agent.items():
            await self._observe(agent_id, by_id, states[agent_id], now)

    async def _observe(
        self,
        agent_id: str,
        by_id: Mapping[str, Mapping[str, Any]],
        states: Sequence[KernelState],
        now: datetime,
    ) -> None:
        known = {state.kernel_id: state for state in states}
        for kernel_id in known.keys() & by_id.keys():
            usage = by_id[kernel_id].get("usage")
            if usage and known[kernel_id].agent_id == agent_id:
                self._usage_sampling.add(kernel_id, usage)
        agent = self._agents[agent_id]
        for state in states:
            if state.status not in ENDED and state.agent_id == agent_id:
                await self._compare(agent, state, by_id.get(state.kernel_id), now)
        self._remove_unexpected_kernels(agent_id, by_id, known, now)

    async def log(self, kernel: KernelRow) -> str:
        """Request the output of a running kernel from its agent.

        Raises
        ------
        Unavailable
            If the agent does not respond in time, or cannot read the output.
        """
        (text,) = await self._setups.mask(kernel.session_id, await self._request_log(kernel))
        return text

    async def _request_log(self, kernel: KernelRow) -> str:
        agent_id = kernel.agent_id or ""
        agent = self._agents[agent_id]
        work_id = f"logs-{uuid.uuid4()}"
        future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        agent.logs[work_id] = (kernel, future)
        agent.work_available.set()
        try:
            async with asyncio.timeout(LOG_TIMEOUT_SECONDS):
                return await future
        except TimeoutError:
            raise Unavailable(
                f"agent {agent_id} is not responding; the log is available when the agent is back",
                agent=agent_id,
            ) from None
        finally:
            agent.logs.pop(work_id, None)

    def is_removed(self, session_id: str, kernel_id: str) -> bool:
        """Return whether the agent of a kernel has removed it, because its session is ending."""
        return kernel_id in self._removed_kernels.get(session_id, ())

    def remove(self, view: SessionView) -> None:
        """Request the removal of a session's kernels from their agents, without waiting for the
        Hub.
        """
        for kernel in view.kernels:
            if kernel.agent_id is not None:
                agent = self._agents[kernel.agent_id]
                agent.removals[kernel.id] = view.row.id
                agent.kept_homes.discard(kernel.id)
                agent.work_available.set()

    async def _work_items(self, agent_id: str, agent: _AgentWork) -> list[dict[str, Any]]:
        now = self._clock()
        items: list[dict[str, Any]] = []
        work = await self._store.work_of(agent_id)
        items += await self._launches.orders(
            [one for one in work if one.status in (Status.PREPARED, Status.TERMINATING)],
            lambda work_id: _is_due(agent, work_id, now),
        )
        unprepared = {
            _prepare_id(one.kernel_id, one.restart_count): one
            for one in work
            if one.status in (Status.SCHEDULED, Status.PREPARING) and not one.is_prepared
        }
        # Items that are not due are included without content, so that the times at which they were
        # sent are kept.
        items += [{"id": work_id} for work_id in unprepared]
        views = await self._dispatch_sessions(
            [one for work_id, one in unprepared.items() if _is_due(agent, work_id, now)]
        )
        user_ids = await self._plans.user_ids([view.row.id for view in views])
        setups = await self._setups.read([view.row for view in views])
        fences = await self._lost.fence_seconds([view.row for view in views])
        for view in views:
            try:
                setup = await self._setups.combine(view.row, setups)
                for kernel in view.kernels:
                    # For a resumed session, the preparation removes the remains of its last run.
                    agent.removals.pop(kernel.id, None)
                    if kernel.agent_id == agent_id and kernel.injection is None:
                        work_id = _prepare_id(kernel.id, view.row.restart_count)
                        item = {"id": work_id, "kind": "prepare"}
                        preparation = await self._preparation(view, kernel, user_ids[view.row.id])
                        preparation |= await self._pull_secrets.of_image(view.row.image)
                        if setup:
                            preparation["setup"] = setup.to_json()
                        if view.row.id in fences:
                            preparation["fence_seconds"] = fences[view.row.id]
                        attempt = {"attempt": view.row.restart_count}
                        if (trace := session_spans.context_of(view.row)) is not None:
                            item[tracing.HEADER] = trace
                        items.append({**item, **_ids(kernel), **attempt, **preparation})
            except (Forbidden, Conflict, NotFound, Unavailable) as error:
                # For example, a folder is no longer shared or a storage host is not responding. End
                # only this session.
                await self._lifecycle.try_apply(
                    view.row.id, Event.FAILED, error.message, result=Result.FAILURE
                )
        items += await self._resizes.items(agent_id)
        for kernel_id, session_id in sorted(agent.removals.items()):
            kind = "stop" if kernel_id in agent.kept_homes else "remove"
            item = {"id": f"{kind}-{kernel_id}", "kind": kind}
            items.append({**item, "session_id": session_id, "kernel_id": kernel_id})
        for work_id, (kernel, _) in agent.logs.items():
            items.append({"id": work_id, "kind": "logs", **_ids(kernel)})
        for source in self._sources:
            items += await source.work_items(agent_id)
        due = [item for item in items if "kind" in item and _is_due(agent, item["id"], now)]
        current = {item["id"] for item in items}
        agent.sent_at = {key: at for key, at in agent.sent_at.items() if key in current}
        agent.sent_at.update({item["id"]: now for item in due})
        return due

    async def _dispatch_sessions(self, work: Sequence[KernelWork]) -> list[SessionView]:
        """Return the sessions of kernels to prepare, and set SCHEDULED ones to PREPARING."""
        views = await self._store.views(sorted({one.session_id for one in work}))
        views = [v for v in views if v.row.status in (Status.SCHEDULED, Status.PREPARING)]
        new = [view.row.id for view in views if view.row.status is Status.SCHEDULED]
        if not new:
            return views
        moved = await self._lifecycle.apply_all([Move(key, Event.DISPATCHED) for key in new])
        return [v for v in views if v.row.status is not Status.SCHEDULED or v.row.id in moved]

    async def _preparation(
        self, view: SessionView, kernel: KernelRow, user_ids: tuple[int, int]
    ) -> dict[str, Any]:
        uid, gid = user_ids
        return {
            "image": view.row.image,
            "user": view.row.owner,
            "uid": uid,
            "gid": gid,
            "slots": dict(view.row.requested_slots),
            "shared_memory_bytes": view.row.shared_memory_bytes,
            "devices": [
                {"id": a.device_id, "slot": a.slot, "amount": thousandths(a.slot, a.amount)}
                for a in view.allocations
                if is_device_slot(a.slot) and a.kernel_id == kernel.id
            ],
            "cluster": cluster_of(view),
            "mounts": [mount.to_json() for mount in await self._plans.mounts_of(view.row)],
        }

    async def _record_preparations(
        self, agent_id: str, reports: Sequence[Mapping[str, Any]]
    ) -> list[bool | BaiError]:
        ids = sorted(str(report.get("session_id")) for report in reports)
        found = await self._sessions.all_with_kernels(ids)
        results: list[bool | BaiError] = []
        moves: list[Move] = []
        for report in reports:
            session_id = str(report.get("session_id"))
            view = found.get(session_id)
            kernel = _kernel_of(view, report, agent_id)
            if view is None or kernel is None:
                results.append(NotFound(f"session {session_id} is not on agent {agent_id}"))
                continue
            results.append(False)
            is_preparing = view.row.status is Status.PREPARING
            move = await self._end_of_preparation(view, kernel, report) if is_preparing else None
            if move is not None:
                moves.append(move)
        if moves:
            await self._lifecycle.apply_all(moves)
            self._agents[agent_id].work_available.set()
        return results

    async def _end_of_preparation(
        self, view: SessionKernels, kernel: KernelRow, report: Mapping[str, Any]
    ) -> Move | None:
        """Return the session's event after the report of a preparation. None: the report is
        progress, which is stored here, or other kernels are not ready yet.
        """
        row, state, agent_id = view.row, report.get("state"), kernel.agent_id or ""
        if state == "progress":
            if await self._store.set_progress(kernel.id, report.get("progress") or {}):
                self._lifecycle.notify(row, PROGRESS)
            return None
        if state == "failed":
            error = report.get("error") or {}
            message = error.get("message")
            reason = str(message) if message else TextTemplate.NOT_PREPARED.text()
            if len(view.kernels) > 1:
                reason = f"{kernel.hostname} on {kernel.agent_id}: {reason}"
            # No session is placed on an agent without a free subnet, so a session does not return
            # to it before a subnet is free.
            is_elsewhere = error.get("is_of_network") or (
                error.get("is_of_storage") and not await self._store.has_left(row.id, agent_id)
            )
            if is_elsewhere:
                # The session may start on another agent. The history keeps the reason.
                text = f"{kernel.agent_id}: {message}"
                return Move(row.id, Event.DISPLACED, TransitionValues(reason=text))
            (output,) = await self._setups.mask(row.id, str(report.get("log") or ""))
            failure = TransitionValues(reason=reason, result=Result.FAILURE, log=output or None)
            return Move(row.id, Event.FAILED, failure)
        injection = report.get("injection") or {}
        notices = [str(notice) for notice in injection.get("notices") or ()]
        notices += await self._plans.mount_notices(row)
        # Missing if the agent does not stop this kernel while the manager cannot be reached.
        fence_seconds = report.get("fence_seconds")
        facts = TransitionValues(notices=notices)
        if len(view.kernels) == 1:
            facts = replace(facts, injection=injection, fence_seconds=fence_seconds)
        elif not await self._store.set_injection(row.id, kernel.id, injection, fence_seconds):
            return None
        can_launch = bool(report.get("can_launch"))
        if runs_on_agent(row.type, row.cluster_size, row.started_by, can_launch=can_launch):
            facts = replace(facts, started_by=BY_AGENT)
        return Move(row.id, Event.PREPARED, facts)

    def _receive_log(self, agent_id: str, report: Mapping[str, Any]) -> None:
        request = self._agents[agent_id].logs.get(str(report.get("work_id")))
        if request is None or request[1].done():
            return
        if report.get("state") == "done":
            request[1].set_result(str(report.get("log") or ""))
        elif report.get("state") == "failed":
            error = report.get("error") or {}
            message = str(error.get("message") or "the agent cannot read the output")
            request[1].set_exception(Unavailable(message))

    async def _compare(
        self,
        agent: _AgentWork,
        state: KernelState,
        kernel: Mapping[str, Any] | None,
        now: datetime,
    ) -> None:
        """Change the status of a session whose kernel has ended, disappeared or must be stopped."""
        is_fenced = kernel is not None and kernel.get("fenced_attempt") == state.restart_count
        if is_fenced and state.status in (Status.PREPARED, Status.RUNNING):
            # The agent has stopped the kernel, because it could not reach the manager.
            await self._lost.requeue(state.session_id, state.agent_id or "")
            return
        if kernel is not None and kernel.get("is_running", True):
            agent.missed.pop(state.kernel_id, None)
            self._removed_kernels.get(state.session_id, set()).discard(state.kernel_id)
            if state.status is Status.RUNNING and (reason := stop_reason(state, kernel)):
                # After this event, the Hub shuts down all kernels of the session.
                await self._lifecycle.try_apply(
                    state.session_id, Event.STOP_REQUESTED, reason, result=Result.FAILURE
                )
            return
        if state.status not in (Status.RUNNING, Status.TERMINATING):
            return
        is_by_agent = state.started_by == BY_AGENT
        if is_by_agent and state.status is Status.TERMINATING and kernel is not None:
            # The agent reports the end of its stop. Before that, it may still execute the order to
            # start the kernel.
            return
        if (code := command_exit(state, kernel)) is not None:
            # The event also makes the Hub stop the session's server; the spawner then sends the
            # output of the session to the manager.
            await self._lifecycle.try_apply(
                state.session_id,
                Event.STOP_REQUESTED,
                memory_end(kernel) or command_end(code),
                exit_code=code,
                result=result_of(code),
            )
            return
        if now - state.status_changed_at < MIN_AGE:
            return
        agent.missed[state.kernel_id] += 1
        if agent.missed[state.kernel_id] < MAX_MISSED_HEARTBEATS:
            return
        agent.missed.pop(state.kernel_id, None)
        await self._end(state, kernel)

    async def _end(self, state: KernelState, kernel: Mapping[str, Any] | None) -> None:
        """End a session whose kernel has ended; ``kernel`` is None if it has disappeared."""
        code = None if kernel is None else kernel.get("exit_code")
        if state.cluster_size > 1 and state.status is Status.RUNNING:
            await self._end_kernel_group(state, code)
            return
        if state.status is Status.TERMINATING:
            removed = self._removed_kernels[state.session_id]
            removed.add(state.kernel_id)
            if len(removed) < state.cluster_size:
                return  # other kernels have not been removed yet
            await self._lifecycle.try_apply(
                state.session_id, Event.EXITED, TextTemplate.STOPPED.text(), exit_code=code
            )
        elif kernel is not None and code == 0:
            await self._lifecycle.try_apply(
                state.session_id,
                Event.EXITED,
                TextTemplate.ENDED.text(),
                exit_code=0,
                result=Result.SUCCESS,
            )
        else:
            # ``code`` is None if the kernel is missing from the heartbeat, if only its folder
            # without an exit code remains, or if the exit code could not be read.
            reason = memory_end(kernel) or (
                TextTemplate.CONTAINER_DISAPPEARED.text()
                if code is None
                else TextTemplate.ENDED_UNEXPECTEDLY.text(code=code)
            )
            await self._lifecycle.try_apply(
                state.session_id,
                Event.FAILED,
                reason,
                exit_code=code,
                result=Result.FAILURE,
            )

    async def _end_kernel_group(self, state: KernelState, code: int | None) -> None:
        """End a cluster session after the end of one kernel; the Hub stops the other kernels."""
        is_success = state.role == MAIN and code == 0
        if is_success:
            reason = TextTemplate.ENDED.text()
        elif code is None:
            reason = TextTemplate.KERNEL_DISAPPEARED.text(name=state.hostname)
        else:
            reason = TextTemplate.KERNEL_EXITED.text(name=state.hostname, code=code)
        await self._lifecycle.try_apply(
            state.session_id,
            Event.STOP_REQUESTED,
            reason,
            exit_code=code if state.role == MAIN else None,
            result=Result.SUCCESS if is_success else Result.FAILURE,
        )

    def _remove_unexpected_kernels(
        self,
        agent_id: str,
        reported: Mapping[str, Mapping[str, Any]],
        known: Mapping[str, KernelState],
        now: datetime,
    ) -> None:
        """Request the removal of reported kernels whose session does not continue here.

        A session continues here if it is on this agent and is neither ending nor ended. The removal
        is requested once a kernel without such a session has been reported for ``REMOVAL_GRACE``.
        If the session will run again, its home is kept.
        """
        agent = self._agents[agent_id]
        agent.removals = {key: value for key, value in agent.removals.items() if key in reported}
        agent.kept_homes &= agent.removals.keys()
        seen: dict[str, datetime] = {}
        for kernel_id, kernel in reported.items():
            state = known.get(kernel_id)
            is_leftover = state is None or state.status in ENDED or state.agent_id != agent_id
            is_order = (
                state is not None
                and state.started_by == BY_AGENT
                and state.status is Status.TERMINATING
                and state.agent_id == agent_id
            )
            if is_order:
                continue
            if not is_leftover and state is not None and state.status is not Status.TERMINATING:
                agent.removals.pop(kernel_id, None)
                continue
            keeps_home = state is not None and state.keeps_home_on(agent_id)
            if keeps_home and kernel.get("is_kept"):
                agent.removals.pop(kernel_id, None)
                continue
            seen[kernel_id] = agent.unexpected_since.get(kernel_id, now)
            if is_leftover and state is not None and state.started_by == BY_AGENT:
                # Remove the kernel without ``REMOVAL_GRACE``: only the Hub needs this time, to read
                # the log and the exit code.
                seen[kernel_id] = min(seen[kernel_id], now - REMOVAL_GRACE)
            if now - seen[kernel_id] >= REMOVAL_GRACE:
                agent.removals.setdefault(kernel_id, str(kernel.get("session_id")))
                if keeps_home:
                    agent.kept_homes.add(kernel_id)
                else:
                    agent.kept_homes.discard(kernel_id)
        agent.unexpected_since = seen
        if agent.removals:
            agent.work_available.set()

    def _on_change(self, row: SessionRow) -> None:
        if row.status in ENDED or row.status is Status.PENDING:
            self._removed_kernels.pop(row.id, None)
        if row.status is Status.PENDING and row.restart_count:
            # Drop the requested removals, because the kernels will start again with the same ids,
            # possibly on the same agents.
            for agent in self._agents.values():
                agent.removals = {k: s for k, s in agent.removals.items() if s != row.id}
        is_order = row.started_by == BY_AGENT and row.status is Status.TERMINATING
        if row.status is Status.SCHEDULED or is_order:
            # The row does not contain the agents of the session, so wake all agents. This costs one
            # query per agent.
            for agent in self._agents.values():
                agent.work_available.set()


def _rounds(reports: Sequence[Mapping[str, Any]]) -> list[list[int]]:
    """Return the indexes of reports, divided into rounds; in each round, a session has at most one
    report.

    The reports of one session keep their order.
    """
    rounds: list[list[int]] = []
    counts: Counter[str] = Counter()
    for number, report in enumerate(reports):
        session_id = str(report.get("session_id"))
        if counts[session_id] == len(rounds):
            rounds.append([])
        rounds[counts[session_id]].append(number)
        counts[session_id] += 1
    return rounds


def _kernel_of(
    view: SessionKernels | None, report: Mapping[str, Any], agent_id: str
) -> KernelRow | None:
    """Return the kernel of a report; None if it is not on that agent."""
    kernels = view.kernels if view is not None else ()
    of_agent = (kernel for kernel in kernels if kernel.agent_id == agent_id)
    return next((kernel for kernel in of_agent if kernel.id == report.get("kernel_id")), None)


def _prepare_id(kernel_id: str, restart_count: int) -> str:
    """Return the id of a work item. The ids of a session's runs differ, so that a new item is sent
    at once.
    """
    return f"prepare-{kernel_id}-{restart_count}" if restart_count else f"prepare-{kernel_id}"


def _is_due(agent: _AgentWork, work_id: str, now: datetime) -> bool:
    """Return whether a work item must be sent: for the first time, or again."""
    return now - agent.sent_at.get(work_id, now - RESEND_AFTER) >= RESEND_AFTER


def stop_reason(state: KernelState, kernel: Mapping[str, Any]) -> str:
    """Return why the agent of a kernel requests a stop of the session, "" if it does not."""
    text = str((kernel.get("usage") or {}).get("stop_reason") or "")[:MAX_REASON_CHARACTERS]
    return f"{state.hostname}: {text}" if text and state.cluster_size > 1 else text


def _ids(kernel: KernelRow) -> dict[str, Any]:
    return {
        "session_id": kernel.session_id,
        "kernel_id": kernel.id,
        "hostname": kernel.hostname,
        "container_id": kernel.container_id,
    }
