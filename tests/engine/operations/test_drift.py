"""Watching for drift: when facts are fetched, what is news, and what becomes of the pin."""

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.support.fingerprints import Fingerprints, NamedEngine

from specdeck.engine.errors import EngineError, Unreachable, Unsupported, UsageError
from specdeck.engine.fingerprint.fingerprint import STALLED_S, Fingerprint, Progress, Unread
from specdeck.engine.fingerprint.pins import APART_S as PIN_APART_S
from specdeck.engine.fingerprint.pins import PinFile, write_pin
from specdeck.engine.metrics.reading import Reading
from specdeck.engine.operations.drift import (
    APART_S,
    FAILING_S,
    POLICY_APART_S,
    Drift,
    DriftEvent,
    DriftWatcher,
    FactsRead,
    FactsUnavailable,
    MovedMeanwhile,
    NotComparable,
    PinMoved,
    PinUnread,
)
from specdeck.engine.protocol.messages import LastChange, Lease

URL = "http://127.0.0.1:8000"

OWN = "vLLM's own fingerprint did not move"
fingerprint = Fingerprints().seen


@pytest.fixture
def engine() -> NamedEngine:
    return NamedEngine(fingerprint())


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "prod.json"


def watch(engine: NamedEngine, place: Path, *, is_pinned: bool = True) -> DriftWatcher:
    """A watcher of the engine, pinned as it is now."""
    if is_pinned:
        write_pin(engine.found, place)
    return DriftWatcher(engine.fetch, PinFile(lambda: place))


def spoil(place: Path) -> None:
    place.write_text("{}")


def remove(place: Path) -> None:
    place.unlink()


async def follow(watcher: DriftWatcher, reading: Reading) -> list[DriftEvent]:
    if not watcher.is_due(reading):
        return []
    return [event async for event in watcher.follow(reading)]


async def lines(watcher: DriftWatcher, reading: Reading) -> list[str]:
    """What is to be said of a reading."""
    events = await follow(watcher, reading)
    return [event.line for event in events if not isinstance(event, FactsRead)]


async def test_a_drift_is_reported_once_and_so_is_its_end(engine: NamedEngine, place: Path) -> None:
    watcher = watch(engine, place)
    assert await lines(watcher, engine.reading(0)) == []
    engine.found = fingerprint(live__k=5)
    named, drifted = await follow(watcher, engine.reading(10))
    assert isinstance(named, FactsRead)
    assert isinstance(drifted, Drift)
    assert drifted.line == f"drift from prod.json: knob changed: k 6 → 5; {OWN}"
    engine.found = fingerprint(live__k=4)
    assert await lines(watcher, engine.reading(20)) == []
    engine.found = fingerprint(live__k=4, runtime__driver="575.51.03")
    assert "runtime changed" in str(await lines(watcher, engine.reading(30)))
    engine.found = fingerprint()
    returned = (await follow(watcher, engine.reading(40)))[-1]
    assert isinstance(returned, Drift)
    assert returned.comparison.same
    assert returned.line == "as pinned again: prod.json"
    assert returned.as_json()["event"] == "fingerprint.restored"
    assert returned.as_json()["kind"] == "drift"


async def test_a_clock_that_is_set_back_delays_no_drift(engine: NamedEngine, place: Path) -> None:
    watcher = watch(engine, place)
    assert await lines(watcher, engine.reading(9_000)) == []
    engine.found = fingerprint(live__k=5)
    assert len(await lines(watcher, engine.reading(10))) == 1


async def test_facts_are_fetched_once_a_name_and_not_too_often(
    engine: NamedEngine, place: Path
) -> None:
    watcher = watch(engine, place, is_pinned=False)
    for t in range(3):
        await follow(watcher, engine.reading(t))
    assert engine.fetches == 1
    engine.found = fingerprint(live__k=5)
    await follow(watcher, engine.reading(APART_S - 1))
    assert engine.fetches == 1
    await follow(watcher, engine.reading(APART_S + 1))
    assert engine.fetches == 2
    engine.state = replace(engine.state, policy="goodput")
    engine.found = fingerprint(live__k=4)
    await follow(watcher, engine.reading(POLICY_APART_S))
    assert engine.fetches == 2
    await follow(watcher, engine.reading(2 * POLICY_APART_S))
    assert engine.fetches == 3


