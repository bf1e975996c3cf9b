"""Preview a session: check its request, and find out when it would start and what it would use."""

from __future__ import annotations

from functools import partial
from typing import Any

from bai_services.core.accounts.roles import Caller
from bai_services.core.errors import AlreadyExists, BaiError, InUse
from bai_services.core.resources import MEM, format_amount, parse_amount
from bai_services.core.scheduling.caps import SESSIONS, Violation, violation_facts
from bai_services.core.scheduling.queue.preview import preview
from bai_services.core.sessions.spec import SessionSpec
from bai_services.db.sessions.requests import RequestStore
from bai_services.db.sessions.session_insert import NewSession
from bai_services.db.sessions.store import SessionStore

from ..accounts import authorizer
from ..clock import Clock
from ..scheduling.scheduler import Scheduler
from ..scheduling.why import estimate_json, explanation_json, start_choices
from .requests.problems import REPORTED, field_of
from .requests.requests import Requests
from .view import mount_json

Row = dict[str, Any]


class SessionPreviews:
    """Performs every step of creating a session except storing it."""

    def __init__(
        self,
        requests: Requests,
        request_store: RequestStore,
        store: SessionStore,
        scheduler: Scheduler,
        clock: Clock,
    ) -> None:
        self._requests = requests
        self._request_store = request_store
        self._store = store
        self._scheduler = scheduler
        self._clock = clock

    async def get(self, caller: Caller, request: SessionSpec) -> Row:
        """Return the problems of a request, or the session that it would create and its start.

        Raises
        ------
        Forbidden
            If the caller may not create such a session.
        """
        authorizer.require(caller, "session.create")
        now = self._clock()
        try:
            new = await self._requests.resolve(caller, request)
            row, changes = await self._store.try_enqueue(new, now)
        except REPORTED as error:
            return _response(problems=_problems(error))
        if changes is None:
            return _response(existing_session=row.id, session=_session_json(new))
        choices = await start_choices(self._request_store, row)
        found = await self._scheduler.query(
            partial(preview, changes=changes, choices=choices, now=now)
        )
        if found is None:
            return _response(session=_session_json(new), notices=row.notices)
        return _response(
            **explanation_json(found.explanation)
            | {"is_complete": True, "estimate": estimate_json(found.estimate)},
            starts_now=found.explanation is None,
            session=_session_json(new),
            notices=row.notices,
            caps=[_cap_json(cap) for cap in found.caps],
        )


def _problems(error: BaiError) -> list[Row]:
    """Return the problems that an error reports, at least one; the field is empty if unknown."""
    problems = error.details.get("problems")
    if isinstance(problems, list):
        return problems
    return [{"field": field_of(error, _FIELDS.get(error.code, "")), "problem": error.message}]


# Field of the request that an error refers to, by the error's code, if its details do not name it.
_FIELDS = {AlreadyExists.code: "name", InUse.code: "mounts"}


def _cap_json(cap: Violation) -> Row:
    used, asked, limit = (_number(cap.slot, text) for text in (cap.used, cap.asked, cap.limit))
    return {
        **violation_facts(cap),
        "used_percent": _percent(used, limit),
        "total_percent": _percent(used + asked, limit),
    }


def _number(slot: str, text: str) -> int:
    return int(text) if slot == SESSIONS else parse_amount(slot, text)


def _percent(amount: int, limit: int) -> int:
    """Return a percentage of a limit, rounded down; 100 if the limit is 0."""
    return 100 * amount // limit if limit else 100


def _session_json(new: NewSession) -> Row:
    """Return the values with which the session would be created, defaults included."""
    return {
        "name": new.name,
        "type": new.type,
        "project": new.project_id,
        "resource_group": new.resource_group,
        "image": new.image,
        "architecture": new.architecture,
        "priority": new.priority,
        "requested": new.requested_slots.format(),
        "total": new.total_slots.format(),
        "shared_memory": format_amount(MEM, new.shared_memory_bytes),
        "cluster_size": new.cluster_size,
        "cluster_mode": new.cluster_mode,
        "mounts": [mount_json(mount) for mount in new.mounts],
        "starts_at": new.starts_at,
        "batch_timeout": new.batch_timeout_seconds,
    }


def _response(**given: Any) -> Row:
    return {
        "problems": [],
        "existing_session": None,
        "session": None,
        "notices": [],
        "starts_now": False,
        "caps": [],
        **explanation_json(None),
        **given,
    }
