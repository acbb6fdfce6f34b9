"""How an arm is asked: the body of a request, its repetition, and a pace beside production."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Annotated, Any, NamedTuple, TypeVar

import httpx

from specdeck.engine.client.bounds import (
    REPLY,
    AnswerBound,
    Bound,
    answer_bound,
    look_bound,
    read_body,
    refuse_compressed,
)
from specdeck.engine.client.http import (
    NO_ANSWER,
    Deadline,
    PortCheck,
    Reply,
    clean_line,
    fetch_reply,
    no_check,
    open_http,
    parse_object,
    read_events,
    refusal,
    send,
    silence,
)
from specdeck.engine.client.retry import Retry, TryAgain
from specdeck.engine.client.secret import Secret
from specdeck.engine.divergence.answers import Answer, Piece, assemble, parse_piece
from specdeck.engine.divergence.arms import Arm
from specdeck.engine.divergence.prompts import Prompt
from specdeck.engine.errors import EngineError, NotAnEngine, Unreachable
from specdeck.engine.fingerprint.name import pinned_k
from specdeck.engine.protocol.codec import (
    NotJson,
    Within,
    WrongType,
    read_record,
    read_value,
)

_T = TypeVar("_T")
PIN = "specdeck_k"
"""The plugin's key in vllm_xargs: at most so many tokens are drafted for the request."""
COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
_UNPENALISED = {"repetition_penalty": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0}
"""vLLM chooses a token after penalties and tells its log-probability before them: a server's
default penalty would part what is said from the margin that judges it."""
TIMEOUT_S = 300.0
"""Without a byte. A whole answer is long in coming from an engine under load."""
_LEAST_PATIENCE_S = 60.0
"""For an answer to begin; an engine under load has others before it."""
_SHORT_S = 30.0
"""In all, for tokens of a text and a text of tokens: nothing is generated."""
LONGEST_LOOK = 2048
"""Tokens of prompt and answer that are fed in one pass: vLLM keeps their logits at once."""
_AGAIN = frozenset({429, 500, 502, 503, 504})
_AT_FAULT = frozenset({400, 413, 422})
"""A request with these is refused however often it is sent."""
PROBE = 'def probe(limit: int = 50) -> str:\n\treturn "naïve 東京" + \'{"limit": 500}\'  # 0.125\n'


@dataclass(frozen=True, slots=True)
class RequestSettings:
    """What is the same for every request of a check."""

    max_tokens: int = 128
    ignore_eos: bool = False
    candidates: int = 2
    """Log-probabilities asked for at each token."""
    priority: int = 0
    """vLLM's: above 0 is served later; only where the engine schedules by priority."""


def request_path(prompt: Prompt) -> str:
    """The route that answers it."""
    return CHAT if prompt.chat else COMPLETIONS


def has_logprobs(arm: str, *, streamed: bool) -> bool:
    """Whether a check asks an arm, by its name, for log-probabilities.

    Serving streams without them, as clients ask it: an engine may take other ways where nobody
    asks for them.
    """
    return not (streamed and arm == "serving")


def request_body(
    prompt: Prompt,
    settings: RequestSettings,
    *,
    model: str,
    pin: int | None = None,
    stream: bool = False,
    logprobs: bool = True,
    cache_salt: str | None = None,
) -> dict[str, Any]:
    """A greedy request that asks for token ids and, with `logprobs`, for the likeliest at each.

    Without penalties, whatever the server's defaults are. Of its prefix cache the engine takes
    for it only what was read under the same `cache_salt`.

    >>> b = request_body(Prompt(1, 1, {"prompt": "a"}), RequestSettings(), model="m", pin=0)
    >>> b["temperature"], b["logprobs"], b["vllm_xargs"]
    (0.0, 2, {'specdeck_k': 0})
    """
    wanted: dict[str, Any] = {
        "model": model,
        **prompt.body,
        "max_tokens": prompt.body.get("max_tokens", settings.max_tokens),
        "temperature": 0.0,
        **_UNPENALISED,
        "return_token_ids": True,
        "return_tokens_as_token_ids": True,
        **(_logprobs(prompt, settings.candidates) if logprobs else {}),
        **_engine_arguments(pin, settings.priority),
    }
    if cache_salt is not None:
        wanted["cache_salt"] = cache_salt
    if settings.ignore_eos:
        wanted["ignore_eos"] = True
    if stream:
        wanted |= {"stream": True, "stream_options": {"include_usage": True}}
    return wanted


