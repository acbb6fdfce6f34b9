"""The credentials within what was typed, which no error repeats, whatever it was typed for.

An address with a password is typed where an engine belongs, a file, a time or nothing at all, and
the errors of all of these quote it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

_REPLACED = "…"
_HAS_PORT = re.compile(r"[^\s/?#=]+:\d+(?:/[^\s?#]*)?(?=[?#])")
"""What is an address though it has no scheme; a file's name may have a `#`."""
_NAME = re.compile(r"\A-{0,2}[A-Za-z][\w.\-]*=")
"""Of an option or a parameter, whose error may quote its value alone."""
_USERINFO = re.compile(r".*@|[^/?#]*(?:%40|[\uff20\ufe6b])", re.DOTALL)
"""Also with an `@` that is encoded, or that only looks like one."""
_SLASHES = re.compile(r"/{2,}")
_RUN = 6
"""Characters of a part that are hidden wherever they stand: errors cut long values, and paths at
their slashes. Fewer of them are told from a word of the message too seldom.
"""


class TypedCredentials:
    """What of a command's words is not to be repeated.

    >>> typed = TypedCredentials(["stop", "http://ops:hunter2@gpu-1:8000/?api_key=s3"])
    >>> typed.hide("no engine 'http://ops:hunter2@gpu-1:8000/?api_key=s3'")
    "no engine 'http://…@gpu-1:8000/…'"
    """

    def __init__(self, words: Sequence[str]) -> None:
        found = {
            spelt: shown
            for word in words
            for part, shown in _find_parts(word)
            for spelt in _spell(part)
        }
        self._parts = sorted(found.items(), key=lambda one: -len(one[0]))
        self._runs = {
            folded[at : at + _RUN]
            for folded in map(_fold, found)
            for at in range(len(folded) - _RUN + 1)
        }

    def hide(self, text: str) -> str:
        """`text` without them, and without any `_RUN` characters of one.

        >>> TypedCredentials(["k=http://gpu-1/?sig=Zq9sAK01e"]).hide("k=http://gpu-1/?sig=Zq9 is")
        'k=http://gpu-1/… is'
        """
        for part, shown in self._parts:
            text = text.replace(part, shown)
        folded, end = _fold(text), 0
        kept: list[str] = []
        for at in range(len(folded) - _RUN + 1):
            if folded[at : at + _RUN] in self._runs:
                if at > end or not kept:
                    kept += [text[end:at], _REPLACED]
                end = at + _RUN
        return "".join([*kept, text[end:]])

    def hide_all(self, value: Any) -> Any:
        """A JSON value without them."""
        if isinstance(value, str):
            return self.hide(value)
        if isinstance(value, list | tuple):
            return [self.hide_all(one) for one in value]
        if isinstance(value, dict):
            return {key: self.hide_all(one) for key, one in value.items()}
        return value


def _spell(part: str) -> tuple[str, str, str]:
    """How an error may have the whole of `part`: as it is, quoted, or as a path."""
    return part, repr(part)[1:-1], _SLASHES.sub("/", part)


def _fold(text: str) -> str:
    """`text` in small letters, of the same length: a host's name is shown in them.

    >>> _fold("Zq\u0130")
    'zq\u0130'
    """
    return "".join(small if len(small := one.lower()) == 1 else one for one in text)


def _find_parts(word: str) -> Iterator[tuple[str, str]]:
    """What is not to be repeated of a word, and what is shown in its place.

    >>> list(_find_parts("--port=ops:pw@h:1")), list(_find_parts("h:1/?key=s"))
    ([('ops:pw@', '…@')], [('?key=s', '…')])
    >>> list(_find_parts("on call: ana@h")), list(_find_parts("a#1.yaml")), list(_find_parts("k=3"))
    ([], [], [])
    """
    word = _NAME.sub("", word)
    _, mark, rest = word.partition("://")
    if not mark:
        if any(map(str.isspace, word)):
            return
        rest = word
    user = _USERINFO.match(rest)
    if user is not None and (mark or ":" in user[0]):
        yield user[0], f"{_REPLACED}@"
        rest = rest[user.end() :]
    if mark or _HAS_PORT.match(rest):
        begun = min((rest.find(one) for one in "?#" if one in rest), default=-1)
        if 0 <= begun < len(rest) - 1:
            yield rest[begun:], _REPLACED
