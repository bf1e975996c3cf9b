"""Browser sign-ins, which can be revoked individually; each is a row of the Hub's token table.

JupyterHub's own login cookie has the same value in all browsers of a user, and this value remains
valid after a logout. The cookie set here contains a token without scopes instead. A logout, the
Hub's token page or a request to its REST API revokes the sign-in by deleting this token.

Upstream issues: jupyterhub/jupyterhub#3688 (open), #3342, #1491. The replaced methods are those of
JupyterHub 6 (tested: 6.1.1); `tests/spawner/test_hub_patches.py` fails when they change.
"""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa
from jupyterhub import orm
from jupyterhub.handlers import BaseHandler
from jupyterhub.handlers.base import SESSION_COOKIE_NAME
from sqlalchemy.orm import Session

from bai_services.core.accounts.browser_sign_ins import note_of

from .user_agent import describe

# OAuth client of sign-in tokens; other OAuth tokens belong to the client of a service or server.
HUB_CLIENT = "jupyterhub"
# Attribute of the login handler in which the authenticator stores the account's maximum number of
# concurrent sign-ins; None: no limit.
LIMIT_ATTRIBUTE = "bai_max_concurrent_logins"
DAY_SECONDS = 24 * 3600


def install() -> None:
    """Patch JupyterHub's functions for the login cookie, because no setting can replace them."""
    BaseHandler._set_user_cookie = _set_user_cookie
    BaseHandler._user_for_cookie = _user_for_cookie
    if not sa.event.contains(Session, "before_flush", _delete_tokens_of_sign_in):
        sa.event.listen(Session, "before_flush", _delete_tokens_of_sign_in)


def _set_user_cookie(handler: Any, user: Any, server: Any) -> None:
    """Create a sign-in for this browser; revoke the user's oldest sign-ins beyond the limit."""
    previous = _find_sign_in(handler, handler.get_secure_cookie(server.cookie_name))
    if previous is not None:
        handler.db.delete(previous)
    _revoke_oldest_sign_ins(handler, user)
    # Always create a new session id, because an attacker may know or have planted the browser's
    # current id.
    handler._session_id = uuid.uuid4().hex
    handler.set_session_cookie()
    token = orm.APIToken.new(
        user=user.orm_user,
        scopes=[],
        note=_note(handler),
        session_id=handler._session_id,
        expires_in=handler.cookie_max_age_days * DAY_SECONDS,
    )
    handler._set_cookie(server.cookie_name, token, encrypted=True, path=server.base_url)


def _revoke_oldest_sign_ins(handler: Any, user: Any) -> None:
    """Revoke the oldest sign-ins, so that a new sign-in does not exceed the account's limit."""
    limit: int | None = getattr(handler, LIMIT_ATTRIBUTE, None)
    if limit is None:
        return
    for oldest in sign_ins_of(handler.db, user.name)[max(0, limit - 1) :]:
        handler.log.info("Too many sign-ins: revoking the oldest one of %s", user.name)
        handler.db.delete(oldest)


def end_sign_in(handler: Any) -> None:
    """End the sign-in of the handler's browser."""
    handler._jupyterhub_user = None
    is_own = {"client_id": HUB_CLIENT, "session_id": handler._session_id}
    for token in handler.db.query(orm.APIToken).filter_by(**is_own):
        handler.db.delete(token)
    handler.db.commit()


def sign_ins_of(db: Session, username: str) -> list[Any]:
    """Return the tokens of a user's sign-ins that have not expired, newest first."""
    now = datetime.now(UTC).replace(tzinfo=None)
    return list(
        db.query(orm.APIToken)
        .join(orm.User, orm.APIToken.user_id == orm.User.id)
        .filter(
            orm.User.name == username,
            orm.APIToken.client_id == HUB_CLIENT,
            orm.APIToken.session_id.is_not(None),
            sa.or_(orm.APIToken.expires_at.is_(None), orm.APIToken.expires_at > now),
        )
        .order_by(orm.APIToken.created.desc(), orm.APIToken.id.desc())
    )


def _note(handler: Any) -> str:
    """Return the note of a sign-in on the Hub's token page: browser, system and address."""
    program = describe(handler.request.headers.get("User-Agent", ""))
    address = handler.authenticator.client_address(handler.request)
    return note_of(program, address)


def _user_for_cookie(handler: Any, cookie_name: str, cookie_value: str | None = None) -> Any:
    """Return the user of a login cookie, None if the cookie is invalid or revoked."""
    value = handler.get_secure_cookie(
        cookie_name, cookie_value, max_age_days=handler.cookie_max_age_days
    )
    sign_in = _find_sign_in(handler, value)
    if sign_in is None:
        if handler.get_cookie(cookie_name):
            handler.log.warning("The login cookie is invalid or revoked")
            handler.clear_cookie(cookie_name, path=handler.hub.base_url)
        return None
    # New OAuth tokens get the session id of the sign-in, not the id in the session cookie.
    # Otherwise a browser could choose the session id, and obtain tokens that outlive the sign-in.
    handler._session_id = sign_in.session_id
    if handler.get_cookie(SESSION_COOKIE_NAME) != sign_in.session_id:
        handler.set_session_cookie()
    user = handler._user_from_orm(sign_in.user)
    is_recorded = handler._record_activity(sign_in)
    if handler._record_activity(user) or is_recorded:
        handler.db.commit()
    return user


def _find_sign_in(handler: Any, value: bytes | None) -> Any:
    if value is None:
        return None
    token = orm.APIToken.find(handler.db, value.decode("utf8", "replace"), kind="user")
    return token if token is not None and _is_sign_in(token) else None


def _is_sign_in(token: Any) -> bool:
    return token.session_id is not None and token.client_id == HUB_CLIENT


def _delete_tokens_of_sign_in(session: Session, *_: object) -> None:
    """Delete the OAuth tokens and the unredeemed OAuth codes of deleted sign-ins."""
    for token in list(session.deleted):
        if not isinstance(token, orm.APIToken) or not _is_sign_in(token):
            continue
        for table in (orm.APIToken, orm.OAuthCode):
            rows = session.query(table).filter_by(
                user_id=token.user_id, session_id=token.session_id
            )
            for row in rows:
                session.delete(row)
