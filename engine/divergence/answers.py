"""An engine's answer as tokens with their log-probabilities, streamed or whole, chat or not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple, TypeVar

from specdeck.engine.errors import NotAnEngine, Unsupported
from specdeck.engine.protocol.codec import Within, read_value

_PREFIX = "token_id:"
"""How vLLM spells a token when it is asked for ids: text does not tell two tokens apart."""

_LONGEST_ID = 12
"""Digits."""

_T = TypeVar("_T")
Candidate = tuple[int, float]
"""Token id and log-probability."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a tool, as the model wrote it."""

    name: str
    arguments: str
    """JSON, or what should have been."""


@dataclass(frozen=True, slots=True)
class Piece:
    """What one event of a stream adds; a whole answer is one piece."""

    token_ids: tuple[int, ...] = ()
    logprobs: tuple[float | None, ...] = ()
    """Of the tokens themselves."""
    tops: tuple[tuple[Candidate, ...], ...] = ()
    """The likeliest candidates at each token, the likeliest first."""
    text: str = ""
    reasoning: str = ""
    """What a reasoning parser took out of the text."""
    calls: tuple[tuple[int, Call], ...] = ()
    """Numbers and parts of calls."""
    finish: str | None = None
    prompt_ids: tuple[int, ...] | None = None
    drafted: int | None = None
    """Tokens drafted for the whole answer; None where the engine does not say."""
    system_fingerprint: str | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """One whole answer."""

    token_ids: tuple[int, ...]
    logprobs: tuple[float | None, ...]
    tops: tuple[tuple[Candidate, ...], ...]
    text: str
    calls: tuple[Call, ...]
    finish: str | None
    prompt_ids: tuple[int, ...] | None
    drafted: int | None
    system_fingerprint: str | None
    seconds: float
    """From the request to its last byte."""
    reasoning: str = ""
    """What a reasoning parser took out of the text."""

    def margins(self) -> list[float | None]:
        """Top-1 minus top-2 log-probability at every token; None where they are not known."""
        return [top[0][1] - top[1][1] if len(top) > 1 else None for top in self.tops]


def assemble(pieces: Iterable[Piece], seconds: float) -> Answer:
    """The answer that the pieces make; raises Unsupported when they carry no token ids."""
    found = tuple(pieces)
    ids = tuple(token for piece in found for token in piece.token_ids)
    text = "".join(piece.text for piece in found)
    reasoning = "".join(piece.reasoning for piece in found)
    calls = _join_calls(part for piece in found for part in piece.calls)
    if not ids and (text or reasoning or calls):
        raise Unsupported("the engine returns no token ids", remedy="use vLLM 0.26 or newer")
    return Answer(
        token_ids=ids,
        logprobs=tuple(value for piece in found for value in piece.logprobs),
        tops=tuple(top for piece in found for top in piece.tops),
        text=text,
        calls=calls,
        finish=_last(piece.finish for piece in found),
        prompt_ids=_last(piece.prompt_ids for piece in found),
        drafted=_last(piece.drafted for piece in found),
        system_fingerprint=_last(piece.system_fingerprint for piece in found),
        seconds=seconds,
        reasoning=reasoning,
    )


def parse_piece(event: Mapping[str, Any]) -> Piece:
    """What a completion, a chat completion or one streamed event of either holds.

    Raises NotAnEngine for anything else.

    >>> parse_piece({"choices": [{"text": "a", "token_ids": [7]}]}).token_ids
    (7,)
    """
    try:
        choices = read_value(_OBJECTS, event.get("choices"), "choices")
        if not choices:
            return Piece(drafted=_draft_count(event), system_fingerprint=_system(event))
        return _choice(event, choices[0])
    except ValueError as error:
        raise NotAnEngine(f"an answer is not in vLLM's form: {error}") from error


_TOKENS = tuple[Annotated[int, Within(0, 2**31)], ...]
_OBJECTS = tuple[dict[str, Any], ...]


