"""Requests to an engine: what https is checked against, replies and streams within bounds, and
refusals as errors with a remedy.
"""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import httpx

from specdeck.engine.client.bounds import AnswerBound, Bound, excess_error, read_body
from specdeck.engine.client.cookies import NoCookies
from specdeck.engine.client.secret import Secret, hide_echoes, is_echoed
from specdeck.engine.client.token import TOKEN_REMEDY
from specdeck.engine.errors import (
    BadPage,
    Conflict,
    EngineError,
    NoReply,
    NotAnEngine,
    SpecdeckError,
    Stalled,
    Unauthorized,
    Unreachable,
    Unsupported,
    UsageError,
)
from specdeck.engine.protocol.codec import MOST_VALUES, NotJson, loads
from specdeck.engine.text import oneline

NO_ANSWER = (httpx.HTTPError, ssl.SSLError)
"""What httpx raises of a connection: TLS that fails in the middle of one comes as it is."""

PortCheck = Callable[[], None]
"""Raises EngineError where the engine that is meant no longer has the port that is asked."""


def no_check() -> None:
    """The check of an engine of which nothing but its address is known."""


_BEFORE_HEADERS = frozenset({"http11.send_request_headers.started", "connection.start_tls.started"})
"""What httpcore says once it is connected and has sent nothing."""

IDLE_S = 2.0
"""A connection that rested for longer is not used again: vLLM closes it after 5 s, and a request
that meets the closing gets no answer."""


def open_http(
    url: str,
    *,
    api_key: Secret | None,
    timeout: httpx.Timeout,
    connections: int,
    idle_connections: int,
    transport: httpx.AsyncBaseTransport | None,
    check_port: PortCheck = no_check,
) -> httpx.AsyncClient:
    """Up to `connections` to the engine at `url`, to be closed by the caller.

    No request goes out that `check_port` raises for; see `hold_to_port`.

    `idle_connections` of them stay open between requests, for as long as `IDLE_S`.
    Answers are asked for uncompressed: compressing a page costs the engine twice the time of
    writing it.
    """
    headers = {"Accept-Encoding": "identity", "User-Agent": "specdeck"}
    if api_key is not None:
        headers["Authorization"] = f"Bearer {api_key.reveal()}"

    return _Client(
        base_url=url,
        headers=headers,
        timeout=timeout,
        limits=httpx.Limits(
            max_connections=connections,
            max_keepalive_connections=idle_connections,
            keepalive_expiry=IDLE_S,
        ),
        transport=transport,
        cookies=NoCookies(),
        verify=verification(url),
        trust_env=False,  # an engine is asked directly: no proxy has its tokens
        event_hooks={"request": [hold_to_port(check_port)]},
    )


class _Client(httpx.AsyncClient):
    """A client whose requests after its end are refused as all others are."""

    async def send(self, request: httpx.Request, **how: Any) -> httpx.Response:
        """As httpx does it; raises EngineError where the client is closed."""
        if self.is_closed:
            url = str(self.base_url).rstrip("/")
            raise EngineError(f"{url} is not asked any more: its connections were closed here")
        return await super().send(request, **how)


def hold_to_port(check_port: PortCheck) -> Callable[[httpx.Request], Awaitable[None]]:
    """A hook for requests: none goes out that `check_port` raises for.

    It is asked before a request is connected and after: who listened may have ended in between,
    and another one have accepted.
    """

    async def check(request: httpx.Request) -> None:
        check_port()
        request.extensions["trace"] = check_again

    async def check_again(event: str, _: Mapping[str, Any]) -> None:
        if event in _BEFORE_HEADERS:
            check_port()

    return check


def verification(url: str) -> ssl.SSLContext | bool:
    """What httpx's `verify` takes for the engine at `url`.

    An https engine is held against the certificates in SSL_CERT_FILE or SSL_CERT_DIR, or
    certifi's. A plain http one shows none, and loading them would take as long as all
    else that a client needs. Raises UsageError for certificates that cannot be read.

    >>> verification("http://127.0.0.1:8000")
    False
    >>> verification("https://gpu-1").check_hostname
    True
    """
    return _trusted_certificates() if url.lower().startswith("https:") else False


