from __future__ import annotations

import json
import re
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import pytest

from specdeck.engine.client.engine_client import EngineClient, open_client
from specdeck.engine.client.secret import Secret
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
from specdeck.engine.incident.redaction import Redactor
from specdeck.engine.protocol.calibration import StepShape
from specdeck.engine.protocol.messages import TOKEN_HEADER, AppliedChange, Change, EngineState

URL = "http://engine:8000"
Answer = Callable[[httpx.Request], httpx.Response]
State = Callable[..., EngineState]


def of(answer: Answer, *, token: str | None = "secret", api_key: str | None = None) -> EngineClient:
    return open_client(
        URL,
        api_key=Secret(api_key) if api_key else None,
        token=lambda: Secret(token) if token else None,
        transport=httpx.MockTransport(answer),
    )


def always(status: int, body: Any = None, text: str | None = None) -> Answer:
    if text is not None:
        return lambda _: httpx.Response(status, text=text)
    return lambda _: httpx.Response(status, json=body)


def failing(error: Exception) -> Answer:
    def answer(_: httpx.Request) -> httpx.Response:
        raise error

    return answer


def because(cause: Exception) -> httpx.ConnectError:
    """What httpx raises when `cause` is at the bottom of it."""
    error = httpx.ConnectError("All connection attempts failed")
    error.__cause__ = OSError("All connection attempts failed")
    error.__cause__.__cause__ = cause
    return error


def refused_tls(reason: str) -> ssl.SSLError:
    """What Python raises for a handshake that OpenSSL ends for this reason."""
    error = ssl.SSLError(1, f"[SSL: {reason}]")
    error.reason = reason
    return error


def refused(code: str, message: str = "no", remedy: str | None = None) -> dict[str, Any]:
    return {"error": {"code": code, "message": message, "remedy": remedy}}


def foreign(code: int | str) -> dict[str, Any]:
    return {"error": {"message": "so", "type": "upstream", "param": None, "code": code}}


async def test_a_page_comes_as_text_and_uncompressed() -> None:
    asked: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        return httpx.Response(200, text="vllm:a 1\n")

    assert await of(answer).page() == "vllm:a 1\n"
    assert str(asked[0].url) == f"{URL}/metrics"
    assert asked[0].headers["Accept-Encoding"] == "identity"
    assert "Authorization" not in asked[0].headers


async def test_the_api_key_goes_along_and_the_admin_token_only_with_a_change(state: State) -> None:
    asked: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        if request.method == "PUT":
            return httpx.Response(200, json={"before": {}, "applied": {}, "version": 1, "step": 2})
        return httpx.Response(200, json=state().as_json())

    engine = of(answer, api_key="key")
    await engine.state()
    await engine.put(Change(k=3))
    assert [request.headers["Authorization"] for request in asked] == ["Bearer key"] * 2
    assert [request.headers.get("X-Specdeck-Token") for request in asked] == [None, "secret"]


async def test_a_state_survives_the_wire(state: State) -> None:
    sent = state(k=3)
    assert await of(always(200, sent.as_json())).state() == sent


async def test_a_state_with_more_to_say_is_read(state: State) -> None:
    assert await of(always(200, {**state().as_json(), "weather": "fine"})).state() == state()


async def test_steps_facts_models_and_version() -> None:
    answers = {
        "/v1/specdeck/steps": {"steps": [dict(zip(STEP, range(10), strict=True))]},
        "/v1/specdeck/facts": {"facts": {"dtype": "float32"}, "fingerprint": "sd1:0"},
        "/v1/models": {"data": [{"id": "demo"}]},
        "/version": {"version": "0.32.0"},
    }
    engine = of(lambda request: httpx.Response(200, json=answers[request.url.path]))
    (step,) = await engine.steps(7)
    assert (step.step, step.accepted, step.committed) == (0, 7, 9)
    assert (await engine.facts())["fingerprint"] == "sd1:0"
    assert await engine.models() == ("demo",)
    assert await engine.version() == "0.32.0"


STEP = (
    "step", "t", "requests", "tokens", "k", "drafts", "drafted", "accepted", "seconds", "committed"
)  # fmt: skip


async def test_of_more_steps_than_a_plugin_remembers_the_last_ones_are_read() -> None:
    told = [dict(zip(STEP, [number, *range(1, 10)], strict=True)) for number in range(5000)]
    steps = await of(always(200, {"steps": told})).steps(0)
    assert (len(steps), steps[0].step, steps[-1].step) == (4096, 904, 4999)


async def test_a_plugin_that_does_not_time_its_steps_is_named() -> None:
    older = {"steps": [dict(zip(STEP[:8], range(8), strict=True))]}
    with pytest.raises(Unsupported, match="does not time its steps"):
        await of(always(200, older)).steps(0)


@pytest.mark.parametrize("k", [0, 3])
async def test_a_change_sends_what_was_asked_even_zero(k: int) -> None:
    bodies: list[Any] = []

    def answer(request: httpx.Request) -> httpx.Response:
        bodies.append(json.loads(request.content))
        return httpx.Response(
            200,
            json={
                "before": {"k": 5},
                "applied": {"k": k},
                "version": 1,
                "step": 9,
                "notices": ["n"],
            },
        )

    assert await of(answer).put(Change(k=k, reason="trying")) == AppliedChange(
        {"k": 5}, {"k": k}, 1, 9, ("n",)
    )
    assert bodies == [{"k": k, "reason": "trying"}]


