"""The base class of the API's handlers, the operation decorator, and the HTTP status of errors."""

from __future__ import annotations

import asyncio
import functools
import json
import math
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, is_dataclass
from datetime import datetime
from decimal import Decimal
from http import HTTPStatus
from typing import Any

from pydantic import BaseModel, ValidationError
from tornado.web import HTTPError, RequestHandler

from bai_services import tracing
from bai_services.core import errors
from bai_services.core.accounts.roles import Caller, Role
from bai_services.core.listing import ListQuery
from bai_services.core.record_fields import fields_of
from bai_services.core.resources import ResourceSlots
from bai_services.core.user_input import shown
from bai_services.manager.manager import Manager

from . import request_spans
from .caller_limit import CallerLimit
from .csv_export import columns_of, content_disposition, write_csv, write_json_lines
from .running_requests import RunningRequests

MAX_BODY_BYTES = 2**20
# Size of the chunks in which the HTTP server reads bodies.
BODY_CHUNK_BYTES = 2**18
# Maximum number of problems that the response to an invalid body describes.
MAX_PROBLEMS = 100
# Maximum length of the path of a field in the description of a problem.
MAX_FIELD_LENGTH = 200
READ_METHODS = ("GET", "HEAD", "OPTIONS")

HTTP_STATUS: dict[type[errors.BaiError], HTTPStatus] = {
    errors.BaiError: HTTPStatus.INTERNAL_SERVER_ERROR,
    errors.InvalidRequest: HTTPStatus.BAD_REQUEST,
    errors.InvalidTransition: HTTPStatus.CONFLICT,
    errors.ChecksumMismatch: HTTPStatus.BAD_REQUEST,  # the tus routes send 460 instead
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
    """Return the status of an error class or of its nearest base class that has one."""
    return next(HTTP_STATUS[cls] for cls in error.__mro__ if cls in HTTP_STATUS)


def set_status_of(
    handler: RequestHandler, error: errors.BaiError, status: int | None = None
) -> None:
    """Set the HTTP status of an error response (default: that of ``status_of``), and
    ``Retry-After`` if the error has ``retry_after_seconds``.
    """
    handler.set_status(status_of(type(error)) if status is None else status)
    seconds = error.details.get("retry_after_seconds")
    if isinstance(seconds, int | float):
        handler.set_header("Retry-After", str(max(1, math.ceil(seconds))))


@dataclass(frozen=True, slots=True)
class Operation:
    """The declaration of one method of one route; the OpenAPI document is built from it."""

    summary: str
    tag: str
    body: type[BaseModel] | None
    returns: Any
    status: HTTPStatus
    is_list: bool
    is_open: bool
    parameters: Mapping[str, str]
    repeated: Collection[str]
    is_file: bool
    media_types: Collection[str]
    is_for_sessions: bool
    is_expensive: bool
    works_when_read_only: bool


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
    repeated: Collection[str] = (),
    is_file: bool = False,
    media_types: Collection[str] = ("application/octet-stream",),
    is_for_sessions: bool = False,
    is_expensive: bool = False,
    works_when_read_only: bool = False,
) -> Callable[[Callable[..., Awaitable[Any]]], Callable[..., Awaitable[None]]]:
    """Declare a handler's method as an operation of the API.

    The method receives keyword arguments: the named groups of the path, ``body`` (the validated
    body) if the operation has one, and ``query`` (a ``ListQuery``) if it is a list. Its return
    value is written as JSON.

    Parameters
    ----------
    returns
        Model of the response; with ``is_list``, the model of one item.
    is_open
        The operation requires no sign-in.
    parameters
        Descriptions of the query parameters.
    repeated
        Names of the query parameters that may be repeated.
    is_file
        The response to a GET, or the body of a PUT or PATCH, is the content of a file.
    media_types
        Media types of the files in responses to a GET with ``is_file``.
    is_for_sessions
        The operation accepts session tokens. Operations without this flag reject them.
    is_expensive
        At most two expensive operations of a caller run at a time. Lists are always expensive.
    works_when_read_only
        Users can perform the operation during read-only maintenance although it changes data.
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
        repeated,
        is_file,
        media_types,
        is_for_sessions,
        is_expensive or is_list,
        works_when_read_only,
    )

    def decorate(method: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[None]]:
        @functools.wraps(method)
        async def call(handler: APIHandler, **path: str) -> None:
            await _call_until_stop(handler, method, declared, path)

        call.operation = declared  # type: ignore[attr-defined]  # read by openapi.py
        return call

    return decorate


async def _call_until_stop(
    handler: APIHandler,
    method: Callable[..., Awaitable[Any]],
    declared: Operation,
    path: Mapping[str, str],
) -> None:
    """Respond to the request; if the manager stops in the meantime, end the request.

    Raises
    ------
    Unavailable
        If the manager stops before the response has begun.
    """
    running = handler.running_requests
    with running.entered(lambda: not handler.is_timed):
        try:
            await _call(handler, method, declared, path)
        except asyncio.CancelledError:
            if not running.is_ending:
                raise
            if not handler._headers_written:
                raise errors.Unavailable("the manager is stopping; repeat the request") from None
            # Close the connection, so that the client notices that the content is incomplete.
            handler.request.connection.stream.close()  # type: ignore[union-attr]


async def _call(
    handler: APIHandler,
    method: Callable[..., Awaitable[Any]],
    declared: Operation,
    path: Mapping[str, str],
) -> None:
    """Authenticate the caller, and respond to the request."""
    # A handler that streams its body has already authenticated the caller, in ``prepare``.
    if not declared.is_open and getattr(handler, "caller", None) is None:
        await handler.sign_in()
    if not tracing.is_on() or not handler.is_timed:
        await _respond(handler, method, declared, path)
        return
    with request_spans.span_of(handler, getattr(handler, "caller", None)) as span:
        try:
            await _respond(handler, method, declared, path)
        except errors.BaiError as error:
            status = handler.error_status(error)
            span.set({"http.response.status_code": status})
            if status < HTTPStatus.INTERNAL_SERVER_ERROR:
                span.reject(error.code)
            raise
        span.set({"http.response.status_code": handler.get_status()})


async def _respond(
    handler: APIHandler,
    method: Callable[..., Awaitable[Any]],
    declared: Operation,
    path: Mapping[str, str],
) -> None:
    """Validate the input, call the method and write the response.

    A change that the caller is not allowed to make is recorded in the audit log.
    """
    if any("\0" in key for key in path.values()):
        # Names cannot contain a NUL, and PostgreSQL rejects a NUL in parameters.
        raise errors.NotFound(f"{handler.request.path} does not exist")
    arguments: dict[str, Any] = dict(path)
    if declared.body is not None:
        arguments["body"] = handler.parse_body(declared.body)
    form, filename = "json", None
    if declared.is_list:
        given = handler.query_arguments()
        form = _export_format(given.pop("format", "json"))
        filename = given.pop("filename", None)
        arguments["query"] = ListQuery.parse(given)
    try:
        if form != "json":
            await _call_for_export(handler, method, declared, arguments, form, filename)
            return
        result = await _result(handler, method, declared, arguments)
    except errors.Forbidden as error:
        if handler.request.method not in READ_METHODS and not declared.is_open:
            await handler.manager.audit.record_denial(handler.caller, handler.request.path, error)
        raise
    if not handler._finished:
        handler.set_status(declared.status)
        handler.write_json(result)


async def _result(
    handler: APIHandler,
    method: Callable[..., Awaitable[Any]],
    declared: Operation,
    arguments: Mapping[str, Any],
) -> Any:
    """Call the method and return its result; an expensive call first waits for a free slot.

    Raises
    ------
    Unavailable
        If the call may change data, and the installation is read-only because of maintenance.
    """
    caller: Caller | None = getattr(handler, "caller", None)
    if caller is not None and not (
        declared.works_when_read_only or handler.request.method in READ_METHODS
    ):
        handler.manager.read_only.require_writable(caller.role)
    if not declared.is_expensive or caller is None or caller.user_id is None:
        return await method(handler, **arguments)
    limit: CallerLimit = handler.settings.setdefault("expensive_calls", CallerLimit())
    async with limit.slot(caller.user_id):
        return await method(handler, **arguments)


def _export_format(text: str) -> str:
    if text not in ("json", "csv", "jsonl"):
        raise errors.InvalidRequest(
            f"format={shown(text)!r} must be one of json, csv, jsonl", field="format"
        )
    return text


async def _call_for_export(
    handler: APIHandler,
    method: Callable[..., Awaitable[Any]],
    declared: Operation,
    arguments: Mapping[str, Any],
    form: str,
    filename: str | None,
) -> None:
    first: ListQuery = arguments["query"]

    async def page_of(query: ListQuery) -> Any:
        if query.offset != first.offset:
            # An export to a slow client can take hours, so authenticate the caller again for each
            # page.
            await handler.recheck_caller()
        return await _result(handler, method, declared, {**arguments, "query": query})

    name = (handler.request.path or "").rstrip("/").rpartition("/")[2]
    disposition = content_disposition(f"{name}.{form}" if filename is None else filename)
    handler.set_header("Content-Disposition", disposition)
    columns = columns_of(declared.returns)
    try:
        if form == "jsonl":
            await write_json_lines(handler, first, page_of, to_json)
        else:
            await write_csv(handler, columns, first, page_of, to_json)
    except errors.BaiError:
        if not handler._headers_written:
            raise
        # Close the connection, so that the client notices that rows are missing.
        handler.request.connection.stream.close()  # type: ignore[union-attr]


def manager_of(handler: RequestHandler) -> Manager:
    """Return the manager that the handler's application serves."""
    manager: Manager = handler.settings["manager"]
    return manager


