"""API of the panel on a real session server: apps, and an unavailable manager."""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from bai_services.agent.devices import simulated
from tests.testbed.jupyter import JupyterServer
from tests.testbed.ports import free_port
from tests.testbed.session_server import session_server
from tests.testbed.wait import wait_until

pytestmark = pytest.mark.e2e

PORT = free_port()
# Runs the file `broken` first, if it exists, and then serves a Unix socket.
PROGRAM = """#!/bin/sh
echo "starting up"
if [ -e "$HOME/broken" ]; then . "$HOME/broken"; fi
while [ "$1" != --socket ]; do shift; done
exec {python} -c '
import http.server, socketserver, sys
class Server(socketserver.UnixStreamServer):
    def get_request(self):
        return super().get_request()[0], ("local", 0)
Server(sys.argv[1], http.server.SimpleHTTPRequestHandler).serve_forever()
' "$2"
"""
# Fake RStudio server: responds to each request with the options of its command line as JSON.
RSERVER = """#!/bin/sh
exec {python} -c '
import http.server, json, socketserver, sys
arguments = dict(word.removeprefix("--").split("=", 1) for word in sys.argv[1:])
class Server(socketserver.UnixStreamServer):
    def get_request(self):
        return super().get_request()[0], ("local", 0)
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = json.dumps(arguments).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
Server(arguments["www-socket"], Handler).serve_forever()
' "$@"
"""
NNI_PORT = free_port()


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return with_programs(tmp_path_factory.mktemp("home"))


def with_programs(home: Path) -> Path:
    (home / "bin").mkdir()
    for name, text in (("code-server", PROGRAM), ("rserver", RSERVER), ("nnictl", "#!/bin/sh\n")):
        program = home / "bin" / name
        program.write_text(text.format(python=sys.executable))
        program.chmod(0o755)
    return home


@pytest.fixture(scope="module")
def server(home: Path) -> Iterator[JupyterServer]:
    """A session's server whose manager is unavailable."""
    environ = {
        "PATH": f"{home}/bin:/usr/bin:/bin",
        "BAI_PREOPEN_PORTS": str(PORT),
        "BAI_SERVICE_PORTS": f"nniboard:http:{NNI_PORT}",
    }
    with session_server(home, environ) as running:
        yield running


@pytest.fixture
def server_without_ports(tmp_path: Path) -> Iterator[JupyterServer]:
    """A server without named ports: other tests' programs cannot change the states of its apps."""
    home = with_programs(tmp_path)
    with session_server(home, {"PATH": f"{home}/bin:/usr/bin:/bin"}) as running:
        yield running


def vscode(server: JupyterServer) -> dict[str, Any]:
    items: list[dict[str, Any]] = server.get("bai/api/apps").json()["items"]
    return next(item for item in items if item["name"] == "vscode")


def wait_for_state(server: JupyterServer, *states: str) -> dict[str, Any]:
    def app_in_state() -> dict[str, Any] | None:
        app = vscode(server)
        return app if app["state"] in states else None

    app = wait_until(app_in_state, 90, f"VS Code to be {states}")
    assert app is not None
    return app


def test_an_app_is_started_and_stopped(server: JupyterServer) -> None:
    assert vscode(server)["state"] == "stopped"
    for _ in range(2):
        assert server.request("POST", "bai/api/apps/vscode").status_code == 202
    wait_for_state(server, "running")
    assert server.get("vscode/").status_code == 200
    assert "starting up" in server.get("bai/api/apps/vscode/log").json()["log"]
    assert server.request("DELETE", "bai/api/apps/vscode").json() == {"state": "stopped"}
    assert server.request("DELETE", "bai/api/apps/vscode").json() == {"state": "stopped"}
    # A request to the address of the app starts it, too.
    assert server.get("vscode/").status_code == 200
    assert vscode(server)["state"] == "running"
    assert server.request("DELETE", "bai/api/apps/vscode").status_code == 200


@pytest.mark.parametrize("code", [0, 3])
def test_an_app_that_exits_at_start_has_failed_and_has_a_log(
    server: JupyterServer, home: Path, code: int
) -> None:
    (home / "broken").write_text(f"echo 'no such library'; exit {code}\n")
    server.request("POST", "bai/api/apps/vscode")
    assert "ended before it responded" in wait_for_state(server, "failed")["message"]
    assert "no such library" in server.get("bai/api/apps/vscode/log").json()["log"]
    (home / "broken").unlink()
    server.request("POST", "bai/api/apps/vscode")
    assert wait_for_state(server, "running")["message"] == ""
    server.request("DELETE", "bai/api/apps/vscode")


