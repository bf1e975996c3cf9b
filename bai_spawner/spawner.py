"""The Hub's spawner: get a session from the manager and run it on an engine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

from jupyterhub.utils import url_path_join
from traitlets import default

from bai_services.core import errors
from bai_services.core.coded_text import TextTemplate
from bai_services.core.sessions.agent_launch import BY_AGENT
from bai_services.core.sessions.end_reason import EndReason
from bai_services.core.sessions.logs import MAX_LOG_BYTES
from bai_services.engines.base import Engine, EngineUnreachable, Exit, Running

from . import form, kernel_group, refusals
from .progress import progress_event
from .server import SESSION_ID, SessionServer
from .sessions import NO_LOGS, is_ended
from .start import Start

PROGRESS_STEP_SECONDS = 0.5
# If a stop takes longer than this, it may be waiting for the engine of a lost machine.
LOST_CHECK_SECONDS = 2.0
STOPPED = TextTemplate.STOPPED_THROUGH_HUB.value


class BaiSpawner(SessionServer):
    """Spawner for sessions of the resource manager, which decides where and when they run."""

    _start: Start | None = None
    _last_exit = 0

    @default("options_form")
    def _default_options_form(self) -> Any:
        return form.render

    @default("options_from_form")
    def _default_options_from_form(self) -> Any:
        return form.parse

    @default("apply_user_options")
    def _default_apply_user_options(self) -> Any:
        # ``Start`` applies the options. Without a function here the Hub logs a warning at each
        # start.
        return lambda spawner, options: None

    async def start(self) -> str:
        self._last_exit = 0
        try:
            self._start = Start(self)
            return await self._start.run()
        except errors.BaiError as error:
            # The file with the Hub's secret cannot be read, so no request has been sent.
            raise refusals.of_manager(error, self.translate) from error
        finally:
            self._start = None

    @property
    def is_refused_by_field(self) -> bool:
        """Whether the form shows, next to a field, why the start was refused."""
        return form.has_problems()

    def serves(self, session_id: str) -> bool:
        """Return whether the running, starting or last server belongs to the session."""
        if self._start is not None:
            return self._start.belongs_to(session_id)
        if self.pending == "spawn":
            return False  # the start has not begun yet, so its session is unknown
        if self._running is not None:
            return self._running.session_id == session_id
        return bool((self.orm_spawner.user_options or {}).get(SESSION_ID) == session_id)

    async def stop(self, now: bool = False) -> None:
        running = self._running
        if running is None:
            return
        engine = self.engine(running.engine)
        try:
            ended = await self._stop_unless_lost(engine, running, now)
        except EngineUnreachable as error:
            self.log.error("%s cannot be stopped now: %s", self._log_name, error)
            # The Hub discards the server's state in any case, so the manager must stop the session
            # through the agent. A batch session continues without its attached server.
            if not running.is_attached:
                await self._cancel_in_manager(running.session_id)
            return
        if ended is None:
            self.forget()
            if running.is_attached:
                return
            await kernel_group.abandon(engine, running)
            end = Exit(None, EndReason.STOPPED, STOPPED)
            await self.sessions.report_exit(running.session_id, end, NO_LOGS, self.log)
            return
        await self._finish(engine, running, Exit(ended.code, EndReason.STOPPED, STOPPED))

    async def _stop_unless_lost(self, engine: Engine, running: Running, now: bool) -> Exit | None:
        """Stop the kernels; return None if the session has lost an agent.

        The engine of a lost machine may not respond for a minute, but its kernels have stopped.
        """
        stopping = asyncio.ensure_future(kernel_group.stop(engine, running, now))
        try:
            done, _ = await asyncio.wait({stopping}, timeout=LOST_CHECK_SECONDS)
            is_stopped = bool(done) and stopping.exception() is None
            if not is_stopped and await self._has_lost_agent(running.session_id):
                return None
            return await stopping
        finally:
            stopping.cancel()

    async def _has_lost_agent(self, session_id: str) -> bool:
        try:
            return await self.sessions.has_lost_agent(session_id)
        except errors.BaiError as error:
            self.log.warning("Session %s cannot be read: %s", session_id, error)
            return False

    async def poll(self) -> int | None:
        running = self._running
        if running is None:
            return None if self._start is not None else self._last_exit
        engine = self.engine(running.engine)
        try:
            ended = await kernel_group.poll(engine, running)
        except EngineUnreachable as error:
            self.log.warning("%s is assumed to be running: %s", self._log_name, error)
            return None
        if self._start is not None:
            return None  # the start in progress reports the exit itself
        if ended is None:
            await self._report_late()
            return None
        if running.subs:
            # If one kernel has ended, stop the others before reporting the end.
            try:
                main = await kernel_group.stop(engine, running, now=True)
                ended = replace(ended, code=main.code)
            except EngineUnreachable as error:
                self.log.warning("%s: a kernel cannot be stopped: %s", self._log_name, error)
        await self._finish(engine, running, ended)
        return self._last_exit

    async def _finish(self, engine: Engine, running: Running, ended: Exit) -> None:
        if not running.is_attached:
            logs = await kernel_group.read_logs(engine, running, MAX_LOG_BYTES)
            await self.sessions.report_exit(running.session_id, ended, logs, self.log)
        await kernel_group.remove(engine, running)
        self.forget()
        self._last_exit = ended.as_poll

    async def _report_late(self) -> None:
        try:
            await self.report_started()
        except errors.BaiError as error:
            # The manager has already ended the session, and makes the agent remove its kernels.
            self.log.warning("%s: the manager rejected its start: %s", self._log_name, error)
            self._is_reported = True

    async def _cancel_in_manager(self, session_id: str) -> None:
        try:
            await self.sessions.cancel(session_id)
        except errors.BaiError as error:
            self.log.warning("Session %s was not cancelled: %s", session_id, error)

    async def get_url(self) -> str:
        if self._running is None:
            return str(self.server.url)
        return str(url_path_join(self._running.url, self.server.base_url))

    def get_state(self) -> dict[str, Any]:
        state: dict[str, Any] = super().get_state()
        if self._running is not None:
            state["running"] = self._running.to_state()
            state["is_reported"] = self._is_reported
        return state

    def load_state(self, state: dict[str, Any]) -> None:
        super().load_state(state)
        if "running" in state:
            self._running = Running.from_state(state["running"])
            self._is_reported = bool(state.get("is_reported"))

    def clear_state(self) -> None:
        super().clear_state()
        self.forget()

    async def progress(self) -> AsyncIterator[dict[str, Any]]:
        """Yield a progress event whenever the session's progress changes, until the start ends."""
        translate, last = self.translate, None
        while self.pending == "spawn":
            if (start := self._start) is not None and start.session_id:
                try:
                    session = await self.sessions.get(start.session_id)
                except errors.BaiError:
                    session = None
                event = progress_event(session, translate) if session else None
                if event is not None and event != last:
                    yield event
                    last = event
            await asyncio.sleep(PROGRESS_STEP_SECONDS)

    async def delete_forever(self) -> None:
        """Cancel the server's session if it is live; the Hub is removing the server.

        A batch session that its agent has started continues: the server was only attached to it.
        """
        session_id = (self.orm_spawner.user_options or {}).get(SESSION_ID)
        if not session_id:
            return
        try:
            session = await self.sessions.get(str(session_id))
            is_own = (session["hub_user"], session["hub_server"]) == (self.user.name, self.name)
            is_attached = session["started_by"] == BY_AGENT
            if is_own and not is_attached and not is_ended(session):
                await self.sessions.cancel(session["id"])
        except errors.BaiError as error:
            self.log.warning("Session %s was not cancelled: %s", session_id, error)
