"""Authorization: check whether a caller may perform an action."""

from __future__ import annotations

from bai_services.core.accounts.roles import (
    Caller,
    Reach,
    Target,
    Visibility,
    reach,
    reaches,
    roles_above,
)
from bai_services.core.errors import Forbidden, NotFound


def require(caller: Caller, action: str, target: Target | None = None) -> None:
    """Raise an error if the caller may not perform ``action`` on ``target``.

    Without a target, the caller must be allowed to perform the action on at least one target.

    Raises
    ------
    NotFound
        If the caller may not even read the target; this hides whether it exists.
    Forbidden
        If the caller may read the target, or if no target is given.
    """
    if target is None:
        if reach(caller.role, action) is not Reach.NONE:
            return
    elif reaches(caller, action, target):
        return
    elif not reaches(caller, f"{action.partition('.')[0]}.read", target):
        raise NotFound("there is no such object, or you may not see it")
    elif target.owner is not None and target.owner.role in roles_above(caller.role, action):
        raise Forbidden(
            f"the object belongs to a user with the role {target.owner.role}; the role "
            f"{caller.role} may not perform {action} on it; ask a superadmin",
            action=action,
        )
    raise Forbidden(
        f"{caller.username or caller.role} ({caller.role}) may not perform {action} here",
        action=action,
    )


def require_not_above(caller: Caller, action: str, what: str, changed_by_role: str) -> None:
    """Raise ``Forbidden`` if a user with a higher role created or last changed an object that
    administrators share; ``what`` names the kind of object.
    """
    if changed_by_role in roles_above(caller.role, action):
        raise Forbidden(
            f"a {changed_by_role} has created or last changed this {what}; the role {caller.role} "
            "may not change it",
            action=action,
        )


def visibility(caller: Caller, action: str) -> Visibility:
    """Return which rows the caller may read; ``action`` is a read action such as ``account.read``.

    Raises
    ------
    Forbidden
        If the caller's role may read no rows.
    """
    match reach(caller.role, action):
        case Reach.ALL:
            return Visibility()
        case Reach.DOMAIN:
            return Visibility(domain=caller.domain, hidden_roles=roles_above(caller.role, action))
        case Reach.PROJECT:
            return Visibility(project_ids=caller.projects)
        case Reach.OWN:
            return Visibility(owner_id=caller.user_id)
        case _:
            raise Forbidden(
                f"{caller.username or caller.role} ({caller.role}) may not perform {action}",
                action=action,
            )
