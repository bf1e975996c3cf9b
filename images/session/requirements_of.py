"""Write the requirements of the image: those of a project and its extra, and pinned packages.

The Dockerfile runs this script in a separate build stage. Therefore a change of bai-hub's code does
not invalidate the layers that install the requirements.
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path


def write(path: Path, requirements: Iterable[str]) -> None:
    path.write_text("".join(f"{requirement}\n" for requirement in requirements))


def main(project_file: str, versions_file: str, extra: str, folder: str) -> None:
    project = tomllib.loads(Path(project_file).read_text())["project"]
    versions = tomllib.loads(Path(versions_file).read_text())
    target, tools = Path(folder), versions["tools"]
    target.mkdir()
    requirements = [*project["dependencies"], *project["optional-dependencies"][extra]]
    write(target / "session.txt", [*sorted(requirements), *versions["kernel"]["pip"]])
    write(target / "sbom.txt", [f"cyclonedx-bom=={tools['cyclonedx-bom']}"])
    write(target / "wheel.txt", [f"hatchling=={tools['hatchling']}"])
    for app, packages in versions["apps"].items():
        write(target / f"app-{app}.txt", packages)


if __name__ == "__main__":
    main(*sys.argv[1:5])
