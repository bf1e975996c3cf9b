"""Base class of the spawner: its settings, shared resources and saved state."""

from __future__ import annotations

import os
from collections.abc import Mapping, MutableMapping
from typing import Any

from jupyterhub import orm
from jupyterhub.scopes import scope_definitions
from jupyterhub.spawner import Spawner
from jupyterhub.user import User
from jupyterhub.utils import url_path_join
from sqlalchemy.orm import object_session
from traitlets import Dict, Float, Integer, TraitError, Unicode, default
from traitlets.config import Config, Configurable
from traitlets.utils.importstring import import_item

from bai_services.core import errors
from bai_services.core.accounts.roles import SESSION_SCOPE
from bai_services.core.sessions.lifecycle import SESSION_ID_OPTION
from bai_services.engines.base import Engine, EngineError, Running
from bai_services.i18n.catalogue import Translator, translator, translator_for

from .sessions import Sessions

SHARED = "bai_spawner"
SESSION_ID = SESSION_ID_OPTION


class SessionServer(Spawner):
    """A Hub server that represents a session of the resource manager."""

    manager_url = Unicode(
        help="""
        Direct URL of the resource manager, without the Hub's proxy. The default is
        `BAI_MANAGER_URL`, or `http://127.0.0.1:8091/services/bai` if that variable is not set.
        """
    ).tag(config=True)

    hub_token_file = Unicode(
        help="""
        File with the Hub's secret for the resource manager. The default is `BAI_HUB_TOKEN_FILE`.
        """
    ).tag(config=True)

    session_manager_url = Unicode(
        help="""
        URL at which sessions reach the resource manager; they get it as `BAI_MANAGER_URL`. The
        default is `manager_url`. Set it if containers or other machines cannot reach that URL.
        """
    ).tag(config=True)

    manager_timeout_seconds = Float(
        10,
        min=0.1,
        help="""
        Timeout in seconds of a call to the resource manager. Calls that wait for a pending session
        (`queue_grace_seconds`) have their own timeout.
        """,
    ).tag(config=True)

    queue_grace_seconds = Float(
        30,
        min=0,
        help="""
        Seconds that a start from the Hub waits in the queue. After this time, the start ends with a
        link to the session, which remains pending and starts later without the Hub. 0: the start
        does not wait. The wait counts towards `start_timeout`. """,
    ).tag(config=True)

    answer_step_seconds = Float(
        0.02,
        min=0.001,
        max=1,
        help="Seconds between two readiness checks of a started server.",
    ).tag(config=True)

    engine_classes = Dict(
        default_value={
            "process": "bai_services.engines.process.ProcessEngine",
            "docker": "bai_services.engines.docker.DockerEngine",
        },
        help="""
        Maps the engine name of a resource group to the engine class or its import name.
        Configure an engine through its class, for example `c.DockerEngine.pids_limit`.
        """,
    ).tag(config=True)

    start_timeout = Integer(
        780,
        help="""
        Maximum duration of a start in seconds, including the wait in the queue
        (`queue_grace_seconds`) and bootstrap scripts, which may take ten minutes.
        """,
    ).tag(config=True)

    response_timeout_seconds = Float(
        180,
        min=1,
        help="""
        Seconds from the request to start a server until the server must respond, including the
        wait in the queue, but without the time limits of the session's bootstrap scripts. No effect
        if it is greater than `start_timeout`.
        """,
    ).tag(config=True)

    @default("manager_url")
    def _default_manager_url(self) -> str:
        return os.environ.get("BAI_MANAGER_URL", "http://127.0.0.1:8091/services/bai")

    @default("session_manager_url")
    def _default_session_manager_url(self) -> str:
        return str(self.manager_url)

    @default("hub_token_file")
    def _default_hub_token_file(self) -> str:
        return os.environ.get("BAI_HUB_TOKEN_FILE", "")

    @default("server_token_scopes")
    def _default_server_token_scopes(self) -> list[str]:
        # The first two scopes are the Hub's default. A batch session reads its own server, because
        # it runs its command only after the Hub has registered the server. The manager recognizes
        # the token of a session by the last scope.
        own = ["users:activity!user", "access:servers!server", "read:servers!server"]
        return [*own, f"{SESSION_SCOPE}!server"] if SESSION_SCOPE in scope_definitions else own

    _running: Running | None = None
    _is_reported = False

    @property
    def _shared(self) -> MutableMapping[str, Any]:
        """Resources shared by all spawners of this Hub: connections, threads, probe results."""
        shared: MutableMapping[str, Any] = self.user.settings.setdefault(SHARED, {})
        return shared

    @property
    def sessions(self) -> Sessions:
        shared = self._shared
        if "sessions" not in shared:
            shared["sessions"] = Sessions.connect(
                self.manager_url, self.hub_token_file, self.manager_timeout_seconds
            )
        sessions: Sessions = shared["sessions"]
        return sessions

    @property
    def translate(self) -> Translator:
        return translator_for(self.handler) if self.handler else translator("en")

    @property
    def is_requested_by_owner(self) -> bool:
        """Whether the owner of this server requested the start in progress."""
        caller = self.handler.current_user if self.handler else None
        return isinstance(caller, User) and caller.name == self.user.name

    @property
    def is_requested_by_service(self) -> bool:
        caller = self.handler.current_user if self.handler else None
        return isinstance(caller, orm.Service)

    def engine(self, name: str) -> Engine:
        """Return the engine of that name.

        Raises
        ------
        EngineError
            If this Hub has no engine of that name.
        """
        if name not in self.engine_classes:
            raise EngineError(f"this Hub has no engine {name!r}", reason="no-engine")
        return self._make_engine(name, self._shared)

    def _make_engine(self, name: str, shared: MutableMapping[str, Any]) -> Engine:
        cls = self.engine_classes[name]
        cls = import_item(cls) if isinstance(cls, str) else cls
        engine: Engine = cls(shared, parent=self)
        return engine

    @classmethod
    def configurables(cls, config: Config) -> list[Configurable]:
        """Return the objects with the settings that the Hub reports: one server, and its engines.

        An engine that cannot be imported or has an invalid setting is left out.
        """
        server = cls(config=config)
        found: list[Configurable] = [server]
        for name in server.engine_classes:
            try:
                found.append(server._make_engine(name, {}))
            except (ImportError, TraitError) as error:
                server.log.warning("the settings of engine %s are not reported: %s", name, error)
        return found

    def own_command(self) -> list[str]:
        """Return the command in the Hub's configuration; empty if it is JupyterHub's default."""
        command, arguments = list(self.cmd), list(self.get_args())
        is_default = command == ["jupyterhub-singleuser"] and not arguments
        return [] if is_default else [*command, *arguments]

    def page_of(self, session_id: str, session: Mapping[str, Any] | None = None) -> str:
        """Return the path of a session's page."""
        given = str((session or {}).get("page") or "")
        if given.startswith("/") and not given.startswith("//"):
            return given
        base = self.hub.base_url.removesuffix("hub/")
        return str(url_path_join(base, "services/bai/sessions", session_id))

    def remember_session(self, session_id: str, options: Mapping[str, Any]) -> None:
        """Store the session id in the server's options, for a later start or removal."""
        self.orm_spawner.user_options = {**options, SESSION_ID: session_id}
        self._commit()

    def forget_session(self) -> None:
        """Make the next start of this server create a new session."""
        options = dict(self.orm_spawner.user_options or {})
        options.pop(SESSION_ID, None)
        self.orm_spawner.user_options = options
        self._commit()

    def forget_options(self) -> None:
        """Remove all options except the session id, so that they do not apply to the owner's next
        start.
        """
        options = self.orm_spawner.user_options or {}
        remaining = {name: value for name, value in options.items() if name == SESSION_ID}
        self.user_options = self.orm_spawner.user_options = remaining
        self._commit()

    def remember(self, running: Running) -> None:
        """Save the running kernels now.

        The Hub saves the spawner's state only after ``start`` returns.
        """
        self._running, self._is_reported = running, False
        self.orm_spawner.state = self.get_state()
        self._commit()

    def _commit(self) -> None:
        # ``Spawner.db`` is deprecated and logs a warning at each start.
        database_session = object_session(self.orm_spawner)
        assert database_session is not None, "the row of a server always has a database session"
        database_session.commit()

    def forget(self) -> None:
        self._running, self._is_reported = None, False

    async def report_started(self) -> None:
        """Report to the manager that the server responds.

        If the manager is unavailable, the next ``poll`` repeats the report.
        """
        if self._running is None or self._is_reported or self._running.is_attached:
            return
        try:
            await self.sessions.started(self._running)
        except errors.Unavailable as error:
            self.log.warning(
                "%s is running, but the manager could not be notified: %s", self._log_name, error
            )
        else:
            self._is_reported = True

    async def start(self) -> str:
        raise NotImplementedError

    async def stop(self, now: bool = False) -> None:
        raise NotImplementedError

    async def poll(self) -> int | None:
        raise NotImplementedError
