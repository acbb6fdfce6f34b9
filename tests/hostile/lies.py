"""The lies that an engine can tell: what is sent instead of an honest answer, by name."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from specdeck.engine.protocol.messages import PREFIX, TOKEN_HEADER
from tests.support.engine_state import engine_state
from tests.support.lying_engine import (
    EVENT_STREAM,
    Asked,
    Lie,
    chunk,
    drip,
    endless,
    event,
    hang,
    head,
    reply,
)
from tests.support.pages import recorded_page

STATE, TUNING, CONTROL = f"{PREFIX}/state", f"{PREFIX}/tuning", f"{PREFIX}/control"
FACTS, STEPS = f"{PREFIX}/facts", f"{PREFIX}/steps"
COHORTS, REQUESTS = f"{PREFIX}/cohorts", f"{PREFIX}/requests"
CALIBRATE = f"{PREFIX}/calibrate"
METRICS, VERSION, MODELS, COMPLETIONS = "/metrics", "/version", "/v1/models", "/v1/completions"

ESCAPES = "\x1b]52;c;cHduZWQ=\x07\x1b]0;owned\x07\x9b31m\x1b[2J\u202eevil\r\x00\x08\x85\nforged"
"""Clipboard, title, colour, clear, right to left, return, null, backspace, kinds of new line."""
DEEP = b"[" * 100_000 + b"]" * 100_000
COSTLY = ("a_", "aA1", "x", "prompt_", "“", "'\\", "://a:", "-a /", "pass_", "[", "= ", "said A ")
"""What an expression may pass in vain, again from each character on."""
HUGE_NUMBER = b"9" * 5000


@dataclass(frozen=True, slots=True)
class Case:
    """One lie at one path, or several."""

    name: str
    lies: dict[str, Lie]
    waits: bool = False
    """Whether it holds a command up until that has had enough."""


def cases() -> tuple[Case, ...]:
    """Every lie, by name."""
    return tuple(
        [
            *_at_every_path(),
            *_replies_of_the_wrong_shape(),
            *_fields_of_the_wrong_type(),
            *_pages(),
            *_answers(),
            *_echoes(),
            *_without_an_end(),
        ]
    )


def in_charset(name: str) -> tuple[str, str]:
    """The header of JSON in a charset."""
    return "Content-Type", f"application/json; charset={name}"


def _at_every_path() -> Iterator[Case]:
    """Whatever is asked, it is answered like this."""
    whole = {
        "nothing at all": b"",
        "no HTTP": b"SSH-2.0-OpenSSH_9.6\r\n",
        "zeros": b"\x00" * 4096,
        "HTTP of the future": b"HTTP/9.9 200 OK\r\n\r\n{}",
        "a status that is none": b"HTTP/1.1 9999 What\r\n\r\n",
        "a status of words": b"HTTP/1.1 two OK\r\n\r\n",
        "a head without an end": b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n",
        "a header of 1 MB": head(("X", "x" * 1_000_000)) + b"{}",
        "10,000 headers": head(*[(f"X-{n}", "x") for n in range(10_000)]) + b"{}",
        "escapes in a header": head(("Content-Type", "\x1b]0;owned\x07")) + b"{}",
        "escapes as the reason": head(status=500, reason="\x1b]0;owned\x07"),
        "shorter than it says": head(("Content-Length", "1000")) + b"{}",
        "longer than it says": head(("Content-Length", "1")) + b"{}garbage",
        "a negative length": head(("Content-Length", "-1")) + b"{}",
        "two lengths": head(("Content-Length", "2"), ("Content-Length", "3")) + b"{} ",
        "a chunk that is none": head(("Transfer-Encoding", "chunked")) + b"xyz\r\n{}\r\n0\r\n\r\n",
        "a chunk of 2^63": head(("Transfer-Encoding", "chunked")) + b"8000000000000000\r\n{}",
        "gzip": reply(gzip.compress(b"{}"), ("Content-Encoding", "gzip")),
        "a bomb": reply(gzip.compress(b" " * 50_000_000), ("Content-Encoding", "gzip")),
        "deflate": reply(zlib.compress(b"{}"), ("Content-Encoding", "deflate")),
        "gzip that is none": reply(b"{}", ("Content-Encoding", "gzip")),
        "an encoding nobody knows": reply(b"{}", ("Content-Encoding", "x-lie")),
        "no content": head(status=204),
        "a redirect to itself": head(("Location", "/"), status=302),
        "a redirect to a file": head(("Location", "file:///etc/passwd"), status=301),
        "teapot": reply({"detail": ESCAPES}, status=418),
        "a proxy's page": reply("<html>Bad gateway</html>", ("Content-Type", "text/html"),
                                status=502),
        "continue for ever": b"HTTP/1.1 100 Continue\r\n\r\n" * 1000,
        "null": reply(b"null"),
        "a list": reply(b"[]"),
        "an empty object": reply(b"{}"),
        "a number": reply(b"7"),
        "a text": reply(b'"state"'),
        "no JSON": reply(b"{'k': 3}"),
        "deep": reply(DEEP),
        "a huge number": reply(HUGE_NUMBER),
        "NaN": reply(b"NaN"),
        "UTF-16": reply(json.dumps({"k": 3}).encode("utf-16"), in_charset("utf-16")),
        "Latin-1": reply("{\"model\": \"é\"}".encode("latin-1")),
        "a charset nobody knows": reply(b"{}", in_charset("\x1bevil")),
        "UTF-7": reply(b"+AHsAfQ-", in_charset("utf-7")),
        "a byte order mark": reply(b"\xef\xbb\xbf{}"),
        "2 MB of spaces": reply(b" " * 2_000_000 + b"{}"),
    }  # fmt: skip
    for name, lie in whole.items():
        yield Case(f"{name}, whatever is asked", {"*": lie})
    for status in (401, 403, 404, 409, 422, 429, 500, 503):
        body = {"error": {"message": ESCAPES, "code": ESCAPES}, "detail": ESCAPES, "remedy": [1]}
        yield Case(f"{status} with escapes, whatever is asked", {"*": reply(body, status=status)})
        yield Case(
            f"{status} to a change", {CONTROL: reply({"detail": [{"x": ESCAPES}]}, status=status)}
        )


def _replies_of_the_wrong_shape() -> Iterator[Case]:
    """One path lies, the others do not."""
    shapes: dict[str, bytes] = {
        "null": b"null", "a list": b"[1]", "an empty object": b"{}", "deep": DEEP,
        "a huge number": b'{"k": ' + HUGE_NUMBER + b"}", "nothing": b"",
    }  # fmt: skip
    for path in (STATE, CONTROL, FACTS, STEPS, TUNING, VERSION, MODELS, COMPLETIONS):
        for name, body in shapes.items():
            yield Case(f"{name} at {path}", {path: reply(body)})
    for name, place in (("name", "http://xn--/"), ("address", "javascript:1")):
        moved = head(("Location", place), status=302)
        for path in ("*", METRICS, STATE, CONTROL, FACTS, COMPLETIONS):
            yield Case(f"a redirect to no {name} at {path}", {path: moved})


def _fields_of_the_wrong_type() -> Iterator[Case]:
    """A state whose every field is something else."""
    state = engine_state().as_json()
    others: dict[str, Any] = {
        "null": None, "an object": {"a": 1}, "a list": [ESCAPES], "escapes": ESCAPES,
        "half a surrogate": "\ud800", "a huge number": 10**400, "minus one": -1,
        "NaN": float("nan"),
        "infinity": float("inf"), "true": True, "1 MB": "x" * 1_000_000,
    }  # fmt: skip
    for name, value in others.items():
        yield Case(
            f"every field of the state is {name}", {STATE: reply(dict.fromkeys(state, value))}
        )
        for field in ("model", "k", "k_max", "version", "step", "drafted_per_position", "started",
                      "mode", "capabilities", "last_change", "instance"):  # fmt: skip
            if name in ("escapes", "a list", "a huge number", "half a surrogate", "null"):
                yield Case(
                    f"{field} of the state is {name}", {STATE: reply({**state, field: value})}
                )
    changed = {
        "who": ESCAPES,
        "reason": ESCAPES,
        "t": 0.0,
        "before": {ESCAPES: 1},
        "after": {"k": ESCAPES},
    }
    yield Case("a last change with escapes", {STATE: reply({**state, "last_change": changed})})
    able = [{"name": "live_k", "available": False, "reason": ESCAPES, "remedy": ESCAPES}]
    yield Case("reasons with escapes", {STATE: reply({**state, "capabilities": able})})
    pasted = {"before": {"k": "3; rm -rf ~", "$(id)": ESCAPES}, "applied": {"k": ESCAPES}}
    yield Case(
        "a change with escapes",
        {CONTROL: reply({**pasted, "version": 1, "step": 1, "notices": [ESCAPES]})},
    )
    wrong = {"before": 3, "applied": [1], "version": "one", "step": None, "notices": {"a": 1}}
    yield Case("a change of wrong types", {CONTROL: reply(wrong)})
    yield Case("models with escapes", {MODELS: reply({"data": [{"id": ESCAPES}]})})
    yield Case("a version with escapes", {VERSION: reply({"version": ESCAPES})})
    facts = {
        "facts": {ESCAPES: ESCAPES, "\ud800": "\udfff"},
        "names": {"build": ESCAPES, "path": ESCAPES},
        "fingerprint": ESCAPES,
        "partial": [{"fact": ESCAPES, "reason": ESCAPES}],
        "progress": {"finished": True},
        "system_fingerprint": ESCAPES,
        "instance": ESCAPES,
    }
    yield Case("facts with escapes", {FACTS: reply(facts)})
    yield Case("facts of wrong types", {FACTS: reply(dict.fromkeys(facts, 3))})
    costly = {str(n): piece * (20_000 // len(piece)) for n, piece in enumerate(COSTLY)}
    yield Case(
        "facts that expressions are slow on",
        {FACTS: reply({**facts, "facts": {"config": costly, "environment": costly}})},
    )


def _pages() -> Iterator[Case]:
    """Metrics pages that no Prometheus client wrote."""
    page = recorded_page("speculative").encode()
    lines = {
        "empty": b"",
        "binary": bytes(range(256)) * 100,
        "a line of 1 MB": page + b"vllm:x{a=\"" + b"y" * 1_000_000 + b"\"} 1\n",
        "100,000 series": page + b"".join(b'vllm:x{n="%d"} 1\n' % n for n in range(100_000)),
        "no number": page.replace(b"_total{", b"_total{x=\"\", ").replace(b" 116.0", b" many"),
        "NaN": page.replace(b"116.0", b"NaN"),
        "infinite": page.replace(b"116.0", b"+Inf").replace(b"580.0", b"-Inf"),
        "negative": page.replace(b"116.0", b"-116.0"),
        "1e308 twice": page + b"vllm:generation_tokens_total 1e308\n" * 2,
        "labels without an end": page + b'vllm:generation_tokens_total{model_name="demo 1\n',
        "escapes in labels": page.replace(b"demo", ESCAPES.replace("\n", "").encode()),
        "halves of surrogates": page.replace(b"demo", b"\xed\xa0\x80"),
        "a position of 10^9": page.replace(b'position="4"', b'position="999999999"'),
        "a position that is none": page.replace(b'position="4"', b'position="-1"'),
        "buckets in disorder": page.replace(b'le="', b'le="-'),
        "only comments": b"# HELP\n# TYPE\n#\n" * 1000,
        "no line ends": page.replace(b"\n", b" "),
    }  # fmt: skip
    for name, body in lines.items():
        yield Case(f"a page: {name}", {METRICS: reply(body, ("Content-Type", "text/plain"))})


def _answers() -> Iterator[Case]:
    """Completions that no model wrote."""
    choice = {"text": ESCAPES, "token_ids": [1], "logprobs": None, "finish_reason": "stop"}
    bodies: dict[str, Any] = {
        "escapes": {"choices": [choice], "prompt_token_ids": [1], "system_fingerprint": ESCAPES},
        "no choices": {"choices": []},
        "tokens of texts": {"choices": [{**choice, "token_ids": [ESCAPES]}]},
        "tokens of 10^30": {"choices": [{**choice, "token_ids": [10**30]}]},
        "logprobs of wrong types": {"choices": [{**choice, "logprobs": [1, {"a": None}]}]},
        "an error": {"error": {"message": ESCAPES}},
        "choices that are none": {"choices": {"0": choice}},
        "halves of surrogates": {"choices": [{**choice, "text": "\ud800\udc00\ud800"}]},
    }
    for name, body in bodies.items():
        yield Case(f"an answer: {name}", {COMPLETIONS: reply(body)})
        yield Case(f"a stream: {name}", {COMPLETIONS: EVENT_STREAM + event(body)})
    yield Case("a stream: no events", {COMPLETIONS: EVENT_STREAM + b"hello\n\n"})
    yield Case(
        "a stream: a line of 1 MB", {COMPLETIONS: EVENT_STREAM + b"data: " + b"x" * 1_000_000}
    )
    yield Case("a stream: deep", {COMPLETIONS: EVENT_STREAM + event(DEEP)})


def _told_again(asked: Asked) -> str:
    """The secrets of a request: what follows `Authorization` and the plugin's own header."""
    names = ("authorization", TOKEN_HEADER.lower())
    return " ".join(asked.headers.get(name, "") for name in names)


