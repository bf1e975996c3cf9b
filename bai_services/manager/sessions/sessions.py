"""Create, read, wait for, change and stop sessions; list their records."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from bai_services.core.accounts.roles import Caller, Owner, Role, Target, reaches
from bai_services.core.audit import AuditEntry
from bai_services.core.coded_text import CodedText, TextTemplate
from bai_services.core.errors import Conflict, Forbidden, InvalidRequest, NotFound
from bai_services.core.listing import ListQuery, Page
from bai_services.core.record_fields import fields_of
from bai_services.core.resources import format_amount
from bai_services.core.sessions.kernel_group import MAIN_HOST
from bai_services.core.sessions.lifecycle import (
    LIVE,
    Event,
    Result,
    SessionType,
    Status,
    has_reached,
)
from bai_services.core.sessions.logs import joined_log
from bai_services.core.sessions.records import (
    DependencyGraph,
    GraphItem,
    KernelLog,
    KernelUsage,
    ListedAllocation,
    ListedDependency,
    ListedKernel,
    Session,
    SessionUsage,
    StatusChange,
)
from bai_services.core.sessions.resolved_spec import ResolvedSpec
from bai_services.core.sessions.rules import check_session_name
from bai_services.core.sessions.spec import SessionSpec
from bai_services.db.scheduling.allocations import AllocationStore
from bai_services.db.sessions.dependencies import DependencyStore
from bai_services.db.sessions.rows import LOG_LIMIT, SessionRow, SessionView
from bai_services.db.sessions.session_insert import NewSession, view_of
from bai_services.db.sessions.store import SessionStore
from bai_services.db.sessions.suspensions import SuspensionStore

from ..accounts import authorizer
from ..audit import Audit
from ..clock import Clock
from ..events import Events
from ..scheduling.wait_states import WaitStates
from ..settings import Settings
from .kernels import Kernels
from .lifecycle import Lifecycle
from .planned_stops import DrainReplica, ReplicaDrain
from .requests.choices import CREATABLE_TYPES
from .requests.requests import Requests
from .view import describe

MAX_WAIT_SECONDS = 60.0


class Sessions:
    """Operations on sessions; ``key`` is an id or a name."""

    def __init__(
        self,
        store: SessionStore,
        requests: Requests,
        lifecycle: Lifecycle,
        kernels: Kernels,
        dependencies: DependencyStore,
        states: WaitStates,
        suspensions: SuspensionStore,
        *,
        events: Events,
        settings: Settings,
        clock: Clock,
        audit: Audit,
        drain_replica: DrainReplica,
        is_committing: Callable[[str], Awaitable[bool]],
    ) -> None:
        self._store = store
        self._dependencies = dependencies
        self._requests = requests
        self._lifecycle = lifecycle
        self._kernels = kernels
        self._states = states
        self._suspensions = suspensions
        self._events = events
        self._settings = settings
        self._clock = clock
        self._audit = audit
        self._drain_replica = drain_replica
        self._is_committing = is_committing

    async def create(
        self,
        caller: Caller,
        request: SessionSpec,
        *,
        session_id: str | None = None,
        creatable: Collection[SessionType] = CREATABLE_TYPES,
        is_pipeline_task: bool = False,
        **details: Any,
    ) -> tuple[Session, bool]:
        """Create a session; return it and whether it is new.

        ``session_id`` is the id of a new session, by default a random one. ``creatable``: types
        that the session may have. ``is_pipeline_task``: the kind of the session in usage reports.
        ``details`` are added to the audit entry.

        If the owner has a live session with the same name and spec, that session is returned. With
        ``request.reuse``, the spec may differ.

        Raises
        ------
        BaiError
            The errors of ``Requests.resolve`` and ``SessionStore.enqueue``.
        """
        authorizer.require(caller, "session.create")
        resolved = await self._requests.resolve(caller, request, session_id, creatable)
        new = replace(resolved, is_pipeline_task=is_pipeline_task)
        row, is_new = await self._store.enqueue(
            new, self._clock(), lambda _: self._entry(caller, "session.create", new, **details)
        )
        if is_new:
            self._lifecycle.notify(row)
        elif row.status is Status.SUSPENDED:
            await self.resume(caller, row)
        if is_new and not new.dependencies:
            return self._shown_to(caller, view_of(new, row)), True
        return await self._load_view(caller, row.id), is_new

    async def check(
        self,
        caller: Caller,
        request: SessionSpec,
        creatable: Collection[SessionType] = CREATABLE_TYPES,
    ) -> ResolvedSpec:
        """Resolve a request without creating the session.

        Raises
        ------
        BaiError
            The errors of ``Requests.resolve``.
        """
        authorizer.require(caller, "session.create")
        return await self._requests.resolve(caller, request, creatable=creatable)

    async def create_all(
        self, caller: Caller, requests: Sequence[SessionSpec]
    ) -> list[tuple[Session, bool]]:
        """Create several sessions atomically; return each session and whether it is new.

        The sessions may depend on each other by name.

        Raises
        ------
        BaiError
            As for ``create``; see ``Requests.resolve_all`` for the message.
        """
        authorizer.require(caller, "session.create")
        new_sessions = await self._requests.resolve_all(caller, requests)

        def entry(inserted: Sequence[NewSession]) -> AuditEntry:
            names = [new.name for new in inserted]
            count = len(inserted)
            return self._entry(caller, "session.create", inserted[0], count=count, names=names)

        created = await self._store.enqueue_all(new_sessions, self._clock(), entry)
        for row in (row for row, is_new in created if is_new):
            self._lifecycle.notify(row)
        views = await self._store.views([row.id for row, _ in created])
        return [
            (self._shown_to(caller, view), is_new)
            for view, (_, is_new) in zip(views, created, strict=True)
        ]

    async def get(self, caller: Caller, key: str) -> Session:
        """Return a session."""
        row = await self.find_visible(caller, key)
        await self._record_access(caller, "session.read", row)
        return await self._load_view(caller, row.id)

    async def page(self, caller: Caller, query: ListQuery) -> Page[Session]:
        """Return the sessions that the caller may see."""
        page = await self._store.page(query, authorizer.visibility(caller, "session.read"))
        return page.with_items([self._shown_to(caller, view) for view in page.items])

    async def wait(
        self,
        caller: Caller,
        key: str,
        until: str,
        timeout_seconds: float,
        recheck: Callable[[], Awaitable[Caller]],
    ) -> Session:
        """Wait until the session has reached or passed the status ``until``; return the session.

        Return after ``timeout_seconds`` or ``MAX_WAIT_SECONDS``, whichever is less, even if the
        status is not reached. After the wait, ``recheck`` authenticates the caller again, and the
        caller must still be allowed to see the session.

        Raises
        ------
        InvalidRequest
            If ``until`` is not a status.
        """
        try:
            awaited = Status(until)
        except ValueError:
            raise InvalidRequest(f"{until!r} is not a session status", field="wait") from None
        loop = asyncio.get_running_loop()
        deadline = loop.time() + min(max(timeout_seconds, 0.0), MAX_WAIT_SECONDS)
        with self._events.subscribe() as changes:
            row = await self.find_visible(caller, key)
            status = row.status
            while not has_reached(status, awaited) and (left := deadline - loop.time()) > 0:
                change = await changes.get(left)
                if change and change.session_id == row.id and change.status:
                    status = change.status
        caller = await recheck()
        row = await self.find_visible(caller, row.id)
        return await self._load_view(caller, row.id)

    async def change(self, caller: Caller, key: str, changes: Mapping[str, Any]) -> Session:
        """Change the name of a session, the priority of a pending session, or both.

        Raises
        ------
        InvalidRequest
            If the new name or priority is not valid.
        Conflict
            If ``changes`` has a priority and the session is not pending.
        AlreadyExists
            If the owner has another live session with the new name.
        Forbidden
            If the caller may not change the session or its priority, or if the caller is not an
            administrator and the priority exceeds the maximum of the keypair.
        """
        row = await self.find_visible(caller, key)
        authorizer.require(caller, "session.write", target_of(row))
        name, priority = changes.get("name"), changes.get("priority")
        if name is not None:
            check_session_name(name)
        if priority is not None:
            authorizer.require(caller, "session.change-priority", target_of(row))
            row = await self._prioritize(caller, row, priority)
        if name is not None:
            details = self._audit.changes({"name": row.name}, {"name": name})
            row = await self._store.rename(row.id, name)
            self._lifecycle.notify(row, "name")
            await self._add_entry(caller, "session.rename", row, **details)
        return await self._load_view(caller, row.id)

    async def _prioritize(self, caller: Caller, row: SessionRow, priority: int) -> SessionRow:
        await self._requests.check_priority(caller, target_of(row), row.access_key, priority)
        before = {"priority": row.priority}
        row = await self._store.set_priority(row.id, priority)
        # Notify the scheduler: the order of the queue has changed.
        self._lifecycle.notify(row)
        details = self._audit.changes(before, {"priority": priority})
        await self._add_entry(caller, "session.prioritize", row, priority=priority, **details)
        return row

    async def graph(self, caller: Caller, key: str) -> DependencyGraph:
        """Return the sessions connected to a session by chains of dependencies in either direction.

        ``is_complete`` is false if some sessions are left out, because there are too many.
        """
        row = await self.find_visible(caller, key)
        graph = await self._dependencies.graph(row.id)
        dependencies: dict[str, list[str]] = defaultdict(list)
        for session_id, depends_on in graph.pairs:
            dependencies[session_id].append(depends_on)
        items = [
            GraphItem(**fields_of(item), depends_on=dependencies[item.id])
            for item in graph.sessions
        ]
        return DependencyGraph(items, is_complete=not graph.is_cut)

    async def stop(self, caller: Caller, key: str, force: bool = False) -> Session:
        """Stop a session, or cancel one that has not started; idempotent.

        A serving replica of an endpoint is drained first; a second call stops it at once.

        With ``force`` the agents remove the kernels, without waiting for the Hub. The resources are
        released when the last kernel has ended.
        """
        row = await self.find_visible(caller, key)
        authorizer.require(caller, "session.write", target_of(row))
        who = caller.username or caller.role
        stopped: SessionRow | None = None
        is_requested = not force and caller.role is not Role.HUB
        if is_requested and row.status is Status.RUNNING and await self._is_committing(row.id):
            raise Conflict(
                f"session {row.name} is being committed; wait, cancel the commit, or stop the "
                "session with force",
                session=row.id,
            )
        is_serving = row.type == SessionType.INFERENCE and row.status is Status.RUNNING
        if is_serving and not force and caller.role is not Role.HUB:
            reason = TextTemplate.STOPPED_BY.text(name=who)
            if await self._drain_replica(row.id, reason) is ReplicaDrain.BEGUN:
                await self._add_entry(caller, "session.stop", row)
                return self._shown_to(caller, await self._store.view(row.id))
        if row.status in LIVE - {Status.TERMINATING}:
            # ``stopped`` is None if the session has just ended, or is already being stopped,
            # suspended or preempted.
            stopped = await self._lifecycle.try_apply(
                row.id, Event.STOP_REQUESTED, TextTemplate.STOPPED_BY.text(name=who)
            )
        if stopped is not None:
            await self._add_entry(caller, "session.stop", stopped)
        elif (
            row.status in LIVE
            # The spawner also stops a session whose engine does not respond. After such a stop, a
            # suspended or preempted session runs again.
            and caller.role is not Role.HUB
            and await self._store.end_instead_of_return(row.id)
        ):
            # The session was being suspended or preempted; it will not run again.
            await self._add_entry(caller, "session.stop", row)
        await self.finish_unlaunched(row.id)
        view = await self._store.view(row.id)
        if force and view.row.status is Status.TERMINATING:
            self._kernels.remove(view)
        return self._shown_to(caller, view)

    async def end(self, session_id: str, reason: CodedText) -> None:
        """End a session on behalf of the manager, even while it is being suspended or preempted."""
        if await self._lifecycle.try_apply(session_id, Event.STOP_REQUESTED, reason) is None:
            await self._store.end_instead_of_return(session_id)
        await self.finish_unlaunched(session_id)

    async def resume(self, caller: Caller, row: SessionRow) -> None:
        """Let a suspended session wait for resources again.

        The caller's permissions are not checked.

        Raises
        ------
        Forbidden
            If the owner has left the session's project.
        """
        await self._requests.require_member(row)
        await self._suspensions.move_to_end_of_queue(row.id)
        text = TextTemplate.RESUMED_BY.text(name=caller.username or caller.role)
        if await self._lifecycle.try_apply(row.id, Event.RESUMED, text) is not None:
            await self._add_entry(caller, "session.resume", row)

    async def finish_unlaunched(self, session_id: str) -> None:
        """End a TERMINATING session whose launch plan was never issued: no kernel is running."""
        view = await self._store.with_kernels(session_id)
        is_launched = any(kernel.launched_at is not None for kernel in view.kernels)
        if view.row.status is Status.TERMINATING and not is_launched:
            await self._lifecycle.try_apply(
                session_id,
                Event.EXITED,
                TextTemplate.STOPPED_BEFORE_START.text(),
                result=Result.UNDEFINED,
            )

    async def logs(self, caller: Caller, key: str, hostname: str = MAIN_HOST) -> KernelLog:
        """Return the output of a kernel: live from its agent, or the log stored when it ended.

        Raises
        ------
        NotFound
            If the session has no kernel with that hostname.
        Forbidden
            If the caller may see the session, but not its output.
        Unavailable
            If the kernel is running and its agent does not respond.
        """
        row = await self.find_visible(caller, key)
        authorizer.require(caller, "session.read-private", target_of(row))
        if not _may_read_private(caller, row):
            raise Forbidden(
                "the owner has moved to another domain; only the owner and superadmins may read "
                "the output"
            )
        await self._record_access(caller, "session.read-log", row)
        view = await self._store.view(row.id)
        kernel = next((k for k in view.kernels if k.hostname == hostname), None)
        if kernel is None:
            names = ", ".join(k.hostname for k in view.kernels)
            raise NotFound(f"session {row.name} has no kernel {hostname!r}; it has {names}")
        has_ended = view.row.status not in LIVE
        is_live = not has_ended and kernel.launched_at is not None
        text = await (self._kernels.log(kernel) if is_live else self._store.log(row.id, hostname))
        if view.row.restart_count or view.row.status is Status.SUSPENDED:
            text = joined_log(await self._store.earlier_logs(row.id, hostname), text, LOG_LIMIT)
        return KernelLog(row.id, hostname, text, is_live, has_ended)

    async def history(self, caller: Caller, key: str) -> list[StatusChange]:
        """Return the status changes of a session, oldest first."""
        row = await self.find_visible(caller, key)
        return list(await self._store.history(row.id))

    async def usage(self, caller: Caller, key: str) -> SessionUsage:
        """Return the resource usage of a session's kernels, as last reported by their agents."""
        row = await self.find_visible(caller, key)
        view = await self._store.view(row.id)
        kernels = [
            KernelUsage(kernel.id, kernel.agent_id, kernel.last_seen_at, kernel.usage or {})
            for kernel in view.kernels
        ]
        return SessionUsage(row.id, kernels)

    async def view(self, caller: Caller, row: SessionRow) -> Session:
        """Return the API representation of a session; the caller's permissions are not checked."""
        return await self._load_view(caller, row.id)

    async def find_visible(self, caller: Caller, key: str) -> SessionRow:
        """Return the stored session, if the caller may see it.

        Raises
        ------
        NotFound
            If no visible session has that id or name.
        """
        return await self._store.find_by_key(
            key, authorizer.visibility(caller, "session.read"), caller.user_id
        )

    async def find_enterable(self, caller: Caller, key: str) -> SessionRow:
        """Return the caller's own running session.

        Raises
        ------
        NotFound
            If there is no such session, or the caller may not see it.
        Forbidden
            If the session belongs to another user, even if the caller is an administrator.
        Conflict
            If the session is not running.
        """
        row = await self.find_visible(caller, key)
        authorizer.require(caller, "session.enter", target_of(row))
        if row.status != Status.RUNNING:
            raise Conflict(f"session {row.name} is {row.status}, not RUNNING", status=row.status)
        return row

    async def _add_entry(
        self, caller: Caller, action: str, row: SessionRow, **details: Any
    ) -> None:
        await self._audit.add(self._entry(caller, action, row, **details))

    def _entry(
        self, caller: Caller, action: str, of: SessionRow | NewSession, **details: Any
    ) -> AuditEntry:
        details = {"name": of.name, **details}
        is_for_owner = caller.user_id is None or action == "session.create"
        return self._audit.entry(
            caller,
            action,
            of.id,
            domain=of.domain,
            owner_id=of.owner_id,
            on_behalf_of=of.hub_user if is_for_owner and caller.user_id != of.owner_id else "",
            **details,
        )

    async def _record_access(self, caller: Caller, action: str, row: SessionRow) -> None:
        await self._audit.record_access(
            caller, action, row.id, owner_id=row.owner_id, domain=row.domain, name=row.name
        )

    async def _load_view(self, caller: Caller, session_id: str) -> Session:
        return self._shown_to(caller, await self._store.view(session_id))

    def _shown_to(self, caller: Caller, view: SessionView) -> Session:
        state = self._states.of(view.row.id)
        session = describe(view, self._settings, self._clock(), state)
        return session if _may_read_private(caller, view.row) else session.without_private()


