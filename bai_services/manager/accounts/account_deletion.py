"""Let users delete their own accounts, with the same effects as a deletion by an administrator."""

from __future__ import annotations

from bai_services.core.accounts.one_time_codes import SecondFactor
from bai_services.core.accounts.roles import Caller

from ..context import ManagerContext
from . import authorizer
from .sign_in import SignIns
from .users import Users


class AccountDeletions:
    """Deletes the accounts of users who are signed in at the Hub."""

    def __init__(self, context: ManagerContext, sign_ins: SignIns, users: Users) -> None:
        self._read_only = context.read_only
        self._sign_ins = sign_ins
        self._users = users

    async def delete(
        self, caller: Caller, name: str, password: str, client_ip: str, factor: SecondFactor
    ) -> None:
        """Delete the account with a user name if the password is correct.

        Wrong passwords count for the lockout of sign-ins.

        Raises
        ------
        SignInRefused, SignInBlocked, Unavailable
            As in ``SignIns.verify``.
        Conflict
            If this is the last active superadmin.
        """
        authorizer.require(caller, "account.delete")
        owner = await self._sign_ins.confirm_password(
            name, password, client_ip, "sign-in.account-deletion", factor
        )
        self._read_only.require_writable(owner.role)
        await self._users.delete_own(owner)
