"""What a failure looks like on the terminal, and the exit code that it ends with."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any

import click

from bai_services.core import errors

from .text import printable

DONE, FAILED, WRONG_USE, REFUSED, NOT_FOUND, NOT_ALLOWED, DOWN = range(7)
INTERRUPTED = 130

# The nearest class in an error's ancestry counts.
EXIT_CODES: Mapping[type[BaseException], int] = {
    errors.BaiError: FAILED,
    errors.InvalidRequest: WRONG_USE,
    # Well asked, at the wrong moment: the state stands against it, as with a conflict.
    errors.InvalidTransition: FAILED,
    errors.NotSignedIn: NOT_ALLOWED,
    errors.Forbidden: NOT_ALLOWED,
    errors.NotFound: NOT_FOUND,
    errors.QuotaExceeded: REFUSED,
    errors.InsufficientResources: REFUSED,
    errors.Unavailable: DOWN,
    click.UsageError: WRONG_USE,
}

_HINTS: Mapping[type[errors.BaiError], str] = {
    errors.SignInRefused: "",
    errors.SignInBlocked: "",
    errors.NotSignedIn: "sign in with: bai login URL",
}


def exit_code(error: BaseException) -> int:
    """Return the exit code that ``error`` ends the command with."""
    for cls in type(error).__mro__:
        if cls in EXIT_CODES:
            return EXIT_CODES[cls]
    return FAILED


def describe(error: BaseException) -> dict[str, Any]:
    """Return ``error`` in the shape of the REST API's errors."""
    if isinstance(error, errors.BaiError):
        return {"error": error.code, "message": error.message, "details": error.details}
    if isinstance(error, click.UsageError):
        usage = error.ctx.get_usage() if error.ctx else ""
        return {
            "error": errors.InvalidRequest.code,
            "message": error.format_message(),
            "details": {"usage": usage} if usage else {},
        }
    if isinstance(error, click.ClickException):
        return {"error": "error", "message": error.format_message(), "details": {}}
    if isinstance(error, OSError):
        name = f"{error.filename}: " if error.filename else ""
        return {"error": "error", "message": f"{name}{error.strerror or error}", "details": {}}
    return {"error": "internal", "message": f"a defect: {type(error).__name__}", "details": {}}


def show(error: BaseException, *, as_json: bool) -> None:
    """Write ``error`` to standard error, as one JSON document or as text with its remedy."""
    content = describe(error)
    if as_json:
        print(json.dumps(content, ensure_ascii=False, default=str), file=sys.stderr)
        return
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        # The message is the help, which begins with the usage.
        print(content["message"], file=sys.stderr)
        return
    usage = content["details"].get("usage")
    if isinstance(error, click.UsageError) and usage:
        print(usage, file=sys.stderr)
    print(f"error: {printable(content['message'])}", file=sys.stderr)
    if hint := _hint(error):
        print(hint, file=sys.stderr)


def _hint(error: BaseException) -> str:
    for cls in type(error).__mro__:
        if cls in _HINTS:
            return _HINTS[cls]
    return ""
