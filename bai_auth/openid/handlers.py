"""Pages for the sign-in with OpenID providers, and for the linked identities of a user."""

from __future__ import annotations

import hmac
import json
import re
from http import HTTPStatus
from typing import Any

from jupyterhub.handlers import BaseHandler
from jupyterhub.utils import url_path_join
from tornado import web

from bai_services.core import errors
from bai_services.core.accounts.one_time_codes import CODE_NEEDED, CODE_WRONG
from bai_services.i18n import catalogue

from ..external_sign_in import ExternalSignInHandler
from ..failures import SignInFailed, password_text
from ..forms import FormPage
from ..handlers import LoginHandler
from .client import (
    Flow,
    InvalidResponse,
    OpenIdClient,
    ProviderUnavailable,
    external_user,
)

COOKIE = "bai_openid"
COOKIE_SECONDS = 600
_STATE = re.compile(r"[A-Za-z0-9_-]{43}")
_PROVIDER = r"(?P<name>[a-z0-9-]+)"


class OpenIdHandler(BaseHandler):
    """Base of the handlers that begin or end a sign-in at a provider."""

    def client_of(self, name: str) -> OpenIdClient:
        client: OpenIdClient | None = self.authenticator.openid_clients.get(name)
        if client is None:
            raise web.HTTPError(HTTPStatus.NOT_FOUND)
        return client

    def redirect_uri(self, client: OpenIdClient) -> str:
        """Return the callback URL, which the operator registers at the provider."""
        if client.provider.callback_url:
            return client.provider.callback_url
        path = url_path_join(self.hub.base_url, "openid", client.provider.name, "callback")
        public = self.settings.get("public_url")
        host = public.netloc if public else self.request.host
        scheme = public.scheme if public else self.request.protocol
        return f"{scheme}://{host}{path}"

    async def begin(self, name: str, *, links: bool) -> None:
        """Redirect the browser to the provider; keep the secrets of the sign-in in a cookie."""
        client, flow = self.client_of(name), Flow()
        try:
            url = await client.authorization_url(flow, self.redirect_uri(client))
        except ProviderUnavailable as error:
            raise self.unavailable(name, error) from error
        content = {
            "provider": name,
            "nonce": flow.nonce,
            "verifier": flow.verifier,
            "next": self.get_argument("next", ""),
            "user": self.current_user.name if links else "",
        }
        # SameSite is Lax, because the provider's page leads back here. Each sign-in has a separate
        # cookie, so that sign-ins in two tabs do not interfere.
        self._set_cookie(
            _cookie_of(flow.state),
            json.dumps(content),
            encrypted=True,
            path=self._cookie_path,
            max_age=COOKIE_SECONDS,
            samesite="Lax",
        )
        self.set_header("Cache-Control", "no-store")
        self.redirect(url)

    async def end(self, name: str) -> tuple[dict[str, Any], dict[str, Any]]:
        """Verify the provider's response; return the content of the cookie, and the user.

        Raises
        ------
        SignInFailed
            If the response does not belong to a sign-in of this browser, the user has refused, or
            the provider's response is invalid or missing.
        """
        client = self.client_of(name)
        translate = catalogue.translator_for(self)
        state = self.get_query_argument("state", "")
        begun = self._take_cookie(name, state)
        if begun is None:
            self.log.warning("OpenID %s: the state belongs to no sign-in of this browser", name)
            raise SignInFailed(HTTPStatus.FORBIDDEN, translate("openid.expired"))
        if error := self.get_query_argument("error", ""):
            self.log.warning("OpenID %s: the provider responds with %.60r", name, error)
            key = "openid.denied" if error == "access_denied" else "openid.invalid"
            raise SignInFailed(HTTPStatus.FORBIDDEN, translate(key))
        flow = Flow(state, begun["nonce"], begun["verifier"])
        try:
            code = self.get_query_argument("code", "")
            claims = await client.claims(flow, code, self.redirect_uri(client))
        except ProviderUnavailable as error:
            raise self.unavailable(name, error) from error
        except InvalidResponse as error:
            self.log.warning("OpenID %s: %s", name, error)
            raise SignInFailed(HTTPStatus.FORBIDDEN, translate("openid.invalid")) from error
        return begun, external_user(client.provider, claims)

    def unavailable(self, name: str, error: Exception) -> SignInFailed:
        self.log.error("OpenID %s: %s", name, error)
        text = catalogue.translator_for(self)("openid.unavailable")
        return SignInFailed(HTTPStatus.SERVICE_UNAVAILABLE, text)

    def _take_cookie(self, name: str, state: str) -> dict[str, Any] | None:
        """Return and delete the content of a sign-in's cookie; None if the cookie is missing."""
        if not _STATE.fullmatch(state):
            return None
        cookie = _cookie_of(state)
        value = self.get_secure_cookie(cookie, max_age_days=COOKIE_SECONDS / 86400)
        self.clear_cookie(cookie, path=self._cookie_path)
        if value is None:
            return None
        content: dict[str, Any] = json.loads(value)
        return content if hmac.compare_digest(content["provider"], name) else None

    @property
    def _cookie_path(self) -> str:
        return str(url_path_join(self.hub.base_url, "openid/"))


