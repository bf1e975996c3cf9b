"""`/me/sign-ins`: the browsers in which the caller is signed in."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from http import HTTPStatus

from bai_services.core.accounts import records

from ..base import APIHandler, operation
from ..fields import ResponseModel


class BrowserSignIn(ResponseModel):
    """``program``: browser and system. ``is_current``: whether this browser sent the request."""

    id: str
    program: str
    address: str
    created_at: datetime
    last_used: datetime | None
    expires_at: datetime | None
    is_current: bool


class BrowserSignInList(ResponseModel):
    items: list[BrowserSignIn]


class EndedSignIns(ResponseModel):
    count: int


class BrowserSignInsHandler(APIHandler):
    @operation("List the browsers in which you are signed in", tag="me", returns=BrowserSignInList)
    async def get(self) -> dict[str, Sequence[records.BrowserSignIn]]:
        session_id = self.settings["sign_in"].browser_session_id(self)
        sign_ins = self.manager.accounts.browser_sign_ins
        return {"items": await sign_ins.list(self.caller, session_id)}

    @operation(
        "Sign out of all browsers except the one that sends the request",
        tag="me",
        returns=EndedSignIns,
    )
    async def delete(self) -> dict[str, int]:
        session_id = self.settings["sign_in"].browser_session_id(self)
        sign_ins = self.manager.accounts.browser_sign_ins
        return {"count": await sign_ins.end_others(self.caller, session_id)}


class BrowserSignInHandler(APIHandler):
    @operation("Sign out of a browser", tag="me", status=HTTPStatus.NO_CONTENT)
    async def delete(self, sign_in: str) -> None:
        await self.manager.accounts.browser_sign_ins.end(self.caller, sign_in)


ROUTES = [
    ("/me/sign-ins", BrowserSignInsHandler),
    (r"/me/sign-ins/(?P<sign_in>[^/]+)", BrowserSignInHandler),
]