class APIHandler(RequestHandler):
    """Base class of the API's handlers: authentication, input, JSON output and error responses.

    Errors are sent as ``{"error": code, "message": text, "details": {…}}``, with ``coded`` if the
    message has a code.
    """

    caller: Caller
    # Whether the duration of requests is recorded as a metric; False for streams and long polls.
    is_timed: bool = True

    @property
    def manager(self) -> Manager:
        """The manager that the handler's application serves."""
        return manager_of(self)

    @property
    def running_requests(self) -> RunningRequests:
        """The requests in progress of the handler's application."""
        running: RunningRequests = self.settings.setdefault("running_requests", RunningRequests())
        return running

    async def sign_in(self) -> None:
        """Authenticate the request and set ``caller``; see ``accounts/sign_in.py``.

        Raises
        ------
        NotSignedIn, Unavailable
            If the caller cannot be authenticated.
        Forbidden
            If the request has a session token and the operation does not accept one, or if a
            request with a cookie may be forged by another site.
        """
        caller: Caller = await self.settings["sign_in"].caller_of(self)
        method = getattr(self, (self.request.method or "").lower(), None)
        declared: Operation | None = getattr(method, "operation", None)
        if caller.role is Role.SESSION and not (declared and declared.is_for_sessions):
            raise errors.Forbidden(
                f"a session token may not be used for {self.request.method} {self.request.path}; "
                "use a token of the user (`bai login`)"
            )
        self.caller = caller

    async def recheck_caller(self) -> Caller:
        """Authenticate a long-running request again; update and return ``caller``.

        If the Hub or the database is unavailable, the caller is unchanged: an outage does not sign
        users out.

        Raises
        ------
        NotSignedIn
            If the sign-in or the token was revoked, or the keypair or the account deactivated.
        """
        with suppress(errors.Unavailable):
            self.caller = await self.settings["sign_in"].recheck(self, self.caller)
        return self.caller

    def check_xsrf_cookie(self) -> None:
        """Do nothing: ``sign_in`` checks the XSRF token of requests authenticated by cookie."""

    def query_arguments(self) -> dict[str, str]:
        return {name: self.get_query_argument(name) for name in self.request.query_arguments}

    def parse_body(self, model: type[BaseModel]) -> BaseModel:
        if len(self.request.body) > MAX_BODY_BYTES:
            raise errors.TooLarge(
                f"the body has {len(self.request.body)} bytes; the maximum is {MAX_BODY_BYTES}"
            )
        try:
            return model.model_validate_json(self.request.body or b"{}")
        except ValidationError as error:
            raise invalid_request(error) from None

    def write_json(self, content: Any) -> None:
        """Write the response body as JSON; None writes nothing."""
        if content is None:
            return
        self.set_header("Content-Type", "application/json; charset=utf-8")
        self.write(json.dumps(content, default=to_json, ensure_ascii=False, allow_nan=False))

    def set_default_headers(self) -> None:
        self.set_header("X-Content-Type-Options", "nosniff")
        self.set_header("Cache-Control", "no-store")
        self.clear_header("Server")

    def error_status(self, error: errors.BaiError) -> int:
        """Return the HTTP status of an error; a subclass may override it for its protocol."""
        return status_of(type(error))

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        error = (kwargs.get("exc_info") or (None, None, None))[1]
        if self.running_requests.is_ending:
            # The connection is closed, so a client must open a new one to repeat the request.
            self.set_header("Connection", "close")
        content: dict[str, Any]
        if isinstance(error, errors.BaiError):
            set_status_of(self, error, self.error_status(error))
            content = {"error": error.code, "message": error.message, "details": error.details}
            if error.coded is not None:
                content["coded"] = error.coded.as_json()
        elif isinstance(error, HTTPError):
            text = error.log_message or self._reason
            content = {"error": f"http-{status_code}", "message": text, "details": {}}
        else:
            content = {"error": "internal", "message": "internal error", "details": {}}
        self.set_header("Content-Type", "application/json; charset=utf-8")
        self.finish(json.dumps(content, default=to_json, ensure_ascii=False))

    def log_exception(self, typ: Any, value: Any, tb: Any) -> None:
        # These errors are expected responses and need no traceback.
        if not isinstance(value, errors.BaiError):
            super().log_exception(typ, value, tb)


