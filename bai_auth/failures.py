"""Messages and HTTP statuses for failed sign-ins and password changes."""

from __future__ import annotations

import math
from http import HTTPStatus

from tornado.web import HTTPError

from bai_services.core import errors
from bai_services.core.accounts.passwords import MIN_LENGTH, OVERLOADED
from bai_services.core.operations.maintenances import READ_ONLY
from bai_services.i18n.catalogue import Translator

# Keys of the texts for the manager's reasons to deny a sign-in. Any other reason gets the text for
# a wrong password, which reveals nothing about the account.
REASONS = {
    "inactive": "sign_in.inactive",
    "before-verification": "sign_in.before_verification",
    "address": "sign_in.address",
    # The following reasons occur only for sign-ins at an OpenID provider.
    "not-linked": "openid.not_linked",
    "account-exists": "openid.account_exists",
    "no-verified-email": "openid.no_email",
    "invalid-name": "openid.invalid_name",
    "deleted": "openid.not_linked",
}


class SignInFailed(HTTPError):
    """A failed sign-in, with a message in the user's language.

    The Hub copies ``headers`` to the response.
    """

    def __init__(self, status: HTTPStatus, text: str) -> None:
        super().__init__(status, text)
        self.headers: dict[str, str] = {}


class PasswordChangeNeeded(Exception):
    """The password is correct but must be replaced before the user can sign in."""

    def __init__(self, username: str, code_proof: str = "") -> None:
        """``code_proof`` is set if the user has sent a correct one-time code."""
        super().__init__(f"{username} must set a new password")
        self.username = username
        self.code_proof = code_proof


class CodeNeeded(Exception):
    """The password is correct, but the one-time code is missing or wrong."""

    def __init__(self, username: str, *, is_wrong: bool = False) -> None:
        super().__init__(f"{username} must send a one-time code")
        self.username = username
        self.is_wrong = is_wrong


class RegistrationNeeded(Exception):
    """The password is correct, but the user must register an authenticator app first.

    ``is_wrong``: the code that should confirm the registration was wrong.
    """

    def __init__(self, username: str, *, is_wrong: bool = False) -> None:
        super().__init__(f"{username} must register an authenticator app")
        self.username = username
        self.is_wrong = is_wrong


class TooManySignIns(Exception):
    """The password is correct, but the sign-in would end the user's oldest sign-in."""

    def __init__(self, username: str, limit: int) -> None:
        super().__init__(f"{username} has reached the limit of {limit} concurrent sign-ins")
        self.username = username
        self.limit = limit


def sign_in_failed(error: errors.BaiError, translate: Translator) -> SignInFailed:
    """Return the failed sign-in for an error of the manager.

    The status is 403 if the sign-in was denied, and 503 if the manager could not verify it.
    """
    if isinstance(error, (errors.SignInRefused, errors.InvalidRequest)):
        key = REASONS.get(str(error.details.get("reason")), "sign_in.refused")
        return SignInFailed(HTTPStatus.FORBIDDEN, translate(key))
    is_blocked = isinstance(error, errors.SignInBlocked)
    seconds = _seconds(error)
    if error.details.get("reason") == OVERLOADED:
        text = translate("sign_in.overloaded", count=seconds)
    elif error.details.get("reason") == READ_ONLY:
        text = translate("sign_in.read_only")
    elif is_blocked:
        text = blocked_text(seconds, translate)
    else:
        return SignInFailed(HTTPStatus.SERVICE_UNAVAILABLE, translate("sign_in.unavailable"))
    status = HTTPStatus.FORBIDDEN if is_blocked else HTTPStatus.SERVICE_UNAVAILABLE
    failed = SignInFailed(status, text)
    failed.headers["Retry-After"] = str(seconds)
    return failed


def blocked_text(seconds: int, translate: Translator) -> str:
    """Return the message for a blocked sign-in.

    It gives the remaining time in seconds if that is below one minute, else in minutes, rounded up.
    """
    if seconds < 60:
        return translate("sign_in.blocked_seconds", count=seconds)
    return translate("sign_in.blocked_minutes", count=math.ceil(seconds / 60))


def rule_text(translate: Translator) -> str:
    return translate("password.rule", least=MIN_LENGTH)


def password_text(error: errors.BaiError, translate: Translator) -> str:
    """Return why a password change failed."""
    if isinstance(error, errors.InvalidRequest):
        if "broken_rules" in error.details:
            return translate("password.rule_broken")
        # There is no translation, so show the manager's English message.
        return error.message
    if isinstance(error, errors.SignInRefused) and "reason" in error.details:
        key = REASONS.get(str(error.details["reason"]), "password.wrong")
        return translate(key)
    if isinstance(error, errors.SignInRefused):
        return translate("password.wrong")
    return str(sign_in_failed(error, translate).log_message).replace("%%", "%")


def _seconds(error: errors.BaiError) -> int:
    try:
        return max(1, math.ceil(float(error.details["retry_after_seconds"])))
    except (KeyError, TypeError, ValueError):
        return 60
