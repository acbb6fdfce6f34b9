"""A black box forgets what is oldest, by age and by size."""

from __future__ import annotations

import fcntl
import os
import random
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.readings import START, STATE
from tests.support.recorded_engine import busy_readings, look_at, record

from specdeck.engine.blackbox import folder
from specdeck.engine.blackbox.event import BoxEvent
from specdeck.engine.blackbox.file import take_lock
from specdeck.engine.blackbox.folder import box_path, list_boxes, remove_abandoned
from specdeck.engine.blackbox.history import History
from specdeck.engine.blackbox.retention import Limits
from specdeck.engine.protocol.cohorts import Cohort, CohortCell, CohortCounts, Cohorts, no_counts

DAY = 86_400.0


def test_what_is_older_than_its_days_goes(tmp_path: Path) -> None:
    with closing(record(tmp_path / "a.db", busy_readings(300), limits=Limits(200 / DAY))) as box:
        box.add_event(BoxEvent(START + 50, "other", "old"))
        box.add_event(BoxEvent(START + 250, "other", "young"))
        for one in busy_readings(320)[300:]:
            box.append(one)
        with closing(History(tmp_path / "a.db")) as history:
            kept = [one.t - START for one in history.readings(0, 1e11)]
            assert kept == [float(n) for n in range(110, 320)]
            assert [one.text for one in history.events(0, 1e11)] == ["young"]
            assert history.damage is None
            assert history.first == START + 110


def test_the_file_stays_within_its_size(tmp_path: Path) -> None:
    chosen, path = random.Random(1), tmp_path / "a.db"
    # A reason of its own each second: nothing that compresses.
    states = [
        replace(STATE, policy_reason=chosen.randbytes(1_000).hex(), step=n) for n in range(3_000)
    ]
    sample = busy_readings(1)[0].sample
    assert sample is not None
    given = look_at(
        (replace(sample, t=START + n, at=float(n)), one) for n, one in enumerate(states)
    )
    with closing(record(path, given, rows=50, limits=Limits(7, 1.0))) as box:
        assert path.stat().st_size < 1.6e6
        with closing(History(path)) as history:
            assert history.first > START + 1_500
            assert history.last == START + 2_999
            assert len(list(history.readings(0, 1e11))) > 300
        for one in look_at([(sample, STATE)] * 200):
            box.append(replace(one, t=START + 3_000 + one.t - START))
    assert path.stat().st_size < 1.6e6


def test_boxes_of_engines_that_are_gone_are_removed(tmp_path: Path) -> None:
    old, live = "http://old", "http://written"
    record(box_path(tmp_path, old), busy_readings(3), url=old).close()
    written = record(box_path(tmp_path, live), busy_readings(3), url=live)
    assert len(list_boxes(tmp_path)) == 2
    assert remove_abandoned(tmp_path, 0.0) == 0
    assert remove_abandoned(tmp_path, 1e11) == 1
    assert [one.path for one in list_boxes(tmp_path)] == [written.path]
    assert not list(tmp_path.glob("old*"))
    written.close()


def test_what_somebody_keeps_in_the_folder_is_not_removed(tmp_path: Path) -> None:
    box = box_path(tmp_path, "http://old")
    record(box, busy_readings(3), url="http://old").close()
    kept = [tmp_path / "night-of-the-outage.db", tmp_path / "mine.db"]
    kept[0].write_bytes(box.read_bytes())
    kept[1].write_text("no black box\n")
    for path in (box, *kept):
        os.utime(path, (1.0, 1.0))
    assert remove_abandoned(tmp_path, 1_000.0) == 1
    assert sorted(tmp_path.iterdir()) == sorted(kept)


def told_cohorts(t: float, chosen: random.Random) -> Cohorts:
    """Many cells that never compress, at a time of the engine's choice."""
    counts = CohortCounts(1, 9, 4, 0, 2, (2,) * 5, (1,) * 5)
    cells = tuple(
        CohortCell(Cohort(*(chosen.randbytes(40).hex() for _ in range(8))), counts)
        for _ in range(100)
    )
    return Cohorts("a", t, cells, (), no_counts(5), 1, (2,) * 5, (1,) * 5)


