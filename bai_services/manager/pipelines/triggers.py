"""Create, read, change, delete and call triggers of pipelines."""

from __future__ import annotations

import secrets
import uuid
from collections.abc import Callable, Mapping
from typing import Any

from bai_services.core.accounts.roles import Caller, Owner, Role, Target, Visibility
from bai_services.core.audit import AuditEntry
from bai_services.core.errors import AlreadyExists, BaiError, Conflict, NotFound, TooLarge
from bai_services.core.listing import ListQuery, Page
from bai_services.core.names import check_slug
from bai_services.core.pipelines.records import (
    CreatedPipelineTrigger,
    PipelineTrigger,
    PipelineTriggerCall,
    PipelineTriggerSecret,
)
from bai_services.core.pipelines.triggers import MAX_CALL_BYTES, check_call, run_id_of
from bai_services.core.record_fields import fields_of
from bai_services.db.pipelines.triggers import PipelineTriggerRow, PipelineTriggerStore

from ..accounts import authorizer
from ..accounts.callers import Callers
from ..accounts.keypair_secrets import KeypairSecrets
from ..context import ManagerContext
from .access import require
from .pipelines import Pipelines
from .runs import PipelineRuns

SECRET_BYTES = 32
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
        *,
        callers: Callers,
        encryption: KeypairSecrets,
        require_writable: Callable[[Role], None],
    ) -> None:
        """``require_writable`` raises ``Unavailable`` during read-only maintenance."""
        self._store = store
        self._pipelines = pipelines
        self._runs = runs
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

        Raises
        ------
        AlreadyExists
            If the pipeline has a trigger with that name.
        QuotaExceeded
            If the pipeline has too many triggers.
        """
        pipeline = await self._pipelines.find(caller, spec["pipeline"])
        require(caller, "run", pipeline)
        secret = secrets.token_urlsafe(SECRET_BYTES)
        values: dict[str, Any] = {
            "id": str(uuid.uuid4()),
            "created_at": self._clock(),
            "pipeline_id": pipeline.id,
            "owner_id": caller.user_id,
            "name": check_slug("trigger", spec["name"]),
            "secret_encrypted": self._secrets.encrypt(secret),
            "is_enabled": True,
            "last_message": "",
        }
        entry = self._audit.entry(
            caller,
            "pipeline.create-trigger",
            values["id"],
            domain=pipeline.domain,
            owner_id=caller.user_id,
            name=values["name"],
            pipeline=pipeline.name,
        )
        await self._store.create(pipeline.name, values, entry)
        row = await self._find(caller, values["id"])
        return CreatedPipelineTrigger(**_fields(row), secret=secret)

    async def update(self, caller: Caller, key: str, *, is_enabled: bool) -> PipelineTrigger:
        row = await self._find(caller, key)
        authorizer.require(caller, "pipeline.manage", _target(row))
        entry = self._entry(caller, "change-trigger", row, is_enabled=is_enabled)
        await self._store.update(row.id, {"is_enabled": is_enabled}, entry)
        return await self.get(caller, key)

    async def renew_secret(self, caller: Caller, key: str) -> PipelineTriggerSecret:
        """Replace the secret of the signatures; only this response contains the new one."""
        row = await self._find(caller, key)
        authorizer.require(caller, "pipeline.write", _target(row))
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
        """Run the pipeline of a trigger as its owner would. A repeated call creates no second run.

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
        secret = self._other_secret if row is None else self._secrets.decrypt(row.secret_encrypted)
        now = self._clock()
        check_call(secret, timestamp, signature, body, now)
        if row is None:
            raise AssertionError("a signature with an unknown secret is valid")
        if not row.is_enabled:
            raise Conflict(f"trigger {row.name} is disabled")
        caller = await self._callers.for_schedule(row.owner)
        self._require_writable(caller.role)
        run_id = run_id_of(row.id, signature)
        cause = f"trigger {row.name}"
        try:
            await self._runs.create(caller, row.pipeline_id, parameters, run_id=run_id, cause=cause)
        except AlreadyExists:
            return PipelineTriggerCall(run=run_id, is_new=False)
        except BaiError as error:
            message = error.message[:_MAX_MESSAGE]
            await self._store.update(row.id, {"last_call_at": now, "last_message": message}, None)
            raise
        values = {"last_call_at": now, "last_run_id": run_id, "last_message": ""}
        await self._store.update(row.id, values, None)
        return PipelineTriggerCall(run=run_id, is_new=True)

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


def _fields(row: PipelineTriggerRow) -> dict[str, Any]:
    values = fields_of(row)
    for name in ("project_id", "owner_role", "secret_encrypted"):
        del values[name]
    return values


def _target(row: PipelineTriggerRow) -> Target:
    return Target(row.domain, row.project_id, Owner(row.owner_id, row.owner_role))
