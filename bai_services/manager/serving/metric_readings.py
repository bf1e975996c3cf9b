"""Read the metrics of runtimes from replicas, and the results of Prometheus queries.

Reads run concurrently with the loop of endpoints. Their results are used for ``FRESH_SECONDS``.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass

from aiohttp import (
    ClientError,
    ClientResponse,
    ClientSession,
    ClientTimeout,
    DummyCookieJar,
    TCPConnector,
)
from yarl import URL

from bai_services.core.serving.runtime_metrics import (
    MAX_ANSWER_BYTES,
    MAX_PAGE_BYTES,
    MetricReading,
    read_metric,
    read_query_answer,
)
from bai_services.db.serving.replicas import ReplicaRow

from .background import BackgroundCalls
from .replica_launch import ReplicaSecrets

METRICS_HEADER = "X-Bai-Metrics"
READ_SECONDS = 5.0
QUERY_SECONDS = 10.0
FRESH_SECONDS = 30.0
_TIMEOUT = ClientTimeout(total=4.0)
# Bodies are not decompressed: a small body could expand without bound.
_PLAIN = {"Accept-Encoding": "identity"}
MAX_CONCURRENT = 128
# Reads may hang until their timeout: one owner's reads must not delay those of others.
MAX_PER_OWNER = 16


@dataclass(slots=True)
class _Series:
    """The last two readings of a metric of a replica."""

    name: str
    tried_at: float
    last: MetricReading | None = None
    before: MetricReading | None = None


@dataclass(slots=True)
class _Result:
    """The last result of a query; ``problem`` is the reason if there is no result."""

    query: str
    tried_at: float
    answered_at: float | None = None
    value: float | None = None
    problem: str = "no answer yet"


class MetricReadings:
    def __init__(
        self,
        secrets: ReplicaSecrets,
        prometheus_url: str,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """``prometheus_url``: URL of the Prometheus server, "" without one."""
        self._secrets = secrets
        self._prometheus = prometheus_url
        self._monotonic = monotonic
        self._series: dict[str, _Series] = {}
        self._results: dict[str, _Result] = {}
        self._calls = BackgroundCalls(MAX_CONCURRENT, MAX_PER_OWNER)
        self._session: ClientSession | None = None

    def of_replica(self, replica: ReplicaRow, owner_id: str, path: str, name: str) -> float | None:
        """Return the recent load of a replica by a metric, None if unknown; begin the next read if
        it is due.
        """
        now = self._monotonic()
        series = self._series.get(replica.id)
        if series is None or series.name != name:
            series = self._series[replica.id] = _Series(name, now - READ_SECONDS)
        is_due = now - series.tried_at >= READ_SECONDS
        if is_due and self._calls.may_begin(replica.id, owner_id):
            series.tried_at = now
            self._calls.begin(replica.id, owner_id, self._read(replica, path, series))
        if series.last is None or now - series.last.seconds > FRESH_SECONDS:
            return None
        return series.last.load_since(name, series.before)

    def of_query(self, endpoint_id: str, owner_id: str, query: str) -> float | str:
        """Return the recent result of a query, or why it is unknown; begin the next query if it is
        due.
        """
        if not self._prometheus:
            return "no Prometheus server is configured: BAI_PROMETHEUS_URL"
        now = self._monotonic()
        result = self._results.get(endpoint_id)
        if result is None or result.query != query:
            result = self._results[endpoint_id] = _Result(query, now - QUERY_SECONDS)
        is_due = now - result.tried_at >= QUERY_SECONDS
        if is_due and self._calls.may_begin(endpoint_id, owner_id):
            result.tried_at = now
            self._calls.begin(endpoint_id, owner_id, self._ask(result))
        if result.value is None or result.answered_at is None:
            return result.problem
        return result.value if now - result.answered_at <= FRESH_SECONDS else result.problem

    def keep(self, ids: Collection[str]) -> None:
        """Discard the readings of all other replicas and endpoints."""
        self._series = {key: each for key, each in self._series.items() if key in ids}
        self._results = {key: each for key, each in self._results.items() if key in ids}

    async def finish(self) -> None:
        """Wait for the reads that are running."""
        await self._calls.finish()

    async def close(self) -> None:
        await self._calls.close()
        if self._session is not None:
            await self._session.close()

    async def _read(self, replica: ReplicaRow, path: str, series: _Series) -> None:
        try:
            async with self._http.get(
                URL(replica.url + path, encoded=True),
                headers={
                    "Authorization": f"token {self._secrets.of(replica.revision_id)}",
                    # The runtime may provide its metrics on another port.
                    METRICS_HEADER: "1",
                    **_PLAIN,
                },
                allow_redirects=False,
            ) as response:
                if response.status != 200:
                    return
                page = (await _content(response, MAX_PAGE_BYTES)).decode(errors="replace")
        except (TimeoutError, ClientError, OSError, ValueError):
            return
        value = await asyncio.to_thread(read_metric, page, series.name)
        if value is not None:
            series.before, series.last = series.last, MetricReading(self._monotonic(), value)

    async def _ask(self, result: _Result) -> None:
        try:
            address = URL(self._prometheus.rstrip("/") + "/api/v1/query")
            async with self._http.get(
                address, params={"query": result.query}, headers=_PLAIN, allow_redirects=False
            ) as response:
                content = await _content(response, MAX_ANSWER_BYTES)
            result.value = read_query_answer(content)
            result.answered_at = self._monotonic()
        except TimeoutError:
            result.problem = "no answer in time"
        except (ClientError, OSError):
            result.problem = "the Prometheus server cannot be reached"
        except ValueError as error:
            result.problem = str(error)

    @property
    def _http(self) -> ClientSession:
        if self._session is None:
            # Created at the first read, because it is bound to the running event loop.
            self._session = ClientSession(
                connector=TCPConnector(limit=MAX_CONCURRENT, force_close=True),
                cookie_jar=DummyCookieJar(),
                timeout=_TIMEOUT,
                trust_env=False,
                auto_decompress=False,
            )
        return self._session


async def _content(response: ClientResponse, limit: int) -> bytes:
    """Return the body of a response.

    Raises
    ------
    ValueError
        If it has more than ``limit`` bytes.
    """
    parts: list[bytes] = []
    size = 0
    async for part in response.content.iter_chunked(64 * 1024):
        size += len(part)
        if size > limit:
            raise ValueError(f"the answer has more than {limit} bytes")
        parts.append(part)
    return b"".join(parts)
