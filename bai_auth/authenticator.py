"""JupyterHub authenticator for the accounts of bai-hub's manager."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from urllib.parse import quote

from jupyterhub import orm
from jupyterhub.auth import Authenticator
from jupyterhub.handlers import BaseHandler
from jupyterhub.user import User
from tornado.httputil import HTTPServerRequest
from traitlets import Set, TraitError, Unicode, default

from bai_services.client import Token
from bai_services.core import errors
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
    sign_ups,
)
from .account import USER_ROLE, USERNAME_PATTERN, authentication, is_up_to_date, is_username
from .failures import PasswordChangeNeeded, sign_in_failed
from .self_service import SelfService

Model = dict[str, Any]

# Attribute of the handler with the time at which the verified password was set.
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
        Path of the file with the secret by which the Hub authenticates to the manager.

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

    _self_service: SelfService | None = None
    _client: ServiceClient | None = None
    _proxies: TrustedProxies | None = None
    _accounts: FreshSingleFlight[str, Model] | None = None

    @default("manager_url")
    def _manager_url_default(self) -> str:
        return os.environ.get("BAI_MANAGER_URL", "")

    @default("hub_token_file")
    def _hub_token_file_default(self) -> str:
        return os.environ.get("BAI_HUB_TOKEN_FILE", "")

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
        # With the Hub's default (False), API requests with a token are accepted although the user
        # has been deactivated.
        return True

    @default("username_pattern")
    def _username_pattern_default(self) -> str:
        return USERNAME_PATTERN

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
        # Validate the settings at start, so that a wrong one stops the Hub from starting instead
        # of failing the first sign-in.
        _ = self.client
        self._trusted_proxies()
        self.self_service.require_valid(app)
        browser_sign_ins.install()
        found = [*handlers.HANDLERS, *hub_pages.HANDLERS]
        if self.self_service.password_reset:
            found += password_resets.HANDLERS
        if self.self_service.sign_up:
            found += sign_ups.HANDLERS
        if self.self_service.account_deletion:
            found += account_deletion.HANDLERS
        return found

    async def authenticate(self, handler: BaseHandler, data: Model) -> Model:
        """Verify the password of a user and return the Hub's authentication model.

        The field ``username`` of ``data`` is a user name or an e-mail address.

        Raises
        ------
        SignInFailed
            If the sign-in is denied or the manager is unavailable; the error has the status and
            the message of the page.
        PasswordChangeNeeded
            If the password is correct, but the user must replace it before signing in.
        """
        body = {
            "name": data.get("username", ""),
            "password": data.get("password", ""),
            "client_ip": self.client_address(handler.request),
        }
        try:
            account = await self.client.post("/auth/verify", body)
        except errors.BaiError as error:
            if not isinstance(error, (errors.NotSignedIn, errors.InvalidRequest)):
                self.log.error("Sign-in is not possible: %s", error)
            raise sign_in_failed(error, translator_for(handler)) from error
        if account["need_password_change"]:
            raise PasswordChangeNeeded(account["username"])
        setattr(handler, browser_sign_ins.LIMIT_ATTRIBUTE, account["max_concurrent_logins"])
        setattr(handler, PASSWORD_ATTRIBUTE, account["password_changed_at"])
        return authentication(account, _default_roles(handler))

    async def require_same_password(self, handler: BaseHandler, name: str) -> None:
        """Check that the password is still the one that ``authenticate`` has verified.

        Raises
        ------
        SignInFailed
            If the password was changed meanwhile, or the manager is unavailable.
        """
        try:
            account = await self._read_account(name)
            if account["password_changed_at"] != getattr(handler, PASSWORD_ATTRIBUTE):
                raise errors.SignInRefused("the password was changed during the sign-in")
        except errors.BaiError as error:
            self.log.warning("The sign-in of %s is ended: %s", name, error)
            raise sign_in_failed(error, translator_for(handler)) from error

    async def change_password(self, handler: BaseHandler, name: str, old: str, new: str) -> None:
        """Set a new password; the old password authenticates the request.

        Raises
        ------
        BaiError
            If the old password is wrong, the account is blocked, the new password breaks a rule,
            or the manager is unavailable.
        """
        await self.client.post(
            "/auth/password",
            {
                "name": name,
                "old_password": old,
                "new_password": new,
                "client_ip": self.client_address(handler.request),
                # Changing the password ends all other sign-ins; this browser stays signed in.
                "keep_session": handler.get_session_cookie() if handler.current_user else "",
            },
        )

    async def refresh_user(self, user: User, handler: BaseHandler | None = None) -> bool | Model:
        """Read the account again, and return the new authentication model if it has changed.

        Return True if nothing has changed or ``handler`` is None, and False to sign out a deleted
        or inactive user. Return True also while the manager is unavailable: users stay signed in,
        but cannot start sessions, because each start needs the manager.
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
        # Not request.remote_ip: the Hub takes it from X-Real-Ip, which clients can forge.
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
