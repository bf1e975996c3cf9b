"""`/me`"""

from __future__ import annotations

from typing import Any

from ..base import APIHandler, operation
from ..fields import Shown, SlotTexts
from .users import ProjectOfUser


class Myself(Shown):
    id: str
    username: str
    email: str
    full_name: str
    role: str
    domain: str
    projects: list[ProjectOfUser]
    keypairs: list[str]
    need_password_change: bool
    limits: SlotTexts
    usage: SlotTexts


class MeHandler(APIHandler):
    @operation("Read one's own account, limits and usage", tag="me", returns=Myself)
    async def get(self) -> Any:
        return await self.manager.accounts.me.get(self.caller)


ROUTES = [("/me", MeHandler)]
