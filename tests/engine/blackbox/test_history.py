"""What is read back of a black box: the same windows as live, bit for bit."""

from __future__ import annotations

import asyncio
import math
import sqlite3
import tempfile
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.readings import START, STATE, URL
from tests.support.recorded_engine import (
    BOUNDS,
    LiveEngine,
    busy_readings,
    busy_sample,
    look_at,
    record,
    same_reading,
)

from specdeck.engine.blackbox.box import open_box
from specdeck.engine.blackbox.event import BoxEvent
from specdeck.engine.blackbox.folder import box_path, list_boxes, open_history
from specdeck.engine.blackbox.history import History
from specdeck.engine.errors import ConfigError, SpecdeckError, Unauthorized, UsageError
from specdeck.engine.metrics.reading import Gpu, Reading
from specdeck.engine.metrics.sample import Histogram, Sample
from specdeck.engine.metrics.window import Window, between
from specdeck.engine.protocol.messages import LastChange, Lease

counts = st.one_of(
    st.integers(0, 10**6).map(float),
    st.floats(0, 1e18, allow_subnormal=True),
    st.sampled_from([0.0, 0.1, 5e-324, 2.0**53 + 2, 1e300]),
)


@st.composite
def happenings(draw: st.DrawFn) -> list[Any]:
    """What happens from one look to the next."""
    rises = st.tuples(st.just("rise"), st.lists(counts, min_size=20, max_size=20))
    others = st.sampled_from(["down", "restart", "new recorder", "killed", "silent plugin"])
    lost = st.sampled_from(
        ["generated", "ttft", "accepted_per_position", "process_start", "drafts"]
    )
    step = st.one_of(rises, rises, rises, others.map(lambda one: (one, None)),
                     lost.map(lambda name: ("missing", name)))  # fmt: skip
    return draw(st.lists(step, min_size=1, max_size=40))


class Counters:
    """The counters of an engine through several lives."""

    def __init__(self) -> None:
        self.life = 0
        self.values = [0.0] * 20

    def restart(self) -> None:
        self.life += 1
        self.values = [0.0] * 20

    def rise(self, by: list[float]) -> None:
        self.values = [value + more for value, more in zip(self.values, by, strict=True)]

    def sample(self, t: float) -> Sample:
        v, k = self.values, 3 + self.life % 2
        return Sample(
            t=t, at=t - START + 0.1, model="demo", process_start=START - 10 + 5 * self.life,
            drafts=v[0], drafted=v[1], accepted=v[2], generated=v[3], prompt=v[4],
            accepted_per_position=tuple(v[5 : 5 + k]), drafted_per_position=tuple(v[9 : 9 + k]),
            preemptions=v[13], running=v[14], waiting=-0.0, kv_cache_usage=1 / 3,
            ttft=Histogram(BOUNDS, (v[15], v[15] + v[16], v[15] + v[16], v[15] + v[16])),
        )  # fmt: skip


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(happenings(), st.integers(1, 7))
def test_windows_from_disk_are_the_live_ones(steps: list[Any], rows: int) -> None:
    asyncio.run(compare(steps, rows))


