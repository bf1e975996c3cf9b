"""Real model servers behind endpoints on both engines: llama.cpp, called with the official OpenAI
client, and ONNX Runtime.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import openai
import psutil
import pytest
import xllamacpp

from tests.e2e.sessions import checked
from tests.hub import ROOT, RunningHub
from tests.testbed.model_hub import ModelHub, serve_model_hub
from tests.testbed.tiny_models import language_model, linear_model
from tests.testbed.wait import wait_until, wait_until_async

pytestmark = pytest.mark.e2e

SMALL = {"resources": {"cpu": "1", "mem": "512m"}}
DEFINITION = """
models:
- name: linear
  model_path: /models
  service:
    start_command: exec python3 "$BAI_MODEL_PATH/onnx_server.py"
    port: 8000
    health_check:
      enable: true
      path: /health
"""
START_SECONDS = 120


@contextmanager
def deployed(
    rest: httpx.Client, name: str, files: dict[str, bytes], **fields: Any
) -> Iterator[str]:
    """Deploy a model from a folder with these files and yield a token; clean up at the end."""
    folder = checked(rest.post("/vfolders", json={"name": f"{name}-model"}), 201)
    for path, content in files.items():
        url = f"/vfolders/{folder['id']}/content"
        checked(rest.put(url, params={"path": path}, content=content), 200, 201, 204)
    settings = {"model_folder": folder["name"], "request": SMALL, **fields.pop("settings", {})}
    checked(rest.post("/endpoints", json={"name": name, "settings": settings, **fields}), 201)
    try:
        made = checked(rest.post(f"/endpoints/{name}/tokens", json={"name": "app"}), 201)
        wait_for_replicas(rest, name, 1)
        yield made["token"]
    finally:
        rest.delete(f"/endpoints/{name}")
        is_deleted = lambda: rest.get(f"/endpoints/{name}").status_code == 404  # noqa: E731
        wait_until(is_deleted, START_SECONDS, "the deletion")
        checked(rest.delete(f"/vfolders/{folder['id']}"), 204)


def wait_for_replicas(rest: httpx.Client, name: str, count: int) -> list[str]:
    """Wait until an endpoint has exactly this number of ready replicas; return their ids."""

    def ready() -> list[str] | None:
        shown = checked(rest.get(f"/endpoints/{name}"), 200)
        assert shown["status"] != "failed", shown["problem"]
        found = checked(rest.get(f"/endpoints/{name}/replicas"), 200)["items"]
        ids = [each["id"] for each in found if each["phase"] == "ready"]
        return ids if len(ids) == count else None

    return wait_until(ready, START_SECONDS, f"{count} ready replicas") or []


def server_of(hub: RunningHub, replica: str, script: str) -> psutil.Process:
    """Return the model server process of a replica."""

    def found() -> psutil.Process | None:
        for process in hub.left_running():
            try:
                if any(script in word for word in process.cmdline()[:3]) and (
                    process.environ().get("BAI_SESSION_ID") == replica
                ):
                    return process
            except psutil.Error:
                continue
        return None

    return wait_until(found, 20, f"the process of replica {replica}")


def kill_server_of(request: pytest.FixtureRequest, hub: RunningHub, replica: str) -> None:
    """Kill the model server of a replica. On the Docker engine, kill its container."""
    if hub.engine == "process":
        server_of(hub, replica, "llama_server.py").kill()
        return
    client = request.getfixturevalue("docker_engine").client
    (container,) = client.containers.list(filters={"label": f"bai.session-id={replica}"})
    container.kill()


def server_package() -> dict[str, bytes]:
    """Return the package of llama.cpp and the library that it needs, for a container."""
    package = Path(xllamacpp.__file__).parent
    files = {f"xllamacpp/{path.name}": path.read_bytes() for path in package.glob("*.*")}
    library = "libgomp.so.1"
    (found,) = {
        Path(each.path).resolve()
        for each in psutil.Process().memory_maps()
        if library in each.path and "site-packages" not in each.path
    }
    return {**files, library: found.read_bytes()}


def script(name: str) -> bytes:
    return (ROOT / "tests/testbed" / name).read_bytes()


def test_language_model_answers_the_official_client_and_survives_kills(
    any_hub: RunningHub, request: pytest.FixtureRequest
) -> None:
    hub, name = any_hub, "e2e-language-model"
    command = 'exec python3 "$BAI_MODEL_PATH/llama_server.py"'
    files = {"model.gguf": language_model(), "llama_server.py": script("llama_server.py")}
    if hub.engine == "docker":
        # The session image has no model server: a container loads it from the model folder.
        files |= server_package()
        command = f"export PYTHONPATH=$BAI_MODEL_PATH LD_LIBRARY_PATH=$BAI_MODEL_PATH; {command}"
    settings = {"variant": "llama-cpp", "command": command}
    with hub.rest("user") as rest, deployed(rest, name, files, settings=settings) as token:
        url = f"{hub.url}/services/bai-serve/{name}/v1"
        with openai.OpenAI(base_url=url, api_key=token, max_retries=0, timeout=60) as client:
            wait_until(lambda: is_served(client), 20, "a response")
            text = ask(client)
            assert text.split()[0].startswith("w"), text
            assert "".join(stream(client)) == text
            models = [model.id for model in client.models.list()]
            assert models
            stranger = client.with_options(api_key="wrong")
            with pytest.raises(openai.AuthenticationError):
                stranger.models.list()
            wait_until(lambda: usage(rest, name)[2] >= 16, 20, "the usage of the token")

            began = time.monotonic()
            hub.kill("gateway")
            wait_until(lambda: is_served(client), 20, "a response after the kill of the gateway")
            print(f"served again {time.monotonic() - began:.2f} s after the kill of the gateway")
            assert ask(client) == text

            (first,) = wait_for_replicas(rest, name, 1)
            kill_server_of(request, hub, first)
            replaced = lambda: wait_for_replicas(rest, name, 1) != [first]  # noqa: E731
            wait_until(replaced, START_SECONDS, "another replica")
            assert ask(client) == text
            ended = checked(rest.get(f"/endpoints/{name}/replicas"), 200)["items"]
            (reason,) = [each["reason_coded"] for each in ended if each["id"] == first]
            assert reason["code"] == "replica-ended"


def ask(client: openai.OpenAI) -> str:
    """Return the text of a chat completion."""
    answer = client.chat.completions.create(
        model="tiny",
        messages=[{"role": "user", "content": "Hello"}],
        max_tokens=8,
        temperature=0,
    )
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 8
    return answer.choices[0].message.content or ""


def stream(client: openai.OpenAI) -> list[str]:
    """Return the parts of a streamed chat completion."""
    chunks = client.chat.completions.create(
        model="tiny",
        messages=[{"role": "user", "content": "Hello"}],
        max_tokens=8,
        temperature=0,
        stream=True,
        stream_options={"include_usage": True},
    )
    parts = [choice.delta.content or "" for chunk in chunks for choice in chunk.choices]
    assert len(parts) > 4
    return parts


def is_served(client: openai.OpenAI) -> bool:
    try:
        return bool(ask(client))
    except openai.APIError:
        return False


def usage(rest: httpx.Client, name: str) -> tuple[int, int, int]:
    (token,) = checked(rest.get(f"/endpoints/{name}/tokens"), 200)["items"]
    return token["requests"], token["input_tokens"], token["output_tokens"]


def test_onnx_model_is_served_with_its_definition(hub: RunningHub, tmp_path: Path) -> None:
    name = "e2e-onnx"
    files = {
        "model.onnx": linear_model([2.0, -1.0], 0.5),
        "onnx_server.py": script("onnx_server.py"),
    }
    with (
        hub.rest("user") as rest,
        deployed(rest, name, files, settings={"variant": "custom"}, definition=DEFINITION) as token,
        httpx.Client(headers={"Authorization": f"Bearer {token}"}, timeout=60) as calls,
    ):
        url = f"{hub.url}/services/bai-serve/{name}/predict"
        body = {"rows": [[1.0, 2.0], [3.0, 0.0]]}

        def predicted() -> httpx.Response | None:
            response = calls.post(url, json=body)
            return response if response.status_code == 200 else None

        response = wait_until(predicted, 20, "a prediction")
        assert response.json() == {"predictions": [0.5, 6.5]}


async def test_cancelled_import_leaves_nothing_and_one_survives_a_kill_of_the_manager(
    hub: RunningHub,
) -> None:
    tag = secrets.token_hex(3)
    source = ModelHub({"model.bin": secrets.token_bytes(300_000)}, is_slow=True)
    with hub.rest("admin") as rest:
        spec = {"name": f"store-{tag}", "domain": "default", "type": "model-store"}
        store = checked(rest.post("/projects", json=spec), 201)["id"]

        async def read(path: str, **query: str) -> Any:
            """Read an object while the source of the import responds to requests."""
            response = await asyncio.to_thread(rest.get, path, params=query)
            return response.json() if response.status_code == 200 else {}

        async def started(name: str) -> str:
            """Start an import, and wait until its first bytes have arrived."""
            body = {"url": f"{source.url}/cdn/model.bin", "project": store, "folder": name}
            path = f"/model-imports/{checked(rest.post('/model-imports', json=body), 202)['id']}"

            async def is_receiving() -> bool:
                return bool((await read(path)).get("bytes"))

            await wait_until_async(is_receiving, 60, "the first bytes")
            return path

        async def is_deleted() -> bool:
            return (await read("/vfolders", name=f"cancelled-{tag}")).get("total") == 0

        async def is_done() -> bool:
            return (await read(path)).get("status") == "done"

        async with serve_model_hub(source):
            path = await started(f"cancelled-{tag}")
            assert checked(rest.delete(path), 200)["status"] == "cancelled"
            await wait_until_async(is_deleted, 60, "the deletion of the folder")

            path = await started(f"killed-{tag}")
            await asyncio.to_thread(hub.kill, "manager")
            source.is_slow = False
            await wait_until_async(is_done, 60, "the end of the import")
        folder = checked(rest.get(path), 200)["folder_id"]
        stored = rest.get(f"/vfolders/{folder}/content", params={"path": "model.bin"})
        assert stored.content == source.files["model.bin"]
        checked(rest.delete(f"/vfolders/{folder}"), 204)
        rest.patch(f"/projects/{store}", json={"is_active": False})
