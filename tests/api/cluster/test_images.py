"""Images and image aliases over REST."""

from __future__ import annotations

import pytest

from bai_services.core import errors
from tests.testbed.manager import Api

LABELS = {
    "ai.backend.resource.min.cpu": "2",
    "ai.backend.resource.max.mem": "8g",
    "ai.backend.service-ports": "lab:http:8090",
    "ai.backend.resource.preferred.shmem": "64m",
}


async def test_labels_define_slot_limits_and_apps(api: Api) -> None:
    admin = await api.client("admin")
    made = await admin.post("/images", {"name": "team/py", "labels": LABELS})
    assert made["name"] == "team/py:latest"
    assert (made["min_slots"], made["max_slots"]) == ({"cpu": "2"}, {"mem": "8g"})
    assert (made["apps"], made["preferred_shared_memory"]) == (["lab"], "64m")
    # Explicit slot limits take precedence over the labels.
    changed = await admin.patch(f"/images/{made['id']}", {"min_slots": {"cpu": "1", "mem": "1g"}})
    assert changed["min_slots"] == {"cpu": "1", "mem": "1g"}
    relabelled = await admin.patch(
        f"/images/{made['id']}", {"labels": {"ai.backend.resource.min.cpu": "3"}}
    )
    assert (relabelled["min_slots"], relabelled["apps"]) == ({"cpu": "3"}, [])


@pytest.mark.parametrize(
    "body, part",
    [
        pytest.param({"name": "A B"}, "not an image name", id="invalid name"),
        pytest.param(
            {"name": "a", "labels": {"ai.backend.kernelspec": "9"}}, "only 1", id="invalid label"
        ),
        pytest.param(
            {"name": "a", "labels": {"ai.backend.service-ports": "board:http:8888"}},
            "port 8888 is used by the session itself",
            id="app with the port of the session's server",
        ),
        pytest.param(
            {"name": "a", "min_slots": {"mem": "9g"}, "labels": LABELS},
            "above",
            id="minimum above maximum",
        ),
        pytest.param({"name": "a", "min_slots": {"gold": 1}}, "resource slot", id="unknown slot"),
        pytest.param(
            {"name": "a", "architecture": "x 86"}, "architecture", id="invalid architecture"
        ),
    ],
)
async def test_invalid_image_is_rejected(api: Api, body: dict[str, object], part: str) -> None:
    admin = await api.client("admin")
    with pytest.raises(errors.InvalidRequest, match=part):
        await admin.post("/images", body)


async def test_name_of_images_for_several_architectures_is_ambiguous(api: Api) -> None:
    admin = await api.client("admin")
    ids = [
        (await admin.post("/images", {"name": "py", "architecture": a}))["id"]
        for a in ("x86_64", "aarch64")
    ]
    with pytest.raises(errors.AlreadyExists):
        await admin.post("/images", {"name": "py:latest", "architecture": "aarch64"})
    with pytest.raises(errors.InvalidRequest, match="aarch64, x86_64"):
        await admin.get("/images/py")
    assert (await admin.get(f"/images/{ids[1]}"))["architecture"] == "aarch64"


async def test_image_is_found_by_a_name_with_slashes(api: Api) -> None:
    admin = await api.client("admin")
    await admin.post("/images", {"name": "reg.example.org:5000/a/b:1"})
    assert (await admin.get("/images/reg.example.org%3A5000%2Fa%2Fb%3A1"))["aliases"] == []


async def test_alias_is_created_changed_and_deleted_with_its_image(api: Api) -> None:
    admin, user = await api.client("admin"), await api.client("user")
    one = await admin.post("/images", {"name": "py:1"})
    two = await admin.post("/images", {"name": "py:2"})
    alias = await admin.post("/image-aliases", {"alias": "py", "image": "py:1"})
    assert (alias["image"], alias["image_id"]) == ("py:1", one["id"])
    assert (await user.get("/images/py"))["id"] == one["id"]
    assert (await user.get("/images/py"))["aliases"] == ["py"]
    with pytest.raises(errors.AlreadyExists):
        await admin.post("/image-aliases", {"alias": "py", "image": "py:2"})
    await admin.patch("/image-aliases/py", {"image": "py:2"})
    assert (await user.get("/images/py"))["id"] == two["id"]
    page = await user.get("/image-aliases", image="py:2")
    assert [item["alias"] for item in page["items"]] == ["py"]
    with pytest.raises(errors.NotFound):
        await admin.post("/image-aliases", {"alias": "none", "image": "none:1"})
    with pytest.raises(errors.InvalidRequest):
        await admin.post("/image-aliases", {"alias": "a:b", "image": "py:1"})
    # Deleting an image deletes its aliases.
    await admin.delete("/images/py:2")
    with pytest.raises(errors.NotFound):
        await user.get("/image-aliases/py")


async def test_image_in_use_is_not_deleted(api: Api) -> None:
    admin = await api.client("admin")
    project = await api.world.project_id()
    await admin.post("/images", {"name": "py:1"})
    await admin.post("/image-aliases", {"alias": "py", "image": "py:1"})
    await admin.patch(f"/projects/{project}", {"default_image": "py"})
    for path in ("/images/py:1", "/image-aliases/py"):
        with pytest.raises(errors.InUse, match="1 project"):
            await admin.delete(path)


async def test_default_image_of_a_project_must_exist(api: Api) -> None:
    admin = await api.client("admin")
    path = f"/projects/{await api.world.project_id()}"
    image = await admin.post("/images", {"name": "py:latest"})
    for missing in ("no-such-image", image["id"], "py:2"):
        for call in (
            admin.patch(path, {"default_image": missing}),
            admin.post("/projects", {"name": "other", "default_image": missing}),
        ):
            with pytest.raises(errors.InvalidRequest, match="there is no image or alias") as caught:
                await call
            assert caught.value.details["field"] == "default_image"
    for name in ("py:latest", "py"):
        await admin.patch(path, {"default_image": name})
        with pytest.raises(errors.InUse, match="1 project"):
            await admin.delete("/images/py:latest")
    await admin.patch(path, {"default_image": None})
    await admin.delete("/images/py:latest")


async def test_only_superadmins_may_change_images(api: Api) -> None:
    for name in ("user", "domain-admin", "monitor"):
        client = await api.client(name)
        assert (await client.get("/images"))["total"] >= 1
        for call in (
            client.post("/images", {"name": "mine"}),
            client.patch("/images/python", {"is_active": False}),
            client.delete("/images/python"),
            client.post("/image-aliases", {"alias": "mine", "image": "python"}),
            client.delete("/image-aliases/python"),
        ):
            with pytest.raises(errors.Forbidden):
                await call
