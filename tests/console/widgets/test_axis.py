"""The time axis: nothing is written over anything else, and a scale follows from the data alone."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from tests.support.pilot import run
from textual.app import App, ComposeResult

from specdeck.console.widgets.blocks import Series, axis
from specdeck.console.widgets.charts import Chart
from specdeck.console.widgets.text import TONE_CLASSES

LABELS = st.sampled_from(("k3", "target", "goodput", "breaker open", "restart"))
MOMENT = "00:07:47"
START = "12:59:58"


@given(
    width=st.integers(0, 60),
    marks=st.lists(st.tuples(st.integers(-5, 65), LABELS), max_size=5),
    cursor=st.one_of(st.none(), st.integers(-5, 65)),
)
def test_each_label_is_there_whole_or_not_at_all(
    width: int, marks: list[tuple[int, str]], cursor: int | None
) -> None:
    marks = sorted(dict(marks).items())
    text = axis(width, START, marks, None if cursor is None else (cursor, MOMENT))
    assert len(text) == width
    shown = cursor is not None and 0 <= cursor < width
    if shown and width > 2 * len(MOMENT):
        assert MOMENT in text
    rest = text.replace(MOMENT, "", 1).replace(f"{START} ", "", 1)
    for _, label in sorted(marks, key=lambda mark: -len(mark[1])):
        rest = rest.replace(f"▴{label}", "▴", 1).replace(f"{label}▴", "▴", 1)
    assert set(rest) <= set("─▴▲")


async def test_the_scale_of_the_past_is_the_same_after_whatever_was_shown() -> None:
    class Charts(App[str]):
        COMPONENT_CLASSES = TONE_CLASSES

        def compose(self) -> ComposeResult:
            yield Chart("tokens/s", str, id="chart")

    times = tuple(map(float, range(20)))
    past = Series((1200.0,) * 20, 20, times=times, lows=(1000.0,) * 20, cursor=10, moment=MOMENT)
    tops = []
    for before in (Series(), replace(past, values=(2900.0,) * 20), replace(past, cursor=None)):
        app = Charts()
        async with run(app, size=(40, 10)) as pilot:
            chart = app.query_one(Chart)
            chart.series = before
            await pilot.pause()
            chart.series = past
            await pilot.pause()
            tops.append(chart.top)
    assert tops == [1500.0] * 3
