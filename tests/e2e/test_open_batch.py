"""Batch sessions that their agent has started, opened by their owner: SSH, ports and apps."""

from __future__ import annotations

import secrets
import signal
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from tests.e2e.sessions import JSON, checked, stop, wait_for
from tests.e2e.test_tunnel import command, running_app
from tests.hub import RunningHub
from tests.testbed.wait import wait_until

if TYPE_CHECKING:
    from tests.testbed.chromium import SharedBrowser

pytestmark = pytest.mark.e2e

PORT = 8123
EXIT_CODE = 7
# Serves a page, and exits when the file ``finish`` exists.
COMMAND = (
    "mkdir page logs; echo hello > page/index.html; "
    f"python3 -m http.server -d page -b 127.0.0.1 {PORT} & "
    f"echo ready; until [ -e finish ]; do sleep 0.1; done; exit {EXIT_CODE}"
)
TIMEOUT_SECONDS = 120


@dataclass(frozen=True)
class Job:
    """A running batch session of ``user``, and a separate configuration folder of ``bai``."""

    hub: RunningHub
    rest: httpx.Client
    session: JSON
    folder: Path

    @property
    def name(self) -> str:
        return str(self.session["name"])

    def options(self, *words: str, rest: httpx.Client | None = None) -> dict[str, Any]:
        environ = {"BAI_CONFIG_DIR": str(self.folder / "config"), "HOME": str(self.folder)}
        return command(self.hub, rest or self.rest, *words, environ=environ)

    def bai(self, *words: str, rest: httpx.Client | None = None) -> tuple[int, str, str]:
        """Run ``bai``; return its exit code, output and errors."""
        done = subprocess.run(
            **self.options(*words, rest=rest),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS,
        )
        return done.returncode, done.stdout, done.stderr

    def ssh(self, remote_command: str) -> str:
        code, output, errors = self.bai("ssh", self.name, remote_command)
        assert code == 0, errors
        return output

    def server(self) -> Any:
        """Return the Hub's model of the server that is attached to the session, or None."""
        user = self.session["hub_user"]
        headers = {"Authorization": self.rest.headers["Authorization"].replace("Bearer", "token")}
        model = httpx.get(f"{self.hub.url}/hub/api/users/{user}", headers=headers).json()
        return model["servers"].get(self.session["hub_server"])


def create_job(hub: RunningHub, folder: Path) -> Job:
    rest = hub.rest("user")
    body = {
        "name": f"job-{secrets.token_hex(3)}",
        "project": "default",
        "type": "batch",
        "startup_command": COMMAND,
        "preopen_ports": [PORT],
        "resources": {"cpu": "1", "mem": "1g"},
    }
    session = checked(rest.post("/sessions", json=body), 201)
    session = wait_for(rest, session["id"], "RUNNING")
    assert session["started_by"] == "agent"
    return Job(hub, rest, session, folder)


@pytest.fixture(scope="module")
def job(docker_hub: RunningHub, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Job]:
    created = create_job(docker_hub, tmp_path_factory.mktemp("job"))
    yield created
    stop(created.rest, created.session["id"])


def check_isolation(job: Job) -> None:
    """Commands run in the sandbox of the session, without capabilities."""
    text = job.ssh(
        "echo $BAI_SESSION_ID; hostname; pwd; grep -h -e CapBnd -e NoNewPrivs /proc/self/status; "
        "cat /proc/[0-9]*/cmdline | tr '\\0' ' '"
    )
    session_id, hostname, home, *facts = text.splitlines()
    assert (session_id, hostname, home) == (job.session["id"], "main1", "/home/work")
    assert "bai_labext.batch" in text
    assert "scripts/run" not in text, "processes outside the sandbox are visible"
    capabilities = next(line for line in facts if line.startswith("CapBnd"))
    assert int(capabilities.split()[1], 16) == 0


def check_refusals(job: Job) -> None:
    """Other users and administrators cannot open the session; nobody without a sign-in can."""
    path = f"/sessions/{job.session['id']}"
    for name, status in (("user2", 404), ("domain-admin", 403), ("admin", 403)):
        rest = job.hub.rest(name)
        assert rest.post(f"{path}/server").status_code == status, name
        code, output, _ = job.bai("ssh", job.session["id"], "id", rest=rest)
        assert (code != 0, output) == (True, ""), name
        for route in ("lab", "bai/tunnel", "bai/api/apps", f"proxy/{PORT}/", "tensorboard/"):
            answer = job.hub.jupyter(rest, job.session["url"]).get(route)
            assert answer.status_code == 403, (name, route)
    with job.hub.client() as nobody:
        assert nobody.post(f"{httpx.URL(job.hub.api).path}{path}/server").status_code == 401
        for route in ("lab", "bai/tunnel", "bai/api/apps", f"proxy/{PORT}/", "tensorboard/"):
            answer = nobody.get(f"{job.session['url']}{route}")
            is_sign_in = "/hub/" in answer.headers.get("Location", "")
            assert answer.status_code in (401, 403) or is_sign_in, (route, answer.status_code)


def check_end(job: Job, connection: subprocess.Popen[str]) -> None:
    """The end of the command ends the open connection and the server, and keeps the exit code."""
    job.ssh("touch finish")
    done = wait_for(job.rest, job.session["id"], "TERMINATED")
    assert (done["result"], done["exit_code"]) == ("failure", EXIT_CODE)
    assert done["status_info"] == f"the command exited with code {EXIT_CODE}"
    connection.communicate(timeout=TIMEOUT_SECONDS)
    assert connection.returncode != 0
    wait_until(lambda: job.server() is None, 30, "the removal of the server from the Hub")


