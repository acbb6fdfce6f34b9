"""What https engines are checked against."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ssl import SSLContext


def verification(url: str) -> SSLContext | bool:
    """What httpx's `verify` takes for the engine at `url`.

    An https engine is held against the certificates in SSL_CERT_FILE or SSL_CERT_DIR, or
    certifi's. A plain http one shows none, and loading them would take as long as all
    else that a client needs.

    >>> verification("http://127.0.0.1:8000")
    False
    >>> verification("https://gpu-1").check_hostname
    True
    """
    return _trusted() if url.lower().startswith("https:") else False


@cache
def _trusted() -> SSLContext:
    import httpx

    return httpx.create_ssl_context()