def _echo(body: Callable[[str], Any], status: int = 200) -> Lie:
    """An answer that is made of the request's secrets; each is spelt as JSON can, too."""

    def parts(asked: Asked) -> tuple[bytes]:
        told = _told_again(asked)
        text = json.dumps(body(told + " ~"))
        return (reply(text.replace("~", "".join(f"\\u{ord(c):04x}" for c in told)), status=status),)

    return parts


def _echoes() -> Iterator[Case]:
    """A gateway that quotes headers, or an engine that wants them seen."""
    state = engine_state().as_json()
    texts = ("model", "vllm", "method", "policy", "instance", "plugin", "fingerprint",
             "system_fingerprint")  # fmt: skip
    choice = {"token_ids": [1], "logprobs": None, "finish_reason": "stop"}
    bodies: dict[str, Callable[[str], Any]] = {
        CONTROL: lambda told: {
            "before": {"k": 5, "policy": told}, "applied": {"k": 3, "policy": told},
            "undo": {"policy": told.split()[-2], "k": 3}, "version": 1, "step": 1,
            "notices": [told],
        },
        STATE: lambda told: {**state, **dict.fromkeys(texts, told)},
        VERSION: lambda told: {"version": told},
        MODELS: lambda told: {"data": [{"id": told}]},
        FACTS: lambda told: {
            "facts": {"a": told, told: "b"}, "names": {"build": told, "path": told},
            "fingerprint": told, "partial": [{"fact": told, "reason": told}],
            "progress": {"finished": True}, "system_fingerprint": told, "instance": told,
        },
        COMPLETIONS: lambda told: {
            "choices": [{**choice, "text": told}], "prompt_token_ids": [1],
            "system_fingerprint": told,
        },
    }  # fmt: skip
    for path, body in bodies.items():
        yield Case(f"the secrets again at {path}", {path: _echo(body)})
    for path in (CONTROL, STATE, COMPLETIONS, "*"):
        for status in (400, 401, 409, 500):
            refusal = _echo(
                lambda told: {"error": {"code": told, "message": told, "remedy": told}}, status
            )
            yield Case(f"{status} with the secrets again at {path}", {path: refusal})
    page = recorded_page("speculative").encode()
    yield Case(
        "a page with the secrets again",
        {METRICS: lambda asked: (reply(page.replace(b"demo", _told_again(asked).encode())),)},
    )
    notices = [f"{number:06x}" for number in range(200_000)]
    yield Case(
        "200,000 notices",
        {CONTROL: reply({"before": {}, "applied": {}, "version": 1, "step": 1,
                         "notices": notices})},
    )  # fmt: skip


