"""Templates of pipelines, and conversions of formats."""

from __future__ import annotations

import pytest

from bai_services.client import Client
from bai_services.core.errors import (
    AlreadyExists,
    Conflict,
    Forbidden,
    InvalidRequest,
    NotFound,
    QuotaExceeded,
)
from bai_services.core.pipelines.parsing import parse_pipeline
from bai_services.manager.pipelines.templates import built_in_templates
from tests.testbed.manager import Api

TEXT = "version: 1\nname: {}\ndescription: Mine\ntasks: [{{name: check, kind: approval}}]\n"
BUILT_IN = [
    *("compare-models", "notebook-report", "process-files", "search-parameters"),
    "train-on-machines",
]


async def names(client: Client) -> list[str]:
    items = (await client.get("/pipeline-templates"))["items"]
    return [each["name"] for each in items if not each["is_builtin"]]


async def test_built_in_templates_can_be_read_and_used(api: Api) -> None:
    await api.world.manager.folders.start()
    user = await api.client("user")
    page = await user.get("/pipeline-templates", is_builtin="true", sort="name")
    assert [each["name"] for each in page["items"]] == BUILT_IN
    assert {each["definition"] for each in page["items"]} == {""}
    found = await user.get("/pipeline-templates/compare-models")
    made = await user.post("/pipelines", {"definition": found["definition"]})
    assert (made["name"], made["tasks"]) == ("compare-models", found["tasks"])
    with pytest.raises(Conflict, match="built in"):
        await user.delete("/pipeline-templates/compare-models")


def test_descriptions_of_built_in_templates_are_short_sentences() -> None:
    templates = built_in_templates()
    assert templates
    for each in templates:
        assert parse_pipeline(each.definition).description == each.description
        assert 0 < len(each.description) < 160
        assert each.description.endswith(".")


@pytest.mark.both_databases
async def test_own_template_is_saved_found_and_deleted(api: Api) -> None:
    user, other = await api.client("user"), await api.client("user2")
    made = await user.post("/pipeline-templates", {"definition": TEXT.format("mine")})
    assert (made["owner"], made["is_builtin"], made["can_delete"]) == ("user", False, True)
    assert (made["description"], made["definition"]) == ("Mine", TEXT.format("mine"))
    assert (await names(user), await names(other)) == (["mine"], [])
    with pytest.raises(NotFound, match="no template 'mine'"):
        await other.get("/pipeline-templates/mine")
    with pytest.raises(AlreadyExists, match="a template 'mine'"):
        await user.post("/pipeline-templates", {"definition": TEXT.format("mine")})
    with pytest.raises(InvalidRequest, match="tasks must be a list"):
        await user.post("/pipeline-templates", {"definition": "version: 1\nname: a\ntasks: 3"})
    # The user's own template takes precedence over a built-in template of the same name.
    await user.post("/pipeline-templates", {"definition": TEXT.format("compare-models")})
    assert not (await user.get("/pipeline-templates/compare-models"))["is_builtin"]
    await user.delete("/pipeline-templates/mine")
    assert await names(user) == ["compare-models"]
    admin = await api.client("admin")
    actions = {each["action"] for each in (await admin.get("/audit-log"))["items"]}
    assert {"pipeline.save-template", "pipeline.delete-template"} <= actions


async def test_template_of_a_project_is_seen_by_its_members(api: Api) -> None:
    admin, user = await api.client("domain-admin"), await api.client("user")
    body = {"definition": TEXT.format("shared"), "project": "default", "is_project_owned": True}
    with pytest.raises(Forbidden):
        await user.post("/pipeline-templates", body)
    made = await admin.post("/pipeline-templates", body)
    assert (made["owner"], made["project"]) == (None, "default")
    found = await user.get("/pipeline-templates/shared")
    assert (found["definition"], found["can_delete"]) == (TEXT.format("shared"), False)
    with pytest.raises(Forbidden):
        await user.delete("/pipeline-templates/shared")
    await admin.delete("/pipeline-templates/shared")


async def test_number_of_templates_is_limited(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bai_services.db.pipelines.templates.MAX_TEMPLATES_PER_SCOPE", 1)
    user = await api.client("user")
    await user.post("/pipeline-templates", {"definition": TEXT.format("one")})
    with pytest.raises(QuotaExceeded, match="1 templates already"):
        await user.post("/pipeline-templates", {"definition": TEXT.format("two")})


async def test_pipeline_is_converted_and_nothing_is_stored(api: Api) -> None:
    user = await api.client("user")
    text = "name: Docs\ntasks: [{name: a, command: x}]\n"
    converted = (await user.post("/pipeline-conversions", {"text": text}))["text"]
    assert parse_pipeline(converted).name == "docs"
    back = await user.post("/pipeline-conversions", {"text": converted, "target": "fasttrack"})
    assert "type: custom" in back["text"]
    with pytest.raises(InvalidRequest, match="Elyra has no command"):
        await user.post("/pipeline-conversions", {"text": converted, "target": "elyra"})
    assert (await user.get("/pipelines"))["items"] == []