def connect(job: Job) -> subprocess.Popen[str]:
    """Open an SSH connection that returns each line of its input."""
    pipe = subprocess.PIPE
    process = subprocess.Popen(
        **job.options("ssh", job.name, "cat"), stdin=pipe, stdout=pipe, stderr=pipe, text=True
    )
    exchange(process, "first")
    return process


def exchange(process: subprocess.Popen[str], text: str) -> None:
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(f"{text}\n")
    process.stdin.flush()
    assert process.stdout.readline() == f"{text}\n"


def test_the_owner_opens_a_session_of_the_process_engine(
    own_hub: Callable[..., RunningHub], tmp_path: Path
) -> None:
    hub = own_hub(environment={"BAI_AGENT_RUNS_BATCH": "1"}).start()
    job = create_job(hub, tmp_path)
    assert job.server() is None
    check_isolation(job)
    check_refusals(job)
    connection = connect(job)
    hub.kill("agent")
    exchange(connection, "after the restart of the agent")
    check_end(job, connection)


@pytest.mark.docker
def test_commands_run_in_the_container_beside_the_command_of_the_session(job: Job) -> None:
    check_isolation(job)
    limits = "cat /sys/fs/cgroup/memory/memory.limit_in_bytes /sys/fs/cgroup/memory.max 2>/dev/null"
    assert str(2**30) in job.ssh(f"{limits}; true").split()
    assert "ready\n" in checked(job.rest.get(f"/sessions/{job.session['id']}/logs"), 200)["log"]


@pytest.mark.docker
def test_files_are_copied_and_ports_forwarded(job: Job, tmp_path: Path) -> None:
    source, back = tmp_path / "source.bin", tmp_path / "back.bin"
    source.write_bytes(secrets.token_bytes(3 * 2**20))
    for words in ((str(source), f"{job.name}:copy.bin"), (f"{job.name}:copy.bin", str(back))):
        code, _, errors = job.bai("scp", *words)
        assert code == 0, errors
    assert back.read_bytes() == source.read_bytes()
    with running_app(job.hub, job.rest, job.name, "--tcp", str(PORT)) as forwarded:
        assert httpx.get(f"http://{forwarded['address']}/").text == "hello\n"
    page = job.hub.jupyter(job.rest, job.session["url"]).get(f"proxy/{PORT}/")
    assert (page.status_code, page.text) == (200, "hello\n")
    apps = checked(job.rest.get(f"/sessions/{job.session['id']}/apps"), 200)["items"]
    assert {"jupyterlab", "terminal", "tensorboard", f"port-{PORT}"} <= {a["name"] for a in apps}


@pytest.mark.docker
def test_others_cannot_open_the_session_and_reading_its_output_is_audited(job: Job) -> None:
    job.ssh("true")
    check_refusals(job)
    admin = job.hub.rest("domain-admin")
    checked(admin.get(f"/sessions/{job.session['id']}/logs"), 200)
    query = {"entity_id": job.session["id"], "limit": "100"}
    entries = checked(job.hub.rest("admin").get("/audit-log", params=query), 200)["items"]
    actions = {(entry["actor"], entry["action"]) for entry in entries}
    assert ("domain-admin", "session.read-log") in actions
    assert ("user", "session.open") in actions


@pytest.mark.docker
def test_the_session_survives_the_stop_of_its_server_and_a_kill_of_the_agent(job: Job) -> None:
    job.ssh("true")
    headers = {"Authorization": job.rest.headers["Authorization"].replace("Bearer", "token")}
    user, server = job.session["hub_user"], job.session["hub_server"]
    url = f"{job.hub.url}/hub/api/users/{user}/servers/{server}"
    # With ``remove``, the Hub also deletes the server.
    answer = httpx.request("DELETE", url, headers=headers, json={"remove": True}, timeout=60)
    assert answer.status_code in (202, 204), answer.text
    wait_until(lambda: job.server() is None, 30, "the removal of the server")
    connection = connect(job)
    agent = job.hub.process_of("agent")
    agent.send_signal(signal.SIGKILL)
    exchange(connection, "while the agent restarts")
    wait_until(lambda: job.hub.process_of("agent").pid != agent.pid, 30, "the new agent")
    exchange(connection, "after the restart")
    connection.kill()
    connection.communicate()
    assert checked(job.rest.get(f"/sessions/{job.session['id']}"), 200)["status"] == "RUNNING"


@pytest.mark.docker
def test_the_end_of_the_command_ends_open_connections(docker_hub: RunningHub, job: Job) -> None:
    ending = create_job(docker_hub, job.folder)
    check_end(ending, connect(ending))


@pytest.mark.docker
@pytest.mark.browser
@pytest.mark.asyncio(loop_scope="session")
async def test_tensorboard_opens_in_the_browser(
    job: Job, shared_browser: SharedBrowser, tmp_path: Path
) -> None:
    from .webui.pages import Sessions
    from .webui.test_pipelines import write_events

    events = tmp_path / "events.out.tfevents.1.test"
    events.write_bytes(write_events(tmp_path / "written"))
    assert job.bai("scp", str(events), f"{job.name}:logs/{events.name}")[0] == 0
    profile = await shared_browser.profile(job.hub.url, name="user", locale="en-US")
    ui = Sessions(await profile.new_page(), job.hub)
    await ui.sign_in("user", f"/sessions?session={job.session['id']}&panel=apps")
    await ui.drawer.get_by_text("Apps run beside the command").wait_for()
    await ui.drawer.get_by_role("button", name="Open TensorBoard").click()
    async with ui.page.expect_popup() as popup:
        await ui.page.get_by_role("button", name="Open", exact=True).last.click()
    board = await popup.value
    await board.get_by_text("accuracy", exact=True).first.wait_for()
    await board.close()