async def test_a_fetch_that_fails_is_tried_again_later(engine: NamedEngine, place: Path) -> None:
    watcher = watch(engine, place)
    engine.is_away = True
    assert await follow(watcher, engine.reading(0)) == []
    await follow(watcher, engine.reading(1))
    assert engine.fetches == 1
    await follow(watcher, engine.reading(1 + APART_S))
    assert engine.fetches == 2


async def test_an_engine_that_reads_its_weights_is_no_drift_yet(
    engine: NamedEngine, place: Path
) -> None:
    watcher = watch(engine, place)
    engine.found = replace(fingerprint(live__k=1), progress=Progress(finished=False))
    (named,) = await follow(watcher, engine.reading(0))
    assert isinstance(named, FactsRead)
    assert named.comparison is None
    engine.found = fingerprint()
    assert await lines(watcher, engine.reading(10)) == []
    assert engine.fetches == 2


async def test_an_engine_that_comes_back_without_the_plugin_has_drifted(
    engine: NamedEngine, place: Path
) -> None:
    watcher = watch(engine, place)
    await follow(watcher, engine.reading(0))
    engine.found = fingerprint(unread=(Unread("model", "only the specdeck plugin can tell"),))
    bare = engine.reading(9, state=None, control_error=Unsupported("no plugin"), restarted=True)
    assert "not every fact is known" in str(await lines(watcher, bare))
    assert await lines(watcher, replace(bare, t=30.0, restarted=False)) == []


async def test_another_pin_is_compared_with_at_the_next_reading(
    engine: NamedEngine, place: Path
) -> None:
    watcher = watch(engine, place)
    engine.found = fingerprint(live__k=4)
    assert "k 6 → 4" in str(await lines(watcher, engine.reading(0)))
    write_pin(fingerprint(), place)  # written again, and the same
    assert await lines(watcher, engine.reading(PIN_APART_S)) == []
    write_pin(engine.found, place)
    moved, named = await follow(watcher, engine.reading(2 * PIN_APART_S))
    assert moved == PinMoved(place, "replaced")
    assert isinstance(named, FactsRead)
    assert named.comparison is not None
    assert named.comparison.same
    engine.found = fingerprint(live__k=7)
    assert "k 4 → 7" in str(await lines(watcher, engine.reading(20)))


async def test_a_first_pin_is_compared_with_and_one_that_went_is_not(
    engine: NamedEngine, place: Path
) -> None:
    watcher = watch(engine, place, is_pinned=False)
    assert await lines(watcher, engine.reading(0)) == []
    write_pin(fingerprint(live__k=4), place)
    found, drift = await lines(watcher, engine.reading(10))
    assert found == "a pin is in prod.json: compared with it from now"
    assert "k 4 → 6" in drift
    remove(place)
    gone, named = await follow(watcher, engine.reading(20))
    assert gone == PinMoved(place, "gone")
    assert named == FactsRead(engine.found)


async def test_a_pin_that_cannot_be_read_leaves_the_one_before(
    engine: NamedEngine, place: Path
) -> None:
    watcher = watch(engine, place)
    await follow(watcher, engine.reading(0))
    spoil(place)
    (unread,) = await follow(watcher, engine.reading(10))
    assert isinstance(unread, PinUnread)
    assert "is not a pin" in unread.line
    assert unread.line.endswith("; compared with what it held before")
    engine.found = fingerprint(live__k=5)
    assert "k 6 → 5" in str(await lines(watcher, engine.reading(20)))


