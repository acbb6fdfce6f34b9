"""Text that would take over a terminal which obeys it, and what it has to come to."""

from __future__ import annotations

ESCAPES = (
    "\x1b]52;c;b3duZWQ=\x07",  # the clipboard
    "\x1b]0;owned\x07",  # the title
    "\x9b31m\x9d0;owned\x9c",  # the same without an escape character
    "\x1b[2J\x1b[H",  # an empty screen
    "\u202eabc\u2066",  # reads backwards
    "done\rspecdeck: forged",  # over the line itself
    "done\nspecdeck: forged",  # a line of its own
    "\u2028specdeck: forged",
    "\ud800",  # no terminal's encoding has it
)
PLANTED = "".join(ESCAPES)


def assert_harmless(text: str) -> None:
    """Fails where a terminal would do more with `text` than show its lines."""
    for line in text.split("\n"):
        assert line.isprintable(), ascii(line)
        assert not line.startswith("specdeck: forged"), line
