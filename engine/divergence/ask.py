"""One arm's requests: patient with an engine that is busy or away, strict with nonsense."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

import httpx

from specdeck.engine.client.http import refusal, silence, verification
from specdeck.engine.client.retry import Retry, TryAgain
from specdeck.engine.divergence import request
from specdeck.engine.divergence.answer import Answer, Piece, assembled, piece
from specdeck.engine.divergence.arms import Arm
from specdeck.engine.divergence.prompts import Prompt
from specdeck.engine.divergence.request import Settings
from specdeck.engine.errors import EngineError, NotAnEngine, Unreachable

TIMEOUT_S = 300.0
"""Without a byte. A whole answer is long in coming from an engine under load."""
_AGAIN = frozenset({429, 500, 502, 503, 504})
PROBE = 'def probe(limit: int = 50) -> str:\n\treturn "naïve 東京" + \'{"limit": 500}\'  # 0.125\n'


@dataclass(frozen=True, slots=True)
class Refused:
    """The engine will not answer this prompt, however often it is asked."""

    reason: str


class _Refusal(Exception):
    """The request itself is at fault."""


def http_client(
    url: str,
    *,
    streams: int,
    api_key: str | None = None,
    transport: httpx.AsyncBaseTransport | None = None,
) -> httpx.AsyncClient:
    """Connections for so many requests at once; to be closed by the caller."""
    headers = {"Accept-Encoding": "identity", "User-Agent": "specdeck"}
    if api_key:
        headers["Authorization"] = f"Bearer {api_key}"
    return httpx.AsyncClient(
        base_url=url,
        headers=headers,
        timeout=httpx.Timeout(TIMEOUT_S, connect=5.0),
        limits=httpx.Limits(max_connections=streams + 2, max_keepalive_connections=streams + 2),
        transport=transport,
        verify=verification(url),
        trust_env=False,
    )


class Asker:
    """Asks one arm; raises EngineError when the engine stays away or is no vLLM."""

    def __init__(
        self,
        http: httpx.AsyncClient,
        arm: Arm,
        settings: Settings,
        *,
        retry: Retry | None = None,
    ) -> None:
        self._http = http
        self.arm = arm
        self.settings = settings
        self._retry = retry or Retry()
        self._clock = self._retry.clock

    async def answer(self, prompt: Prompt, *, stream: bool = False) -> Answer | Refused:
        """The arm's whole answer; streamed, it is put together again from its pieces."""

        async def once() -> Answer:
            began = self._clock()
            async with aclosing(self.pieces(prompt, stream=stream)) as pieces:
                found = [each async for each in pieces]
            return assembled(found, self._clock() - began)

        try:
            return await self._retry.answer(once)
        except _Refusal as error:
            return Refused(str(error))

    async def pieces(self, prompt: Prompt, *, stream: bool = True) -> AsyncGenerator[Piece, None]:
        """The answer as it comes, tried once."""
        arm = self.arm
        wanted = request.body(prompt, self.settings, model=arm.model, pin=arm.pin, stream=stream)
        if not stream:
            yield piece(await self._post(request.path(prompt), wanted))
            return
        async with aclosing(self._events(request.path(prompt), wanted)) as events:
            async for event in events:
                yield piece(event)

    async def live(self, prompt: Prompt) -> AsyncGenerator[Piece, None]:
        """The answer as it comes, for somebody who looks on; raises EngineError at once."""
        try:
            async with aclosing(self.pieces(prompt)) as pieces:
                async for each in pieces:
                    yield each
        except TryAgain as again:
            raise again.error from None
        except _Refusal as error:
            raise EngineError(
                f"{self.arm.url} refuses the prompt: {error}", remedy="choose another prompt"
            ) from None

    async def forced(self, tokens: tuple[int, ...]) -> list[dict[str, Any] | None] | Refused:
        """What the arm thinks of each of `tokens`, by token id; None for the first.

        A server that keeps it to itself, as one that is told to, counts as refusing.
        """
        wanted = request.forced(tokens, self.settings, model=self.arm.model, pin=self.arm.pin)

        async def once() -> list[dict[str, Any] | None]:
            reply = await self._post(request.COMPLETIONS, wanted)
            try:
                return list(reply["choices"][0]["prompt_logprobs"])
            except (KeyError, IndexError, TypeError) as error:
                raise _Refusal(f"{self.arm.url} gives no prompt_logprobs") from error

        try:
            return await self._retry.answer(once)
        except _Refusal as error:
            return Refused(str(error))

    async def continuations(
        self, prompt: Prompt, *, n: int, tokens: int, temperature: float
    ) -> tuple[tuple[int, ...], ...] | Refused:
        """`n` short continuations drawn at `temperature`, as token ids."""
        arm = self.arm
        wanted = request.sampled(
            prompt, model=arm.model, pin=arm.pin, n=n, tokens=tokens, temperature=temperature,
            priority=self.settings.priority,
        )  # fmt: skip

        async def once() -> tuple[tuple[int, ...], ...]:
            reply = await self._post(request.path(prompt), wanted)
            try:
                return tuple(tuple(choice["token_ids"]) for choice in reply["choices"])
            except (KeyError, TypeError) as error:
                raise NotAnEngine(f"{arm.url} returns no token ids") from error

        try:
            return await self._retry.answer(once)
        except _Refusal as error:
            return Refused(str(error))

    async def tokenized(self, text: str) -> tuple[int, ...] | None:
        """The arm's tokens of `text`; None where it does not tell."""
        wanted = {"model": self.arm.model, "prompt": text}
        try:
            reply = await self._retry.answer(lambda: self._post("/tokenize", wanted))
        except (_Refusal, NotAnEngine):
            return None
        found = reply.get("tokens")
        return tuple(found) if isinstance(found, list) else None

    async def spelt(self, tokens: tuple[int, ...]) -> str | None:
        """The text of `tokens`; None where the arm does not tell."""
        wanted = {"model": self.arm.model, "tokens": list(tokens)}
        try:
            reply = await self._post("/detokenize", wanted)
        except (_Refusal, TryAgain, EngineError):
            return None
        found = reply.get("prompt")
        return found if isinstance(found, str) else None

    async def _post(self, path: str, wanted: dict[str, Any]) -> dict[str, Any]:
        try:
            response = await self._http.post(path, json=wanted)
        except httpx.HTTPError as error:
            raise TryAgain(silence(self.arm.url, error, TIMEOUT_S)) from error
        self._judge(response)
        try:
            reply = response.json()
        except ValueError as error:
            raise NotAnEngine(f"{self.arm.url} answers with something that is not JSON") from error
        if not isinstance(reply, dict):
            raise NotAnEngine(f"{self.arm.url} answers with something that is no vLLM's")
        return reply

    async def _events(
        self, path: str, wanted: dict[str, Any]
    ) -> AsyncGenerator[dict[str, Any], None]:
        try:
            async with self._http.stream("POST", path, json=wanted) as response:
                if not response.is_success:
                    await response.aread()
                self._judge(response)
                async for event in _parsed(response.aiter_bytes(), self.arm.url):
                    yield event
        except httpx.HTTPError as error:
            raise TryAgain(silence(self.arm.url, error, TIMEOUT_S)) from error

    def _judge(self, response: httpx.Response) -> None:
        if response.is_success:
            return
        status = response.status_code
        if status in (400, 413, 422):
            raise _Refusal(_message(response))
        if status not in _AGAIN:
            keyed = "Authorization" in self._http.headers
            raise refusal(self.arm.url, response, control=False, keyed=keyed)
        error = Unreachable(f"{self.arm.url} answers {status}", remedy="see the engine's log")
        raise TryAgain(error, wait_s=_retry_after(response), accident=status == 500)


