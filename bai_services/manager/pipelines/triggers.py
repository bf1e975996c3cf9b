"""Create, read, change, delete and fire triggers of pipelines."""

from __future__ import annotations

import secrets
import uuid
from collections.abc import Callable, Collection, Mapping
from typing import Any

from bai_services.core.accounts.roles import Caller, Owner, Role, Target, Visibility
from bai_services.core.audit import AuditEntry
from bai_services.core.coded_text import refusal
from bai_services.core.errors import (
    AlreadyExists,
    BaiError,
    Conflict,
    InvalidRequest,
    NotFound,
    TooLarge,
    Unavailable,
)
from bai_services.core.listing import ListQuery, Page
from bai_services.core.names import check_slug
from bai_services.core.pipelines.definition import Value
from bai_services.core.pipelines.records import (
    CreatedPipelineTrigger,
    PipelineTrigger,
    PipelineTriggerCall,
    PipelineTriggerSecret,
)
from bai_services.core.pipelines.triggers import (
    MAX_CALL_BYTES,
    MAX_MATCHES,
    MAX_SCANNED,
    REFERENCES,
    RunResult,
    TriggerKind,
    chain,
    check_call,
    check_references,
    parameters_of,
    parse_pattern,
    run_id_of,
)
from bai_services.core.record_fields import fields_of
from bai_services.core.refusal_texts import RefusalText
from bai_services.db.pipelines.definitions import PipelineRow
from bai_services.db.pipelines.triggers import PipelineTriggerRow, PipelineTriggerStore

from ..accounts import authorizer
from ..accounts.callers import Callers
from ..accounts.keypair_secrets import KeypairSecrets
from ..context import ManagerContext
from ..folders.files import Files
from .access import check_parameters, reader_of, require
from .pipelines import Pipelines
from .runs import PipelineRuns

SECRET_BYTES = 32
# Fields of one kind of trigger, and whether the kind needs them.
_FIELDS = (
    ("folder", TriggerKind.FILE, True),
    ("pattern", TriggerKind.FILE, True),
    ("source", TriggerKind.PIPELINE, True),
    ("result", TriggerKind.PIPELINE, False),
)
_MAX_MESSAGE = 500


