"""The past of a console's engines."""

from __future__ import annotations

import errno
import os
import threading
from contextlib import closing
from pathlib import Path

import pytest
from tests.support.listed_engine import ListedEngine
from tests.support.readings import START, URL
from tests.support.recorded_engine import busy_readings, record

from specdeck.console.state.controller import Controller
from specdeck.console.state.histories import BoxHistories
from specdeck.console.state.timeline import Timeline
from specdeck.engine.blackbox.folder import box_path, open_history
from specdeck.engine.blackbox.history import History
from specdeck.engine.blackbox.patience import Patience
from specdeck.engine.errors import ConfigError


def test_the_thread_that_draws_waits_for_a_record_within_bounds(tmp_path: Path) -> None:
    """An engine says what is recorded, and hours of its largest states take half a minute."""
    record(box_path(tmp_path, URL), busy_readings(20)).close()
    with closing(BoxHistories(tmp_path, [URL])) as histories:
        opened: list[History | None] = []
        thread = threading.Thread(target=lambda: opened.append(histories(0)))
        thread.start()
        thread.join()
        (history,) = opened
        assert history is not None
        assert history._rows.patience is not None
        history.limit_waiting(Patience(0.0))
        assert list(history.readings(START, START + 20)) == []
        found: list[int] = []
        thread = threading.Thread(
            target=lambda: found.append(len(list(history.readings(START, START + 20))))
        )
        thread.start()
        thread.join()
        assert found == [20]


def test_a_record_that_nobody_lets_this_user_read_is_an_error_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as one that root made: a console is open on it, and goes on."""
    refuse_stat(monkeypatch, box_path(tmp_path, URL), errno.EACCES)
    with closing(BoxHistories(tmp_path, [URL])) as histories:
        with pytest.raises(ConfigError, match="permission denied"):
            histories(0)
        with pytest.raises(ConfigError, match="permission denied"):
            open_history(tmp_path, URL)


def test_the_past_that_is_shown_survives_a_disk_that_answers_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record(box_path(tmp_path, URL), busy_readings(20)).close()
    controller = Controller(
        [ListedEngine([])],
        spawn=lambda work, group: pytest.fail("nothing is begun"),
        who="ann",
        clock=lambda: START + 20,
    )
    with closing(BoxHistories(tmp_path, [URL])) as histories:
        timeline = Timeline(controller, histories)
        assert timeline.bounds.first == START
        refuse_stat(monkeypatch, box_path(tmp_path, URL), errno.ESTALE)
        assert timeline.bounds.first == timeline.bounds.last
        assert timeline.said is not None
        assert "stale" in timeline.said


def refuse_stat(monkeypatch: pytest.MonkeyPatch, refused: Path, number: int) -> None:
    stat = Path.stat

    def look(path: Path, *, follow_symlinks: bool = True) -> os.stat_result:
        if path == refused:
            raise OSError(number, os.strerror(number), str(path))
        return stat(path, follow_symlinks=follow_symlinks)

    monkeypatch.setattr(Path, "stat", look)


def test_the_past_goes_on_in_a_record_that_was_begun_anew(tmp_path: Path) -> None:
    path = box_path(tmp_path, URL)
    record(path, busy_readings(20)).close()
    with closing(BoxHistories(tmp_path, [URL])) as histories:
        first = histories(0)
        assert first is not None
        assert histories(0) is first
        path.rename(tmp_path / "moved.db")
        assert histories(0) is None
        record(path, busy_readings(30)).close()
        second = histories(0)
        assert second is not None
        assert len(list(second.readings(START, START + 100))) == 30
