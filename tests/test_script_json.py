"""JSON inside the script elements of pages."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from bai_services.api.base import to_json
from bai_services.core.accounts.records import ProjectName
from bai_services.script_json import script_json


def test_values_cannot_close_or_open_an_element() -> None:
    assert script_json({"name": "</script><b>&"}) == (
        '{"name": "\\u003c/script\\u003e\\u003cb\\u003e\\u0026"}'
    )


def test_records_require_the_encoder_of_the_rest_api() -> None:
    record = ProjectName("p1", "vision")
    assert script_json(record, to_json) == '{"id": "p1", "name": "vision"}'
    for value in (record, datetime(2026, 5, 1, tzinfo=UTC)):
        with pytest.raises(TypeError):
            script_json(value)
