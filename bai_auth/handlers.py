"""The login page and the page for changing a password."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any
from urllib.parse import urlencode

from jupyterhub.handlers import BaseHandler
from jupyterhub.handlers.login import LoginHandler as HubLoginHandler
from jupyterhub.utils import url_path_join
from tornado import web
from tornado.httputil import url_concat
from tornado.ioloop import IOLoop

from bai_services.core import errors
from bai_services.i18n import catalogue

from . import browser_sign_ins
from .failures import (
    PasswordChangeNeeded,
    TooManySignIns,
    password_text,
    rule_text,
    sign_in_failed,
)
from .pending_sign_ins import LIFETIME_SECONDS, Credentials, PendingSignIns

YEAR_SECONDS = 365 * 24 * 3600
# Cookie that identifies the browser that must confirm a sign-in; see ``PendingKeys.browser``.
PENDING_COOKIE = "bai_pending"
# Values of ``?notice=``, with which other pages lead to the sign-in page.
NOTICES = frozenset({"password_reset", "signed_up", "account_deleted"})


class Page(BaseHandler):
    """A page whose template gets ``translate`` and the links of the language menu."""

    def render_template(self, name: str, sync: bool = False, **ns: Any) -> Any:
        translate = catalogue.translator_for(self)
        ns.setdefault("translate", translate)
        ns.setdefault("languages", self._language_links(translate.language))
        return super().render_template(name, sync=sync, **ns)

    async def login_user(self, data: dict[str, Any] | None = None) -> Any:
        """Sign a user in, unless the password is changed meanwhile.

        A change of the password ends only the sign-ins that exist then, so check after the sign-in.

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


class LoginHandler(Page, HubLoginHandler):
    """The Hub's login with bai-hub's page.

    It asks for a new password if the account requires one, and for a confirmation if the sign-in
    would end another sign-in of the user.
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
        if key := self.get_body_argument("pending", ""):
            self._restore_credentials(key)
        try:
            await super().post()
        except PasswordChangeNeeded as needed:
            self.finish(await self.render_change_form(needed.username, must_change=True))
        except TooManySignIns as reached:
            self.set_status(HTTPStatus.CONFLICT)
            self.finish(await self._render_confirmation(reached))

    def set_login_cookie(self, user: Any) -> None:
        """Create the sign-in, unless it would end another one and is not confirmed.

        Check and creation are in one function without ``await``: of two sign-ins at the same time,
        the second finds the first.

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

    def _restore_credentials(self, key: str) -> None:
        """Replace the form's fields by those of the sign-in that the user has confirmed."""
        browser = self.get_cookie(PENDING_COOKIE, "") or ""
        credentials = self._pending_sign_ins.take(key, browser)
        if credentials is None:
            text = catalogue.translator_for(self)("common.form_expired")
            raise web.HTTPError(HTTPStatus.FORBIDDEN, text)
        self._is_confirmed = True
        self.clear_cookie(PENDING_COOKIE, path=self._login_url)
        fields = {"username": credentials.username, "password": credentials.password}
        self.request.body_arguments = {name: [text.encode()] for name, text in fields.items()}
        self.request.arguments |= self.request.body_arguments

    async def _render_confirmation(self, reached: TooManySignIns) -> str:
        name = self.get_body_argument("username", "")
        password = self.get_body_argument("password", "", strip=False)
        login_url = self._login_url
        target = self.get_argument("next", "")
        pending = self._pending_sign_ins.add(reached.username, Credentials(name, password))
        self.set_cookie(
            PENDING_COOKIE,
            pending.browser,
            path=login_url,
            max_age=int(LIFETIME_SECONDS),
            samesite="Strict",
            httponly=True,
            secure=self.request.protocol == "https",
        )
        page = self.render_template(
            "sign-in-limit.html",
            action=url_concat(login_url, {"next": target}),
            cancel=url_concat(login_url, {"next": target, "username": name}),
            sign_ins=browser_sign_ins.sign_ins_of(self.db, reached.username),
            limit=reached.limit,
            pending=pending.key,
            xsrf=self.xsrf_token.decode("ascii"),
        )
        return str(await page)

    @property
    def _login_url(self) -> str:
        return str(url_path_join(self.hub.base_url, "login"))

    @property
    def _pending_sign_ins(self) -> PendingSignIns:
        pending: PendingSignIns | None = self.settings.get("bai_pending")
        if pending is None:
            pending = PendingSignIns(IOLoop.current().call_later)
            self.settings["bai_pending"] = pending
        return pending

    def check_xsrf_cookie(self) -> None:
        try:
            super().check_xsrf_cookie()
        except web.HTTPError as error:
            text = catalogue.translator_for(self)("common.form_expired")
            raise web.HTTPError(error.status_code, text) from error


class ChangePasswordHandler(Page):
    """Changes the password of a signed-in user, or of a user who must change it before signing in.

    The old password must always be entered, because it is not stored between two pages.
    """

    @web.authenticated
    async def get(self) -> None:
        self.remember_language()
        self.finish(await self.render_change_form(self.current_user.name))

    async def post(self) -> None:
        user = self.current_user
        # Signed-in users can only change their own password; ignore the form's user name.
        name = user.name if user else self.get_body_argument("username", "")
        must_change = user is None
        old = self.get_body_argument("old_password", "", strip=False)
        new = self.get_body_argument("new_password", "", strip=False)
        problem = self._form_problem(old, new)
        if problem is None:
            problem = await self._change(name, old, new)
        if problem is not None:
            status, field, text = problem
            self.set_status(status)
            page = self.render_change_form(
                name, must_change=must_change, error=text, error_field=field
            )
            self.finish(await page)
        elif user is None and await self.login_user({"username": name, "password": new}):
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

    async def _change(self, name: str, old: str, new: str) -> tuple[HTTPStatus, str, str] | None:
        """Change the password through the manager.

        Return status, field and message of a problem, if any.
        """
        try:
            await self.authenticator.change_password(self, name, old, new)
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
