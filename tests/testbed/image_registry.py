"""Debian's image registry with TLS and a password, and images to push into it."""

from __future__ import annotations

import hashlib
import json
import shutil
import ssl
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.testbed.ports import free_port
from tests.testbed.wait import wait_until

USERNAME = "robot"
PASSWORD = "registry-password"
# The bcrypt hash of PASSWORD, with the cost that the tool htpasswd uses.
HTPASSWD = "$2y$05$abcdefghijklmnopqrstuux7DVfxfgfXTmp/9Tsk6HzX2QQGjxePG"
MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
INDEX = "application/vnd.docker.distribution.manifest.list.v2+json"
CONFIG = "application/vnd.docker.container.image.v1+json"
LAYER = "application/vnd.docker.image.rootfs.diff.tar.gzip"

_SETTINGS = """
version: 0.1
log: {{level: error, accesslog: {{disabled: true}}}}
storage: {{filesystem: {{rootdirectory: "{folder}"}}, delete: {{enabled: true}}}}
auth: {{htpasswd: {{realm: registry, path: "{folder}/htpasswd"}}}}
http:
  addr: "127.0.0.1:{port}"
  tls: {{certificate: "{folder}/tls.crt", key: "{folder}/tls.key"}}
"""


@dataclass
class TlsRegistry:
    """A running registry at ``url``, whose certificate is valid for 127.0.0.1."""

    port: int
    certificate: str
    folder: Path
    process: subprocess.Popen[bytes] = field(repr=False)

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        return f"https://{self.host}"

    def client(self) -> httpx.Client:
        return httpx.Client(
            base_url=self.url,
            auth=(USERNAME, PASSWORD),
            verify=ssl.create_default_context(cafile=str(self.folder / "tls.crt")),
            timeout=30,
        )

    def push(
        self,
        repository: str,
        tags: Sequence[str],
        labels: Mapping[str, str] | None = None,
        architectures: Sequence[str] = ("amd64",),
        layer: bytes = b"layer",
    ) -> str:
        """Push an image, as an index if it has several architectures; return its digest."""
        with self.client() as client:
            return push(client, repository, tags, labels or {}, architectures, layer)

    def delete(self, repository: str, digest: str) -> None:
        """Delete the manifest with this digest and all its tags."""
        with self.client() as client:
            client.delete(f"/v2/{repository}/manifests/{digest}").raise_for_status()


def push(
    client: httpx.Client,
    repository: str,
    tags: Sequence[str],
    labels: Mapping[str, str],
    architectures: Sequence[str] = ("amd64",),
    layer: bytes = b"layer",
    stored: set[tuple[str, str]] | None = None,
) -> str:
    """Push an image through the distribution protocol; return the digest of its tags.

    ``stored``: repositories and digests of blobs that the registry has; new ones are added.
    """
    stored = set() if stored is None else stored

    def blob(content: bytes) -> dict[str, Any]:
        digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
        if (repository, digest) in stored:
            return {"digest": digest, "size": len(content)}
        stored.add((repository, digest))
        started = client.post(f"/v2/{repository}/blobs/uploads/").raise_for_status()
        url = httpx.URL(started.headers["Location"]).copy_add_param("digest", digest)
        client.put(url, content=content).raise_for_status()
        return {"digest": digest, "size": len(content)}

    def manifest(reference: str, kind: str, document: Mapping[str, Any]) -> dict[str, Any]:
        content = json.dumps({"schemaVersion": 2, "mediaType": kind, **document}).encode()
        digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
        target = f"/v2/{repository}/manifests/{reference or digest}"
        client.put(target, content=content, headers={"Content-Type": kind}).raise_for_status()
        return {"mediaType": kind, "digest": digest, "size": len(content)}

    of_layer = {"mediaType": LAYER, **blob(layer)}
    documents = []
    for architecture in architectures:
        config = {
            "architecture": architecture,
            "os": "linux",
            "config": {"Labels": dict(labels)},
            "rootfs": {"type": "layers", "diff_ids": [of_layer["digest"]]},
        }
        described = {"mediaType": CONFIG, **blob(json.dumps(config).encode())}
        documents.append({"config": described, "layers": [of_layer]})
    if len(documents) == 1:
        return str([manifest(tag, MANIFEST, documents[0]) for tag in tags][-1]["digest"])
    entries = [
        {**manifest("", MANIFEST, document), "platform": {"architecture": name, "os": "linux"}}
        for document, name in zip(documents, architectures, strict=True)
    ]
    return str([manifest(tag, INDEX, {"manifests": entries}) for tag in tags][-1]["digest"])


@contextmanager
def serving_registry(folder: Path) -> Iterator[TlsRegistry]:
    """Run a registry that keeps its data in ``folder``; skip the test if it is not installed."""
    program = shutil.which("docker-registry")
    if program is None:
        pytest.skip("docker-registry is not installed; run `scripts/testbed install`")
    folder.mkdir(parents=True, exist_ok=True)
    make_certificate(folder)
    (folder / "htpasswd").write_text(f"{USERNAME}:{HTPASSWD}\n")
    port = free_port()
    settings = folder / "registry.yml"
    settings.write_text(_SETTINGS.format(folder=folder, port=port))
    process = subprocess.Popen(
        [program, "serve", str(settings)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    registry = TlsRegistry(port, (folder / "tls.crt").read_text(), folder, process)

    def responds() -> bool:
        try:
            with registry.client() as client:
                return client.get("/v2/").status_code == 200
        except httpx.TransportError:
            return False

    try:
        wait_until(responds, 30, "the registry")
        yield registry
    finally:
        process.kill()
        process.wait()


def make_certificate(folder: Path) -> None:
    """Write ``tls.crt`` and ``tls.key``: a self-signed certificate for 127.0.0.1."""
    options = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    names = ["-subj", "/CN=registry", "-addext", "subjectAltName=IP:127.0.0.1"]
    files = ["-keyout", str(folder / "tls.key"), "-out", str(folder / "tls.crt")]
    subprocess.run(
        ["openssl", *options, "-nodes", "-days", "2", *names, *files],
        check=True,
        capture_output=True,
    )
