"""What a terminal sends: keys, and bytes that no keyboard sends."""

from __future__ import annotations

import pytest
from textual.events import Key, Paste, Resize

from specdeck.console.terminal.input import TerminalInput


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


def test_a_size_that_nobody_can_draw_is_left_out() -> None:
    arriving = TerminalInput()
    found = arriving.feed(b"\x1b[48;999999;999999;9;9t\x1b[48;30;100;600;1000t\x1b[48;0;0;0;0t")
    sizes = [one.size for one in found if isinstance(one, Resize)]
    assert sizes == [(100, 30)]
