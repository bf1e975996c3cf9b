"""Settings and resources of a Hub server that is a session."""

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
from traitlets import Dict, Float, Integer, Unicode, default
from traitlets.utils.importstring import import_item

from bai_services.core import errors
from bai_services.core.accounts.roles import SESSION_SCOPE
from bai_services.core.sessions.lifecycle import HUB_OPTION
from bai_services.i18n.catalogue import Translator, translator, translator_for

from .engines.base import Engine, EngineError, Running
from .sessions import Sessions

SHARED = "bai_spawner"
SESSION_ID = HUB_OPTION


class SessionServer(Spawner):
    """A Hub server that is a session: its settings and its resources."""

    manager_url = Unicode(
        help="""
        Address of the resource manager without the Hub's proxy in between, such as
        `http://127.0.0.1:8091/services/bai`. The default is `BAI_MANAGER_URL`.
        """
    ).tag(config=True)

    hub_token_file = Unicode(
        help="""
        File with the Hub's secret for the resource manager. The default is `BAI_HUB_TOKEN_FILE`.
        """
    ).tag(config=True)

    session_manager_url = Unicode(
        help="""
        Address at which sessions reach the resource manager, which they get as `BAI_MANAGER_URL`.
        The default is `manager_url`; it must be another one where containers or other machines
        cannot reach that.
        """
    ).tag(config=True)

    manager_timeout_seconds = Float(
        10,
        min=0.1,
        help="""
        Seconds after which a call to the resource manager counts as not answered. Waiting for a
        place (`queue_grace_seconds`) comes on top.
        """,
    ).tag(config=True)

    queue_grace_seconds = Float(
        30,
        min=0,
        help="""
        Seconds that a start from the Hub waits for a place before it ends with a link to the
        queued session, which then starts by itself. 0 looks once. It counts into
        `start_timeout`.
        """,
    ).tag(config=True)

    answer_step_seconds = Float(
        0.02,
        min=0.001,
        max=1,
        help="Seconds between two checks whether a started server answers.",
    ).tag(config=True)

    engine_classes = Dict(
        default_value={
            "process": "bai_spawner.engines.process.ProcessEngine",
            "docker": "bai_spawner.engines.docker.DockerEngine",
        },
        help="""
        The class, or its import name, behind each engine name of resource groups. Their own
        options are those of the classes, such as `c.DockerEngine.pids_limit`.
        """,
    ).tag(config=True)

    start_timeout = Integer(
        180,
        help="""
        Seconds from the start of a spawn until its server must answer, the wait for a place
        (`queue_grace_seconds`) included.
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
        # Required: the Hub's own default; reading the session's own server, because a batch session
        # starts its command when the Hub knows the server; and the scope by which the manager
        # recognises the token as a session's.
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
        found: Sessions = shared["sessions"]
        return found

    @property
    def translate(self) -> Translator:
        return translator_for(self.handler) if self.handler else translator("en")

    @property
    def is_requested_by_owner(self) -> bool:
        """Whether the start in progress was requested by the user whose server this is."""
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
        cls = self.engine_classes[name]
        cls = import_item(cls) if isinstance(cls, str) else cls
        found: Engine = cls(self._shared, parent=self)
        return found

    def own_command(self) -> list[str]:
        """Return the command of the Hub's configuration, empty where it is the Hub's default."""
        words, arguments = list(self.cmd), list(self.get_args())
        is_default = words == ["jupyterhub-singleuser"] and not arguments
        return [] if is_default else [*words, *arguments]

    def page_of(self, session_id: str, session: Mapping[str, Any] | None = None) -> str:
        """Return the path of a session's page."""
        given = str((session or {}).get("page") or "")
        if given.startswith("/") and not given.startswith("//"):
            return given
        base = self.hub.base_url.removesuffix("hub/")
        return str(url_path_join(base, "services/bai/sessions", session_id))

    def remember_session(self, session_id: str, options: Mapping[str, Any]) -> None:
        """Store the session id with the options: a later start or removal of this server needs
        it.
        """
        self.orm_spawner.user_options = {**options, SESSION_ID: session_id}
        self._commit()

    def forget_session(self) -> None:
        """Make the next start of this server create a new session."""
        options = dict(self.orm_spawner.user_options or {})
        options.pop(SESSION_ID, None)
        self.orm_spawner.user_options = options
        self._commit()

    def forget_options(self) -> None:
        """Keep only the session id: the owner's next start would use the other options."""
        options = self.orm_spawner.user_options or {}
        kept = {name: value for name, value in options.items() if name == SESSION_ID}
        self.user_options = self.orm_spawner.user_options = kept
        self._commit()

    def remember(self, running: Running) -> None:
        """Save the running kernels at once: the Hub itself would save only after ``start``."""
        self._running, self._is_reported = running, False
        self.orm_spawner.state = self.get_state()
        self._commit()

    def _commit(self) -> None:
        # The row's database session: ``Spawner.db`` is deprecated and warns at each start.
        session = object_session(self.orm_spawner)
        assert session is not None, "the row of a server is always in the Hub's session"
        session.commit()

    def forget(self) -> None:
        self._running, self._is_reported = None, False

    async def report_started(self) -> None:
        """Report to the manager that the server responds; ``poll`` repeats it if the manager was
        unavailable.
        """
        if self._running is None or self._is_reported:
            return
        try:
            await self.sessions.started(self._running)
        except errors.Unavailable as error:
            self.log.warning(
                "%s runs, but the manager could not be notified: %s", self._log_name, error
            )
        else:
            self._is_reported = True

    async def start(self) -> str:
        raise NotImplementedError

    async def stop(self, now: bool = False) -> None:
        raise NotImplementedError

    async def poll(self) -> int | None:
        raise NotImplementedError
