"""Run the endpoints: create, check and stop replicas until the desired state is reached.

A replica is stored before its session is created, and the session has the replica's id. A replica
is marked as stopping before its session is stopped. Therefore a manager that is killed at any point
neither loses a replica nor creates a second session for it.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from math import ceil

from bai_services.core.accounts.roles import Role
from bai_services.core.coded_text import CodedText, TextTemplate
from bai_services.core.errors import (
    BaiError,
    InsufficientResources,
    QuotaExceeded,
    Unavailable,
)
from bai_services.core.serving.definition import HealthCheck
from bai_services.core.serving.gateway_records import Protocol
from bai_services.core.serving.latency import quantile
from bai_services.core.serving.records import (
    ENDED_REPLICAS_KEPT,
    ENDED_REPLICAS_KEPT_FOR,
    GATEWAY_TIMEOUT,
)
from bai_services.core.serving.rollout import (
    LIVE_PHASES,
    Outcome,
    Phase,
    Plan,
    ReplicaState,
    RolloutRules,
    Situation,
    is_too_slow,
    plan,
)
from bai_services.core.serving.settings import RevisionSettings
from bai_services.core.sessions.lifecycle import ENDED, SessionType, Status
from bai_services.core.wall_clock import has_elapsed
from bai_services.db.open_work import Work
from bai_services.db.serving.chats import ChatStore
from bai_services.db.serving.replicas import EndpointState, NewReplica, ReplicaRow, ReplicaStore
from bai_services.db.serving.rows import EndpointRow
from bai_services.db.serving.tokens import TokenStore
from bai_services.db.serving.usage import UsageStore
from bai_services.db.sessions.rows import SessionRow

from ..accounts.callers import Callers
from ..context import ManagerContext
from ..scheduling.lease import Lease
from ..sessions.planned_stops import ReplicaDrain
from ..sessions.requests.choices import REPLICA_TYPES
from ..sessions.sessions import Sessions
from .probes import REPEAT_SECONDS, HealthProbes, Probed
from .replica_launch import ReplicaSecrets
from .requests import replica_name, replica_spec
from .scaler import EndpointScaler, is_scaled

TICK_SECONDS = 1.0
# Pause of the creation of replicas after the first failure; it doubles with each failure.
FIRST_PAUSE = timedelta(seconds=5)
MAX_PAUSE = timedelta(minutes=5)
# Pause after a quota or missing resources have prevented a creation.
POSTPONED_PAUSE = timedelta(seconds=30)
# Maximum sessions of one owner created or stopped in a step: other owners must not wait long.
MAX_SESSIONS_PER_STEP = 20
# The count of failures is reset when all replicas have been ready for this time.
FAILURES_KEPT_FOR = timedelta(minutes=1)
# A draining replica is stopped after this time even if it has requests.
MAX_DRAIN = timedelta(hours=1)
# The limit if a user or a rule stops the session of the replica.
STOP_DRAIN = timedelta(seconds=30)
# With these reasons, a replica drains for at most ``MAX_DRAIN``. Victims of a preemption are
# stopped at the end of their warning time instead.
_UNHURRIED_DRAINS = frozenset(
    {TextTemplate.REPLICA_NOT_NEEDED.code, TextTemplate.REPLICA_PREEMPTED.code}
)
# The server of a new replica is checked more frequently for this time.
NEW_FOR = timedelta(seconds=10)
_REPEATS = ceil(TICK_SECONDS / REPEAT_SECONDS) - 1
_CLEANUP_INTERVAL_SECONDS = 3600.0
_MAX_MESSAGE = 500

log = logging.getLogger(__name__)


class EndpointRunner:
    """Processes all endpoints every ``TICK_SECONDS`` while this manager holds the lease."""

    def __init__(
        self,
        context: ManagerContext,
        store: ReplicaStore,
        tokens: TokenStore,
        usage: UsageStore,
        chats: ChatStore,
        sessions: Sessions,
        callers: Callers,
        secrets: ReplicaSecrets,
        scaler: EndpointScaler,
        require_writable: Callable[[Role], None],
        *,
        lease: Lease,
        changed: Callable[[], None],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """``changed`` notifies the gateways. ``require_writable`` raises ``Unavailable`` during
        read-only maintenance.
        """
        self._store = store
        self._tokens = tokens
        self._usage = usage
        self._chats = chats
        self._sessions = sessions
        self._callers = callers
        self.scaler = scaler
        self._clock = context.clock
        self._require_writable = require_writable
        self._lease = lease
        self._changed = changed
        self._monotonic = monotonic
        self._cleaned_at: float | None = None
        # Settings of revisions in use; the settings of a revision never change.
        self._settings: dict[str, RevisionSettings] = {}
        # Time of the last failure of a replica of the former revision during a rollout. It is not
        # stored, so a manager that takes over may create one replica too early.
        self._former_failed_at: dict[str, datetime] = {}
        self._changed_sessions: Counter[str] = Counter()  # in this step, by owner
        # Owners for whom no session can be created in this step, for example during maintenance.
        self._unavailable_to: set[str] = set()
        self._has_more = False
        self.probes = HealthProbes(secrets, self._passed)
        self._loop = lease.loop("endpoints", self.step, TICK_SECONDS, Work.ENDPOINTS)

    def start(self) -> None:
        self._loop.start()

    async def stop(self) -> None:
        await self._loop.stop()
        await self.probes.close()
        await self.scaler.close()

    def wake(self) -> None:
        self._loop.wake()

    async def drain(self, session_id: str, reason: CodedText) -> ReplicaDrain | None:
        """Let a replica finish its requests before its session is stopped.

        Return None if the session is not a serving replica.
        """
        is_changed = await self._store.drain(
            session_id, reason.as_json(), self._clock(), _UNHURRIED_DRAINS
        )
        if is_changed is None:
            return None
        if not is_changed:
            return ReplicaDrain.CONTINUING
        self._changed()
        self.wake()
        return ReplicaDrain.BEGUN

    def session_changed(self, row: SessionRow) -> None:
        """Run the next step now if the session is a replica."""
        if row.type == SessionType.INFERENCE:
            self.wake()

    async def step(self) -> None:
        """Bring every endpoint one step closer to its desired state."""
        if await self._lease.hold() is None:
            return
        now = self._clock()
        self._changed_sessions.clear()
        self._unavailable_to.clear()
        self._has_more = False
        states = await self._store.states()
        used = {id for state in states for id in _revisions(state.row)}
        self._settings = {id: each for id, each in self._settings.items() if id in used}
        self._former_failed_at = {
            state.row.id: failed_at
            for state in states
            if (failed_at := self._former_failed_at.get(state.row.id)) is not None
        }
        gateways: set[str] = set()
        if any(_needs_gateways(state) for state in states):
            gateways = await self._store.live_gateways(now)
        states = await self.scaler.scale(states, gateways, self._variant_of, now)
        for state in states:
            if await self._lease.hold() is None:
                return
            try:
                await self._advance(state, gateways, now)
            except Unavailable:
                raise
            except Exception:
                # A failing endpoint must not delay the others.
                log.exception("endpoint %s could not be processed", state.row.name)
        await self._forget_failures(states, now)
        await self._clean_up(now)
        if self._has_more:
            self.wake()

    async def _advance(self, state: EndpointState, gateways: set[str], now: datetime) -> None:
        row = state.row
        replicas = await self._observe_all(state, gateways, now)
        if replicas is None:
            # Run the next step at once: it reads the failures that this step has stored.
            self.wake()
            return
        if row.is_deleting and not replicas:
            await self._store.delete_endpoint(row.id)
            self._changed()
            return
        situation = await self._situation(row, replicas, now)
        await self._execute(row, situation, plan(situation), now)

    async def _observe_all(
        self, state: EndpointState, gateways: set[str], now: datetime
    ) -> list[ReplicaState] | None:
        """Return the replicas that have not ended; None if a replica has just failed."""
        replicas, has_failed = [], False
        discarded: list[str] = []
        for replica in state.replicas:
            if has_failed and replica.phase is Phase.STARTING and replica.status is None:
                # The same problem would also prevent the creation of the other replicas.
                discarded.append(replica.id)
                continue
            phase = await self._observe(state, replica, gateways, now)
            has_failed |= phase is Phase.STOPPING and replica.phase in LIVE_PHASES
            if phase is not Phase.ENDED:
                replicas.append(ReplicaState(replica.id, replica.revision_id, phase))
        await self._store.discard(discarded)
        return None if has_failed else replicas

    async def _situation(
        self, row: EndpointRow, replicas: list[ReplicaState], now: datetime
    ) -> Situation:
        live = [each.id for each in replicas if each.phase in LIVE_PHASES]
        if len(live) > row.replicas:
            kernels = await self._store.agent_kernels(live)
            replicas = [replace(each, agent_kernels=kernels.get(each.id, 0)) for each in replicas]
        return Situation(
            desired=row.replicas,
            active=row.active_revision_id,
            target=row.target_revision_id,
            replicas=replicas,
            rules=await self._rules(row),
            failures=row.failures,
            requests=row.target_requests,
            errors=row.target_errors,
            p99_ms=quantile(row.target_latency_ms or {}, 0.99),
            observed_seconds=_observed_seconds(row, now),
            is_promoted=row.is_promoted,
            is_stopped=_is_stopped(row),
            may_create=_may_create(row, now),
            may_restore=self._may_restore(row, now),
        )

    async def _execute(
        self, row: EndpointRow, situation: Situation, steps: Plan, now: datetime
    ) -> None:
        """Store the steps; sessions are created and stopped when the replicas are observed."""
        if steps.outcome is not None or dict(steps.weights) != row.weights:
            reason = None
            if steps.outcome in (Outcome.FAILED, Outcome.ROLLED_BACK):
                reason = _given_up(row, situation)
            is_unchanged = await self._store.advance(
                row, weights=steps.weights, outcome=steps.outcome, now=now, reason=reason
            )
            if not is_unchanged:
                # The next step reads the endpoint again.
                self.wake()
                return
            self._changed()
        not_needed = TextTemplate.REPLICA_NOT_NEEDED.text(name=row.name).as_json()
        await self._store.move(steps.drain, Phase.DRAINING, now, not_needed)
        await self._store.move(steps.end, Phase.STOPPING, now, not_needed)
        new = [
            NewReplica(str(uuid.uuid4()), row.id, revision_id)
            for revision_id, count in steps.create.items()
            for _ in range(count)
        ]
        if row.failed_at is not None:
            # After failures, create only one replica per pause, because it may fail again.
            del new[1:]
        if new:
            await self._store.insert(new, now)
        if new or steps.end or steps.drain or steps.outcome is not None:
            self._changed()
            self.wake()

    async def _observe(
        self, state: EndpointState, replica: ReplicaRow, gateways: set[str], now: datetime
    ) -> Phase:
        """React to the state of a replica's session; return the phase of the replica."""
        if replica.phase in (Phase.STOPPING, Phase.DRAINING):
            return await self._observe_removed(state.row, replica, gateways, now)
        if replica.status is None:
            return await self._create(state, replica, now)
        is_preempted = replica.status is Status.TERMINATING and replica.is_requeued_at_end
        if replica.status in (*ENDED, Status.TERMINATING, Status.SUSPENDED) and not is_preempted:
            text = TextTemplate.REPLICA_ENDED.text(message=replica.status_info[:_MAX_MESSAGE])
            if _is_stopped(state.row):
                # The replica had to be stopped, so the end of its session is not a failure.
                await self._store.move([replica.id], Phase.STOPPING, now, text.as_json())
                return Phase.STOPPING
            return await self._fail(state.row, replica, text, now)
        if replica.phase is Phase.READY:
            if replica.status is not Status.RUNNING:
                # A preempted session restarts; this is not a failure of its revision.
                await self._store.require_health_check([replica.id], now)
                self._changed()
                return Phase.STARTING
            return Phase.READY
        if replica.status is Status.RUNNING:
            settings = await self._settings_of(state.row, replica.revision_id)
            health = HealthCheck() if settings is None else settings.health
            limit, since = _start_limit(replica, health, now)
            if now - since > limit:
                seconds = int(limit.total_seconds())
                text = TextTemplate.REPLICA_NOT_READY.text(limit_seconds=seconds)
                return await self._fail(state.row, replica, text, now)
            if replica.url:
                repeats = _REPEATS if now - since < NEW_FOR else 0
                protocol = Protocol.HTTP if settings is None else settings.protocol
                self.probes.begin(replica, state.row.owner_id, health, repeats, protocol)
        return Phase.STARTING

    async def _observe_removed(
        self, row: EndpointRow, replica: ReplicaRow, gateways: set[str], now: datetime
    ) -> Phase:
        if replica.status is None or replica.status in ENDED:
            await self._store.move([replica.id], Phase.ENDED, now)
            return Phase.ENDED
        # Gateways end the requests of a deleted endpoint, so its replicas have no requests to
        # finish.
        is_draining = replica.phase is Phase.DRAINING and not row.is_deleting
        if is_draining and replica.status is Status.RUNNING:
            # If no gateway reports, wait only for ``GATEWAY_TIMEOUT``: only a disconnected gateway
            # could still use the replica.
            limit = _drain_limit(replica) if gateways else GATEWAY_TIMEOUT
            if not replica.is_drained(gateways) and now - replica.changed_at < limit:
                return Phase.DRAINING
        if replica.phase is Phase.DRAINING:
            await self._store.move([replica.id], Phase.STOPPING, now)
            self._changed()
        if replica.status is not Status.TERMINATING:
            text = TextTemplate.REPLICA_NOT_NEEDED.text(name=row.name)
            if replica.reason is not None:
                text = CodedText.from_json(replica.reason)
            if self._may_change_session(row.owner_id):
                await self._sessions.end(replica.id, text)
        return Phase.STOPPING

    async def _create(self, state: EndpointState, replica: ReplicaRow, now: datetime) -> Phase:
        """Create a replica's session with the owner's permissions; return the replica's phase."""
        row = state.row
        settings = await self._settings_of(row, replica.revision_id)
        if settings is None:
            # Another revision became the target before the session was created.
            await self._store.move([replica.id], Phase.STOPPING, now)
            return Phase.STOPPING
        is_unavailable = row.owner_id in self._unavailable_to
        if is_unavailable or not self._may_change_session(row.owner_id):
            return Phase.STARTING
        spec = replica_spec(settings, row.project_id, replica_name(row.name, replica.id))
        try:
            caller = await self._callers.for_schedule(row.owner)
            self._require_writable(caller.role)
            session, _ = await self._sessions.create(
                caller, spec, session_id=replica.id, creatable=REPLICA_TYPES, endpoint=row.name
            )
        except Unavailable:
            # For example read-only maintenance: the next step tries again.
            self._unavailable_to.add(row.owner_id)
            return Phase.STARTING
        except (QuotaExceeded, InsufficientResources) as error:
            # The revision is not the cause: the other replicas continue to serve.
            await self._store.postpone(row, replica, _refused(error).as_json(), now)
            return Phase.STOPPING
        except BaiError as error:
            return await self._fail(row, replica, _refused(error), now)
        if session.id != replica.id:
            text = TextTemplate.SCHEDULE_NAME_TAKEN.text(name=session.name)
            return await self._fail(row, replica, text, now)
        return Phase.STARTING

    def _may_change_session(self, owner_id: str) -> bool:
        """Count a session that is to be created or stopped; return False if this must wait for the
        next step.
        """
        if self._changed_sessions[owner_id] >= MAX_SESSIONS_PER_STEP:
            self._has_more = True
            return False
        self._changed_sessions[owner_id] += 1
        return True

    async def _settings_of(self, row: EndpointRow, revision_id: str) -> RevisionSettings | None:
        """Return the settings of a revision in ``_revisions``; None for other revisions."""
        if revision_id not in _revisions(row):
            return None
        if revision_id not in self._settings:
            stored = await self._store.settings(revision_id)
            if stored is None:
                return None
            self._settings[revision_id] = RevisionSettings.from_json(stored)
        return self._settings[revision_id]

    async def _variant_of(self, row: EndpointRow) -> str:
        settings = await self._settings_of(row, row.active_revision_id or row.target_revision_id)
        return "" if settings is None else settings.variant

    async def _rules(self, row: EndpointRow) -> RolloutRules:
        if row.active_revision_id == row.target_revision_id:
            return RolloutRules()  # not needed without a rollout
        settings = await self._settings_of(row, row.target_revision_id)
        return RolloutRules() if settings is None else settings.rollout

    async def _fail(
        self, row: EndpointRow, replica: ReplicaRow, text: CodedText, now: datetime
    ) -> Phase:
        await self._store.fail(row, replica, text.as_json(), now)
        if replica.revision_id != row.target_revision_id:
            self._former_failed_at[row.id] = now
        self._changed()
        return Phase.STOPPING

    def _may_restore(self, row: EndpointRow, now: datetime) -> bool:
        failed_at = self._former_failed_at.get(row.id)
        return failed_at is None or has_elapsed(failed_at, POSTPONED_PAUSE, now)

    async def _passed(self, replica: Probed) -> None:
        await self._store.mark_ready(replica.id, replica.url, self._clock())
        self._changed()
        self.wake()

    async def _forget_failures(self, states: list[EndpointState], now: datetime) -> None:
        await self._store.forget_failures(
            [
                row.id
                for row in (state.row for state in states)
                if row.failed_at is not None
                and row.active_revision_id == row.target_revision_id
                and row.ready_replicas >= row.replicas
                and has_elapsed(row.failed_at, FAILURES_KEPT_FOR, now)
            ]
        )

    async def _clean_up(self, now: datetime) -> None:
        monotonic = self._monotonic()
        last = self._cleaned_at
        if last is None or monotonic - last >= _CLEANUP_INTERVAL_SECONDS:
            self._cleaned_at = monotonic
            await self._store.clean_up(now, now - ENDED_REPLICAS_KEPT_FOR, ENDED_REPLICAS_KEPT)
            await self._tokens.clean_up(now)
            await self._usage.clean_up(now)
            await self._chats.clean_up(now)
            await self.scaler.clean_up()


