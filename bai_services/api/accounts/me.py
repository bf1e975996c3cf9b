"""`/me`: the caller's own account."""

from __future__ import annotations

from bai_services.core.accounts import records

from ..base import APIHandler, operation
from ..fields import ResponseModel, SlotsOutput
from .users import ProjectOfUser


class OwnAccount(ResponseModel):
    id: str
    username: str
    email: str
    full_name: str
    role: str
    domain: str
    projects: list[ProjectOfUser]
    keypairs: list[str]
    need_password_change: bool
    limits: SlotsOutput
    usage: SlotsOutput


class MeHandler(APIHandler):
    @operation("Read your own account, limits and usage", tag="me", returns=OwnAccount)
    async def get(self) -> records.OwnAccount:
        return await self.manager.accounts.me.get(self.caller)


ROUTES = [("/me", MeHandler)]
