"""A page on which a signed-in user authorizes a program to act for them.

The program puts a challenge into the address and receives a code, which is useless without the
verifier that only the program knows (PKCE, RFC 7636).
"""

from __future__ import annotations

import re
from abc import abstractmethod
from typing import ClassVar

from bai_services.core import errors
from bai_services.core.accounts.roles import Caller

from ..base import manager_of
from ..sessions.page import PageHandler

_CHALLENGE = re.compile(r"[A-Za-z0-9_-]{43}")
_STATE = re.compile(r"[A-Za-z0-9_-]{8,128}")


class CodePageHandler(PageHandler):
    """GET asks the user, POST passes the code to the program that asked."""

    again: ClassVar[str]
    """Instruction for the user when the address is incomplete."""

    async def get(self) -> None:
        caller: Caller | None = None
        try:
            self.check()
            caller = await self.caller()
        except errors.BaiError as error:
            self.render_error(error, caller)
            return
        if caller is not None:
            self.ask(caller)

    async def post(self) -> None:
        caller: Caller | None = None
        try:
            self.check()
            caller = await self.settings["sign_in"].browser_caller(self)
            code = manager_of(self).accounts.sign_ins.code(caller, self.challenge)["code"]
        except errors.BaiError as error:
            self.render_error(error, caller)
            return
        self.hand_over(caller, code)

    @property
    def challenge(self) -> str:
        return self.get_argument("challenge", "")

    @property
    def state(self) -> str:
        return self.get_argument("state", "")

    def check(self) -> None:
        """Refuse an address that none of our programs produces.

        Raises
        ------
        InvalidRequest
            When a part of it is missing or malformed.
        """
        if not _CHALLENGE.fullmatch(self.challenge) or not _STATE.fullmatch(self.state):
            raise errors.InvalidRequest(f"the address is incomplete; {self.again}")

    @abstractmethod
    def ask(self, caller: Caller) -> None:
        """Render the page that asks the user."""

    @abstractmethod
    def hand_over(self, caller: Caller, code: str) -> None:
        """Pass the code to the program."""