@cache
def _trusted_certificates() -> ssl.SSLContext:
    try:
        return httpx.create_ssl_context()
    except OSError as error:  # ssl's own errors are of its kind
        why = error.strerror or str(error)
        raise UsageError(
            f"the certificates that https is checked against cannot be read: {why}",
            remedy="check SSL_CERT_FILE and SSL_CERT_DIR",
        ) from error


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer that was read, within its bounds."""

    status: int
    body: bytes
    headers: httpx.Headers
    most_values: int = MOST_VALUES
    """JSON values that it may have."""

    @property
    def is_success(self) -> bool:
        """Whether the status is 2xx."""
        return 200 <= self.status < 300

    @property
    def text(self) -> str:
        """As UTF-8, whatever a header says, and without secrets; what is none reads U+FFFD."""
        text = self.body.decode("utf-8", "replace")
        return str(hide_echoes(text)) if is_echoed(self.body) else text

    def json(self) -> Any:
        """Its value, without secrets; raises NotJson."""
        value = loads(self.body, most_values=self.most_values)
        return hide_echoes(value) if is_echoed(self.body) else value


class Deadline:
    """When an answer is given up: httpx times each read, and a drip never ends."""

    def __init__(self, seconds: float, *, begun_s: float | None = None) -> None:
        """From now; `begun_s` is what is left of them at most once the answer has begun."""
        self._loop = asyncio.get_running_loop()
        self._seconds = seconds
        self._begun_s = begun_s
        self._is_shorter = False
        self.ends = self._loop.time() + seconds
        """By the loop's clock."""

    def begin(self) -> None:
        """Notes that the answer has begun."""
        if self._begun_s is not None and not self._is_shorter:
            ends = self._loop.time() + self._begun_s
            self._is_shorter = ends < self.ends
            self.ends = min(ends, self.ends)

    def error(self, url: str) -> NoReply:
        """The error of an answer that has not ended by then."""
        if not self._is_shorter:
            return no_answer(url, self._seconds)
        return NoReply(
            f"{url} did not end an answer within {self._begun_s:g} s of its beginning",
            remedy="see its load, and what stands in front of it",
        )


class BadRedirect(httpx.RemoteProtocolError):
    """An answer that points to what is no address."""


async def send(http: httpx.AsyncClient, request: httpx.Request) -> httpx.Response:
    """The head of the answer, whose body is to be read; raises NO_ANSWER.

    httpx follows no redirect here, and reads where one leads all the same.
    """
    try:
        return await http.send(request, stream=True)
    except (httpx.InvalidURL, UnicodeError) as error:
        raise BadRedirect("no address to redirect to", request=request) from error


async def fetch_reply(
    http: httpx.AsyncClient, request: httpx.Request, *, bound: Bound, deadline: Deadline
) -> Reply:
    """The whole answer.

    Raises NotAnEngine for one beyond `bound`, TimeoutError at the deadline, and NO_ANSWER.
    """
    async with asyncio.timeout_at(deadline.ends) as patience:
        response = await send(http, request)
        deadline.begin()
        patience.reschedule(deadline.ends)
        try:
            body = await read_body(response, bound, str(http.base_url).rstrip("/"))
        finally:
            await response.aclose()
    return Reply(response.status_code, body, response.headers, bound.values)


NO_PLUGIN = "the engine runs without the specdeck plugin"
NO_PLUGIN_REMEDY = (
    "start it with `specdeck run`, or with VLLM_PLUGINS=specdeck where specdeck is installed"
)


