"""Base of all handlers: the operation decorator, errors and their HTTP statuses."""

from __future__ import annotations

import functools
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, is_dataclass
from datetime import datetime
from http import HTTPStatus
from typing import Any

from pydantic import BaseModel, ValidationError
from tornado.web import HTTPError, RequestHandler

from bai_services.core import errors
from bai_services.core.accounts.roles import Caller, Role
from bai_services.core.listing import ListQuery
from bai_services.core.resources import ResourceSlots
from bai_services.manager.manager import Manager

MAX_BODY_BYTES = 2**20
# Size of the pieces in which bodies are read; the server is created with it.
BODY_CHUNK_BYTES = 2**18
READING = ("GET", "HEAD", "OPTIONS")

HTTP_STATUS: dict[type[errors.BaiError], HTTPStatus] = {
    errors.BaiError: HTTPStatus.INTERNAL_SERVER_ERROR,
    errors.InvalidRequest: HTTPStatus.BAD_REQUEST,
    errors.InvalidTransition: HTTPStatus.CONFLICT,
    errors.ChecksumMismatch: HTTPStatus.BAD_REQUEST,  # tus requires 460, which its own routes send
    errors.NotSignedIn: HTTPStatus.UNAUTHORIZED,
    errors.SignInRefused: HTTPStatus.UNAUTHORIZED,
    errors.SignInBlocked: HTTPStatus.TOO_MANY_REQUESTS,
    errors.Forbidden: HTTPStatus.FORBIDDEN,
    errors.NotFound: HTTPStatus.NOT_FOUND,
    errors.Conflict: HTTPStatus.CONFLICT,
    errors.AlreadyExists: HTTPStatus.CONFLICT,
    errors.InUse: HTTPStatus.CONFLICT,
    errors.Changed: HTTPStatus.PRECONDITION_FAILED,
    errors.QuotaExceeded: HTTPStatus.FORBIDDEN,
    errors.InsufficientResources: HTTPStatus.CONFLICT,
    errors.RateLimited: HTTPStatus.TOO_MANY_REQUESTS,
    errors.TooLarge: HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    errors.StorageFull: HTTPStatus.INSUFFICIENT_STORAGE,
    errors.Unavailable: HTTPStatus.SERVICE_UNAVAILABLE,
}


def status_of(error: type[errors.BaiError]) -> HTTPStatus:
    """Return the status of an error, or that of its nearest base class that has one."""
    return next(HTTP_STATUS[cls] for cls in error.__mro__ if cls in HTTP_STATUS)


@dataclass(frozen=True, slots=True)
class Operation:
    """Description of one method of one route, for the OpenAPI document."""

    summary: str
    tag: str
    body: type[BaseModel] | None
    returns: Any
    status: HTTPStatus
    is_list: bool
    is_open: bool
    parameters: Mapping[str, str]
    is_file: bool
    is_for_sessions: bool


def operation(
    summary: str,
    *,
    tag: str,
    body: type[BaseModel] | None = None,
    returns: Any = None,
    status: HTTPStatus = HTTPStatus.OK,
    is_list: bool = False,
    is_open: bool = False,
    parameters: Mapping[str, str] | None = None,
    is_file: bool = False,
    is_for_sessions: bool = False,
) -> Callable[[Callable[..., Awaitable[Any]]], Callable[..., Awaitable[None]]]:
    """Make a handler's method an operation of the API.

    The method receives the path's groups as keywords, ``body`` (an instance of the model) where one
    is declared, and ``query`` (a ``ListQuery``) where it is a list; its return value is written as
    JSON. ``returns`` is the model of the answer (of one item, for a list). An open operation needs
    no sign-in. ``parameters`` maps query parameters to descriptions. With ``is_file``, the answer
    to a GET or the body of a PUT is the content of a file. Only an operation that
    ``is_for_sessions`` accepts the token of a session.
    """
    declared = Operation(
        summary,
        tag,
        body,
        returns,
        status,
        is_list,
        is_open,
        parameters or {},
        is_file,
        is_for_sessions,
    )

    def decorate(method: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[None]]:
        @functools.wraps(method)
        async def call(handler: APIHandler, **path: str) -> None:
            await _call(handler, method, declared, path)

        call.operation = declared  # type: ignore[attr-defined]  # read by openapi.py
        return call

    return decorate


async def _call(
    handler: APIHandler,
    method: Callable[..., Awaitable[Any]],
    declared: Operation,
    path: Mapping[str, str],
) -> None:
    """Sign in, read the operation's input, run it, and write its answer."""
    # A handler that receives its body in pieces has identified the caller before the first one.
    if not declared.is_open and getattr(handler, "caller", None) is None:
        await handler.sign_in()
    if any("\0" in key for key in path.values()):
        # No name contains NUL, and PostgreSQL cannot compare with it.
        raise errors.NotFound(f"there is no {handler.request.path}")
    arguments: dict[str, Any] = dict(path)
    if declared.body is not None:
        arguments["body"] = handler.parse_body(declared.body)
    if declared.is_list:
        arguments["query"] = ListQuery.parse(handler.query_arguments())
    try:
        answer = await method(handler, **arguments)
    except errors.Forbidden as error:
        if handler.request.method not in READING and not declared.is_open:
            await handler.manager.audit.refused(handler.caller, handler.request.path, error)
        raise
    if not handler._finished:
        handler.set_status(declared.status)
        handler.write_json(answer)


