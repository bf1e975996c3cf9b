"""The table of entities, compared with the models of the REST API, and values of fields."""

from __future__ import annotations

from typing import Any

import pytest

from bai_services.api import openapi
from bai_services.api.routes import ROUTES
from bai_services.cli.admin.entities import ENTITIES, Entity
from bai_services.cli.admin.fields import Field, FieldKind, comparable, validate_value
from bai_services.core.errors import InvalidRequest

from .conftest import Bai

# Fields of request bodies without an option of the same name. An argument, another option or
# another command sets them.
WITHOUT_OPTION = {
    "project": {"name"},  # `bai` does not rename projects: users and files refer to the name.
    "user": {
        "username",
        "password",
        "projects",
    },  # password: `--password-stdin`; projects: `project members add`
    "image": {"name"},
    "preset": {"name"},
    "registry": {"password", "ca_certificate"},  # `registry credentials`
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
def test_create_has_an_option_for_each_field_except_listed_ones(
    document: dict[str, Any], entity: Entity
) -> None:
    if not entity.can_create:
        assert "post" not in document["paths"][entity.path]
        return
    options = {field.name for field in entity.fields if not field.is_update_only}
    key = set() if entity.has_generated_key else {entity.key}
    known = options | key | WITHOUT_OPTION.get(entity.command, set())
    assert body_fields(document, entity.path, "post") == known


@pytest.mark.parametrize("entity", ENTITIES, ids=lambda entity: entity.command)
def test_update_has_an_option_for_each_field_except_listed_ones(
    document: dict[str, Any], entity: Entity
) -> None:
    options = {field.name for field in entity.fields if not field.is_immutable}
    accepted = body_fields(document, f"{entity.path}/{{key}}", "patch")
    assert options <= accepted
    without = WITHOUT_OPTION.get(entity.command, set()) | {entity.key}
    if entity.command == "group":
        without.add("scheduler_opts_changes")  # set by `--scheduler-opts`
    assert accepted - options <= without


def test_nouns_have_the_expected_plurals() -> None:
    assert [entity.plural for entity in ENTITIES] == [
        "domains", "projects", "users", "keypairs", "keypair policies", "user policies",
        "project policies", "resource groups", "images", "image aliases", "image registries",
        "presets", "agents", "idle checkers",
        "announcements", "maintenances", "budgets", "overflow rules",
    ]  # fmt: skip


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
def test_value_of_wrong_type_is_rejected(kind: FieldKind, value: object) -> None:
    with pytest.raises(InvalidRequest):
        validate_value(Field("field", "", kind), value)


def test_only_nullable_fields_accept_none() -> None:
    assert validate_value(Field("limit", "", FieldKind.NUMBER, is_nullable=True), None) is None
    with pytest.raises(InvalidRequest):
        validate_value(Field("limit", "", FieldKind.NUMBER), None)


def test_numbers_in_text_and_slots_become_strings() -> None:
    assert validate_value(Field("description", ""), 2026) == "2026"
    slots = Field("slots", "", FieldKind.SLOTS)
    assert validate_value(slots, {"cpu": 2, "cuda.shares": 0.5}) == {
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
def test_equivalent_values_compare_equal(kind: FieldKind, one: Any, other: Any) -> None:
    field = Field("field", "", kind)
    assert comparable(field, one) == comparable(field, other)


@pytest.mark.parametrize(
    ("kind", "one", "other"),
    [
        (FieldKind.CAPS, {"mem": "1g"}, {"mem": "2g"}),
        (FieldKind.SLOTS, {"cpu": "1"}, {"cpu": "2"}),
        (FieldKind.MEMORY, "64m", "64g"),
        (FieldKind.LIST, ["a", "b"], ["a", "c"]),
    ],
)
def test_different_values_compare_unequal(kind: FieldKind, one: Any, other: Any) -> None:
    field = Field("field", "", kind)
    assert comparable(field, one) != comparable(field, other)


async def test_update_changes_only_the_given_scheduler_options(bai: Bai) -> None:
    update = ("admin", "group", "update", "default", "--json", "--scheduler-opts")
    first = await bai(*update, '{"placement": "spread", "pending_timeout": "2h"}')
    assert first.code == 0
    done = await bai(*update, '{"preemption": {"enabled": true}, "pending_timeout": null}')
    options = {"placement": "spread", "preemption": {"enabled": True}}
    assert done.document["scheduler_opts"] == options
    assert (await bai(*update, "{}")).document["scheduler_opts"] == options
    assert (await bai(*update, "none")).document["scheduler_opts"] == {}
