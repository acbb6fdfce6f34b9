"""Answers of a server that lies: neither their length nor their pace is up to it."""

from __future__ import annotations

import dataclasses
import gzip
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import pytest
from tests.support import tuned_engine
from tests.support.engine_state import engine_state
from tests.support.lying_engine import Lie, LyingEngine, drip, encode, endless, hang, head, reply

from specdeck.engine.client.bounds import CHANGE, FACTS, LONGEST_TEXT, PAGE, STATE, TUNING
from specdeck.engine.client.engine_client import EngineClient, open_client
from specdeck.engine.client.secret import Secret
from specdeck.engine.errors import BadPage, EngineError, NotAnEngine, Unreachable
from specdeck.engine.protocol.messages import PREFIX, AppliedChange, Change

FLOOD = b"vllm:a 1\n" * 10_000
IN_FLIGHT = 8_000_000
"""Bytes that may be on their way when a client has enough."""


@pytest.fixture(autouse=True)
async def close_clients(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[None]:
    """Closes every client of a test: a socket left open is a warning in some later test."""
    opened: list[EngineClient] = []
    make = EngineClient.__init__

    def make_and_note(self: EngineClient, *arguments: Any, **named: Any) -> None:
        make(self, *arguments, **named)
        opened.append(self)

    monkeypatch.setattr(EngineClient, "__init__", make_and_note)
    yield
    for client in opened:
        await client.close()


def impatient(url: str) -> EngineClient:
    """A client that waits 0.3 s for an answer."""
    http = httpx.AsyncClient(base_url=url, timeout=5.0)
    return EngineClient(http, url=url, timeout_s=0.2, connect_s=0.1)


def answering(body: bytes, *headers: tuple[str, str], status: int = 200) -> EngineClient:
    """A client of an engine that answers everything alike."""
    answer = httpx.Response(status, content=body, headers=[*headers])
    return open_client(
        "http://engine", token=lambda: Secret("t"), transport=httpx.MockTransport(lambda _: answer)
    )


async def turn(client: EngineClient) -> AppliedChange:
    """Asks for a change."""
    client.token = lambda: Secret("t")
    return await client.put(Change(k=3))


async def test_what_is_no_lie_is_answered_honestly() -> None:
    with LyingEngine({"/version": reply({"version": "9"})}) as engine:
        asked = open_client(engine.url)
        assert await asked.version() == "9"
        assert (await asked.state()).k == 5
        assert await asked.models() == ("demo",)
        await asked.close()
    assert [one.path for one in engine.asked] == ["/version", "/v1/specdeck/state", "/v1/models"]


@pytest.mark.parametrize(
    "lie",
    [
        drip(reply("x" * 10_000), every_s=0.05),
        hang(),
        hang(head()),
        endless(b"", head(status=100)),
    ],
)
async def test_an_answer_has_a_time_in_all(lie: Lie) -> None:
    with (
        LyingEngine({"/metrics": lie}) as engine,
        pytest.raises(Unreachable, match=r"gave no answer for 0\.3 s"),
    ):
        await impatient(engine.url).page()


@pytest.mark.parametrize(
    ("path", "ask", "most"),
    [
        ("/metrics", EngineClient.page, PAGE.size),
        (f"{PREFIX}/state", EngineClient.state, STATE.size),
        (f"{PREFIX}/facts", EngineClient.facts, FACTS.size),
        (f"{PREFIX}/tuning", EngineClient.tuning, TUNING.size),
        (f"{PREFIX}/control", turn, CHANGE.size),
    ],
)
async def test_an_answer_without_an_end_is_given_up(
    path: str, ask: Callable[[EngineClient], Any], most: int
) -> None:
    with LyingEngine({path: endless(head(), FLOOD)}) as engine:
        with pytest.raises(NotAnEngine, match=r"without an end: at most .* MB are read"):
            await ask(open_client(engine.url))
        assert engine.sent < most + IN_FLIGHT


@pytest.mark.parametrize("size", [400_000, 3_000_000])
async def test_a_reason_of_megabytes_is_laid_out_by_nobody(size: int) -> None:
    """A console wraps the reasons of a tuning at every look: that took it minutes."""
    tuning = dataclasses.asdict(tuned_engine.tuning()) | {"reason": "w " * (size // 2)}
    client = answering(encode(tuning))
    if size > TUNING.size:
        with pytest.raises(NotAnEngine, match="at most"):
            await client.tuning()
    else:
        reason = (await client.tuning()).reason
        assert reason is not None
        assert len(reason) == LONGEST_TEXT


async def test_a_name_of_a_quarter_of_a_megabyte_is_cut() -> None:
    state = engine_state().as_json() | {"model": "m" * 200_000}
    assert len((await answering(encode(state)).state()).model) == LONGEST_TEXT


@pytest.mark.parametrize("status", [401, 404, 500, 503])
async def test_of_a_refusal_without_an_end_the_beginning_is_enough(status: int) -> None:
    with LyingEngine({"/metrics": endless(head(status=status), FLOOD)}) as engine:
        with pytest.raises(EngineError):
            await open_client(engine.url).page()
        assert engine.sent < IN_FLIGHT


async def test_a_head_without_an_end_is_given_up() -> None:
    with LyingEngine({"/metrics": endless(b"HTTP/1.1 200 OK\r\n", b"X-A: 1\r\n" * 999)}) as engine:
        with pytest.raises(NotAnEngine):
            await open_client(engine.url).page()
        assert engine.sent < IN_FLIGHT


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "zstd", "x"])
async def test_a_compressed_answer_is_not_opened(encoding: str) -> None:
    squeezed = gzip.compress(b"vllm:a 1\n" * 100_000)
    with (
        LyingEngine({"/metrics": reply(squeezed, ("Content-Encoding", encoding))}) as engine,
        pytest.raises(BadPage, match="compresses its answers unasked"),
    ):
        await open_client(engine.url).page()


async def test_a_compressed_refusal_is_not_opened_either() -> None:
    squeezed = gzip.compress(b'{"error": {"code": "x", "message": "boo"}}')
    lie = reply(squeezed, ("Content-Encoding", "gzip"), status=500)
    with (
        LyingEngine({"/metrics": lie}) as engine,
        pytest.raises(EngineError, match="answers 500"),
    ):
        await open_client(engine.url).page()


async def test_an_answer_that_says_it_is_uncompressed_is_read() -> None:
    assert await answering(b"vllm:a 1\n", ("Content-Encoding", "identity")).page() == "vllm:a 1\n"


async def test_a_page_is_utf8_whatever_it_says() -> None:
    said = ("Content-Type", "text/plain; charset=utf-16")
    assert await answering("vllm:ä 1\n".encode(), said).page() == "vllm:ä 1\n"
    assert await answering(b"vllm:\xff 1\n").page() == "vllm:\ufffd 1\n"


STATE_JSON = json.dumps(engine_state().as_json())


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b'{"a": ' + b"[" * 500 + b"]" * 500 + b"}",
        STATE_JSON.encode("utf-16"),
        STATE_JSON.encode("utf-32"),
        b'{"protocol": 1' + b"0" * 5000 + b"}",
        b'{"protocol": NaN}',
        b'{"protocol": Infinity}',
        b"[" + b"{}," * 300_000 + b"{}]",
        STATE_JSON.replace('"k_max": 5', '"k_max": 1000000').encode(),
        STATE_JSON.replace('"k_max": 5', '"k_max": "5"').encode(),
        STATE_JSON.replace('"k_max": 5', '"k_max": true').encode(),
        STATE_JSON.replace('"started": 1000.0', '"started": 1e300').encode(),
        STATE_JSON.replace('"capabilities": []', '"capabilities": [1]').encode(),
        STATE_JSON.replace('"capabilities": []', '"capabilities": {"a": 1}').encode(),
        STATE_JSON.replace('"model": "demo"', '"model": ["demo"]').encode(),
        STATE_JSON.replace('"lease": null', '"lease": {"seconds_left": 1}').encode(),
    ],
)
async def test_what_is_no_state_is_an_error_of_ours(body: bytes) -> None:
    with pytest.raises(NotAnEngine):
        await answering(body).state()


