"""gRPC through HAProxy: a real server behind the relay of a replica, and the official client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1.health import HealthServicer
from h2.config import H2Configuration
from h2.connection import H2Connection

from bai_services import grpc_health
from bai_services.core.serving.gateway_records import EndpointRoute, Protocol, ReplicaRoute
from bai_services.grpc_health import GrpcHealth
from tests.labext.test_replica import replica
from tests.testbed.wait import wait_until_async

from .conftest import TOKEN, Bed, endpoint_route, token_route

SECRET = "replica-secret"
DOMAIN = "serve.example.org"
METADATA = (("authorization", f"Bearer {TOKEN}"),)
SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


@pytest.fixture
def engine() -> str:
    return "haproxy"


@dataclass(frozen=True)
class Relay:
    """The main process of a replica, which forwards to a port."""

    port: int
    target: int


@pytest.fixture(scope="module")
def relays(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Relay]]:
    with ExitStack() as stack:
        found = []
        for _ in range(2):
            folder = tmp_path_factory.mktemp("replica")
            url, target = stack.enter_context(replica(folder, "sleep 600", "docker"))
            found.append(Relay(int(url.rpartition(":")[2]), target))
        yield found


@dataclass
class Model:
    """A server of gRPC with the standard health service, behind the relay of a replica."""

    name: str
    relay: Relay
    server: grpc.aio.Server
    health: HealthServicer
    release: asyncio.Event
    metadata: list[dict[str, str]]

    @classmethod
    async def start(cls, bed: Bed, relay: Relay, name: str = "r1") -> Model:
        model = cls(name, relay, grpc.aio.server(), HealthServicer(), asyncio.Event(), [])
        model.health.set("", SERVING)
        health_pb2_grpc.add_HealthServicer_to_server(model.health, model.server)
        model.server.add_generic_rpc_handlers(
            (
                grpc.method_handlers_generic_handler(
                    "test.Model",
                    {
                        "Echo": grpc.unary_unary_rpc_method_handler(model.echo),
                        "Count": grpc.unary_stream_rpc_method_handler(model.count),
                        "Chat": grpc.stream_stream_rpc_method_handler(model.chat),
                    },
                ),
            )
        )
        model.server.add_insecure_port(f"127.0.0.1:{relay.target}")
        await model.server.start()
        bed.stack.push_async_callback(model.server.stop, 0)
        return model

    def route(self, **changes: Any) -> ReplicaRoute:
        url = f"http://127.0.0.1:{self.relay.port}"
        route = ReplicaRoute(
            self.name, "v1", url, SECRET, False, health_path="/", protocol=Protocol.GRPC
        )
        return replace(route, **changes)

    async def echo(self, request: bytes, context: grpc.aio.ServicerContext) -> bytes:
        pairs = context.invocation_metadata() or ()
        self.metadata.append({str(name): str(value) for name, value in pairs})
        context.set_trailing_metadata((("x-model", self.name),))
        if request == b"fail":
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "no such model")
        return request

    async def count(
        self, request: bytes, context: grpc.aio.ServicerContext
    ) -> AsyncIterator[bytes]:
        yield b"1"
        await self.release.wait()
        yield b"2"
        context.set_trailing_metadata((("x-total", "2"),))

    async def chat(
        self, requests: AsyncIterator[bytes], context: grpc.aio.ServicerContext
    ) -> AsyncIterator[bytes]:
        async for request in requests:
            yield b"echo " + request


def grpc_route(*replicas: ReplicaRoute, **changes: Any) -> EndpointRoute:
    return endpoint_route(*replicas, protocol=Protocol.GRPC, health_path="/", **changes)


@pytest.fixture
async def model(bed: Bed, relays: list[Relay]) -> Model:
    model = await Model.start(bed, relays[0])
    await bed.manager.set(grpc_route(model.route()))
    await bed.gateway(domain=DOMAIN.encode())
    await bed.ready()
    return model


@pytest.fixture
async def channel(bed: Bed, model: Model) -> AsyncIterator[grpc.aio.Channel]:
    options = [("grpc.default_authority", f"chat.{DOMAIN}")]
    port = bed.gateways[0].port
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", options) as channel:
        yield channel


async def health(relay: Relay, path: str = "/", secret: str = SECRET) -> GrpcHealth:
    return await grpc_health.check("127.0.0.1", relay.port, secret, path, 4)


async def code_of(call: Any) -> tuple[grpc.StatusCode, str]:
    """Return status and message of a call that fails."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value.code(), caught.value.details() or ""


