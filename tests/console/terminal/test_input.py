"""What a terminal sends: keys, and bytes that no keyboard sends."""

from __future__ import annotations

from collections.abc import Collection

import pytest
from textual.events import Key, MouseDown, Paste, Resize
from textual.message import Message

from specdeck.console.terminal.input import (
    LONGEST_PASTE,
    PASTE_SILENCE_S,
    SEQUENCE_SILENCE_S,
    TerminalInput,
)
from specdeck.console.terminal.paste import PasteDropped, PasteStalled


def read(*pieces: bytes) -> list[str]:
    """The keys in what arrives."""
    arriving = TerminalInput()
    found = [message for piece in pieces for message in arriving.feed(piece)]
    return [message.key for message in found if isinstance(message, Key)]


@pytest.mark.parametrize(
    "garbage",
    [
        b"\xe9",
        b"\xff\xfe\xc3",
        b"\xed\xa0\x80",
        "\x1b[:uéR".encode(),
        b"\x1b[99999200~",
        b"\x1b[9999999999~",
        b"\x1b[;:201~<\x07",
        b"\x1b[55296u",
    ],
)
def test_what_means_nothing_is_left_out_and_the_next_key_is_read(garbage: bytes) -> None:
    assert read(garbage, b"\x1b[A")[-1] == "up"


def test_a_character_in_two_pieces_is_one() -> None:
    assert read(b"\xc3", b"\xa9") == ["é"]


def test_a_paste_with_other_bytes_is_a_paste_still() -> None:
    arriving = TerminalInput()
    text = b"t" * 5000 + b"\xe9q"
    found = [*arriving.feed(b"\x1b[200~" + text), *arriving.feed(b"\x1b[201~\x1b[A")]
    assert not [one for one in found if isinstance(one, Key) and one.key != "up"]
    (paste,) = [one for one in found if isinstance(one, Paste)]
    assert paste.text == "t" * 5000 + "\ufffdq"


@pytest.mark.parametrize("size", [b"\x1b[48;40;120;0;0t", b"\x1b[48;0;0;0;0t", b"\x1b[48;0;0;9;9t"])
def test_a_mouse_in_a_terminal_without_pixels_is_no_division_by_zero(size: bytes) -> None:
    arriving = TerminalInput()
    found = [*arriving.feed(b"\x1b[?2048;1$y" + size), *arriving.feed(b"\x1b[<0;10;11M\x1b[A")]
    assert [one.key for one in found if isinstance(one, Key)] == ["up"]
    if size.startswith(b"\x1b[48;40;120"):
        (pressed,) = [one for one in found if isinstance(one, MouseDown)]
        assert (pressed.x, pressed.y) == (9, 10)


def test_a_size_of_nothing_is_left_out() -> None:
    arriving = TerminalInput()
    found = arriving.feed(b"\x1b[48;0;100;9;9t\x1b[48;30;100;600;1000t\x1b[48;0;0;0;0t")
    sizes = [one.size for one in found if isinstance(one, Resize)]
    assert sizes == [(100, 30)]


@pytest.mark.parametrize(
    ("sent", "keys"),
    [
        (b"?", ["question_mark"]),
        (b"q", ["q"]),
        (b"f", ["f"]),
        (b"b", ["b"]),
        (b"\x1b[A", ["up"]),
        (b"\x1bOP", ["f1"]),
        ("é".encode(), ["é"]),
        (b"\r", ["enter"]),
    ],
)
def test_a_key_right_after_escape_is_a_key_of_its_own(sent: bytes, keys: list[str]) -> None:
    assert read(b"\x1b" + sent + b"x") == ["escape", *keys, "x"]
    assert read(b"\x1b", sent, b"x") == ["escape", *keys, "x"]


