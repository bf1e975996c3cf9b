"""Groups of tests, each run by one worker: a file, or all files with the shared Docker demo."""

from __future__ import annotations

from xdist.scheduler import LoadFileScheduling

DOCKER_DEMO = "the shared demo on the docker engine"
# The files with tests that use the fixture `docker_hub` or `any_hub`. With one worker for all of
# them, one such demo is started instead of one per worker.
DOCKER_DEMO_FILES = frozenset(
    f"tests/e2e/test_{name}.py"
    for name in (
        "batch",
        "mlflow_dl",
        "grpc",
        "idle_rules",
        "isolation",
        "journey_browser",
        "journey_cli",
        "journey_rest",
        "labext",
        "mlflow",
        "models",
        "resize",
        "second_address",
        "serving",
        "ssh",
        "training_pipeline",
        "tunnel",
    )
)


class WorkUnits(LoadFileScheduling):
    """Send each file to a free worker, but all `DOCKER_DEMO_FILES` to one worker."""

    def _split_scope(self, nodeid: str) -> str:
        path: str = super()._split_scope(nodeid)
        return DOCKER_DEMO if path in DOCKER_DEMO_FILES else path
