"""Debian's Prometheus, with the configuration and the alert rules of `deploy/prometheus`."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx

from .ports import free_port
from .skip import skip_or_fail
from .wait import wait_until

DEPLOY = Path(__file__).parents[2] / "deploy"
CONFIGURATION = DEPLOY / "prometheus" / "prometheus.yml"
RULES = DEPLOY / "prometheus" / "alerts.yml"
DASHBOARD = DEPLOY / "grafana" / "bai-hub.json"
# Values of Grafana's variables in the queries of the dashboard.
_VARIABLES = {"$__rate_interval": "1m", "$resource_group": ".*"}


def program(name: str) -> str:
    """Return the path of ``prometheus`` or ``promtool``; skip the test if it is missing."""
    path = shutil.which(name)
    if path is None:
        skip_or_fail("prometheus", f"{name} is not installed")
    return path


def dashboard_queries() -> list[str]:
    """Return the queries of all panels of the dashboard."""
    panels = json.loads(DASHBOARD.read_text())["panels"]
    queries = [target["expr"] for panel in panels for target in panel.get("targets", ())]
    for variable, value in _VARIABLES.items():
        queries = [query.replace(variable, value) for query in queries]
    return queries


def metrics_in(text: str) -> set[str]:
    """Return the names of the bai-hub metrics in a query or a file."""
    return set(re.findall(r"\bbai_[a-z_]+", text))


class Prometheus:
    def __init__(self, url: str) -> None:
        self._url = url

    def get(self, path: str, **query: str) -> Any:
        """Return the data of an API response."""
        response = httpx.get(f"{self._url}/api/v1/{path}", params=query)
        content = response.json()
        assert content["status"] == "success", (query, content)
        return content["data"]

    def values(self, query: str) -> list[tuple[dict[str, str], float]]:
        """Return labels and value of each result of a query."""
        found = self.get("query", query=query)["result"]
        return [(each["metric"], float(each["value"][1])) for each in found]

    def is_scraped(self) -> bool:
        """Return whether the target has been scraped without an error."""
        (target,) = self.get("targets")["activeTargets"]
        return bool(target["health"] == "up")


@contextmanager
def scraping(manager_url: str, token: str, folder: Path) -> Iterator[Prometheus]:
    """Run a Prometheus that scrapes a manager."""
    target = urlsplit(manager_url).netloc
    text = CONFIGURATION.read_text().replace("127.0.0.1:8091", target).replace("15s", "1s")
    (folder / "prometheus.yml").write_text(text)
    (folder / "metrics-token").write_text(token)
    shutil.copy(RULES, folder)
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    options = {
        "config.file": folder / "prometheus.yml",
        "storage.tsdb.path": folder / "data",
        "web.listen-address": f"127.0.0.1:{port}",
    }
    command = [program("prometheus"), *(f"--{name}={value}" for name, value in options.items())]
    log = folder / "prometheus.log"
    with open(log, "wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)
    made = Prometheus(url)
    try:
        wait_until(lambda: _is_up(made), 60, "Prometheus to scrape the manager")
        yield made
    except BaseException:
        print(log.read_text()[-3000:])
        raise
    finally:
        process.terminate()
        process.wait(30)


def _is_up(prometheus: Prometheus) -> bool:
    try:
        return prometheus.is_scraped()
    except (httpx.TransportError, ValueError):
        return False
