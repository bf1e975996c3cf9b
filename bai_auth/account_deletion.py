"""The page on which users delete their own accounts."""

from __future__ import annotations

from http import HTTPStatus

from jupyterhub.handlers import BaseHandler
from tornado import web

from bai_services.core import errors
from bai_services.core.accounts.one_time_codes import CODE_NEEDED, CODE_WRONG
from bai_services.i18n import catalogue

from . import browser_sign_ins
from .failures import password_text
from .forms import FormPage

DELETION_PAGE = "delete-account"


class DeleteAccountHandler(FormPage):
    """Deletes the account of the signed-in user, who must enter the password."""

    @web.authenticated
    async def get(self) -> None:
        self.remember_language()
        await self._show()

    @web.authenticated
    async def post(self) -> None:
        translate = catalogue.translator_for(self)
        if self.field("confirmed") != "yes":
            self.set_status(HTTPStatus.BAD_REQUEST)
            await self._show("confirmed", translate("self_service.deletion_unconfirmed"))
            return
        body = {
            "name": self.current_user.name,
            "password": self.field("password", strip=False),
            "client_ip": self.authenticator.client_address(self.request),
            "code": self.field("recovery_code") or self.field("code"),
        }
        try:
            await self.authenticator.client.post("/auth/account-deletion", body)
        except errors.SignInRefused as error:
            self.set_status(HTTPStatus.FORBIDDEN)
            reason = error.details.get("reason")
            if reason == CODE_NEEDED:
                await self._show("code", translate("code.enter"))
            elif reason == CODE_WRONG:
                await self._show("code", translate("code.wrong"))
            else:
                await self._show("password", password_text(error, translate))
        except errors.Conflict:
            self.set_status(HTTPStatus.CONFLICT)
            await self._show(error=translate("self_service.last_superadmin"))
        except errors.BaiError as error:
            status, text = self.failure(error)
            self.set_status(status)
            await self._show(error=text)
        else:
            browser_sign_ins.end_sign_in(self)
            self.clear_login_cookie()
            self.redirect(self.hub_url("login", notice="account_deleted"), status=303)

    async def _show(self, error_field: str = "", error: str = "") -> None:
        await self.show(
            "delete-account.html",
            action=self.hub_url(DELETION_PAGE),
            cancel=self.hub_url("change-password"),
            error_field=error_field,
            error=error,
        )


HANDLERS: list[tuple[str, type[BaseHandler]]] = [(f"/{DELETION_PAGE}", DeleteAccountHandler)]