def scoring_body(
    tokens: Sequence[int],
    settings: RequestSettings,
    *,
    model: str,
    pin: int | None,
    candidates: int | None = None,
) -> dict[str, Any]:
    """Feeds `tokens` through a model in one pass and asks what it thinks of each."""
    return {
        "model": model,
        "prompt": list(tokens),
        "max_tokens": 1,
        "temperature": 0.0,
        "prompt_logprobs": candidates or settings.candidates,
        **_engine_arguments(pin, settings.priority),
    }


def continuing_body(
    tokens: Sequence[int],
    settings: RequestSettings,
    *,
    model: str,
    pin: int | None,
    count: int,
    candidates: int,
) -> dict[str, Any]:
    """Has a model generate `count` tokens after `tokens`, and asks what it thinks of each."""
    return {
        "model": model,
        "prompt": list(tokens),
        "max_tokens": count,
        "temperature": 0.0,
        **_UNPENALISED,
        "ignore_eos": True,
        "logprobs": candidates,
        "return_token_ids": True,
        "return_tokens_as_token_ids": True,
        **_engine_arguments(pin, settings.priority),
    }


def sampling_body(
    prompt: Prompt,
    *,
    model: str,
    pin: int | None,
    n: int,
    tokens: int,
    temperature: float,
    priority: int = 0,
) -> dict[str, Any]:
    """`n` short continuations of one prompt, drawn at `temperature`, each on its own."""
    return {
        "model": model,
        **prompt.body,
        "max_tokens": tokens,
        "temperature": temperature,
        "n": n,
        "ignore_eos": True,
        "return_token_ids": True,
        **_engine_arguments(pin, priority),
    }


def _logprobs(prompt: Prompt, candidates: int) -> Mapping[str, Any]:
    if prompt.chat:
        return {"logprobs": True, "top_logprobs": candidates}
    return {"logprobs": candidates}


def _engine_arguments(pin: int | None, priority: int) -> Mapping[str, Any]:
    pinned = {} if pin is None else {"vllm_xargs": {PIN: pin}}
    return {**pinned, **({"priority": priority} if priority else {})}


@dataclass(frozen=True, slots=True)
class Continuations:
    """Continuations of one prompt, as token ids."""

    draws: tuple[tuple[int, ...], ...]
    prompt_ids: tuple[int, ...] | None
    """None where the engine does not say."""
    names_pin: bool = False
    """Whether the answer's name tells that it was pinned to k = 0."""


