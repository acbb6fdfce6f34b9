"""What reaches the terminal: no text of others may steer it."""

from __future__ import annotations

from rich.style import Style

from specdeck.console.state.engine_state import Track
from specdeck.console.widgets.cells import Cell, Row, join_cells
from specdeck.console.widgets.text import row_strip


def test_no_control_character_of_a_cell_reaches_the_terminal() -> None:
    evil = "\x1b[2J\x9b31m\u202emodel\ud800\r\n"
    strip = row_strip(Row((Cell(evil),), (Cell(evil),)), 60, lambda tone: Style())
    assert strip.text.isprintable()
    assert strip.cell_length == 60
    strip.text.encode()


def test_a_line_that_is_cut_ends_with_no_separator() -> None:
    cells = join_cells((Cell("demo"), Cell("127.0.0.1:8000"), Cell("demo-target")))
    for width in range(1, 60):
        text = row_strip(Row(cells, (Cell("PAST"),)), width, lambda tone: Style()).text
        assert not text.partition("PAST")[0].rstrip().endswith(("·", "· …")), (width, text)
        assert len(text) == width


def test_an_event_brings_no_escape_along() -> None:
    told = Track("a", "http://a").add_event(0.0, "bob changed k (\x1b]0;owned\x07)")
    assert told.events[0].text.isprintable()
