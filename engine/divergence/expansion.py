"""How long a regular expression is once its repetitions are written out.

The package `regex` writes them out when it compiles: each item as often as it has to come at
least. So a line of a prompts file can be an expression of gigabytes.
"""

from __future__ import annotations

import re
from math import inf

_TOKEN = re.compile(
    r"(?P<escaped>\\.)"
    r"|(?P<set>\[\^?\]?(?:[^\]\\]|\\.)*\]?)"
    r"|\{(?P<least>\d*)(?:,\d*)?\}"
    r"|(?P<mark>[()|])"
    r"|(?P<one>.)",
    re.DOTALL,
)
_HIDES = re.compile(r"\(\?(?:#|[a-zA-Z0-9]*x)")
"""Comments, and flags with which blanks are none: a repetition may be of what comes before them."""


def measure_expansion(pattern: str, *, most: int) -> float:
    """Items of `pattern` written out, at least those that it has; infinite for many more than
    `most`, and where comments may hide what is repeated.

    >>> [measure_expansion(text, most=1000) for text in ("ab{3}", "([ab]|c{2}){10}", "(a{99}){99}")]
    [4.0, 40.0, inf]
    """
    if len(pattern) > most:
        return inf
    outer: list[float] = []
    total = last = 0.0
    for token in _TOKEN.finditer(pattern):
        mark, least = token["mark"], token["least"]
        if mark == "(":
            if _HIDES.match(pattern, token.start()):
                return inf
            outer.append(total)
            total = last = 0.0
        elif mark == ")":
            last, total = total, total + (outer.pop() if outer else 0.0)
        elif least is not None:
            more = last * (max(1, _read(least)) - 1)
            last, total = last + more, total + more
        else:
            last, total = 1.0, total + 1.0
        if total > most:
            return inf
    return total + sum(outer)


def _read(digits: str) -> float:
    return inf if len(digits) > 9 else float(digits or 0)
