"""What a terminal sends: keys, and bytes that no keyboard sends."""

from __future__ import annotations

import pytest
from textual.events import Key, MouseDown, Paste, Resize
from textual.message import Message

from specdeck.console.terminal.input import LONGEST_PASTE, PASTE_SILENCE_S, TerminalInput


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


def read_after(delay_s: float, monkeypatch: pytest.MonkeyPatch, sent: bytes) -> list[str]:
    """The keys in what arrives, with nothing after it for so long."""
    now = 100.0
    monkeypatch.setattr("textual._parser.get_time", lambda: now)
    arriving = TerminalInput()
    found = [*arriving.feed(sent)]
    now += delay_s
    found += arriving.tick()
    return [message.key for message in found if isinstance(message, Key)]


@pytest.mark.parametrize(
    ("sent", "keys"),
    [
        (b"\x1b", ["escape"]),
        (b"\x1b[", ["escape", "left_square_bracket"]),
        (b"\x1b]", ["escape", "right_square_bracket"]),
        (b"\x1b[1", ["escape", "left_square_bracket", "1"]),
    ],
)
def test_a_sequence_that_never_ends_was_keys(
    sent: bytes, keys: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert read_after(1.0, monkeypatch, sent) == keys
    assert read_after(0.0, monkeypatch, sent) == []


def test_alt_is_read_where_a_keymap_names_it() -> None:
    arriving = TerminalInput(alt_keys={"alt+x"})
    found = [*arriving.feed(b"\x1bx\x1by")]
    found += arriving.feed(b"")
    assert [one.key for one in found if isinstance(one, Key)][-2:] == ["escape", "y"]


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


@pytest.mark.parametrize("sent", [b"abc", b"abc\x1b", b"abc\x1b[20"])
def test_a_paste_without_an_end_is_given_up_when_nothing_comes(sent: bytes) -> None:
    now = 100.0
    arriving = TerminalInput(clock=lambda: now)
    assert [*arriving.feed(b"\x1b[200~" + sent)] == []
    now += PASTE_SILENCE_S / 2
    assert not any(isinstance(one, Paste) for one in arriving.tick())
    now += PASTE_SILENCE_S
    (paste,) = clean([*arriving.tick()])
    assert paste.startswith("abc")
    assert clean([*arriving.feed(b"q\x1b[200~p\x1b[201~\x11")]) == ["q", "p", "ctrl+q"]


def test_a_paste_without_an_end_is_given_up_when_it_is_too_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("specdeck.console.terminal.input.LONGEST_PASTE", 1000)
    assert LONGEST_PASTE > 100_000
    now = 100.0
    arriving = TerminalInput(clock=lambda: now)
    (paste,) = clean([*arriving.feed(b"\x1b[200~" + b"t" * 1010)])
    assert set(paste) == {"t"}
    assert clean([*arriving.feed(b"+++\x1b[201~q")]) == ["q"]
    assert len(clean([*arriving.feed(b"\x1b[200~" + b"t" * 1010)])) == 1
    now += PASTE_SILENCE_S * 2
    assert clean([*arriving.tick(), *arriving.feed(b"q")]) == ["q"]