class LaggingLine:
    """What a terminal's input says, piece by piece, with a silence of so many seconds after it."""

    def __init__(self, alt_keys: Collection[str] = ()) -> None:
        self.now = 100.0
        self.arriving = TerminalInput(alt_keys, clock=lambda: self.now)

    def send(self, piece: bytes, quiet_s: float) -> list[Message]:
        """All that comes of it by the end of the silence."""
        found = [*self.arriving.feed(piece)]
        until = self.now + quiet_s
        while self.now < until:
            self.now += 0.1
            found += self.arriving.tick()
        return found

    def press(self, *pieces: bytes, quiet_s: float = 0.4) -> list[str]:
        """The keys in what arrives."""
        found = [message for piece in pieces for message in self.send(piece, quiet_s)]
        return [message.key for message in found if isinstance(message, Key)]


def test_an_escape_alone_is_a_key_after_a_tenth_of_a_second() -> None:
    line = LaggingLine()
    assert line.press(b"\x1b", quiet_s=0.0) == []
    assert line.press(b"", quiet_s=0.2) == ["escape"]
    assert line.press(b"\x1b\x1b", b"q") == ["escape", "escape", "q"]


_TORN = [
    (b"\x1b[A", ["up"]),
    (b"\x1b[6~", ["pagedown"]),
    (b"\x1b[3~", ["delete"]),
    (b"\x1b[15~", ["f5"]),
    (b"\x1b[[A", ["f1"]),
    (b"\x1b[3$", ["shift+delete"]),
    (b"\x1bOP", ["f1"]),
    (b"\x1b[57441;2u", ["left_shift"]),
    (b"\x1b[<35;42;17M", []),
    (b"\x1b[M 23", []),
    (b"\x1b[?2026;2$y", []),
    (b"\x1b[48;24;80;400;800t", []),
    (b"\x1b[123456789;123456789;123456789;1t", []),
    (b"\x1b]11;rgb:1212/3434/5656\x07", []),
    (b"\x1b]11;rgb:1212/3434/5656/7878/9090/1212\x1b\\", []),
    (b"\x1bP1$r0;3t\x1b\\", []),
    (b"\x1b_Gi=31;t3\x1b\\", []),
]


@pytest.mark.parametrize("quiet_s", [0.0, 0.4, 3.0])
@pytest.mark.parametrize(("sent", "keys"), _TORN)
def test_what_the_line_tears_is_what_the_terminal_sent(
    sent: bytes, keys: list[str], quiet_s: float
) -> None:
    for at in range(2, len(sent)):
        line = LaggingLine()
        assert line.press(sent[:at], sent[at:], quiet_s=quiet_s) == keys
        assert line.press(b"k") == ["k"]
    line = LaggingLine()
    every = [sent[at : at + 1] for at in range(2, len(sent))]
    assert line.press(sent[:2], *every, b"k", quiet_s=quiet_s) == [*keys, "k"]


@pytest.mark.parametrize("sent", [sent for sent, _ in _TORN])
def test_a_sequence_that_is_torn_after_its_escape_sets_nothing(sent: bytes) -> None:
    pieces: list[tuple[bytes, ...]] = [(sent[:1], sent[1:])]
    pieces += [(sent[:1], sent[1:at], sent[at:]) for at in range(2, len(sent))]
    for torn in pieces:
        keys = LaggingLine().press(*torn, b"k", quiet_s=0.3)
        assert keys[0] == "escape"
        assert keys[-1] == "k"
        assert not [key for key in keys if key in "0123456789tuM"], torn


@pytest.mark.parametrize("introducer", [b"[", b"]", b"O", b"P", b"_"])
def test_what_begins_a_sequence_after_the_escape_key_is_a_key_in_half_a_second(
    introducer: bytes,
) -> None:
    line = LaggingLine()
    (key,) = read(introducer)
    assert line.press(b"\x1b", introducer, quiet_s=0.3) == ["escape"]
    assert line.press(b"", quiet_s=0.6) == [key]
    assert line.press(b"3") == ["3"]
    typed = b"k" if introducer != b"O" else b" "  # of k it makes a keypad's key
    assert LaggingLine().press(b"\x1b", introducer + typed)[:2] == ["escape", key]
    assert LaggingLine().press(b"\x1b", introducer, typed, quiet_s=0.3)[:2] == ["escape", key]


