"""Processing of one request: its head, queue, replica and response."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from typing import Protocol

from bai_services import tracing
from bai_services.core.serving.balancing import owner_limit
from bai_services.core.serving.gateway_records import ANONYMOUS
from bai_services.core.serving.gateway_records import Protocol as ReplicaProtocol
from bai_services.core.serving.prompt_prefix import prompt_prefix
from bai_services.core.serving.token_usage import UsageReader

from .heads import (
    NOT_REPEATABLE,
    PEER_HEADER,
    Headers,
    Refusal,
    is_grpc,
    named_by_connection,
    request_head,
    response_head,
)
from .limits import (
    CONNECT_SECONDS,
    MAX_ATTEMPTS,
    MAX_HELD_BYTES,
    MAX_OWNER_HELD_BYTES,
    WEBSOCKET_IDLE_SECONDS,
)
from .measures import Measures
from .replica_connection import ReplicaConnection
from .routes import Endpoint, Replica, Routes, Token, busy

# Paths of the gateway itself.
HEALTH_PATH = b"/health"
METRICS_PATH = b"/metrics"
_NO_GRPC = "this gateway does not forward gRPC: it needs the engine HAProxy"
_WITHOUT_BODY = frozenset({204, 304})


class Client(Protocol):
    """The connection of the client."""

    address: str

    def write(self, data: bytes) -> None: ...
    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...
    def finished(self, *, keeps_open: bool) -> None: ...
    def abort(self) -> None: ...


class Request:
    """Line and headers of a request; its body follows in pieces."""

    __slots__ = (
        "_by_name", "content_length", "headers", "is_chunked", "is_websocket", "keeps_open",
        "method", "path", "version",
    )  # fmt: skip

    def __init__(self, method: bytes, path: bytes, headers: Headers, version: str) -> None:
        self.method = method
        self.path = path
        self.headers = headers
        self.version = version
        self.keeps_open = True
        # The last one of repeated headers; the parser rejects repeated lengths.
        self._by_name = {name.lower(): value for name, value in headers}
        length = self._by_name.get(b"content-length")
        self.content_length = None if length is None else int(length)
        self.is_chunked = b"transfer-encoding" in self._by_name
        upgrade = self._by_name.get(b"upgrade")
        self.is_websocket = (
            upgrade is not None
            and method == b"GET"
            and upgrade.strip().lower() == b"websocket"
            and b"upgrade" in named_by_connection(headers)
        )

    @property
    def is_ambiguous(self) -> bool:
        """Return whether a header is repeated that determines how the request is handled."""
        if len(self._by_name) == len(self.headers):
            return False
        names = [name.lower() for name, _ in self.headers]
        return any(names.count(name) > 1 for name in NOT_REPEATABLE)

    @property
    def is_grpc(self) -> bool:
        return is_grpc(self.header(b"content-type"))

    def header(self, name: bytes) -> bytes:
        """Return a header by its name in lower case; b"" if there is none."""
        return self._by_name.get(name, b"")


class Gateway(Protocol):
    """Interface of the process for requests."""

    routes: Routes
    measures: Measures
    prefix: bytes  # path before the names of endpoints, without a slash at the end
    domain: bytes  # endpoints are also at NAME.DOMAIN; b"": no own host names
    is_behind_haproxy: bool
    max_connections: int
    max_owner_requests: int
    # Requests to endpoints that run, or wait for a replica or for the beginning of their prompt.
    running_requests: int

    def drained(self) -> None: ...

    def waits_for_replica(self) -> None: ...


class Exchange:
    """State of one request. The client connection calls `begin`, `request_*` and `client_lost`.

    Until the connection to a replica is open, nothing is sent, so the request can still go to
    another replica. After that, it is never repeated.
    """

    __slots__ = (
        "_attempts", "_body", "_client", "_connecting", "_connection", "_ends_with_connection",
        "_gateway", "_held", "_is_body_complete", "_is_chunked", "_is_over", "_is_tunnel",
        "_is_waiting_for_prefix", "_out", "_received", "_request", "_searched_at", "_started_at",
        "_status", "_usage", "_was_counted", "deadline", "endpoint", "is_response_begun", "prefix",
        "queued_at", "replica", "target", "token",
    )  # fmt: skip

    def __init__(self, gateway: Gateway, client: Client, request: Request) -> None:
        self._gateway = gateway
        self._client = client
        self._request = request
        self._body: list[bytes] = []
        self._held = 0
        self._received = 0
        self._searched_at = 0
        self._attempts = 0
        self._connecting: asyncio.Task[None] | None = None
        self._connection: ReplicaConnection | None = None
        self._is_body_complete = not request.content_length and not request.is_chunked
        self._is_chunked = False
        self._ends_with_connection = False
        self._is_over = False
        self._is_tunnel = False
        self._is_waiting_for_prefix = False
        self._out: list[bytes] = []
        self._started_at = time.monotonic()
        self._status = 0
        self._usage: UsageReader | None = None
        self._was_counted = False
        self.deadline = float("inf")
        self.endpoint: Endpoint | None = None
        self.is_response_begun = False
        self.prefix = b""
        self.queued_at = 0.0
        self.replica: Replica | None = None
        self.target = b""
        self.token: Token | None = None

    # The client's side

    @property
    def is_body_complete(self) -> bool:
        return self._is_body_complete

    @property
    def path(self) -> bytes:
        return self._request.path

    @property
    def own_path(self) -> bytes:
        """Return the path of a request for the gateway itself; b"" for any other request."""
        path = self._request.path
        if path not in (HEALTH_PATH, METRICS_PATH):
            return b""
        is_ours = own_host_name(self._request.header(b"host"), self._gateway.domain) is None
        return path if is_ours else b""

    @property
    def authorization(self) -> bytes:
        return self._request.header(b"authorization")

    @property
    def peer(self) -> str:
        """Return the address of the client's connection to HAProxy."""
        return self._request.header(PEER_HEADER).decode("latin-1")

    @property
    def forwarded_for(self) -> bytes:
        """Return all addresses that proxies have added."""
        request = self._request
        if not request.header(b"x-forwarded-for"):
            return b""
        return b",".join(
            value for name, value in request.headers if name.lower() == b"x-forwarded-for"
        )

    def respond(self, response: bytes) -> None:
        """Answer the request without a replica."""
        keeps_open = self._request.keeps_open and self._is_body_complete
        self._end(is_reusable=False)
        if self._request.method == b"HEAD":
            response = response[: response.index(b"\r\n\r\n") + 4]
        self._client.write(response)
        self._client.finished(keeps_open=keeps_open)

    def begin(self) -> None:
        """Check the request and forward it to a replica, or add it to the queue."""
        try:
            self._accept()
        except Refusal as refusal:
            self.refuse(refusal)

    def _accept(self) -> None:
        _check_form(self._request)
        endpoint, token = self._find_endpoint()
        self.endpoint, self.token = endpoint, token
        self._occupy(endpoint, token)
        if self._request.header(b"expect").lower() == b"100-continue":
            self._client.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        has_body = bool(self._request.content_length) or self._request.is_chunked
        if endpoint.route.prefix_characters and has_body:
            self._is_waiting_for_prefix = True
            self._prefix_arrived()
            return
        self._schedule()

    def _find_endpoint(self) -> tuple[Endpoint, Token | None]:
        """Return the endpoint if it accepts this request, and the token of the request."""
        request = self._request
        name = own_host_name(request.header(b"host"), self._gateway.domain)
        if name is None:
            name, self.target = split_path(request.path, self._gateway.prefix)
        elif request.path.startswith(b"/"):
            self.target = request.path
        else:
            raise _nothing_here()
        endpoint = self._gateway.routes.endpoint(name)
        token = endpoint.authorize(request.header(b"authorization"), self._client.address)
        if endpoint.route.is_paused:
            raise Refusal(
                HTTPStatus.SERVICE_UNAVAILABLE,
                "unavailable",
                "the endpoint is paused",
                retry_after=60,
            )
        if endpoint.route.protocol is ReplicaProtocol.GRPC:
            self._check_grpc(token)
        if (request.content_length or 0) > endpoint.route.max_body_bytes:
            raise _too_large(endpoint.route.max_body_bytes)
        return endpoint, token

    def _occupy(self, endpoint: Endpoint, token: Token | None) -> None:
        """Count the request, and refuse it if a limit of the owner or endpoint is exceeded."""
        owner, gateway = endpoint.owner, self._gateway
        limit = owner_limit(
            gateway.max_owner_requests, gateway.max_connections, gateway.running_requests
        )
        is_beyond_limit = owner.requests >= limit
        owner.requests += 1
        gateway.running_requests += 1
        owner.held_bytes += self._held
        (endpoint.anonymous if token is None else token.running).add(self)
        if is_beyond_limit:
            raise busy("the endpoints of the owner have too many connections")
        if owner.held_bytes > MAX_OWNER_HELD_BYTES:
            raise _too_many_bytes()
        if self._received > endpoint.route.max_body_bytes:
            raise _too_large(endpoint.route.max_body_bytes)

    def _check_grpc(self, token: Token | None) -> None:
        """Refuse a request to a gRPC server if it is a request that HAProxy never forwards."""
        if not self._request.is_grpc:
            reason = "the endpoint serves gRPC: requests need HTTP/2 and application/grpc"
        elif not self._gateway.is_behind_haproxy:
            raise no_grpc()
        elif token is not None and token.has_limits:
            reason = "a token with a limit of requests cannot be used for gRPC"
        else:
            return
        raise Refusal(HTTPStatus.NOT_IMPLEMENTED, "invalid-request", reason)

    def _schedule(self) -> None:
        """Forward the request to a replica, or add it to the queue."""
        endpoint = self.endpoint
        assert endpoint is not None
        # If requests are waiting, add this one to the queue, because they have precedence.
        replica = None if endpoint.queue else endpoint.choose(self.prefix)
        if replica is not None:
            self.start(replica)
            return
        self.queued_at = time.monotonic()
        endpoint.enqueue(self)
        if not endpoint.replicas:
            self._gateway.waits_for_replica()

    def request_body(self, piece: bytes) -> None:
        if self._is_over:
            return
        self._received += len(piece)
        endpoint = self.endpoint
        if endpoint is not None and self._received > endpoint.route.max_body_bytes:
            self.refuse(_too_large(endpoint.route.max_body_bytes))
            return
        if self._connection is not None:
            if endpoint is not None and not self.is_response_begun:
                # Restart the time limit of the replica while the body arrives.
                self.deadline = time.monotonic() + endpoint.route.request_seconds
            self._connection.write(self._framed(piece))
            return
        if self._hold(piece):
            self._prefix_arrived()

    def request_end(self) -> None:
        self._is_body_complete = True
        if self._is_over:
            return
        if self._connection is not None and self._request.is_chunked:
            self._connection.write(b"0\r\n\r\n")
        self._prefix_arrived()

    def _prefix_arrived(self) -> None:
        """Schedule a request that waited for the beginning of its prompt, if it has arrived."""
        if not self._is_waiting_for_prefix or self.endpoint is None:
            return
        # Reading from the client pauses at this limit, so do not wait for the rest of the body.
        is_complete = self._is_body_complete or self._held > MAX_HELD_BYTES
        if not is_complete and self._held < self._searched_at:
            return
        # Each search reads all pieces. Repeating it only when their size has doubled keeps the cost
        # linear in the size of the body.
        self._searched_at = 2 * self._held
        characters = self.endpoint.route.prefix_characters
        prefix = prompt_prefix(b"".join(self._body), characters, is_complete=is_complete)
        if prefix is None:
            return
        self._is_waiting_for_prefix = False
        self.prefix = prefix
        try:
            self._schedule()
        except Refusal as refusal:
            self.refuse(refusal)

    def request_raw(self, data: bytes) -> None:
        """Forward bytes of a websocket; keep them until the replica has accepted it.

        Bytes after a request for another protocol are dropped: the request is forwarded without the
        change of protocol, and the replica would read the bytes as another request.
        """
        if not self._request.is_websocket:
            return
        if self._is_tunnel and self._connection is not None:
            self.deadline = time.monotonic() + WEBSOCKET_IDLE_SECONDS
            self._connection.write(data)
            return
        self._hold(data)

    def _hold(self, piece: bytes) -> bool:
        """Keep bytes until a replica is connected. If there are too many, refuse the request and
        return False.
        """
        self._body.append(piece)
        self._held += len(piece)
        if self._held > MAX_HELD_BYTES:
            self._client.pause_reading()
        if self.endpoint is None:
            return True
        self.endpoint.owner.held_bytes += len(piece)
        if self.endpoint.owner.held_bytes > MAX_OWNER_HELD_BYTES:
            self.refuse(_too_many_bytes())
            return False
        return True

    def _release(self) -> None:
        """Drop the kept bytes, which were sent or are not needed."""
        if self.endpoint is not None:
            self.endpoint.owner.held_bytes -= self._held
        self._held, self._body = 0, []

    def client_lost(self) -> None:
        """Stop the request of a client that has disconnected."""
        self._end(is_reusable=False)

    def pause_response(self) -> None:
        if self._connection is not None:
            self._connection.pause_reading()

    def resume_response(self) -> None:
        if self._connection is not None:
            self._connection.resume_reading()
            if self.endpoint is not None and not self._is_tunnel:
                # Restart the time limit: the gateway had paused reading from the replica.
                self.deadline = time.monotonic() + self.endpoint.route.request_seconds

    def expire(self) -> None:
        """End the request, because the replica has sent nothing within the time limit."""
        if self._is_tunnel or self.is_response_begun:
            self._abort()
            return
        self._count(is_error=True)
        self.refuse(
            Refusal(
                HTTPStatus.GATEWAY_TIMEOUT, "unavailable", "the replica does not answer in time"
            )
        )

    # Replicas

    def start(self, replica: Replica) -> None:
        """Send the request to a replica, over an open connection if there is one."""
        assert self.endpoint is not None
        if replica.route.protocol is ReplicaProtocol.GRPC:
            # Only HAProxy can forward the request, so the client must send it again. Refuse it
            # after this call: if it ended within the call, the next waiting request would start.
            refusal = busy("a replica is ready: send the request again")
            asyncio.get_running_loop().call_soon(self.refuse, refusal)
            return
        self.replica = replica
        replica.outstanding += 1
        self.endpoint.in_flight += 1
        now = time.monotonic()
        while replica.idle:
            connection = replica.idle.pop()
            if connection.is_reusable(now):
                self._send(connection)
                return
            connection.close()
        self._connecting = asyncio.ensure_future(self._connect(replica))

    async def _connect(self, replica: Replica) -> None:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                _, connection = await loop.create_connection(
                    ReplicaConnection, replica.host, replica.port
                )
        except (OSError, TimeoutError):
            self._connecting = None
            self._retry(replica)
            return
        self._connecting = None
        self._send(connection)

    def _retry(self, replica: Replica) -> None:
        """Select another replica; nothing was sent to ``replica``."""
        # The next successful health check makes the replica ready again.
        replica.is_ready = False
        self._leave_replica()
        self._attempts += 1
        if self._attempts >= MAX_ATTEMPTS:
            self._count(is_error=True)
            self.refuse(_bad_gateway("no replica can be reached"))
            return
        try:
            self._schedule()
        except Refusal as refusal:
            self.refuse(refusal)

    def _send(self, connection: ReplicaConnection) -> None:
        replica, request = self.replica, self._request
        assert replica is not None and self.endpoint is not None
        self._connection = connection
        connection.attach(self, is_head_request=request.method == b"HEAD")
        own = [replica.authorization] if replica.authorization else []
        if request.is_websocket:
            own.append(b"Connection: Upgrade\r\nUpgrade: websocket\r\n")
        elif request.is_chunked:
            own.append(b"Transfer-Encoding: chunked\r\n")
        elif request.content_length is not None:
            own.append(b"Content-Length: %d\r\n" % request.content_length)
        head = request_head(
            request.method, replica.base_path + self.target, request.headers, own,
            self._client.address,
        )  # fmt: skip
        self.deadline = time.monotonic() + self.endpoint.route.request_seconds
        pieces = [head]
        if not request.is_websocket:
            pieces += map(self._framed, self._body)
            if request.is_chunked and self._is_body_complete:
                pieces.append(b"0\r\n\r\n")
            if self._held:
                # Resume before the write, because the write may pause reading again.
                self._release()
                self._client.resume_reading()
        connection.write(b"".join(pieces))

    def _framed(self, piece: bytes) -> bytes:
        return b"%x\r\n%b\r\n" % (len(piece), piece) if self._request.is_chunked else piece

    # Response: methods for the connection to the replica

    def response_head(self, status: int, headers: Headers) -> None:
        request, endpoint = self._request, self.endpoint
        assert endpoint is not None
        if status == 101 and not request.is_websocket:
            return
        self._status = status
        self.is_response_begun = True
        self._count(is_error=status >= 500)
        self.deadline = time.monotonic() + endpoint.route.request_seconds
        if not self._is_body_complete:
            # Nothing reads the rest of the body, so the connection cannot be reused.
            request.keeps_open = False
        length, content_type, is_encoded, is_framed = _facts(headers)
        self._ends_with_connection = not is_framed
        own = []
        if status == 101:
            own.append(b"Connection: Upgrade\r\nUpgrade: websocket\r\n")
        elif length is not None and status not in _WITHOUT_BODY:
            own.append(b"Content-Length: %d\r\n" % length)
        elif status not in _WITHOUT_BODY and request.method != b"HEAD":
            if request.version == "1.1":
                self._is_chunked = True
                own.append(b"Transfer-Encoding: chunked\r\n")
            else:
                request.keeps_open = False
        if status != 101 and not request.keeps_open:
            own.append(b"Connection: close\r\n")
        elif request.version == "1.0":
            own.append(b"Connection: keep-alive\r\n")
        if self.token is not None and not is_encoded and content_type in _WITH_USAGE:
            self._usage = UsageReader()
        self._out.append(response_head(status, headers, own))

    def response_body(self, piece: bytes) -> None:
        if self._is_chunked:
            self._out.append(b"%x\r\n%b\r\n" % (len(piece), piece))
        else:
            self._out.append(piece)
        if self._usage is not None:
            self._usage.add(piece)

    def flush(self) -> None:
        if self._out and not self._is_over:
            assert self.endpoint is not None
            seconds = (
                WEBSOCKET_IDLE_SECONDS if self._is_tunnel else self.endpoint.route.request_seconds
            )
            self.deadline = time.monotonic() + seconds
            self._client.write(b"".join(self._out))
            self._out = []

    def response_end(self) -> None:
        if self._is_chunked:
            self._out.append(b"0\r\n\r\n")
        self.flush()
        keeps_open = self._request.keeps_open and self._is_body_complete
        self._end(is_reusable=self._is_body_complete)
        self._client.finished(keeps_open=keeps_open)

    def response_upgraded(self) -> None:
        if not self._request.is_websocket:
            self.response_lost(is_broken=True)
            return
        self._is_tunnel = True
        self.flush()
        held = self._body
        self._release()
        # Resume before the write, because the write may pause reading again.
        self._client.resume_reading()
        if self._connection is not None and held:
            self._connection.write(b"".join(held))

    def response_lost(self, *, is_broken: bool) -> None:
        if self._is_over:
            return
        if self._is_tunnel:
            self._end(is_reusable=False)
            self._client.finished(keeps_open=False)
        elif not self.is_response_begun:
            self._count(is_error=True)
            self.refuse(_bad_gateway("the replica closed the connection without a response"))
        elif self._ends_with_connection and not is_broken:
            self.response_end()
        else:
            self._abort()

    def pause_request(self) -> None:
        self._client.pause_reading()

    def resume_request(self) -> None:
        self._client.resume_reading()

    # Ends

    def refuse(self, refusal: Refusal) -> None:
        """Respond with an error; if a response has begun, close the connection instead."""
        if self._is_over:
            return
        if self.is_response_begun:
            self._abort()
            return
        if self.endpoint is not None and refusal.status is HTTPStatus.SERVICE_UNAVAILABLE:
            self._count(is_error=True)
        keeps_open = self._request.keeps_open and self._is_body_complete
        if self._request.is_grpc and self._gateway.is_behind_haproxy:
            self.respond(refusal.grpc_response(closes=not keeps_open))
            return
        has_body = self._request.method != b"HEAD"
        self.respond(refusal.response(closes=not keeps_open, has_body=has_body))

    def _abort(self) -> None:
        self._end(is_reusable=False)
        self._client.abort()

    def _count(self, *, is_error: bool) -> None:
        if self._was_counted or self.endpoint is None:
            return
        self._was_counted = True
        revision = self.replica.route.revision_id if self.replica is not None else ""
        seconds = time.monotonic() - self._started_at
        self._gateway.measures.request(self.endpoint.route.id, revision, seconds, is_error=is_error)

    def _end(self, *, is_reusable: bool) -> None:
        """Release the replica, the token and the position in the queue; idempotent."""
        if self._is_over:
            return
        self._is_over = True
        self.deadline = float("inf")
        self._release()
        endpoint, token, replica = self.endpoint, self.token, self.replica
        if endpoint is None:
            return
        endpoint.owner.requests -= 1
        self._gateway.running_requests -= 1
        if tracing.is_on():
            self._record_span(endpoint)
        if self._connecting is not None:
            self._connecting.cancel()
        connection, self._connection = self._connection, None
        if connection is not None:
            if (
                is_reusable
                and not self._request.is_websocket
                and replica is not None
                and not (replica.is_gone or replica.route.is_draining)
            ):
                connection.keep(replica.idle, time.monotonic())
            else:
                connection.close()
        endpoint.anonymous.discard(self)
        if token is not None:
            token.running.discard(self)
        if self.is_response_begun:
            usage = self._usage.result() if self._usage is not None else (0, 0)
            owner = ANONYMOUS + endpoint.route.id if token is None else token.route.id
            self._gateway.measures.token(owner, usage)
        if replica is None and self in endpoint.queue:
            endpoint.queue.remove(self)
        self._leave_replica()
        endpoint.dispatch()

    def _record_span(self, endpoint: Endpoint) -> None:
        """Record the request as a span; neither its path nor its client is recorded."""
        now = datetime.now(UTC)
        status = self._status
        tracing.record(
            "gateway request",
            parent=None,
            started_at=now - timedelta(seconds=time.monotonic() - self._started_at),
            ended_at=now,
            attributes={
                "bai.endpoint.id": endpoint.route.id,
                "http.request.method": self._request.method.decode("latin-1"),
                "http.response.status_code": status,
            },
            error=f"status {status}" if status >= HTTPStatus.INTERNAL_SERVER_ERROR else None,
        )

    def _leave_replica(self) -> None:
        replica, self.replica = self.replica, None
        if replica is None or self.endpoint is None:
            return
        replica.outstanding -= 1
        self.endpoint.in_flight -= 1
        if replica.is_drained:
            self._gateway.drained()


