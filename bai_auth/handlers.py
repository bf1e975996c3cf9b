"""The login page and the page for changing a password."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from http import HTTPStatus
from typing import Any
from urllib.parse import urlencode

from jupyterhub.handlers import BaseHandler
from jupyterhub.handlers.login import LoginHandler as HubLoginHandler
from jupyterhub.utils import url_path_join
from tornado import web
from tornado.httputil import url_concat

from bai_services.core import errors
from bai_services.i18n import catalogue

from . import browser_sign_ins
from .failures import (
    CodeNeeded,
    PasswordChangeNeeded,
    RegistrationNeeded,
    SignInFailed,
    TooManySignIns,
    password_text,
    rule_text,
    sign_in_failed,
)
from .pending_sign_ins import Credentials
from .sign_in_steps import CODE_SECONDS, EXTERNAL_ATTRIBUTE, PROOF_ATTRIBUTE, SignInSteps

YEAR_SECONDS = 365 * 24 * 3600
# Values of ``?notice=`` in links from other pages to the sign-in page.
NOTICES = frozenset({"password_reset", "signed_up", "account_deleted"})


class Page(BaseHandler):
    """A page; its template gets ``translate`` and the links of the language menu."""

    def render_template(self, name: str, sync: bool = False, **ns: Any) -> Any:
        translate = catalogue.translator_for(self)
        ns.setdefault("translate", translate)
        ns.setdefault("languages", self._language_links(translate.language))
        ns.setdefault("openid_providers", self.authenticator.openid_links(self))
        return super().render_template(name, sync=sync, **ns)

    async def login_user(self, data: dict[str, Any] | None = None) -> Any:
        """Sign a user in; fail if the password changes during the sign-in.

        A password change ends only existing sign-ins, so check again after the sign-in.

        Raises
        ------
        SignInFailed
            If the password was changed, or the manager is unavailable.
        """
        user = await super().login_user(data)
        if user is not None:
            try:
                await self.authenticator.require_same_password(self, user.name)
            except BaseException:
                browser_sign_ins.end_sign_in(self)
                raise
        return user

    def remember_language(self) -> None:
        """Store the language of ``?lang=`` in a cookie of this browser."""
        chosen = self.get_query_argument(catalogue.ARGUMENT, "")
        if chosen in catalogue.LANGUAGES:
            self.set_cookie(
                catalogue.COOKIE,
                chosen,
                path=self.base_url,
                max_age=YEAR_SECONDS,
                samesite="Lax",
                httponly=True,
                secure=self.request.protocol == "https",
            )

    def _language_links(self, current: str) -> list[dict[str, Any]]:
        """Return one link per language to the current page, with ``next`` and ``username``."""
        parameters = {
            name: self.get_argument(name)
            for name in ("next", "username")
            if self.get_argument(name, "")
        }
        return [
            {
                "code": code,
                "name": name,
                "is_current": code == current,
                "url": "?" + urlencode({**parameters, catalogue.ARGUMENT: code}),
            }
            for code, name in catalogue.LANGUAGES.items()
        ]

    async def render_change_form(self, username: str, **ns: Any) -> str:
        """Return the page with the form for a new password."""
        action = url_path_join(self.hub.base_url, "change-password")
        target = self.get_argument("next", "")
        page = self.render_template(
            "change-password.html",
            username=username,
            rule=rule_text(catalogue.translator_for(self)),
            action=url_concat(action, {"next": target}),
            cancel=url_concat(
                url_path_join(self.hub.base_url, "login"), {"next": target, "username": username}
            ),
            xsrf=self.xsrf_token.decode("ascii"),
            offers_deletion=self.authenticator.self_service.account_deletion,
            **ns,
        )
        return str(await page)


class LoginHandler(SignInSteps, Page, HubLoginHandler):
    """The Hub's login with bai-hub's page.

    It asks for a one-time code and a new password if the account requires them, and for a
    confirmation if the sign-in would end another sign-in of the user.
    """

    _is_confirmed = False
    _offers: frozenset[str] = frozenset()

    async def prepare(self) -> None:
        await super().prepare()
        auth = self.authenticator
        self._offers = await auth.self_service.offers(auth.client)

    def render_template(self, name: str, sync: bool = False, **ns: Any) -> Any:
        ns.setdefault("offers", self._offers)
        notice = self.get_query_argument("notice", "")
        ns.setdefault("notice", notice if notice in NOTICES else "")
        return super().render_template(name, sync=sync, **ns)

    async def get(self) -> None:
        self.remember_language()
        await super().get()

    async def post(self) -> None:
        if self.get_body_argument("pending", ""):
            taken = self._take_continued()
            if taken.registration is not None:
                await self.finish_registration(taken)
                return
            self._restore_credentials(taken)
        await self.continue_sign_in(super().post, self._credentials())

    async def continue_sign_in(
        self, finish: Callable[[], Awaitable[None]], credentials: Credentials
    ) -> None:
        """Finish the sign-in, or respond with the page of its next step."""
        try:
            await finish()
        except PasswordChangeNeeded as needed:
            pending = ""
            if needed.code_proof:
                kept = replace(credentials, code_proof=needed.code_proof)
                pending = self.keep_pending(needed.username, kept, CODE_SECONDS)
            page = self.render_change_form(needed.username, must_change=True, pending=pending)
            self.finish(await page)
        except CodeNeeded as needed:
            await self.finish_with_code_form(needed, credentials)
        except RegistrationNeeded as needed:
            await self.finish_with_registration(needed, credentials)
        except TooManySignIns as reached:
            proof = getattr(self, PROOF_ATTRIBUTE, "")
            kept = replace(credentials, code_proof=proof, is_confirmed=True)
            await self.finish_with_confirmation(reached, kept)

    async def render_failure(self, failed: SignInFailed) -> None:
        """Respond with the sign-in page and the reason of a failed sign-in."""
        self.set_status(failed.status_code)
        for name, value in failed.headers.items():
            self.set_header(name, value)
        text = str(failed.log_message).replace("%%", "%")
        # Link to the login page, because the current URL may be a callback that cannot be reloaded.
        login_url = url_path_join(self.hub.base_url, "login")
        links = self._language_links(catalogue.translator_for(self).language)
        languages = [{**link, "url": login_url + link["url"]} for link in links]
        page = self._render(login_error=text, status_code=failed.status_code, languages=languages)
        self.finish(await page)

    def set_login_cookie(self, user: Any) -> None:
        """Create the sign-in, unless it would end another sign-in and is not confirmed.

        Check and creation are in one function without ``await``: of two concurrent sign-ins, the
        second finds the first.

        Raises
        ------
        TooManySignIns
            If the account's limit is reached and the user has not confirmed the sign-in.
        """
        limit: int | None = getattr(self, browser_sign_ins.LIMIT_ATTRIBUTE, None)
        if limit is not None and not self._is_confirmed:
            sign_ins = browser_sign_ins.sign_ins_of(self.db, user.name)
            if len(sign_ins) >= limit:
                raise TooManySignIns(user.name, limit)
        super().set_login_cookie(user)

    def _take_continued(self) -> Credentials:
        """Return the unfinished sign-in that the form continues.

        Raises
        ------
        HTTPError
            If it was continued already, is too old, or was started by another browser.
        """
        taken = self.take_pending()
        if taken is None:
            text = catalogue.translator_for(self)("common.form_expired")
            raise web.HTTPError(HTTPStatus.FORBIDDEN, text)
        self.forget_pending()
        return taken

    def _restore_credentials(self, taken: Credentials) -> None:
        """Replace the form's fields by the fields of the continued sign-in, except the code."""
        self._is_confirmed = taken.is_confirmed
        if taken.external is not None:
            setattr(self, EXTERNAL_ATTRIBUTE, taken.external)
        fields = {
            "username": taken.username,
            "password": taken.password,
            "code": self.get_body_argument("recovery_code", "")
            or self.get_body_argument("code", ""),
            "code_proof": taken.code_proof,
        }
        self.request.body_arguments = {name: [text.encode()] for name, text in fields.items()}
        self.request.arguments |= self.request.body_arguments

    def _credentials(self) -> Credentials:
        """Return the name and password of the form, for the next step of the sign-in."""
        return Credentials(
            self.get_body_argument("username", ""),
            self.get_body_argument("password", "", strip=False),
            is_confirmed=self._is_confirmed,
            external=getattr(self, EXTERNAL_ATTRIBUTE, None),
        )

    def check_xsrf_cookie(self) -> None:
        try:
            super().check_xsrf_cookie()
        except web.HTTPError as error:
            text = catalogue.translator_for(self)("common.form_expired")
            raise web.HTTPError(error.status_code, text) from error


