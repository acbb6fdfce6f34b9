"""What people type for an engine, to the one URL that is asked and shown."""

from __future__ import annotations

import re
from ipaddress import ip_address
from urllib.parse import SplitResult, urlsplit, urlunsplit

from specdeck.engine.errors import UsageError

LOOPBACK = "127.0.0.1"
"""Other machines do not reach it: who wants them to says so."""
_TAILS = ("/v1/specdeck", "/metrics", "/v1")
_LONG = 1000
"""Characters of a URL."""
_CREDENTIALS = re.compile(
    r"@|\A\s*(?:[a-z][a-z0-9+.-]*://)?[^/?#]*(?:%(?:25)*40|[\uff20\ufe6b])", re.IGNORECASE
)
"""An `@` anywhere; before a path also one that is encoded or only looks like one, which would be
part of a host's name."""


def refuse_credentials(text: str) -> None:
    """Raises UsageError for an engine whose address holds credentials, which it does not repeat."""
    if _CREDENTIALS.search(text):
        raise UsageError(
            "the engine's URL holds credentials", remedy="give the API key with --api-key-env NAME"
        )


def quote_address(text: str) -> str:
    """What was typed, as an error quotes it: a query may hold a key.

    >>> quote_address("http://gpu-1:8000/?api_key=s"), quote_address("gpu 1")
    ("'http://gpu-1:8000/…'", "'gpu 1'")
    """
    shown, *hidden = re.split("[?#]", text, maxsplit=1)
    return repr(f"{shown}…" if hidden else shown)


def engine_url(text: str) -> str:
    """The base URL that `text` means: `host:port`, a bare port, or a URL of one of its routes.

    Raises UsageError for what is no address, and for credentials in it: they would end
    up in logs, recordings and the process list.

    >>> engine_url("localhost:8000"), engine_url("8000"), engine_url("http://[::1]:8000/v1/")
    ('http://localhost:8000', 'http://127.0.0.1:8000', 'http://[::1]:8000')
    >>> engine_url("https://gateway/engine-a/metrics")
    'https://gateway/engine-a'
    """
    parts = _split(text)
    if parts.query or parts.fragment:
        raise UsageError(
            f"{quote_address(text)} is no engine's URL",
            remedy="leave out ? and # and what follows",
        )
    path = parts.path.rstrip("/")
    for tail in _TAILS:
        path = path.removesuffix(tail).rstrip("/")
    return urlunsplit((parts.scheme, parts.netloc.lower(), path, "", ""))


def is_local(url: str) -> bool:
    """Whether `url` leads to this machine's own loopback.

    >>> is_local("http://127.0.0.1:8000"), is_local("http://[::1]:1"), is_local("http://gpu-1:8000")
    (True, True, False)
    >>> is_local("http://localhost"), is_local("http://127.evil.example"), is_local("http://0.0.0.0")
    (True, False, False)
    """
    host = urlsplit(url).hostname or ""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _split(text: str) -> SplitResult:
    given = text.strip()
    refuse_credentials(given)
    if given.isascii() and given.isdecimal():
        given = f"127.0.0.1:{given}"
    remedy = "give it as http://host:port or host:port"
    try:
        parts = urlsplit(given if "://" in given else f"http://{given}")
        sound = bool(parts.hostname) and parts.port != 0 and _can_be_asked(parts)
    except ValueError:
        raise UsageError(f"{quote_address(text)} is no engine's URL", remedy=remedy) from None
    if not sound or parts.scheme not in ("http", "https") or _odd(parts.netloc):
        raise UsageError(f"{quote_address(text)} is no engine's URL", remedy=remedy)
    return parts


def _can_be_asked(parts: SplitResult) -> bool:
    """Whether httpx takes the URL: it refuses names that no resolver is asked for."""
    url, host = parts.geturl(), parts.hostname or ""
    encoded = host.startswith("xn--") or ".xn--" in host
    future = "[" in parts.netloc and host.startswith("v")  # an address of no kind there is yet
    plain = _is_plain(host) and not encoded and not future
    if url.isascii() and url.isprintable() and len(url) < _LONG and plain:
        return True
    import httpx  # for unusual names alone: not on the way to a console's first paint

    try:
        return bool(httpx.URL(url).host)
    except (httpx.InvalidURL, UnicodeError):
        return False


def _is_plain(host: str) -> bool:
    """Whether `host` is an address, or a name that cannot be taken for one.

    >>> _is_plain("127.0.0.1"), _is_plain("gpu-1"), _is_plain("999.0.0.1"), _is_plain("")
    (True, True, False, False)
    """
    try:
        ip_address(host)
    except ValueError:
        return host[:1].isalpha() and "." not in (host[:1], host[-1:]) and ".." not in host
    return True


def _odd(netloc: str) -> bool:
    return any(not (c.isalnum() or c in "-._:[]%") for c in netloc) or netloc.endswith(":")
