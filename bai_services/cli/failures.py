"""Error messages and exit codes of failed commands."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import click

from bai_services.core import errors

from . import units
from .text import json_text, printable

SUCCESS, FAILED, WRONG_USAGE, DENIED_BY_POLICY, NOT_FOUND, NOT_ALLOWED, UNAVAILABLE = range(7)
INTERRUPTED = 130

# The most specific class of an error that is listed here determines the exit code.
EXIT_CODES: Mapping[type[BaseException], int] = {
    errors.BaiError: FAILED,
    errors.InvalidRequest: WRONG_USAGE,
    # The request is valid but conflicts with the current state.
    errors.InvalidTransition: FAILED,
    errors.NotSignedIn: NOT_ALLOWED,
    errors.Forbidden: NOT_ALLOWED,
    errors.NotFound: NOT_FOUND,
    errors.QuotaExceeded: DENIED_BY_POLICY,
    errors.InsufficientResources: DENIED_BY_POLICY,
    errors.Unavailable: UNAVAILABLE,
    click.UsageError: WRONG_USAGE,
}

_HINTS: Mapping[type[errors.BaiError], str] = {
    errors.SignInRefused: "",
    errors.SignInBlocked: "",
    errors.NotSignedIn: "sign in with: bai login URL",
}


def exit_code(error: BaseException) -> int:
    """Return the exit code of the command for ``error``."""
    for cls in type(error).__mro__:
        if cls in EXIT_CODES:
            return EXIT_CODES[cls]
    return FAILED


def describe(error: BaseException) -> dict[str, Any]:
    """Return ``error`` in the format of the REST API's errors."""
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
    message = f"internal error: {type(error).__name__} (set BAI_DEBUG=1 for a traceback)"
    return {"error": "internal", "message": message, "details": {}}


def show(error: BaseException, *, as_json: bool) -> None:
    """Write ``error`` to standard error: one JSON document, or text with a hint."""
    content = describe(error)
    if as_json:
        print(json_text(content), file=sys.stderr)
        return
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        # Print no separate usage, because the message is the whole help text, which starts with it.
        print(content["message"], file=sys.stderr)
        return
    usage = content["details"].get("usage")
    if isinstance(error, click.UsageError) and usage:
        print(usage, file=sys.stderr)
    message = units.with_local_times(printable(content["message"]))
    print(f"error: {message}", file=sys.stderr)
    if hint := _hint(error):
        print(hint, file=sys.stderr)


def _hint(error: BaseException) -> str:
    for cls in type(error).__mro__:
        if cls in _HINTS:
            return _HINTS[cls]
    return ""