class PipelineTriggers:
    """Manages triggers. Users who may run a pipeline create their own triggers of it;
    administrators may disable and delete.

    ``key`` is the id of a trigger.
    """

    def __init__(
        self,
        context: ManagerContext,
        store: PipelineTriggerStore,
        pipelines: Pipelines,
        runs: PipelineRuns,
        files: Files,
        *,
        callers: Callers,
        encryption: KeypairSecrets,
        require_writable: Callable[[Role], None],
    ) -> None:
        """``require_writable`` raises ``Unavailable`` during read-only maintenance."""
        self._store = store
        self._pipelines = pipelines
        self._runs = runs
        self._files = files
        self._callers = callers
        self._secrets = encryption
        self._require_writable = require_writable
        self._clock = context.clock
        self._audit = context.audit
        # Used for unknown triggers: the response time must not reveal whether a trigger exists.
        self._other_secret = secrets.token_urlsafe(SECRET_BYTES)

    async def page(self, caller: Caller, query: ListQuery) -> Page[PipelineTrigger]:
        page = await self._store.page(query, authorizer.visibility(caller, "pipeline.read"))
        return page.with_items([PipelineTrigger(**_fields(row)) for row in page.items])

    async def get(self, caller: Caller, key: str) -> PipelineTrigger:
        return PipelineTrigger(**_fields(await self._find(caller, key)))

    async def create(self, caller: Caller, spec: Mapping[str, Any]) -> CreatedPipelineTrigger:
        """Create a trigger of the pipeline with the id or name ``pipeline``.

        Files that exist already do not fire it.

        Raises
        ------
        InvalidRequest
            If a field of its kind is missing or not valid, if a field belongs to another kind, or
            if pipelines would trigger each other in a cycle.
        TooLarge
            If the folder has too many files.
        AlreadyExists
            If the pipeline has a trigger with that name.
        QuotaExceeded
            If the pipeline has too many triggers.
        """
        pipeline = await self._pipelines.find(caller, spec["pipeline"])
        require(caller, "run", pipeline)
        await self._pipelines.require_trusted_files(caller, pipeline)
        kind = TriggerKind(spec.get("kind", TriggerKind.WEBHOOK))
        _check_fields(kind, spec)
        is_webhook = kind is TriggerKind.WEBHOOK
        secret = secrets.token_urlsafe(SECRET_BYTES) if is_webhook else None
        parameters = spec.get("parameters") or {}
        values: dict[str, Any] = {
            "id": str(uuid.uuid4()),
            "created_at": self._clock(),
            "pipeline_id": pipeline.id,
            "owner_id": caller.user_id,
            "name": check_slug("trigger", spec["name"]),
            "kind": kind,
            "secret_encrypted": "" if secret is None else self._secrets.encrypt(secret),
            "parameters": parameters,
            "is_enabled": True,
            "last_message": "",
        }
        existing: Collection[str] = ()
        if not is_webhook:
            check_references(kind, parameters)
            samples = dict.fromkeys(REFERENCES[kind], "x")
            check_parameters(pipeline, parameters_of(parameters, samples))
        if kind is TriggerKind.FILE:
            folder = await self._files.find_readable(caller, spec["folder"])
            values |= {"vfolder_id": folder.id, "pattern": spec["pattern"]}
            existing = await self.files_of(caller, folder.id, spec["pattern"])
        if kind is TriggerKind.PIPELINE:
            source = await self._pipelines.find(caller, spec["source"])
            await self._check_chain(caller, source, pipeline)
            result = RunResult(spec.get("result") or RunResult.SUCCESS)
            values |= {"source_id": source.id, "result": result}
        entry = self._audit.entry(
            caller,
            "pipeline.create-trigger",
            values["id"],
            domain=pipeline.domain,
            owner_id=caller.user_id,
            name=values["name"],
            kind=kind,
            pipeline=pipeline.name,
        )
        await self._store.create(pipeline.name, values, entry, existing=existing)
        row = await self._find(caller, values["id"])
        return CreatedPipelineTrigger(**_fields(row), secret=secret)

    async def _check_chain(
        self, caller: Caller, source: PipelineRow, pipeline: PipelineRow
    ) -> None:
        """Raise ``InvalidRequest`` if runs of ``pipeline`` lead to runs of ``source``."""
        ids = chain(await self._store.followers(), pipeline.id, source.id)
        if not ids:
            return
        names = await self._store.visible_names(ids, reader_of(caller))
        path = " → ".join(names.get(each, "a pipeline of another user") for each in ids)
        raise InvalidRequest(
            refusal(RefusalText.TRIGGERS_WOULD_CYCLE, name=source.name, path=path), field="source"
        )

    async def files_of(
        self, caller: Caller, folder_id: str | None, pattern: str
    ) -> Mapping[str, str]:
        """Return the paths that match a pattern in a folder, with signatures of the files.

        Raises
        ------
        NotFound
            If the folder was removed.
        TooLarge
            If the folder has too many files.
        """
        if folder_id is None:
            raise NotFound(refusal(RefusalText.TRIGGER_FOLDER_REMOVED))
        levels = parse_pattern(pattern)
        return await self._files.find(caller, folder_id, levels, MAX_SCANNED, MAX_MATCHES)

    async def update(self, caller: Caller, key: str, *, is_enabled: bool) -> PipelineTrigger:
        """Enable or disable a trigger. Files that have appeared while it was disabled do not fire
        it.

        Raises
        ------
        TooLarge
            If the folder has too many files.
        """
        row = await self._find(caller, key)
        authorizer.require(caller, "pipeline.manage", _target(row))
        existing: Collection[str] | None = None
        if row.kind is TriggerKind.FILE and is_enabled and not row.is_enabled:
            owner = await self._callers.for_schedule(row.owner)
            existing = await self.files_of(owner, row.vfolder_id, row.pattern)
        entry = self._entry(caller, "change-trigger", row, is_enabled=is_enabled)
        changes = {"is_enabled": is_enabled}
        await self._store.update(row.id, changes, entry, existing=existing)
        return await self.get(caller, key)

    async def renew_secret(self, caller: Caller, key: str) -> PipelineTriggerSecret:
        """Replace the secret of the signatures; only this response contains the new one.

        Raises
        ------
        Conflict
            If the trigger is not a webhook.
        """
        row = await self._find(caller, key)
        authorizer.require(caller, "pipeline.write", _target(row))
        if row.kind is not TriggerKind.WEBHOOK:
            raise Conflict(
                refusal(RefusalText.TRIGGER_WITHOUT_SECRET, name=row.name, kind=row.kind)
            )
        secret = secrets.token_urlsafe(SECRET_BYTES)
        values = {"secret_encrypted": self._secrets.encrypt(secret)}
        await self._store.update(row.id, values, self._entry(caller, "renew-trigger-secret", row))
        return PipelineTriggerSecret(id=row.id, secret=secret)

    async def delete(self, caller: Caller, key: str) -> None:
        """Delete a trigger; the runs that it has created continue."""
        row = await self._find(caller, key)
        authorizer.require(caller, "pipeline.manage", _target(row))
        await self._store.delete(row.id, self._entry(caller, "delete-trigger", row))

    async def call(
        self,
        key: str,
        parameters: Mapping[str, Any],
        *,
        timestamp: str,
        signature: str,
        body: bytes,
    ) -> PipelineTriggerCall:
        """Run a trigger's pipeline as the trigger's owner; a repeated call creates no second run.

        Raises
        ------
        TooLarge
            If the body has more than ``MAX_CALL_BYTES``.
        NotSignedIn
            If there is no such trigger, or the signature or the timestamp is not valid.
        Conflict
            If the trigger is disabled.
        InvalidRequest
            If a parameter is missing or not valid.
        QuotaExceeded
            If the owner has too many runs that have not ended.
        """
        if len(body) > MAX_CALL_BYTES:
            raise TooLarge(f"the body may have at most {MAX_CALL_BYTES} bytes")
        try:
            row = await self._store.find(key, Visibility())
        except NotFound:
            row = None
        if row is not None and row.kind is not TriggerKind.WEBHOOK:
            row = None
        secret = self._other_secret if row is None else self._secrets.decrypt(row.secret_encrypted)
        now = self._clock()
        check_call(secret, timestamp, signature, body, now)
        if row is None:
            raise AssertionError("a signature with an unknown secret is valid")
        if not row.is_enabled:
            raise Conflict(refusal(RefusalText.TRIGGER_DISABLED, name=row.name))
        run_id = run_id_of(row.id, signature)
        is_new = await self._create_run(row, run_id, parameters)
        return PipelineTriggerCall(run=run_id, is_new=is_new)

    async def fire(
        self, row: PipelineTriggerRow, run_id: str, references: Mapping[str, Value]
    ) -> None:
        """Create the run of an event; ``references`` are the values of the event by name.

        Raises
        ------
        BaiError
            If the run cannot be created; the trigger shows the reason.
        """
        await self._create_run(row, run_id, parameters_of(row.parameters, references))

    async def _create_run(
        self, row: PipelineTriggerRow, run_id: str, parameters: Mapping[str, Any]
    ) -> bool:
        """Create the run of an event with the owner's permissions; return False if it exists."""
        is_new = True
        try:
            caller = await self._callers.for_schedule(row.owner)
            self._require_writable(caller.role)
            cause = f"trigger {row.name}"
            await self._runs.create(caller, row.pipeline_id, parameters, run_id=run_id, cause=cause)
        except AlreadyExists:
            is_new = False
        except Unavailable:
            raise
        except BaiError as error:
            await self.record_refusal(row, error)
            raise
        values = {"last_call_at": self._clock(), "last_run_id": run_id, "last_message": ""}
        await self._store.update(row.id, values, None)
        return is_new

    async def record_refusal(self, row: PipelineTriggerRow, error: BaiError) -> None:
        """Store why an event has created no run."""
        message = error.message[:_MAX_MESSAGE]
        changes = {"last_call_at": self._clock(), "last_message": message}
        await self._store.update(row.id, changes, None)

    async def clear_message(self, row: PipelineTriggerRow) -> None:
        await self._store.update(row.id, {"last_message": ""}, None)

    async def _find(self, caller: Caller, key: str) -> PipelineTriggerRow:
        visible = authorizer.visibility(caller, "pipeline.read")
        return await self._store.find("" if "\0" in key else key, visible)

    def _entry(
        self, caller: Caller, verb: str, row: PipelineTriggerRow, **details: Any
    ) -> AuditEntry:
        return self._audit.entry(
            caller,
            f"pipeline.{verb}",
            row.id,
            domain=row.domain,
            owner_id=row.owner_id,
            name=row.name,
            pipeline=row.pipeline,
            **details,
        )


def _check_fields(kind: TriggerKind, spec: Mapping[str, Any]) -> None:
    """Check that the fields of a request match the kind of the trigger."""
    for name, of_kind, is_needed in _FIELDS:
        is_given = bool(spec.get(name))
        if is_needed and kind is of_kind and not is_given:
            raise InvalidRequest(
                refusal(RefusalText.TRIGGER_NEEDS, kind=kind, name=name), field=name
            )
        if kind is not of_kind and is_given:
            raise InvalidRequest(
                refusal(RefusalText.TRIGGER_CANNOT_HAVE, kind=kind, name=name), field=name
            )
    if kind is TriggerKind.WEBHOOK and spec.get("parameters"):
        raise InvalidRequest(refusal(RefusalText.WEBHOOK_PARAMETERS), field="parameters")


def _fields(row: PipelineTriggerRow) -> dict[str, Any]:
    values = fields_of(row)
    values["folder_id"] = values.pop("vfolder_id")
    for name in ("project_id", "owner_role", "secret_encrypted"):
        del values[name]
    return values


def _target(row: PipelineTriggerRow) -> Target:
    return Target(row.domain, row.project_id, Owner(row.owner_id, row.owner_role))
