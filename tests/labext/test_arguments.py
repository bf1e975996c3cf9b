"""Start arguments of apps: defaults, validation and storage."""

from __future__ import annotations

from pathlib import Path

import pytest

from bai_labext.apps.arguments import Arguments
from bai_labext.apps.catalogue import BY_NAME
from bai_services.core.errors import InvalidRequest

TENSORBOARD, STREAMLIT = BY_NAME["tensorboard"], BY_NAME["streamlit"]


@pytest.fixture
def arguments(tmp_path: Path) -> Arguments:
    return Arguments({}, str(tmp_path))


def test_chosen_arguments_are_stored_until_an_empty_text_restores_the_default(
    arguments: Arguments, tmp_path: Path
) -> None:
    assert arguments.of(TENSORBOARD) == {"log_dir": f"{tmp_path}/logs"}
    assert arguments.choose(TENSORBOARD, {"log_dir": "~/runs"}) == {"log_dir": f"{tmp_path}/runs"}
    assert (tmp_path / "runs").is_dir()
    assert Arguments({}, str(tmp_path)).of(TENSORBOARD) == {"log_dir": f"{tmp_path}/runs"}
    assert arguments.choose(TENSORBOARD, {"log_dir": ""}) == {"log_dir": f"{tmp_path}/logs"}


def test_an_environment_variable_overrides_the_default(tmp_path: Path) -> None:
    # Users may set the variable; it must not become an option of the app.
    option = Arguments({"BAI_TENSORBOARD_LOGDIR": "--inspect"}, str(tmp_path))
    assert option.of(TENSORBOARD) == {"log_dir": f"{tmp_path}/--inspect"}
    environ = {"BAI_MLFLOW_STORE": "/data/mlflow"}
    assert Arguments(environ, str(tmp_path)).of(BY_NAME["mlflow"]) == {"store": "/data/mlflow"}


@pytest.mark.parametrize("name", ["tensorboard", "mlflow"])
def test_persistent_paths_default_to_the_first_writable_folder(tmp_path: Path, name: str) -> None:
    (tmp_path / "data").mkdir()
    elsewhere = tmp_path / "elsewhere"
    app, environ = BY_NAME[name], {"BAI_FOLDERS": f"/home/work/gone:/home/work/data:{elsewhere}"}
    (value,) = Arguments(environ, str(tmp_path)).of(app).values()
    assert Path(value).parent == tmp_path / "data"
    assert Arguments(environ, str(tmp_path)).temporary(app) == []
    elsewhere.mkdir()
    (value,) = Arguments({"BAI_FOLDERS": str(elsewhere)}, str(tmp_path)).of(app).values()
    assert Path(value).parent == elsewhere


def test_default_path_without_a_mounted_folder_is_temporary(tmp_path: Path) -> None:
    arguments = Arguments({"BAI_FOLDERS": ""}, str(tmp_path))
    assert arguments.temporary(TENSORBOARD) == ["log_dir"]
    arguments.choose(TENSORBOARD, {"log_dir": "~/logs"})
    assert arguments.temporary(TENSORBOARD) == []
    set_for_all = Arguments({"BAI_TENSORBOARD_LOGDIR": "/data/runs"}, str(tmp_path / "other"))
    assert set_for_all.temporary(TENSORBOARD) == []
    assert arguments.temporary(STREAMLIT) == []


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("log_dir", "a\0b", "control characters"),
        ("log_dir", " runs", "start or end with spaces"),
        ("log_dir", 7, "a path of at most 1024"),
        ("log_dir", "x" * 1025, "a path of at most 1024"),
        ("log_dir", "file", "cannot be created"),
        ("log_dir", "file/below", "cannot be created"),
        ("port", "8000", "it takes log_dir"),
    ],
)
def test_invalid_arguments_are_rejected_with_the_reason(
    arguments: Arguments, tmp_path: Path, name: str, value: object, why: str
) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidRequest, match=why):
        arguments.choose(TENSORBOARD, {name: value})
    assert arguments.of(TENSORBOARD) == {"log_dir": f"{tmp_path}/logs"}


def test_a_path_that_begins_with_a_dash_is_made_absolute(
    arguments: Arguments, tmp_path: Path
) -> None:
    assert arguments.choose(TENSORBOARD, {"log_dir": "--port"}) == {"log_dir": f"{tmp_path}/--port"}


def test_a_required_argument_must_be_an_existing_file(arguments: Arguments, tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="Streamlit needs 'script'"):
        arguments.check(STREAMLIT)
    with pytest.raises(InvalidRequest, match="no such file"):
        arguments.choose(STREAMLIT, {"script": "app.py"})
    (tmp_path / "app.py").write_text("")
    arguments.choose(STREAMLIT, {"script": "app.py"})
    arguments.check(STREAMLIT)
    (tmp_path / "app.py").unlink()
    with pytest.raises(InvalidRequest, match="no such file"):
        arguments.check(STREAMLIT)


def test_a_corrupt_file_is_ignored(arguments: Arguments, tmp_path: Path) -> None:
    arguments.choose(TENSORBOARD, {"log_dir": "runs"})
    (tmp_path / ".local/state/bai/tensorboard.json").write_text("{")
    assert arguments.of(TENSORBOARD) == {"log_dir": f"{tmp_path}/logs"}
