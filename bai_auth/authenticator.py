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
from bai_services.client_address import TrustedProxies
from bai_services.core import errors
from bai_services.i18n.catalogue import translator_for
from bai_services.service_client import ServiceClient

from . import browser_sign_ins, handlers, hub_pages
from .account import USER_ROLE, USERNAME_PATTERN, authentication, is_up_to_date, is_username
from .failures import PasswordChangeNeeded, sign_in_failed
from .single_flight import SingleFlight

Model = dict[str, Any]


class BaiAuthenticator(Authenticator):
    """Takes accounts, groups and roles from bai-hub's database, through its manager.

    Users sign in with a user name or an e-mail address. Domains and projects become Hub groups.
    Administrators of a domain get a Hub role that is filtered by the group of their domain.
    """

    manager_url = Unicode(
        help="""
        Address of the manager without ``/api/v1``, reached directly and not through the
        proxy, for example ``http://127.0.0.1:8091/services/bai``.

        Defaults to the environment variable ``BAI_MANAGER_URL``. While nothing answers
        there, sign-in pages say so with status 503, and whoever is signed in stays so.
        """,
    ).tag(config=True)

    hub_token_file = Unicode(
        help="""
        Path of the file with the secret that tells the manager that the Hub is calling.

        Defaults to the environment variable ``BAI_HUB_TOKEN_FILE``. It is read once, at
        start; the manager has to be given the same file.
        """,
    ).tag(config=True)

    trusted_proxies = Set(
        Unicode(),
        default_value={"own"},
        help="""
        Proxies whose ``X-Forwarded-For`` is believed: addresses, networks, and ``own`` for
        every address of this machine.

        A request that reaches the Hub from anywhere else counts as coming from that
        address, whatever its headers say. Lockouts and allowed addresses of accounts go
        by this. Name a proxy in front of the Hub's own proxy too. Empty believes nobody.
        """,
    ).tag(config=True)

    _client: ServiceClient | None = None
    _proxies: TrustedProxies | None = None
    _accounts: SingleFlight[Model] | None = None

    @default("manager_url")
    def _manager_url_default(self) -> str:
        return os.environ.get("BAI_MANAGER_URL", "")

    @default("hub_token_file")
    def _hub_token_file_default(self) -> str:
        return os.environ.get("BAI_HUB_TOKEN_FILE", "")

    # The manager alone decides who may sign in; these settings of the Hub must not restrict it
    # further.
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
        # Tokens of a deactivated user must not outlive the account.
        return True

    @default("username_pattern")
    def _username_pattern_default(self) -> str:
        return USERNAME_PATTERN

    @property
    def client(self) -> ServiceClient:
        """The connection to the manager.

        Raises
        ------
        TraitError
            If ``manager_url`` or ``hub_token_file`` is missing or wrong.
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
                "BAI_MANAGER_URL, to the manager's address"
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
        # Read at start, so that a wrong setting ends the start instead of failing the first
        # sign-in.
        _ = self.client
        self._trusted()
        browser_sign_ins.install()
        return [*handlers.HANDLERS, *hub_pages.HANDLERS]

    async def authenticate(self, handler: BaseHandler, data: Model) -> Model:
        """Check a name or e-mail address with its password.

        Raises
        ------
        SignInFailed
            With the status and the text of the page.
        PasswordChangeNeeded
            When the password is right but must be replaced first.
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
        return authentication(account, _default_roles(handler))

    async def change_password(self, handler: BaseHandler, name: str, old: str, new: str) -> None:
        """Set a new password; the old one authenticates the user.

        Raises
        ------
        BaiError
            The manager's error: wrong password, blocked, password rule broken, unavailable.
        """
        await self.client.post(
            "/auth/password",
            {
                "name": name,
                "old_password": old,
                "new_password": new,
                "client_ip": self.client_address(handler.request),
                # The browser in which the password is changed stays signed in.
                "keep_session": handler.get_session_cookie() if handler.current_user else "",
            },
        )

    async def refresh_user(self, user: User, handler: BaseHandler | None = None) -> bool | Model:
        """Read the account again: False when it was deleted or is inactive.

        While the manager is unavailable all users stay signed in, and the manager refuses what they
        would start.
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
        if self._accounts is None:
            self._accounts = SingleFlight(
                lambda name: self.client.get(f"/auth/accounts/{quote(name, safe='')}")
            )
        return await self._accounts(name)

    def client_address(self, request: HTTPServerRequest) -> str:
        """Return the client address of a request, as far as proxy headers can be trusted."""
        # Not request.remote_ip: the Hub takes it from X-Real-Ip, which clients can forge.
        context = getattr(request.connection, "context", None)
        address = getattr(context, "address", None)
        # A Unix socket has no address; only processes of this machine reach it.
        peer = str(address[0]) if isinstance(address, tuple) and address else "127.0.0.1"
        forwarded = request.headers.get("X-Forwarded-For", "")
        return self._trusted().client_address(peer, forwarded)

    def _trusted(self) -> TrustedProxies:
        if self._proxies is None:
            try:
                self._proxies = TrustedProxies.parse(self.trusted_proxies)
            except ValueError as error:
                raise TraitError(
                    f"BaiAuthenticator.trusted_proxies: {error}; write addresses or networks, and "
                    "own for this machine"
                ) from error
        return self._proxies


def _default_roles(handler: BaseHandler) -> list[Model]:
    found = handler.db.query(orm.Role).filter(orm.Role.name == USER_ROLE)
    return [
        {"name": role.name, "description": role.description, "scopes": list(role.scopes)}
        for role in found
    ]