def _without_an_end() -> Iterator[Case]:
    """Answers that hold a command up for as long as it lets them."""
    chunked = head(("Transfer-Encoding", "chunked"))
    kinds: dict[str, Lie] = {
        "silence": hang(),
        "a head and silence": hang(head()),
        "a length and silence": hang(head(("Content-Length", "10")) + b"{"),
        "a drip": drip(reply(b" " * 10_000), every_s=0.2),
        "a head that drips": drip(b"HTTP/1.1 200 OK\r\nX: " + b"x" * 10_000, every_s=0.2),
        "bytes without an end": endless(head(), b"x" * 65536),
        "lines without an end": endless(head(("Content-Type", "text/plain")), b"vllm:x 1\n" * 5000),
        "chunks without an end": endless(chunked, chunk(b"[" * 65536)),
        "tiny chunks without an end": endless(chunked, chunk(b"x") * 1000),
        "headers without an end": endless(b"HTTP/1.1 200 OK\r\n", b"X: y\r\n" * 1000),
        "events without an end": endless(EVENT_STREAM, event({"choices": []}) * 100),
    }
    for name, lie in kinds.items():
        yield Case(f"{name}, whatever is asked", {"*": lie}, waits=True)
        yield Case(f"{name} at the metrics", {METRICS: lie}, waits=True)
        # An engine under load may take minutes to begin: silence there is a matter of patience.
        if "without an end" in name:
            yield Case(f"{name} at the completions", {COMPLETIONS: lie}, waits=True)
