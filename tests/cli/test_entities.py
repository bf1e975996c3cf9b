"""The table of entities against the REST API's own models."""

from __future__ import annotations

from typing import Any

import pytest

from bai_services.api import openapi
from bai_services.api.routes import ROUTES
from bai_services.cli.admin.entities import ENTITIES, Entity, Field, FieldKind, checked, comparable
from bai_services.core.errors import InvalidRequest

# Fields of bodies that the command line offers in another way, or on purpose not at all.
ELSEWHERE = {
    "project": {"name"},  # renaming: the name is how everybody knows it
    "user": {"username", "password", "projects"},  # --password-stdin; project members add
    "image": {"name"},
    "preset": {"name"},
}


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return openapi.document(ROUTES, "/api/v1")


def body_fields(document: dict[str, Any], path: str, method: str) -> set[str]:
    schema = document["paths"][path][method]["requestBody"]["content"]["application/json"]["schema"]
    if "$ref" in schema:
        schema = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    return set(schema["properties"])


@pytest.mark.parametrize("entity", ENTITIES, ids=lambda entity: entity.command)
def test_create_offers_every_field(document: dict[str, Any], entity: Entity) -> None:
    if not entity.can_create:
        assert "post" not in document["paths"][entity.path]
        return
    offered = {field.name for field in entity.fields if not field.is_late}
    key = set() if entity.key_is_made else {entity.key}
    known = offered | key | ELSEWHERE.get(entity.command, set())
    assert body_fields(document, entity.path, "post") == known


@pytest.mark.parametrize("entity", ENTITIES, ids=lambda entity: entity.command)
def test_update_offers_every_field(document: dict[str, Any], entity: Entity) -> None:
    offered = {field.name for field in entity.fields if not field.is_fixed}
    asked = body_fields(document, f"{entity.path}/{{key}}", "patch")
    assert offered <= asked
    assert asked - offered <= ELSEWHERE.get(entity.command, set()) | {entity.key}


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (FieldKind.TEXT, True),
        (FieldKind.TEXT, None),
        (FieldKind.TEXT, ["a"]),
        (FieldKind.NUMBER, "1"),
        (FieldKind.NUMBER, True),
        (FieldKind.NUMBER, 1.5),
        (FieldKind.FLAG, 1),
        (FieldKind.FLAG, "yes"),
        (FieldKind.SLOTS, "cpu=1"),
        (FieldKind.CAPS, {"cpu": None}),
        (FieldKind.CAPS, {"cpu": "lots"}),
        (FieldKind.MEMORY, "1x"),
        (FieldKind.LIST, "a"),
        (FieldKind.LIST, [None]),
        (FieldKind.HOSTS, {"local": "mount-in-session"}),
        (FieldKind.HOSTS, {"local": ["fly"]}),
        (FieldKind.MAP, [1]),
    ],
)
def test_a_value_of_another_kind_is_refused(kind: FieldKind, value: object) -> None:
    with pytest.raises(InvalidRequest):
        checked(Field("field", "", kind), value)


def test_none_is_for_what_may_be_empty() -> None:
    assert checked(Field("limit", "", FieldKind.NUMBER, is_nullable=True), None) is None
    with pytest.raises(InvalidRequest):
        checked(Field("limit", "", FieldKind.NUMBER), None)


def test_numbers_are_taken_as_text_where_text_is_meant() -> None:
    assert checked(Field("description", ""), 2026) == "2026"
    assert checked(Field("slots", "", FieldKind.SLOTS), {"cpu": 2, "cuda.shares": 0.5}) == {
        "cpu": "2",
        "cuda.shares": "0.5",
    }


@pytest.mark.parametrize(
    ("kind", "one", "other"),
    [
        (FieldKind.CAPS, {"mem": "1g"}, {"mem": "1024m"}),
        (FieldKind.SLOTS, {"cpu": "1", "cuda.shares": "0"}, {"cpu": "1.0"}),
        (FieldKind.MEMORY, "64m", "65536k"),
        (FieldKind.LIST, ["a", "b"], ["b", "a"]),
    ],
)
def test_equal_meanings_compare_equal(kind: FieldKind, one: Any, other: Any) -> None:
    field = Field("field", "", kind)
    assert comparable(field, one) == comparable(field, other)
