"""Run JupyterHub without the slow import of rfc3987_syntax.

    python -m bai_services.run_hub [ARGUMENT …]

If rfc3987_syntax is installed, jsonschema imports it to validate the format `iri`. The import
builds a grammar, which takes more CPU time than the rest of the Hub's start. No schema of the Hub
uses that format; without rfc3987_syntax, jsonschema does not validate `iri`.
"""

from __future__ import annotations

import sys

from bai_services.system.imports import no_garbage_collections


def main() -> None:
    # None makes Python treat the module as not installed.
    sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]
    with no_garbage_collections():
        from jupyterhub.app import main as run_jupyterhub

    run_jupyterhub()


if __name__ == "__main__":
    main()
