"""Create, read, change and delete endpoints; begin, promote and undo rollouts."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import ceil
from typing import Any

from bai_services.core.accounts.roles import (
    Caller,
    Owner,
    Role,
    Target,
    Visibility,
    reaches,
    roles_above,
)
from bai_services.core.audit import AuditEntry, OwnerEntry
from bai_services.core.coded_text import CodedText
from bai_services.core.errors import Conflict, Forbidden, InvalidRequest
from bai_services.core.listing import ListQuery, Page, page_of
from bai_services.core.record_fields import fields_of
from bai_services.core.serving.autoscaling import (
    Measure,
    ScalingRule,
    check_rule,
    defaults_of,
    rule_as_json,
    rule_from_json,
)
from bai_services.core.serving.definition import ModelDefinition, parse_definition
from bai_services.core.serving.gateway_records import Protocol
from bai_services.core.serving.latency import quantile
from bai_services.core.serving.names import EndpointAddresses, check_endpoint_name
from bai_services.core.serving.problems import brief
from bai_services.core.serving.records import (
    DEFAULT_MAX_BODY_BYTES,
    DEFAULT_MAX_CONCURRENT,
    DEFAULT_MAX_QUEUE,
    DEFAULT_QUEUE_SECONDS,
    DEFAULT_REQUEST_SECONDS,
    LOAD_INTERVAL_SECONDS,
    LOADS_KEPT_FOR,
    Endpoint,
    EndpointStatus,
    LoadHistory,
    Replica,
    ReplicaChange,
    Revision,
    Scaling,
)
from bai_services.core.serving.rollout import Strategy
from bai_services.core.serving.runtime_metrics import METRIC_NAME
from bai_services.core.serving.settings import (
    RevisionSettings,
    resolve_settings,
    with_defaults,
)
from bai_services.core.serving.variants import VARIANTS, Variant
from bai_services.core.sessions.lifecycle import Status
from bai_services.core.tags import check_tags, joined, separated
from bai_services.core.user_input import shown
from bai_services.db.serving.endpoints import EndpointStore, RevisionRow
from bai_services.db.serving.rows import EndpointRow, no_endpoint
from bai_services.db.serving.scaling import ScalingStore

from ..accounts import authorizer
from ..context import ManagerContext
from ..sessions.requests.choices import REPLICA_TYPES
from ..sessions.requests.templates import check_stored_request
from ..sessions.sessions import Sessions
from .definition_files import DefinitionFiles
from .requests import replica_spec

# Fields of an endpoint that are not settings of its revisions, with their defaults.
LIMITS: Mapping[str, int] = {
    "max_queue": DEFAULT_MAX_QUEUE,
    "queue_seconds": DEFAULT_QUEUE_SECONDS,
    "max_concurrent_per_replica": DEFAULT_MAX_CONCURRENT,
    "request_seconds": DEFAULT_REQUEST_SECONDS,
    "max_body_bytes": DEFAULT_MAX_BODY_BYTES,
    "prefix_characters": 0,
}
# Fields that administrators may also change.
_MANAGED = frozenset({"replicas", "scaling", "is_paused"})
# Fields of the settings that may contain secrets of the owner.
_PRIVATE = ("command", "request")
# Fields of a scaling rule that are kept when its measure changes.
_KEPT = (
    "min_replicas",
    "max_replicas",
    "stable_seconds",
    "panic_seconds",
    "idle_seconds",
    "schedule",
)
_DEFINITIONS = ("definition", "definition_file")
# Settings that the definition or the variant determines.
_OF_DEFINITION = ("command", "port", "protocol", "health")


class Endpoints:
    """Manages endpoints. An endpoint runs with the permissions of its owner, so only the owner
    defines what it runs. Administrators may pause, scale and delete it.

    ``key`` is an id or a name.
    """

    def __init__(
        self,
        context: ManagerContext,
        store: EndpointStore,
        scalings: ScalingStore,
        sessions: Sessions,
        files: DefinitionFiles,
        addresses: EndpointAddresses,
        changed: Callable[[], None],
        *,
        has_prometheus: bool = False,
    ) -> None:
        """``changed`` wakes the loop that runs endpoints, and the gateways."""
        self._store = store
        self._scalings = scalings
        self._sessions = sessions
        self._files = files
        self._clock = context.clock
        self._audit = context.audit
        self._addresses = addresses
        self._changed = changed
        self._has_prometheus = has_prometheus

    async def page(self, caller: Caller, query: ListQuery) -> Page[Endpoint]:
        page = await self._store.page(query, _visible(caller))
        return page.with_items([self._shown(caller, row) for row in page.items])

    async def get(self, caller: Caller, key: str) -> Endpoint:
        return self._shown(caller, await self.find(caller, key))

    async def create(self, caller: Caller, spec: Mapping[str, Any]) -> Endpoint:
        """Create an endpoint of the caller with its first revision.

        Raises
        ------
        InvalidRequest
            If the name, the definition or a setting is not valid.
        AlreadyExists
            If an endpoint has that name, or the name is reserved for another owner.
        QuotaExceeded
            If the caller has too many endpoints, or a replica exceeds a quota.
        """
        authorizer.require(caller, "endpoint.write")
        name = check_endpoint_name(spec["name"])
        is_public = bool(spec.get("is_public"))
        if is_public:
            await self._require_public(caller.user_id or "")
        scaling = self._scaling(spec, None)
        settings = await self.settings_of(caller, spec)
        resolved = await self._sessions.check(
            caller, replica_spec(settings, spec.get("project"), None), REPLICA_TYPES
        )
        revision = self._revision(str(uuid.uuid4()), settings)
        values: dict[str, Any] = {
            "id": revision["endpoint_id"],
            "created_at": self._clock(),
            "name": name,
            "owner_id": caller.user_id,
            "project_id": resolved.project_id,
            "is_public": is_public,
            "is_paused": False,
            "is_deleting": False,
            # With a rule, start one replica, in order to test whether the revision works.
            "replicas": spec.get("replicas", max(1, scaling.min_replicas) if scaling else 1),
            "scaling": rule_as_json(scaling) if scaling else None,
            "scaling_reason": None,
            "active_revision_id": None,
            "target_revision_id": revision["id"],
            "is_promoted": False,
            "failures": 0,
            "weights": {},
            "tags": joined(check_tags(spec.get("tags") or ())),
            "requests": 0,
            "errors": 0,
            **{limit: spec.get(limit, default) for limit, default in LIMITS.items()},
        }
        entry = self._audit.entry(
            caller,
            "endpoint.create",
            values["id"],
            domain=resolved.domain,
            owner_id=caller.user_id,
            name=name,
        )
        row = await self._store.create(values, revision, entry)
        self._changed()
        return self._record(row)

    async def update(self, caller: Caller, key: str, changes: Mapping[str, Any]) -> Endpoint:
        """Change an endpoint.

        If ``changes`` contains ``version``, it must be the current version.

        Raises
        ------
        Conflict
            If the endpoint has another version, or is being deleted.
        Forbidden
            If the caller may not make the change.
        """
        row = await self.find(caller, key)
        values = {n: v for n, v in changes.items() if n != "version" and v is not None}
        is_managed = values.keys() <= _MANAGED
        authorizer.require(
            caller, "endpoint.manage" if is_managed else "endpoint.write", target(row)
        )
        _require_live(row)
        if "tags" in values:
            values["tags"] = joined(check_tags(values["tags"]))
        if values.get("is_public"):
            await self._require_public(row.owner_id)
        if scaling := self._scaling(values, row):
            low, high = scaling.min_replicas, scaling.max_replicas
            values["scaling"] = rule_as_json(scaling)
            values["replicas"] = min(max(row.replicas, low), high)
            values["scaling_reason"] = None
        elif "replicas" in values:
            values |= {"scaling": None, "scaling_reason": None}
        if values.get("is_paused") is False and row.is_paused:
            # After the pause, failures from before the pause are not counted.
            values |= {"failures": 0, "failed_at": None, "problem": None}
        details = self._audit.changes(
            fields_of(row), {name: values[name] for name in values.keys() & changes.keys()}
        )
        version = changes.get("version") or row.version
        changed = await self._store.update(
            row.id, version, values, self._entry(caller, "update", row, **details)
        )
        self._changed()
        return self._record(changed)

    async def deploy(self, caller: Caller, key: str, spec: Mapping[str, Any]) -> Endpoint:
        """Create a revision and begin its rollout, unless ``spec["is_applied"]`` is false.

        Settings that are not given are copied from the target revision.

        Raises
        ------
        InvalidRequest
            If the definition or a setting is not valid.
        Conflict
            If the endpoint has a newer revision than ``spec["last_revision"]``, or has changed
            meanwhile.
        """
        row = await self.find(caller, key)
        authorizer.require(caller, "endpoint.write", target(row))
        _require_live(row)
        former = (await self._store.revision(row.target_revision_id)).settings
        given = spec.get("settings") or {}
        has_definition = any(spec.get(name) is not None for name in _DEFINITIONS)
        base = former
        if has_definition or given.get("variant", former["variant"]) != former["variant"]:
            base = {n: v for n, v in former.items() if n not in _OF_DEFINITION}
        elif given.get("protocol") not in (None, former.get("protocol", Protocol.HTTP)):
            # Do not copy the health check: its path has a different meaning with another protocol.
            base = {n: v for n, v in former.items() if n != "health"}
        if spec.get("definition_file") is not None:
            # Do not copy the image and the resources: the definition file determines them.
            kept = {n: v for n, v in former["request"].items() if n not in ("image", "resources")}
            base = {**base, "request": kept}
        merged = {
            **base,
            **given,
            **{
                name: {**(base.get(name) or {}), **(given.get(name) or {})}
                for name in ("health", "rollout", "request")
            },
        }
        settings = await self._settings(caller, merged, spec)
        await self._sessions.check(
            caller, replica_spec(settings, row.project_id, None), REPLICA_TYPES
        )
        last = await self._store.last_number(row.id)
        if spec.get("last_revision") not in (None, last):
            raise Conflict(
                f"revision {last} of endpoint {row.name} was created meanwhile; read it first",
                revision=last,
            )
        number = last + 1
        revision = {**self._revision(row.id, settings), "number": number}
        is_applied = bool(spec.get("is_applied", True))
        action = "deploy" if is_applied else "save"
        entry = self._entry(caller, action, row, revision=number)
        changed = await self._store.add_revision(row, revision, entry, is_applied=is_applied)
        self._changed()
        return self._record(changed)

    async def roll_back(self, caller: Caller, key: str, number: int) -> Endpoint:
        """Begin the rollout of an earlier or saved revision.

        Raises
        ------
        NotFound
            If the endpoint has no revision with that number.
        """
        row = await self.find(caller, key)
        authorizer.require(caller, "endpoint.manage", target(row))
        _require_live(row)
        entry = self._entry(caller, "roll-back", row, revision=number)
        changed = await self._store.roll_back(row, number, entry)
        self._changed()
        return self._record(changed)

    async def promote(self, caller: Caller, key: str) -> Endpoint:
        """Promote the new revision of a blue-green or canary rollout.

        Raises
        ------
        Conflict
            If no such rollout is in progress.
        """
        row = await self.find(caller, key)
        authorizer.require(caller, "endpoint.write", target(row))
        _require_live(row)
        settings = (await self._store.revision(row.target_revision_id)).settings
        strategy = RevisionSettings.from_json(settings).rollout.strategy
        is_deploying = row.active_revision_id not in (None, row.target_revision_id)
        if not is_deploying or strategy is Strategy.ROLLING:
            raise Conflict(f"endpoint {row.name} has no rollout that can be promoted")
        entry = self._entry(caller, "promote", row, revision=row.target_revision)
        changed = await self._store.update(row.id, row.version, {"is_promoted": True}, entry)
        self._changed()
        return self._record(changed)

    async def delete(self, caller: Caller, key: str) -> Endpoint:
        """Stop an endpoint and its running requests; it is deleted when its replicas have ended.

        Pause it first to let its running requests finish.
        """
        row = await self.find(caller, key)
        authorizer.require(caller, "endpoint.manage", target(row))
        if row.is_deleting:
            return self._record(row)
        entry = self._entry(caller, "delete", row)
        changed = await self._store.update(row.id, row.version, {"is_deleting": True}, entry)
        self._changed()
        return self._record(changed)

    async def revisions(self, caller: Caller, key: str, query: ListQuery) -> Page[Revision]:
        """Return the last revisions of an endpoint, the newest first."""
        row = await self.find(caller, key)
        page = await self._store.revisions(row.id, query)
        is_owner, is_brief = row.owner_id == caller.user_id, _is_brief(caller, row)
        return page.with_items(
            [_revision_record(each, is_owner, is_brief=is_brief) for each in page.items]
        )

    async def replicas(self, caller: Caller, key: str, query: ListQuery) -> Page[Replica]:
        """Return the replicas of an endpoint, including those that ended recently."""
        row = await self.find(caller, key)
        make = partial(_replica_record, is_brief=_is_brief(caller, row))
        return await self._store.replicas(row.id, query, make)

    async def replica_changes(
        self, caller: Caller, key: str, replica: str, query: ListQuery
    ) -> Page[ReplicaChange]:
        """Return the phases of a replica, the newest first."""
        row = await self.find(caller, key)
        make = partial(_replica_change, is_brief=_is_brief(caller, row))
        return await self._store.replica_changes(row.id, replica.replace("\0", ""), query, make)

    async def audit_log(self, caller: Caller, key: str, query: ListQuery) -> Page[OwnerEntry]:
        """Return the actions on an endpoint, for its owner and its administrators."""
        row = await self.find(caller, key)
        authorizer.require(caller, "endpoint.manage", target(row))
        return await self._audit.page_of_object(query, "endpoint", row.id)

    async def scalings(self, caller: Caller, key: str, query: ListQuery) -> Page[Scaling]:
        """Return the last changes of the number of replicas by the rule, the newest first."""
        row = await self.find(caller, key)
        return await self._scalings.page(row.id, query, _scaling_record)

    async def load(self, caller: Caller, key: str) -> LoadHistory:
        """Return the load and the desired and ready replicas of the last hour; empty if no rule was
        in force.
        """
        row = await self.find(caller, key)
        points = await self._scalings.load_points(row.id, self._clock() - LOADS_KEPT_FOR)
        rule = None if row.scaling is None else rule_from_json(row.scaling)
        return LoadHistory(
            interval_seconds=LOAD_INTERVAL_SECONDS,
            load_per_replica=None if rule is None else rule.load_per_replica,
            points=points,
        )

    def variants(self, caller: Caller, query: ListQuery) -> Page[Variant]:
        """Return the runtime variants."""
        authorizer.require(caller, "endpoint.read")
        return page_of(list(VARIANTS.values()), query, ("name", "title", "port", "is_tested"))

    async def check_definition(self, caller: Caller, text: str) -> ModelDefinition:
        """Parse a model definition.

        Raises
        ------
        InvalidRequest
            If the definition is not valid; the details contain the line.
        """
        authorizer.require(caller, "endpoint.read")
        return await asyncio.to_thread(parse_definition, text)

    async def find(self, caller: Caller, key: str) -> EndpointRow:
        visible = _visible(caller)
        if "\0" in key:
            raise no_endpoint(key)
        return await self._store.find(key, visible)

    async def _require_public(self, owner_id: str) -> None:
        if not await self._store.allows_public(owner_id):
            raise Forbidden(
                "the owner's user policy does not permit public endpoints; create tokens, or ask "
                "an administrator",
                action="endpoint.write",
                field="is_public",
            )

    async def settings_of(self, caller: Caller, spec: Mapping[str, Any]) -> RevisionSettings:
        """Return the complete settings of a first revision, without storing them.

        Raises
        ------
        InvalidRequest
            If the definition or a setting is not valid.
        """
        return await self._settings(caller, spec.get("settings") or {}, spec)

    async def _settings(
        self, caller: Caller, given: Mapping[str, Any], spec: Mapping[str, Any]
    ) -> RevisionSettings:
        """Return complete settings; ``spec`` may contain a definition, or name its file in the
        model folder.
        """
        check_stored_request(given.get("request") or {}, "revision")
        text, path = (spec.get(name) for name in _DEFINITIONS)
        if text is not None and path is not None:
            raise InvalidRequest(
                "give either definition (a string) or definition_file (a file in the model folder)",
                field="definition_file",
            )
        parsed = None
        if text is not None:
            parsed = await asyncio.to_thread(parse_definition, text)
        elif path is not None:
            given, parsed = await self._from_folder(caller, given, path)
        return resolve_settings(given, parsed)

    async def _from_folder(
        self, caller: Caller, given: Mapping[str, Any], path: str
    ) -> tuple[Mapping[str, Any], ModelDefinition | None]:
        """Return the settings with the defaults in the model folder, and its definition if the
        variant uses one.
        """
        folder = given.get("model_folder")
        if not folder:
            raise InvalidRequest("definition_file needs a model folder", field="model_folder")
        variant = VARIANTS.get(str(given.get("variant") or "custom"))
        parsed = None
        if variant is None or variant.uses_definition:
            parsed = await self._files.model_definition(caller, folder, path)
        defaults = await self._files.request_defaults(
            caller, folder, path, variant.name if variant else ""
        )
        request = with_defaults(given.get("request") or {}, defaults)
        check_stored_request(request, "revision")
        return {**given, "request": request}, parsed

    def _scaling(self, spec: Mapping[str, Any], row: EndpointRow | None) -> ScalingRule | None:
        """Return the given rule, completed with the endpoint's current rule.

        Raises
        ------
        InvalidRequest
            If the values of the rule contradict each other, or a fixed number is also given.
        """
        given = spec.get("scaling")
        if given is None:
            return None
        if "replicas" in spec:
            raise InvalidRequest(
                "give either replicas (a fixed number) or scaling (a rule)", field="replicas"
            )
        former = (row.scaling if row is not None else None) or {}
        if given.get("measure") not in (None, former.get("measure", Measure.REQUESTS)):
            # The unit of the target is different for the new measure.
            former = {name: value for name, value in former.items() if name in _KEPT}
        values = {**former, **{name: value for name, value in given.items() if value is not None}}
        measure = Measure(values.get("measure", Measure.REQUESTS))
        values = {**defaults_of(measure), **values}
        if "target" not in values and measure is not Measure.REQUESTS:
            raise InvalidRequest(
                f"the measure {measure} needs a target, the load of one replica", field="target"
            )
        rule = rule_from_json(values)
        check_rule(rule, "scaling")
        if rule.metric and not METRIC_NAME.fullmatch(rule.metric):
            raise InvalidRequest(
                f"{shown(rule.metric)!r} is not the name of a metric", field="metric"
            )
        if rule.measure is Measure.QUERY and not self._has_prometheus:
            raise InvalidRequest(
                "no Prometheus server is configured; ask an administrator to set "
                "BAI_PROMETHEUS_URL",
                field="measure",
            )
        if rule.idle_seconds < rule.stable_seconds:
            raise InvalidRequest("idle must not be shorter than stable", field="scaling")
        return rule

    def _revision(self, endpoint_id: str, settings: RevisionSettings) -> dict[str, Any]:
        return {
            "id": str(uuid.uuid4()),
            "created_at": self._clock(),
            "endpoint_id": endpoint_id,
            "settings": settings.as_json(),
        }

    def _shown(self, caller: Caller, row: EndpointRow) -> Endpoint:
        """Return an endpoint without the details that the caller may not read."""
        if _is_brief(caller, row):
            row = replace(row, problem=brief(row.problem))
        if row.scaling is not None and not reaches(caller, "endpoint.manage", target(row)):
            # Hide the query, because it may contain metrics and labels of other services.
            row = replace(row, scaling={**row.scaling, "query": ""})
        return self._record(row)

    def _record(self, row: EndpointRow) -> Endpoint:
        values = fields_of(row)
        for name in ("owner_role", "is_deleting", "active_revision_id", "target_revision_id"):
            del values[name]
        for name in ("failures", "failed_at", "target_outcome", "is_owner_active"):
            del values[name]
        for name in ("requests", "errors", "latency_ms", "observed_at"):
            del values[f"target_{name}"]
        problem, reason = values.pop("problem"), values.pop("scaling_reason")
        return Endpoint(
            **{
                **values,
                "url": self._addresses.of(row.name),
                "path": self._addresses.path_of(row.name),
                "status": _status_of(row),
                "tags": separated(row.tags),
                "scaling_reason": "" if reason is None else str(CodedText.from_json(reason)),
                "scaling_reason_coded": reason,
                "problem": "" if problem is None else str(CodedText.from_json(problem)),
                "problem_coded": problem,
            }
        )

    def _entry(self, caller: Caller, verb: str, row: EndpointRow, **details: Any) -> AuditEntry:
        return self._audit.entry(
            caller,
            f"endpoint.{verb}",
            row.id,
            domain=row.domain,
            owner_id=row.owner_id,
            name=row.name,
            **details,
        )


def target(row: EndpointRow) -> Target:
    return Target(row.domain, row.project_id, Owner(row.owner_id, row.owner_role))


def _visible(caller: Caller) -> Visibility:
    """Return which endpoints the caller may read, never those of owners with a higher role."""
    visible = authorizer.visibility(caller, "endpoint.read")
    hidden = roles_above(caller.role, "endpoint.read")
    return replace(visible, owner_id=caller.user_id, hidden_roles=hidden)


def _require_live(row: EndpointRow) -> None:
    if row.is_deleting:
        raise Conflict(f"endpoint {row.name} is being deleted")


def _status_of(row: EndpointRow) -> EndpointStatus:
    if row.is_deleting:
        return EndpointStatus.STOPPING
    if row.is_paused:
        return EndpointStatus.PAUSED
    if row.is_given_up:
        return EndpointStatus.FAILED
    if row.active_revision_id != row.target_revision_id:
        return EndpointStatus.DEPLOYING
    is_complete = row.ready_replicas == row.replicas and not row.starting_replicas
    return EndpointStatus.READY if is_complete else EndpointStatus.SCALING


def _is_brief(caller: Caller, row: EndpointRow) -> bool:
    """Return whether the caller sees the problems of an endpoint without their messages."""
    return caller.role is Role.USER and caller.user_id != row.owner_id


def _revision_record(row: RevisionRow, is_owner: bool, *, is_brief: bool) -> Revision:
    hidden = [] if is_owner else list(_PRIVATE)
    p99 = quantile(row.latency_ms or {}, 0.99)
    reason = brief(row.reason) if is_brief else row.reason
    return Revision(
        id=row.id,
        created_at=row.created_at,
        number=row.number,
        settings={name: value for name, value in row.settings.items() if name not in hidden},
        outcome=row.outcome,
        reason="" if reason is None else str(CodedText.from_json(reason)),
        reason_coded=reason,
        requests=row.requests,
        errors=row.errors,
        p99_ms=None if p99 is None else ceil(p99),
        hidden_fields=hidden,
    )


def _scaling_record(*, reason: Mapping[str, Any], **columns: Any) -> Scaling:
    return Scaling(**columns, reason=str(CodedText.from_json(reason)), reason_coded=reason)


def _replica_change(
    *, reason: Mapping[str, Any] | None, is_brief: bool, **columns: Any
) -> ReplicaChange:
    reason = brief(reason) if is_brief else reason
    return ReplicaChange(
        **columns,
        reason="" if reason is None else str(CodedText.from_json(reason)),
        reason_coded=reason,
    )


def _replica_record(
    *,
    reason: Mapping[str, Any] | None,
    pending_reasons: Sequence[Mapping[str, Any]] | None,
    is_brief: bool,
    **columns: Any,
) -> Replica:
    """Return a replica; while its session is pending, it has the session's reason."""
    is_pending = columns["session_status"] == Status.PENDING
    if is_brief:
        reason = brief(reason)
    elif reason is None and is_pending and pending_reasons:
        reason = pending_reasons[0].get("coded")
    return Replica(
        **columns,
        reason="" if reason is None else str(CodedText.from_json(reason)),
        reason_coded=reason,
    )
