"""Refresh of the Hub's users: detection of changed accounts, and the refresh interval."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from jupyterhub import orm

from bai_auth.account import authentication, is_up_to_date
from bai_auth.authenticator import PASSWORD_ATTRIBUTE, BaiAuthenticator
from bai_auth.failures import SignInFailed
from bai_services.core import errors

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


class Accounts(BaiAuthenticator):
    """The authenticator with the account of one user."""

    account: Any = None

    async def _read_account(self, name: str) -> dict[str, Any]:
        if isinstance(self.account, errors.BaiError):
            raise self.account
        return dict(self.account)


@pytest.mark.parametrize(
    "account, status",
    [
        pytest.param({"password_changed_at": "later"}, 403, id="password changed meanwhile"),
        pytest.param({"password_changed_at": None}, 403, id="password removed meanwhile"),
        pytest.param(errors.Unavailable("no answer"), 503, id="manager unavailable"),
    ],
)
async def test_sign_in_fails_if_the_password_may_have_changed(account: Any, status: int) -> None:
    request = SimpleNamespace(headers={})
    handler: Any = SimpleNamespace(
        request=request, get_query_argument=lambda *_: "", get_cookie=lambda *_: ""
    )
    setattr(handler, PASSWORD_ATTRIBUTE, "earlier")
    accounts = Accounts()
    accounts.account = {"password_changed_at": "earlier"}
    await accounts.require_same_password(handler, "ada")
    accounts.account = account
    with pytest.raises(SignInFailed) as failed:
        await accounts.require_same_password(handler, "ada")
    assert failed.value.status_code == status
