"""Calls of the manager's API for the pages on which users change their accounts."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any
from urllib.parse import quote

from jupyterhub.handlers import BaseHandler
from tornado.httputil import HTTPServerRequest

from bai_services.core import errors
from bai_services.core.accounts.one_time_codes import CODE_NEEDED, CODE_WRONG
from bai_services.service_client import ServiceClient

from .failures import CodeNeeded

Model = dict[str, Any]


class AccountCalls:
    """Calls for one user. Most contain the browser's address, for limits and the audit log.

    A call raises ``BaiError`` if the manager rejects it or is unavailable.
    """

    def __init__(
        self, client: ServiceClient, client_address: Callable[[HTTPServerRequest], str]
    ) -> None:
        self._client = client
        self._client_address = client_address

    async def identities(self, username: str) -> Model:
        """Return the identities of a user at OpenID providers, and whether a password is set."""
        path = _path(username, "identities")
        return dict(await self._client.get(path))

    async def confirm_link(
        self, handler: BaseHandler, username: str, password: str, code: str
    ) -> None:
        """Check the password of a user who is going to link an identity."""
        path = _path(username, "identity-confirmation")
        client_ip = self._client_address(handler.request)
        body = {"password": password, "code": code, "client_ip": client_ip}
        await self._client.post(path, body)

    async def link_identity(self, handler: BaseHandler, username: str, user: Model) -> None:
        """Link a verified identity to the account of a signed-in user."""
        body = {"user": user, "client_ip": self._client_address(handler.request)}
        path = _path(username, "identities")
        await self._client.post(path, body)

    async def unlink_identity(self, handler: BaseHandler, username: str, identity: str) -> None:
        """Remove an identity of a signed-in user."""
        path = _path(username, f"identities/{quote(identity, safe='')}")
        await self._client.delete(path, client_ip=self._client_address(handler.request))

    async def begin_registration(self, username: str) -> Model:
        """Return a new secret for the authenticator app of a user with a correct password."""
        path = _path(username, "authenticator/registration")
        return dict(await self._client.post(path))

    async def confirm_registration(
        self, handler: BaseHandler, username: str, registration: str, code: str
    ) -> Model:
        """Register an authenticator app; return recovery codes and the proof of the code."""
        body = {
            "registration": registration,
            "code": code,
            "client_ip": self._client_address(handler.request),
        }
        path = _path(username, "authenticator")
        return dict(await self._client.post(path, body))

    async def change_password(
        self,
        handler: BaseHandler,
        name: str,
        old: str,
        new: str,
        *,
        code: str = "",
        code_proof: str = "",
    ) -> None:
        """Set a new password; the old password authenticates the request.

        Raises
        ------
        CodeNeeded
            If the old password is correct, but the one-time code is missing or wrong.
        BaiError
            If the old password is wrong, the account is blocked, the new password breaks a rule,
            or the manager is unavailable.
        """
        body = {
            "name": name,
            "old_password": old,
            "new_password": new,
            "code": code,
            "code_proof": code_proof,
            "client_ip": self._client_address(handler.request),
            # Changing the password ends all other sign-ins; this browser stays signed in.
            "keep_session": handler.get_session_cookie() if handler.current_user else "",
        }
        try:
            await self._client.post("/auth/password", body)
        except errors.SignInRefused as error:
            if (reason := error.details.get("reason")) in (CODE_NEEDED, CODE_WRONG):
                raise CodeNeeded(
                    error.details["username"], is_wrong=reason == CODE_WRONG
                ) from error
            raise

    async def redeem_signed_token(self, token_hash: str, expires_at: datetime) -> None:
        """Record the use of a token; raise ``Conflict`` if it was used before."""
        body = {"token_hash": token_hash, "expires_at": expires_at.isoformat()}
        await self._client.post("/auth/signed-tokens", body)


def _path(username: str, part: str) -> str:
    return f"/auth/accounts/{quote(username, safe='')}/{part}"
