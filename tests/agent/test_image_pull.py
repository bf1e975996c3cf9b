"""Image pulls: progress and errors."""

from __future__ import annotations

import pytest

from bai_services.agent.docker.images import Progress, pull_error
from bai_services.core import errors


def test_pull_progress_counts_download_and_extraction() -> None:
    progress = Progress()
    assert progress.read({"status": "Pulling from team/py", "id": "1"}) is None
    assert progress.read({"id": "a", "status": "Pulling fs layer"}) is None

    def step(layer: str, status: str, current: int, total: int) -> int | None:
        detail = {"current": current, "total": total}
        return progress.read({"id": layer, "status": status, "progressDetail": detail})

    assert step("a", "Downloading", 50, 100) == 25
    assert step("a", "Extracting", 50, 100) == 75
    assert step("b", "Downloading", 0, 300) == 18
    assert progress.read({"id": "a", "status": "Pull complete"}) == 25
    # The progress is at most 99 %: 100 % means that Docker has confirmed the image.
    assert progress.read({"id": "b", "status": "Pull complete"}) == 99


@pytest.mark.parametrize(
    "text, kind",
    [
        ("manifest for x not found: manifest unknown", errors.NotFound),
        ("pull access denied for x, repository does not exist", errors.NotFound),
        ("Get https://r/v2/: dial tcp: lookup r: no such host", errors.Unavailable),
        ("net/http: request canceled (Client.Timeout exceeded)", errors.Unavailable),
        ("write /x: no space left on device", errors.StorageFull),
    ],
)
def test_pull_error_names_the_image(text: str, kind: type[errors.BaiError]) -> None:
    error = pull_error("team/py:1", text)
    assert type(error) is kind
    assert "team/py:1" in error.message