@dataclass(frozen=True, slots=True)
class Thoughts:
    """What a model thinks of one token, given all before it."""

    candidates: tuple[float, ...]
    """Log-probabilities of the likeliest tokens, the likeliest first."""
    own: int | None
    """The place of the token itself among them; None where it is not."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """The engine will not answer this prompt, however often it is asked."""

    reason: str


_UNFINISHED = (None, "abort", "error")
"""Reasons that vLLM gives for the end of an answer which the model has not ended."""


class _RequestAtFault(Exception):
    """The request itself is at fault."""


def http_client(
    url: str,
    *,
    streams: int,
    api_key: Secret | None = None,
    transport: httpx.AsyncBaseTransport | None = None,
    check_port: PortCheck = no_check,
) -> httpx.AsyncClient:
    """Connections for so many requests at once; to be closed by the caller."""
    return open_http(
        url,
        api_key=api_key,
        timeout=httpx.Timeout(TIMEOUT_S, connect=5.0),
        connections=streams + 2,
        idle_connections=streams + 2,
        transport=transport,
        check_port=check_port,
    )


class Asker:
    """Asks one arm; raises EngineError when the engine stays away or is no vLLM."""

    def __init__(
        self,
        http: httpx.AsyncClient,
        arm: Arm,
        settings: RequestSettings,
        *,
        retry: Retry | None = None,
        patience_s: float | None = None,
    ) -> None:
        """An answer may take `patience_s` to begin, and a second more for each token.

        That is as long as an engine that is away is waited for, but no less than a minute.
        """
        self._http = http
        self.arm = arm
        self.settings = settings
        self._retry = retry or Retry()
        waits_s = max(_LEAST_PATIENCE_S, self._retry.seconds)
        self._patience_s = waits_s if patience_s is None else patience_s
        self._clock = self._retry.clock

    async def answer(
        self,
        prompt: Prompt,
        *,
        stream: bool = False,
        logprobs: bool = True,
        cache_salt: str | None = None,
    ) -> Answer | Refusal:
        """The arm's whole answer; streamed, it is put together again from its pieces.

        `logprobs` and `cache_salt` are those of `request_body`.
        """

        async def once() -> Answer:
            began = self._clock()
            asked = self.pieces(prompt, stream=stream, logprobs=logprobs, cache_salt=cache_salt)
            async with aclosing(asked) as pieces:
                found = [each async for each in pieces]
            answer = assemble(found, self._clock() - began)
            self._refuse_part(answer.finish)
            return answer

        return await self._ask(once)

    async def pieces(
        self,
        prompt: Prompt,
        *,
        stream: bool = True,
        logprobs: bool = True,
        cache_salt: str | None = None,
    ) -> AsyncGenerator[Piece, None]:
        """The answer as it comes, tried once."""
        arm = self.arm
        wanted = request_body(
            prompt, self.settings, model=arm.model, pin=arm.pin, stream=stream,
            logprobs=logprobs, cache_salt=cache_salt,
        )  # fmt: skip
        tokens = wanted["max_tokens"]
        if not stream:
            reply = await self._complete(request_path(prompt), wanted, tokens)
            yield _drop_impossible_ids(parse_piece(reply), prompt)
            return
        async with aclosing(self._events(request_path(prompt), wanted, tokens)) as events:
            async for event in events:
                yield _drop_impossible_ids(parse_piece(event), prompt)

    async def live(self, prompt: Prompt) -> AsyncGenerator[Piece, None]:
        """The answer as it comes, for somebody who looks on; raises EngineError at once."""
        try:
            async with aclosing(self.pieces(prompt)) as pieces:
                async for each in pieces:
                    yield each
        except TryAgain as again:
            raise again.error from None
        except _RequestAtFault as error:
            raise EngineError(
                f"{self.arm.url} refuses the prompt: {error}", remedy="choose another prompt"
            ) from None

    async def continue_tokens(
        self, tokens: tuple[int, ...], count: int, candidates: int
    ) -> Answer | Refusal:
        """What the arm generates after `tokens`, with its likeliest candidates."""
        wanted = continuing_body(
            tokens, self.settings, model=self.arm.model, pin=self.arm.pin, count=count,
            candidates=candidates,
        )  # fmt: skip

        async def once() -> Answer:
            began = self._clock()
            reply = await self._look(wanted, count, candidates)
            answer = assemble([parse_piece(reply)], self._clock() - began)
            self._refuse_part(answer.finish)
            return answer

        return await self._ask(once)

    async def score_tokens(
        self, tokens: tuple[int, ...], candidates: int | None = None
    ) -> list[dict[str, Any] | None] | Refusal:
        """What the arm thinks of each of `tokens`, by token id; None for the first.

        It lists so many `candidates` besides the token, those of the settings where none are
        given. A server that keeps it to itself, as one that is told to, counts as refusing.
        """
        wanted = scoring_body(
            tokens, self.settings, model=self.arm.model, pin=self.arm.pin, candidates=candidates
        )

        async def once() -> list[dict[str, Any] | None]:
            reply = await self._look(wanted, len(tokens), candidates)
            try:
                (choice,) = read_value(_ONE_CHOICE, reply.get("choices"), "choices")
                return list(read_value(_THOUGHTS, choice.get("prompt_logprobs"), "prompt_logprobs"))
            except WrongType as error:
                raise _RequestAtFault(f"{self.arm.url} gives no prompt_logprobs") from error

        return await self._ask(once)

    async def weigh_tokens(
        self, tokens: tuple[int, ...], *, last: int, candidates: int
    ) -> tuple[Thoughts, ...] | Refusal:
        """What the arm thinks of the `last` ones of `tokens`, by so many `candidates` at each."""
        settings = replace(self.settings, candidates=candidates)
        wanted = scoring_body(tokens, settings, model=self.arm.model, pin=self.arm.pin)

        async def once() -> tuple[Thoughts, ...]:
            reply = await self._look(wanted, len(tokens), candidates)
            try:
                (choice,) = read_value(_ONE_CHOICE, reply.get("choices"), "choices")
                places = read_value(_VALUES, choice.get("prompt_logprobs"), "prompt_logprobs")
                said = read_value(_KNOWN_THOUGHTS, places[-last:], "prompt_logprobs")
                if len(places) != len(tokens):
                    raise WrongType("prompt_logprobs: as many as tokens are wanted")
                pairs = zip(said, tokens[-last:], strict=True)
                return tuple(_rank_thoughts(at, token, candidates) for at, token in pairs)
            except ValueError as error:
                raise _RequestAtFault(f"{self.arm.url} gives no prompt_logprobs") from error

        return await self._ask(once)

    async def continuations(
        self, prompt: Prompt, *, n: int, tokens: int, temperature: float
    ) -> Continuations | Refusal:
        """`n` continuations of at most so many `tokens` drawn at `temperature`, as token ids."""
        arm = self.arm
        wanted = sampling_body(
            prompt, model=arm.model, pin=arm.pin, n=n, tokens=tokens, temperature=temperature,
            priority=self.settings.priority,
        )  # fmt: skip

        async def once() -> Continuations:
            reply = await self._complete(request_path(prompt), wanted, n * tokens)
            try:
                choices = read_value(_CHOICES, reply.get("choices"), "choices")
                drawn = tuple(
                    read_value(_TOKENS, choice.get("token_ids"), "token_ids") for choice in choices
                )
                ends = [_read_end(choice) for choice in choices]
                told = (one.get("prompt_token_ids") for one in (*choices[:1], reply))
                prompt_ids = next((ids for ids in told if ids is not None), None)
                asked = read_value(_TOKENS | None, prompt_ids, "prompt_token_ids")
            except WrongType as error:
                raise NotAnEngine(f"{arm.url} returns no token ids: {error}") from error
            for end in ends:
                self._refuse_part(end)
            if len(drawn) != n:
                raise NotAnEngine(f"{arm.url} returns {len(drawn)} of {n} continuations")
            longest = max(map(len, drawn), default=0)
            if longest > tokens:
                raise NotAnEngine(f"{arm.url} draws {longest} tokens where {tokens} are asked for")
            is_possible = asked is not None and len(asked) <= prompt.most_tokens
            name = reply.get("system_fingerprint")
            return Continuations(
                drawn,
                asked if is_possible else None,
                pinned_k(name if isinstance(name, str) else None) == 0,
            )

        return await self._ask(once)

    async def tokenize(self, text: str) -> tuple[int, ...] | None:
        """The arm's tokens of `text`; None where it does not tell."""
        wanted = {"model": self.arm.model, "prompt": text}
        try:
            reply = await self._retry.answer(lambda: self._post("/tokenize", wanted))
        except (_RequestAtFault, NotAnEngine):
            return None
        try:
            found: tuple[int, ...] = read_value(_TOKENS, reply.get("tokens"), "tokens")
        except WrongType:
            return None
        return found

    async def detokenize(self, tokens: tuple[int, ...]) -> str | None:
        """The text of `tokens`; None where the arm does not tell."""
        wanted = {"model": self.arm.model, "tokens": list(tokens)}
        try:
            reply = await self._post("/detokenize", wanted)
        except (_RequestAtFault, TryAgain, EngineError):
            return None
        found = reply.get("prompt")
        return found if isinstance(found, str) else None

    async def _ask(self, once: Callable[[], Awaitable[_T]]) -> _T | Refusal:
        try:
            return await self._retry.answer(once)
        except _RequestAtFault as error:
            return Refusal(str(error))

    async def _complete(self, path: str, wanted: dict[str, Any], tokens: int) -> dict[str, Any]:
        request, bound = self._request(path, wanted, tokens)
        return await self._fetch(request, bound, Deadline(bound.seconds, begun_s=bound.begun_s))

    async def _look(
        self, wanted: dict[str, Any], tokens: int, candidates: int | None
    ) -> dict[str, Any]:
        """What comes of a request for thoughts of given tokens; `candidates` of the settings."""
        request = self._http.build_request("POST", COMPLETIONS, json=wanted)
        bound = look_bound(
            tokens,
            self.settings.candidates if candidates is None else candidates,
            request_size=len(request.content),
            patience_s=self._patience_s,
        )
        return await self._fetch(request, bound, Deadline(bound.seconds, begun_s=bound.begun_s))

    async def _post(self, path: str, wanted: dict[str, Any]) -> dict[str, Any]:
        request = self._http.build_request("POST", path, json=wanted)
        return await self._fetch(request, REPLY, Deadline(_SHORT_S))

    def _request(
        self, path: str, wanted: dict[str, Any], tokens: int
    ) -> tuple[httpx.Request, AnswerBound]:
        """What asks for a completion, and what may come of it."""
        request = self._http.build_request("POST", path, json=wanted)
        return request, answer_bound(
            tokens,
            self.settings.candidates,
            request_size=len(request.content),
            patience_s=self._patience_s,
        )

    async def _fetch(
        self, request: httpx.Request, bound: Bound, deadline: Deadline
    ) -> dict[str, Any]:
        try:
            reply = await fetch_reply(self._http, request, bound=bound, deadline=deadline)
        except TimeoutError:
            raise TryAgain(deadline.error(self.arm.url)) from None
        except NO_ANSWER as error:
            raise TryAgain(silence(self.arm.url, error, TIMEOUT_S)) from error
        self._judge(reply)
        return parse_object(self.arm.url, reply)

    async def _events(
        self, path: str, wanted: dict[str, Any], tokens: int
    ) -> AsyncGenerator[dict[str, Any], None]:
        request, bound = self._request(path, wanted, tokens)
        deadline = Deadline(bound.seconds, begun_s=bound.begun_s)
        try:
            async with asyncio.timeout_at(deadline.ends):
                response = await send(self._http, request)
            try:
                if not response.is_success:
                    async with asyncio.timeout_at(deadline.ends):
                        body = await read_body(response, bound, self.arm.url)
                    self._judge(Reply(response.status_code, body, response.headers))
                refuse_compressed(response, self.arm.url)
                parts = _read_parts(response.aiter_bytes(), deadline)
                async with aclosing(read_events(parts, bound, self.arm.url)) as events:
                    async for event in events:
                        deadline.begin()  # the head comes at once, before any token
                        self._refuse_break(event)
                        yield event
            finally:
                await response.aclose()
        except Unreachable as error:
            raise TryAgain(error) from None
        except TimeoutError:
            raise TryAgain(deadline.error(self.arm.url)) from None
        except NO_ANSWER as error:
            raise TryAgain(silence(self.arm.url, error, TIMEOUT_S)) from error

    def _refuse_break(self, event: Mapping[str, Any]) -> None:
        if "error" in event:
            held = event["error"]
            why = _error_text(held)
            # vLLM says 200 to a stream before its grammar is compiled.
            code = held.get("code") if isinstance(held, dict) else None
            if isinstance(code, int) and code in _AT_FAULT:
                raise _RequestAtFault(why)
            error = EngineError(f"{self.arm.url} broke off an answer: {why}")
            raise TryAgain(error, accident=True)

    def _refuse_part(self, finish: str | None) -> None:
        """Refuses an answer that did not come to its end: nobody knows what it would have said."""
        if finish in _UNFINISHED:
            why = "no finish_reason" if finish is None else f"finish_reason {finish}"
            error = EngineError(f"{self.arm.url} broke off an answer: {why}")
            raise TryAgain(error, accident=True)

    def _judge(self, reply: Reply) -> None:
        if reply.is_success:
            return
        status = reply.status
        if status in _AT_FAULT:
            raise _RequestAtFault(_message(reply))
        if status not in _AGAIN:
            keyed = "Authorization" in self._http.headers
            raise refusal(self.arm.url, reply, control=False, keyed=keyed)
        error = Unreachable(f"{self.arm.url} answers {status}", remedy="see the engine's log")
        raise TryAgain(error, wait_s=_retry_after(reply), accident=status == 500)


