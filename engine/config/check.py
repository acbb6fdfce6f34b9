"""Whether a value is of the kind that vLLM wants for an argument."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from difflib import get_close_matches

from specdeck.engine.config.arguments import Argument

_SIZE = re.compile(r"auto|-1|\d+(\.\d+)?[kKmMgGtT]?")
_WANTS = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "flag": "true or false",
    "str": "text",
    "size": "a whole number such as 4096 or 4k",
    "json": "a mapping or a list",
}


class Misfit(ValueError):
    """A value of the wrong kind; the text says what is wanted instead."""


def fitted(argument: Argument, value: object) -> object:
    """`value` as vLLM takes it; raises Misfit.

    >>> fitted(Argument("float"), "1e-3")
    0.001
    >>> fitted(Argument("int"), "five")
    Traceback (most recent call last):
    ...
    specdeck.engine.config.check.Misfit: a whole number
    """
    if argument.words != "one":
        values = value if isinstance(value, list) else [value]
        return [_one(argument, item) for item in values]
    return _one(argument, value)


def _one(argument: Argument, value: object) -> object:
    kind = argument.kind
    if kind == "any":
        return _finite(value)
    if kind == "float" and isinstance(value, str) and re.fullmatch(r"[\d.]+[eE]-?\d+", value):
        value = _number(value)  # YAML 1.1 reads 1e-3 as text
    if kind == "json" and isinstance(value, str):
        value = _json(value)
    if not _is(kind, value):
        raise Misfit(_WANTS[kind])
    if argument.choices and value not in argument.choices:
        raise Misfit(_one_of(argument.choices, value))
    return _finite(value)


def _is(kind: str, value: object) -> bool:
    if isinstance(value, bool):
        return kind in ("bool", "flag")
    if kind == "size" and isinstance(value, str):
        return _SIZE.fullmatch(value) is not None
    wanted: dict[str, type | tuple[type, ...]] = {
        "int": int,
        "size": int,
        "float": (int, float),
        "str": str,
        "json": (dict, list),
    }
    return kind in wanted and isinstance(value, wanted[kind])


def _finite(value: object) -> object:
    """JSON and vLLM have no use for .inf and .nan."""
    if isinstance(value, float) and not math.isfinite(value):
        raise Misfit("a finite number")
    inner: Iterable[object] = ()
    if isinstance(value, dict):
        inner = value.values()
    elif isinstance(value, list):
        inner = value
    for item in inner:
        _finite(item)
    return value


def _number(text: str) -> object:
    try:
        return float(text)
    except ValueError:
        return text


def _json(text: str) -> object:
    """vLLM itself takes such arguments as JSON text."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _one_of(choices: tuple[object, ...], value: object) -> str:
    near = nearest(str(value), [str(choice) for choice in choices])
    if near:
        return f"one of its {len(choices)} words (did you mean {near!r}?)"
    few = ", ".join(str(choice) for choice in choices[:8])
    return f"one of {few}{', …' if len(choices) > 8 else ''}"


def nearest(word: str, words: Iterable[str]) -> str | None:
    """The spelling in `words` that `word` was probably meant to be, or None.

    >>> nearest("numSpeculativeToken", ["num_speculative_tokens", "model"])
    'num_speculative_tokens'
    """
    snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", word[:100]).lower().replace("-", "_")
    found = get_close_matches(snake, sorted(words), n=1, cutoff=0.7)
    return found[0] if found else None