class NotFoundHandler(APIHandler):
    """Responds to all paths without a route."""

    async def prepare(self) -> None:
        raise errors.NotFound(f"{self.request.path} does not exist")


# Pydantic's texts for times describe its parser ("input is too short").
_TIME_ERRORS = frozenset(
    {"datetime_type", "datetime_parsing", "datetime_from_date_parsing", "timezone_aware"}
)
_INVALID_TIME = "must be a time with a time zone, such as 2026-12-01T08:00:00Z"


def invalid_request(error: ValidationError, prefix: str = "") -> errors.InvalidRequest:
    """Return the error for a validation error; the message is ``prefix`` and each field's problem.

    If there are more than ``MAX_PROBLEMS`` problems, none is described: a body of 1 MiB can have
    100,000 problems, and describing all of them would block the event loop for a second.
    """
    count = error.error_count()
    if count > MAX_PROBLEMS:
        return errors.InvalidRequest(f"the body has {count} invalid or unknown fields", problems=[])
    details = error.errors(include_url=False, include_context=False, include_input=False)
    problems = [
        {
            "field": ".".join(map(str, e["loc"]))[:MAX_FIELD_LENGTH],
            "problem": _INVALID_TIME if e["type"] in _TIME_ERRORS else e["msg"],
        }
        for e in details
    ]
    text = "; ".join(f"{p['field'] or 'body'}: {p['problem']}" for p in problems)
    return errors.InvalidRequest(f"{prefix}: {text}" if prefix else text, problems=problems)


def to_json(value: Any) -> Any:
    """Convert a value that ``json`` cannot serialize into one that it can.

    For the ``default`` argument of ``json.dumps``.

    Raises
    ------
    TypeError
        If the type is unknown.
    """
    if isinstance(value, ResourceSlots):
        return value.format()
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if is_dataclass(value) and not isinstance(value, type):
        return fields_of(value)
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Decimal):
        # Amounts have at most 15 digits, so a JSON number represents them exactly.
        return float(value)
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    raise TypeError(f"{type(value).__name__} cannot be written as JSON")
