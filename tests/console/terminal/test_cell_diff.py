"""The filter is transparent: a terminal shows the same with it and without it."""

from __future__ import annotations

import pyte
from hypothesis import given, settings
from hypothesis import strategies as st

from specdeck.console.terminal.cell_diff import CellDiff

WIDTH, HEIGHT = 24, 6

Cell = tuple[str, str, str, bool, bool, bool]

styles = st.sampled_from(
    [
        "",
        "\x1b[1;31m",
        "\x1b[38;2;1;2;3;48;2;4;5;6m",
        "\x1b[4;32m",
        "\x1b[2m",
        "\x1b[7m",
        "\x1b[45m",
    ]
)
texts = st.text(alphabet="ab12 ─█▁▌┊世界é·", min_size=1, max_size=10)
spans = st.tuples(st.integers(0, WIDTH - 1), st.integers(0, HEIGHT - 1), styles, texts)
rare = st.sampled_from(["", "", "", "\x1b[2K", "\x1b[2J", "\n", "\x1b]0;title\x07", "\x1b[?25l"])
frames = st.lists(st.tuples(st.lists(spans, max_size=5), rare), min_size=1, max_size=6)


def frame(parts: tuple[list[tuple[int, int, str, str]], str]) -> str:
    """A frame as Textual writes it: moves, runs of one style, a last move."""
    written, other = parts
    body = "".join(
        f"\x1b[{y + 1};{x + 1}H{style}{fitting(text, WIDTH - x)}\x1b[0m"
        for x, y, style, text in written
    )
    return f"\x1b[?2026h{body}{other}\x1b[1;1H\x1b[?2026l"


def fitting(text: str, room: int) -> str:
    """Textual never writes past the right edge."""
    kept, used = "", 0
    for char in text:
        used += 2 if char in "世界" else 1
        if used > room:
            break
        kept += char
    return kept


def shown(chunks: list[str]) -> list[Cell]:
    """Every cell of a terminal after these writes; a space has no foreground of its own."""
    screen = pyte.Screen(WIDTH, HEIGHT)
    stream = pyte.Stream(screen)
    for chunk in chunks:
        stream.feed(chunk)
    cells = []
    for y in range(HEIGHT):
        for x in range(WIDTH):
            char = screen.buffer[y][x]
            seen = char.data.strip() != "" or char.underscore or char.reverse
            fore, bold = (char.fg, char.bold) if seen else ("", False)
            cells.append((char.data, fore, char.bg, bold, char.underscore, char.reverse))
    return cells


@given(frames)
@settings(max_examples=300, deadline=None)
def test_a_terminal_shows_the_same_with_and_without_the_filter(
    parts: list[tuple[list[tuple[int, int, str, str]], str]],
) -> None:
    written = [frame(part) for part in parts]
    diff = CellDiff(WIDTH, HEIGHT)
    assert shown([diff.feed(chunk) for chunk in written]) == shown(written)


@given(frames, st.integers(0, 5))
@settings(max_examples=100, deadline=None)
def test_a_reset_in_between_repaints_what_is_asked_for(
    parts: list[tuple[list[tuple[int, int, str, str]], str]], at: int
) -> None:
    written = [frame(part) for part in parts]
    diff = CellDiff(WIDTH, HEIGHT)
    fewer = []
    for index, chunk in enumerate(written):
        if index == at:
            diff.reset(WIDTH, HEIGHT)
        fewer.append(diff.feed(chunk))
    assert shown(fewer) == shown(written)


def test_the_same_frame_twice_writes_nothing_the_second_time() -> None:
    diff = CellDiff(WIDTH, HEIGHT)
    whole = frame(([(0, 0, "\x1b[31m", "ab"), (3, 2, "", "世")], ""))
    assert diff.feed(whole) != ""
    assert diff.feed(whole) == ""


def test_one_changed_cell_costs_a_few_bytes() -> None:
    diff = CellDiff(80, 24)
    diff.feed("\x1b[5;1H" + "─" * 70 + "1" + "\x1b[1;1H")
    fewer = diff.feed("\x1b[5;1H" + "─" * 70 + "2" + "\x1b[1;1H")
    assert "2" in fewer
    assert len(fewer) < 20


def test_another_screen_buffer_is_not_believed_to_show_the_first_one() -> None:
    diff = CellDiff(WIDTH, HEIGHT)
    diff.feed("\x1b[1;1Habc")
    assert diff.feed("\x1b[?1049h") == "\x1b[?1049h"
    assert "abc" in diff.feed("\x1b[1;1Habc")


def test_modes_and_queries_pass_and_change_nothing() -> None:
    diff = CellDiff(WIDTH, HEIGHT)
    diff.feed("\x1b[1;1Habc")
    for mode in ("\x1b[?1000h", "\x1b[?2004h", "\x1b[>1u", "\x1b[<u", "\x1b[?2048$p"):
        assert mode in diff.feed(mode)
    assert diff.feed("\x1b[1;1Habc") == ""


def test_text_beyond_the_edge_of_a_shrunk_terminal_is_not_believed() -> None:
    diff = CellDiff(4, 2)
    assert "abcdef" in diff.feed("\x1b[1;1Habcdef")
    assert "ab" in diff.feed("\x1b[1;1Hab")


def test_what_lies_beyond_a_small_terminal_is_not_written() -> None:
    diff = CellDiff(0, 0)
    diff.reset(3, 2, cuts=True)
    screen = pyte.Screen(3, 2)
    stream = pyte.Stream(screen)
    stream.feed("\x1b[?7l")
    lines = ("ab\u0301cdef", "g世世", "hi", "jk")
    for _ in range(2):
        stream.feed(diff.feed("\n".join(f"\x1b[{y};1H{line}" for y, line in enumerate(lines, 1))))
    assert [line[:3] for line in screen.display] == ["abc", "g世"]
    assert diff.feed("\x1b[2;4Hx\x1b[4;1Hy") == ""