def _choice(event: Mapping[str, Any], choice: Mapping[str, Any]) -> Piece:
    message = _object(choice.get("message") or choice.get("delta"), "message")
    text = choice.get("text") or message.get("content") or ""
    # Older versions of vLLM have the longer name, some both.
    reasoning = message.get("reasoning") or message.get("reasoning_content") or ""
    prompt = choice.get("prompt_token_ids") or event.get("prompt_token_ids")
    ids = read_value(_TOKENS, choice.get("token_ids") or (), "token_ids")
    logprobs, tops = _logprobs(_object(choice.get("logprobs"), "logprobs"))
    if not ids:
        logprobs, tops = (), ()  # without a token they belong to nothing
    if any(found and len(found) != len(ids) for found in (logprobs, tops)):
        raise ValueError("as many log-probabilities as tokens are wanted")
    calls = read_value(_OBJECTS, message.get("tool_calls") or (), "tool_calls")
    return Piece(
        token_ids=ids,
        logprobs=logprobs or (None,) * len(ids),
        tops=tops or ((),) * len(ids),
        text=read_value(str, text, "text"),
        reasoning=read_value(str, reasoning, "reasoning"),
        calls=tuple(_call(n, part) for n, part in enumerate(calls)),
        finish=read_value(str | None, choice.get("finish_reason"), "finish_reason"),
        prompt_ids=read_value(_TOKENS | None, prompt, "prompt_token_ids"),
        drafted=_draft_count(event),
        system_fingerprint=_system(event),
    )


def _object(value: object, place: str) -> dict[str, Any]:
    found: dict[str, Any] = read_value(dict[str, Any], value or {}, place)
    return found


def _logprobs(
    data: Mapping[str, Any],
) -> tuple[tuple[float | None, ...], tuple[tuple[Candidate, ...], ...]]:
    if not data:
        return (), ()
    if "content" in data:  # chat
        entries = read_value(tuple[_Token, ...], data["content"] or (), "logprobs")
        return (
            tuple(entry.logprob for entry in entries),
            tuple(_rank(entry.top_logprobs or ()) for entry in entries),
        )
    own = read_value(tuple[float | None, ...], data.get("token_logprobs"), "token_logprobs")
    likely = read_value(_LIKELY, data.get("top_logprobs") or (None,) * len(own), "top_logprobs")
    return own, tuple(_rank((top or {}).items()) for top in likely)


_LIKELY = tuple[dict[str, float] | None, ...]


class _Candidate(NamedTuple):
    token: str
    logprob: float


class _Token(NamedTuple):
    """A token of a chat."""

    logprob: float | None = None
    top_logprobs: tuple[_Candidate, ...] | None = None


def _rank(candidates: Iterable[tuple[str, float]]) -> tuple[Candidate, ...]:
    """By log-probability; equal ones by id, as an arm must not depend on a server's order."""
    found = [(parse_token_id(token), float(logprob)) for token, logprob in candidates]
    return tuple(sorted(found, key=lambda one: (-one[1], one[0])))


def parse_token_id(token: str) -> int:
    """The id in vLLM's spelling of it; raises ValueError for text.

    >>> parse_token_id("token_id:309")
    309
    """
    digits = token.removeprefix(_PREFIX)
    if digits == token or not (digits.isdecimal() and len(digits) < _LONGEST_ID):
        raise ValueError("a token is given as text")
    return int(digits)


def _call(number: int, part: Mapping[str, Any]) -> tuple[int, Call]:
    function = _object(part.get("function"), "function")
    index = read_value(int | None, part.get("index"), "index")
    call = Call(
        read_value(str, function.get("name") or "", "name"),
        read_value(str, function.get("arguments") or "", "arguments"),
    )
    return (number if index is None else index, call)


def _join_calls(parts: Iterable[tuple[int, Call]]) -> tuple[Call, ...]:
    calls: dict[int, list[Call]] = {}
    for number, part in parts:
        calls.setdefault(number, []).append(part)
    return tuple(
        Call("".join(part.name for part in call), "".join(part.arguments for part in call))
        for _, call in sorted(calls.items())
    )


def _draft_count(event: Mapping[str, Any]) -> int | None:
    metrics = _object(event.get("metrics"), "metrics")
    speculation = _object(metrics.get("speculative_decoding"), "speculative_decoding")
    drafted: int | None = read_value(
        int | None, speculation.get("num_draft_tokens"), "num_draft_tokens"
    )
    return drafted


def _system(event: Mapping[str, Any]) -> str | None:
    name: str | None = read_value(str | None, event.get("system_fingerprint"), "system_fingerprint")
    return name


def _last(values: Iterable[_T | None]) -> _T | None:
    last: _T | None = None
    for value in values:
        last = last if value is None else value
    return last
