"""Conversion of a bai-hub account to JupyterHub's authentication model."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from jupyterhub import orm
from jupyterhub.user import User

# User names valid in bai-hub; the Hub accepts the same.
USERNAME_PATTERN = r"[a-z0-9][a-z0-9_.-]{0,63}"
# The Hub's built-in role of every user.
USER_ROLE = "user"
_USERNAME = re.compile(USERNAME_PATTERN)

Role = Mapping[str, Any]


def is_username(name: str) -> bool:
    return _USERNAME.fullmatch(name) is not None


def authentication(account: Mapping[str, Any], default_roles: Sequence[Role]) -> dict[str, Any]:
    """Return the result of ``Authenticator.authenticate`` and ``refresh_user`` for the Hub.

    The Hub removes every role that is not listed, including its own role ``user``:
    ``default_roles`` contains that role as it is in the Hub's database. Nobody is an admin of the
    Hub: such an admin could start servers and issue tokens for others.
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
    """Return whether the Hub's record of the user already equals ``authentication``.

    If so, nothing needs to be written; otherwise the Hub rewrites groups and roles, before each
    start too.
    """
    roles = {role.name: role for role in user.orm_user.roles}
    expected = account["hub_roles"]
    return (
        not user.admin
        and {group.name for group in user.orm_user.groups} == set(account["hub_groups"])
        and roles.keys() == {USER_ROLE} | {role["name"] for role in expected}
        and all(_is_same(roles[role["name"]], role) for role in expected)
    )


def _is_same(have: orm.Role, expected: Role) -> bool:
    return have.description == expected["description"] and set(have.scopes) == set(
        expected["scopes"]
    )
