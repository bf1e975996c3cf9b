"""One start of a server, from the Hub's request to a running session or a cleaned-up failure."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from jupyterhub.utils import url_path_join

from bai_services import tracing
from bai_services.core import errors
from bai_services.core.coded_text import TextTemplate
from bai_services.core.sessions.end_reason import BOOTSTRAP_FAILED_EXIT_CODE, EndReason
from bai_services.core.sessions.launch_plan import LaunchPlan
from bai_services.core.sessions.lifecycle import SessionType, Status
from bai_services.core.sessions.logs import MAX_LOG_BYTES, without_times
from bai_services.core.sessions.rules import session_name_from
from bai_services.core.sessions.spec import DEFAULTS, HUB_OPTIONS
from bai_services.engines.base import Engine, EngineError, EngineUnreachable, Exit, Running

from . import form, kernel_group, refusals
from .readiness import wait_until_ready
from .server import SESSION_ID, SessionServer
from .sessions import (
    NO_LOGS,
    is_ended,
    is_unprepared,
    was_stopped_before_start,
)

DEFAULT_NAME = "default"
# Reserved at the end of `start_timeout`, so that a start that times out reports a specific message
# before the timeout of the Hub reports a general one.
ERROR_REPORT_MARGIN_SECONDS = 5
LOG_TAIL_LINES = 15
# Lines of the output of a failed bootstrap script in the reason for the end of the session.
REASON_LINES = 3
CANCEL_TIMEOUT_SECONDS = 10


class BootstrapFailed(EngineError):
    """A bootstrap script of the user or project failed; ``output`` is the end of its output."""

    def __init__(self, message: str, output: str) -> None:
        super().__init__(message, EndReason.BOOTSTRAP_FAILED.value)
        self.output = output


class Start:
    """One start by one spawner. The spawner's ``progress`` reads ``session_id``."""

    def __init__(self, spawner: SessionServer) -> None:
        self._spawner = spawner
        self._sessions = spawner.sessions
        self._translate = spawner.translate
        self._started = time.monotonic()
        self._seconds = min(spawner.start_timeout, spawner.response_timeout_seconds)
        self.session_id = ""
        # The session runs already, and the start only opens it: a failure must not end it.
        self._is_attached = False

    async def run(self) -> str:
        """Return the URL of the running server.

        Raises
        ------
        StartRefused
            If the start fails. In this case, no kernel of the start remains. If the engine has not
            started the session yet, the session can remain in the manager.
        """
        # A user who starts the server in the browser cannot choose the trace.
        headers = self._spawner.handler.request.headers if self._spawner.handler else {}
        is_by_service = self._spawner.is_requested_by_service
        parent = tracing.valid(headers.get(tracing.HEADER)) if is_by_service else None
        hidden = (self._spawner.user.name,)
        with tracing.span("spawner start", parent=parent, hidden=hidden) as span:
            try:
                return await self._run()
            except refusals.StartRefused as refused:
                if refused.reason == refusals.QUEUED:
                    span.reject(refused.reason)
                span.fail(refused.jupyterhub_message, refused.reason)
                raise
            finally:
                if self.session_id:
                    span.set({"bai.session.id": self.session_id})

    async def _run(self) -> str:
        try:
            self._check_requester()
            plan = await self._plan_of_prepared()
            if plan is None:
                session = await self._find_or_create_session()
                with tracing.step("wait until prepared"):
                    await self._wait_until_prepared(session)
                plan = await self._launch(self.session_id)
                self._is_attached = plan.is_attached
        except errors.BaiError as error:
            # On a name conflict, the details contain the id of the live session.
            live_id = error.details.get("session") if error.code == "already-exists" else None
            session_id = self.session_id or str(live_id or "")
            page = self._spawner.page_of(session_id) if session_id else ""
            form.note_problems(error)
            raise refusals.of_manager(error, self._translate, page) from error
        except asyncio.CancelledError:
            await self._cancel_session()
            raise
        return await self._start_server(plan)

    def belongs_to(self, session_id: str) -> bool:
        """Return whether this start belongs to the session.

        A start by the owner may create a new session, so it belongs to no session until its session
        is known.
        """
        if self.session_id or self._spawner.is_requested_by_owner:
            return self.session_id == session_id
        return bool((self._spawner.user_options or {}).get(SESSION_ID) == session_id)

    def _check_requester(self) -> None:
        """Raise ``Forbidden`` unless the owner requests the start.

        Exception: a service may request it with a session id as the only option.

        Options from any other user would run that user's code as the owner. The manager is a
        service and sends only the id of a session, which the owner, or an administrator
        for the owner, has created through the manager.
        """
        spawner = self._spawner
        if spawner.is_requested_by_owner:
            return
        options = spawner.user_options or {}
        if not (spawner.is_requested_by_service and set(options) == {SESSION_ID}):
            spawner.forget_options()
            raise self._not_the_owner()

    def _not_the_owner(self) -> errors.Forbidden:
        owner = self._spawner.user.name
        return errors.Forbidden(
            f"this is a session of {owner}: only its owner may start it through the Hub",
            owner=owner,
        )

    async def _launch(self, session_id: str) -> LaunchPlan:
        return await self._sessions.launch(session_id, self._spawner.user.name, self._spawner.name)

    async def _plan_of_prepared(self) -> LaunchPlan | None:
        """Return the plan of the session named in the options if it is prepared, else None.

        The manager requests a start only when the session is prepared. For such a start, this is
        the spawner's only call to the manager before the engine starts the kernels.
        """
        session_id = (self._spawner.user_options or {}).get(SESSION_ID)
        if session_id is None:
            return None
        try:
            plan = await self._launch(str(session_id))
        except errors.Conflict:
            return None  # not prepared yet, or ended
        self.session_id, self._is_attached = plan.session_id, plan.is_attached
        return plan

    async def _find_or_create_session(self) -> dict[str, Any]:
        """Return the session of this start; create one if it does not exist or has ended.

        Raises
        ------
        Conflict
            If the session was stopped before its start, or is a batch session that has ended.
        Forbidden
            If the session has ended, and a caller other than its owner requests the start.
        """
        options = dict(self._spawner.user_options or {})
        session_id = options.pop(SESSION_ID, None)
        if session_id is not None:
            session = await self._session_of_this_server(str(session_id))
            if not is_ended(session):
                self.session_id = session["id"]
                if session["status"] == Status.SUSPENDED and self._spawner.is_requested_by_owner:
                    return await self._sessions.resume(session["id"])
                return session
            if was_stopped_before_start(session):
                # The next start creates a new session.
                self._spawner.forget_session()
                raise errors.Conflict(f"session {session['name']} was stopped before its start")
            if session.get("type") == SessionType.BATCH:
                raise errors.Conflict(
                    f"the batch session {session['name']} has ended; create it again to rerun it"
                )
            if session.get("type") == SessionType.INFERENCE:
                raise errors.Conflict(
                    f"the replica {session['name']} has ended; its endpoint starts a new one"
                )
            if not self._spawner.is_requested_by_owner:
                raise self._not_the_owner()
            # A restarted server has no options but the id of its last session.
            options = options or request_again(session)
        session = await self._sessions.create(self._request_body(options))
        self.session_id = session["id"]
        self._spawner.remember_session(session["id"], options)
        return session

    async def _session_of_this_server(self, session_id: str) -> dict[str, Any]:
        session = await self._sessions.get(session_id)
        server = (session["hub_user"], session["hub_server"])
        if server != (self._spawner.user.name, self._spawner.name):
            # Do not reveal whether a session of another server exists.
            raise errors.NotFound(f"there is no session {session_id} for this server")
        return session

    def _request_body(self, options: Mapping[str, Any]) -> dict[str, Any]:
        unknown = sorted(set(options) - HUB_OPTIONS)
        if unknown:
            raise errors.InvalidRequest(
                f"unknown options: {', '.join(unknown)}; "
                f"the known options are {', '.join(sorted(HUB_OPTIONS))}",
                unknown=unknown,
            )
        spawner = self._spawner
        options = form.with_secrets(options)
        if isinstance(options.get("mounts"), Sequence):
            # Drop ``name``, because only the form uses it: as the label of a folder that was
            # deleted after the last start.
            options["mounts"] = [
                {k: v for k, v in mount.items() if k != "name"}
                if isinstance(mount, Mapping)
                else mount
                for mount in options["mounts"]
            ]
        return {
            "name": _session_name(spawner.display_name or spawner.name or DEFAULT_NAME),
            **options,
            "owner": spawner.user.name,
            "hub_server": spawner.name,
        }

    async def _wait_until_prepared(self, session: Mapping[str, Any]) -> None:
        if not is_unprepared(session):
            return
        grace = min(self._spawner.queue_grace_seconds, self._seconds_left())
        session = await self._sessions.wait_until_prepared(self.session_id, grace)
        if is_unprepared(session):
            session = await self._sessions.detach(self.session_id)
        if is_unprepared(session):
            page = self._spawner.page_of(self.session_id, session)
            raise refusals.queued(session, page, self._translate)
        if is_ended(session):
            why = session.get("status_info") or session["status"]
            raise errors.Conflict(f"the session {session['name']} ended before its start: {why}")

    async def _cancel_session(self) -> None:
        """Cancel the session of a start that the user cancelled or that timed out."""
        if not self.session_id:
            return
        try:
            async with asyncio.timeout(CANCEL_TIMEOUT_SECONDS):
                await self._sessions.cancel(self.session_id)
        except (errors.BaiError, TimeoutError) as error:
            self._spawner.log.warning("Session %s was not cancelled: %s", self.session_id, error)

    async def _start_server(self, plan: LaunchPlan) -> str:
        running: Running | None = None
        engine: Engine | None = None
        try:
            engine = self._spawner.engine(plan.engine)
            with tracing.step("start kernels") as step:
                step.set({"bai.engine": plan.engine, "bai.kernel.count": 1 + len(plan.subs)})
                running = await self._start_engine(engine, plan)
            self._spawner.remember(running)
            self._extend_deadline(plan.injection.script_seconds)
            with tracing.step("wait until ready"):
                await self._wait_until_ready(engine, running)
            with tracing.step("report the start"):
                await self._spawner.report_started()
        except BootstrapFailed as error:
            end = Exit(None, EndReason.BOOTSTRAP_FAILED, error.output)
            await self._undo(engine, running, end)
            page = self._spawner.page_of(self.session_id)
            raise refusals.of_engine(error, page, self._translate) from error
        except EngineError as error:
            await self._undo(engine, running, _failure(str(error)))
            page = self._spawner.page_of(self.session_id)
            raise refusals.of_engine(error, page, self._translate) from error
        except errors.BaiError as error:
            await self._undo(engine, running, _failure(error.message))
            page = self._spawner.page_of(self.session_id)
            raise refusals.of_manager(error, self._translate, page) from error
        except asyncio.CancelledError:
            # The user has stopped the server. The Hub's timeout is not the cause, because our own
            # timeout is shorter.
            await self._undo(
                engine, running, Exit(None, EndReason.STOPPED, TextTemplate.START_CANCELLED.value)
            )
            raise
        except Exception:
            # The error is a bug, which the Hub logs. The session must be cleaned up here, too.
            await self._undo(engine, running, _failure("internal error"))
            raise
        return running.url

    async def _start_engine(self, engine: Engine, plan: LaunchPlan) -> Running:
        spawner = self._spawner
        spawner.ip, spawner.port = await engine.address(plan)
        environ = {**spawner.get_env(), "BAI_MANAGER_URL": spawner.session_manager_url}
        if not engine.is_local:
            # Paths and the Python program of the Hub's machine may not exist on another machine.
            for name in spawner.env_keep:
                if name not in spawner.environment:
                    environ.pop(name, None)
        if plan.is_attached:
            return await engine.attach(plan, environ, spawner.own_command())
        return await kernel_group.start(engine, plan, environ, spawner.own_command())

    async def _wait_until_ready(self, engine: Engine, running: Running) -> None:
        """Wait until the server responds.

        Raises
        ------
        EngineError
            If the server exits or does not respond in time; the message ends with its last output.
        """
        spawner = self._spawner
        url = url_path_join(running.url, spawner.server.base_url, "api")

        async def poll_exit() -> Exit | None:
            try:
                return await kernel_group.poll(engine, running)
            except EngineUnreachable:
                return None

        try:
            ended = await wait_until_ready(
                url, self._seconds_left(), spawner.answer_step_seconds, poll_exit
            )
        except TimeoutError:
            lines = await self._last_lines(engine, running)
            raise EngineError(
                self._translate("spawn.no-response", seconds=f"{self._seconds:g}") + lines,
                reason=refusals.NO_ANSWER,
            ) from None
        if ended is not None:
            lines = await self._last_lines(engine, running)
            if ended.code == BOOTSTRAP_FAILED_EXIT_CODE:
                output = "; ".join(lines.strip().splitlines()[-REASON_LINES:])
                raise BootstrapFailed(self._translate("spawn.bootstrap-failed") + lines, output)
            code = "?" if ended.code is None else ended.code
            text = self._translate("spawn.exited", code=code, how=ended.text)
            raise EngineError(text + lines, reason=refusals.EXITED)

    async def _last_lines(self, engine: Engine, running: Running) -> str:
        log = (await kernel_group.read_logs(engine, running, 16 * 1024))[0]
        log = without_times(log).rstrip()
        lines = log.splitlines()[-LOG_TAIL_LINES:]
        return "\n" + "\n".join(lines) if lines else ""

    async def _undo(self, engine: Engine | None, running: Running | None, end: Exit) -> None:
        """Stop and remove the kernels of a start, and report its end to the manager.

        The exit code of ``end`` is replaced by that of the main kernel.
        """
        logs, code = NO_LOGS, None
        if engine is not None and running is not None:
            try:
                code = (await kernel_group.stop(engine, running, now=True)).code
                logs = await kernel_group.read_logs(engine, running, MAX_LOG_BYTES)
                await kernel_group.remove(engine, running)
            except EngineError as error:
                self._spawner.log.warning(
                    "Session %s may not be cleaned up completely: %s", self.session_id, error
                )
        self._spawner.forget()
        if self._is_attached:
            return
        ended = replace(end, code=code)
        await self._sessions.report_exit(self.session_id, ended, logs, self._spawner.log)

    def _extend_deadline(self, seconds: float) -> None:
        """Wait longer for the server, because bootstrap scripts run first."""
        self._seconds = min(self._spawner.start_timeout, self._seconds + seconds)

    def _seconds_left(self) -> float:
        deadline = self._started + self._seconds - ERROR_REPORT_MARGIN_SECONDS
        return max(0.1, deadline - time.monotonic())


def _session_name(server: str) -> str:
    """Return the name for a session whose request has no name; the manager validates it."""
    try:
        return session_name_from(server)
    except errors.InvalidRequest:
        return server


def _failure(text: str) -> Exit:
    """Return the end of a failed start, with the first line of the explanation."""
    return Exit(None, EndReason.START_FAILED, text.partition("\n")[0])


def request_again(session: Mapping[str, Any]) -> dict[str, Any]:
    """Return the request that creates an ended session again.

    Raises
    ------
    InvalidRequest
        If the session has secret variables, because their values cannot be read back.
    """
    if session.get("secret_environ"):
        raise form.secrets_missing(session["secret_environ"])
    request = {
        # The priority is not copied, because an administrator may have set it.
        **{name: session.get(name) for name in HUB_OPTIONS - {"priority"}},
        "resources": session["requested"],
        "mounts": [
            {
                "vfolder": m["vfolder_id"],
                **{name: m[name] for name in ("path", "permission", "subpath") if m.get(name)},
            }
            for m in session.get("mounts") or ()
        ],
        "callback_url": (session.get("callback") or {}).get("url"),
    }
    return {k: v for k, v in request.items() if v and v != DEFAULTS[k]}