async def _parsed(chunks: AsyncIterator[bytes], url: str) -> AsyncIterator[dict[str, Any]]:
    """The events of a stream, cut by hand: httpx's lines cost more than all else of an answer."""
    rest = b""
    async for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            if not line.startswith(b"data:"):
                continue
            text = line[5:].strip()
            if text == b"[DONE]":
                return
            yield _event(text, url)
    raise TryAgain(Unreachable(f"{url} broke off in mid-answer"))


def _event(text: bytes, url: str) -> dict[str, Any]:
    try:
        event = json.loads(text)
    except ValueError as error:
        raise NotAnEngine(f"{url} streams something that is not JSON") from error
    if not isinstance(event, dict):
        raise NotAnEngine(f"{url} streams something that is no vLLM's")
    if "error" in event:
        raise TryAgain(EngineError(f"{url} broke off an answer: {event['error']}"), accident=True)
    return event


def _retry_after(response: httpx.Response) -> float | None:
    value = response.headers.get("Retry-After", "")
    return min(float(value), 30.0) if value.isdecimal() else None


def _message(response: httpx.Response) -> str:
    """The engine's own words, on one short line."""
    try:
        body = response.json()
        error = body.get("error", body)
        text = str(error.get("message", error) if isinstance(error, dict) else error)
    except (ValueError, AttributeError):
        text = f"status {response.status_code}"
    return "".join(c for c in " ".join(text.split()) if c.isprintable())[:300]
