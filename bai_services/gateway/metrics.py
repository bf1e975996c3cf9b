"""Metrics of the gateway in the Prometheus text format.

Labels have only values that the manager has chosen: names of existing endpoints. The counters of a
deleted endpoint are discarded.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate

from .measures import LATENCY_BOUNDS, Requests
from .routes import Endpoint

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
# Maximum number of endpoints with their own labels; the others are summed under "other".
MAX_ENDPOINTS = 1000
OTHER = "other"

Sample = tuple[str, str, float]  # suffix of the name, further labels, value


def text(endpoints: Iterable[Endpoint], totals: Mapping[str, Requests]) -> str:
    """Return the metrics; ``totals`` are the requests of each endpoint since the start."""
    rows: dict[str, tuple[Requests, list[Endpoint]]] = {}
    for endpoint in sorted(endpoints, key=lambda each: each.route.name):
        label = endpoint.route.name if len(rows) < MAX_ENDPOINTS else OTHER
        counted, members = rows.setdefault(label, (Requests(), []))
        counted.include(totals.get(endpoint.route.id, Requests()))
        members.append(endpoint)
    return "".join(_lines(rows))


def _lines(rows: Mapping[str, tuple[Requests, list[Endpoint]]]) -> Iterator[str]:
    for name, kind, meaning, samples in (
        ("requests_total", "counter", "Requests that were answered.", _requests),
        ("errors_total", "counter", "Requests with a status of 500 or more.", _errors),
        ("request_seconds", "histogram", "Time to the head of the response.", _latency),
        ("in_flight", "gauge", "Requests at replicas.", _in_flight),
        ("queued", "gauge", "Requests that wait for a replica.", _queued),
        ("ready_replicas", "gauge", "Replicas that passed their health check.", _ready),
    ):
        full = f"bai_gateway_{name}"
        yield f"# HELP {full} {meaning}\n# TYPE {full} {kind}\n"
        for label, (counted, members) in rows.items():
            for suffix, more, value in samples(counted, members):
                yield f'{full}{suffix}{{endpoint="{label}"{more}}} {value:.15g}\n'


def _requests(counted: Requests, _: list[Endpoint]) -> Iterator[Sample]:
    yield "", "", counted.requests


def _errors(counted: Requests, _: list[Endpoint]) -> Iterator[Sample]:
    yield "", "", counted.errors


def _latency(counted: Requests, _: list[Endpoint]) -> Iterator[Sample]:
    counts = accumulate(counted.latency_ms.get(bound, 0) for bound in LATENCY_BOUNDS)
    for bound, count in zip(LATENCY_BOUNDS[:-1], counts, strict=False):
        yield "_bucket", f',le="{bound / 1000:g}"', count
    yield "_bucket", ',le="+Inf"', counted.requests
    yield "_sum", "", counted.seconds
    yield "_count", "", counted.requests


def _in_flight(_: Requests, members: list[Endpoint]) -> Iterator[Sample]:
    yield "", "", sum(endpoint.load.in_flight for endpoint in members)


def _queued(_: Requests, members: list[Endpoint]) -> Iterator[Sample]:
    yield "", "", sum(endpoint.load.queued for endpoint in members)


def _ready(_: Requests, members: list[Endpoint]) -> Iterator[Sample]:
    yield (
        "",
        "",
        sum(
            replica.is_ready and not replica.route.is_draining
            for endpoint in members
            for replica in endpoint.replicas.values()
        ),
    )


def may_read(authorization: bytes, token: str) -> bool:
    """Return whether a request has the token of Prometheus; False if no token is configured."""
    expected = b"Bearer " + token.encode()
    return bool(token) and hmac.compare_digest(
        hashlib.sha256(authorization).digest(), hashlib.sha256(expected).digest()
    )