async def test_official_client_reaches_the_model(channel: grpc.aio.Channel, model: Model) -> None:
    call = channel.unary_unary("/test.Model/Echo")(b"x" * 100_000, metadata=METADATA)
    assert await call == b"x" * 100_000
    assert dict(await call.trailing_metadata())["x-model"] == "r1"
    # Neither the token nor the secret reaches the model.
    (seen,) = model.metadata
    assert "authorization" not in seen
    assert seen["x-forwarded-for"] == "127.0.0.1"
    failed = channel.unary_unary("/test.Model/Echo")(b"fail", metadata=METADATA)
    assert await code_of(failed) == (grpc.StatusCode.FAILED_PRECONDITION, "no such model")


async def test_streams_in_both_directions_are_forwarded(
    channel: grpc.aio.Channel, model: Model
) -> None:
    stream = channel.unary_stream("/test.Model/Count")(b"", metadata=METADATA)
    assert await stream.read() == b"1"
    model.release.set()
    assert [await stream.read(), await stream.read()] == [b"2", grpc.aio.EOF]
    assert dict(await stream.trailing_metadata())["x-total"] == "2"
    chat = channel.stream_stream("/test.Model/Chat")(metadata=METADATA)
    for word in (b"a", b"b"):
        await chat.write(word)
        assert await chat.read() == b"echo " + word
    await chat.done_writing()
    assert await chat.read() is grpc.aio.EOF


async def test_model_is_reached_at_the_path_without_an_own_host_name(
    bed: Bed, model: Model
) -> None:
    port = bed.gateways[0].port
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        method = channel.unary_unary("/services/bai-serve/chat/test.Model/Echo")
        assert await method(b"x", metadata=METADATA) == b"x"


async def test_refusals_have_the_status_codes_of_grpc(
    bed: Bed, channel: grpc.aio.Channel, model: Model
) -> None:
    echo = channel.unary_unary("/test.Model/Echo")
    code, _ = await code_of(echo(b""))
    assert code is grpc.StatusCode.UNAUTHENTICATED
    limited = token_route("limited", max_concurrent=1)
    await bed.set(grpc_route(model.route(), tokens=(token_route(), limited)))
    answer = await code_of(echo(b"", metadata=(("authorization", "Bearer limited"),)))
    assert answer == (
        grpc.StatusCode.UNIMPLEMENTED, "a token with a limit of requests cannot be used for gRPC",
    )  # fmt: skip
    await bed.set(grpc_route(model.route(), is_paused=True))
    answer = await code_of(echo(b"", metadata=METADATA))
    assert answer == (grpc.StatusCode.UNAVAILABLE, "the endpoint is paused")
    assert not model.metadata


async def test_http_request_is_refused(bed: Bed, model: Model) -> None:
    async with bed.http.get(bed.url("/x")) as response:
        assert response.status == 501
        assert "serves gRPC" in (await response.json())["message"]


async def test_requests_wait_for_the_first_replica(
    bed: Bed, channel: grpc.aio.Channel, model: Model
) -> None:
    """When a replica is ready, the call fails with UNAVAILABLE, and the client repeats it."""
    await bed.set(grpc_route())
    waiting = channel.unary_unary("/test.Model/Echo")(b"x", metadata=METADATA)
    endpoint = bed.gateways[0].routes.by_name[b"chat"]
    await wait_until_async(lambda: endpoint.queue, 5, "the queue")
    await bed.set(grpc_route(model.route()))
    answer = await code_of(waiting)
    assert answer == (
        grpc.StatusCode.UNAVAILABLE, "a replica is ready: send the request again",
    )  # fmt: skip
    await bed.ready()
    assert await channel.unary_unary("/test.Model/Echo")(b"x", metadata=METADATA) == b"x"


async def test_draining_replica_finishes_its_stream(
    bed: Bed, channel: grpc.aio.Channel, model: Model, relays: list[Relay]
) -> None:
    other = await Model.start(bed, relays[1], "r2")
    stream = channel.unary_stream("/test.Model/Count")(b"", metadata=METADATA)
    assert await stream.read() == b"1"
    await bed.set(grpc_route(model.route(is_draining=True), other.route()))
    await bed.ready(2)
    echo = channel.unary_unary("/test.Model/Echo")
    for _ in range(3):
        await echo(b"x", metadata=METADATA)
    assert (len(model.metadata), len(other.metadata)) == (0, 3)
    drained = [key for report in bed.manager.reports for key in report["drained"]]
    assert not drained
    model.release.set()
    assert [await stream.read(), await stream.read()] == [b"2", grpc.aio.EOF]
    await wait_until_async(
        lambda: any("r1" in report["drained"] for report in bed.manager.reports), 5, "drained"
    )


