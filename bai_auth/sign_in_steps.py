"""Pages between the first factor of a sign-in (password or OpenID provider) and its end.

The pages ask for a one-time code, for the registration of an authenticator app, or for a
confirmation that another sign-in may end. Between these pages, the Hub keeps a typed password in
memory; see `pending_sign_ins`.
"""

from __future__ import annotations

from dataclasses import replace
from http import HTTPStatus
from typing import Any

from jupyterhub.handlers import BaseHandler
from jupyterhub.utils import url_path_join
from tornado.httputil import url_concat
from tornado.ioloop import IOLoop

from bai_services.core import errors
from bai_services.core.accounts.one_time_codes import grouped
from bai_services.i18n import catalogue

from . import browser_sign_ins
from .failures import CodeNeeded, RegistrationNeeded, TooManySignIns, sign_in_failed
from .pending_sign_ins import LIFETIME_SECONDS, Credentials, PendingSignIns

# Cookie that identifies the browser that must continue a sign-in; see ``PendingKeys.browser``.
PENDING_COOKIE = "bai_pending"
# Attribute of the login handler in which the authenticator stores the proof of a correct code.
PROOF_ATTRIBUTE = "bai_code_proof"
# Attribute of the login handler with the verified identity at an OpenID provider. It is never read
# from a form.
EXTERNAL_ATTRIBUTE = "bai_external"
# Lifetimes of a sign-in that waits for a code, and of one that waits for a registration. A
# registration takes longer, because the user has to install an app and store recovery codes.
CODE_SECONDS = 300.0
REGISTRATION_SECONDS = 600.0


class SignInSteps(BaseHandler):
    """A handler that stores an unfinished sign-in and continues it."""

    def take_pending(self) -> Credentials | None:
        """Return the unfinished sign-in that the form continues.

        Return None if the form continues no sign-in, or if the sign-in was already continued, is
        too old, or was started by another browser.
        """
        key = self.get_body_argument("pending", "")
        if not key:
            return None
        browser = self.get_cookie(PENDING_COOKIE, "") or ""
        return self._pending_sign_ins.take(key, browser)

    def keep_pending(
        self, account: str, credentials: Credentials, seconds: float = LIFETIME_SECONDS
    ) -> str:
        """Store an unfinished sign-in of this browser; return the key for the form."""
        pending = self._pending_sign_ins.add(account, credentials, seconds)
        self.set_cookie(
            PENDING_COOKIE,
            pending.browser,
            path=self.hub.base_url,
            max_age=int(seconds),
            samesite="Strict",
            httponly=True,
            secure=self.request.protocol == "https",
        )
        return pending.key

    def forget_pending(self) -> None:
        self.clear_cookie(PENDING_COOKIE, path=self.hub.base_url)

    async def finish_with_confirmation(
        self, reached: TooManySignIns, credentials: Credentials
    ) -> None:
        """Respond with the page that asks whether the oldest sign-in may end."""
        self.set_status(HTTPStatus.CONFLICT)
        await self._finish_with(
            "sign-in-limit.html",
            credentials,
            pending=self.keep_pending(reached.username, credentials),
            sign_ins=browser_sign_ins.sign_ins_of(self.db, reached.username),
            limit=reached.limit,
        )

    async def finish_with_code_form(
        self, needed: CodeNeeded, credentials: Credentials, action: str = "login"
    ) -> None:
        """Respond with the page that asks for a one-time code.

        ``action`` is the page to which the form is sent.
        """
        translate = catalogue.translator_for(self)
        if needed.is_wrong:
            self.set_status(HTTPStatus.FORBIDDEN)
        await self._finish_with(
            "one-time-code.html",
            credentials,
            action=action,
            pending=self.keep_pending(needed.username, credentials, CODE_SECONDS),
            error=translate("code.wrong") if needed.is_wrong else "",
        )

    async def finish_with_registration(
        self, needed: RegistrationNeeded, credentials: Credentials
    ) -> None:
        """Respond with the page on which the user registers an authenticator app.

        Raises
        ------
        SignInFailed
            If the manager is unavailable.
        """
        translate = catalogue.translator_for(self)
        registration = credentials.registration
        if registration is None:
            try:
                registration = await self.authenticator.account_calls.begin_registration(
                    needed.username
                )
            except errors.BaiError as error:
                raise sign_in_failed(error, translate) from error
        kept = replace(credentials, registration={**registration, "username": needed.username})
        if needed.is_wrong:
            self.set_status(HTTPStatus.FORBIDDEN)
        await self._finish_with(
            "register-authenticator.html",
            credentials,
            pending=self.keep_pending(needed.username, kept, REGISTRATION_SECONDS),
            qr_svg=registration["qr_svg"],
            secret=grouped(registration["secret"]).replace("-", " "),
            error=translate("code.wrong") if needed.is_wrong else "",
        )

    async def finish_registration(self, credentials: Credentials) -> None:
        """Confirm the registration with the code of the form; respond with the recovery codes.

        Raises
        ------
        SignInFailed
            If the registration is no longer possible, or the manager is unavailable.
        """
        registration = credentials.registration
        assert registration is not None
        username = str(registration["username"])
        try:
            done = await self.authenticator.account_calls.confirm_registration(
                self, username, registration["registration"], self.get_body_argument("code", "")
            )
        except errors.InvalidRequest as error:
            if error.details.get("field") != "code":
                raise sign_in_failed(error, catalogue.translator_for(self)) from error
            needed = RegistrationNeeded(username, is_wrong=True)
            await self.finish_with_registration(needed, credentials)
            return
        except errors.BaiError as error:
            raise sign_in_failed(error, catalogue.translator_for(self)) from error
        kept = replace(credentials, registration=None, code_proof=done["proof"])
        await self._finish_with(
            "recovery-codes.html",
            credentials,
            pending=self.keep_pending(username, kept, REGISTRATION_SECONDS),
            recovery_codes=done["recovery_codes"],
        )

    async def _finish_with(
        self, template: str, credentials: Credentials, action: str = "login", **ns: Any
    ) -> None:
        target = self.get_argument("next", "")
        login_url = url_path_join(self.hub.base_url, "login")
        # The page contains secrets, so no cache may store it.
        self.set_header("Cache-Control", "no-store")
        page = self.render_template(
            template,
            action=url_concat(url_path_join(self.hub.base_url, action), {"next": target}),
            cancel=url_concat(login_url, {"next": target, "username": credentials.username}),
            xsrf=self.xsrf_token.decode("ascii"),
            **ns,
        )
        self.finish(str(await page))

    @property
    def _pending_sign_ins(self) -> PendingSignIns:
        pending: PendingSignIns | None = self.settings.get("bai_pending")
        if pending is None:
            pending = PendingSignIns(IOLoop.current().call_later)
            self.settings["bai_pending"] = pending
        return pending
