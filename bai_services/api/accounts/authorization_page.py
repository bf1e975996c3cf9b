"""Base class of the pages on which a signed-in user authorizes a program to act as that user.

The program puts a challenge into the URL and receives a code. Redeeming the code requires the
verifier, which the program keeps secret (PKCE, RFC 7636).
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


class AuthorizationPageHandler(PageHandler):
    """GET asks the user for consent; POST delivers the code to the program."""

    retry_hint: ClassVar[str]
    """Instruction for the user if the URL is incomplete or invalid."""

    async def get(self) -> None:
        caller: Caller | None = None
        try:
            # Authenticate before checking the parameters: a browser that is not signed in goes to
            # the sign-in page, even if the URL is incomplete.
            caller = await self.caller()
            if caller is None:
                return
            self.check_parameters()
        except errors.BaiError as error:
            self.render_error(error, caller)
            return
        self.render_question(caller)

    async def post(self) -> None:
        caller: Caller | None = None
        try:
            caller = await self.settings["sign_in"].browser_caller(self)
            self.check_parameters()
            code = manager_of(self).accounts.sign_ins.create_code(
                caller, self.challenge, self.settings["sign_in"].browser_token(self)
            )["code"]
        except errors.BaiError as error:
            self.render_error(error, caller)
            return
        self.deliver_code(caller, code)

    @property
    def challenge(self) -> str:
        return self.get_argument("challenge", "")

    @property
    def state(self) -> str:
        return self.get_argument("state", "")

    def check_parameters(self) -> None:
        """Validate the parameters of the URL.

        Raises
        ------
        InvalidRequest
            If a parameter is missing or malformed.
        """
        if not _CHALLENGE.fullmatch(self.challenge) or not _STATE.fullmatch(self.state):
            raise errors.InvalidRequest(f"the URL is incomplete; {self.retry_hint}")

    @abstractmethod
    def render_question(self, caller: Caller) -> None:
        """Render the page that asks for consent."""

    @abstractmethod
    def deliver_code(self, caller: Caller, code: str) -> None:
        """Deliver the code to the program."""
