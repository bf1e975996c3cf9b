"""Session images: each app in the label responds, and other optional apps are not offered."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import httpx
import pytest

from bai_labext.apps.catalogue import BY_NAME_OR_ALIAS
from bai_services.core.apps.catalogue import AppKind
from bai_services.core.cluster.image_labels import parse_labels
from tests.testbed import ComponentMissing, images
from tests.testbed.jupyter import JupyterServer
from tests.testbed.ports import free_port
from tests.testbed.skip import skip_or_fail
from tests.testbed.wait import wait_until, wait_until_async

if TYPE_CHECKING:
    from playwright.async_api import Browser, Page

    from tests.testbed.docker_engine import DockerEngine

pytestmark = [pytest.mark.e2e, pytest.mark.docker]

TIMEOUT_MS = 120_000
KINDS = {"session": images.session_image, "minimal": images.minimal_image}
APPS = {
    "session": {
        *("jupyterlab", "notebook", "tensorboard", "vscode", "mlflow", "streamlit", "gradio")
    },
    "minimal": {"jupyterlab"},
}
# Apps that every image offers, even if its label does not name them.
ALWAYS = {"jupyterlab", "terminal", "filebrowser", "ssh"}
# Scripts whose pages respond to a click, which needs the app's websocket or event stream.
SCRIPTS = {
    "streamlit": """
import streamlit
if streamlit.button("Ask"):
    streamlit.write(f"It is {6 * 7}")
""",
    "gradio": """
import gradio
with gradio.Blocks() as page:
    ask, said = gradio.Button("Ask"), gradio.Markdown()
    ask.click(lambda: f"It is {6 * 7}", None, said)
page.launch()
""",
}
LIMITS = ["--user", "12345:12345", "--cap-drop", "ALL", "--security-opt", "no-new-privileges"]


@dataclass(frozen=True)
class RunningImage:
    """A container of an image, with the app names in the label."""

    kind: str
    image: str
    name: str
    claimed: list[str]
    server: JupyterServer
    engine: DockerEngine

    def run(self, *words: str) -> str:
        return self.engine.run("exec", self.name, *words)


@pytest.fixture(scope="module", params=list(KINDS))
def running(request: pytest.FixtureRequest, docker_engine: DockerEngine) -> Iterator[RunningImage]:
    try:
        image = KINDS[request.param](docker_engine)
    except ComponentMissing as reason:
        skip_or_fail("docker", reason)
    claimed = parse_labels(docker_engine.client.images.get(image).labels).apps
    port = free_port()
    name = docker_engine.run(
        *("run", "--detach", *LIMITS, "--publish", f"127.0.0.1:{port}:8888"),
        *("--env", "JUPYTER_TOKEN=secret", "--env", f"BAI_APPS={','.join(claimed)}", image),
        *("jupyter", "lab", "--ip=0.0.0.0", "--port=8888"),
    )
    server = JupyterServer(f"http://127.0.0.1:{port}/", "secret")
    try:
        wait_until(server.is_ready, 120, "JupyterLab in the container")
        yield RunningImage(request.param, image, name, claimed, server, docker_engine)
    except TimeoutError:
        pytest.fail(docker_engine.run("logs", name))
    finally:
        docker_engine.run("rm", "--force", name)


def test_each_app_in_the_label_responds_only_with_the_token(running: RunningImage) -> None:
    assert set(running.claimed) == APPS[running.kind]
    for name in running.claimed:
        app = BY_NAME_OR_ALIAS[name]
        if app.kind is AppKind.PROCESS:
            start_app(running, app.name)
        for path in (app.path, app.ready_path):
            assert running.server.page(path).status_code == 200, path
            assert running.server.get(path, token=None).status_code in (302, 403), path


@pytest.mark.browser
async def test_pages_of_scripts_respond_to_a_click(running: RunningImage, browser: Browser) -> None:
    for name in sorted(SCRIPTS.keys() & set(running.claimed)):
        start_app(running, name)
        page = await browser.new_page()
        await page.goto(f"{running.server.url}api/status?token={running.server.token}")
        await page.goto(f"{running.server.url}{BY_NAME_OR_ALIAS[name].path}")
        await page.get_by_role("button", name="Ask").click(timeout=TIMEOUT_MS)
        await page.get_by_text("It is 42").wait_for(timeout=TIMEOUT_MS)
        await page.close()


# Writes an event file with TensorBoard's own writer. The test looks for its tag on the page.
EVENTS = """
from tensorboard.summary import Writer
writer = Writer("/home/work/logs/first")
for step in range(5):
    writer.add_scalar("lost_and_found", 1 / (step + 1), step)
