"""HAProxy's configuration: fixed backends and server slots, and maps whose entries the gateway
sets.

HAProxy forwards a request to a replica if the maps contain its endpoint and token, the token may be
used from the client's address, and HAProxy can enforce all limits that apply to the request. It
forwards any other request to the gateway, which has the same routing table.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

from bai_services.core.serving.token_usage import USAGE_PATHS

from ..heads import NOT_FOR_CLIENTS, NOT_FOR_REPLICAS, OF_PROXIES, PEER_HEADER, SAFETY
from ..limits import (
    BODY_SECONDS,
    CONNECT_SECONDS,
    HEAD_SECONDS,
    IDLE_SECONDS,
    MAX_HEAD_BYTES,
    MAX_HEADERS,
    REUSE_SECONDS,
    STALLED_SECONDS,
    WEBSOCKET_IDLE_SECONDS,
)

# Each map is an empty file; its entries exist only in HAProxy's memory.
MAPS = ("trusted", "tokens", "pools", "secrets", "limits", "owners")
# Shares of revisions are multiples of 1/100.
SHARES = 100
# Value of a token that the gateway itself checks.
UNDECIDED = "undecided"
# Value of an endpoint with several pools, chosen by share; their keys are NAME/:0 to NAME/:99.
# Clients cannot send such a name: names in paths contain no slash, names in host names no colon.
BY_SHARE = "by-share"
# Value of a network of other trusted proxies, whose X-Forwarded-For the gateway evaluates.
NAMED_PROXY = "named"
# Each connection for gRPC begins with the secret of the replicas (core/serving/replica_preface).
_GRPC = " proto h2 send-proxy-v2 proxy-v2-options unique-id"
# Headers that HAProxy writes itself.
_OWN = frozenset({b"connection", b"content-length", b"te", b"transfer-encoding", b"upgrade"})
# Buffer space for rewritten headers.
_REWRITE_BYTES = 8192
_STICK_ENTRIES = 100_000
_RETRY_AFTER = " hdr Retry-After 5"
# Maximum `request_seconds` of an endpoint. It is also HAProxy's timeout for requests that it
# forwards to the gateway; the gateway enforces the limits of endpoints.
MAX_REQUEST_SECONDS = 86_400.0


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of the engine."""

    prefix: str  # path before the names of endpoints, without a slash at the end
    domain: str  # endpoints are also at NAME.DOMAIN; "": no own host names
    pools: int  # pairs of endpoint and revision that HAProxy serves
    slots: int  # replicas in each pool
    threads: int  # 0: one for each processor
    queue_seconds: int
    max_connections: int
    max_owner_requests: int  # limit for all endpoints of an owner together


def pool_name(number: int) -> str:
    return f"pool{number}"


def grpc_name(pool: str) -> str:
    """Return the name of the pool's backend for replicas with gRPC."""
    return f"{pool}_grpc"


def slot_name(number: int) -> str:
    return f"s{number}"


def control_socket(folder: Path) -> Path:
    return folder / "control"


def gateway_socket(folder: Path) -> Path:
    return folder / "gateway"


def map_file(folder: Path, name: str) -> Path:
    return folder / f"{name}.map"


def configuration(settings: Settings, folder: Path, listening: int) -> str:
    """Return the configuration; ``listening`` is the file descriptor of the listening socket."""
    sections = [_global(settings, folder), _defaults(settings)]
    sections += [
        _frontend(settings, folder, listening),
        _gateway("gateway", folder),
        # HAProxy 2.6 would keep the connection open after a response of unknown length.
        _gateway("gateway_closing", folder, "option httpclose"),
    ]
    sections += [
        f"backend {name} from base\n"
        f"  stick-table type string len 128 size {_STICK_ENTRIES} expire 1h store {counter}\n"
        for name, counter in (
            ("requests", "http_req_cnt"),
            ("streams", "conn_cur"),
            ("owners", "conn_cur"),
        )
    ]
    pools = [pool_name(number) for number in range(settings.pools)]
    sections.append(_section("defaults pools from base", _pool_rules(settings, folder)))
    sections += [_pool(name, settings.slots, "pools", "") for name in pools]
    sections.append(_section("defaults grpc_pools from base", _grpc_rules(settings, folder)))
    sections += [_pool(grpc_name(name), settings.slots, "grpc_pools", _GRPC) for name in pools]
    return "\n".join(sections)


def _global(settings: Settings, folder: Path) -> str:
    threads = f"  nbthread {settings.threads}\n" if settings.threads else ""
    return (
        "global\n"
        f"  stats socket {control_socket(folder)} mode 600 level admin\n"
        f"  maxconn {settings.max_connections}\n"
        f"  tune.bufsize {MAX_HEAD_BYTES + _REWRITE_BYTES}\n"
        f"  tune.maxrewrite {_REWRITE_BYTES}\n"
        f"  tune.http.maxhdr {MAX_HEADERS}\n{threads}"
    )


