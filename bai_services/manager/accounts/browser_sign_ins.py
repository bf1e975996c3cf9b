"""List and end the caller's own browser sign-ins at the Hub."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from bai_services.core.accounts.browser_sign_ins import parse_note
from bai_services.core.accounts.records import BrowserSignIn
from bai_services.core.accounts.roles import Caller
from bai_services.core.errors import NotFound

from ..context import ManagerContext
from ..hub.client import Hub
from . import authorizer
from .sign_outs import TokenRevocations


class BrowserSignIns:
    """Manages the caller's own sign-ins; administrators sign out users with `Users.sign_out`.

    ``session_id`` is the Hub's id of the caller's browser session; empty if the caller uses no
    browser. Methods raise ``Unavailable`` if the Hub cannot be reached.
    """

    def __init__(self, context: ManagerContext, hub: Hub, revocations: TokenRevocations) -> None:
        self._hub = hub
        self._revocations = revocations
        self._audit = context.audit

    async def list(self, caller: Caller, session_id: str) -> Sequence[BrowserSignIn]:
        """Return the caller's sign-ins, newest first."""
        return [_sign_in(model, session_id) for model in await self._models(caller)]

    async def end(self, caller: Caller, sign_in_id: str) -> None:
        """End one sign-in.

        Raises
        ------
        NotFound
            If the caller has no sign-in with this id.
        """
        if sign_in_id not in [model["id"] for model in await self._models(caller)]:
            raise NotFound("you have no such browser sign-in; it may have ended already")
        await self._end(caller, [sign_in_id])

    async def end_others(self, caller: Caller, session_id: str) -> int:
        """End all sign-ins except that of the caller's browser; return their number."""
        others = [
            str(model["id"])
            for model in await self._models(caller)
            if model["session_id"] != session_id
        ]
        if others:
            await self._end(caller, others)
        return len(others)

    async def _models(self, caller: Caller) -> Sequence[Mapping[str, Any]]:
        authorizer.require(caller, "user.change-own")
        if not self._hub.is_known:
            return []
        return await self._hub.sign_ins_of(caller.username)

    async def _end(self, caller: Caller, sign_in_ids: Sequence[str]) -> None:
        user_id = caller.user_id or ""
        await self._revocations.end_browser_sign_ins(user_id, caller.username, sign_in_ids)
        entry = self._audit.entry(
            caller, "sign-out.browser", user_id, domain=caller.domain, count=len(sign_in_ids)
        )
        await self._audit.add(entry)


def _sign_in(model: Mapping[str, Any], session_id: str) -> BrowserSignIn:
    note = parse_note(str(model.get("note") or ""))
    return BrowserSignIn(
        id=str(model["id"]),
        program=note.program if note else "",
        address=note.address if note else "",
        created_at=datetime.fromisoformat(model["created"]),
        last_used=_time(model.get("last_activity")),
        expires_at=_time(model.get("expires_at")),
        is_current=session_id != "" and model["session_id"] == session_id,
    )


def _time(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None
