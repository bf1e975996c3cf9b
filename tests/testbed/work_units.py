"""Groups of tests, each run by one worker: a file, or all files that share a slow fixture."""

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
        "open_batch",
        "pipeline_faults",
        "resize",
        "second_address",
        "serving",
        "ssh",
        "training_pipeline",
        "tunnel",
    )
)

# The files with tests that use the fixture `wheel`: it is built once instead of once per worker.
WHEEL = "the wheel"
WHEEL_FILES = frozenset(
    f"tests/install/test_{name}.py" for name in ("bundle", "installation", "wheel")
)
UNITS = {DOCKER_DEMO: DOCKER_DEMO_FILES, WHEEL: WHEEL_FILES}
UNIT_OF_FILE = {file: unit for unit, files in UNITS.items() for file in files}
# Fixtures that only the files of a unit may use.
UNIT_OF_FIXTURE = {"docker_hub": DOCKER_DEMO, "any_hub": DOCKER_DEMO, "wheel": WHEEL}


class WorkUnits(LoadFileScheduling):
    """Send each file to a free worker, but all files of one of the `UNITS` to one worker."""

    def _split_scope(self, nodeid: str) -> str:
        path: str = super()._split_scope(nodeid)
        return UNIT_OF_FILE.get(path, path)