def test_an_app_that_does_not_respond_can_be_stopped(server: JupyterServer, home: Path) -> None:
    (home / "broken").write_text("exec sleep 600\n")
    server.request("POST", "bai/api/apps/vscode")
    wait_until(
        lambda: "starting up" in server.get("bai/api/apps/vscode/log").json()["log"],
        30,
        "the app's process",
    )
    assert vscode(server)["state"] == "starting"
    (home / "broken").unlink()
    assert server.request("DELETE", "bai/api/apps/vscode").json() == {"state": "stopped"}
    assert server.get("vscode/").status_code == 200
    server.request("DELETE", "bai/api/apps/vscode")


def test_an_app_that_does_not_respond_in_time_has_failed(server: JupyterServer, home: Path) -> None:
    (home / "broken").write_text("echo stuck; exec sleep 600\n")
    server.request("POST", "bai/api/apps/vscode")
    assert "did not respond within 30 s" in wait_for_state(server, "failed")["message"]
    assert "stuck" in server.get("bai/api/apps/vscode/log").json()["log"]
    (home / "broken").unlink()
    server.request("POST", "bai/api/apps/vscode")
    wait_for_state(server, "running")
    server.request("DELETE", "bai/api/apps/vscode")


def test_unknown_and_missing_apps_are_rejected_with_the_reason(server: JupyterServer) -> None:
    assert server.request("POST", "bai/api/apps/nothing").status_code == 404
    missing = server.request("POST", "bai/api/apps/mlflow")
    assert missing.status_code == 409
    assert "not installed" in missing.json()["message"]


@pytest.mark.parametrize("path", ["session", "session/log"])
def test_an_unavailable_manager_is_reported_and_apps_still_work(
    server: JupyterServer, path: str
) -> None:
    answer = server.get(f"bai/api/{path}")
    assert answer.status_code == 503
    assert answer.json()["error"] == "unavailable"
    assert "cannot be reached" in answer.json()["message"]
    assert "secret-of-the-session" not in answer.text
    assert server.get("bai/api/apps").status_code == 200


def test_poll_returns_changed_sections_only(
    server_without_ports: JupyterServer,
) -> None:
    server = server_without_ports

    def poll(apps: str) -> dict[str, Any]:
        answer = server.get(f"bai/api/poll?usage=&session=&folders=&sessions=&apps={apps}")
        assert answer.status_code == 200
        assert "secret-of-the-session" not in answer.text
        sections: dict[str, Any] = answer.json()
        # The error affects only the sections from the manager; the server still returns its own
        # sections.
        assert sections.pop("error") == "unavailable"
        assert "cannot be reached" in sections.pop("message")
        return sections

    first = poll("")
    etag = first["etags"]["apps"]
    names = [item["name"] for item in first["apps"]["items"]]
    assert "vscode" in names and "mlflow" not in names and "jupyterlab" not in names
    assert poll(etag) == {"etags": {}}
    server.request("POST", "bai/api/apps/vscode")
    wait_for_state(server, "running")
    changed = poll(etag)
    assert set(changed) == {"apps", "etags"} and changed["etags"]["apps"] != etag
    # A use of the app does not count as a change of the section.
    assert server.get("vscode/").status_code == 200
    assert poll(changed["etags"]["apps"]) == {"etags": {}}
    server.request("DELETE", "bai/api/apps/vscode")
    assert poll(etag) == {"etags": {}}


@pytest.mark.parametrize("language, stop", [("en", "Stop"), ("ko", "중지"), ("xx", "Stop")])
def test_texts_are_in_the_requested_language(
    server: JupyterServer, language: str, stop: str
) -> None:
    answer = server.get(f"bai/api/texts?lang={language}").json()
    assert answer["texts"]["stop"] == stop
    assert ("reasons.no-agent" in answer["texts"]) == (language == "ko")
    # Agents send this notice in English; the panel shows its text.
    assert ("시뮬레이션" in answer["texts"][simulated.NOTICE]) == (language == "ko")
    cookie = {**server.headers(), "Cookie": "bai_lang=th"}
    chosen = httpx.get(server.url + "bai/api/texts", headers=cookie, timeout=60).json()
    assert chosen["language"] == "th"