async def test_an_error_says_what_was_expected() -> None:
    with pytest.raises(NotAnEngine, match=r"\(k_max is a text, not a whole number\)"):
        await answering(STATE_JSON.replace('"k_max": 5', '"k_max": "5"').encode()).state()


async def test_half_a_surrogate_is_replaced() -> None:
    body = STATE_JSON.replace('"demo"', r'"de\ud800mo"')
    assert (await answering(body.encode()).state()).model == "de\ufffdmo"


@pytest.mark.parametrize(
    "body",
    [
        {"before": {"k": []}, "applied": {"k": 3}, "version": 1, "step": 1},
        {"before": {"k": 5}, "applied": {"k": {"deep": 1}}, "version": 1, "step": 1},
        {"before": {"k": 5}, "applied": {"k": 3}, "version": "1", "step": 1},
        {"before": {"k": 5}, "applied": {"k": 3}, "version": 1, "step": 1, "notices": "abc"},
        {"before": [["k", 5]], "applied": {"k": 3}, "version": 1, "step": 1},
        {"before": {"mode": 5}, "applied": {"k": 3}, "version": 1, "step": 1},
    ],
)
async def test_a_strange_word_on_a_change_is_an_error_of_ours(body: object) -> None:
    with pytest.raises(NotAnEngine, match="something unexpected") as raised:
        await answering(encode(body)).put(Change(k=3))
    assert "the change may have been made" in raised.value.line()


@pytest.mark.parametrize("body", [{"data": [{"id": 1}]}, {"data": {"id": "a"}}, {"data": [[]]}, {}])
async def test_strange_models_are_an_error_of_ours(body: object) -> None:
    with pytest.raises(NotAnEngine):
        await answering(encode(body)).models()


@pytest.mark.parametrize("place", ["http://xn--/", "javascript:1", "http://[::1/"])
async def test_a_redirect_to_no_address_is_an_error_of_ours(place: str) -> None:
    with LyingEngine({"*": reply(b"", ("Location", place), status=302)}) as engine:
        client = open_client(engine.url)
        for ask in (client.page, client.state, client.models):
            with pytest.raises(NotAnEngine, match="redirects to no address"):
                await ask()


async def test_a_redirect_is_not_followed() -> None:
    with LyingEngine() as other:
        lie = reply(b"", ("Location", f"{other.url}/metrics"), status=302)
        with LyingEngine({"/metrics": lie}) as engine:
            keyed = open_client(engine.url, api_key=Secret("secret"))
            with pytest.raises(NotAnEngine, match="answers 302"):
                await keyed.page()
        assert not other.asked