class SessionRecords:
    """Lists of allocations, kernels and dependencies, and a check of the resource counters."""

    def __init__(self, store: AllocationStore) -> None:
        self._store = store

    async def page(self, caller: Caller, query: ListQuery) -> Page[ListedAllocation]:
        """Return current allocations; with the filter ``all=true`` also released ones."""
        filters = dict(query.filters)
        has_released = filters.pop("all", "false").lower() == "true"
        query = ListQuery(query.limit, query.offset, query.sort, filters)
        page = await self._store.page(
            query, authorizer.visibility(caller, "allocation.read"), not has_released
        )
        return page.with_items(
            [
                ListedAllocation(**fields_of(row) | {"amount": format_amount(row.slot, row.amount)})
                for row in page.items
            ]
        )

    async def kernels(self, caller: Caller, query: ListQuery) -> Page[ListedKernel]:
        """Return the kernels of visible sessions."""
        return await self._store.kernels(query, authorizer.visibility(caller, "session.read"))

    async def dependencies(self, caller: Caller, query: ListQuery) -> Page[ListedDependency]:
        """Return the dependencies of visible sessions."""
        return await self._store.dependencies(query, authorizer.visibility(caller, "session.read"))

    async def check_consistency(self) -> list[str]:
        """Return every difference between allocations, counters and statuses; normally empty."""
        return await self._store.audit()


def target_of(row: SessionRow) -> Target:
    owner = Owner(row.owner_id, row.owner_role)
    return Target(domain=row.domain, project_id=row.project_id, owner=owner)


def _may_read_private(caller: Caller, row: SessionRow) -> bool:
    """Return whether the caller may read the environment, command, callback and output.

    A session stays in the domain that it is charged to. If its owner has moved to another domain,
    neither domain's administrators may read its private data.
    """
    target = target_of(row)
    if row.owner_domain != row.domain:
        target = Target(owner=target.owner)
    return reaches(caller, "session.read-private", target)