@pytest.mark.parametrize("method, path", [("GET", "session"), ("POST", "apps/vscode")])
def test_requests_without_a_valid_token_are_denied(
    server: JupyterServer, method: str, path: str
) -> None:
    assert server.request(method, f"bai/api/{path}", token=None).status_code in (302, 403)
    assert vscode(server)["state"] == "stopped"


def app(server: JupyterServer, name: str) -> dict[str, Any]:
    items = server.get("bai/api/apps").json()["items"]
    return next(item for item in items if item["name"] == name)


def post(server: JupyterServer, name: str, **body: Any) -> httpx.Response:
    address = f"{server.url}bai/api/apps/{name}"
    return httpx.post(address, headers=server.headers(), json=body, timeout=60)


def test_tensorboard_shows_the_chosen_folder(server: JupyterServer, home: Path) -> None:
    def folder() -> str:
        return str(server.get("tensorboard/data/environment").json()["data_location"])

    assert app(server, "tensorboard")["arguments"] == [
        {
            "name": "log_dir",
            "title": "Log folder",
            "kind": "folder",
            "value": f"{home}/logs",
            "is_required": False,
            "is_temporary": True,
        }
    ]
    assert post(server, "tensorboard", arguments={"log_dir": "runs/one"}).status_code == 202
    wait_until(lambda: app(server, "tensorboard")["state"] == "running", 60, "TensorBoard")
    assert folder() == f"{home}/runs/one"
    # With the same arguments, the app keeps running; other arguments require `restart`.
    assert post(server, "tensorboard", arguments={"log_dir": "runs/one"}).status_code == 202
    refused = post(server, "tensorboard", arguments={"log_dir": "runs/two"})
    assert refused.status_code == 409 and "restart it" in refused.json()["message"]
    # The arguments of the rejected request are not stored.
    assert app(server, "tensorboard")["arguments"][0]["value"] == f"{home}/runs/one"
    again = post(server, "tensorboard", arguments={"log_dir": "runs/two"}, restart=True)
    assert again.status_code == 202
    wait_until(lambda: app(server, "tensorboard")["state"] == "running", 60, "TensorBoard")
    assert folder() == f"{home}/runs/two"
    server.request("DELETE", "bai/api/apps/tensorboard")
    # Opening the address starts the app with the stored arguments.
    wait_until(lambda: app(server, "tensorboard")["state"] == "stopped", 60, "the app to stop")
    assert folder() == f"{home}/runs/two"
    refused = post(server, "tensorboard", arguments={"log_dir": "runs/three"})
    assert refused.status_code == 409 and "restart it" in refused.json()["message"]
    assert post(server, "tensorboard", arguments={"log_dir": "runs/two"}).status_code == 202
    server.request("DELETE", "bai/api/apps/tensorboard")


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ({"arguments": {"log_dir": "a\x00b"}}, "control characters"),
        ({"arguments": {"port": "1"}}, "it takes log_dir"),
        ({"arguments": ["log_dir"]}, "the body must be"),
    ],
)
def test_invalid_arguments_start_nothing(
    server: JupyterServer, body: dict[str, Any], why: str
) -> None:
    refused = post(server, "tensorboard", **body)
    assert refused.status_code == 400 and why in refused.json()["message"]
    assert app(server, "tensorboard")["state"] == "stopped"


def test_polls_of_an_open_page_do_not_count_as_activity(server: JupyterServer) -> None:
    def activity() -> str:
        return str(server.get("api/status?no_track_activity=1").json()["last_activity"])

    assert post(server, "tensorboard").status_code == 202
    wait_until(lambda: app(server, "tensorboard")["state"] == "running", 60, "TensorBoard")
    before = activity()
    for path in ("tensorboard/data/environment", "tensorboard/data/runs", "bai/api/apps"):
        assert server.get(path).status_code == 200
    assert (activity(), app(server, "tensorboard")["used_at"]) == (before, None)
    assert server.get("tensorboard/").status_code == 200
    used_at = app(server, "tensorboard")["used_at"]
    assert used_at is not None and activity() > before
    server.request("DELETE", "bai/api/apps/tensorboard")


