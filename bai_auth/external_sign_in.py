"""Sign-in with an identity that another site has proved, instead of a password."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from bai_services.i18n import catalogue

from .failures import SignInFailed
from .handlers import LoginHandler
from .pending_sign_ins import Credentials
from .sign_in_steps import EXTERNAL_ATTRIBUTE


class ExternalSignInHandler(LoginHandler):
    """Base of the handlers that receive the proof of an identity."""

    async def sign_in_external(
        self, target: str, user: dict[str, Any], rules: dict[str, Any]
    ) -> None:
        """Sign the user in, or respond with the page of the next step, such as a one-time code.

        ``target`` is the address that opens after the sign-in.
        """
        # Remove all parameters except ``next``, because `get_next_url` would append them to the
        # result.
        self.request.arguments = {"next": [target.encode()]}
        self.request.query = ""
        external = {"user": user, "rules": rules}
        setattr(self, EXTERNAL_ATTRIBUTE, external)
        kept = Credentials(user["username"], "", external=external)
        await self.continue_sign_in(self._finish_external, kept)

    async def _finish_external(self) -> None:
        signed_in = await self.login_user({})
        if signed_in is None:
            text = catalogue.translator_for(self)("openid.invalid")
            raise SignInFailed(HTTPStatus.FORBIDDEN, text)
        self._jupyterhub_user = signed_in
        self.redirect(self.get_next_url(signed_in))
