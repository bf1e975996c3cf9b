"""Write the SBOM of the image in which this script runs: CycloneDX 1.6, as JSON.

``cyclonedx-py`` lists the Python packages. This script adds the packages of Debian's dpkg and of
code-server. ``--validate`` checks the result with the schema of CycloneDX, which takes 5 s.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output import make_outputter
from cyclonedx.schema import OutputFormat, SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packageurl import PackageURL

PYTHON = "/opt/bai/bin/python"
NPM = Path("/opt/code-server/node_modules")
OS_RELEASE = Path("/etc/os-release")
FIELDS = "${db:Status-Abbrev}\\t${Package}\\t${Version}\\t${Architecture}\\n"
VERSION = SchemaVersion.V1_6


def python_packages() -> Bom:
    """Return an SBOM with the packages that the Python of notebooks can import."""
    tool = str(Path(sys.prefix) / "bin" / "cyclonedx-py")
    command = [
        tool,
        "environment",
        "--output-reproducible",
        "--no-validate",
        "--spec-version",
        "1.6",
    ]
    done = subprocess.run([*command, PYTHON], capture_output=True, text=True, check=True)
    bom: Bom = Bom.from_json(json.loads(done.stdout))  # type: ignore[attr-defined]
    return bom


def distribution() -> dict[str, str]:
    lines = OS_RELEASE.read_text().splitlines()
    pairs = [line.split("=", 1) for line in lines if "=" in line]
    return {name: value.strip("\"'") for name, value in pairs}


def debian_packages() -> Iterator[Component]:
    system = distribution()
    vendor = system.get("ID", "debian")
    release = f"{vendor}-{system['VERSION_ID']}" if "VERSION_ID" in system else vendor
    done = subprocess.run(
        ["dpkg-query", "--show", f"--showformat={FIELDS}"],
        capture_output=True,
        text=True,
        check=True,
    )
    for line in done.stdout.splitlines():
        status, name, version, architecture = line.split("\t")
        if status.startswith("ii"):
            qualifiers = {"arch": architecture, "distro": release}
            yield component(PackageURL("deb", vendor, name, version, qualifiers))


def npm_packages() -> Iterator[Component]:
    for path in sorted(NPM.rglob("package.json")):
        above = path.parent.parent
        if "node_modules" not in (above.name, above.parent.name if above.name[:1] == "@" else ""):
            continue  # not the root of a package
        try:
            package = json.loads(path.read_text())
            name, version = str(package["name"]), str(package["version"])
        except (OSError, ValueError, KeyError):
            continue
        scope, _, rest = name.rpartition("/")
        yield component(PackageURL("npm", scope or None, rest, version))


def component(purl: PackageURL) -> Component:
    name = f"{purl.namespace}/{purl.name}" if purl.type == "npm" and purl.namespace else purl.name
    return Component(
        name=name,
        version=purl.version,
        type=ComponentType.LIBRARY,
        purl=purl,
        bom_ref=purl.to_string(),
    )


def main(target: str, *, validates: bool) -> None:
    bom = python_packages()
    known = {str(each.purl) for each in bom.components}
    for each in [*debian_packages(), *npm_packages()]:
        if str(each.purl) not in known:
            known.add(str(each.purl))
            bom.components.add(each)
            bom.register_dependency(each)
    outputter = make_outputter(bom, OutputFormat.JSON, VERSION)
    text = outputter.output_as_string(indent=1)
    if validates and (problem := JsonStrictValidator(VERSION).validate_str(text)):
        sys.exit(f"the SBOM is invalid: {problem}")
    Path(target).write_text(text + "\n")
    print(f"{len(bom.components)} packages in the SBOM")


if __name__ == "__main__":
    main(sys.argv[1], validates="--validate" in sys.argv)