def _read_end(choice: Mapping[str, Any]) -> str | None:
    """Why it ended; raises WrongType."""
    end: str | None = read_value(str | None, choice.get("finish_reason"), "finish_reason")
    return end


def _drop_impossible_ids(piece: Piece, prompt: Prompt) -> Piece:
    """`piece`, whose ids of the prompt are not known where they are more than it can have."""
    ids = piece.prompt_ids
    return (
        piece if ids is None or len(ids) <= prompt.most_tokens else replace(piece, prompt_ids=None)
    )


async def _read_parts(parts: AsyncIterator[bytes], deadline: Deadline) -> AsyncIterator[bytes]:
    """The parts of an answer until it ends; raises TimeoutError at the deadline.

    The time is taken around each part: whoever listens is not to be interrupted elsewhere.
    """
    while True:
        async with asyncio.timeout_at(deadline.ends):
            part = await anext(parts, None)
        if part is None:
            return
        yield part


class _Thought(NamedTuple):
    """What the target thinks of a token."""

    logprob: float
    rank: int | None = None


def _check_thoughts(thoughts: Mapping[str, Any], place: str) -> None:
    for token, thought in thoughts.items():
        if not (token.isascii() and token.isdecimal() and len(token) < _LONGEST_ID):
            raise WrongType(f"{place} names something that is no token's id")
        read_record(_Thought, thought, f"{place}.{token[:20]}")


