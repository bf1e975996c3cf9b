"""JupyterHub authenticator for the accounts of bai-hub's manager."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any
from urllib.parse import quote

from jupyterhub import orm
from jupyterhub.app import JupyterHub
from jupyterhub.auth import Authenticator
from jupyterhub.handlers import BaseHandler
from jupyterhub.user import User
from jupyterhub.utils import url_path_join
from tornado.httputil import HTTPServerRequest, url_concat
from traitlets import Dict, List, Set, TraitError, Unicode, default, validate

from bai_services.client import Token
from bai_services.core import errors
from bai_services.core.accounts.one_time_codes import CODE_NEEDED, CODE_WRONG, CodeRules
from bai_services.i18n.catalogue import translator_for
from bai_services.service_client import ServiceClient
from bai_services.single_flight import FreshSingleFlight
from bai_services.trusted_proxies import TrustedProxies

from . import (
    account_deletion,
    browser_sign_ins,
    handlers,
    hub_pages,
    password_resets,
    settings_report,
    sign_ups,
    signed_tokens,
)
from .account import USER_ROLE, USERNAME_PATTERN, authentication, is_up_to_date, is_username
from .account_calls import AccountCalls
from .failures import CodeNeeded, PasswordChangeNeeded, RegistrationNeeded, sign_in_failed
from .log_scrubbing import scrub_signed_tokens
from .openid import handlers as openid_handlers
from .openid.client import OpenIdClient
from .openid.settings import read_providers
from .self_service import SelfService
from .sign_in_steps import EXTERNAL_ATTRIBUTE, PROOF_ATTRIBUTE

Model = dict[str, Any]

# Attribute of the handler that contains the time at which the verified password was set.
PASSWORD_ATTRIBUTE = "bai_password_changed_at"


class BaiAuthenticator(Authenticator):
    """Authenticates users through the manager, which stores accounts, groups and roles.

    Users sign in with a user name or an e-mail address. Domains and projects become Hub groups.
    Domain admins get a Hub role whose scopes are limited to the group of their domain.
    """

    manager_url = Unicode(
        help="""
        URL of the manager without ``/api/v1``, bypassing the proxy, for example
        ``http://127.0.0.1:8091/services/bai``.

        Defaults to the environment variable ``BAI_MANAGER_URL``. While the manager is
        unavailable, sign-ins fail with status 503 and signed-in users stay signed in.
        """,
    ).tag(config=True)

    hub_token_file = Unicode(
        help="""
        Path of the file with the secret that authenticates the Hub to the manager.

        Defaults to the environment variable ``BAI_HUB_TOKEN_FILE``. The file is read once, at
        start; the manager must use the same file.
        """,
    ).tag(config=True)

    trusted_proxies = Set(
        Unicode(),
        default_value={"own"},
        help="""
        Proxies whose ``X-Forwarded-For`` is trusted: addresses, networks, and ``own`` for
        every address of this machine.

        For a request from any other address, that address is the client address and the
        header is ignored. Lockouts and the allowed addresses of accounts use the client
        address. If there is another proxy in front of the Hub's own proxy, list it, too. If
        the set is empty, no proxy is trusted.
        """,
    ).tag(config=True)

    one_time_codes = Unicode(
        help="""
        Whether users sign in with a one-time code of an authenticator app (TOTP, RFC 6238).

        ``off``, ``optional`` (users decide), or ``required`` (a user without an authenticator app
        registers one at the next sign-in); then, if needed, the rules of single domains, for
        example ``optional,staff=required``. Defaults to the environment variable
        ``BAI_ONE_TIME_CODES``, else ``off``. The rule applies to all sign-ins with a password.
        ``jupyterhub_config.py`` passes it to the manager, which enforces it.
        """,
    ).tag(config=True)

    openid_providers = List(
        Dict(),
        help="""
        OpenID Connect providers with which users can sign in; the sign-in page has a button for
        each.

        Each entry has ``name`` (in URLs), ``issuer``, ``client_id``, ``client_secret_file`` or
        ``client_secret_env``, and optionally ``title``, ``scopes``, ``username_claim``,
        ``callback_url``, ``creates_accounts`` with ``domain`` and ``projects``, ``trusts_email``,
        ``links_email`` and ``skips_one_time_code``. Register ``/hub/openid/NAME/callback`` at the
        provider. The secrets are read once, at start.
        """,
    ).tag(config=True)

    signed_token_sites = List(
        Dict(),
        help="""
        Other sites that can sign users in with a signed token, at
        ``/hub/token-login?sToken=TOKEN&next=ADDRESS``. Empty: off.

        Each entry has ``name``, ``issuer``, ``audience`` and ``public_key_file`` (PEM), and
        optionally ``username_claim``, ``creates_accounts`` with ``domain`` and ``projects``,
        ``trusts_email``, ``links_email`` and ``skips_one_time_code``, as in
        ``openid_providers``. A token is valid for at most five minutes and only once. The keys
        are read once, at start.
        """,
    ).tag(config=True)

    _self_service: SelfService | None = None
    _client: ServiceClient | None = None
    _openid_clients: dict[str, OpenIdClient] | None = None
    _signed_token_sites: dict[str, signed_tokens.Site] | None = None
    _proxies: TrustedProxies | None = None
    _report: asyncio.Future[None] | None = None
    _accounts: FreshSingleFlight[str, Model] | None = None

    @default("manager_url")
    def _manager_url_default(self) -> str:
        return os.environ.get("BAI_MANAGER_URL", "")

    @default("hub_token_file")
    def _hub_token_file_default(self) -> str:
        return os.environ.get("BAI_HUB_TOKEN_FILE", "")

    @default("one_time_codes")
    def _one_time_codes_default(self) -> str:
        return os.environ.get("BAI_ONE_TIME_CODES") or "off"

    @validate("one_time_codes")
    def _check_one_time_codes(self, proposal: Any) -> str:
        text = str(proposal["value"])
        try:
            CodeRules.parse(text)
        except ValueError as error:
            raise TraitError(f"BaiAuthenticator.one_time_codes: {error}") from error
        return text

    # The manager alone decides who may sign in, so the Hub allows every user.
    @default("allow_all")
    def _allow_all_default(self) -> bool:
        return True

    @default("manage_groups")
    def _manage_groups_default(self) -> bool:
        return True

    @default("manage_roles")
    def _manage_roles_default(self) -> bool:
        return True

    @default("refresh_pre_spawn")
    def _refresh_pre_spawn_default(self) -> bool:
        return True

    @default("auth_refresh_strict")
    def _auth_refresh_strict_default(self) -> bool:
        # With the Hub's default (False), API requests with a token are accepted even if the user
        # has been deactivated.
        return True

    @default("username_pattern")
    def _username_pattern_default(self) -> str:
        return USERNAME_PATTERN

    @property
    def openid_clients(self) -> dict[str, OpenIdClient]:
        """The client of each OpenID provider, by name.

        Raises
        ------
        TraitError
            If ``openid_providers`` is invalid, or a secret cannot be read.
        """
        if self._openid_clients is None:
            try:
                providers = read_providers(self.openid_providers)
            except ValueError as error:
                raise TraitError(f"BaiAuthenticator.openid_providers: {error}") from error
            self._openid_clients = {
                name: OpenIdClient(provider) for name, provider in providers.items()
            }
        return self._openid_clients

    @property
    def signed_token_sites_by_issuer(self) -> dict[str, signed_tokens.Site]:
        """The sites whose tokens are accepted, by issuer.

        Raises
        ------
        TraitError
            If ``signed_token_sites`` is invalid, or a key cannot be read.
        """
        if self._signed_token_sites is None:
            try:
                self._signed_token_sites = signed_tokens.read_sites(self.signed_token_sites)
            except ValueError as error:
                raise TraitError(f"BaiAuthenticator.signed_token_sites: {error}") from error
        return self._signed_token_sites

    @property
    def self_service(self) -> SelfService:
        """Settings of the pages for users who are not signed in."""
        if self._self_service is None:
            self._self_service = SelfService(parent=self)
        return self._self_service

    @property
    def client(self) -> ServiceClient:
        """The client of the manager's API.

        Raises
        ------
        TraitError
            If ``manager_url`` is empty, or the file ``hub_token_file`` cannot be read or is empty.
        """
        if self._client is None:
            self._client = ServiceClient(
                self._required_url(), Token(self._secret()), timeout_seconds=20
            )
        return self._client

    @property
    def account_calls(self) -> AccountCalls:
        """Calls of the manager's API for the pages on which users change their accounts."""
        return AccountCalls(self.client, self.client_address)

    def _required_url(self) -> str:
        if not self.manager_url:
            raise TraitError(
                "BaiAuthenticator.manager_url is empty: set it, or the environment variable "
                "BAI_MANAGER_URL, to the URL of the manager"
            )
        return self.manager_url

    def _secret(self) -> str:
        hint = (
            "set BaiAuthenticator.hub_token_file, or the environment variable "
            "BAI_HUB_TOKEN_FILE, to the file with the Hub's secret"
        )
        if not self.hub_token_file:
            raise TraitError(f"BaiAuthenticator.hub_token_file is empty: {hint}")
        try:
            secret = Path(self.hub_token_file).read_text().strip()
        except OSError as error:
            raise TraitError(f"{self.hub_token_file}: {error.strerror}; {hint}") from error
        if not secret:
            raise TraitError(f"{self.hub_token_file} is empty; {hint}")
        return secret

    def get_handlers(self, app: Any) -> list[tuple[str, type[BaseHandler]]]:
        # Validate the settings at start: otherwise, an invalid setting would fail only the first
        # sign-in.
        _ = self.client
        self._trusted_proxies()
        self.self_service.require_valid(app)
        self._require_safe_links()
        browser_sign_ins.install()
        found = [*handlers.HANDLERS, *hub_pages.HANDLERS]
        if self.self_service.password_reset:
            found += password_resets.HANDLERS
        if self.self_service.sign_up:
            found += sign_ups.HANDLERS
        if self.openid_clients:
            found += openid_handlers.HANDLERS
        if self.signed_token_sites_by_issuer:
            scrub_signed_tokens()
            found += signed_tokens.HANDLERS
        if self.self_service.account_deletion:
            found += account_deletion.HANDLERS
        if isinstance(app, JupyterHub) and _is_event_loop_running():
            self._report_settings(app)
        return found

    def _report_settings(self, app: JupyterHub) -> None:
        settings = settings_report.hub_settings(app, [self, self.self_service])
        # The reference keeps the task alive.
        self._report = asyncio.ensure_future(settings_report.report(self.client, settings))

    def _require_safe_links(self) -> None:
        """Raise ``TraitError`` if identities would be linked by unverified addresses.

        An attacker could sign up with the address of another user. The identity of this user would
        then be linked to an account with a password that this user does not know.
        """
        service = self.self_service
        if not service.sign_up or service.sign_up_verifies_email:
            return
        of_sites = (site.provider for site in self.signed_token_sites_by_issuer.values())
        for provider in (*(client.provider for client in self.openid_clients.values()), *of_sites):
            if provider.links_email:
                raise TraitError(
                    f"BaiAuthenticator: provider or site {provider.name!r}: links_email needs "
                    "SelfService.sign_up_verifies_email"
                )

    async def authenticate(self, handler: BaseHandler, data: Model) -> Model:
        """Verify the password of a user and return the Hub's authentication model.

        After a sign-in at an OpenID provider, ``handler`` has the verified identity, and ``data``
        has no password. Otherwise, the field ``username`` of ``data`` is a user name or an e-mail
        address. If the account has an authenticator app, ``code`` is a one-time code, or
        ``code_proof`` the proof of an earlier one.

        Raises
        ------
        CodeNeeded
            If the password is correct, but the one-time code is missing or wrong.
        RegistrationNeeded
            If the password is correct, but the user must register an authenticator app first.
        SignInFailed
            If the sign-in is denied or the manager is unavailable; the error has the status and
            the message of the page.
        PasswordChangeNeeded
            If the password is correct, but the user must replace it before signing in.
        """
        body = {
            "client_ip": self.client_address(handler.request),
            "code": data.get("code", ""),
            "code_proof": data.get("code_proof", ""),
        }
        external = getattr(handler, EXTERNAL_ATTRIBUTE, None)
        if external is None:
            path = "/auth/verify"
            body |= {"name": data.get("username", ""), "password": data.get("password", "")}
        else:
            path = "/auth/external"
            body |= external
        try:
            account = await self.client.post(path, body)
        except errors.BaiError as error:
            if (reason := error.details.get("reason")) in (CODE_NEEDED, CODE_WRONG):
                raise CodeNeeded(
                    error.details["username"], is_wrong=reason == CODE_WRONG
                ) from error
            if not isinstance(error, (errors.NotSignedIn, errors.InvalidRequest)):
                self.log.error("Sign-in is not possible: %s", error)
            raise sign_in_failed(error, translator_for(handler)) from error
        if account["need_password_change"]:
            raise PasswordChangeNeeded(account["username"], account["code_proof"])
        if account["need_code_registration"]:
            raise RegistrationNeeded(account["username"])
        setattr(handler, browser_sign_ins.LIMIT_ATTRIBUTE, account["max_concurrent_logins"])
        setattr(handler, PASSWORD_ATTRIBUTE, account["password_changed_at"])
        setattr(handler, PROOF_ATTRIBUTE, account["code_proof"])
        return authentication(account, _default_roles(handler))

    async def require_same_password(self, handler: BaseHandler, name: str) -> None:
        """Check that the password is still the one that ``authenticate`` has verified.

        Raises
        ------
        SignInFailed
            If the password has changed since then, or the manager is unavailable.
        """
        try:
            account = await self._read_account(name)
            if account["password_changed_at"] != getattr(handler, PASSWORD_ATTRIBUTE):
                raise errors.SignInRefused("the password was changed during the sign-in")
        except errors.BaiError as error:
            self.log.warning("The sign-in of %s is ended: %s", name, error)
            raise sign_in_failed(error, translator_for(handler)) from error

    def openid_links(self, handler: BaseHandler) -> list[dict[str, str]]:
        """Return title and sign-in URL of each provider, for the sign-in page."""
        target = handler.get_argument("next", "")
        return [
            {
                "title": client.provider.title,
                "url": url_concat(
                    url_path_join(handler.hub.base_url, "openid", name, "start"),
                    {"next": target} if target else {},
                ),
            }
            for name, client in self.openid_clients.items()
        ]

    async def refresh_user(self, user: User, handler: BaseHandler | None = None) -> bool | Model:
        """Read the account again, and return the new authentication model if it has changed.

        Return True if nothing has changed or ``handler`` is None. Return False to sign out a
        deleted or inactive user. Also return True while the manager is unavailable: users stay
        signed in, but cannot start sessions, because each start needs the manager.
        """
        if not is_username(user.name):
            return False
        try:
            account = await self._read_account(user.name)
        except errors.NotFound:
            self.log.warning("The account of %s no longer exists", user.name)
            return False
        except errors.BaiError as error:
            self.log.warning(
                "%s stays signed in, because the account cannot be read: %s", user.name, error
            )
            return True
        if not account["is_active"]:
            self.log.warning("The account of %s is inactive", user.name)
            return False
        if handler is None or is_up_to_date(user, account):
            return True
        return authentication(account, _default_roles(handler))

    async def _read_account(self, name: str) -> Model:
        """Return the account of a user; concurrent callers for one user share a request."""
        if self._accounts is None:
            self._accounts = FreshSingleFlight()
        path = f"/auth/accounts/{quote(name, safe='')}"
        return await self._accounts(name, lambda: self.client.get(path))

    def client_address(self, request: HTTPServerRequest) -> str:
        """Return the client address of a request; use headers of trusted proxies only."""
        # Do not use ``request.remote_ip``: the Hub reads it from X-Real-Ip, which clients can
        # forge.
        context = getattr(request.connection, "context", None)
        address = getattr(context, "address", None)
        # A Unix socket has no address; only processes of this machine can connect to it.
        peer = str(address[0]) if isinstance(address, tuple) and address else "127.0.0.1"
        forwarded = request.headers.get("X-Forwarded-For", "")
        return self._trusted_proxies().client_address(peer, forwarded)

    def _trusted_proxies(self) -> TrustedProxies:
        if self._proxies is None:
            try:
                self._proxies = TrustedProxies.parse(self.trusted_proxies)
            except ValueError as error:
                raise TraitError(
                    f"BaiAuthenticator.trusted_proxies: {error}; use addresses, networks or 'own' "
                    "(every address of this machine)"
                ) from error
        return self._proxies


def _default_roles(handler: BaseHandler) -> list[Model]:
    roles = handler.db.query(orm.Role).filter(orm.Role.name == USER_ROLE)
    return [
        {"name": role.name, "description": role.description, "scopes": list(role.scopes)}
        for role in roles
    ]


def _is_event_loop_running() -> bool:
    """Return True in the Hub, and False in a program that only lists the routes."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
