"""Errors that a user may read.

    BaiError
    ├── InvalidRequest            malformed or contradictory input
    │   ├── InvalidTransition     an event that is not valid in the current status
    │   └── ChecksumMismatch      the received bytes do not match the announced checksum
    ├── NotSignedIn               the caller is unknown
    │   ├── SignInRefused         wrong name or password, or an account that may not sign in
    │   └── SignInBlocked         too many failures, wait
    ├── Forbidden                 the caller is known, but may not do this
    ├── NotFound                  no such object, or none that the caller may see
    ├── Conflict                  the request conflicts with the current state
    │   ├── AlreadyExists
    │   ├── InUse
    │   └── Changed               it has changed since the caller read it
    ├── QuotaExceeded             a resource policy forbids it, however empty the cluster is
    ├── InsufficientResources     no agent could ever hold it
    ├── RateLimited
    ├── TooLarge                  a body or a file over its limit
    ├── StorageFull
    └── Unavailable               a component of the system is down

An error outside this tree is a bug and is shown only in the log.
"""

from __future__ import annotations

from typing import Any, ClassVar


class BaiError(Exception):
    """A failure whose message and ``details`` are meant for the caller.

    ``code`` is part of the REST API and never changes; ``details`` is a JSON object with the facts
    of the message (what was requested, what the limit is).
    """

    code: ClassVar[str] = "error"

    def __init__(self, message: str, **details: Any) -> None:
        super().__init__(message)
        self.message = message
        self.details = details


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


def by_code() -> dict[str, type[BaiError]]:
    """Return every error class by its code, for clients that convert responses back to errors."""
    found: dict[str, type[BaiError]] = {}
    waiting: list[type[BaiError]] = [BaiError]
    while waiting:
        cls = waiting.pop()
        # A subclass without a code of its own is the same error to clients.
        if "code" in vars(cls):
            found[cls.code] = cls
        waiting.extend(cls.__subclasses__())
    return found