@contextmanager
def http_server(
    host: str, port: int, folder: Path | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    code = (
        "import http.server, socket, sys\n"
        "class Server(http.server.HTTPServer):\n"
        "    address_family = socket.AF_INET6 if ':' in sys.argv[1] else socket.AF_INET\n"
        "    def server_bind(self):\n"
        "        if ':' in sys.argv[1]:\n"
        "            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)\n"
        "        super().server_bind()\n"
        "handler = http.server.SimpleHTTPRequestHandler\n"
        "Server((sys.argv[1], int(sys.argv[2])), handler).serve_forever()\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, host, str(port)], stderr=subprocess.PIPE, cwd=folder
    )
    try:
        yield process
    finally:
        process.terminate()
        process.communicate()


def test_rstudio_gets_its_command_line(server: JupyterServer, home: Path) -> None:
    """A fake replaces RStudio, which no image of this repository contains."""
    assert post(server, "rstudio").status_code == 202
    wait_until(lambda: app(server, "rstudio")["state"] == "running", 60, "RStudio")
    arguments = server.get("rstudio/").json()
    assert arguments.pop("www-socket") and arguments == {
        "server-daemonize": "0",
        "auth-none": "1",
        "www-frame-origin": "same",
        "www-verify-user-agent": "0",
        "www-root-path": "/rstudio/",
        "server-user": pwd.getpwuid(os.getuid()).pw_name,
        "server-data-dir": f"{home}/.local/share/rserver",
        "secure-cookie-key-file": f"{home}/.local/share/rserver.key",
    }
    assert server.get("rstudio/", token=None).status_code in (302, 403)
    assert server.request("DELETE", "bai/api/apps/rstudio").json() == {"state": "stopped"}


def test_nni_is_running_when_an_experiment_listens(server: JupyterServer) -> None:
    """A fake of NNI's server listens on the port that the image's label names."""
    board = app(server, "nniboard")
    assert (board["title"], board["port"], board["state"]) == ("NNI", NNI_PORT, "stopped")
    with http_server("127.0.0.1", NNI_PORT):
        wait_until(lambda: app(server, "nniboard")["state"] == "running", 60, "NNI's port")
        wait_until(lambda: server.get(board["path"]).status_code == 200, 30, "the page of NNI")
        assert server.get(board["path"], token=None).status_code in (302, 403)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_a_named_port_is_running_when_a_program_listens(server: JupyterServer, host: str) -> None:
    name = f"port-{PORT}"
    assert app(server, name)["state"] == "stopped"
    refused = post(server, name)
    assert refused.status_code == 409 and "Nothing listens" in refused.json()["message"]
    with http_server(host, PORT):
        wait_until(lambda: app(server, name)["state"] == "running", 60, "the port")
        path = app(server, name)["path"]
        # The server may still use the address at which the program of another test case listened.
        wait_until(
            lambda: server.get(path).status_code == 200, 30, "a response at the address of the port"
        )
        assert server.get(path, token=None).status_code in (302, 403)
        stopped = server.request("DELETE", f"bai/api/apps/{name}")
        assert stopped.status_code == 409
        assert "is not a process that the session starts" in stopped.json()["message"]
    wait_until(lambda: app(server, name)["state"] == "stopped", 60, "the port to be closed")


def test_ipv4_is_preferred_if_two_programs_listen_on_one_port(
    server: JupyterServer, tmp_path: Path
) -> None:
    """The program on IPv6 receives requests only while no program listens on IPv4."""
    for name in ("four", "six"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "who").write_text(name)

    def responds_with(name: str) -> bool:
        return server.get(f"proxy/{PORT}/who").text == name

    with http_server("::1", PORT, tmp_path / "six"):
        wait_until(lambda: responds_with("six"), 30, "a response of the IPv6 program")
        with http_server("127.0.0.1", PORT, tmp_path / "four"):
            wait_until(lambda: responds_with("four"), 30, "a response of the IPv4 program")
            with http_server("127.0.0.1", PORT, tmp_path / "six") as third:
                assert third.wait(30) != 0  # The address is in use.
            assert all(responds_with("four") for _ in range(20))
            assert app(server, f"port-{PORT}")["state"] == "running"
        wait_until(lambda: responds_with("six"), 30, "the IPv6 program to respond again")
    wait_until(
        lambda: app(server, f"port-{PORT}")["state"] == "stopped", 60, "both programs to be stopped"
    )


def test_shared_apps_are_unavailable_without_a_manager(server: JupyterServer) -> None:
    for path in ("shared/tensorboard/", f"shared/port-{PORT}/"):
        answer = server.get(path)
        assert (answer.status_code, answer.text) == (
            403,
            "open this app with the link that you received",
        )
        forged = httpx.get(server.url + path, headers={"Cookie": "bai-visit=made.up"}, timeout=60)
        assert forged.status_code == 503
    # An app with access to the whole session cannot be shared.
    assert server.get("shared/vscode/healthz").status_code == 404