@pytest.mark.parametrize(
    ("torn", "typed"),
    [
        ((b"\x1b", b"[", b"3~"), "left_square_bracket"),
        ((b"\x1b", b"[", b"<35;42", b";3M"), "left_square_bracket"),
        ((b"\x1b", b"]", b"11;rgb:1212/3434\x07"), "right_square_bracket"),
    ],
)
def test_the_rest_of_what_was_taken_for_a_key_is_no_keys(
    torn: tuple[bytes, ...], typed: str
) -> None:
    assert LaggingLine().press(*torn, b"3", quiet_s=0.9) == ["escape", typed, "3"]


def test_the_late_rest_of_a_sequence_is_no_keys_in_two_pieces() -> None:
    line = LaggingLine()
    assert line.press(b"\x1b[<35;4", quiet_s=7.0) == []
    assert line.press(b"2;1", b"3M", b"3", quiet_s=0.8) == ["3"]


@pytest.mark.parametrize(
    ("sent", "keys"),
    [
        (b"\x9b3~", ["delete"]),
        ("\x9b3~".encode(), ["delete"]),
        ("\x8fP".encode(), ["f1"]),
        ("\x9d11;rgb:1212\x9c".encode(), []),
        ("\x901$r0;3t\x1b\\".encode(), []),
    ],
)
def test_a_sequence_of_eight_bits_is_one(sent: bytes, keys: list[str]) -> None:
    assert LaggingLine().press(sent, b"k") == [*keys, "k"]
    for at in range(1, len(sent)):
        assert LaggingLine().press(sent[:at], sent[at:], b"k") == [*keys, "k"]


def test_an_answer_of_the_terminal_may_have_lines() -> None:
    answer = (b"\x1bP>|xterm", b"\r\n3 t", b"\x1b\\")
    assert LaggingLine().press(*answer, b"k") == ["k"]


def test_a_paste_that_is_torn_after_its_escape_is_one() -> None:
    line = LaggingLine()
    pieces = (b"\x1b", b"[", b"200~3 t\x03\x1b", b"[201~", b"k")
    found = [message for one in pieces for message in line.send(one, 0.3)]
    assert clean(found) == ["escape", "3 t\x03", "k"]


def test_a_bracket_after_the_escape_key_is_a_key() -> None:
    assert LaggingLine().press(b"\x1b", b"[", b"[") == ["escape", *["left_square_bracket"] * 2]
    assert LaggingLine().press(b"\x1b", b"[[") == ["escape", *["left_square_bracket"] * 2]
    assert LaggingLine().press(b"\x1b", b"", b"T") == ["escape", "T"]


@pytest.mark.parametrize("sent", [b"\x1b[", b"\x1b]", b"\x1b[1", b"\x1bO", b"\x1b[<35;4"])
def test_a_sequence_that_never_ends_is_dropped_with_what_comes_of_it(sent: bytes) -> None:
    silence_s = SEQUENCE_SILENCE_S + 1.0
    line = LaggingLine()
    assert line.press(sent, quiet_s=silence_s) == []
    assert line.press(b"2;17M" + b"\x07" * sent.startswith(b"\x1b]")) == []
    assert line.press(b"k") == ["k"]
    line = LaggingLine()
    assert line.press(sent, quiet_s=silence_s) == []
    assert line.press(b"3", quiet_s=1.0) == []  # its rest, as far as can be told
    assert line.press(b"3") == ["3"]


@pytest.mark.parametrize(
    "sent",
    [b"\x1b[", b"\x1b]", b"\x1b[1", b"\x1bO", b"\x1bP", b"\x1b[M", b"\x1b[M 2", b"\x1b[["],
)
@pytest.mark.parametrize(
    ("pressed", "key"), [(b"\x03", "ctrl+c"), (b"\x11", "ctrl+q"), (b"\x1b[A", "up")]
)
def test_a_key_that_no_sequence_holds_ends_one(sent: bytes, pressed: bytes, key: str) -> None:
    assert LaggingLine().press(sent, pressed, b"k") == [key, "k"]