def _drain_limit(replica: ReplicaRow) -> timedelta:
    """Return how long a replica may take to finish its requests."""
    is_unhurried = replica.reason is None or replica.reason["code"] in _UNHURRIED_DRAINS
    return MAX_DRAIN if is_unhurried else STOP_DRAIN


def _needs_gateways(state: EndpointState) -> bool:
    is_draining = any(each.phase is Phase.DRAINING for each in state.replicas)
    return is_draining or is_scaled(state.row)


def _is_stopped(row: EndpointRow) -> bool:
    is_ended = row.is_paused or row.is_deleting or row.is_given_up
    # The sessions of an inactive owner end; a rollout must not fail because of that.
    return is_ended or not row.is_owner_active


def _revisions(row: EndpointRow) -> tuple[str, ...]:
    """Return the revisions for which new replicas may be created."""
    active = row.active_revision_id
    return (row.target_revision_id,) if active is None else (row.target_revision_id, active)


def _start_limit(
    replica: ReplicaRow, health: HealthCheck, now: datetime
) -> tuple[timedelta, datetime]:
    """Return how long a replica may take to pass its health check, and since when."""
    if replica.is_unhealthy:
        # The replica was ready before, so it need not start again and has less time.
        return timedelta(seconds=health.interval_seconds * health.max_failures), replica.changed_at
    # The time begins again with the last change of the phase: a restarted server has the whole
    # start time.
    since = max(replica.started_at or now, replica.changed_at)
    return timedelta(seconds=health.start_seconds), since


