"""Print the dependencies of a project and of one of its extras, from a pyproject.toml.

The Dockerfile runs this script in a separate build stage. Therefore a change of bai-hub's code does
not invalidate the layer that installs the requirements.
"""

from __future__ import annotations

import sys
import tomllib


def main(path: str, extra: str) -> None:
    with open(path, "rb") as file:
        project = tomllib.load(file)["project"]
    requirements = [*project["dependencies"], *project["optional-dependencies"][extra]]
    sys.stdout.write("".join(f"{requirement}\n" for requirement in sorted(requirements)))


if __name__ == "__main__":
    main(*sys.argv[1:3])
