"""How numbers, times, changes and foreign text are written; what is not known is `–`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches

from specdeck.engine.errors import UsageError

UNKNOWN = "–"


def printable(text: str, stand_in: Callable[[str], str] = lambda character: "·") -> str:
    """`text` without what would move a terminal's cursor, or could not be sent to it.

    Escape sequences, line breaks, marks that turn the direction of writing and halves of
    surrogate pairs: each character gives way to its `stand_in`.

    >>> printable("a\\x9b\\u202eb\\ud800"), printable("a\\x9bb", lambda character: "")
    ('a··b·', 'ab')
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else stand_in(c) for c in text)


def oneline(text: str) -> str:
    """A message on one line, whatever it brings along.

    >>> oneline("a\\n  b"), oneline("\\x1b[2J")
    ('a b', '·[2J')
    """
    return printable(" ".join(text.split()))


_MARKDOWN = str.maketrans(
    {**{mark: f"\\{mark}" for mark in "\\`*_[]|~$#"}, "&": "&amp;", "<": "&lt;", ">": "&gt;"}
)


def escape_markdown(text: str) -> str:
    """`text` on one line that Markdown shows as it is: no link, picture, cell or HTML of its own.

    >>> print(escape_markdown("k_max <b>|\\n[a](http://b)"))
    k\\_max &lt;b&gt;\\| \\[a\\](http\\://b)
    """
    # Bare addresses become links where there is nothing in between.
    return oneline(text).translate(_MARKDOWN).replace("://", "\\://").replace("www.", "www\\.")


def format_value(value: object) -> str:
    """A value, or the dash of what is not known.

    >>> format_value(3), format_value(None)
    ('3', '–')
    """
    return UNKNOWN if value is None else str(value)


def format_percent(share: float | None) -> str:
    """A share of 0 to 1, in hundredths of a percent.

    >>> format_percent(0.012), format_percent(None)
    ('1.20%', '–')
    """
    return UNKNOWN if share is None else f"{share:.2%}"


def format_count(number: int, noun: str) -> str:
    """A number of things.

    >>> format_count(1, "prompt"), format_count(3, "prompt")
    ('1 prompt', '3 prompts')
    """
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def format_bytes(size: float) -> str:
    """An amount of memory.

    >>> format_bytes(3 * 2**29), format_bytes(5 * 2**20)
    ('1.5 GiB', '5 MiB')
    """
    return f"{size / 2**30:.1f} GiB" if size >= 2**30 / 10 else f"{size / 2**20:.0f} MiB"


def format_duration(seconds: float | None) -> str:
    """A stretch of time in its two largest units.

    >>> [format_duration(s) for s in (None, 0.4, 12, 75, 3660, 90_000)]
    ['–', '0 s', '12 s', '1 min 15 s', '1 h 1 min', '1 d 1 h']
    """
    if seconds is None:
        return UNKNOWN
    whole = max(0, int(seconds))
    units = ((86_400, "d"), (3600, "h"), (60, "min"), (1, "s"))
    parts: list[str] = []
    for size, unit in units:
        amount, whole = divmod(whole, size)
        if amount or (parts and unit != "s") or unit == "s":
            parts.append(f"{amount} {unit}")
        if len(parts) == 2:
            break
    return " ".join(part for i, part in enumerate(parts) if i == 0 or not part.startswith("0 "))


def parse_duration(text: str) -> float:
    """How long `text` is, in seconds; raises UsageError for what is no duration.

    >>> parse_duration("24h"), parse_duration("90s"), parse_duration("1.5d")
    (86400.0, 90.0, 129600.0)
    """
    units = {"s": 1, "m": 60, "h": 3600, "d": 86400}
    number, unit = text[:-1], text[-1:]
    try:
        found = float(number) * units[unit]
    except (KeyError, ValueError):
        found = 0.0
    if not 0 < found < float("inf"):
        raise UsageError(f"{text} is no time between checks", remedy="give one such as 24h or 30m")
    return found


def format_change(before: object, after: object) -> str:
    """From what to what.

    >>> format_change(5, 3), format_change(None, "1")
    ('5 → 3', '– → 1')
    """
    return f"{format_value(before)} → {format_value(after)}"


def format_changes(
    before: Mapping[str, object], after: Mapping[str, object], *, moved_only: bool = False
) -> str:
    """What `after` makes of `before`, by name; with `moved_only` without what stays as it is.

    >>> format_changes({"k": 8, "policy": "goodput"}, {"k": 3, "policy": "fixed"})
    'k 8 → 3, policy goodput → fixed'
    >>> format_changes({"k": 3, "fallback": "warm"}, {"k": 3, "fallback": "cold"}, moved_only=True)
    'fallback warm → cold'
    >>> format_changes({"k": 3}, {"k": 3, "policy": "fixed"})
    'k 3, policy fixed'
    """
    words = []
    for name, value in after.items():
        if name not in before or before[name] == value:
            if name not in before or not moved_only:
                words.append(f"{name} {format_value(value)}")
        else:
            words.append(f"{name} {format_change(before[name], value)}")
    return ", ".join(words)


def format_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Lines with columns as wide as their widest cell; a cell is one line, whatever it is of.

    >>> format_table(("NAME", "K"), [("demo", "5"), ("a\\nb", "–")])
    ['NAME  K', 'demo  5', 'a b   –']
    """
    lines = [tuple(head), *(tuple(map(oneline, row)) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    ]


def find_nearest(word: str, words: Iterable[str]) -> str | None:
    """The spelling in `words` that `word` was probably meant to be, or None.

    >>> find_nearest("numSpeculativeToken", ["num_speculative_tokens", "model"])
    'num_speculative_tokens'
    """
    snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", word[:100]).lower().replace("-", "_")
    found = get_close_matches(snake, sorted(words), n=1, cutoff=0.7)
    return found[0] if found else None
