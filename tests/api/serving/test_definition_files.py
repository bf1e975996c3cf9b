"""Revisions whose definition is a file in the model folder."""

from __future__ import annotations

from typing import Any

import pytest

from bai_services.client import Client
from bai_services.core.errors import InvalidRequest, NotFound
from tests.testbed.fake_agent import FakeAgent
from tests.testbed.manager import Api

DEFINITION = """\
models:
- name: tiny
  service:
    start_command: exec python3 server.py
    port: 9100
"""
SERVICE = '[custom.resource_slots]\ncpu = 1\nmem = "1g"\n[custom.environ]\nMODE = "fast"\n'


async def put(user: Client, path: str, text: str | bytes) -> None:
    content = text.encode() if isinstance(text, str) else text
    answer = await user.http.put("/vfolders/tiny/content", params={"path": path}, content=content)
    assert answer.status_code < 300, answer.text


async def test_definition_and_defaults_come_from_the_model_folder(api: Api) -> None:
    user = await api.client("user")
    await api.world.manager.folders.vfolders.start()
    await FakeAgent(api.agent).beat()
    await user.post("/vfolders", {"name": "tiny"})
    body: dict[str, Any] = {
        "name": "llm",
        "settings": {"model_folder": "tiny"},
        "definition_file": "model-definition.yaml",
    }
    with pytest.raises(InvalidRequest, match="has no file"):
        await user.post("/endpoints", body)
    await put(user, "model-definition.yaml", DEFINITION + "    bad: 1\n")
    with pytest.raises(InvalidRequest) as problem:
        await user.post("/endpoints", body)
    assert problem.value.details["line"] == 6
    await put(user, "model-definition.yaml", DEFINITION)
    await put(user, "service-definition.toml", SERVICE + "cpu = \n")
    with pytest.raises(InvalidRequest) as problem:
        await user.post("/endpoints", body)
    assert problem.value.details["line"] == 6
    await put(user, "service-definition.toml", SERVICE)
    settings = {**body["settings"], "request": {"resources": {"mem": "2g"}}}
    await user.post("/endpoints", {**body, "settings": settings})
    (revision,) = (await user.get("/endpoints/llm/revisions"))["items"]
    found = revision["settings"]
    assert (found["command"], found["port"]) == ("exec python3 server.py", 9100)
    assert found["request"]["resources"] == {"cpu": "1", "mem": "2g"}
    assert found["request"]["environ"] == {"MODE": "fast"}
    # A new revision reads the files again.
    await put(user, "v2/model-definition.yaml", DEFINITION.replace("9100", "9200"))
    await user.post(
        "/endpoints/llm/revisions",
        {
            "definition_file": "v2/model-definition.yaml",
            "settings": {"request": {"resources": {"cpu": "1", "mem": "1g"}}},
        },
    )
    revision = (await user.get("/endpoints/llm/revisions"))["items"][0]
    assert revision["settings"]["port"] == 9200
    await put(user, "v2/model-definition.yaml", b"models:\n\xff\n")
    with pytest.raises(InvalidRequest, match="line 2: the file is not UTF-8") as problem:
        await user.post("/endpoints/llm/revisions", {"definition_file": "v2/model-definition.yaml"})
    await put(user, "v2/model-definition.yaml", "#" * 70_000)
    with pytest.raises(InvalidRequest, match="more than 65536 bytes"):
        await user.post("/endpoints/llm/revisions", {"definition_file": "v2/model-definition.yaml"})


@pytest.mark.checklist("SRV-10")
async def test_deployment_config_replaces_the_service_definition(api: Api) -> None:
    user = await api.client("user")
    await api.world.manager.folders.vfolders.start()
    await FakeAgent(api.agent).beat()
    await user.post("/vfolders", {"name": "tiny"})
    await put(user, "model-definition.yaml", DEFINITION)
    await put(user, "service-definition.toml", SERVICE)
    config = "resource_slots: {cpu: 1, mem: 2g}\ncustom:\n  environ: {MODE: slow}\n"
    await put(user, "deployment-config.yaml", config + "  bad: 1\n")
    body = {
        "name": "llm",
        "settings": {"model_folder": "tiny", "request": {"resources": {"mem": "1g"}}},
        "definition_file": "model-definition.yaml",
    }
    with pytest.raises(InvalidRequest, match="deployment-config.yaml, line 4"):
        await user.post("/endpoints", body)
    await put(user, "deployment-config.yaml", config)
    await user.post("/endpoints", body)
    (revision,) = (await user.get("/endpoints/llm/revisions"))["items"]
    request = revision["settings"]["request"]
    assert request == {"resources": {"cpu": "1", "mem": "1g"}, "environ": {"MODE": "slow"}}


async def test_folders_of_others_are_not_read(api: Api) -> None:
    user, other = await api.client("user"), await api.client("user2")
    await api.world.manager.folders.vfolders.start()
    await FakeAgent(api.agent).beat()
    await user.post("/vfolders", {"name": "tiny"})
    await put(user, "model-definition.yaml", DEFINITION)
    body = {"name": "llm", "definition_file": "model-definition.yaml"}
    for fields, error in (
        ({"settings": {"model_folder": "tiny"}}, NotFound),
        ({}, InvalidRequest),
        ({"definition": DEFINITION, "settings": {"model_folder": "tiny"}}, InvalidRequest),
    ):
        with pytest.raises(error):
            await other.post("/endpoints", {**body, **fields})
