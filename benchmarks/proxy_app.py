"""Test app: small and large responses, an echo websocket, and TCP in both directions."""

from __future__ import annotations

import asyncio
import json
import sys

import tornado.httpserver
import tornado.netutil
import tornado.web
import tornado.websocket

CHUNK = b"x" * (256 * 1024)
SMALL = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 500\r\n\r\n" + b"y" * 500


class Http(asyncio.Protocol):
    """Responds to `/big?BYTES` in chunks and to all other requests in one write."""

    _transport: asyncio.Transport
    _left = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._received = b""
        self._is_full = False

    def data_received(self, data: bytes) -> None:
        self._received += data
        while b"\r\n\r\n" in self._received:
            head, _, self._received = self._received.partition(b"\r\n\r\n")
            size = head.split(b" ", 2)[1].partition(b"/big?")[2]
            if size:
                self._left = int(size)
                self._transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: %s\r\n\r\n" % size)
                self._send_chunks()
            else:
                self._transport.write(SMALL)

    def pause_writing(self) -> None:
        self._is_full = True

    def resume_writing(self) -> None:
        self._is_full = False
        self._send_chunks()

    def _send_chunks(self) -> None:
        while self._left > 0 and not self._is_full:
            chunk = CHUNK[: self._left]
            self._left -= len(chunk)
            self._transport.write(chunk)


class Echo(tornado.websocket.WebSocketHandler):
    def check_origin(self, origin: str) -> bool:
        return True

    def on_message(self, message: str | bytes) -> None:
        self.write_message(message, binary=isinstance(message, bytes))


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Read a number and send that many bytes.

    If the number is 0, receive bytes until the end of the stream and send their count.
    """
    left = int(await reader.readline())
    if left:
        while left > 0:
            writer.write(CHUNK[:left])
            left -= len(CHUNK)
            await writer.drain()
    else:
        count = 0
        while content := await reader.read(2**20):
            count += len(content)
        writer.write(str(count).encode())
    writer.close()


async def main() -> None:
    http = await asyncio.get_running_loop().create_server(Http, "127.0.0.1", 0)
    (echo, *_) = tornado.netutil.bind_sockets(0, "127.0.0.1")
    tornado.httpserver.HTTPServer(tornado.web.Application([("/ws", Echo)])).add_sockets([echo])
    tcp = await asyncio.start_server(serve, "127.0.0.1", 0, limit=2**20)
    ports = {
        "http": http.sockets[0].getsockname()[1],
        "ws": echo.getsockname()[1],
        "tcp": tcp.sockets[0].getsockname()[1],
    }
    print(json.dumps(ports), flush=True)
    await tcp.serve_forever()


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