async def test_a_pin_that_was_never_one_is_compared_with_nothing(
    engine: NamedEngine, place: Path
) -> None:
    spoil(place)
    watcher = watch(engine, place, is_pinned=False)
    unread, named = await follow(watcher, engine.reading(0))
    assert isinstance(unread, PinUnread)
    assert not unread.is_compared
    assert named == FactsRead(engine.found)
    with pytest.raises(UsageError):
        await watch(engine, place, is_pinned=False).open()


async def test_an_engine_without_a_pin_is_asked_for_nothing_where_names_are_not_shown(
    engine: NamedEngine, place: Path
) -> None:
    watcher = DriftWatcher(engine.fetch, PinFile(lambda: place), names_unpinned=False)
    assert await follow(watcher, engine.reading(0)) == []
    assert engine.fetches == 0
    write_pin(engine.found, place)
    assert await lines(watcher, engine.reading(10)) == [PinMoved(place, "found").line]
    assert engine.fetches == 1


async def test_an_engine_of_another_name_at_the_address_is_a_drift_and_takes_no_pin_away(
    engine: NamedEngine, place: Path
) -> None:
    now = place
    write_pin(engine.found, place)
    watcher = DriftWatcher(engine.fetch, PinFile(lambda: now))
    await watcher.open()
    now = place.with_name("other.json")
    engine.found = fingerprint(live__k=5)
    assert "drift from prod.json" in str(await lines(watcher, engine.reading(10)))


async def test_a_pin_that_was_written_here_is_no_news(engine: NamedEngine, place: Path) -> None:
    watcher = watch(engine, place, is_pinned=False)
    await follow(watcher, engine.reading(0))
    write_pin(engine.found, place)
    (named,) = watcher.adopt(engine.found, place, 1.0)
    assert isinstance(named, FactsRead)
    assert watcher.pinned == engine.found
    assert await follow(watcher, engine.reading(10)) == []


async def test_a_verification_fetches_whatever_was_known(engine: NamedEngine, place: Path) -> None:
    watcher = watch(engine, place)
    await watcher.open()
    for k, kinds in ((6, [FactsRead]), (6, [FactsRead]), (5, [FactsRead, Drift]), (5, [FactsRead])):
        engine.found = fingerprint(live__k=k)
        assert [type(event) async for event in watcher.verify(1.0, URL)] == kinds
    engine.is_away = True
    (unanswered,) = [event async for event in watcher.verify(1.0, URL)]
    assert isinstance(unanswered, FactsUnavailable)
    assert isinstance(unanswered.error, Unreachable)
    assert engine.fetches == 5


async def test_a_fact_that_differs_in_another_way_is_news_and_a_k_is_not(
    engine: NamedEngine, place: Path
) -> None:
    watcher = watch(engine, place)
    await watcher.open()
    drifts = []
    for changed in (
        {"runtime__driver": "580.1"}, {"runtime__driver": "580.1"}, {"runtime__driver": "590.2"},
        {"live__k": 5}, {"live__k": 4}, {"live__k": 4, "live__mode": "target-only"},
    ):  # fmt: skip
        engine.found = fingerprint(**changed)
        events = [event async for event in watcher.verify(1.0, URL)]
        drifts.append(any(isinstance(event, Drift) for event in events))
    assert drifts == [True, False, True, True, False, True]


async def test_a_drift_that_came_twice_is_over_once_it_stayed_away(
    engine: NamedEngine, place: Path
) -> None:
    """Nothing moves then, and nothing would have facts fetched."""
    watcher = watch(engine, place)

    async def tell(seconds: range, k: int) -> list[tuple[int, bool]]:
        engine.found = fingerprint(live__k=k)
        return [
            (t, event.comparison.same)
            for t in seconds
            for event in await follow(watcher, engine.reading(t))
            if isinstance(event, Drift)
        ]

    assert await tell(range(10), 6) == []
    assert await tell(range(10, 20), 5) == [(10, False)]
    assert await tell(range(20, 30), 6) == [(20, True)]
    assert await tell(range(30, 40), 5) == [(30, False)]
    fetches = engine.fetches
    assert await tell(range(40, 400), 6) == [(100, True)]
    assert engine.fetches == fetches + 2
    assert await tell(range(400, 410), 5) == [(400, False)]