class ChangePasswordHandler(SignInSteps, Page):
    """Changes the password of a signed-in user, or of a user who must change it before signing in.

    The old password must always be entered. If the account has an authenticator app, the change
    waits for a one-time code, unless the user has sent one before this page.
    """

    @web.authenticated
    async def get(self) -> None:
        self.remember_language()
        self.finish(await self.render_change_form(self.current_user.name))

    async def post(self) -> None:
        taken = self.take_pending()
        if taken is not None and taken.new_password:
            # The user has just submitted the page for the one-time code.
            old, new = taken.password, taken.new_password
        else:
            old = self.get_body_argument("old_password", "", strip=False)
            new = self.get_body_argument("new_password", "", strip=False)
        name = self._user_name(taken)
        proof = "" if taken is None else taken.code_proof
        try:
            await self._change_and_sign_in(name, old, new, proof, taken)
        except CodeNeeded as needed:
            kept = Credentials(name, old, new_password=new)
            await self.finish_with_code_form(needed, kept, "change-password")

    def _user_name(self, taken: Credentials | None) -> str:
        # Signed-in users can only change their own password; ignore the form's user name.
        if self.current_user:
            return str(self.current_user.name)
        is_continued = taken is not None and taken.new_password
        return taken.username if taken and is_continued else self.get_body_argument("username", "")

    async def _change_and_sign_in(
        self, name: str, old: str, new: str, proof: str, taken: Credentials | None
    ) -> None:
        user = self.current_user
        is_continued = taken is not None and taken.new_password != ""
        problem = None if is_continued else self._form_problem(old, new)
        if problem is None:
            problem = await self._change(name, old, new, proof)
        if problem is not None:
            status, field, text = problem
            self.set_status(status)
            pending = ""
            if proof:
                pending = self.keep_pending(
                    name, Credentials(name, "", code_proof=proof), CODE_SECONDS
                )
            page = self.render_change_form(
                name, must_change=user is None, error=text, error_field=field, pending=pending
            )
            self.finish(await page)
        elif user is None:
            await self._sign_in(name, new, proof)
        else:
            self.finish(await self.render_change_form(name, is_done=True))

    async def _sign_in(self, name: str, password: str, proof: str) -> None:
        """Sign in with the new password; respond with the next step if there is one."""
        kept = Credentials(name, password)
        data = {"username": name, "password": password, "code_proof": proof}
        try:
            signed_in = await self.login_user(data)
        except CodeNeeded as needed:
            await self.finish_with_code_form(needed, kept)
        except RegistrationNeeded as needed:
            await self.finish_with_registration(needed, kept)
        else:
            if signed_in:
                self.redirect(self.get_next_url(self._jupyterhub_user))
            else:
                self.finish(await self.render_change_form(name, is_done=True))

    def _form_problem(self, old: str, new: str) -> tuple[HTTPStatus, str, str] | None:
        """Validate the form; return status, field and message of a problem, if any."""
        translate = catalogue.translator_for(self)
        if new != self.get_body_argument("repeat_password", "", strip=False):
            return HTTPStatus.BAD_REQUEST, "repeat_password", translate("password.differs")
        if new == old:
            return HTTPStatus.BAD_REQUEST, "new_password", translate("password.same")
        return None

    async def _change(
        self, name: str, old: str, new: str, proof: str
    ) -> tuple[HTTPStatus, str, str] | None:
        """Change the password through the manager.

        Return status, field and message of a problem, if any.
        """
        code = self.get_body_argument("recovery_code", "") or self.get_body_argument("code", "")
        try:
            await self.authenticator.account_calls.change_password(
                self, name, old, new, code=code, code_proof=proof
            )
        except errors.InvalidRequest as error:
            text = password_text(error, catalogue.translator_for(self))
            return HTTPStatus.BAD_REQUEST, "new_password", text
        except errors.NotSignedIn as error:
            text = password_text(error, catalogue.translator_for(self))
            return HTTPStatus.FORBIDDEN, "old_password", text
        except errors.BaiError as error:
            self.log.error("A password was not changed: %s", error)
            translate = catalogue.translator_for(self)
            for name, value in sign_in_failed(error, translate).headers.items():
                self.set_header(name, value)
            return HTTPStatus.SERVICE_UNAVAILABLE, "", password_text(error, translate)
        return None


HANDLERS: list[tuple[str, type[BaseHandler]]] = [
    ("/login", LoginHandler),
    ("/change-password", ChangePasswordHandler),
]
