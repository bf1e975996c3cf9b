"""Rows of endpoints and their queries."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from bai_services.core.accounts.roles import Role, Visibility
from bai_services.core.errors import NotFound
from bai_services.core.serving.rollout import Outcome, Phase

from ..accounts.visibility import visible_rows
from ..tables.accounts import domains, projects, users
from ..tables.serving import endpoint_replicas, endpoint_revisions, endpoints


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointRow:
    """An endpoint with its owner, its project, and counts of its replicas."""

    id: str
    created_at: datetime
    version: int
    name: str
    owner_id: str
    project_id: str
    is_public: bool
    is_paused: bool
    is_deleting: bool
    replicas: int
    scaling: Mapping[str, Any] | None
    scaling_reason: Mapping[str, Any] | None
    active_revision_id: str | None
    target_revision_id: str
    is_promoted: bool
    failures: int
    failed_at: datetime | None
    problem: Mapping[str, Any] | None
    weights: Mapping[str, int]
    max_queue: int
    queue_seconds: int
    max_concurrent_per_replica: int
    request_seconds: int
    max_body_bytes: int
    prefix_characters: int
    # The stored form of the tags; see ``separated`` in core/tags.py.
    tags: str
    requests: int
    errors: int
    owner: str
    owner_role: Role
    is_owner_active: bool
    domain: str
    project: str
    active_revision: int | None
    target_revision: int
    target_outcome: str | None
    # Requests of the target revision since the beginning of its rollout.
    target_requests: int
    target_errors: int
    target_latency_ms: Mapping[str, int] | None
    target_observed_at: datetime | None
    ready_replicas: int
    starting_replicas: int

    @property
    def is_given_up(self) -> bool:
        """Whether the first revision of the endpoint has failed."""
        return self.active_revision_id is None and self.target_outcome == Outcome.FAILED


def _of_revision(column: sa.Column[Any], revision: sa.Column[Any]) -> sa.ScalarSelect[Any]:
    return sa.select(column).where(endpoint_revisions.c.id == revision).scalar_subquery()


def _count_in(phase: Phase) -> sa.ScalarSelect[int]:
    return (
        sa.select(sa.func.count())
        .where(
            endpoint_replicas.c.endpoint_id == endpoints.c.id, endpoint_replicas.c.phase == phase
        )
        .scalar_subquery()
    )


# Same condition as ``refusal`` in ``manager/accounts/callers.py``.
IS_OWNER_ACTIVE = (users.c.status == "active") & (
    domains.c.is_active | (users.c.role == Role.SUPERADMIN)
)
ROWS = (
    sa.select(
        *endpoints.columns,
        users.c.username.label("owner"),
        users.c.role.label("owner_role"),
        IS_OWNER_ACTIVE.label("is_owner_active"),
        projects.c.domain,
        projects.c.name.label("project"),
        _of_revision(endpoint_revisions.c.number, endpoints.c.active_revision_id).label(
            "active_revision"
        ),
        _of_revision(endpoint_revisions.c.number, endpoints.c.target_revision_id).label(
            "target_revision"
        ),
        _of_revision(endpoint_revisions.c.outcome, endpoints.c.target_revision_id).label(
            "target_outcome"
        ),
        _of_revision(endpoint_revisions.c.requests, endpoints.c.target_revision_id).label(
            "target_requests"
        ),
        _of_revision(endpoint_revisions.c.errors, endpoints.c.target_revision_id).label(
            "target_errors"
        ),
        _of_revision(endpoint_revisions.c.latency_ms, endpoints.c.target_revision_id).label(
            "target_latency_ms"
        ),
        _of_revision(endpoint_revisions.c.observed_at, endpoints.c.target_revision_id).label(
            "target_observed_at"
        ),
        _count_in(Phase.READY).label("ready_replicas"),
        _count_in(Phase.STARTING).label("starting_replicas"),
    )
    .join_from(endpoints, users, endpoints.c.owner_id == users.c.id)
    .join(projects, endpoints.c.project_id == projects.c.id)
    .join(domains, users.c.domain == domains.c.name)
)


def endpoint_row(*, owner_role: str, is_owner_active: bool, **columns: Any) -> EndpointRow:
    return EndpointRow(
        owner_role=Role(owner_role), is_owner_active=bool(is_owner_active), **columns
    )


def visible_endpoints(visible: Visibility) -> sa.Select[Any]:
    """Return the query of the visible endpoints. Endpoints of ``visible.owner_id`` are visible even
    if this user has left their project.
    """
    conditions = visible_rows(
        replace(visible, owner_id=None),
        domain=projects.c.domain,
        owner_id=endpoints.c.owner_id,
        project_id=endpoints.c.project_id,
    )
    if not conditions:
        return ROWS
    others = sa.and_(*conditions)
    if visible.owner_id is None:
        return ROWS.where(others)
    return ROWS.where(others | (endpoints.c.owner_id == visible.owner_id))


def no_endpoint(key: str) -> NotFound:
    return NotFound(f"there is no endpoint {key!r}, or you may not see it", endpoint=key)
