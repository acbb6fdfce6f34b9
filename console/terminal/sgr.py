"""What characters are written with: SGR attributes as values, and the way from one to another."""

from __future__ import annotations

from functools import lru_cache
from typing import Final, NamedTuple


class Pen(NamedTuple):
    """Attributes and colours as SGR parameters; empty strings are the terminal's own."""

    attributes: frozenset[str] = frozenset()
    """Of 1 to 9, 21 and 53."""
    fore: str = ""
    back: str = ""


PLAIN: Final = Pen()

_SET: Final = frozenset({"1", "2", "3", "4", "5", "6", "7", "8", "9", "21", "53"})
_CLEARED: Final = {
    "22": {"1", "2"},
    "23": {"3"},
    "24": {"4", "21"},
    "25": {"5", "6"},
    "27": {"7"},
    "28": {"8"},
    "29": {"9"},
    "55": {"53"},
}
_SEEN_ON_SPACE: Final = frozenset({"4", "7", "9", "21", "53"})
"""Attributes that show where there is no glyph."""


@lru_cache(maxsize=4096)
def apply_sgr(pen: Pen, args: str) -> Pen | None:
    """The pen after `CSI args m`; None for parameters that are not known here.

    >>> apply_sgr(PLAIN, "1;38;2;1;2;3;40")
    Pen(attributes=frozenset({'1'}), fore='38;2;1;2;3', back='40')
    >>> apply_sgr(apply_sgr(PLAIN, "1"), "0") == PLAIN, apply_sgr(PLAIN, "58;5;1")
    (True, None)
    """
    attributes, fore, back = set(pen.attributes), pen.fore, pen.back
    codes = [code.lstrip("0") or "0" for code in args.split(";")]
    while codes:
        code = codes.pop(0)
        if code == "0":
            attributes, fore, back = set(), "", ""
        elif code in _SET:
            attributes.add(code)
        elif code in _CLEARED:
            attributes -= _CLEARED[code]
        elif code in ("38", "48"):
            length = {"5": 2, "2": 4}.get(codes[0] if codes else "")
            if length is None or len(codes) < length:
                return None
            colour = ";".join([code, *codes[:length]])
            del codes[:length]
            fore, back = (colour, back) if code == "38" else (fore, colour)
        elif code == "39":
            fore = ""
        elif code == "49":
            back = ""
        elif code.isdigit() and (30 <= int(code) <= 37 or 90 <= int(code) <= 97):
            fore = code
        elif code.isdigit() and (40 <= int(code) <= 47 or 100 <= int(code) <= 107):
            back = code
        else:
            return None
    return Pen(frozenset(attributes), fore, back)


@lru_cache(maxsize=4096)
def transition(old: Pen | None, new: Pen) -> str:
    """The shortest SGR sequence that turns `old` into `new`; None is not known.

    >>> transition(Pen(fore="31"), Pen(frozenset({"1"}), "32"))
    '\\x1b[1;32m'
    >>> transition(Pen(frozenset({"1"}), "31"), PLAIN), transition(None, PLAIN)
    ('\\x1b[m', '\\x1b[m')
    """
    if old == new:
        return ""
    full = [*sorted(new.attributes), *filter(None, (new.fore, new.back))]
    anew = "\x1b[" + ";".join(["0", *full] if full else []) + "m"
    if old is None or not old.attributes <= new.attributes:
        return anew
    steps = sorted(new.attributes - old.attributes)
    if old.fore != new.fore:
        steps.append(new.fore or "39")
    if old.back != new.back:
        steps.append(new.back or "49")
    return min(anew, "\x1b[" + ";".join(steps) + "m", key=len)


@lru_cache(maxsize=4096)
def on_space(pen: Pen) -> Pen:
    """The part of a pen that a space shows: it has no foreground of its own.

    >>> on_space(Pen(frozenset({"1"}), "31", "40"))
    Pen(attributes=frozenset(), fore='', back='40')
    """
    attributes = pen.attributes & _SEEN_ON_SPACE
    return Pen(attributes, pen.fore if attributes else "", pen.back)
