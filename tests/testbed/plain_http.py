"""A TLS context for clients that use plain HTTP."""

import ssl

# A client of httpx with this context (``verify``) does not load the certificate authorities, which
# takes 20 ms of CPU time.
NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