def _cookie_of(state: str) -> str:
    # The cookie's signature covers its name, so the cookie belongs to this state only.
    return f"{COOKIE}_{state}"


class StartHandler(OpenIdHandler, LoginHandler):
    """Begins a sign-in."""

    SUPPORTED_METHODS = ("GET", "HEAD")

    async def get(self, name: str) -> None:  # type: ignore[override]  # the route has a group
        try:
            await self.begin(name, links=False)
        except SignInFailed as failed:
            await self.render_failure(failed)


class CallbackHandler(OpenIdHandler, ExternalSignInHandler):
    """Ends a sign-in, or links an identity to the signed-in user."""

    SUPPORTED_METHODS = ("GET", "HEAD")

    async def get(self, name: str) -> None:  # type: ignore[override]  # the route has a group
        self.set_header("Referrer-Policy", "no-referrer")
        self.set_header("Cache-Control", "no-store")
        try:
            begun, user = await self.end(name)
            if begun["user"]:
                await self._link(begun["user"], user)
            else:
                await self.sign_in_external(
                    begun["next"], user, self.client_of(name).provider.rules
                )
        except SignInFailed as failed:
            await self.render_failure(failed)

    async def _link(self, username: str, user: dict[str, Any]) -> None:
        translate = catalogue.translator_for(self)
        current = self.current_user
        if current is None or current.name != username:
            raise SignInFailed(HTTPStatus.FORBIDDEN, translate("openid.expired"))
        try:
            await self.authenticator.account_calls.link_identity(self, username, user)
        except errors.AlreadyExists as error:
            text = translate("openid.already_linked")
            raise SignInFailed(HTTPStatus.CONFLICT, text) from error
        except errors.BaiError as error:
            self.log.error("An identity was not linked: %s", error)
            text = translate("sign_in.unavailable")
            raise SignInFailed(HTTPStatus.SERVICE_UNAVAILABLE, text) from error
        self.redirect(url_path_join(self.hub.base_url, "identities"))


class IdentitiesHandler(OpenIdHandler, FormPage):
    """The identities of the signed-in user: link (with the password), unlink."""

    @web.authenticated
    async def get(self) -> None:
        self.remember_language()
        await self._render()

    @web.authenticated
    async def post(self) -> None:
        if name := self.field("link"):
            await self._link(name)
            return
        try:
            identity = self.field("unlink")
            await self.authenticator.account_calls.unlink_identity(
                self, self.current_user.name, identity
            )
        except errors.Conflict:
            text = catalogue.translator_for(self)("openid.last_identity")
            await self._render(HTTPStatus.CONFLICT, text)
        except errors.NotFound:
            await self._render()
        else:
            await self._render()

    async def _link(self, name: str) -> None:
        translate = catalogue.translator_for(self)
        try:
            await self.authenticator.account_calls.confirm_link(
                self,
                self.current_user.name,
                self.field("password", strip=False),
                self.field("recovery_code") or self.field("code"),
            )
            await self.begin(name, links=True)
        except errors.SignInRefused as error:
            reason = error.details.get("reason")
            if reason in (CODE_NEEDED, CODE_WRONG):
                text = translate("code.enter" if reason == CODE_NEEDED else "code.wrong")
                await self._render(HTTPStatus.FORBIDDEN, text, "code")
            else:
                text = password_text(error, translate)
                await self._render(HTTPStatus.FORBIDDEN, text, "password")
        except errors.BaiError as error:
            await self._render(*self.failure(error))
        except SignInFailed as failed:
            await self._render(failed.status_code, str(failed.log_message))

    async def _render(
        self, status: int = HTTPStatus.OK, error: str = "", error_field: str = ""
    ) -> None:
        try:
            found = await self.authenticator.account_calls.identities(self.current_user.name)
        except errors.BaiError as cause:
            text = catalogue.translator_for(self)("sign_in.unavailable")
            raise web.HTTPError(HTTPStatus.SERVICE_UNAVAILABLE, text) from cause
        identities = found["items"]
        linked = {identity["issuer"] for identity in identities}
        providers = [client.provider for client in self.authenticator.openid_clients.values()]
        titles = {provider.issuer: provider.title for provider in providers}
        self.set_status(status)
        await self.show(
            "identities.html",
            identities=[
                {**one, "title": titles.get(one["issuer"], one["provider"])} for one in identities
            ],
            providers=[one for one in providers if one.issuer not in linked],
            action=self.hub_url("identities"),
            has_password=found["has_password"],
            error=error,
            error_field=error_field,
        )


HANDLERS: list[tuple[str, type[BaseHandler]]] = [
    (rf"/openid/{_PROVIDER}/start", StartHandler),
    (rf"/openid/{_PROVIDER}/callback", CallbackHandler),
    ("/identities", IdentitiesHandler),
]
