"""Conversion of a bai-hub account to JupyterHub's authentication model."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from jupyterhub import orm
from jupyterhub.user import User

# Pattern of valid user names in bai-hub; the Hub uses it as ``username_pattern``.
USERNAME_PATTERN = r"[a-z0-9][a-z0-9_.-]{0,63}"
# Name of the Hub's built-in role for users.
USER_ROLE = "user"
_USERNAME = re.compile(USERNAME_PATTERN)

Role = Mapping[str, Any]


def is_username(name: str) -> bool:
    return _USERNAME.fullmatch(name) is not None


def authentication(account: Mapping[str, Any], default_roles: Sequence[Role]) -> dict[str, Any]:
    """Return the Hub's authentication model, for ``authenticate`` and ``refresh_user``.

    The Hub removes every role that is not listed, including its built-in role ``user``. Therefore
    ``default_roles`` must contain the definition of that role from the Hub's database. No user is
    an admin of the Hub, because admins can start servers and issue tokens for other users.
    """
    return {
        "name": account["username"],
        "admin": False,
        "groups": list(account["hub_groups"]),
        "roles": [
            *(dict(role) for role in default_roles if role["name"] == USER_ROLE),
            *(dict(role) for role in account["hub_roles"]),
        ],
    }


def is_up_to_date(user: User, account: Mapping[str, Any]) -> bool:
    """Return whether the Hub's groups and roles of the user already match the account.

    If they match, the caller skips the update: each refresh of the account, for example before a
    server starts, would otherwise rewrite all groups and roles of the user in the Hub's database.
    """
    roles = {role.name: role for role in user.orm_user.roles}
    expected = account["hub_roles"]
    return (
        not user.admin
        and {group.name for group in user.orm_user.groups} == set(account["hub_groups"])
        and roles.keys() == {USER_ROLE} | {role["name"] for role in expected}
        and all(_is_same_role(roles[role["name"]], role) for role in expected)
    )


def _is_same_role(have: orm.Role, expected: Role) -> bool:
    return have.description == expected["description"] and set(have.scopes) == set(
        expected["scopes"]
    )
