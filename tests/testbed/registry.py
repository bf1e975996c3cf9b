"""A fake image registry over HTTP, controlled by the test."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import io
import json
import os
import tarfile
from collections import Counter
from dataclasses import dataclass, field

from tornado.httpserver import HTTPServer
from tornado.testing import bind_unused_port
from tornado.web import Application, RequestHandler

MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
CONFIG = "application/vnd.docker.container.image.v1+json"
LAYER = "application/vnd.docker.image.rootfs.diff.tar.gzip"


@dataclass
class Registry:
    """Serves the image ``name`` with one layer; blob requests wait for ``are_blobs_released``."""

    port: int
    layer_bytes: int = 3_000_000
    are_blobs_released: asyncio.Event = field(default_factory=asyncio.Event)
    blob_requests: Counter[str] = field(default_factory=Counter)
    blobs: dict[str, bytes] = field(default_factory=dict)
    manifest: bytes = b""

    def __post_init__(self) -> None:
        tar = _layer(self.layer_bytes)
        layer = gzip.compress(tar, 1)
        config = {
            "architecture": "amd64",
            "os": "linux",
            "config": {},
            "rootfs": {"type": "layers", "diff_ids": [_digest(tar)]},
        }
        parts = [(CONFIG, json.dumps(config).encode()), (LAYER, layer)]
        described = [
            {"mediaType": kind, "size": len(data), "digest": self._store(data)}
            for kind, data in parts
        ]
        self.manifest = json.dumps(
            {
                "schemaVersion": 2,
                "mediaType": MANIFEST,
                "config": described[0],
                "layers": described[1:],
            }
        ).encode()

    @property
    def name(self) -> str:
        """The reference of the image. It names 127.0.0.1, because Docker needs no TLS there."""
        return f"127.0.0.1:{self.port}/team/tiny:1"

    def _store(self, data: bytes) -> str:
        digest = _digest(data)
        self.blobs[digest] = data
        return digest


class _Handler(RequestHandler):
    async def get(self, path: str) -> None:
        registry: Registry = self.settings["registry"]
        kind, _, reference = path.rpartition("/")
        if path == "":
            self.finish({})
        elif kind.endswith("/manifests") and reference in ("1", _digest(registry.manifest)):
            self.set_header("Content-Type", MANIFEST)
            self.set_header("Docker-Content-Digest", _digest(registry.manifest))
            self.finish(registry.manifest)
        elif kind.endswith("/blobs") and reference in registry.blobs:
            registry.blob_requests[reference] += 1
            await registry.are_blobs_released.wait()
            self.finish(registry.blobs[reference])
        else:
            self.set_status(404)
            self.finish({"errors": [{"code": "MANIFEST_UNKNOWN", "message": "manifest unknown"}]})

    head = get


async def serve_registry() -> tuple[HTTPServer, Registry]:
    """Start a registry in the running event loop; the test must release its blobs."""
    socket, port = bind_unused_port()
    registry = Registry(port)
    server = HTTPServer(Application([(r"/v2/(.*)", _Handler)], registry=registry))
    server.add_socket(socket)
    return server, registry


def _layer(size: int) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        about = tarfile.TarInfo("data")
        about.size = size
        # Random, because an engine does not request a layer that it already has.
        tar.addfile(about, io.BytesIO(os.urandom(size)))
    return buffer.getvalue()


def _digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"
