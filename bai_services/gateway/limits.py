"""Limits of the gateway that no endpoint can change."""

# Bytes of the head (first line and headers) of a request or a response.
MAX_HEAD_BYTES = 64 * 1024
# Headers of a request or a response. HAProxy allocates memory for each of them in advance.
MAX_HEADERS = 256
# Maximum bytes that may arrive without a part of the body: chunk extensions, or trailers after the
# body. The parser keeps them in memory. The limit is larger than one read from the connection.
MAX_READ_BYTES = 512 * 1024
# Requests that a client may send before the response to the first (HTTP pipelining).
MAX_PIPELINED = 16
# Maximum bytes of a body that are buffered while no replica is connected; then reading from the
# client pauses.
MAX_HELD_BYTES = 64 * 1024
# Limit for all endpoints of an owner together; further requests are refused.
MAX_OWNER_HELD_BYTES = 64 * 1024 * 1024
# Bytes that are buffered for a slow reader before reading from the other side pauses.
WRITE_BUFFER_BYTES = 256 * 1024
# Time for the line and headers of a request, from its first byte or from the connection.
HEAD_SECONDS = 10.0
# Time after which a connection without a request is closed.
IDLE_SECONDS = 75.0
# Time limit for a body, to which one second is added for each BODY_BYTES_PER_SECOND received.
BODY_SECONDS = 60.0
BODY_BYTES_PER_SECOND = 1000
# Interval in which a client must read at least STALLED_BYTES of the available bytes. A slower
# client would occupy a replica, so its connection is closed.
STALLED_SECONDS = 60.0
STALLED_BYTES = 60_000
# Time without any byte after which a websocket is closed.
WEBSOCKET_IDLE_SECONDS = 3600.0
CONNECT_SECONDS = 5.0
# Maximum idle time of a reused connection to a replica. Servers close idle connections after 5 s or
# more, and a request on a closing connection would be lost.
REUSE_SECONDS = 2.0
MAX_IDLE_CONNECTIONS = 64  # per replica
MAX_ATTEMPTS = 3
MAX_CLIENT_CONNECTIONS = 20_000
SWEEP_SECONDS = 0.5
