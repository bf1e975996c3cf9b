"""Errors with messages that are shown to users.

    BaiError
    ├── InvalidRequest            malformed or contradictory input
    │   ├── InvalidTransition     an event that is not valid in the current status
    │   └── ChecksumMismatch      the received bytes do not match the announced checksum
    ├── NotSignedIn               the caller is unknown
    │   ├── SignInRefused         wrong name or password, or an account that may not sign in
    │   └── SignInBlocked         too many failed attempts; blocked for some minutes
    ├── Forbidden                 the caller is known, but has no permission
    ├── NotFound                  no such object, or the caller may not see it
    ├── Conflict                  the request conflicts with the current state
    │   ├── AlreadyExists
    │   ├── InUse
    │   └── Changed               the object has changed since the caller read it
    ├── QuotaExceeded             a policy or quota forbids the request, even with free capacity
    ├── InsufficientResources     the session fits on no agent, even on an empty one
    ├── RateLimited
    ├── TooLarge                  a body or a file exceeds its limit
    ├── StorageFull
    └── Unavailable               a component of the system is down

Any other exception is a bug: it is logged, and users get a generic error.
"""

from __future__ import annotations

from typing import Any, ClassVar

from .coded_text import CodedText, TextTemplate


class BaiError(Exception):
    """A failure; its message and ``details`` are sent to the caller.

    ``code`` is part of the REST API and never changes. ``details`` is a JSON object with the values
    that the message mentions, such as the requested amount and the limit. ``coded``: the message as
    a code with values, from which pages build it in other languages; None for messages without one.
    """

    code: ClassVar[str] = "error"

    def __init__(self, message: str | CodedText, **details: Any) -> None:
        super().__init__(str(message))
        self.message = str(message)
        self.coded = message if isinstance(message, CodedText) else None
        self.details = details

    @property
    def text(self) -> CodedText:
        """The message as a part of another text."""
        return self.coded or TextTemplate.PLAIN_TEXT.text(text=self.message)


class InvalidRequest(BaiError):
    code = "invalid-request"


class InvalidTransition(InvalidRequest):
    code = "invalid-transition"


class ChecksumMismatch(InvalidRequest):
    code = "checksum-mismatch"


class NotSignedIn(BaiError):
    code = "not-signed-in"


class SignInRefused(NotSignedIn):
    code = "sign-in-refused"


class SignInBlocked(NotSignedIn):
    code = "sign-in-blocked"


class Forbidden(BaiError):
    code = "forbidden"


class NotFound(BaiError):
    code = "not-found"


class Conflict(BaiError):
    code = "conflict"


class AlreadyExists(Conflict):
    code = "already-exists"


class InUse(Conflict):
    code = "in-use"


class Changed(Conflict):
    code = "changed"


class QuotaExceeded(BaiError):
    code = "quota-exceeded"


class InsufficientResources(BaiError):
    code = "insufficient-resources"


class RateLimited(BaiError):
    code = "rate-limited"


class TooLarge(BaiError):
    code = "too-large"


class StorageFull(BaiError):
    code = "storage-full"


class Unavailable(BaiError):
    code = "unavailable"


class WriteConflict(Unavailable):
    """The database has rolled back a transaction because of a concurrent one; it can be retried."""


def by_code() -> dict[str, type[BaiError]]:
    """Return the error classes by code; clients use them to convert responses to exceptions."""
    found: dict[str, type[BaiError]] = {}
    stack: list[type[BaiError]] = [BaiError]
    while stack:
        cls = stack.pop()
        # A subclass without its own code is sent with the code of its base class.
        if "code" in vars(cls):
            found[cls.code] = cls
        stack.extend(cls.__subclasses__())
    return found
