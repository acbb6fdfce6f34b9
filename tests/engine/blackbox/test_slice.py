"""A part of a black box: the same readings, events, cohorts and documents, in a file of its own."""

from __future__ import annotations

import math
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.readings import START, STATE
from tests.support.recorded_engine import (
    busy_readings,
    busy_sample,
    look_at,
    record,
    same_reading,
)

from specdeck.engine.blackbox.event import BoxEvent
from specdeck.engine.blackbox.history import History
from specdeck.engine.blackbox.slice import write_slice
from specdeck.engine.errors import ConfigError
from specdeck.engine.metrics.reading import Reading
from specdeck.engine.protocol.cohorts import (
    Cohort,
    CohortCell,
    CohortCounts,
    Cohorts,
    no_counts,
)
from specdeck.engine.protocol.messages import LastChange

WORDS = ("4-15", "0%", "4-15", "none", "none", "greedy", "no", "stop")


def cohorts(n: int) -> Cohorts:
    counts = CohortCounts(n, 9 * n, 4 * n, 0, 2 * n, (2 * n,), (n,))
    cell = CohortCell(Cohort(*WORDS), counts)
    return Cohorts("a", START + n, (cell,), (), no_counts(1), 2 * n, (2 * n,), (n,))


def lives() -> list[Reading]:
    """An engine that is busy, down, another one, and busy again."""
    looks: list[Any] = [(busy_sample(n), replace(STATE, step=n)) for n in range(30)]
    looks += [(None, None)] * 3
    other = replace(STATE, instance="b")
    looks += [(busy_sample(n, start=START + 33), replace(other, step=n)) for n in range(33, 60)]
    return look_at(looks)


@settings(max_examples=12, deadline=None)
@given(st.integers(-5, 70), st.integers(0, 70), st.integers(1, 13))
def test_a_slice_reads_as_the_whole(
    tmp_path_factory: pytest.TempPathFactory, first: int, length: int, rows: int
) -> None:
    folder = tmp_path_factory.mktemp("slice")
    start, end = START + first, START + first + length
    record(folder / "whole.db", lives(), rows=rows).close()
    with closing(History(folder / "whole.db")) as whole:
        expected = list(whole.readings(start, end))
        count = write_slice(whole, folder / "part.db", start, end)
        with closing(History(folder / "part.db")) as part:
            found = list(part.readings(-math.inf, math.inf))
            assert count == len(found) == len(expected)
            assert all(map(same_reading, found, expected))
            assert part.damage is None
            assert (part.url, part.name) == (whole.url, whole.name)
            if expected and expected[0].t < expected[-1].t:
                first_t, last_t = expected[0].t, expected[-1].t
                assert part.window(first_t, last_t) == whole.window(first_t, last_t)
                assert part.overview(start, end, 7) == whole.overview(start, end, 7)


def test_what_led_to_the_start_is_in_it(tmp_path: Path) -> None:
    with closing(record(tmp_path / "a.db", busy_readings(60))) as box:
        for n in range(0, 60, 5):
            box.add_cohorts(START + n, cohorts(n))
            box.add_event(BoxEvent(START + n, "change", f"k {n}", who="ann"))
        for n in (3, 20, 50):
            box.add_document("tuning", START + n, {"n": n})
    with closing(History(tmp_path / "a.db")) as whole:
        write_slice(whole, tmp_path / "b.db", START + 32, START + 47)
        with closing(History(tmp_path / "b.db")) as part:
            for t in (START + 32, START + 36, START + 47):
                assert part.cohorts_at(t) == whole.cohorts_at(t)
                assert part.document_at("tuning", t) == {"n": 20}
            assert [one.text for one in part.events(0, math.inf)] == ["k 35", "k 40", "k 45"]
            assert part.documents("tuning", 0, math.inf) == ((START + 20, {"n": 20}),)


def test_a_slice_is_one_file_without_what_was_asked_to_go(tmp_path: Path) -> None:
    secret = "hunter2-hunter2"
    state = replace(
        STATE,
        policy_reason=secret,
        last_change=LastChange(START, "ann", secret, {"k": 5}, {"k": 3}, "operator"),
    )
    given = [replace(one, state=replace(state, step=n)) for n, one in enumerate(busy_readings(20))]
    with closing(record(tmp_path / "a.db", given)) as box:
        box.add_event(BoxEvent(START + 2, "change", secret, reason=secret, who=secret))
        box.add_document("tuning", START, {"a": [secret]})

    def change(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: change(one) for name, one in value.items()}
        if isinstance(value, list):
            return [change(one) for one in value]
        return value.replace(secret, "…") if isinstance(value, str) else value

    with closing(History(tmp_path / "a.db")) as whole:
        write_slice(whole, tmp_path / "b.db", 0, math.inf, change_text=change, change_value=change)
    assert sorted(path.name for path in tmp_path.glob("b.db*")) == ["b.db"]
    with closing(History(tmp_path / "b.db")) as part:
        found = list(part.readings(0, math.inf))
        assert [one.sample for one in found] == [one.sample for one in given]
        assert [one.window for one in found] == [one.window for one in given]
        assert all(one.state and one.state.policy_reason == "…" for one in found)
        assert secret not in repr(
            (found, part.events(0, math.inf), part.document_at("tuning", 1e10))
        )
    with closing(sqlite3.connect(tmp_path / "b.db")) as db:
        assert db.execute("PRAGMA journal_mode").fetchone() == ("delete",)


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    record(tmp_path / "a.db", busy_readings(3)).close()
    with closing(History(tmp_path / "a.db")) as whole, pytest.raises(ConfigError, match="already"):
        write_slice(whole, tmp_path / "a.db", 0, math.inf)