def _defaults(settings: Settings) -> str:
    lines = [
        "mode http",
        "option abortonclose",
        "option http-no-delay",
        "option redispatch 1",
        "retries 2",
        "retry-on conn-failure",
        "http-reuse safe",
        f"timeout connect {_ms(CONNECT_SECONDS)}",
        f"timeout client {_ms(STALLED_SECONDS)}",
        f"timeout server {_ms(MAX_REQUEST_SECONDS)}",
        f"timeout tunnel {_ms(WEBSOCKET_IDLE_SECONDS)}",
        f"timeout http-request {_ms(HEAD_SECONDS)}",
        f"timeout http-keep-alive {_ms(IDLE_SECONDS)}",
        f"timeout queue {_ms(settings.queue_seconds)}",
        _error(400, "the request is not valid HTTP, or too large", code="invalid-request"),
        _error(408, "the request did not arrive in time", code="invalid-request"),
        _error(500, "HAProxy has an internal error", code="internal"),
        _error(502, "the replica closed the connection without a response"),
        _error(503, "no replica is free", _RETRY_AFTER),
        _error(504, "the replica does not answer in time"),
    ]
    return _section("defaults base", lines)


def _frontend(settings: Settings, folder: Path, listening: int) -> str:
    lines = [
        f"bind fd@{listening}",
        # Evaluated once for each connection.
        "tcp-request session set-var-fmt(sess.origin) @%[src]:%[src_port]",
        "unique-id-format %[var(txn.secret)]",
        *_request_variables(settings, folder),
        *_request_conditions(),
        *_backend_choice(),
    ]
    for line in SAFETY.decode().strip().split("\r\n"):
        name, value = line.split(": ", 1)
        lines.append(f'http-response set-header {name} "{value}"')
    return _section("frontend clients from base", lines)


def _request_variables(settings: Settings, folder: Path) -> list[str]:
    """Return the rules that set variables from a request and from the maps."""
    trusted, pools = map_file(folder, "trusted"), map_file(folder, "pools")
    return [
        _set("client src"),
        _set(f"peer src,map_ip({trusted})"),
        _set(
            "client req.hdr_ip(x-forwarded-for,-1) if { var(txn.peer) -m found } "
            "{ req.fhdr(x-forwarded-for) -m found }"
        ),
        _set(f"proxy var(txn.client),map_ip({trusted})"),
        *_names(settings.domain, settings.prefix),
        _set("digest http_auth_bearer,sha2(256),hex"),
        # 8 hex digits for IPv4, 32 for IPv6.
        _set("client_hex var(txn.client),hex"),
        _set("digits var(txn.client_hex),length"),
        # Use a converter, because it is faster than a format.
        _set(
            "key var(txn.name),concat(/,txn.digest,/),concat(,txn.digits,:),concat(,txn.client_hex)"
        ),
        _set(f"token var(txn.key),map_beg({map_file(folder, 'tokens')})"),
        *_owner_rules(settings, folder),
        # HAProxy has no time limit for bodies, so replicas get only requests with complete bodies.
        f"http-request wait-for-body time {_ms(BODY_SECONDS)} "
        f"if {{ req.hdr_val(content-length) 1:{MAX_HEAD_BYTES} }}",
        "acl has_length req.fhdr(content-length) -m found",
        _set("length req.hdr_val(content-length) if has_length"),
        _set("received req.body_len if has_length"),
        _set("expires var(txn.token),field(1,/)"),
        "acl has_no_end var(txn.expires) -m str 0",
        _set("now date unless has_no_end"),
        _set("owner var(txn.token),field(2,/)"),
        _set("stream var(txn.owner),concat(,sess.origin)"),
        _set(f"pool var(txn.name),map_str({pools})"),
        f"acl is_by_share var(txn.pool) -m str {BY_SHARE}",
        _set(f"turn rand({SHARES}) if is_by_share"),
        _format("share", "%[var(txn.name)]/:%[var(txn.turn)]") + " if is_by_share",
        _set(f"pool var(txn.share),map_str({pools}) if is_by_share"),
        _set(f"limits var(txn.pool),map_str({map_file(folder, 'limits')})"),
        _set("max_body var(txn.limits),field(3,/) if has_length"),
    ]


