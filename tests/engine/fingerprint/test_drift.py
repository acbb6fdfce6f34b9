"""Following names: when facts are looked at, what is news, what a webhook and gauges get."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from specdeck.engine.control.protocol import EngineState
from specdeck.engine.errors import Unreachable, Unsupported, UsageError
from specdeck.engine.fingerprint.compare import compare
from specdeck.engine.fingerprint.drift import APART_S, POLICY_APART_S, Follower, Judge
from specdeck.engine.fingerprint.export import PAUSES_S, Gauges, Webhook, webhook
from specdeck.engine.fingerprint.fingerprint import Fingerprint, Progress
from specdeck.engine.fingerprint.pins import Pin
from specdeck.engine.metrics.reading import Reading
from specdeck.engine.metrics.sample import Sample

PIN = Path("prod.json")
SECRET = "https://hooks.example/T0/secret"


class Engine:
    """Says of itself what a test puts there."""

    def __init__(self, seen: Fingerprint, state: EngineState) -> None:
        self.seen, self.state, self.looks, self.away = seen, state, 0, False

    async def look(self) -> Fingerprint:
        self.looks += 1
        if self.away:
            raise Unreachable("gone")
        return self.seen

    def reading(self, t: float, **changes: Any) -> Reading:
        state = replace(self.state, fingerprint=self.seen.path)
        return replace(Reading(t, "http://e:1", Sample(t, t), state=state), **changes)


@pytest.fixture
def engine(fingerprints: Any, state: Callable[..., EngineState]) -> Engine:
    return Engine(fingerprints.seen(), state())


async def told(follower: Follower, reading: Reading) -> str | None:
    sight = await follower.sight(reading) if follower.due(reading) else None
    return sight.drift.line if sight is not None and sight.drift is not None else None


async def test_a_drift_is_told_once_and_so_is_its_end(engine: Engine, fingerprints: Any) -> None:
    follower = Follower(engine.look, Judge(engine.seen, PIN))
    assert await told(follower, engine.reading(0)) is None
    engine.seen = fingerprints.seen(live__k=5)
    line = await told(follower, engine.reading(10))
    assert line == (
        "drift from prod.json: knob changed: k 6 → 5; vLLM's own fingerprint did not move"
    )
    engine.seen = fingerprints.seen(live__k=4)
    assert await told(follower, engine.reading(20)) is None
    engine.seen = fingerprints.seen(live__k=4, runtime__driver="575.51.03")
    assert "runtime changed" in str(await told(follower, engine.reading(30)))
    engine.seen = fingerprints.seen()
    assert await told(follower, engine.reading(40)) == "as pinned again: prod.json"


async def test_facts_are_looked_at_once_a_name_and_not_too_often(
    engine: Engine, fingerprints: Any
) -> None:
    follower = Follower(engine.look)
    for t in range(3):
        await told(follower, engine.reading(t))
    assert engine.looks == 1
    engine.seen = fingerprints.seen(live__k=5)
    await told(follower, engine.reading(APART_S - 1))
    assert engine.looks == 1
    await told(follower, engine.reading(APART_S + 1))
    assert engine.looks == 2
    engine.state = replace(engine.state, policy="goodput")
    engine.seen = fingerprints.seen(live__k=4)
    await told(follower, engine.reading(POLICY_APART_S))
    assert engine.looks == 2
    await told(follower, engine.reading(2 * POLICY_APART_S))
    assert engine.looks == 3


async def test_a_look_that_fails_is_tried_again_later(engine: Engine) -> None:
    follower = Follower(engine.look, Judge(engine.seen, PIN))
    engine.away = True
    await told(follower, engine.reading(0))
    await told(follower, engine.reading(1))
    assert engine.looks == 1
    await told(follower, engine.reading(1 + APART_S))
    assert engine.looks == 2


async def test_an_engine_that_reads_its_weights_is_no_drift_yet(
    engine: Engine, fingerprints: Any
) -> None:
    pinned = engine.seen
    engine.seen = replace(fingerprints.seen(live__k=1), progress=Progress(finished=False))
    follower = Follower(engine.look, Judge(pinned, PIN))
    assert await told(follower, engine.reading(0)) is None
    engine.seen = pinned
    assert await told(follower, engine.reading(10)) is None
    assert engine.looks == 2


async def test_an_engine_that_comes_back_without_the_plugin_has_drifted(
    engine: Engine, fingerprints: Any
) -> None:
    from specdeck.engine.fingerprint.fingerprint import Unread

    follower = Follower(engine.look, Judge(engine.seen, PIN))
    await told(follower, engine.reading(0))
    engine.seen = fingerprints.seen(unread=(Unread("model", "only the specdeck plugin can tell"),))
    bare = engine.reading(9, state=None, control_error=Unsupported("no plugin"), restarted=True)
    assert "not every fact is known" in str(await told(follower, bare))
    assert await told(follower, replace(bare, t=30.0, restarted=False)) is None


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

    return Webhook(SECRET, transport=httpx.MockTransport(answer), sleep=sleep), bodies, pauses


@pytest.mark.parametrize(
    ("statuses", "reason"),
    [
        ((204,), None),
        ((503, 0, 200), None),
        ((500, 500, 500), "the webhook of this drift answered 500"),
        ((0, 0, 0), "the webhook of this drift had no answer (ConnectError)"),
        ((404,), "the webhook of this drift answered 404"),
    ],
)
async def test_a_webhook_is_tried_a_little_and_never_named(
    statuses: tuple[int, ...], reason: str | None
) -> None:
    hook, bodies, pauses = sent(*statuses)
    assert await hook.post({"event": "fingerprint.drift"}) == reason
    assert bodies == [{"event": "fingerprint.drift"}] * len(statuses)
    assert pauses == list(PAUSES_S[: len(statuses) - 1])
    assert "secret" not in repr(hook)


def test_a_webhook_comes_from_the_environment_first() -> None:
    assert webhook({}, url="https://plain.example") is not None
    with pytest.raises(UsageError, match="HOOK is not set"):
        webhook({}, variable="HOOK")
    with pytest.raises(UsageError) as caught:
        webhook({"SPECDECK_WEBHOOK": "hooks.example/secret"})
    assert "secret" not in caught.value.line()


def test_gauges_say_which_layer_differs(fingerprints: Any, tmp_path: Path) -> None:
    gauges = Gauges("http://e:1")
    gauges.show(compare(fingerprints.seen(), fingerprints.seen(live__k=5)), 7.0, news=True)
    gauges.write(tmp_path / "drift.prom")
    text = (tmp_path / "drift.prom").read_text()
    for line in (
        'specdeck_fingerprint_drift{engine="http://e:1",layer="build"} 0.0',
        'specdeck_fingerprint_drift{engine="http://e:1",layer="path"} 1.0',
        'specdeck_fingerprint_drifts_total{engine="http://e:1"} 1.0',
        'specdeck_fingerprint_verdict{engine="http://e:1",kind="knob"} 1.0',
        'specdeck_fingerprint_verified_timestamp_seconds{engine="http://e:1"} 7.0',
    ):
        assert line in text
    assert 'layer="behaviour"' not in text
    gauges.failed()
    gauges.write(tmp_path / "drift.prom")
    assert 'up{engine="http://e:1"} 0.0' in (tmp_path / "drift.prom").read_text()


async def test_another_pin_is_compared_with_at_the_next_reading(
    engine: Engine, fingerprints: Any
) -> None:
    follower = Follower(engine.look, Judge(engine.seen, PIN))
    engine.seen = fingerprints.seen(live__k=4)
    assert "k 6 → 4" in str(await told(follower, engine.reading(0)))
    assert follower.expect(Pin(PIN, fingerprints.seen())) is None  # written again, and the same
    assert not follower.due(engine.reading(1))
    news = follower.expect(Pin(PIN, engine.seen))
    assert news == "another pin is in prod.json: compared with it from now"
    sight = await follower.sight(engine.reading(2))
    assert sight is not None
    assert sight.comparison is not None
    assert sight.comparison.same
    engine.seen = fingerprints.seen(live__k=7)
    assert "k 4 → 7" in str(await told(follower, engine.reading(10)))


async def test_a_first_pin_is_compared_with_and_one_that_went_is_not(
    engine: Engine, fingerprints: Any
) -> None:
    follower = Follower(engine.look)
    assert await told(follower, engine.reading(0)) is None
    assert "a pin is in prod.json" in str(follower.expect(Pin(PIN, fingerprints.seen(live__k=4))))
    assert "k 4 → 6" in str(await told(follower, engine.reading(1)))
    assert follower.expect(Pin(PIN, None)) == "the pin prod.json is gone"
    sight = await follower.sight(engine.reading(2))
    assert sight is not None
    assert sight.comparison is None