@pytest.mark.parametrize("begun", [b"\x1b]", b"\x1bP", b"\x1b_", b"\x1bX", b"\x1b^", b"\xc2\x9d"])
def test_alt_with_what_begins_an_answer_leaves_the_keys_behind_it(begun: bytes) -> None:
    line = LaggingLine()
    assert line.press(begun, b"t", b"3", b"t") == ["t", "3", "t"]
    # In one go it may be an answer; what is pressed later is none of it.
    assert line.press(begun + b"tt", b"t", b"3") == ["t", "3"]


def test_an_answer_that_a_line_tears_is_no_keys() -> None:
    line = LaggingLine()
    for torn in ((b"\x1b]", b"1", b"1;rgb:0", b"0/00\x07"), (b"\x1bP", b">", b"|vt\x1b", b"\\")):
        assert line.press(*torn, b"k") == ["k"]


def test_a_flood_after_an_escape_is_neither_keys_nor_kept() -> None:
    line = LaggingLine()
    assert line.press(b"\x1b[" + b"3" * 100_000, b"~", b"k") == ["k"]
    assert line.press(b"\x1b]" + b"t" * 100_000, b"\x07", b"k") == ["k"]


@pytest.mark.parametrize("at", range(1, 6))
def test_a_torn_end_of_a_paste_ends_it(at: int) -> None:
    line = LaggingLine()
    end = b"\x1b[201~"
    found = clean([*line.send(b"\x1b[200~t", 0.4), *line.send(b"u" + end[:at], 0.4)])
    assert found == []
    assert clean([*line.send(end[at:], 0.4), *line.send(b"k", 0.4)]) == ["tu", "k"]


def test_alt_is_read_where_a_keymap_names_it() -> None:
    arriving = TerminalInput(alt_keys={"alt+x"})
    found = [*arriving.feed(b"\x1bx\x1by")]
    found += arriving.feed(b"")
    assert [one.key for one in found if isinstance(one, Key)] == ["alt+x", "escape", "y"]
    assert LaggingLine({"alt+x"}).press(b"\x1bx", b"\x1b", b"x") == ["alt+x", "escape", "x"]


def test_a_paste_is_text_and_what_comes_after_it_is_keys() -> None:
    arriving = TerminalInput()
    found = [*arriving.feed(b"\x1b[200~a?b"), *arriving.feed(b"\x1b[201~\x1b?")]
    assert [type(one) for one in found] == [Paste, Key, Key]


def clean(found: list[Message]) -> list[str]:
    """Pastes as their text, keys by their names."""
    return [
        one.text if isinstance(one, Paste) else one.key
        for one in found
        if isinstance(one, Paste | Key)
    ]


_LONG_S = PASTE_SILENCE_S + 1.0


def tell(found: list[Message]) -> list[str]:
    """What is told of a paste that does not end."""
    return [type(one).__name__ for one in found if isinstance(one, PasteStalled | PasteDropped)]


@pytest.mark.parametrize("quiet_s", [1.0, _LONG_S, 600.0])
def test_a_paste_that_the_line_holds_up_is_a_paste_still(quiet_s: float) -> None:
    line = LaggingLine()
    found = line.send(b"\x1b[200~hello ", quiet_s)
    assert tell(found) == ["PasteStalled"] * (quiet_s > PASTE_SILENCE_S)
    found += line.send(b"3 t w\x1b", quiet_s) + line.send(b"q world 2\x1b[201~", quiet_s)
    assert clean(found) == ["hello 3 t w\x1bq world 2"]
    assert clean(line.send(b"k", 1.0)) == ["k"]