async def compare(steps: list[Any], rows: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "engine.db"
        live, counters, seen = LiveEngine(), Counters(), []
        box = record(path, [], rows=rows)
        for number, (what, value) in enumerate(steps):
            t = START + number * 1.37
            counters.rise(value if what == "rise" else [1.0] * 20)
            if what == "restart":
                counters.restart()
            if what in ("new recorder", "killed"):
                live = LiveEngine()
                if what == "killed":
                    box._db.close()
                box.close()
                box = record(path, [], rows=rows)
            sample = None if what == "down" else counters.sample(t)
            if sample is not None and what == "missing":
                lost: dict[str, Any] = {value: None}
                sample = replace(sample, **lost)
            state = replace(STATE, instance=f"life {counters.life}", step=number)
            seen.append(await live.look(t, sample, None if what == "silent plugin" else state))
            box.append(seen[-1])
        with closing(History(path)) as history:
            found = list(history.readings(-math.inf, math.inf))
            assert len(found) == len(seen)
            for mine, theirs in zip(found, seen, strict=True):
                assert same_reading(mine, theirs)
                at = history.reading_at(theirs.t)
                assert at is not None
                assert same_reading(at, theirs)
            for one, other in zip(seen, seen[len(seen) // 2 :], strict=False):
                assert history.window(one.t, other.t) == live_window(seen, one.t, other.t)
            assert history.damage is None
        box.close()


def live_window(seen: list[Reading], start: float, end: float) -> Window | None:
    """The window between two moments, from the readings in memory."""
    until = [
        [i for i, one in enumerate(seen) if one.sample is not None and one.t <= t]
        for t in (start, end)
    ]
    if not all(until):
        return None
    first, last = until[0][-1], until[1][-1]
    older, newer = seen[first].sample, seen[last].sample
    assert older is not None
    assert newer is not None
    names = [one.state.instance for one in (seen[first], seen[last]) if one.state is not None]
    restarted = any(one.restarted for one in seen[first + 1 : last + 1])
    if first == last or restarted or len(set(names)) > 1:
        return None
    return between(older, newer)


def test_a_clock_that_is_set_back_loses_nothing(tmp_path: Path) -> None:
    given = busy_readings(60)
    # From the fortieth on the wall clock is 25 seconds behind what it was.
    given[40:] = [replace(one, t=one.t - 25) for one in given[40:]]
    with closing(record(tmp_path / "a.db", given)), closing(History(tmp_path / "a.db")) as history:
        found = list(history.readings(START, START + 99))
        assert [one.sample for one in found] == [one.sample for one in given]
        at = history.reading_at(START + 16.5)
        assert at is not None
        assert at.sample == given[41].sample
        assert (history.first, history.last) == (START, START + 39)


def test_a_reading_comes_back_whole(tmp_path: Path) -> None:
    state = replace(
        STATE,
        lease=Lease(12.5, 3, "speculate"),
        last_change=LastChange(
            START, "ann", None, {"k": 5, "goodput.margin": 0.03}, {"k": 3, "x": True}, "operator"
        ),
        policy_reason="goodput: k 3 → 5",
    )
    given = [
        replace(one, state=state, gpus=(Gpu(0, "H100", 0.5, 1 << 36, None, 300.25),))
        for one in busy_readings(3)
    ]
    given[1] = Reading(given[1].t, URL, error=Unauthorized("no key", remedy="give one"),
                       control_error=Unauthorized("no", remedy=None))  # fmt: skip
    with closing(record(tmp_path / "a.db", given)), closing(History(tmp_path / "a.db")) as history:
        found = list(history.readings(START, START + 2))
        # The live window of the third began at a reading that is not in the file.
        given[2] = replace(given[2], window=None)
        assert all(map(same_reading, found, given))
        assert (history.url, history.name) == (URL, "demo")
        assert (history.first, history.last) == (START, START + 2)


def test_the_window_of_any_stretch(tmp_path: Path) -> None:
    with (
        closing(record(tmp_path / "a.db", busy_readings(100))),
        closing(History(tmp_path / "a.db")) as history,
    ):
        window = history.window(START + 7, START + 63.5)
        assert window is not None
        assert (window.seconds, window.generated) == (56.0, 2240.0)
        assert history.window(START + 7, START + 7.5) is None
        assert history.window(START - 7, START + 7) is None


def test_no_window_lies_across_a_restart(tmp_path: Path) -> None:
    # Nothing but the plugin's word says that the second life is another one.
    second = replace(STATE, instance="b")
    words = [STATE] * 20 + [second] * 20 + [None] * 10
    lives = look_at((busy_sample(n, start=None), word) for n, word in enumerate(words))
    with closing(record(tmp_path / "a.db", lives)), closing(History(tmp_path / "a.db")) as history:
        assert history.window(START + 1, START + 19) is not None
        assert history.window(START + 21, START + 45) is not None
        assert history.window(START + 1, START + 21) is None
        assert history.window(START + 1, START + 45) is None


def test_a_chart_keeps_its_spikes(tmp_path: Path) -> None:
    generated, looks = 0.0, []
    for n in range(4_000):
        generated += 5_000.0 if n == 1_234 else 0.0 if n == 2_345 else 40.0
        sample = busy_sample(n, generated=generated) if n % 1_000 < 900 else None
        looks.append((sample, STATE))
    with (
        closing(record(tmp_path / "a.db", look_at(looks), rows=300)),
        closing(History(tmp_path / "a.db")) as history,
    ):
        for columns in (10, 400):  # by minutes, and by readings
            found = history.overview(START, START + 4_000, columns)
            assert len(found) == columns
            assert max(one.tokens.high for one in found if one.tokens) == 5_000.0
            assert min(one.tokens.low for one in found if one.tokens) == 0.0
            mean = [one.acceptance.mean for one in found if one.acceptance]
            assert mean == pytest.approx([0.6] * len(mean))
        assert found[95].tokens is None
        assert (found[5].start, found[5].end) == (START + 50, START + 60)


def test_events_in_their_order(tmp_path: Path) -> None:
    events = [
        BoxEvent(START + 5, "change", "k 5 → 3", "good", "k3", "operator", "ann", "tried"),
        BoxEvent(START + 7, "change", "", label="k3"),
        BoxEvent(START + 9, "down", "no answer", "bad", "down"),
    ]
    with (
        closing(record(tmp_path / "a.db", busy_readings(3))) as box,
        closing(History(tmp_path / "a.db")) as history,
    ):
        for event in events:
            box.add_event(event)
        assert history.events(START, START + 99) == tuple(events)
        assert history.events(START, START + 99, limit=1) == (events[2],)
        assert history.next_event(START + 5) == events[2]
        assert history.previous_event(START + 9) == events[0]
        assert history.next_event(START + 9) is None


def test_one_process_writes_and_another_takes_over(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    first = record(path, busy_readings(5))
    assert open_box(path, URL, name="demo") is None
    first.close()
    second = open_box(path, URL, name="demo")
    assert second is not None
    second.close()


def test_the_past_is_read_while_it_is_written(tmp_path: Path) -> None:
    path, given = tmp_path / "a.db", busy_readings(40)
    box = record(path, given[:5])
    with closing(History(path)) as history:
        for number, one in enumerate(given[5:], 6):
            box.append(one)
            assert len(list(history.readings(START, START + 99))) == number
            assert history.last == one.t
    box.close()


@pytest.mark.parametrize("damage", ["newer", "other", "text", "empty", "view", "folder", "missing"])
def test_what_is_no_black_box_is_refused_in_one_line(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "a.db"
    record(path, busy_readings(5)).close()
    if damage in ("newer", "other", "view"):
        with closing(sqlite3.connect(path)) as db:
            db.execute(
                {
                    "newer": "PRAGMA user_version = 99",
                    "other": "PRAGMA application_id = 7",
                    "view": "CREATE VIEW more AS SELECT 1",
                }[damage]
            )
    elif damage == "text":
        path.write_text("nothing of the kind\n" * 500)
    else:
        path.unlink()
        if damage == "folder":
            path.mkdir()
        elif damage == "empty":
            path.touch()
    with pytest.raises(SpecdeckError) as caught:
        History(path)
    assert "\n" not in caught.value.line()
    assert str(path) in caught.value.line()
    if damage == "newer":
        assert isinstance(caught.value, UsageError)
        with pytest.raises(UsageError):
            open_box(path, URL, name="demo")


@pytest.mark.parametrize("left", [0.9, 0.5, 0.2])
def test_a_file_that_lost_its_end_opens_as_far_as_it_goes(tmp_path: Path, left: float) -> None:
    path = tmp_path / "a.db"
    record(path, busy_readings(3_000)).close()
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * left)])
    with closing(History(path)) as history:
        found = list(history.readings(START, START + 9_999))
        assert len(found) > 3_000 * left / 6
        assert history.damage is not None
        assert all(one.sample == busy_sample(int(one.t - START)) for one in found)


def test_boxes_are_found_by_name_url_and_file(tmp_path: Path) -> None:
    path = box_path(tmp_path, URL)
    record(path, busy_readings(5)).close()
    (tmp_path / "other.db").write_text("nothing")
    assert [one.name for one in list_boxes(tmp_path)] == ["demo"]
    for wanted in (URL, f"{URL}/", "demo", "127.0.0.1:8000", str(path)):
        with closing(open_history(tmp_path, wanted)) as history:
            assert history.path == path
    with pytest.raises(UsageError) as caught:
        open_history(tmp_path, "other")
    assert caught.value.line() == "nothing is recorded of other: recorded are demo"


def test_an_engine_that_came_back_at_another_url_has_the_box_of_its_name(tmp_path: Path) -> None:
    record(box_path(tmp_path, URL), busy_readings(5)).close()
    now = "http://127.0.0.1:8001"
    with closing(open_history(tmp_path, now, "demo")) as history:
        assert history.url == URL
    record(box_path(tmp_path, now), busy_readings(5), url=now).close()
    with closing(open_history(tmp_path, now, "demo")) as history:
        assert history.url == now
    with pytest.raises(UsageError, match=f"nothing is recorded of {now}0"):
        open_history(tmp_path, f"{now}0", "other")


def test_no_file_in_the_working_folder_stands_for_the_past_of_a_url(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    boxes, work = tmp_path / "boxes", tmp_path / "cloned"
    (work / "http:").mkdir(parents=True)
    boxes.mkdir()
    ours, planted = box_path(boxes, URL), work / URL
    record(ours, busy_readings(5)).close()
    record(planted, busy_readings(5)).close()
    monkeypatch.chdir(work)
    with closing(open_history(boxes, URL)) as history:
        assert history.path == ours
    with pytest.raises(UsageError, match="nothing is recorded"):
        open_history(tmp_path, URL)


def test_only_its_owner_reads_a_black_box(tmp_path: Path) -> None:
    path = box_path(tmp_path / "boxes", URL)
    box = record(path, busy_readings(5))
    for name in (path.name, f"{path.name}-wal", f"{path.name}.lock"):
        assert path.with_name(name).stat().st_mode & 0o077 == 0
    assert path.parent.stat().st_mode & 0o077 == 0
    box.close()


def test_a_link_is_not_written_through(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    (tmp_path / "target").touch()
    path.symlink_to(tmp_path / "target")
    with pytest.raises(ConfigError):
        open_box(path, URL, name="demo")


def test_seeks_are_quick(tmp_path: Path) -> None:
    record(tmp_path / "a.db", busy_readings(3_000), rows=300).close()
    with closing(History(tmp_path / "a.db")) as history:
        begun = time.process_time()
        assert history.reading_at(START + 1_500) is not None
        assert time.process_time() - begun < 0.2


def test_the_plugins_last_word_is_of_the_life_that_is_asked_for(tmp_path: Path) -> None:
    path = box_path(tmp_path, URL)
    states = [
        replace(STATE, k=4), replace(STATE, k=3), None,
        replace(STATE, instance="b", k=2), None,
    ]  # fmt: skip
    record(path, look_at((busy_sample(n), one) for n, one in enumerate(states))).close()
    with closing(History(path)) as history:
        start, end = START, START + 9

        def find_k(*span: float, instance: str | None = None) -> int | None:
            found = history.last_state(*span, instance=instance)
            return None if found is None else found.k

        assert find_k(start, end) == 2
        assert find_k(start, end, instance="a") == 3
        assert find_k(start, start + 0.5) == 4
        assert find_k(start + 4, end) is None
        assert find_k(start, end, instance="c") is None


def test_an_event_keeps_nothing_that_a_terminal_would_obey() -> None:
    event = BoxEvent(START, "change", "k 5\n→ 3", reason="\x1b]0;title\x07tried\ud800").shorten()

    assert (event.text, event.reason) == ("k 5 → 3", "·]0;title·tried\ufffd")
