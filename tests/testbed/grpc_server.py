"""A gRPC server with the standard health service, as a replica runs it."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1.health import HealthServicer


def echo(request: bytes, context: grpc.ServicerContext) -> bytes:
    return request


def count(request: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
    for number in range(int(request)):
        yield b"%d" % number


def tick(request: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
    while context.is_active():
        yield b"tick"
        time.sleep(0.1)


methods = {
    "Echo": grpc.unary_unary_rpc_method_handler(echo),
    "Count": grpc.unary_stream_rpc_method_handler(count),
    "Tick": grpc.unary_stream_rpc_method_handler(tick),
}
server = grpc.server(ThreadPoolExecutor(4))
server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test.Model", methods),))
health = HealthServicer()
health.set("", health_pb2.HealthCheckResponse.SERVING)
health_pb2_grpc.add_HealthServicer_to_server(health, server)
server.add_insecure_port(f"127.0.0.1:{os.environ['BAI_SERVICE_PORT']}")
server.start()
server.wait_for_termination()
