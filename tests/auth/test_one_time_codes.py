"""The setting for one-time codes, and the steps that ``BaiAuthenticator`` adds to a sign-in."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from traitlets import TraitError

from bai_auth.authenticator import BaiAuthenticator
from bai_auth.failures import CodeNeeded, PasswordChangeNeeded, RegistrationNeeded
from bai_services.core import errors
from bai_services.core.accounts.one_time_codes import code_needed, code_wrong

ACCOUNT: dict[str, Any] = {
    "username": "ada",
    "need_password_change": False,
    "need_code_registration": False,
    "code_proof": "proof",
}


def test_an_invalid_rule_is_rejected_at_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BAI_ONE_TIME_CODES", raising=False)
    assert BaiAuthenticator().one_time_codes == "off"
    rules = "off,staff=required"
    assert BaiAuthenticator(one_time_codes=rules).one_time_codes == rules
    with pytest.raises(TraitError, match="'on' is not one of off, optional, required"):
        BaiAuthenticator(one_time_codes="on")


class Manager:
    """Responds to the verification of a password with an account or an error."""

    def __init__(self, response: Any) -> None:
        self._response = response

    async def post(self, path: str, body: dict[str, Any]) -> Any:
        assert path == "/auth/verify"
        if isinstance(self._response, errors.BaiError):
            raise self._response
        return self._response


class Accounts(BaiAuthenticator):
    manager: Any = None

    @property
    def client(self) -> Any:
        return self.manager


@pytest.mark.parametrize(
    "response, expected, attributes",
    [
        pytest.param(code_needed("ada"), CodeNeeded, {"is_wrong": False}, id="no code"),
        pytest.param(code_wrong("ada"), CodeNeeded, {"is_wrong": True}, id="wrong code"),
        pytest.param(
            {**ACCOUNT, "need_code_registration": True},
            RegistrationNeeded,
            {"is_wrong": False},
            id="no authenticator",
        ),
        pytest.param(
            {**ACCOUNT, "need_password_change": True, "need_code_registration": True},
            PasswordChangeNeeded,
            {"code_proof": "proof"},
            id="password first",
        ),
    ],
)
async def test_the_sign_in_asks_for_the_next_step(
    response: Any, expected: type[Exception], attributes: dict[str, Any]
) -> None:
    request = SimpleNamespace(headers={}, connection=None)
    handler: Any = SimpleNamespace(
        request=request, get_query_argument=lambda *_: "", get_cookie=lambda *_: ""
    )
    accounts = Accounts()
    accounts.manager = Manager(response)
    with pytest.raises(expected) as needed:
        await accounts.authenticate(handler, {"username": "a", "password": "p"})
    assert getattr(needed.value, "username", "") == "ada"
    assert {name: getattr(needed.value, name) for name in attributes} == attributes
