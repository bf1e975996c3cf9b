"""Conversion of accounts to the Hub's authentication model, and user names."""

from __future__ import annotations

import pytest

from bai_auth.account import authentication, is_username


def account(**changes: object) -> dict[str, object]:
    return {
        "username": "kim",
        "hub_groups": ["d-default"],
        "hub_roles": [],
    } | changes


DEFAULT_ROLES = [
    {"name": "user", "description": "", "scopes": ["self"]},
    {"name": "admin", "description": "", "scopes": ["admin-ui"]},
]


def test_model_keeps_the_hubs_built_in_user_role() -> None:
    """The Hub removes roles that are not listed; without `user` the account has no permission."""
    role = {"name": "bai-domain-admin-x", "description": "", "scopes": ["admin-ui"]}
    model = authentication(account(hub_roles=[role]), DEFAULT_ROLES)
    assert model == {
        "name": "kim",
        "admin": False,
        "groups": ["d-default"],
        "roles": [DEFAULT_ROLES[0], role],
    }


def test_superadmin_is_not_an_admin_of_the_hub() -> None:
    """The Hub's role `admin` may start servers and issue tokens for every user."""
    role = {"name": "bai-superadmin", "description": "", "scopes": ["admin-ui"]}
    model = authentication(account(role="superadmin", hub_roles=[role]), DEFAULT_ROLES)
    assert model["admin"] is False
    assert [role["name"] for role in model["roles"]] == ["user", "bai-superadmin"]


@pytest.mark.parametrize("name", ["a", "kim.1", "x" * 64, "0_-"])
def test_valid_user_name_is_accepted(name: str) -> None:
    assert is_username(name)


@pytest.mark.parametrize("name", ["", "Kim", ".kim", "a/b", "a b", "x" * 65, "kim\n"])
def test_invalid_user_name_is_rejected(name: str) -> None:
    assert not is_username(name)
