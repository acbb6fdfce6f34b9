"""API keys and admin tokens, which show themselves to nobody but the request that carries them."""

from __future__ import annotations

import hmac
import re
from collections.abc import Mapping
from functools import cache
from typing import Any

from specdeck.engine.errors import UsageError

_REPLACED = "…"
_SHORTEST = 8
"""Characters from which on a secret is taken out of a text; a shorter one is part of words."""

_UNMISTAKABLE = 16
"""Characters from which on nothing but the secret itself is spelt like it; a shorter one, such as
the name of a product, is hidden in an answer where it stands alone."""

_A_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_CONVENTIONAL = re.compile(r"[A-Z_][A-Z0-9_]*")
_OF_A_KEY = re.compile(r"(?=[A-Z]*[0-9])[A-Z0-9]{16}|[A-Z0-9]{24}")
"""A key in capitals, such as AKIAIOSFODNN7EXAMPLE; words of names are shorter, or have no digit."""

_texts: set[str] = set()


class Secret:
    """A key or a token; `reveal` alone gives its text.

    >>> Secret("correct-horse"), f"{Secret('correct-horse')}", len(Secret("battery").reveal())
    (Secret(…), 'Secret(…)', 7)
    """

    __slots__ = ("_text",)

    def __init__(self, text: str, *, source: str = "the secret") -> None:
        """`source` is where it comes from, for the error.

        Raises UsageError, which does not quote it, for what no header can carry: an empty
        text, and anything but printable ASCII.
        """
        if not (text and text.isascii() and text.isprintable()):
            raise UsageError(
                f"{source} is not printable ASCII, so no request can carry it",
                remedy="check it for a stray character or a wrong encoding",
            )
        self._text = text
        if len(text) >= _SHORTEST:
            _texts.add(text)

    def reveal(self) -> str:
        """The text, for the header of a request and for nothing else."""
        return self._text

    def __repr__(self) -> str:
        return f"Secret({_REPLACED})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and hmac.compare_digest(self._text, other._text)

    def __hash__(self) -> int:
        return hash(self._text)


def refuse_no_name(variable: str, environment: Mapping[str, str], *, option: str) -> None:
    """Raises UsageError for what names no variable, without quoting it: it may be the secret.

    Most keys could be names. One that is not set counts as a name only where it is spelt as
    they are, in capitals, and no part of it is as long and mixed as a key's.
    """
    if variable in environment and _A_NAME.fullmatch(variable):
        return
    if not _CONVENTIONAL.fullmatch(variable) or _OF_A_KEY.search(variable):
        raise UsageError(
            f"{option} takes the name of an environment variable, and what it was given is none",
            remedy="export the secret in a variable, and name that",
        )


def hide_secrets(text: str) -> str:
    """`text`, such as a traceback, without any secret of this process.

    >>> key = Secret("correct-horse")
    >>> hide_secrets("illegal header value b'Bearer correct-horse'")
    "illegal header value b'Bearer …'"
    """
    for secret in sorted(_texts, key=len, reverse=True):
        text = text.replace(secret, _REPLACED)
    return text


def is_echoed(body: bytes) -> bool:
    """Whether a secret of this process may be in `body`, JSON or plain text.

    JSON can spell a character in other ways, so that one with a backslash may be.
    """
    return bool(_texts) and (b"\\" in body or any(text.encode() in body for text in _texts))


def hide_echoes(value: Any) -> Any:
    """A JSON value of an answer without any secret of this process: it was sent with the question.

    Gateways quote the headers of what they refuse, and nobody knows who an engine is.

    >>> key = Secret("correct-horse")
    >>> hide_echoes({"detail": ["no such key: Bearer correct-horse."], "correct-horse-2": 3})
    {'detail': ['no such key: Bearer ….'], 'correct-horse-2': 3}
    """
    if isinstance(value, str):
        for text in sorted(_texts, key=len, reverse=True):
            if text in value:
                value = _echo(text).sub(_REPLACED, value)
        return value
    if isinstance(value, list):
        return [hide_echoes(one) for one in value]
    if isinstance(value, dict):
        return {hide_echoes(key): hide_echoes(one) for key, one in value.items()}
    return value


def has_replaced_part(value: Any) -> bool:
    """Whether `hide_echoes` may have changed a JSON value into this one.

    >>> key = Secret("correct-horse")
    >>> [has_replaced_part(hide_echoes({"a": [text]})) for text in ("correct-horse", "plain")]
    [True, False]
    """
    if isinstance(value, str):
        return bool(_texts) and _REPLACED in value
    if isinstance(value, list):
        return any(map(has_replaced_part, value))
    if isinstance(value, dict):
        return any(has_replaced_part(key) or has_replaced_part(one) for key, one in value.items())
    return False


@cache
def _echo(text: str) -> re.Pattern[str]:
    spelt = re.escape(text)
    alone = rf"(?<![\w./-]){spelt}(?!\.?[\w:/-])"
    return re.compile(spelt if len(text) >= _UNMISTAKABLE else alone)
