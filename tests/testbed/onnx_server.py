"""A small HTTP server that predicts with the ONNX model of a replica."""

from __future__ import annotations

import json
import os
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy
import onnxruntime

options = onnxruntime.SessionOptions()
options.intra_op_num_threads = options.inter_op_num_threads = 1
model = onnxruntime.InferenceSession(f"{os.environ['BAI_MODEL_PATH']}/model.onnx", options)


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self._respond({"status": "ok"})

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        rows = numpy.array(json.loads(body)["rows"], dtype=numpy.float32)
        (predictions,) = model.run(None, {"x": rows})
        self._respond({"predictions": predictions.ravel().tolist()})

    def _respond(self, document: dict[str, object]) -> None:
        body = json.dumps(document).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


ThreadingHTTPServer(("127.0.0.1", int(os.environ["BAI_SERVICE_PORT"])), Handler).serve_forever()
