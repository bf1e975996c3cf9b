"""Built-in templates, notebooks and apps of pipelines, run with real sessions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from bai_services.manager.pipelines.templates import built_in_templates
from tests.e2e.sessions import JSON, checked, stop, wait_for
from tests.hub import RunningHub
from tests.testbed.wait import wait_until

pytestmark = pytest.mark.e2e

RUN_SECONDS = 240
FAILING = """\
version: 1
name: template-failing
defaults: {resources: {cpu: 1, mem: 512m}}
tasks:
- name: write
  command: |
    python - <<'END'
    import json
    cells = [{"cell_type": "code", "id": f"c{number}", "source": source, "metadata": {},
              "outputs": [], "execution_count": None}
             for number, source in enumerate(["one = 1", "print(one / 0)", "print('later')"])]
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    with open("/pipeline/divide.ipynb", "w") as file:
        json.dump({"cells": cells, "metadata": {"kernelspec": kernel},
                   "nbformat": 4, "nbformat_minor": 5}, file)
    END
- {name: divide, kind: notebook, notebook: divide.ipynb, needs: [write]}
"""


@pytest.fixture
def rest(hub: RunningHub) -> Iterator[httpx.Client]:
    """A client; the pipelines and folders of the test are removed at the end."""
    with hub.rest("user") as client:
        yield client
        for each in checked(client.get("/pipelines?name__contains=template-"), 200)["items"]:
            client.delete(f"/pipelines/{each['id']}")
            client.delete(f"/vfolders/{each['folder']}")


def run(rest: httpx.Client, definition: str, **parameters: Any) -> str:
    """Create and run a pipeline; return the id of the run."""
    made = checked(rest.post("/pipelines", json={"definition": definition}), 201)
    body = {"parameters": parameters}
    return str(checked(rest.post(f"/pipelines/{made['id']}/runs", json=body), 202)["id"])


def wait_for_end(rest: httpx.Client, key: str) -> JSON:
    """Wait until a run has ended, approve its approvals, and return the run with its tasks."""

    def ended() -> JSON | None:
        found: JSON = checked(rest.get(f"/pipeline-runs/{key}"), 200)
        for each in found["task_runs"]:
            if each["status"] == "awaiting-approval":
                path = f"/pipeline-runs/{key}/tasks/{each['task']}/approval"
                checked(rest.post(path, json={"is_approved": True}), 200)
        is_ended = found["run"]["status"] in ("succeeded", "failed", "cancelled")
        return found if is_ended else None

    return wait_until(ended, RUN_SECONDS, "the end of the run")


def results_of(rest: httpx.Client, key: str) -> JSON:
    found: JSON = checked(rest.get(f"/pipeline-runs/{key}/results"), 200)
    return found


def test_built_in_templates_succeed(rest: httpx.Client) -> None:
    inbox = checked(rest.post("/vfolders", json={"name": "template-inbox"}), 201)["id"]
    path = f"/vfolders/{inbox}/content"
    checked(rest.put(path, params={"path": "new/example.csv"}, content=b"1\n2\n"), 200, 201, 204)
    runs = {}
    for template in built_in_templates():
        if "multi-node" in template.definition:
            continue  # runs in test_nodes.py
        text = template.definition.replace("name: ", "name: template-", 1)
        runs[template.name] = run(rest, text.replace("'inbox:", "'template-inbox:"))
    problems = []
    for name, key in runs.items():
        found = wait_for_end(rest, key)
        for each in found["task_runs"]:
            # The task after a failure is skipped.
            if each["status"] not in ("succeeded", "skipped"):
                log = rest.get(f"/sessions/{each['session']}/logs").text
                problems.append((name, each["task"], each["status"], each["message"], log[-1500:]))
    assert problems == []
    metrics = results_of(rest, runs["compare-models"])["metrics"]
    assert len(metrics) == 5
    assert metrics["best"] == max(metrics.values())
    assert results_of(rest, runs["process-files"])["metrics"] == {"lines": 2}
    assert results_of(rest, runs["search-parameters"])["metrics"]["loss"] < 1e-6
    notebook = results_of(rest, runs["notebook-report"])
    paths = {each["path"].rpartition("/")[2]: each["path"] for each in notebook["artifacts"]}
    assert set(paths) == {"report.ipynb", "report.html"}
    content = f"/vfolders/{notebook['folder']}/content"
    executed = rest.get(content, params={"path": paths["report.ipynb"]}).text
    # The parameter of the run has replaced the value of the cell.
    assert f"100 points: {sum(n * n for n in range(100))}" in executed
    checked(rest.delete(f"/vfolders/{inbox}"), 204)


def test_failed_cell_is_reported_and_apps_show_the_run(hub: RunningHub, rest: httpx.Client) -> None:
    key = run(rest, FAILING)
    assert wait_for_end(rest, key)["run"]["status"] == "failed"
    found = results_of(rest, key)
    directory = f"runs/{key}"
    (artifact,) = found["artifacts"]
    assert (artifact["path"], artifact["type"]) == (f"{directory}/divide.ipynb", "file")
    assert found["notebook_errors"] == [
        {
            "task": "divide",
            "path": f"{directory}/divide.ipynb",
            "cell": 2,
            "error": "ZeroDivisionError: division by zero",
        }
    ]
    opened = checked(rest.post(f"/pipeline-runs/{key}/apps", json={"app": "tensorboard"}), 200)
    session = wait_for(rest, opened["session"], "RUNNING")
    with hub.jupyter(rest, session["url"]) as server:
        shown = server.get(f"{opened['path']}data/environment", timeout=120)
        assert shown.json()["data_location"] == f"/pipeline/{directory}"
    again = checked(rest.post(f"/pipeline-runs/{key}/apps", json={"app": "tensorboard"}), 200)
    assert (again["session"], again["is_new"]) == (opened["session"], False)
    # The image of the demo has no MLflow.
    refused = checked(rest.post(f"/pipeline-runs/{key}/apps", json={"app": "mlflow"}), 409)
    assert refused["coded"]["code"] == "app-not-in-image"
    stop(rest, opened["session"])