def silence(url: str, error: httpx.HTTPError | ssl.SSLError, timeout_s: float) -> EngineError:
    """Why the engine at `url` gave no whole answer; `error` is one of NO_ANSWER."""
    said = str(error).lower()
    if isinstance(error, httpx.ConnectTimeout):
        return Unreachable(f"{url} does not accept a connection", remedy="check host and port")
    if isinstance(error, httpx.TimeoutException):
        return no_answer(url, timeout_s)
    if isinstance(error, httpx.DecodingError):
        return BadPage(f"{url} sent an answer that cannot be decompressed")
    if isinstance(error, BadRedirect) or "invalid url in location" in said:
        return NotAnEngine(f"{url} redirects to no address", remedy="check host and port")
    if isinstance(error, httpx.RemoteProtocolError):
        if "incomplete" in said or "complete message body" in said:
            return BadPage(f"{url} closed the connection during an answer")
        if "disconnected" not in said:
            return NotAnEngine(f"{url} does not speak HTTP", remedy="check host and port")
    if isinstance(error, httpx.ConnectError):
        return _no_connection(url, error)
    if (broken := _find_tls_error(error)) is not None:
        is_refused = _is_refusal(broken)  # as by a server that asks for a client certificate
        return NoReply(
            f"{url} broke off the TLS connection: {_describe_tls(broken)}",
            remedy=_TLS_REMEDY if is_refused else "see what stands in front of it",
        )
    return NoReply(f"{url} closed the connection")


_TLS_REMEDY = "check which versions and client certificates it requires"
_OTHER_TLS = ("UNSUPPORTED_PROTOCOL", "DH_KEY_TOO_SMALL", "EE_KEY_TOO_SMALL")
"""OpenSSL's words for a server whose TLS this machine does not take."""


def no_answer(url: str, seconds: float) -> NoReply:
    """The engine's machine took the question, and the engine says nothing."""
    return NoReply(
        f"{url} gave no answer for {seconds:g} s", remedy="see whether its process is stopped"
    )


def _no_connection(url: str, error: httpx.ConnectError) -> EngineError:
    causes = tuple(_causes(error))
    if any(isinstance(cause, socket.gaierror) for cause in causes):
        return Unreachable(f"{url} has an unknown host name", remedy="check the name")
    if any(isinstance(cause, ssl.SSLCertVerificationError) for cause in causes):
        return Unreachable(
            f"{url} has no trusted TLS certificate",
            remedy="check SSL_CERT_FILE and the name",
        )
    if (failure := _find_tls_error(error)) is not None:
        if _is_refusal(failure):
            return Unreachable(
                f"{url} agrees on no TLS connection: {_describe_tls(failure)}", remedy=_TLS_REMEDY
            )
        return Unreachable(f"{url} does not speak TLS", remedy="check http or https")
    if any(isinstance(cause, ConnectionRefusedError) for cause in causes):
        return Unreachable(f"{url} refuses connections", remedy="is the engine running there?")
    return Unreachable(f"{url} cannot be reached", remedy="check host and port")


def _find_tls_error(error: BaseException) -> ssl.SSLError | None:
    return next((cause for cause in _causes(error) if isinstance(cause, ssl.SSLError)), None)


def _is_refusal(error: ssl.SSLError) -> bool:
    """Whether the server refuses this machine's TLS, which nobody does who speaks none."""
    reason = getattr(error, "reason", None) or ""  # only what OpenSSL itself raised has one
    return "_ALERT_" in reason or reason in _OTHER_TLS


def _describe_tls(error: ssl.SSLError) -> str:
    """OpenSSL's own reason, in words.

    >>> _describe_tls(ssl.SSLError(1, "[SSL: BAD_RECORD_MAC] bad record mac (_ssl.c:2580)"))
    'bad record mac'
    """
    reason = getattr(error, "reason", None)
    if reason:
        return clean_line(reason.partition("_ALERT_")[2] or reason).lower().replace("_", " ")
    said = clean_line(error.strerror or str(error))
    return re.sub(r"^\[[^\]]*\]\s*|\s*\(_ssl\.c:\d+\)$", "", said)


def _causes(error: BaseException) -> Iterator[BaseException]:
    """What lies below `error`: httpx says no more than that all attempts failed."""
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__ or cause.__context__


