"""The past of a console's engines."""

from __future__ import annotations

import threading
from contextlib import closing
from pathlib import Path

from tests.support.readings import START, URL
from tests.support.recorded_engine import busy_readings, record

from specdeck.console.state.histories import BoxHistories
from specdeck.engine.blackbox.folder import box_path
from specdeck.engine.blackbox.history import History
from specdeck.engine.blackbox.patience import Patience


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