writer.close()
"""


@asynccontextmanager
async def opened_page(browser: Browser, running: RunningImage, path: str) -> AsyncIterator[Page]:
    """Yield a page of a signed-in browser."""
    page = await browser.new_page(viewport={"width": 1280, "height": 900})
    try:
        await page.goto(f"{running.server.url}api/status?token={running.server.token}")
        await page.goto(f"{running.server.url}{path}")
        yield page
    finally:
        await page.close()


@pytest.mark.browser
async def test_tensorboard_shows_an_event_file(running: RunningImage, browser: Browser) -> None:
    if "tensorboard" not in running.claimed:
        pytest.skip("this image does not contain the app")
    running.run("/opt/bai/bin/python", "-c", EVENTS)
    start_app(running, "tensorboard")

    def is_read() -> bool:
        # A page that is opened before TensorBoard has read the file stays empty.
        tags = running.server.get("tensorboard/data/plugin/scalars/tags")
        return "lost_and_found" in tags.text

    wait_until(is_read, 120, "TensorBoard to read the file")
    async with opened_page(browser, running, "tensorboard/") as page:
        await page.get_by_text("lost_and_found").first.wait_for(timeout=TIMEOUT_MS)


@pytest.mark.browser
async def test_mlflow_shows_a_run(running: RunningImage, browser: Browser) -> None:
    if "mlflow" not in running.claimed:
        pytest.skip("this image does not contain the app")
    start_app(running, "mlflow")

    def post(path: str, **body: Any) -> Any:
        answer = httpx.post(
            f"{running.server.url}mlflow/api/2.0/mlflow/{path}",
            headers=running.server.headers(), json=body, timeout=60,
        )  # fmt: skip
        assert answer.status_code == 200, answer.text
        return answer.json()

    made = post("experiments/create", name="shown")["experiment_id"]
    post("runs/create", experiment_id=made, run_name="first-of-all")
    async with opened_page(browser, running, f"mlflow/#/experiments/{made}/runs") as page:
        await page.get_by_text("first-of-all").first.wait_for(timeout=TIMEOUT_MS)


@pytest.mark.browser
async def test_vs_code_opens_a_file_and_runs_a_terminal(
    running: RunningImage, browser: Browser
) -> None:
    if "vscode" not in running.claimed:
        pytest.skip("this image does not contain the app")
    running.run("sh", "-c", "echo 'what is written here' > /home/work/opened.txt")
    start_app(running, "vscode")
    async with opened_page(browser, running, "vscode/") as page:
        explorer = page.locator(".explorer-folders-view", has_text="opened.txt")
        await explorer.wait_for(timeout=TIMEOUT_MS)
        assert await page.locator(".gettingStartedContainer, .interactive-session").count() == 0
    files = quote(json.dumps([["openFile", "vscode-remote:///home/work/opened.txt"]]))
    async with opened_page(browser, running, f"vscode/?payload={files}") as page:
        shown = page.locator(".monaco-editor .view-lines", has_text="what is written here")
        await shown.first.wait_for(timeout=TIMEOUT_MS)
        await page.keyboard.press("Control+Backquote")
        terminal = page.locator(".terminal textarea.xterm-helper-textarea")
        await terminal.first.wait_for(state="attached", timeout=TIMEOUT_MS)

        async def command_was_run() -> bool:
            # Repeat the input: the shell may drop input until it shows its prompt. An incomplete
            # command would continue on the next line, so it is cancelled first.
            await terminal.first.press("Control+c")
            await terminal.first.press_sequentially("echo $((6 * 7)) > ~/typed.txt\n")
            return running.run("sh", "-c", "cat /home/work/typed.txt || true").strip() == "42"

        await wait_until_async(command_was_run, 120, "the terminal to run the typed command")


def start_app(running: RunningImage, name: str) -> None:
    """Start an app, if it does not run yet, and wait until it runs."""
    arguments = {}
    if name in SCRIPTS:
        arguments = {"script": f"{name}_page.py"}
        write = ("sh", "-c", 'printf %s "$1" > "$2"', "sh")
        running.run(*write, SCRIPTS[name], f"/home/work/{arguments['script']}")
    started = httpx.post(
        f"{running.server.url}bai/api/apps/{name}",
        headers=running.server.headers(),
        json={"arguments": arguments},
        timeout=60,
    )
    assert started.status_code == 202, started.text
    # MLflow reads many files: this takes minutes if none of them is in the page cache.
    wait_until_running(running, name)


def wait_until_running(running: RunningImage, name: str) -> None:
    wait_until(lambda: state_of(running, name) == "running", 300, f"{name} to answer")


def state_of(running: RunningImage, name: str) -> str:
    items = {item["name"]: item for item in running.server.get("bai/api/apps").json()["items"]}
    state = str(items[name]["state"])
    log = running.server.get(f"bai/api/apps/{name}/log").json()["log"]
    assert state != "failed", (items[name]["message"], log)
    return state


def test_apps_missing_from_the_label_are_not_offered(running: RunningImage) -> None:
    items = running.server.get("bai/api/apps").json()["items"]
    offered = {item["name"] for item in items if item["is_offered"]}
    assert offered == ALWAYS | APPS[running.kind]


def test_the_image_has_an_ssh_server_without_host_keys(running: RunningImage) -> None:
    assert "OpenSSH" in running.run("sh", "-c", "/usr/sbin/sshd -V 2>&1")
    assert running.run("sh", "-c", "ls /etc/ssh | grep -c host_key || true").strip() == "0"


def test_labels_describe_the_image(running: RunningImage) -> None:
    facts = parse_labels(running.engine.client.images.get(running.image).labels)
    assert facts.min_slots.format() == {"cpu": "1", "mem": "256m"}
    assert facts.runtime_path == "/opt/bai/bin/python"
    assert {"batch", "query", "uid-match"} <= facts.features
    assert (facts.accelerators, facts.min_cuda) == ((), "")


def test_an_image_with_a_cuda_base_has_cuda_labels(docker_engine: DockerEngine) -> None:
    """The image is built with ``--cuda`` on the base image of the tests instead of NVIDIA's."""
    try:
        image = images.cuda_image(docker_engine)
    except ComponentMissing as reason:
        skip_or_fail("docker", reason)
    facts = parse_labels(docker_engine.client.images.get(image).labels)
    assert (facts.accelerators, facts.min_cuda) == (("cuda",), "12.6")
    assert facts.apps == ["jupyterlab"]
