"""What counts as using an app, and which apps are ended when nobody does."""

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
from bai_labext.extension import log_bytes
from bai_labext.tunnel.targets import Targets
from bai_services.tunnel.channels import Channel, pack
from bai_services.tunnel.end import End, Stream


class MovedClock:
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
def test_what_a_page_asks_by_itself_is_no_use(
    name: str, path: str, upgrade: str, expected: bool
) -> None:
    headers = HTTPHeaders({"Host": "hub", **({"Upgrade": upgrade} if upgrade else {})})
    line = RequestStartLine("GET", path, "HTTP/1.1")
    request = HTTPServerRequest(start_line=line, headers=headers)
    assert is_use(request, path, BY_NAME[name].polled) is expected


def test_a_use_of_an_app_is_one_of_the_session() -> None:
    clock, times = MovedClock(), dict[str, datetime]()
    uses = AppActivity(lambda: times, clock)
    assert uses.idle_seconds("mlflow") is None
    uses.record_use("mlflow")
    clock.now += timedelta(seconds=90)
    assert uses.idle_seconds("mlflow") == 90
    assert times == {ACTIVITY: clock.now - timedelta(seconds=90)}


async def nothing(stream: Stream, rest: str) -> None:
    """Serve a stream that somebody opened and nobody uses."""


@pytest.mark.parametrize(
    ("target", "content", "expected"),
    [
        ("tcp:8501", b"x", ["ports"]),
        ("ssh:", b"x", ["ssh"]),
        ("exec:[]", pack(Channel.OUTPUT, b"x"), ["exec"]),
        # A command that is silent only asks whether anybody still listens.
        ("exec:[]", pack(Channel.ALIVE), []),
        # Its requests are looked at where they are answered.
        ("http:lab", b"GET / HTTP/1.1", []),
    ],
)
async def test_bytes_through_a_tunnel_are_a_use(
    target: str, content: bytes, expected: list[str]
) -> None:
    used: list[str] = []
    kinds = dict.fromkeys(("tcp", "ssh", "exec", "http"), nothing)
    stream = Stream(End(b"k" * 16, nothing), target)
    await Targets(kinds, used.append).connect(stream, target)
    assert used == []
    if stream.on_bytes is not None:
        stream.on_bytes(len(content))
    assert used == expected


def test_only_what_nobody_uses_and_nothing_of_theirs_runs_in_is_ended(tmp_path: Path) -> None:
    names = ["tensorboard", "mlflow", "vscode"]
    routes = [
        (f"/{name}(.*)", RequestHandler, {"state": {"proc": Process(), "proc_lock": None}})
        for name in names
    ]
    clock, times = MovedClock(), dict[str, datetime]()
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


def test_a_process_that_has_ended_is_started_by_the_next_request() -> None:
    ended = {"proc": Process(running=False), "unix_socket": "/tmp/x", "proc_lock": None}
    forget_ended_process(ended)
    assert "proc" not in ended and "unix_socket" not in ended
    alive = {"proc": Process(), "unix_socket": "/tmp/x"}
    forget_ended_process(alive)
    assert alive["unix_socket"] == "/tmp/x"


def test_a_log_that_grows_too_long_is_cut_while_it_is_written(tmp_path: Path) -> None:
    path, most = tmp_path / "app.log", log_bytes({"BAI_APP_LOG_MIB": "1"})
    with open(path, "ab", buffering=0) as writer:
        writer.write(b"x" * most)
        running_apps.truncate_log(path, most)
        assert path.stat().st_size == most == 2**20
        writer.write(b"last\n")
        running_apps.truncate_log(path, most)
        writer.write(b"later\n")
    text = path.read_bytes()
    assert len(text) == most // running_apps.TRUNCATED_LOG_DIVISOR + len(b"later\n")
    assert text.endswith(b"last\nlater\n")
    running_apps.truncate_log(tmp_path / "missing", most)


@pytest.mark.parametrize("text", ["", "0", "-1", "much", "²"])
def test_a_size_of_logs_that_is_none_is_the_usual_one(text: str) -> None:
    assert log_bytes({"BAI_APP_LOG_MIB": text}) == log_bytes({}) == running_apps.MAX_LOG_BYTES