def refusal(url: str, reply: Reply, *, control: bool, keyed: bool) -> SpecdeckError:
    """What a status other than 2xx means.

    `control` is whether the plugin's routes were asked, `keyed` whether an API key went along.
    """
    status = reply.status
    body = _error(reply)
    if status in (401, 403):
        return _refuse_key(url, body, keyed=keyed)
    if control and status == 404:
        return Unsupported(NO_PLUGIN, remedy=NO_PLUGIN_REMEDY)
    if control and body is not None and status in _BY_STATUS:
        kind = Stalled if body["code"] == "stalled" else _BY_STATUS[status]
        return kind(clean_line(body["message"]), remedy=clean_line(body.get("remedy")) or None)
    if status in (502, 503, 504):
        return NoReply(f"{url} answers {status}", remedy="see its log")
    if status == 404:
        return NotAnEngine(f"{url} has no vLLM at this path", remedy="check the URL")
    if status < 400 or status in (400, 405, 406, 410):
        return NotAnEngine(f"{url} answers {status}: not a vLLM server", remedy="check the URL")
    return EngineError(f"{url} answers {status}", remedy="see the engine's log")


_BY_STATUS: dict[int, type[SpecdeckError]] = {
    400: UsageError,
    409: Conflict,
    501: Unsupported,
    503: Unreachable,
}


def _refuse_key(url: str, body: dict[str, Any] | None, *, keyed: bool) -> Unauthorized:
    if body is not None and body.get("code") == "admin_token":
        return Unauthorized(
            "a change requires the engine's admin token, which is missing or wrong",
            remedy=TOKEN_REMEDY,
        )
    if keyed:
        return Unauthorized(
            f"the API key is not the one of {url}",
            remedy="check the variable that is named by --api-key-env",
        )
    return Unauthorized(
        f"{url} requires an API key, and none was given",
        remedy="name the environment variable that holds it with --api-key-env",
    )


def _error(reply: Reply) -> dict[str, Any] | None:
    """The plugin's `{"error": {...}}`; None for what vLLM or a proxy says.

    Theirs is OpenAI's, with a message and a code as well, and says nothing of whether a change
    was made.
    """
    try:
        body = reply.json()
    except NotJson:
        return None
    error = body.get("error") if isinstance(body, dict) else None
    if not isinstance(error, dict) or "remedy" not in error or "type" in error:
        return None
    texts = (error.get("message"), error.get("code"))
    return error if all(isinstance(text, str) for text in texts) else None


def parse_object(url: str, reply: Reply) -> dict[str, Any]:
    """The JSON object of a reply; raises NotAnEngine for anything else."""
    try:
        data = reply.json()
    except NotJson as error:
        raise NotAnEngine(f"{url} answers with something that is not JSON: {error}") from error
    if not isinstance(data, dict):
        raise NotAnEngine(f"{url} returns an unexpected response: not a vLLM server")
    return data


def clean_line(text: object) -> str:
    """The beginning of foreign text, on one line and without what a terminal would obey."""
    return oneline(str(text or ""))[:400]


async def read_events(
    parts: AsyncIterator[bytes], bound: AnswerBound, url: str
) -> AsyncGenerator[dict[str, Any], None]:
    """The objects that the events of a stream carry, until the one that ends it.

    Lines are cut by hand: httpx's cost more than all else of an answer. Raises NotAnEngine for
    a stream beyond `bound` or of anything else, Unreachable for one that breaks off.
    """
    rest, size, events, number = bytearray(), 0, 0, 0
    async for part in parts:
        size += len(part)
        number += 1
        if size > bound.size or number > bound.parts:
            raise excess_error(bound, url)
        rest += part
        if b"\n" not in part:
            continue
        *lines, rest = rest.split(b"\n")
        for line in lines:
            if not line.startswith(b"data:"):
                continue
            text = line[5:].strip()
            if text == b"[DONE]":
                return
            events += 1
            if events > bound.events:
                raise NotAnEngine(f"{url} streams more than {bound.events} events of one answer")
            if text:
                yield _parse_event(bytes(text), url)
    raise Unreachable(f"{url} closed the connection during an answer")


def _parse_event(text: bytes, url: str) -> dict[str, Any]:
    try:
        event = loads(text)
    except NotJson as error:
        raise NotAnEngine(f"{url} streams something that is not JSON: {error}") from error
    if not isinstance(event, dict):
        raise NotAnEngine(f"{url} streams an unexpected response: not a vLLM server")
    return {**hide_echoes(event)} if is_echoed(text) else event