_TOKENS = tuple[Annotated[int, Within(0, 2**31)], ...]
_CHOICES = tuple[dict[str, Any], ...]
_VALUES = tuple[Any, ...]
_ONE_CHOICE = tuple[dict[str, Any]]
_THOUGHTS = tuple[Annotated[dict[str, Any], _check_thoughts] | None, ...]
_LONGEST_ID = 12
"""Digits of a token's id."""
_LEAST = 20.0
"""The likeliest of a million tokens has a log-probability above -14."""
_ROUNDED = 1e-3
"""By so much may rounding lift a log-probability above 0."""
_KNOWN_THOUGHTS = tuple[Annotated[dict[str, Any], _check_thoughts], ...]


def _rank_thoughts(at: Mapping[str, Any], token: int, candidates: int) -> Thoughts:
    """The likeliest first, equal ones by id; vLLM adds the token itself where it is none of them.

    Raises ValueError for what are no token ids and no log-probabilities.

    >>> _rank_thoughts({"7": {"logprob": -1.0}, "5": {"logprob": -1.0}}, 7, 2)
    Thoughts(candidates=(-1.0, -1.0), own=1)
    >>> _rank_thoughts({"7": {"logprob": -9.0}, "5": {"logprob": -1.0}}, 7, 1)
    Thoughts(candidates=(-1.0,), own=None)
    """
    extra = len(at) > candidates
    found = sorted(
        (-float(one["logprob"]), int(name))
        for name, one in at.items()
        if not (extra and name == str(token))
    )
    if not found or not -_ROUNDED <= found[0][0] <= _LEAST:
        raise ValueError("no distribution over tokens")
    likeliest = found[:candidates]
    own = next((n for n, (_, name) in enumerate(likeliest) if name == token), None)
    return Thoughts(tuple(-value for value, _ in likeliest), own)


def _retry_after(reply: Reply) -> float | None:
    value = reply.headers.get("Retry-After", "")
    return min(float(value), 30.0) if value.isdecimal() else None


def _message(reply: Reply) -> str:
    """The engine's own words, on one short line."""
    try:
        body = reply.json()
    except NotJson:
        return f"status {reply.status}"
    return _error_text(body.get("error", body) if isinstance(body, dict) else body)


def _error_text(error: object) -> str:
    return clean_line(error.get("message", error) if isinstance(error, dict) else error)[:300]