def split_path(path: bytes, prefix: bytes) -> tuple[bytes, bytes]:
    """Return the endpoint's name and the path for the replica, with its query.

    >>> split_path(b"/services/bai-serve/chat/v1/models?x=1", b"/services/bai-serve")
    (b'chat', b'/v1/models?x=1')

    Raises
    ------
    Refusal
        If the path is not below the prefix.
    """
    if not path.startswith(prefix + b"/"):
        raise _nothing_here()
    rest = path[len(prefix) + 1 :]
    bare, question, query = rest.partition(b"?")
    name, slash, below = bare.partition(b"/")
    return name, b"/" + below + question + query


def own_host_name(host: bytes, domain: bytes) -> bytes | None:
    """Return the endpoint's name in the header ``Host``; None if it is not below the domain.

    >>> own_host_name(b"Chat.serve.example.org:443", b"serve.example.org")
    b'chat'
    """
    if not domain:
        return None
    bare = host.partition(b":")[0].lower()
    return bare[: -len(domain) - 1] if bare.endswith(b"." + domain) else None


_WITH_USAGE = frozenset({b"application/json", b"text/event-stream"})


def _facts(headers: Headers) -> tuple[int | None, bytes, bool, bool]:
    """Return the length and the media type of the body, whether it is compressed, and whether its
    end is known.
    """
    length: int | None = None
    content_type, is_encoded, is_chunked = b"", False, False
    for name, value in headers:
        lower = name.lower()
        if lower == b"content-length":
            length = int(value)
        elif lower == b"content-type":
            content_type = value.partition(b";")[0].strip().lower()
        elif lower == b"content-encoding":
            is_encoded = value.strip().lower() not in (b"", b"identity")
        elif lower == b"transfer-encoding":
            is_chunked = True
    is_framed = is_chunked or length is not None
    return (None if is_chunked else length), content_type, is_encoded, is_framed


