"""The webhook: tried a little, never named, from the environment first."""

import json
import ssl
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.support.escapes import PLANTED
from tests.support.lying_engine import Lie, LyingEngine, drip, endless, hang, head

from specdeck.engine.client.secret import Secret, hide_secrets
from specdeck.engine.client.webhook import PAUSES_S, Webhook, configured_webhook
from specdeck.engine.errors import UsageError

SECRET = "https://hooks.example/T0/secret"


def sent(*statuses: int) -> tuple[Webhook, list[Any], list[float]]:
    """A webhook that answers with these, one after the other; what it got; the pauses."""
    bodies: list[Any] = []
    pauses: list[float] = []
    left = list(statuses)

    def answer(request: httpx.Request) -> httpx.Response:
        bodies.append(json.loads(request.content))
        status = left.pop(0)
        if not status:
            raise httpx.ConnectError(f"cannot connect to {SECRET}")
        return httpx.Response(status)

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    return (
        Webhook(Secret(SECRET), transport=httpx.MockTransport(answer), sleep=sleep),
        bodies,
        pauses,
    )


@pytest.mark.parametrize(
    ("statuses", "reason"),
    [
        ((204,), None),
        ((503, 0, 200), None),
        ((500, 500, 500), "the webhook of this drift answered 500"),
        ((0, 0, 0), "the webhook of this drift did not answer (ConnectError)"),
        ((404,), "the webhook of this drift answered 404"),
    ],
)
async def test_a_webhook_is_tried_a_little_and_never_named(
    statuses: tuple[int, ...], reason: str | None
) -> None:
    hook, bodies, pauses = sent(*statuses)
    assert await hook.post({"kind": "drift"}) == reason
    assert bodies == [{"kind": "drift"}] * len(statuses)
    assert pauses == list(PAUSES_S[: len(statuses) - 1])
    assert "secret" not in repr(hook)


async def test_tls_that_breaks_is_a_reason() -> None:
    def answer(_: httpx.Request) -> httpx.Response:
        raise ssl.SSLError(1, f"[SSL: X] bad record mac at {SECRET}")

    async def sleep(_: float) -> None:
        pass

    hook = Webhook(Secret(SECRET), transport=httpx.MockTransport(answer), sleep=sleep)
    reason = await hook.post({"kind": "drift"})
    assert reason == "the webhook of this drift did not answer (SSLError)"


async def test_what_is_posted_is_ascii_whatever_an_engine_said() -> None:
    hook, bodies, _ = sent(204)
    assert await hook.post({"kind": "drift", "line": PLANTED}) is None
    assert bodies == [{"kind": "drift", "line": PLANTED}]


@pytest.mark.parametrize("lie", [drip(head(), every_s=0.05), hang(), endless(b"HTTP/1.1 ", b"x")])
async def test_a_try_has_a_time_in_all(lie: Lie) -> None:
    pauses = 0

    async def sleep(seconds: float) -> None:
        nonlocal pauses
        pauses += 1

    with LyingEngine({"*": lie}) as server:
        hook = Webhook(Secret(f"{server.url}/hook"), sleep=sleep, try_s=0.2)
        assert "did not answer" in str(await hook.post({"kind": "drift"}))
        assert pauses == 2  # between three tries
        assert server.asked  # of a busy machine's tries not all come to be heard


@pytest.mark.parametrize("start", [head(), head(("Content-Encoding", "gzip"))])
async def test_what_a_webhook_answers_is_not_read(start: bytes) -> None:
    with LyingEngine({"*": endless(start, b"x" * 10_000)}) as server:
        assert await Webhook(Secret(f"{server.url}/hook")).post({"kind": "drift"}) is None
        assert server.sent < 10_000_000


def test_a_webhook_comes_from_the_environment_first() -> None:
    assert configured_webhook({}, url="https://plain.example") is not None
    with pytest.raises(UsageError, match="HOOK is not set"):
        configured_webhook({}, variable="HOOK")
    with pytest.raises(UsageError) as caught:
        configured_webhook({"SPECDECK_WEBHOOK": "hooks.example/secret"})
    assert "secret" not in caught.value.line()


@pytest.mark.parametrize("url", ["http://127.0.0.1:9/secret\udcff", "https://hooks/secret\x1b"])
def test_an_address_that_no_request_can_carry_is_wrong_usage(url: str) -> None:
    with pytest.raises(UsageError, match="the webhook in HOOK is not printable ASCII") as caught:
        configured_webhook({"HOOK": url}, variable="HOOK")
    assert "hooks" not in caught.value.line()


def test_an_address_in_place_of_a_variable_is_not_repeated() -> None:
    with pytest.raises(UsageError, match="name of an environment variable") as caught:
        configured_webhook({}, variable="https://hooks.example/secret")
    assert "hooks" not in caught.value.line()


def test_the_address_shows_itself_to_nobody() -> None:
    hook = configured_webhook({"SPECDECK_WEBHOOK": "https://hooks.example/T1/hush-hush"})
    assert "hush" not in f"{hook!r} {vars(hook)}"
    assert hide_secrets("POST https://hooks.example/T1/hush-hush failed") == "POST … failed"


async def test_a_host_that_nothing_encodes_is_a_reason() -> None:
    reason = await Webhook(Secret("http://xn--/secret")).post({"kind": "drift"})
    assert reason is not None
    assert reason.startswith("the webhook of this drift cannot be asked (")


@pytest.mark.parametrize(
    ("proxy", "error"),
    [
        ("socks5://127.0.0.1:9", "ImportError"),
        ("http://a:b:c", "InvalidURL"),
        ("http://127.0.0.1:99999", "OverflowError"),
        ("ftp://127.0.0.1", "ValueError"),
    ],
)
async def test_a_proxy_that_cannot_be_used_is_a_reason(
    proxy: str, error: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "socksio", None)
    monkeypatch.setenv("ALL_PROXY", proxy)
    reason = await Webhook(Secret(SECRET)).post({"kind": "alert"})
    assert reason == f"the webhook of this alert cannot be asked ({error})"


@pytest.mark.parametrize("port", ["0", "65536", "99999999", "-1", "x"])
def test_a_port_that_is_none_is_wrong_usage(port: str) -> None:
    with pytest.raises(UsageError, match="is not a URL") as caught:
        configured_webhook({"SPECDECK_WEBHOOK": f"https://hooks.example:{port}/secret"})
    assert "secret" not in caught.value.line()


async def test_certificates_that_cannot_be_read_are_a_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "gone.pem"))
    reason = await Webhook(Secret(SECRET)).post({"kind": "alert"})
    assert reason == "the webhook of this alert cannot be asked (FileNotFoundError)"
