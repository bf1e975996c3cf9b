"""Activity of apps: which requests count as use, stopping idle apps, and the size of app logs."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tornado.httputil import HTTPHeaders, HTTPServerRequest, RequestStartLine
from tornado.web import Application, RequestHandler

from bai_labext.apps import running_apps
from bai_labext.apps.activity import ACTIVITY, AppActivity, forget_ended_process, is_use
from bai_labext.apps.apps import Offer
from bai_labext.apps.arguments import Arguments
from bai_labext.apps.catalogue import BY_NAME
from bai_labext.apps.running_apps import RunningApps
from bai_labext.extension import idle_seconds, log_bytes
from bai_labext.tunnel.targets import Targets
from bai_services.tunnel.channels import Channel, pack
from bai_services.tunnel.endpoint import Stream, TunnelEndpoint


class MovableClock:
    def __init__(self) -> None:
        self.now = datetime(2026, 5, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now


@dataclass
class Process:
    running: bool = True


@pytest.mark.parametrize(
    ("name", "path", "upgrade", "expected"),
    [
        ("tensorboard", "/", "", True),
        ("tensorboard", "/data/plugin/scalars/tags", "", False),
        ("mlflow", "/", "", True),
        ("mlflow", "/ajax-api/2.0/mlflow/runs/search", "", False),
        ("vscode", "/", "", True),
        ("vscode", "/stable", "websocket", False),
    ],
)
def test_requests_count_as_use_except_polls_and_websockets(
    name: str, path: str, upgrade: str, expected: bool
) -> None:
    headers = HTTPHeaders({"Host": "hub", **({"Upgrade": upgrade} if upgrade else {})})
    line = RequestStartLine("GET", path, "HTTP/1.1")
    request = HTTPServerRequest(start_line=line, headers=headers)
    assert is_use(request, path, BY_NAME[name].polled) is expected


def test_use_of_an_app_counts_as_use_of_the_session() -> None:
    clock, times = MovableClock(), dict[str, datetime]()
    uses = AppActivity(lambda: times, clock)
    assert uses.idle_seconds("mlflow") is None
    uses.record_use("mlflow")
    clock.now += timedelta(seconds=90)
    assert uses.idle_seconds("mlflow") == 90
    assert times == {ACTIVITY: clock.now - timedelta(seconds=90)}


async def serve_nothing(stream: Stream, rest: str) -> None:
    """A target of a tunnel; it neither reads nor writes the stream."""


@pytest.mark.parametrize(
    ("target", "content", "expected"),
    [
        ("tcp:8501", b"x", ["ports"]),
        ("ssh:", b"x", ["ssh"]),
        ("exec:[]", pack(Channel.OUTPUT, b"x"), ["exec"]),
        # A command without output sends only keepalives, which do not count as use.
        ("exec:[]", pack(Channel.ALIVE), []),
        # HTTP requests are counted by their own handler; the tunnel must not count them again.
        ("http:lab", b"GET / HTTP/1.1", []),
    ],
)
async def test_tunnel_traffic_counts_as_use_except_keepalives_and_http(
    target: str, content: bytes, expected: list[str]
) -> None:
    recorded: list[str] = []
    kinds = dict.fromkeys(("tcp", "ssh", "exec", "http"), serve_nothing)
    stream = Stream(TunnelEndpoint(b"k" * 16, serve_nothing), target)
    await Targets(kinds, recorded.append).connect(stream, target)
    assert recorded == []
    if stream.on_bytes is not None:
        stream.on_bytes(len(content))
    assert recorded == expected


def test_idle_lists_the_unused_apps_that_may_be_stopped(tmp_path: Path) -> None:
    names = ["tensorboard", "mlflow", "vscode"]
    # VS Code is not stopped when idle, because programs of the user run in it.
    assert [BY_NAME[name].stops_when_idle for name in names] == [True, True, False]
    routes = [
        (f"/{name}(.*)", RequestHandler, {"state": {"proc": Process(), "proc_lock": None}})
        for name in names
    ]
    clock, times = MovableClock(), dict[str, datetime]()
    uses = AppActivity(lambda: times, clock)
    web_app = Application(routes, base_url="/")
    offers = [Offer(BY_NAME[name]) for name in names]
    apps = RunningApps(
        web_app, offers, str(tmp_path), Arguments({}, str(tmp_path)), uses, idle_seconds=60
    )
    for name in names:
        uses.record_use(name)
    uses.of("mlflow").websockets = 1
    clock.now += timedelta(seconds=61)
    assert apps.idle() == ["tensorboard"]
    uses.of("mlflow").websockets = 0
    uses.record_use("tensorboard")
    assert apps.idle() == ["mlflow"]


def test_forget_ended_process_keeps_a_running_process() -> None:
    ended = {"proc": Process(running=False), "unix_socket": "/tmp/x", "proc_lock": None}
    forget_ended_process(ended)
    assert "proc" not in ended and "unix_socket" not in ended
    alive = {"proc": Process(), "unix_socket": "/tmp/x"}
    forget_ended_process(alive)
    assert "proc" in alive and alive["unix_socket"] == "/tmp/x"


def test_a_log_is_truncated_while_an_app_appends_to_it(tmp_path: Path) -> None:
    path, max_bytes = tmp_path / "app.log", log_bytes({"BAI_APP_LOG_MIB": "1"})
    with open(path, "ab", buffering=0) as writer:
        writer.write(b"x" * max_bytes)
        running_apps.truncate_log(path, max_bytes)
        assert path.stat().st_size == max_bytes == 2**20
        writer.write(b"last\n")
        running_apps.truncate_log(path, max_bytes)
        writer.write(b"later\n")
    text = path.read_bytes()
    assert len(text) == max_bytes // running_apps.TRUNCATED_LOG_DIVISOR + len(b"later\n")
    assert text.endswith(b"last\nlater\n")
    running_apps.truncate_log(tmp_path / "missing", max_bytes)


@pytest.mark.parametrize("text", ["", "0", "-1", "much", "²", "9" * 5000])
def test_an_invalid_log_size_means_the_default(text: str) -> None:
    assert log_bytes({"BAI_APP_LOG_MIB": text}) == log_bytes({}) == running_apps.MAX_LOG_BYTES


@pytest.mark.parametrize(("text", "seconds"), [("2", 120), ("0", 0), ("much", 0), ("9" * 5000, 0)])
def test_idle_timeout_is_in_minutes_and_an_invalid_text_means_no_timeout(
    text: str, seconds: float
) -> None:
    assert idle_seconds({"BAI_APP_IDLE_MINUTES": text}) == seconds