def manager_of(handler: RequestHandler) -> Manager:
    """Return the manager that an application was made for."""
    manager: Manager = handler.settings["manager"]
    return manager


class APIHandler(RequestHandler):
    """Turns every error into ``{"error": code, "message": text, "details": {…}}``."""

    caller: Caller

    @property
    def manager(self) -> Manager:
        """The ``Manager``; handlers call one method of one of its services."""
        return manager_of(self)

    async def sign_in(self) -> None:
        """Return the caller; see ``sign_in.py``.

        Raises
        ------
        Forbidden
            If it is a session, and the operation is not for sessions.
        """
        caller: Caller = await self.settings["sign_in"].caller_of(self)
        method = getattr(self, (self.request.method or "").lower(), None)
        declared: Operation | None = getattr(method, "operation", None)
        if caller.role is Role.SESSION and not (declared and declared.is_for_sessions):
            raise errors.Forbidden(
                f"the token of a session may not do {self.request.method} {self.request.path}; "
                "use a token of the user (`bai login`)"
            )
        self.caller = caller

    def check_xsrf_cookie(self) -> None:
        """Do nothing: ``sign_in`` checks it for requests with cookies, the only ones that need
        it.
        """

    def query_arguments(self) -> dict[str, str]:
        return {name: self.get_query_argument(name) for name in self.request.query_arguments}

    def parse_body(self, model: type[BaseModel]) -> BaseModel:
        if len(self.request.body) > MAX_BODY_BYTES:
            raise errors.TooLarge(f"the body is larger than {MAX_BODY_BYTES} bytes")
        try:
            return model.model_validate_json(self.request.body or b"{}")
        except ValidationError as error:
            raise invalid(error) from None

    def write_json(self, answer: Any) -> None:
        if answer is None:
            return
        self.set_header("Content-Type", "application/json; charset=utf-8")
        self.write(json.dumps(answer, default=to_json, ensure_ascii=False, allow_nan=False))

    def set_default_headers(self) -> None:
        self.set_header("X-Content-Type-Options", "nosniff")
        self.set_header("Cache-Control", "no-store")
        self.clear_header("Server")

    def error_status(self, error: errors.BaiError) -> int:
        """Return the status of an error; a protocol may define its own."""
        return status_of(type(error))

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        error = (kwargs.get("exc_info") or (None, None, None))[1]
        if isinstance(error, errors.BaiError):
            self.set_status(self.error_status(error))
            content = {"error": error.code, "message": error.message, "details": error.details}
        elif isinstance(error, HTTPError):
            text = error.log_message or self._reason
            content = {"error": f"http-{status_code}", "message": text, "details": {}}
        else:
            content = {"error": "internal", "message": "internal error", "details": {}}
        self.set_header("Content-Type", "application/json; charset=utf-8")
        self.finish(json.dumps(content, default=to_json, ensure_ascii=False))

    def log_exception(self, typ: Any, value: Any, tb: Any) -> None:
        # A refusal is a regular answer and needs no traceback.
        if not isinstance(value, errors.BaiError):
            super().log_exception(typ, value, tb)


class NotFoundHandler(APIHandler):
    """Answers for all paths without a route."""

    async def prepare(self) -> None:
        raise errors.NotFound(f"there is no {self.request.path}")


def invalid(error: ValidationError, said: str = "") -> errors.InvalidRequest:
    """Return the refusal of input that violates its model, naming each field, after ``said``."""
    problems = [
        {"field": ".".join(map(str, e["loc"])), "problem": e["msg"]}
        for e in error.errors(include_url=False, include_context=False, include_input=False)
    ]
    text = "; ".join(f"{p['field'] or 'body'}: {p['problem']}" for p in problems)
    return errors.InvalidRequest(f"{said}: {text}" if said else text, problems=problems)


def to_json(value: Any) -> Any:
    """Convert an answer of the manager into JSON types."""
    if isinstance(value, ResourceSlots):
        return value.format()
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if is_dataclass(value) and not isinstance(value, type):
        return {name: item for name, item in _fields(value)}
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    raise TypeError(f"{type(value).__name__} cannot be written as JSON")


def _fields(value: Any) -> list[tuple[str, Any]]:
    # Not asdict(), which would convert ResourceSlots into plain dictionaries of integers.
    return [(name, getattr(value, name)) for name in value.__dataclass_fields__]
