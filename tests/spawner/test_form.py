"""The start form: parsing of submitted values, and display of stored ones."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from bai_services.core.cluster.device_sharing import Level
from bai_services.core.errors import InvalidRequest
from bai_services.i18n.catalogue import translator
from bai_services.script_json import script_json
from bai_spawner.form import MAX_OFFERS, default_group, gather_offers, parse, showable, with_secrets
from bai_spawner.start import request_again

EMPTY = {"project": [""], "mount_vfolder": [""], "mount_path": [""], "mount_permission": ["rw"]}


@pytest.mark.parametrize(
    ("form", "session"),
    [
        pytest.param({}, {}, id="empty form"),
        pytest.param({**EMPTY, "_xsrf": ["x"]}, {}, id="empty fields are omitted"),
        pytest.param(
            {"project": [" default "], "image": ["python"], "name": ["my lab"]},
            {"project": "default", "image": "python", "name": "my lab"},
            id="surrounding spaces are removed",
        ),
        pytest.param(
            {
                "preset": [""],
                "resource:cpu": ["1.5"],
                "resource:mem": ["1.5"],
                "resource:mem:unit": ["g"],
                "resource:cuda.shares": ["0"],
            },
            {"resources": {"cpu": "1.5", "mem": "1.5g"}},
            id="resources with units; zero is omitted",
        ),
        pytest.param(
            {"preset": ["small"], "resource:cpu": ["1"], "resource:mem:unit": ["g"]},
            {"preset": "small"},
            id="a preset replaces the resources",
        ),
        pytest.param(
            {"shared_memory": ["64"], "shared_memory:unit": ["m"]},
            {"shared_memory": "64m"},
            id="shared memory",
        ),
        pytest.param(
            {"shared_memory": [""], "shared_memory:unit": ["m"]}, {}, id="a unit alone is omitted"
        ),
        pytest.param(
            {
                "mount_vfolder": ["id-1", "", "id-2"],
                "mount_subpath": ["", "lost", " raw/2024 "],
                "mount_path": ["", "/home/work/x", "/home/work/papers"],
                "mount_permission": ["rw", "rw", "ro"],
            },
            {
                "mounts": [
                    {"vfolder": "id-1", "permission": "rw"},
                    {
                        "vfolder": "id-2",
                        "subpath": "raw/2024",
                        "path": "/home/work/papers",
                        "permission": "ro",
                    },
                ]
            },
            id="mounts without a folder are omitted",
        ),
        pytest.param(
            {"environ_name": ["A", "", "B"], "environ_value": ["1", "lost", " 2 "]},
            {"environ": {"A": "1", "B": " 2 "}},
            id="variables keep their spaces",
        ),
        pytest.param(
            {"preopen_ports": [" 8501,9000  abc 99999999 "]},
            {"preopen_ports": [8501, 9000, "abc", "99999999"]},
            id="invalid ports are kept; the manager rejects them",
        ),
        pytest.param({"preopen_ports": [" , "]}, {}, id="separators without ports"),
        pytest.param(
            {"owner": ["eve"], "hub_server": ["x"], "bai_session_id": ["x"]},
            {},
            id="fields that are not in the form are ignored",
        ),
    ],
)
def test_parse_returns_a_session_request(
    form: dict[str, list[str]], session: dict[str, Any]
) -> None:
    assert parse(form) == session


@pytest.mark.parametrize(
    ("saved", "shown"),
    [
        ({}, {}),
        ({"name": 7, "project": None}, {"name": "7"}),
        ({"mounts": "x", "environ": [1], "resources": 3}, {"mounts": []}),
        ({"mounts": [1, {"vfolder": "a"}]}, {"mounts": [{"vfolder": "a"}]}),
        ({"resources": {"cpu": 2}}, {"resources": {"cpu": "2"}}),
        ({"preopen_ports": [8501, "abc"]}, {"preopen_ports": "8501, abc"}),
        ({"preopen_ports": {"a": 1}}, {"preopen_ports": "{'a': 1}"}),
        ({"bai_session_id": "x", "more": 1}, {}),
    ],
)
def test_malformed_stored_options_are_left_out_or_shown_as_text(
    saved: dict[str, Any], shown: dict[str, Any]
) -> None:
    assert showable(saved) == shown


def test_script_json_cannot_close_a_script_element() -> None:
    value = {"name": "</script><script>alert(1)</script>&amp;"}
    text = str(script_json(value))
    assert "<" not in text and ">" not in text and "&" not in text
    assert json.loads(text) == value


@pytest.mark.parametrize(("wanted", "chosen"), [("big", "big"), ("gone", "usual"), (None, "usual")])
def test_default_group_is_the_last_used_or_the_default(wanted: str | None, chosen: str) -> None:
    groups = [{"name": "big"}, {"name": "usual", "is_default": True}]
    values = {"resource_group": wanted} if wanted else {}
    assert default_group({"resource_groups": groups}, values) == chosen


def test_every_enforcement_level_has_a_text() -> None:
    keys = {key for key in translator("en").texts if key.startswith("spawn.enforcement-")}
    assert keys == {f"spawn.enforcement-{level.value}" for level in Level}


def test_secret_values_are_not_in_the_stored_options() -> None:
    options = parse(
        {
            "environ_name": ["SEED", "TOKEN"],
            "environ_value": ["1", "s3cret"],
            "environ_secret": ["", "1"],
        }
    )
    assert options == {"environ": {"SEED": "1"}, "secret_environ": ["TOKEN"]}
    assert "s3cret" not in json.dumps(showable(options))
    # ``parse`` keeps the secret values until the start in the same request.
    assert with_secrets(options)["environ"] == {"SEED": "1", "TOKEN": "s3cret"}
    # The next call of ``parse`` discards the secret values, so a later start does not find them.
    parse({})
    with pytest.raises(InvalidRequest, match="TOKEN are not stored"):
        with_secrets(options)


def test_the_name_of_a_mounted_folder_is_stored_for_the_form() -> None:
    form = {"mount_vfolder": ["id-1"], "mount_name": ["papers"], "mount_path": [""]}
    options = parse(form)
    assert options["mounts"] == [{"vfolder": "id-1", "name": "papers"}]
    assert showable(options)["mounts"] == options["mounts"]


def test_request_again_repeats_all_options_except_the_priority() -> None:
    mount = {"path": "/home/work/d", "permission": "ro", "subpath": "a"}
    ended = {
        "name": "lab1",
        "project": "default",
        "image": "python",
        "resource_group": "default",
        "requested": {"cpu": "1"},
        "shared_memory": "64m",
        "mounts": [
            {"vfolder_id": "f1", "path": "/home/work/d", "permission": "ro", "subpath": "a"}
        ],
        "environ": {"SEED": "1"},
        "secret_environ": [],
        "preopen_ports": [9000],
        "priority": 90,
        "callback": {"url": "https://example.org/hook"},
        "cluster_size": 2,
        "cluster_mode": "multi-node",
    }
    assert request_again(ended) == {
        "name": "lab1",
        "project": "default",
        "image": "python",
        "resource_group": "default",
        "resources": {"cpu": "1"},
        "shared_memory": "64m",
        "mounts": [{"vfolder": "f1", **mount}],
        "environ": {"SEED": "1"},
        "preopen_ports": [9000],
        "callback_url": "https://example.org/hook",
        "cluster_size": 2,
        "cluster_mode": "multi-node",
    }


def test_request_again_rejects_a_session_with_secret_variables() -> None:
    with pytest.raises(InvalidRequest, match="TOKEN are not stored"):
        request_again({"name": "lab1", "secret_environ": ["TOKEN"]})


class Offers:
    """Offers of 25 projects. Only the last project has two resource groups."""

    def __init__(self) -> None:
        self.projects = [f"p{number:02}" for number in range(MAX_OFFERS + 1)]

    async def options(self, owner: str, project: str = "", group: str = "") -> dict[str, Any]:
        groups = ["a", "b"] if project == self.projects[-1] else ["a"]
        return {
            "projects": [{"name": name} for name in self.projects],
            "resource_groups": [{"name": name} for name in groups],
            "asked": group,
        }


async def test_projects_with_one_group_do_not_displace_the_groups_of_others() -> None:
    offers = Offers()
    server: Any = SimpleNamespace(user=SimpleNamespace(name="ann"), sessions=offers)
    found = (await gather_offers(server, {}))["by_choice"]
    last = offers.projects[-1]
    assert [found[f"{last}/{group}"]["asked"] for group in ("a", "b")] == ["a", "b"]