async def test_a_drift_that_comes_and_goes_between_two_engines_is_told_of_each_once(
    engine: NamedEngine, place: Path
) -> None:
    watcher = watch(engine, place)
    await watcher.open()

    async def count(*drivers: str) -> int:
        found = 0
        for driver in drivers:
            engine.found = fingerprint(runtime__driver=driver)
            events = [event async for event in watcher.verify(1.0, URL)]
            found += any(isinstance(event, Drift) for event in events)
        return found

    assert await count(*["580.1", "590.2"] * 10) == 2
    assert await count("570.86.15") == 1  # over
    assert await count("590.2", "580.1", "590.2") == 2
    assert await count(*map(str, range(100))) == 18


async def test_a_drift_of_one_of_two_engines_is_told_a_few_times_and_not_at_each_look(
    engine: NamedEngine, place: Path
) -> None:
    watcher = watch(engine, place)
    await watcher.open()

    async def look(t: float, driver: str) -> list[bool]:
        engine.found = fingerprint(runtime__driver=driver)
        events = [event async for event in watcher.verify(t, URL)]
        return [event.comparison.same for event in events if isinstance(event, Drift)]

    told = [(t, now) for t in range(0, 3600, 5)
            for now in await look(t, "580.1" if t % 10 else "570.86.15")]  # fmt: skip
    assert told == [(5, False), (10, True), (15, False)]
    assert [t for t in range(3600, 3700, 5) if await look(t, "570.86.15")] == [3660]
    assert await look(5000.0, "580.1") == [False]  # long after: told, and so is its end
    assert await look(5005.0, "570.86.15") == [True]


async def test_a_verification_says_that_facts_do_not_come_whatever_the_error_is(
    engine: NamedEngine, place: Path
) -> None:
    errors = itertools.cycle((Unreachable("no answer"), Unsupported("no facts")))

    async def fetch(_: Fingerprint | None) -> Fingerprint:
        raise next(errors)

    write_pin(engine.found, place)
    watcher = DriftWatcher(fetch, PinFile(lambda: place))
    await watcher.open()
    kinds = [type(one) for t in range(0, 1000, 30) async for one in watcher.verify(float(t), URL)]
    assert kinds.count(NotComparable) == 1


async def test_a_verification_says_that_facts_stay_unfinished(
    engine: NamedEngine, place: Path
) -> None:
    watcher = watch(engine, place)
    await watcher.open()
    engine.found = replace(engine.found, progress=Progress(finished=False))
    kinds = [type(one) for t in range(0, 1000, 30) async for one in watcher.verify(float(t), URL)]
    assert kinds.count(NotComparable) == 1
    assert kinds.count(FactsRead) == 34


async def test_a_verification_says_once_that_nothing_can_be_compared_any_more(
    engine: NamedEngine, place: Path
) -> None:
    watcher = watch(engine, place)
    await watcher.open()
    kinds: list[type] = []
    for t in range(0, 1000, 30):
        engine.is_away = 300 <= t < 600 or t >= 900
        kinds += [type(event) async for event in watcher.verify(float(t), URL)]
    assert kinds.count(NotComparable) == 2
    assert kinds.count(FactsUnavailable) == 14


SWEPT = LastChange(1.0, "ann", "sweep", {"k": 6}, {"k": 3}, "sweep")
TRIED = replace(SWEPT, origin="trial")
LEASE = Lease(seconds_left=9.0, k=6, mode="speculate")