def _request_conditions() -> list[str]:
    """Return the named conditions for `_backend_choice`."""
    return [
        "acl has_pool var(txn.limits) -m found",
        "acl has_token var(txn.token) -m found",
        f"acl is_undecided var(txn.token) -m str {UNDECIDED}",
        f"acl is_proxy var(txn.proxy) -m str {NAMED_PROXY}",
        "acl is_unusual method CONNECT TRACE",
        "acl is_unusual req.fhdr(transfer-encoding) -m found",
        # A condition on a header holds if any of its lines matches.
        "acl is_unusual req.fhdr_cnt(connection) gt 1",
        "acl is_unusual req.fhdr_cnt(upgrade) gt 1",
        "acl is_unusual req.fhdr_cnt(authorization) gt 1",
        # HAProxy would forward control characters; the gateway rejects them.
        r"acl is_unusual req.hdrs -m reg '[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]'",
        r'acl is_unusual url -m sub "\x7f"',
        # HAProxy would ignore the text after the comma.
        "acl is_unusual req.fhdr(authorization) -m sub ,",
        # HAProxy would ignore the port of an address, and a zero before its numbers.
        r"acl is_unusual req.fhdr(x-forwarded-for) -m reg '\.[0-9]+:|(^|[,. \t])0[0-9]'",
        # An IPv4 address inside an IPv6 address.
        "acl is_unusual var(txn.client_hex) -m beg 00000000000000000000FFFF",
        _set("path path,url_dec"),
        "acl has_path var(txn.path) -m found",
        f"acl has_usage var(txn.path) -m sub -i {' '.join(USAGE_PATHS)}",
        "acl is_path url -m beg /",
        "acl is_http_2 req.ver 2.0",
        "acl has_connection req.fhdr(connection) -m found",
        "acl is_plain_connection req.fhdr(connection) -i keep-alive close upgrade",
        "acl has_upgrade req.fhdr(upgrade) -m found",
        "acl is_websocket req.fhdr(upgrade) -i websocket",
        "acl is_too_large req.fhdr(content-length),sub(txn.max_body) gt 0",
        "acl is_incomplete var(txn.length),sub(txn.received) gt 0",
        "acl is_bodiless method GET HEAD DELETE OPTIONS",
        "acl is_grpc req.fhdr(content-type) -m reg -i ^application/grpc([+;]|$)",
        "acl has_grpc_pool var(txn.pool) -m end _grpc",
        "acl is_valid var(txn.expires),sub(txn.now) gt 0",
    ]


def _backend_choice() -> list[str]:
    """Return the rules that choose a backend: the first rule whose condition holds applies.

    The gateway's process gets the requests that HAProxy must not forward to a replica itself.
    """
    return [
        "use_backend gateway_closing if HTTP_1.0",
        "use_backend gateway if !has_pool or !has_token or is_undecided or is_proxy or is_unusual",
        # In HTTP/2, HAProxy builds the URL from path and host name.
        "use_backend gateway if !is_path !is_http_2",
        "use_backend gateway if has_connection !is_plain_connection",
        "use_backend gateway if has_upgrade !is_websocket or has_upgrade has_length",
        "use_backend gateway if !has_no_end !is_valid",
        # The gateway reads the input and output tokens of the responses.
        "use_backend gateway if has_usage !has_grpc_pool or !has_path",
        # The gateway refuses other requests to gRPC servers.
        "use_backend gateway if has_grpc_pool !is_grpc or has_grpc_pool !is_http_2",
        "use_backend gateway if has_length is_too_large",
        "use_backend %[var(txn.pool)] if has_grpc_pool",
        # The gateway limits bodies of unknown length by counting their bytes.
        "use_backend gateway if !has_length !is_bodiless",
        "use_backend gateway if has_length is_incomplete",
        # An HTTP/2 request may always have a body without a length.
        "use_backend gateway if is_http_2 !has_length",
        "use_backend %[var(txn.pool)]",
        "default_backend gateway",
    ]


def _owner_rules(settings: Settings, folder: Path) -> list[str]:
    """Return the rules that limit the requests of an owner (see ``owner_limit``).

    They also apply to requests that HAProxy forwards to the gateway. The number of connections
    includes the connection of the request, and idle connections, because they also occupy HAProxy.
    """
    full = f"'{_refusal('the endpoints of the owner have too many connections')}'"
    refuse = f"http-request return status 503 content-type application/json string {full}"
    return [
        _set(f"endpoint_owner var(txn.name),map_str({map_file(folder, 'owners')})"),
        "http-request track-sc2 var(txn.endpoint_owner) table owners "
        "if { var(txn.token) -m found } { var(txn.endpoint_owner) -m found }",
        _set(f"free fe_conn,neg,add({settings.max_connections + 1})"),
        f"{refuse}{_RETRY_AFTER} if {{ sc2_conn_cur(owners) gt {settings.max_owner_requests} }} "
        "or { sc2_conn_cur(owners),sub(txn.free) gt 0 }",
    ]


