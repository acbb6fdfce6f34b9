"""What stands at the top of each screen."""

from __future__ import annotations

from dataclasses import replace

from rich.style import Style
from tests.support.readings import URL, reading

from specdeck.console.screens.head import title
from specdeck.console.state.engine_state import FingerprintNames, Track, fold_reading
from specdeck.console.widgets.text import row_strip
from specdeck.engine.metrics.window import Window


def words(track: Track) -> str:
    return " ".join(cell.text for cell in title(track, armed=False).right)


def test_threads_that_wait_for_cpus_stand_in_the_title_from_a_fifth_of_the_time_on() -> None:
    up = fold_reading(Track("demo", URL), reading(1))
    for waited, shown in ((22.2, True), (12.0, True), (11.0, False)):
        minute = Window(60.0, cpu_watched=60.0, worker_waited=waited)
        found = words(replace(up, last_minute=minute))
        assert ("CPU wait" in found) == shown
    assert "CPU wait 37 %" in words(
        replace(up, last_minute=Window(60.0, cpu_watched=60.0, worker_waited=22.2))
    )
    assert "CPU" not in words(replace(up, last_minute=Window(60.0)))
    assert "CPU" not in words(up)


def test_the_wait_for_cpus_goes_before_the_name_and_the_light_of_an_engine() -> None:
    up = fold_reading(Track("demo", URL), reading(1))
    minute = Window(60.0, cpu_watched=60.0, worker_waited=22.2)
    names = FingerprintNames("b", "p", pinned=True, differs="path")
    row = title(replace(up, last_minute=minute, names=names), armed=True)

    def drawn(width: int) -> str:
        return row_strip(row, width, lambda tone: Style()).text

    assert "CPU wait 37 %  ≠ pin: path  ● up  armed" in drawn(80)
    assert drawn(50).startswith(" specdeck  demo ")
    assert drawn(50).endswith(" ≠ pin: path  ● up  armed ")
    assert drawn(40).startswith(" specdeck  demo ")
    assert drawn(40).endswith(" ≠ pin: path  ● up ")
    assert drawn(20) == " specdeck  demo ● up"