async def test_a_plugin_older_than_origins_is_asked_without_one() -> None:
    asked: list[dict[str, Any]] = []

    def older(request: httpx.Request) -> httpx.Response:
        asked.append(json.loads(request.content))
        if "origin" in asked[-1]:
            return httpx.Response(400, json=refused("invalid", "unknown key 'origin'"))
        return httpx.Response(200, json={"before": {}, "applied": {}, "version": 1, "step": 1})

    engine = of(older)
    await engine.put(Change(k=1, origin="sweep"))
    assert asked == [{"k": 1, "origin": "sweep"}, {"k": 1}]


async def test_a_change_that_cannot_be_encoded_is_wrong_usage() -> None:
    with pytest.raises(UsageError, match="UTF-8 cannot encode"):
        await of(failing(AssertionError("asked"))).put(Change(k=3, reason="try \udcff"))


async def test_dummy_steps_are_asked_for_with_the_token() -> None:
    asked: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        return httpx.Response(
            200,
            json={"instance": "i", "batch": 4, "k": 0, "seconds": [0.01], "interrupted": True},
        )

    found = await of(answer).calibrate(StepShape(4, 0, 2))
    assert (found.seconds, found.interrupted, found.real_s) == ((0.01,), True, None)
    (request,) = asked
    assert (request.method, request.url.path) == ("POST", "/v1/specdeck/calibrate")
    assert request.headers[TOKEN_HEADER] == "secret"
    assert json.loads(request.content) == {"batch": 4, "k": 0, "steps": 2}


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (always(409, refused("busy")), Conflict),
        (always(501, refused("calibration")), Unsupported),
        (always(404, {"detail": "Not Found"}), Unsupported),
        (always(200, {"seconds": "soon"}), NotAnEngine),
    ],
)
async def test_dummy_steps_that_are_not_made_are_named(
    answer: Answer, kind: type[EngineError]
) -> None:
    with pytest.raises(kind):
        await of(answer).calibrate(StepShape(4, 0))


async def test_dummy_steps_without_a_token_or_kept_back_are_not_even_asked_for() -> None:
    with pytest.raises(Unauthorized, match="admin token"):
        await of(failing(AssertionError("asked")), token=None).calibrate(StepShape(4, 0))
    client = of(failing(AssertionError("asked")))

    def keep_back() -> None:
        raise Unsupported("attached to watch")

    client.guard = keep_back
    with pytest.raises(Unsupported, match="to watch"):
        await client.calibrate(StepShape(4, 0))


async def test_a_change_without_a_token_is_not_even_sent() -> None:
    with pytest.raises(Unauthorized, match="admin token") as refusal:
        await of(failing(AssertionError("asked")), token=None).put(Change(k=3))
    assert "SPECDECK_ADMIN_TOKEN" in refusal.value.line()


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (because(ConnectionRefusedError(111, "refused")), Unreachable, "refuses connections"),
        (because(socket.gaierror(-2, "unknown")), Unreachable, "host name"),
        (because(ssl.SSLError("WRONG_VERSION_NUMBER")), Unreachable, "does not speak TLS"),
        (because(refused_tls("TLSV1_ALERT_PROTOCOL_VERSION")), Unreachable, ": protocol version"),
        (because(refused_tls("UNSUPPORTED_PROTOCOL")), Unreachable, "agrees on no TLS"),
        (because(refused_tls("RECORD_LAYER_FAILURE")), Unreachable, "does not speak TLS"),
        (because(ssl.SSLCertVerificationError("self-signed")), Unreachable, "no trusted TLS"),
        (refused_tls("TLSV13_ALERT_CERTIFICATE_REQUIRED"), NoReply, ": certificate required"),
        (ssl.SSLError(1, "[SSL: X] bad record mac"), NoReply, "the TLS connection: bad record"),
        (because(OSError(113, "No route to host")), Unreachable, "cannot be reached"),
        (httpx.ConnectTimeout(""), Unreachable, "does not accept"),
        (httpx.ReadTimeout(""), NoReply, "no answer for 5 s"),
        (httpx.PoolTimeout(""), NoReply, "no answer"),
        (httpx.ReadError(""), NoReply, "closed the connection"),
        (httpx.RemoteProtocolError("Server disconnected"), NoReply, "closed the connection"),
        (httpx.RemoteProtocolError("illegal status line"), NotAnEngine, "does not speak HTTP"),
        (
            httpx.RemoteProtocolError("peer closed connection (incomplete chunked read)"),
            BadPage,
            "closed the connection",
        ),
        (httpx.DecodingError("bad gzip"), BadPage, "decompressed"),
    ],
)
async def test_a_silence_is_named(error: Exception, kind: type[EngineError], words: str) -> None:
    with pytest.raises(kind, match=words) as raised:
        await of(failing(error)).page()
    assert type(raised.value) is kind
    assert URL in raised.value.line()