def _names(domain: str, prefix: str) -> list[str]:
    """Return the rules that set the endpoint's name from the host name, or from the path."""
    below = f"{{ path_beg {prefix}/ }}"
    from_path = f"name path,field({prefix.count('/') + 2},/) if {below}"
    if not domain:
        return [_set(from_path)]
    return [
        _set("host req.fhdr(host),field(1,:),lower"),
        f"acl is_own_host var(txn.host) -m end .{domain}",
        _format("expected", f"%[var(txn.host),field(1,.)].{domain}"),
        _set(f"{from_path} !is_own_host"),
        _set("name var(txn.host),field(1,.) if { var(txn.host),strcmp(txn.expected) eq 0 }"),
    ]


def _gateway(name: str, folder: Path, *options: str) -> str:
    lines = [
        *options,
        f"http-request set-header {PEER_HEADER.decode()} %[src]",
        f"server gateway unix@{gateway_socket(folder)}",
    ]
    return _section(f"backend {name} from base", lines)


def _pool_rules(settings: Settings, folder: Path) -> list[str]:
    return [
        *_grpc_rules(settings, folder),
        # gRPC needs this header.
        "http-request del-header te",
        'http-request set-header Authorization "token %[var(txn.secret)]" '
        "if { var(txn.secret) -m found }",
    ]


def _grpc_rules(settings: Settings, folder: Path) -> list[str]:
    own_host = f" unless {{ var(txn.host) -m end .{settings.domain} }}" if settings.domain else ""
    busy = f"'{_refusal('too many requests wait already')}'"
    invalid = f"'{_refusal('the response of the replica is not valid')}'"
    return [
        "balance leastconn",
        # The gateway removes these headers from the responses that it forwards itself.
        f"http-response del-header {_one_of(NOT_FOR_CLIENTS)} -m reg",
        # HAProxy writes these headers itself; it would also forward other values. Reverse proxies
        # remove each header that `Connection` names, for example Content-Security-Policy.
        # Rules with names need less time than one with a regular expression.
        "http-response del-header connection unless { status 101 }",
        "http-response del-header upgrade unless { status 101 }",
        # HAProxy would forward the body of such a response without its length.
        f"http-response return status 502 content-type application/json string {invalid} "
        "unless { status 101 200:599 }",
        _set("max_queue var(txn.limits),field(1,/) if { be_conn_free lt 1 }"),
        f"http-request return status 503 content-type application/json string {busy}{_RETRY_AFTER} "
        "if { be_conn_free lt 1 } { queue,sub(txn.max_queue) ge 0 }",
        "http-request track-sc0 var(txn.owner) table requests if { var(txn.owner) -m found }",
        "http-request track-sc1 var(txn.stream) table streams if { var(txn.owner) -m found }",
        "http-request set-timeout server var(txn.limits),field(2,/)",
        f"http-request replace-path ^{re.escape(settings.prefix)}/[^/]*/?(.*)$ /\\1{own_host}",
        f"http-request del-header {_not_for_replicas()} -m reg",
        _set(f"secret var(txn.pool),map_str({map_file(folder, 'secrets')})"),
        "http-request set-header X-Forwarded-For %[var(txn.client)]",
    ]


def _pool(name: str, slots: int, rules: str, protocol: str) -> str:
    purge = f"pool-purge-delay {_ms(REUSE_SECONDS)}"
    lines = [f"server-template s 1-{slots} 127.0.0.1:1 disabled maxconn 1 {purge}{protocol}"]
    return _section(f"backend {name} from {rules}", lines)


def _section(title: str, lines: list[str]) -> str:
    return f"{title}\n" + "".join(f"  {line}\n" for line in lines)


def _set(variable: str) -> str:
    name, expression = variable.split(" ", 1)
    return f"http-request set-var(txn.{name}) {expression}"


def _format(name: str, text: str) -> str:
    return f'http-request set-var-fmt(txn.{name}) "{text}"'


def _error(status: int, message: str, more: str = "", code: str = "unavailable") -> str:
    body = _refusal(message, code)
    return f"http-error status {status} content-type application/json string '{body}'{more}"


def _refusal(message: str, code: str = "unavailable") -> str:
    return json.dumps({"error": code, "message": message, "details": {}})


def _one_of(headers: frozenset[bytes]) -> str:
    """Return a regular expression for header names, except headers that HAProxy writes itself."""
    return f"^({'|'.join(sorted(name.decode() for name in headers - _OWN))})$"


def _not_for_replicas() -> str:
    """Return one expression for all of these headers: each one is matched with every header."""
    names = _with_underscores(f"{_one_of(NOT_FOR_REPLICAS)}|^{OF_PROXIES.decode()}")
    return f"{names}|^(content_length|transfer_encoding)$"


def _with_underscores(pattern: str) -> str:
    """Let a regular expression for header names also match ``_`` for ``-``."""
    return pattern.replace("-", "[-_]")


def _ms(seconds: float) -> str:
    return f"{round(seconds * 1000)}ms"
