"""Spans of requests to endpoints."""

from __future__ import annotations

import json

from opentelemetry.trace import StatusCode

from tests.testbed.recorded_spans import recording_spans
from tests.testbed.wait import wait_until_async

from .conftest import TOKEN, Bed, Upstream


async def test_request_to_an_endpoint_is_a_span_without_path_and_token(
    bed: Bed, upstream: Upstream
) -> None:
    with recording_spans() as spans:
        async with bed.http.post(bed.url("/echo?secret=4711"), data=b"x") as response:
            assert response.status == 200
        await wait_until_async(
            lambda: _is_recorded(spans.named("gateway request")), 10, "the span of the request"
        )
        span = spans.only("gateway request")
    attributes = dict(span.attributes or {})
    assert attributes.pop("bai.endpoint.id")
    assert attributes == {"http.request.method": "POST", "http.response.status_code": 200}
    assert span.status.status_code is StatusCode.UNSET
    text = json.dumps(span.to_json())
    assert TOKEN not in text
    assert "4711" not in text and "echo" not in text


async def _is_recorded(found: object) -> bool:
    return bool(found)
