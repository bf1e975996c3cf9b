"""HTTP without TLS."""

import ssl

# Without this context (``verify``), each client of httpx loads the certificate authorities, which
# takes 20 ms of CPU time.
NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