@pytest.mark.parametrize("sent", [b"abc", b"abc\x1b", b"abc\x1b[20", b"t" * 1100])
@pytest.mark.parametrize("key", [b"\x1b", b"\x1b\x1b", b"\x03", b"\x1b[27u", b"\x1b[99;5u"])
def test_a_key_leaves_a_paste_whose_end_does_not_come(
    sent: bytes, key: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("specdeck.console.terminal.input.LONGEST_PASTE", 1000)
    line = LaggingLine()
    assert tell(line.send(b"\x1b[200~" + sent, _LONG_S)) == ["PasteStalled"]
    found = [*line.send(b"3", 0.5), *line.send(b"q", 0.5)]  # the way out is not known yet
    found += line.send(key, 1.0)
    assert (clean(found), tell(found)) == ([], ["PasteDropped"])
    assert clean(line.send(b"q\x1b[200~p\x1b[201~\x11", 1.0)) == ["q", "p", "ctrl+q"]


def test_a_key_leaves_no_paste_that_goes_on() -> None:
    line = LaggingLine()
    found = [*line.send(b"\x1b[200~a", 1.0), *line.send(b"\x1b", 1.0)]
    assert [*clean(found), *tell(found)] == []
    assert clean(line.send(b"3\x1b[201~", 1.0)) == ["a\x1b3"]


@pytest.mark.parametrize("key", [b"\x03", b"\x1b[99;5u"])
@pytest.mark.parametrize("beside", [b"", b"\x1b[<35;42;17M", b"\x1b[I\x1b[<35;42;17M"])
def test_ctrl_c_pressed_twice_is_heard_within_any_paste(key: bytes, beside: bytes) -> None:
    line = LaggingLine()
    found = [*line.send(b"\x1b[200~abc", 1.5), *line.send(key + beside, 1.5)]
    found += line.send(beside, 0.4)
    assert [*clean(found), *tell(found)] == []
    found = line.send(beside + key, 0.4)
    assert (clean(found), tell(found)) == (["ctrl+c"], ["PasteDropped"])
    assert clean(line.send(b"q", 0.4)) == ["q"]


def test_ctrl_c_held_down_is_heard_within_a_paste_once_it_is_let_go() -> None:
    line = LaggingLine()
    found = line.send(b"\x1b[200~abc", 0.4)
    for _ in range(20):
        found += line.send(b"\x03", 0.0)
    assert clean(found) == []
    assert clean(line.send(b"", 0.3)) == ["ctrl+c"]


def test_keys_that_leave_no_paste_do_not_keep_it_open() -> None:
    line = LaggingLine()
    found = line.send(b"\x1b[200~abc", 1.5)
    while not tell(found):
        found += line.send(b"\x1b", 1.5) + line.send(b"\x1b[<35;4;2M", 0.2)
    found += line.send(b"\x1b", 0.4)
    assert tell(found) == ["PasteStalled", "PasteDropped"]


def test_ctrl_c_among_what_is_pasted_is_pasted() -> None:
    line = LaggingLine()
    line.send(b"\x1b[200~", 1.0)
    for piece in (b"a" * 4096, b"\x03", b"b\x03\x03", b"\x03", b"c" * 4096, b"\x03"):
        assert clean(line.send(piece, 0.4)) == []
    (text,) = clean(line.send(b"\x1b[201~", 1.0))
    assert text.replace("a", "").replace("c", "") == "\x03b" + "\x03" * 4


def test_an_end_of_a_paste_that_is_taken_for_the_escape_key_is_no_keys() -> None:
    line = LaggingLine()
    found = line.send(b"\x1b[200~a", _LONG_S) + line.send(b"\x1b", 0.4)
    assert tell(found) == ["PasteStalled", "PasteDropped"]
    assert clean(line.send(b"[201~k", 0.4)) == ["k"]


def test_a_paste_that_is_too_long_is_cut_and_its_rest_is_no_keys(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert LONGEST_PASTE > 100_000
    monkeypatch.setattr("specdeck.console.terminal.input.LONGEST_PASTE", 1000)
    line = LaggingLine()
    (paste,) = clean(line.send(b"\x1b[200~" + b"t" * 1010, 1.0))
    assert set(paste) == {"t"}
    assert clean(line.send(b"+++", _LONG_S)) == []
    assert clean(line.send(b"+++\x1b[201~q", 1.0)) == ["q"]