@pytest.mark.parametrize(
    ("answer", "kind", "words"),
    [
        (
            always(401, {"error": "Unauthorized"}),
            Unauthorized,
            "requires an API key.*--api-key-env",
        ),
        (always(403, {}), Unauthorized, "requires an API key"),
        (always(404, {"detail": "Not Found"}), NotAnEngine, "no vLLM at this path"),
        (always(302), NotAnEngine, "answers 302"),
        (always(503), NoReply, "answers 503"),
        (always(500), EngineError, "answers 500"),
    ],
)
async def test_a_page_that_is_refused_is_named(
    answer: Answer, kind: type[EngineError], words: str
) -> None:
    with pytest.raises(kind) as raised:
        await of(answer).page()
    assert type(raised.value) is kind
    assert re.search(words, raised.value.line())


async def test_a_key_that_is_refused_is_not_asked_for_again() -> None:
    with pytest.raises(Unauthorized, match="the API key is not the one of"):
        await of(always(401, {"error": "Unauthorized"}), api_key="wrong").state()


@pytest.mark.parametrize("api_key", [None, "wrong"])
async def test_what_is_said_of_a_key_is_not_taken_for_one(api_key: str | None) -> None:
    with pytest.raises(Unauthorized) as raised:
        await of(always(401, {"error": "Unauthorized"}), api_key=api_key).state()
    assert Redactor().hide(raised.value.line()) == raised.value.line()


async def test_an_engine_without_the_plugin_says_how_to_get_it() -> None:
    with pytest.raises(Unsupported, match="without the specdeck plugin") as raised:
        await of(always(404, {"detail": "Not Found"})).state()
    assert "VLLM_PLUGINS=specdeck" in raised.value.line()


async def test_a_newer_protocol_is_not_guessed_at(state: State) -> None:
    for newer in (2, 2.0):
        with pytest.raises(Unsupported, match=f"speaks protocol {newer}, this one 1"):
            await of(always(200, {**state().as_json(), "protocol": newer})).state()


@pytest.mark.parametrize(
    ("status", "body", "kind", "line"),
    [
        (400, refused("invalid", "k wants a number"), UsageError, "k wants a number"),
        (409, refused("version", "at 4", "try again"), Conflict, "at 4: try again"),
        (501, refused("k_max", "above\nk_max=5", "restart"), Unsupported, "above k_max=5: restart"),
        (503, refused("stalled", "stalled"), Stalled, "stalled"),
        (
            401,
            refused("admin_token"),
            Unauthorized,
            "a change requires the engine's admin token, which is missing or wrong: "
            "set SPECDECK_ADMIN_TOKEN, or give --admin-token-file",
        ),
        (500, {"error": "x"}, EngineError, f"{URL} answers 500: see the engine's log"),
        # A gateway's own, in vLLM's form: what it says is none of the plugin's words.
        (503, foreign(503), NoReply, f"{URL} answers 503: see its log"),
        (503, foreign("503"), NoReply, f"{URL} answers 503: see its log"),
        (409, foreign(409), EngineError, f"{URL} answers 409: see the engine's log"),
        (400, foreign(400), NotAnEngine, f"{URL} answers 400: not a vLLM server: check the URL"),
    ],
)
async def test_a_refused_change_is_named(
    status: int, body: Any, kind: type[SpecdeckError], line: str
) -> None:
    with pytest.raises(kind) as raised:
        await of(always(status, body)).put(Change(k=3))
    assert type(raised.value) is kind
    assert raised.value.line() == line
    assert "secret" not in raised.value.line()


@pytest.mark.parametrize(
    "answer",
    [
        always(200, text="<html>"),
        always(200, []),
        always(200, {}),
        always(200, {"protocol": "1"}),
        always(200, {"protocol": 1}),
        always(200, {"protocol": 1, "drafted_per_position": 3, "accepted_per_position": ()}),
    ],
)
async def test_what_is_no_state_comes_from_no_engine(answer: Answer) -> None:
    with pytest.raises(NotAnEngine):
        await of(answer).state()


async def test_other_servers_are_told_from_vllm() -> None:
    for asked in (
        of(always(200, text="hello")).version(),
        of(always(200, {"name": "nginx"})).version(),
        of(always(200, {"data": "x"})).models(),
        of(always(200, {"steps": [1]})).steps(0),
        of(always(200, {"k": 1})).put(Change(k=1)),
    ):
        with pytest.raises(NotAnEngine):
            await asked


async def test_an_absurdly_long_answer_is_not_read() -> None:
    huge = httpx.Response(200, headers={"Content-Length": "900000000"}, content=nothing())
    with pytest.raises(NotAnEngine, match="900 MB"):
        await of(lambda _: huge).page()


async def nothing() -> AsyncIterator[bytes]:
    yield b""


async def test_a_request_of_a_client_that_is_closed_is_an_engine_error() -> None:
    engine = of(always(200, {}))
    await engine.close()
    for ask in (engine.state, engine.page, lambda: engine.put(Change(cancel=True))):
        with pytest.raises(EngineError, match="connections were closed here"):
            await ask()
