"""Parameters of the policies: how they are shown, and what an operator's words mean."""

from __future__ import annotations

import math

from specdeck.console.view.tuning import value
from specdeck.console.widgets.format import printable
from specdeck.engine.control.protocol import Value
from specdeck.engine.control.tuning import Parameter

_TRUTH = {"yes": True, "true": True, "on": True, "no": False, "false": False, "off": False}


def label(parameter: Parameter, width: int, names: int = 0) -> str:
    """One line of the list, where the longest name has `names` characters.

    >>> label(Parameter("goodput.margin", 0.03, 0.015, "number", doc="The least gain."), 60)
    'goodput.margin    0.03 *  The least gain.'
    """
    changed = "*" if parameter.value != parameter.default else " "
    text = f"{parameter.name:<{names}}  {value(parameter.value):>6} {changed}  {parameter.doc}"
    text = printable(text)
    return text if len(text) <= width else text[: width - 1] + "…"


def bounds(parameter: Parameter) -> str:
    """What it can be.

    >>> bounds(Parameter("a.b", 0.03, 0.015, "number", 0.0, 0.5))
    'a number from 0 to 0.5; 0.015 at the start'
    >>> bounds(Parameter("a.b", None, None, "whole", 1.0, None, optional=True))
    'a whole number from 1 up, or none; none at the start'
    """
    kind = {"whole": "a whole number", "number": "a number", "flag": "yes or no"}.get(
        parameter.kind, " or ".join(parameter.choices)
    )
    if parameter.low is not None:
        kind += f" from {parameter.low:g}"
        kind += " up" if parameter.high is None else f" to {parameter.high:g}"
    elif parameter.high is not None:
        kind += f" up to {parameter.high:g}"
    optional = ", or none" if parameter.optional else ""
    return f"{kind}{optional}; {value(parameter.default)} at the start"


def parsed(parameter: Parameter, text: str) -> Value:
    """What `text` sets it to; raises ValueError with the reason.

    How it goes together with the others is for the engine to say.

    >>> margin = Parameter("goodput.margin", 0.03, 0.015, "number", 0.0, 0.5)
    >>> parsed(margin, "0.02"), parsed(margin, "2%")
    (0.02, 0.02)
    >>> parsed(margin, "0.7")
    Traceback (most recent call last):
    ValueError: 0.7 is not a number from 0 to 0.5
    """
    words = text.strip().lower()
    if words in ("none", "") and parameter.optional:
        return "none"
    found = _value(parameter, words)
    if found is None or not _within(parameter, found):
        kind = bounds(parameter).partition(";")[0]
        raise ValueError(f"{text.strip() or 'nothing'} is not {kind}")
    return found


def _value(parameter: Parameter, words: str) -> Value | None:
    if parameter.kind == "flag":
        return _TRUTH.get(words)
    if parameter.kind == "word":
        return words if words in parameter.choices else None
    try:
        if parameter.kind == "whole":
            return int(words)
        if words.endswith("%"):
            return round(float(words[:-1]) / 100, 12)
        return float(words)
    except ValueError:
        return None


def _within(parameter: Parameter, found: Value) -> bool:
    if isinstance(found, str | bool):
        return True
    if isinstance(found, float) and not math.isfinite(found):
        return False
    low = parameter.low if parameter.low is not None else -math.inf
    high = parameter.high if parameter.high is not None else math.inf
    return low <= found <= high
