"""The return types of handlers and the response models of the OpenAPI document agree."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Iterator
from types import UnionType
from typing import Any

import pytest
from pydantic import BaseModel

from bai_services.api.base import Operation
from bai_services.api.routes import ROUTES
from bai_services.core.listing import Page

# Optional fields of a response model that the record in the annotation lacks. The handler returns
# them in a subclass of the record, if the request asks for them.
VARIANT_FIELDS = {"ChangedKeypair": {"secret_key"}}


def _returned(annotation: Any) -> Iterator[type]:
    """Yield the dataclasses in a return annotation."""
    if typing.get_origin(annotation) in (typing.Union, UnionType):
        for part in typing.get_args(annotation):
            yield from _returned(part)
    elif typing.get_origin(annotation) is Page:
        yield from _returned(typing.get_args(annotation)[0])
    elif isinstance(annotation, type) and dataclasses.is_dataclass(annotation):
        yield annotation


def _pairs() -> Iterator[tuple[str, type, type[BaseModel]]]:
    for path, handler, *_ in ROUTES:
        for name in ("get", "post", "put", "patch", "delete"):
            method = getattr(handler, name)
            declared: Operation | None = getattr(method, "operation", None)
            if declared is None or not isinstance(declared.returns, type):
                continue
            if not issubclass(declared.returns, BaseModel):
                continue
            hints = typing.get_type_hints(method.__wrapped__, localns={"Body": object})
            records = list(_returned(hints["return"]))
            # The handlers of the three kinds of policies have the same return annotation, with
            # three records. Compare only the record that has the name of the model.
            same_name = [r for r in records if r.__name__ == declared.returns.__name__]
            for record in same_name or records:
                yield f"{name.upper()} {path}", record, declared.returns


PAIRS = list(_pairs())


def test_records_and_models_of_most_routes_are_compared() -> None:
    """Fails if ``_pairs`` finds few routes, for instance after a change of the handlers."""
    assert len(PAIRS) >= 100


@pytest.mark.parametrize(
    ("route", "record", "model"),
    [pytest.param(*pair, id=f"{pair[0]}-{pair[1].__name__}") for pair in PAIRS],
)
def test_record_has_the_fields_of_the_response_model(
    route: str, record: type, model: type[BaseModel]
) -> None:
    fields = {field.name for field in dataclasses.fields(record)}
    assert fields | VARIANT_FIELDS.get(model.__name__, set()) == set(model.model_fields)
