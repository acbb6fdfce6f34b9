"""A black box forgets what is oldest, by age and by size."""

from __future__ import annotations

import random
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from tests.support.readings import START, STATE
from tests.support.recorded_engine import busy_readings, look_at, record

from specdeck.engine.blackbox.event import BoxEvent
from specdeck.engine.blackbox.folder import box_path, list_boxes, remove_abandoned
from specdeck.engine.blackbox.history import History
from specdeck.engine.blackbox.retention import Limits

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
    record(box_path(tmp_path, "http://old"), busy_readings(3)).close()
    written = record(box_path(tmp_path, "http://written"), busy_readings(3))
    assert len(list_boxes(tmp_path)) == 2
    assert remove_abandoned(tmp_path, 0.0) == 0
    assert remove_abandoned(tmp_path, 1e11) == 1
    assert [one.path for one in list_boxes(tmp_path)] == [written.path]
    assert not list(tmp_path.glob("old*"))
    written.close()