def test_an_engine_whose_clock_is_ahead_fills_no_disk(tmp_path: Path) -> None:
    chosen, path = random.Random(1), tmp_path / "a.db"
    given = busy_readings(400)
    with closing(record(path, given[:10], limits=Limits(7, 1.0))) as box:
        for one in given[10:]:
            box.append(one)
            if one.t % 5 == 0:
                box.add_cohorts(one.t, told_cohorts(1e11 - one.t, chosen))
    assert path.stat().st_size < 1.6e6
    with closing(History(path)) as history:
        assert history.cohorts_at(given[-1].t) is not None
        assert history.last == given[-1].t


def test_what_lies_ahead_of_every_reading_does_not_stay_for_ever(tmp_path: Path) -> None:
    chosen, path = random.Random(1), tmp_path / "a.db"
    with closing(record(path, busy_readings(100), limits=Limits(7, 1.0))) as box:
        for n in range(40):
            box.add_cohorts(1e11 - n, told_cohorts(START, chosen))
        assert path.stat().st_size > 1.0e6
        for one in busy_readings(200)[100:]:
            box.append(one)
        box._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        (pages,) = box._db.execute("PRAGMA page_count").fetchone()
        (free,) = box._db.execute("PRAGMA freelist_count").fetchone()
        assert (pages - free) * 4096 <= 1.0e6
    with closing(History(path)) as history:
        assert len(list(history.readings(START + 190, 1e11))) == 10


@pytest.mark.parametrize("jump", [[10], [9], [19], range(10, 14)], ids=str)
def test_a_clock_that_jumps_ahead_erases_nothing(tmp_path: Path, jump: Sequence[int]) -> None:
    given = busy_readings(60)
    for n in jump:
        given[n] = replace(given[n], t=given[n].t + 30 * DAY)
    with closing(record(tmp_path / "a.db", given)), closing(History(tmp_path / "a.db")) as history:
        assert len(list(history.readings(0, 1e11))) == 60


def test_blocks_that_are_longer_than_a_part_of_the_span_make_room(tmp_path: Path) -> None:
    chosen, path = random.Random(1), tmp_path / "a.db"
    given = [
        replace(one, state=replace(STATE, policy_reason=chosen.randbytes(1_000).hex()))
        for one in busy_readings(2_000)
    ]
    # The newest readings follow each other a thousand times faster than the old ones did.
    given = [replace(one, t=START + min(n, 1_000) * 300 + n) for n, one in enumerate(given)]
    with closing(record(path, given, rows=200, limits=Limits(70, 1.0))):
        assert path.stat().st_size < 1.9e6


def test_what_was_recorded_before_a_long_pause_goes_once_the_time_is_sure(tmp_path: Path) -> None:
    given = busy_readings(60)
    given[20:] = [replace(one, t=one.t + DAY) for one in given[20:]]
    # A twentieth of the days has to agree: eleven readings here.
    record(tmp_path / "a.db", given, limits=Limits(220 / DAY)).close()
    with closing(History(tmp_path / "a.db")) as history:
        assert len(list(history.readings(0, 1e11))) == 40


def test_a_lock_whose_file_was_removed_meanwhile_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, lock = tmp_path / "a.db", tmp_path / "a.db.lock"
    real = fcntl.flock
    removed: list[int] = []

    def remove_then_lock(file: int, how: int) -> None:
        if not removed:  # as whoever removes the black box does, between the open and the lock
            removed.append(file)
            lock.unlink()
        real(file, how)

    monkeypatch.setattr(fcntl, "flock", remove_then_lock)
    first = take_lock(path)
    assert first is not None
    assert take_lock(path) is None
    os.close(first)


def test_a_black_box_that_was_written_before_it_was_locked_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = box_path(tmp_path, "http://old")
    record(path, busy_readings(3), url="http://old").close()
    os.utime(path, (1.0, 1.0))

    def write_then_lock(at: Path) -> int | None:
        os.utime(at)
        return take_lock(at)

    monkeypatch.setattr(folder, "take_lock", write_then_lock)
    assert remove_abandoned(tmp_path, 1_000.0) == 0
    assert path.exists()
