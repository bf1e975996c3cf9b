"""Trials of definitions: start one replica, watch it, and explain why it is not healthy.

A trial is stored before its session is created, with the same id, and ends before its session.
Therefore a manager that is killed at any point neither loses a trial nor leaves its session
running.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from typing import Any

from aiohttp import (
    ClientConnectorError,
    ClientError,
    ClientSession,
    ClientTimeout,
    DummyCookieJar,
    TCPConnector,
)
from yarl import URL

from bai_services import grpc_health
from bai_services.core.accounts.roles import Caller
from bai_services.core.coded_text import CodedText, TextTemplate
from bai_services.core.errors import BaiError, Unavailable
from bai_services.core.serving.definition import MAX_PORT, HealthCheck
from bai_services.core.serving.gateway_records import Protocol
from bai_services.core.serving.records import TRIALS_KEPT_FOR, Trial
from bai_services.core.serving.settings import RevisionSettings
from bai_services.core.serving.trial import (
    Answer,
    Check,
    Observation,
    cause_in_log,
    explain,
    last_lines,
)
from bai_services.core.sessions.lifecycle import ENDED, SessionType, Status
from bai_services.core.sessions.logs import without_times
from bai_services.core.user_input import read_whole
from bai_services.db.open_work import Work
from bai_services.db.serving.trials import TrialRow, TrialStore
from bai_services.db.sessions.rows import SessionRow

from ..accounts import authorizer
from ..accounts.callers import Callers
from ..context import ManagerContext
from ..scheduling.lease import Lease
from ..sessions.requests.choices import REPLICA_TYPES
from ..sessions.sessions import Sessions
from .background import BackgroundCalls
from .endpoints import Endpoints
from .replica_launch import ReplicaSecrets
from .requests import replica_name, replica_spec

TICK_SECONDS = 1.0
CHECK_SECONDS = 0.9
MAX_CONCURRENT = 64
MAX_PER_OWNER = 4
# Maximum time from the creation of a trial to the creation of its session, in one request.
CREATION_SECONDS = 60
# The runner of a replica lists the ports that its processes listen on.
EXPLAIN_HEADER, LISTENING_HEADER = "X-Bai-Explain", "X-Bai-Listening"
_MAX_PORTS = 5
_NAME = "trial"
_CLEANUP_INTERVAL_SECONDS = 3600.0
_MAX_MESSAGE = 500

log = logging.getLogger(__name__)


class Trials:
    """Manages private trials. Users may try what they may deploy, within their quotas."""

    def __init__(
        self,
        context: ManagerContext,
        store: TrialStore,
        endpoints: Endpoints,
        sessions: Sessions,
        callers: Callers,
        secrets: ReplicaSecrets,
        lease: Lease,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = context.clock
        self._audit = context.audit
        self._store = store
        self._endpoints = endpoints
        self._sessions = sessions
        self._callers = callers
        self._secrets = secrets
        self._lease = lease
        self._monotonic = monotonic
        self._cleaned_at: float | None = None
        self._checks: dict[str, Check] = {}
        self._checked_at: dict[str, float] = {}
        self.calls = BackgroundCalls(MAX_CONCURRENT, MAX_PER_OWNER)
        self._session: ClientSession | None = None
        self._loop = lease.loop("trials", self.step, TICK_SECONDS, Work.TRIALS)

    def start(self) -> None:
        self._loop.start()

    async def stop(self) -> None:
        await self._loop.stop()
        await self.calls.close()
        if self._session is not None:
            await self._session.close()

    def session_changed(self, row: SessionRow) -> None:
        """Run the next step now if the session may belong to a trial."""
        if row.type == SessionType.INFERENCE:
            self._loop.wake()

    async def create(self, caller: Caller, spec: Mapping[str, Any]) -> Trial:
        """Start a trial of the settings of a revision.

        A session that cannot be created ends the trial, with the reason.

        Raises
        ------
        InvalidRequest
            If the definition or a setting is not valid.
        QuotaExceeded
            If the caller has too many trials.
        """
        authorizer.require(caller, "endpoint.write")
        settings = await self._endpoints.settings_of(caller, spec)
        trial_id, now = str(uuid.uuid4()), self._clock()
        await self._store.create(
            {
                "id": trial_id,
                "created_at": now,
                "owner_id": caller.user_id,
                "settings": settings.as_json(),
                "url": "",
                "state": TextTemplate.TRIAL_STARTING.text().as_json(),
                "log": "",
            }
        )
        request = replica_spec(settings, spec.get("project"), replica_name(_NAME, trial_id))
        try:
            await self._sessions.create(
                caller, request, session_id=trial_id, creatable=REPLICA_TYPES, endpoint=_NAME
            )
        except BaiError as error:
            text = TextTemplate.SCHEDULE_REFUSED.text(message=error.message[:_MAX_MESSAGE])
            await self._store.end(trial_id, text.as_json(), False, "", self._clock())
        self._loop.wake()
        return await self.get(caller, trial_id)

    async def get(self, caller: Caller, key: str) -> Trial:
        return _record(await self._find(caller, key))

    async def end(self, caller: Caller, key: str) -> Trial:
        """End a trial of the caller, and its session; idempotent."""
        row = await self._find(caller, key)
        text = TextTemplate.STOPPED_BY.text(name=caller.username or "")
        await self._store.end(row.id, text.as_json(), False, "", self._clock())
        self._loop.wake()
        return await self.get(caller, key)

    async def _find(self, caller: Caller, key: str) -> TrialRow:
        authorizer.require(caller, "endpoint.write")
        return await self._store.find("" if "\0" in key else key, caller.user_id or "")

    async def step(self) -> None:
        """Observe every trial, and end the sessions of ended trials."""
        if await self._lease.hold() is None:
            return
        now = self._clock()
        rows = await self._store.live()
        live = {row.id for row in rows}
        self._checks = {key: check for key, check in self._checks.items() if key in live}
        self._checked_at = {key: at for key, at in self._checked_at.items() if key in live}
        for row in rows:
            try:
                await self._observe(row, now)
            except Unavailable:
                raise
            except Exception:
                # A failing trial must not delay the others.
                log.exception("trial %s could not be processed", row.id)
        for session_id in await self._store.unended_sessions([*ENDED, Status.TERMINATING]):
            await self._sessions.end(session_id, TextTemplate.TRIAL_ENDED.text())
        await self._clean_up(now)

    async def _observe(self, row: TrialRow, now: datetime) -> None:
        if row.status is None and (now - row.created_at).total_seconds() < CREATION_SECONDS:
            return
        settings = RevisionSettings.from_json(row.settings)
        since = row.started_at if row.status is Status.RUNNING else row.status_changed_at
        finding = explain(
            Observation(
                status=row.status,
                seconds=(now - (since or now)).total_seconds(),
                health=settings.health,
                message=row.status_info[:_MAX_MESSAGE],
                code="" if row.status_coded is None else str(row.status_coded["code"]),
                exit_code=row.exit_code,
                check=self._checks.get(row.id),
            )
        )
        state = finding.text.as_json()
        if finding.is_healthy is not None:
            lines = await self._log_of(row)
            if finding.text.code == TextTemplate.TRIAL_EXITED.code:
                state = (cause_in_log(lines) or finding.text).as_json()
            await self._store.end(row.id, state, finding.is_healthy, lines, now)
            return
        if state != row.state:
            await self._store.set_state(row.id, state)
        if row.status is Status.RUNNING and row.url:
            self._begin_check(row, settings)

    def _begin_check(self, row: TrialRow, settings: RevisionSettings) -> None:
        """Start a health check, unless one is running or has just begun."""
        now = self._monotonic()
        is_due = now - self._checked_at.get(row.id, -CHECK_SECONDS) >= CHECK_SECONDS
        if is_due and self.calls.may_begin(row.id, row.owner_id):
            self._checked_at[row.id] = now
            is_grpc = settings.protocol is Protocol.GRPC
            check = self._check_grpc if is_grpc else self._check
            self.calls.begin(row.id, row.owner_id, self._checked(row, settings.health, check))

    async def _log_of(self, row: TrialRow) -> str:
        """Return the last lines of the output; "" if they cannot be read."""
        # A command that ends at once has an output although its session never became RUNNING.
        if row.status in (None, Status.PENDING):
            return ""
        try:
            caller = await self._callers.for_schedule(row.owner)
            return last_lines(without_times((await self._sessions.logs(caller, row.id)).log))
        except BaiError:
            return ""

    async def _checked(
        self,
        row: TrialRow,
        health: HealthCheck,
        check: Callable[[TrialRow, HealthCheck], Awaitable[Check]],
    ) -> None:
        found = self._checks[row.id] = await check(row, health)
        if found.is_healthy(health):
            self._loop.wake()

    async def _check_grpc(self, row: TrialRow, health: HealthCheck) -> Check:
        url, secret = URL(row.url), self._secrets.of(row.id)
        try:
            found = await grpc_health.check(
                url.host or "", url.port or 0, secret, health.path, health.timeout_seconds
            )
        except ConnectionResetError:
            # Send an HTTP request: its response contains the ports that the processes listen on.
            check = await self._check(row, health)
            return check if check.answer is Answer.REFUSED else Check(Answer.NO_GRPC)
        except TimeoutError:
            return Check(Answer.TIMEOUT)
        except OSError:
            return Check(Answer.UNREACHABLE)
        return Check(Answer.SERVING if found.is_healthy else Answer(found))

    async def _check(self, row: TrialRow, health: HealthCheck) -> Check:
        try:
            async with self._http.get(
                row.url + health.path,
                headers={
                    "Authorization": f"token {self._secrets.of(row.id)}",
                    EXPLAIN_HEADER: "1",
                },
                timeout=ClientTimeout(total=health.timeout_seconds),
                allow_redirects=False,
            ) as response:
                ports = response.headers.get(LISTENING_HEADER)
                if ports is None:
                    return Check(Answer.STATUS, response.status)
                return Check(Answer.REFUSED, listening=_ports(ports))
        except TimeoutError:
            return Check(Answer.TIMEOUT)
        except ClientConnectorError:
            return Check(Answer.UNREACHABLE)
        except (ClientError, OSError, ValueError):
            # The server has closed the connection or does not speak HTTP.
            return Check(Answer.NO_HTTP)

    async def _clean_up(self, now: datetime) -> None:
        monotonic = self._monotonic()
        last = self._cleaned_at
        if last is None or monotonic - last >= _CLEANUP_INTERVAL_SECONDS:
            self._cleaned_at = monotonic
            await self._store.clean_up(now - TRIALS_KEPT_FOR)

    @property
    def _http(self) -> ClientSession:
        if self._session is None:
            # Created at the first check, because it is bound to the running event loop.
            self._session = ClientSession(
                connector=TCPConnector(limit=MAX_CONCURRENT, force_close=True),
                cookie_jar=DummyCookieJar(),
                trust_env=False,
            )
        return self._session


def _ports(text: str) -> tuple[int, ...]:
    numbers = (read_whole(part) for part in text.split(",")[:_MAX_PORTS])
    return tuple(number for number in numbers if number and number <= MAX_PORT)


def _record(row: TrialRow) -> Trial:
    return Trial(
        id=row.id,
        created_at=row.created_at,
        session=row.id,
        session_status=row.status,
        state=str(CodedText.from_json(row.state)),
        state_coded=row.state,
        is_healthy=row.is_healthy,
        ended_at=row.ended_at,
        log=row.log,
    )
