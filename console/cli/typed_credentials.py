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
_SHORTEST_PIECE = 6
"""Characters between two slashes that are told from a word of the message around them."""


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

    def hide(self, text: str) -> str:
        """`text` without them."""
        for part, shown in self._parts:
            text = text.replace(part, shown)
        return text

    def hide_all(self, value: Any) -> Any:
        """A JSON value without them."""
        if isinstance(value, str):
            return self.hide(value)
        if isinstance(value, list | tuple):
            return [self.hide_all(one) for one in value]
        if isinstance(value, dict):
            return {key: self.hide_all(one) for key, one in value.items()}
        return value


def _spell(part: str) -> Iterator[str]:
    """How an error may have `part`: quoted, as a path, or cut where a path has its folders.

    >>> sorted({*_spell("?sig=Zq9s/AK01e")})
    ['/AK01e', '?sig=Zq9s', '?sig=Zq9s/', '?sig=Zq9s/AK01e']
    """
    yield from (part, repr(part)[1:-1])
    path = _SLASHES.sub("/", part)
    yield path
    for slash in re.finditer("/", path):
        for piece in (path[: slash.start()], path[: slash.end()], path[slash.start() :]):
            if len(piece) >= _SHORTEST_PIECE:
                yield piece
    yield from (one for one in path.split("/") if len(one) >= _SHORTEST_PIECE)


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
