"""Refresh of the Hub's users: detection of changed accounts, and the refresh interval."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from jupyterhub import orm

from bai_auth.account import authentication, is_up_to_date
from bai_auth.authenticator import BaiAuthenticator

ROLE = {"name": "bai-domain-admin-x", "description": "of x", "scopes": ["admin-ui"]}
ACCOUNT: dict[str, Any] = {
    "username": "ada",
    "hub_groups": ["d-x", "p-x-y"],
    "hub_roles": [ROLE],
}


@pytest.fixture
def hub_user() -> Any:
    """A user of the Hub with the groups and roles of ``ACCOUNT``."""
    user = orm.User(name="ada", admin=False)
    user.groups = [orm.Group(name=name) for name in ACCOUNT["hub_groups"]]
    user.roles = [orm.Role(name="user", description="", scopes=["self"]), orm.Role(**ROLE)]
    return SimpleNamespace(name="ada", admin=False, orm_user=user)


def test_unchanged_account_is_up_to_date(hub_user: Any) -> None:
    default = {"name": "user", "description": "", "scopes": ["self"]}
    model = authentication(ACCOUNT, [default])
    assert {role["name"] for role in model["roles"]} == {"user", ROLE["name"]}
    assert is_up_to_date(hub_user, ACCOUNT)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"hub_groups": ["d-x"]}, id="left a project"),
        pytest.param({"hub_groups": ["d-x", "p-x-y", "p-x-z"]}, id="joined a project"),
        pytest.param({"hub_roles": []}, id="lost the role of a domain admin"),
        pytest.param({"hub_roles": [{**ROLE, "scopes": []}]}, id="scopes of a role changed"),
        pytest.param(
            {"hub_roles": [{**ROLE, "description": "z"}]}, id="description of a role changed"
        ),
        pytest.param({"hub_roles": [ROLE, {**ROLE, "name": "other"}]}, id="additional role"),
    ],
)
def test_changed_account_is_not_up_to_date(hub_user: Any, change: dict[str, Any]) -> None:
    assert not is_up_to_date(hub_user, {**ACCOUNT, **change})


def test_user_with_the_hubs_admin_flag_is_not_up_to_date(hub_user: Any) -> None:
    hub_user.admin = True
    assert not is_up_to_date(hub_user, ACCOUNT)


def test_refresh_age_is_at_most_five_minutes() -> None:
    """The administrator guide states five minutes; test_account_changes.py tests the effect."""
    assert BaiAuthenticator().auth_refresh_age <= 300