def _may_create(row: EndpointRow, now: datetime) -> bool:
    if row.failed_at is None:
        return True
    if not row.failures:
        return has_elapsed(row.failed_at, POSTPONED_PAUSE, now)
    # The exponent is limited, because 2**6 times the first pause already exceeds the longest pause.
    pauses: int = 2 ** min(row.failures - 1, 6)
    return has_elapsed(row.failed_at, min(FIRST_PAUSE * pauses, MAX_PAUSE), now)


def _observed_seconds(row: EndpointRow, now: datetime) -> float:
    if row.target_observed_at is None:
        return 0.0
    return (now - row.target_observed_at).total_seconds()


def _given_up(row: EndpointRow, now: Situation) -> dict[str, object]:
    if now.failures >= now.rules.max_failures:
        message = "" if row.problem is None else str(CodedText.from_json(row.problem))
        return TextTemplate.REVISION_GIVEN_UP.text(failures=row.failures, message=message).as_json()
    if is_too_slow(now):
        assert now.p99_ms is not None
        assert now.rules.max_p99_ms is not None
        return TextTemplate.REVISION_SLOW.text(
            requests=now.requests, p99_ms=ceil(now.p99_ms), limit_ms=now.rules.max_p99_ms
        ).as_json()
    return TextTemplate.REVISION_ERRORS.text(errors=now.errors, requests=now.requests).as_json()


def _refused(error: BaiError) -> CodedText:
    return TextTemplate.REPLICA_REFUSED.text(message=error.message[:_MAX_MESSAGE])
