"""`/sessions/{key}/app-shares`, `/app-shares`, `/app-visits`, and the link of a shared app."""

from __future__ import annotations

from datetime import datetime
from http import HTTPStatus
from typing import Annotated

from pydantic import Field, StringConstraints
from tornado.web import RequestHandler

from bai_services.core import errors
from bai_services.core.accounts.roles import Caller
from bai_services.core.apps import records
from bai_services.core.apps.shares import MAX_ADDRESSES, Audience
from bai_services.core.listing import ListQuery, Page

from ..base import APIHandler, manager_of, operation
from ..fields import Body, NameText, ResponseModel
from ..sessions.page import PageHandler

_TAG = "app shares"
# A duration of more than ten years is probably an error, for example a number of milliseconds.
MAX_SHARE_SECONDS = 10 * 366 * 24 * 3600
TokenText = Annotated[str, StringConstraints(max_length=512, pattern=r"^[A-Za-z0-9_.-]*$")]


class NewAppShare(Body):
    """Exactly one of ``user``, ``project`` and ``public`` must be given; ``project`` must be the
    session's project. ``expires_in`` is in seconds; default: one week, or the maximum of the user
    policy if that is shorter.
    """

    app: NameText
    user: NameText | None = None
    project: NameText | None = None
    public: bool = False
    allowed_addresses: list[NameText] = Field(default=[], max_length=MAX_ADDRESSES)
    expires_in: int | None = Field(default=None, ge=1, le=MAX_SHARE_SECONDS)


class AppShare(ResponseModel):
    id: str
    session_id: str
    session: str
    owner: str
    app: str
    audience: Audience
    user: str | None
    project: str | None
    allowed_addresses: list[str] | None
    expires_at: datetime
    created_at: datetime
    created_by: str
    url: str


class VisitCredentials(Body):
    """Credentials that a visitor presented to a session.

    ``client_ip``: the visitor's address, which the share must allow.
    ``entry``: single-use token from the link of the share. ``visit``: token in the cookie of a
    visitor who was admitted before.
    """

    session_id: NameText
    app: NameText
    client_ip: NameText
    entry: TokenText = ""
    visit: TokenText = ""


class AdmittedVisit(ResponseModel):
    """``visit``: token for the visitor's cookie, valid until ``expires_at``."""

    visit: str
    expires_at: datetime
    audience: Audience


class AppSharesHandler(APIHandler):
    @operation(
        "List the shares of a session's apps",
        tag=_TAG,
        returns=AppShare,
        is_list=True,
        is_for_sessions=True,
    )
    async def get(self, key: str, query: ListQuery) -> Page[records.ListedShare]:
        return await self.manager.app_shares.page_of_session(self.caller, key, query)

    @operation(
        "Share an app of a session",
        tag=_TAG,
        body=NewAppShare,
        returns=AppShare,
        status=HTTPStatus.CREATED,
    )
    async def post(self, key: str, body: NewAppShare) -> records.ListedShare:
        return await self.manager.app_shares.create(self.caller, key, body.given_fields())


class AppShareHandler(APIHandler):
    @operation("Revoke an app share", tag=_TAG, status=HTTPStatus.NO_CONTENT)
    async def delete(self, key: str, share: str) -> None:
        await self.manager.app_shares.revoke(self.caller, key, share)


class OwnAppSharesHandler(APIHandler):
    @operation(
        "List the app shares of the caller's sessions, and those that admit the caller",
        tag=_TAG,
        returns=AppShare,
        is_list=True,
    )
    async def get(self, query: ListQuery) -> Page[records.ListedShare]:
        return await self.manager.app_shares.page_of_caller(self.caller, query)


class AppVisitsHandler(APIHandler):
    @operation(
        "Authorize a visitor of a shared app (called by the session's server)",
        tag=_TAG,
        body=VisitCredentials,
        returns=AdmittedVisit,
        is_for_sessions=True,
    )
    async def post(self, body: VisitCredentials) -> records.AdmittedVisit:
        return await self.manager.app_shares.authorize_visit(
            self.caller,
            {name: str(value) for name, value in body.given_fields().items()},
            self.settings["sign_in"].is_valid_token,
        )


class SharedAppPageHandler(PageHandler):
    """The link of an app share: authenticates the visitor and redirects to the app.

    Public shares need no sign-in.
    """

    async def get(self, share_id: str) -> None:
        caller: Caller | None = None
        shares = manager_of(self).app_shares
        try:
            if not await shares.is_public(share_id):
                caller = await self.caller()
                if caller is None:
                    return
            sign_in = self.settings["sign_in"]
            token = "" if caller is None else sign_in.browser_token(self)
            address = await shares.create_entry_url(
                share_id, caller, sign_in.client_ip(self.request), token
            )
        except errors.BaiError as error:
            self.render_error(error, caller)
        else:
            self.redirect(address, status=303)


_OF_SESSION = r"/sessions/(?P<key>[^/]+)/app-shares"

ROUTES = [
    (_OF_SESSION, AppSharesHandler),
    (_OF_SESSION + r"/(?P<share>[^/]+)", AppShareHandler),
    ("/app-shares", OwnAppSharesHandler),
    ("/app-visits", AppVisitsHandler),
]
PAGES: list[tuple[str, type[RequestHandler]]] = [
    (r"/shared/(?P<share_id>[0-9a-f-]{36})", SharedAppPageHandler)
]