@pytest.mark.parametrize(
    ("moving", "whose"),
    [
        ({"trial": "changed"}, "a trial"),
        ({"trial": "baseline", "last_change": TRIED}, "ann's trial"),
        ({"lease": LEASE, "last_change": SWEPT}, "ann's sweep"),
    ],
)
async def test_moves_that_are_taken_back_are_said_once_and_are_no_drift(
    engine: NamedEngine, place: Path, moving: dict[str, Any], whose: str
) -> None:
    watcher, state = watch(engine, place), engine.state
    await lines(watcher, engine.reading(0))
    engine.state = replace(state, **moving)
    told = []
    for t, k in ((10, 3), (20, 6), (90, 3)):
        engine.found = fingerprint(live__k=k)
        told += await lines(watcher, engine.reading(t))
    assert told == [f"{whose} moves k: compared with prod.json once it is over"]
    engine.state = state
    assert "k 6 → 3" in str(await lines(watcher, engine.reading(100)))


async def test_a_sweep_that_gives_the_engine_back_raises_nothing(
    engine: NamedEngine, place: Path
) -> None:
    watcher, state = watch(engine, place), engine.state
    # Its first look falls into the sweep: what it finds is not compared.
    engine.state, engine.found = (
        replace(state, lease=LEASE, last_change=SWEPT),
        fingerprint(live__k=1),
    )
    (said, named) = await follow(watcher, engine.reading(0))
    assert isinstance(said, MovedMeanwhile)
    assert isinstance(named, FactsRead)
    assert named.comparison is None
    for t, k in ((10, 2), (20, 5)):
        engine.found = fingerprint(live__k=k)
        assert await lines(watcher, engine.reading(t)) == []
    engine.state, engine.found = replace(state, last_change=SWEPT), fingerprint()
    (named,) = await follow(watcher, engine.reading(30))
    assert isinstance(named, FactsRead)
    assert named.comparison is not None
    assert named.comparison.same


async def test_a_sweep_hides_no_drift_from_who_asks(engine: NamedEngine, place: Path) -> None:
    watcher = watch(engine, place)
    engine.found = fingerprint(live__k=1)
    engine.state = replace(engine.state, lease=LEASE, last_change=SWEPT)
    drifted = [event async for event in watcher.verify(1.0, URL)][-1]
    assert isinstance(drifted, Drift)


async def test_a_lease_of_an_operator_is_a_drift(engine: NamedEngine, place: Path) -> None:
    watcher, state = watch(engine, place), engine.state
    await lines(watcher, engine.reading(0))
    lent = replace(SWEPT, origin="operator")
    engine.state, engine.found = (
        replace(state, lease=LEASE, last_change=lent),
        fingerprint(live__k=3),
    )
    assert "k 6 → 3" in str(await lines(watcher, engine.reading(10)))


async def test_an_engine_that_cannot_be_compared_is_told_once_until_it_could_be(
    engine: NamedEngine, place: Path
) -> None:
    watcher = watch(engine, place)
    assert await lines(watcher, engine.reading(0)) == []
    engine.is_away, engine.found = True, fingerprint(live__k=5)
    told: list[DriftEvent] = []
    for t in range(10, 10 + 4 * int(FAILING_S), int(APART_S)):
        told += await follow(watcher, engine.reading(t))
    (said,) = told
    assert isinstance(said, NotComparable)
    assert said.t == 10 + FAILING_S
    assert said.line == "not as pinned by name, and cannot be compared with prod.json: no answer"
    assert said.as_json()["event"] == "fingerprint.incomparable"
    engine.is_away = False
    assert "k 6 → 5" in str(await lines(watcher, engine.reading(100)))
    engine.is_away, engine.found = True, fingerprint(live__k=4)
    again = [await lines(watcher, engine.reading(200 + t)) for t in (0, FAILING_S, 2 * FAILING_S)]
    assert [len(one) for one in again] == [0, 1, 0]


async def test_facts_that_fail_under_the_pinned_name_are_not_told(
    engine: NamedEngine, place: Path
) -> None:
    watcher = watch(engine, place)
    engine.is_away = True
    for t in range(0, 100, 10):
        assert await lines(watcher, engine.reading(t)) == []