async def test_revoked_token_ends_its_stream(
    bed: Bed, channel: grpc.aio.Channel, model: Model
) -> None:
    stream = channel.unary_stream("/test.Model/Count")(b"", metadata=METADATA)
    assert await stream.read() == b"1"
    await bed.set(grpc_route(model.route(), tokens=()))
    await code_of(asyncio.wait_for(stream.read(), 5))
    code, _ = await code_of(channel.unary_unary("/test.Model/Echo")(b"", metadata=METADATA))
    assert code is grpc.StatusCode.UNAUTHENTICATED


async def test_replica_that_stops_serving_gets_no_requests(bed: Bed, model: Model) -> None:
    replica = bed.gateways[0].routes.by_name[b"chat"].replicas["r1"]
    assert await health(model.relay) is GrpcHealth.SERVING
    model.health.set("", NOT_SERVING)
    assert await health(model.relay) is GrpcHealth.NOT_SERVING
    replica.is_ready, replica.probed_at = False, float("-inf")
    await wait_until_async(lambda: replica.failures >= 3, 5, "failed checks")
    model.health.set("", SERVING)
    await wait_until_async(lambda: replica.is_ready, 5, "a successful check")


async def test_health_of_a_single_service_is_checked(model: Model) -> None:
    assert await health(model.relay, "/test.Model") is GrpcHealth.NO_SERVICE
    name = "a" * 200
    model.health.set(name, SERVING)
    assert await health(model.relay, f"/{name}") is GrpcHealth.SERVING


async def test_server_without_a_health_service_is_healthy(relays: list[Relay]) -> None:
    server = grpc.aio.server()
    server.add_insecure_port(f"127.0.0.1:{relays[0].target}")
    await server.start()
    found = await health(relays[0])
    assert found is GrpcHealth.UNIMPLEMENTED and found.is_healthy
    await server.stop(0)


@pytest.mark.parametrize("secret", ["", "another-secret", SECRET + "x"])
async def test_replica_rejects_connections_without_its_secret(model: Model, secret: str) -> None:
    with pytest.raises(ConnectionResetError):
        await health(model.relay, secret=secret)


async def test_replica_without_a_server_is_not_healthy(relays: list[Relay]) -> None:
    with pytest.raises(ConnectionResetError):
        await health(relays[0])


async def test_http_server_is_not_a_grpc_server(bed: Bed) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    bed.stack.callback(server.close)
    port = server.sockets[0].getsockname()[1]
    assert await grpc_health.check("127.0.0.1", port, SECRET, "/", 4) is GrpcHealth.NO_GRPC


async def test_header_that_is_not_utf_8_does_not_break_a_check(bed: Bed) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        received = await reader.readuntil(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
        assert received.startswith(b"\r\n\r\n\0")
        connection = H2Connection(H2Configuration(client_side=False))
        connection.initiate_connection()
        connection.receive_data(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
        while not connection.open_inbound_streams:
            connection.receive_data(await reader.read(1000))
        headers = [(b":status", b"200"), (b"grpc-status", b"12"), (b"grpc-message", b"\xff")]
        connection.send_headers(1, headers, end_stream=True)
        writer.write(connection.data_to_send())
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    bed.stack.callback(server.close)
    port = server.sockets[0].getsockname()[1]
    assert await grpc_health.check("127.0.0.1", port, SECRET, "/", 4) is GrpcHealth.UNIMPLEMENTED


@pytest.mark.parametrize("engine", ["builtin"])
async def test_builtin_engine_refuses_with_the_reason(bed: Bed, model: Model) -> None:
    port = bed.gateways[0].port
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        method = channel.unary_unary("/services/bai-serve/chat/test.Model/Echo")
        code, message = await code_of(method(b"x", metadata=METADATA, timeout=10))
    assert code is grpc.StatusCode.UNIMPLEMENTED
    assert "engine HAProxy" in message
    headers = {"Content-Type": "application/grpc"}
    async with bed.http.post(bed.url("/test.Model/Echo"), headers=headers) as response:
        assert response.status == 501
        assert "engine HAProxy" in (await response.json())["message"]
