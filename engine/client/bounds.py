"""How much of an answer is read, and for how long: whatever a server sends, a look at it ends.

The figures are several times what the largest installations send, so that none of them is met
by an engine that means well.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import httpx

from specdeck.engine.errors import BadPage, NotAnEngine
from specdeck.engine.protocol.codec import MOST_VALUES


@dataclass(frozen=True, slots=True)
class Bound:
    """The most of one kind of answer."""

    what: str
    """What it is an answer of, for the error."""
    size: int
    """Bytes."""
    values: int = MOST_VALUES
    """JSON values."""

    @property
    def parts(self) -> int:
        """Pieces that it may come in: reading one costs as much as reading kilobytes."""
        return _PARTS + self.size // _LEAST_PART


PAGE = Bound("metrics page", 6_000_000)
"""One engine writes 53 KB, every data-parallel rank more of it 34 KB: 170 ranks on one page."""
STATE = Bound("state", 256_000)
"""The plugin's is 3 KB; it is asked for together with a page, once a second."""
TUNING = Bound("tuning", 1_000_000, values=50_000)
"""A curve of 30 batch sizes and 16 k's has 100 KB."""
CHANGE = Bound("reply to a change", 64_000)
"""The knobs that it turned, and some lines for the operator."""
FACTS = Bound("set of facts", 1_000_000, values=50_000)
"""An engine's have 30 KB."""
REPLY = Bound("reply", 4_000_000)
"""4096 steps have 1 MB, two thousand adapters in a list of models 1 MB."""
REFUSAL = 64_000
"""Bytes of an answer that is no success: what lies beyond is not looked at."""

LONGEST_TEXT = 4_000
"""Characters of a name or a reason: a path has no more, and the plugin's reasons have 500."""
_ANSWER = 1_000_000
"""Bytes of a completion beside its tokens: the ids of a prompt, and its tools repeated."""
_BY_TOKEN = 2_000
"""Bytes of one token of an answer: an event of its own around a text, its id and its figures."""
_BY_CANDIDATE = 400
"""Bytes of a candidate's log-probability: an id, a number, and its text as a list of bytes."""
_BY_PROMPT = 8
"""Bytes that a byte of the request comes back as: an id for each character of its prompt."""
TOKEN_S = 1.0
"""Seconds that an engine under load may take over a token, on average."""
BEGUN_S = 30.0
"""Seconds beside those of its tokens for what is left of an answer once it has begun."""
LOOK_SIZE, LOOK_VALUES, LOOK_S = 64_000_000, 1_000_000, 120.0
"""The most bytes, JSON values, and seconds beside the wait of what is thought of given tokens."""
_PARTS = 10_000
_LEAST_PART = 500
"""Bytes of a part on average, once there are many: four events for each token of a stream."""
_VALUES = 50
"""JSON values of a token, and of each candidate."""


@dataclass(frozen=True, slots=True)
class AnswerBound(Bound):
    """The most of a completion, and of the stream of one."""

    events: int = 1_000
    """Events of a stream, those without a token among them."""
    seconds: float = 0.0
    """From the request to the last byte."""
    begun_s: float = 0.0
    """From the first event, or the head of what comes in one piece, to the last byte."""


def answer_bound(
    tokens: int, candidates: int, *, request_size: int, patience_s: float
) -> AnswerBound:
    """Of a completion of so many `tokens`, those of all its choices together.

    `patience_s` is how long a busy engine may take to begin.

    >>> bound = answer_bound(128, 2, request_size=1_000, patience_s=120.0)
    >>> bound.size, bound.values, bound.events, bound.seconds, bound.begun_s
    (1417600, 269200, 1512, 248.0, 158.0)
    """
    return AnswerBound(
        "completion",
        _ANSWER
        + tokens * (_BY_TOKEN + _BY_CANDIDATE * (candidates + 1))
        + request_size * _BY_PROMPT,
        MOST_VALUES + tokens * _VALUES * (candidates + 1),
        events=1_000 + 4 * tokens,
        seconds=patience_s + tokens * TOKEN_S,
        begun_s=BEGUN_S + tokens * TOKEN_S,
    )


def look_bound(
    tokens: int, candidates: int, *, request_size: int, patience_s: float
) -> AnswerBound:
    """Of what is thought of so many given `tokens`: as of a completion of them, with a ceiling.

    The engine itself says how many tokens a prompt has, so its word bounds nothing.

    >>> bound = look_bound(250_000, 20, request_size=2_000_000, patience_s=120.0)
    >>> bound.size, bound.values, bound.seconds, bound.begun_s
    (64000000, 1000000, 240.0, 120.0)
    """
    found = answer_bound(tokens, candidates, request_size=request_size, patience_s=patience_s)
    return replace(
        found,
        size=min(found.size, LOOK_SIZE),
        values=min(found.values, LOOK_VALUES),
        seconds=min(found.seconds, patience_s + LOOK_S),
        begun_s=min(found.begun_s, LOOK_S),
    )


def shorten_texts(value: Any) -> Any:
    """A JSON value whose texts end where no engine's does: each is laid out at every look.

    >>> [len(text) for text in shorten_texts(["k 5 → 3", "w" * 1_000_000])]
    [7, 4000]
    """
    if isinstance(value, str):
        return value if len(value) <= LONGEST_TEXT else f"{value[: LONGEST_TEXT - 1]}…"
    if isinstance(value, list):
        return [shorten_texts(one) for one in value]
    if isinstance(value, dict):
        return {shorten_texts(key): shorten_texts(one) for key, one in value.items()}
    return value


def is_compressed(response: httpx.Response) -> bool:
    """Whether a kilobyte of it may be a megabyte to read; it was asked for as it is."""
    encoding = response.headers.get("Content-Encoding", "")
    return encoding.strip().lower() not in ("", "identity")


def refuse_compressed(response: httpx.Response, url: str) -> None:
    """Raises BadPage for a compressed answer."""
    if is_compressed(response):
        raise BadPage(
            f"{url} compresses its answers unasked",
            remedy="switch compression off in the proxy in front of it",
        )


async def read_body(response: httpx.Response, bound: Bound, url: str) -> bytes:
    """The whole answer, counted as it comes; of one that is no success only the beginning.

    Raises NotAnEngine once it is longer than `bound`, BadPage for a compressed one, and what
    httpx raises.
    """
    if not response.is_success:
        if is_compressed(response):
            return b""
        beginning, _ = await _read(response, REFUSAL, _PARTS)
        return beginning[:REFUSAL]
    refuse_compressed(response, url)
    length = response.headers.get("Content-Length", "")
    if length.isdecimal() and float(length) > bound.size:
        raise NotAnEngine(
            f"{url} sends a {bound.what} of {float(length) / 1e6:.0f} MB: {_at_most(bound)}"
        )
    body, is_whole = await _read(response, bound.size, bound.parts)
    if not is_whole:
        raise excess_error(bound, url)
    return body


async def _read(response: httpx.Response, size: int, parts: int) -> tuple[bytes, bool]:
    """What comes until it is more than `size` bytes or `parts` parts, and whether that is all."""
    body, number = bytearray(), 0
    async for part in response.aiter_bytes():
        body += part
        number += 1
        if len(body) > size or number > parts:
            return bytes(body), False
    return bytes(body), True


def excess_error(bound: Bound, url: str) -> NotAnEngine:
    """An answer that is longer than `bound`, or comes in more parts."""
    return NotAnEngine(f"{url} sends a {bound.what} without an end: {_at_most(bound)}")


def _at_most(bound: Bound) -> str:
    return f"at most {bound.size / 1e6:.1f} MB are read"