async def test_facts_that_get_no_further_cannot_be_compared(
    engine: NamedEngine, place: Path
) -> None:
    watcher, other = watch(engine, place), fingerprint(live__k=5)
    told = []
    for t in range(0, 300, 10):  # weights that are read, and then no more
        progress = Progress(False, min(t, 150) * 10**9, 300 * 10**9, "model.safetensors")
        engine.found = replace(other, progress=progress)
        told += [(t, line) for line in await lines(watcher, engine.reading(t))]
    ((t, line),) = told
    assert t == 150 + STALLED_S
    assert line.endswith("prod.json: reading model.safetensors, 150.0 of 300.0 GB")


def nameless(engine: NamedEngine, t: float) -> Reading:
    """What a scrape brings where the plugin answers 500 and the counters are there."""
    return engine.reading(t, state=None, control_error=EngineError("it answers 500"))


async def test_an_engine_whose_plugin_fails_cannot_be_compared(
    engine: NamedEngine, place: Path
) -> None:
    watcher = watch(engine, place)
    assert await lines(watcher, engine.reading(0)) == []
    engine.is_away = True
    told = [(t, one) for t in range(10, 200) for one in await lines(watcher, nameless(engine, t))]
    assert told == [(10 + STALLED_S, "cannot be compared with prod.json: no answer")]
    engine.is_away = False
    assert await lines(watcher, engine.reading(200)) == []
    engine.is_away = True
    told = [(t, one) for t in range(300, 500) for one in await lines(watcher, nameless(engine, t))]
    assert [t for t, _ in told] == [300 + STALLED_S]


async def test_a_plugin_that_fails_from_the_first_look_is_told_as_well(
    engine: NamedEngine, place: Path
) -> None:
    watcher = watch(engine, place)
    await watcher.open()
    engine.is_away = True
    told = [one for t in range(100) for one in await lines(watcher, nameless(engine, t))]
    assert told == ["cannot be compared with prod.json: no answer"]


async def test_a_plugin_that_fails_now_and_then_is_not_told(
    engine: NamedEngine, place: Path
) -> None:
    watcher = watch(engine, place)
    for t in range(0, 1000, 5):
        engine.is_away = t % 50 > 0
        reading = nameless(engine, t) if engine.is_away else engine.reading(t)
        assert await lines(watcher, reading) == []


async def test_facts_are_compared_where_the_state_alone_fails(
    engine: NamedEngine, place: Path
) -> None:
    watcher = watch(engine, place)
    await lines(watcher, engine.reading(0))
    engine.found = fingerprint(live__k=5)
    told = [one for t in range(10, 200) for one in await lines(watcher, nameless(engine, t))]
    assert told == [f"drift from prod.json: knob changed: k 6 → 5; {OWN}"]
    assert engine.fetches < 6


async def test_a_plugin_that_fails_without_a_pin_is_asked_nothing(
    engine: NamedEngine, place: Path
) -> None:
    watcher = watch(engine, place, is_pinned=False)
    for t in range(100):
        assert await lines(watcher, nameless(engine, t)) == []
    assert engine.fetches == 0


async def test_ranks_that_differ_are_a_drift_for_as_long(engine: NamedEngine, place: Path) -> None:
    watcher = watch(engine, place)
    assert await lines(watcher, engine.reading(0)) == []
    engine.found = fingerprint(unread=(Unread("live", "data-parallel rank 1 differs from rank 0"),))

    def unlike(t: float) -> Reading:
        found = engine.reading(t)
        assert found.state is not None
        return replace(found, state=replace(found.state, fingerprint=None))

    told = [one for t in range(10, 200) for one in await lines(watcher, unlike(t))]
    assert len(told) == 1
    assert "live: data-parallel rank 1 differs from rank 0" in told[0]
    assert engine.fetches < 6
    engine.found = fingerprint()
    assert await lines(watcher, engine.reading(300)) == ["as pinned again: prod.json"]
