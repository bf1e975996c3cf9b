"""``python -m bai_labext``: Jupyter's single-user server with the settings of a session."""

from __future__ import annotations

import os
import sys

from bai_labext import attached, config_path
from bai_services.system.imports import no_garbage_collections, without_hub_modules


def import_jupyterlab() -> None:
    """Import JupyterLab without two steps that take most of its import time.

    - If rfc3987_syntax is installed, jsonschema imports it to validate the format `iri`, and the
      module builds a grammar: 0.6 s of CPU time. No schema of Jupyter uses that format.
    - If node is installed, JupyterLab runs it to read yarn's settings: 0.4 s of CPU time at the
      import, and again for each check for builds and each list of extensions. The settings are for
      builds of extensions. The server of a session never builds extensions, because its extension
      manager is read-only. ``jupyter lab build`` in a terminal still reads the settings.
    """
    # None makes Python treat the module as not installed.
    sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]
    from jupyterlab import commands

    commands._yarn_config = _no_yarn_config
    import jupyterlab.labapp  # noqa: F401


def _no_yarn_config(_logger: object) -> dict[str, dict[str, str]]:
    """Return what JupyterLab uses if node is not installed."""
    return {"yarn config": {}, "npm config": {}}


def main() -> None:
    """Run ``jupyterhub-singleuser`` with the arguments of this process."""
    attached.redirect_output(os.environ)
    others = os.environ.get("JUPYTER_CONFIG_PATH", "").split(os.pathsep)
    paths = [config_path(), *(path for path in others if path and path != config_path())]
    os.environ["JUPYTER_CONFIG_PATH"] = os.pathsep.join(paths)
    with no_garbage_collections(), without_hub_modules():
        import_jupyterlab()
        from jupyterhub.singleuser import main as run_singleuser

    run_singleuser()


if __name__ == "__main__":
    main()
