"""Browser sign-ins that can be revoked one by one: each is a row of the Hub's token table.

JupyterHub's own login cookie holds a value that all browsers of a user share and that remains valid
after a logout. This cookie holds a token without any scope instead. Deleting the token ends the
sign-in: by a logout, on the Hub's token page, or by a request to its REST API.

Upstream issues: jupyterhub/jupyterhub#3688 (open), #3342, #1491. The replaced methods are those of
JupyterHub 6 (tested: 6.1.1); `tests/spawner/test_hub_patches.py` fails when they change.
"""

from __future__ import annotations

import uuid
from typing import Any

import sqlalchemy as sa
from jupyterhub import orm
from jupyterhub.handlers import BaseHandler
from jupyterhub.handlers.base import SESSION_COOKIE_NAME
from sqlalchemy.orm import Session

NOTE = "Browser sign-in"
# OAuth client of these tokens; other OAuth tokens belong to the client of a service or server.
HUB_CLIENT = "jupyterhub"
# Attribute by which the authenticator passes the limit to the handler that sets the cookie.
LIMIT_ATTRIBUTE = "bai_max_concurrent_logins"
DAY_SECONDS = 24 * 3600


def install() -> None:
    """Replace the functions that write and read JupyterHub's login cookie; there is no setting for
    that.
    """
    BaseHandler._set_user_cookie = _set_user_cookie
    BaseHandler._user_for_cookie = _user_for_cookie
    if not sa.event.contains(Session, "before_flush", _end_whole_session):
        sa.event.listen(Session, "before_flush", _end_whole_session)


def _set_user_cookie(handler: Any, user: Any, server: Any) -> None:
    """Start a sign-in of this browser; the user's oldest sign-in ends if there are too many."""
    if (before := _sign_in_of(handler, handler.get_secure_cookie(server.cookie_name))) is not None:
        handler.db.delete(before)
    _make_room(handler, user)
    # Always a new session id: an attacker may know or have planted the browser's current one.
    handler._session_id = uuid.uuid4().hex
    handler.set_session_cookie()
    token = orm.APIToken.new(
        user=user.orm_user,
        scopes=[],
        note=NOTE,
        session_id=handler._session_id,
        expires_in=handler.cookie_max_age_days * DAY_SECONDS,
    )
    handler._set_cookie(server.cookie_name, token, encrypted=True, path=server.base_url)


def _make_room(handler: Any, user: Any) -> None:
    limit: int | None = getattr(handler, LIMIT_ATTRIBUTE, None)
    if limit is None:
        return
    current = (
        handler.db.query(orm.APIToken)
        .filter(
            orm.APIToken.user_id == user.orm_user.id,
            orm.APIToken.client_id == HUB_CLIENT,
            orm.APIToken.session_id.is_not(None),
        )
        .order_by(orm.APIToken.created.desc(), orm.APIToken.id.desc())
    )
    for oldest in current.all()[max(0, limit - 1) :]:
        handler.log.info("Too many sign-ins: the oldest one of %s ends", user.name)
        handler.db.delete(oldest)


def _user_for_cookie(handler: Any, cookie_name: str, cookie_value: str | None = None) -> Any:
    """Return the user of a login cookie, None if the cookie is invalid or revoked."""
    value = handler.get_secure_cookie(
        cookie_name, cookie_value, max_age_days=handler.cookie_max_age_days
    )
    sign_in = _sign_in_of(handler, value)
    if sign_in is None:
        if handler.get_cookie(cookie_name):
            handler.log.warning("The login cookie is invalid or revoked")
            handler.clear_cookie(cookie_name, path=handler.hub.base_url)
        return None
    # OAuth tokens get this session id from the server side: the holder of the cookie cannot choose
    # another one and thereby keep tokens that outlive the sign-in.
    handler._session_id = sign_in.session_id
    if handler.get_cookie(SESSION_COOKIE_NAME) != sign_in.session_id:
        handler.set_session_cookie()
    user = handler._user_from_orm(sign_in.user)
    is_recorded = handler._record_activity(sign_in)
    if handler._record_activity(user) or is_recorded:
        handler.db.commit()
    return user


def _sign_in_of(handler: Any, value: bytes | None) -> Any:
    if value is None:
        return None
    found = orm.APIToken.find(handler.db, value.decode("utf8", "replace"), kind="user")
    return found if found is not None and _is_sign_in(found) else None


def _is_sign_in(token: Any) -> bool:
    return token.session_id is not None and token.client_id == HUB_CLIENT


def _end_whole_session(session: Session, *_: object) -> None:
    """Delete the OAuth tokens of a sign-in, and the codes that could still become such tokens."""
    for token in list(session.deleted):
        if not isinstance(token, orm.APIToken) or not _is_sign_in(token):
            continue
        for table in (orm.APIToken, orm.OAuthCode):
            same = session.query(table).filter_by(
                user_id=token.user_id, session_id=token.session_id
            )
            for row in same:
                session.delete(row)
