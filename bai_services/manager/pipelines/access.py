"""Permissions for pipelines of users and projects, and for their runs."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Literal

from bai_services.core.accounts.roles import (
    Caller,
    Owner,
    Role,
    Target,
    reaches,
    roles_above,
)
from bai_services.core.coded_text import refusal
from bai_services.core.errors import Forbidden
from bai_services.core.pipelines.definition import PipelineDefinition
from bai_services.core.pipelines.parameters import resolve
from bai_services.core.refusal_texts import RefusalText
from bai_services.db.pipelines.definitions import PipelineReader, PipelineRow
from bai_services.db.pipelines.runs import RunRow

from ..accounts import authorizer

Verb = Literal["run", "write", "delete"]

# In the details of an error: the request is allowed with ``accept_files``.
ACCEPT_FILES = "pipeline.accept-files"
# Actions on pipelines that belong to a user, and to a project.
_ACTIONS: dict[Verb, tuple[str, str]] = {
    "run": ("pipeline.write", "project-pipeline.run"),
    "write": ("pipeline.write", "project-pipeline.write"),
    "delete": ("pipeline.manage", "project-pipeline.write"),
}


def reader_of(caller: Caller) -> PipelineReader:
    """Return which pipelines the caller may read: pipelines that the role may see, and pipelines of
    the caller's projects.
    """
    visible = authorizer.visibility(caller, "pipeline.read")
    return PipelineReader(caller.user_id, visible, caller.projects)


def require(caller: Caller, verb: Verb, row: PipelineRow) -> None:
    """Raise an error if the caller may not perform the action ``verb`` on a pipeline.

    A run has the permissions of the caller. Therefore the author of the definition of a project's
    pipeline must not have a lower role than the caller.

    Raises
    ------
    Forbidden
        If the caller may only read the pipeline.
    """
    authorizer.require(caller, _action(verb, row), target_of(row))
    is_above = caller.role in roles_above(row.author_role, "user.write")
    if verb == "run" and row.owner_id is None and is_above:
        raise Forbidden(
            refusal(
                RefusalText.SAVED_BY_ROLE, author=row.author_role, name=row.name, role=caller.role
            )
        )


def require_trusted_files(caller: Caller, row: PipelineRow, writers: Collection[Role]) -> None:
    """Raise an error if users with a lower role may change the files of a project's pipeline.

    ``writers``: the roles of the users who may write to its folder. The tasks execute these files
    with the permissions of the caller.

    Raises
    ------
    Forbidden
        If the caller must check and accept the files first.
    """
    lower = sorted(r for r in writers if caller.role in roles_above(r, "user.write"))
    if lower:
        raise Forbidden(
            refusal(RefusalText.FILES_NOT_ACCEPTED, names=", ".join(lower), name=row.name),
            action=ACCEPT_FILES,
        )


def can_write(caller: Caller, row: PipelineRow) -> bool:
    return reaches(caller, _action("write", row), target_of(row))


def require_run(caller: Caller, action: str, row: RunRow) -> None:
    """Raise an error if the caller may not perform an action on a run.

    Raises
    ------
    Forbidden
        If the caller may only read the run.
    """
    target = Target(row.domain, row.project_id, Owner(row.owner_id, row.owner_role))
    is_readable = row.is_project_owned and row.project_id in caller.projects
    if is_readable and not reaches(caller, action, target):
        raise Forbidden(
            refusal(RefusalText.RUN_OF_OTHER, owner=row.owner),
            action=action,
        )
    authorizer.require(caller, action, target)


def check_parameters(row: PipelineRow, parameters: Mapping[str, Any]) -> None:
    """Raise ``InvalidRequest`` if a run of a pipeline cannot have these parameters."""
    resolve(PipelineDefinition.from_json(row.parsed), parameters)


def target_of(row: PipelineRow) -> Target:
    if row.owner_id is None or row.owner_role is None:
        return Target(row.domain, row.project_id)
    return Target(row.domain, row.project_id, Owner(row.owner_id, row.owner_role))


def _action(verb: Verb, row: PipelineRow) -> str:
    return _ACTIONS[verb][row.owner_id is None]