def no_grpc() -> Refusal:
    return Refusal(HTTPStatus.NOT_IMPLEMENTED, "invalid-request", _NO_GRPC)


def _check_form(request: Request) -> None:
    """Refuse requests of a form that the gateway does not forward."""
    if request.version not in ("1.1", "1.0"):
        raise Refusal(
            HTTPStatus.HTTP_VERSION_NOT_SUPPORTED,
            "invalid-request",
            "the gateway serves HTTP/1.1 and HTTP/1.0",
        )
    if b"#" in request.path:
        raise Refusal(
            HTTPStatus.BAD_REQUEST, "invalid-request", "the address has a part after a '#'"
        )
    if request.method in (b"CONNECT", b"TRACE"):
        raise Refusal(
            HTTPStatus.NOT_IMPLEMENTED,
            "invalid-request",
            "the gateway does not serve this method",
        )
    if request.is_ambiguous:
        raise Refusal(
            HTTPStatus.BAD_REQUEST,
            "invalid-request",
            "the headers Host and Authorization must not be repeated",
        )
    if request.is_chunked and request.header(b"transfer-encoding").lower() != b"chunked":
        raise Refusal(
            HTTPStatus.NOT_IMPLEMENTED, "invalid-request", "the only transfer coding is chunked"
        )
    if request.is_websocket and (request.content_length or request.is_chunked):
        # The replica would read the body as another request.
        raise Refusal(
            HTTPStatus.BAD_REQUEST,
            "invalid-request",
            "a request for a websocket cannot have a body",
        )


def _nothing_here() -> Refusal:
    return Refusal(HTTPStatus.NOT_FOUND, "not-found", "there is nothing at this address")


def _too_large(limit: int) -> Refusal:
    return Refusal(
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        "too-large",
        f"the body is larger than {limit} bytes, the limit of this endpoint",
    )


def _too_many_bytes() -> Refusal:
    return busy("the bodies of the waiting requests are too large")


def _bad_gateway(message: str) -> Refusal:
    return Refusal(HTTPStatus.BAD_GATEWAY, "unavailable", message)
