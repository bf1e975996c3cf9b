"""`/auth/account-deletion`: users delete their own accounts; only for the Hub's page."""

from __future__ import annotations

from http import HTTPStatus

from ..base import APIHandler, operation
from .auth import CredentialsAtHub, factor_of


class DeletionHandler(APIHandler):
    @operation(
        "Delete an account with its password (Hub only)",
        tag="auth",
        body=CredentialsAtHub,
        status=HTTPStatus.NO_CONTENT,
    )
    async def post(self, body: CredentialsAtHub) -> None:
        await self.manager.accounts.deletions.delete(
            self.caller,
            body.name,
            body.password.get_secret_value(),
            body.client_ip,
            factor_of(body.code, body.code_proof),
        )


ROUTES = [("/auth/account-deletion", DeletionHandler)]
