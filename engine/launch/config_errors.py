"""Everything that is wrong with a config, not only the first thing."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from specdeck.engine.config.arguments import Arguments
from specdeck.engine.config.document import Document, Keys
from specdeck.engine.config.loading import checked
from specdeck.engine.errors import ConfigError

_MOST = 50
"""Errors that somebody reads in one go."""


def config_errors(document: Document, arguments: Arguments) -> list[ConfigError]:
    """The errors of a config, by line; empty for a good one.

    A config is read up to its first error. So each key that is in error is taken out and
    the rest read again, until nothing is wrong or an error belongs to no key.
    """
    found: dict[str, ConfigError] = {}
    left = document
    while len(found) < _MOST:
        try:
            checked(left, arguments)
            break
        except ConfigError as error:
            line = line_of(error, document.path)
            known = str(error) in found
            found.setdefault(str(error), error)
            keys = None if known or line is None else _culprit(left, line, str(error))
        if keys is None:
            break
        left = replace(left, data=without(left.data, keys))
    return sorted(found.values(), key=lambda error: line_of(error, document.path) or 0)


def line_of(error: ConfigError, path: Path) -> int | None:
    """The line that an error names; None when it names none.

    >>> line_of(ConfigError("a.yaml:7: unknown key `x`"), Path("a.yaml"))
    7
    """
    match = re.match(rf"{re.escape(str(path))}:(\d+):", str(error))
    return int(match[1]) if match else None


def without(data: dict[str, Any], keys: Keys) -> dict[str, Any]:
    """`data` less the value at `keys`; a model is only exchanged, since a config needs one.

    >>> without({"a": {"b": 1, "c": 2}, "model": 5}, ("a", "b"))
    {'a': {'c': 2}, 'model': 5}
    >>> without({"a": 1, "model": 5}, ("model",))
    {'a': 1, 'model': 'model'}
    """
    first, *rest = keys
    if not rest:
        left = {key: value for key, value in data.items() if key != first}
        return left | {"model": "model"} if first == "model" else left
    return data | {first: without(data[first], tuple(rest))}


def _culprit(document: Document, line: int, message: str) -> Keys | None:
    """The key on `line` that the error is about: one it names, or else the innermost."""
    there = [k for k, at in document.lines.items() if k and at == line and _has(document, k)]
    named = [keys for keys in there if f"`{keys[-1]}" in message]
    return max(named or there, key=len, default=None)


def _has(document: Document, keys: Keys) -> bool:
    value: object = document.data
    for key in keys:
        if not isinstance(value, dict) or key not in value:
            return False
        value = value[key]
    return True
