"""Knobs as `specdeck set` takes them: `k=3 mode=target-only goodput.margin=0.02`."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from specdeck.engine.client.command_options import NO_OPTIONS, CommandOptions
from specdeck.engine.errors import UsageError
from specdeck.engine.protocol.messages import FALLBACKS, KNOBS, MODES, POLICIES, Change, Value
from specdeck.engine.text import find_nearest

WORDS: dict[str, tuple[str, ...]] = {
    "mode": MODES,
    "policy": POLICIES,
    "fallback": FALLBACKS,
    "breaker": ("open", "closed", "probe"),
}
_BLOCKS = ("goodput", "threshold", "breaker", "trial", "baseline")
_NUMBER = re.compile(r"-?\d{1,18}(\.\d{1,18})?([eE][-+]?\d{1,2})?")
_NAME = re.compile(r"[a-z0-9_]{1,40}(\.[a-z0-9_]{1,40}){0,3}")
_MOST_DIGITS = 9
"""Of a k: more than any engine's buffers, and fewer than Python refuses to read."""


def parse_assignments(assignments: Sequence[str]) -> Change:
    """The change that the words ask for; raises UsageError on nonsense.

    >>> parse_assignments(["k=3", "mode=speculate", "goodput.margin=0.02"]).knobs()
    {'k': 3, 'mode': 'speculate', 'goodput.margin': 0.02}
    """
    found: dict[str, Any] = {}
    parameters: dict[str, Value] = {}
    for assignment in assignments:
        name, equals, value = (part.strip() for part in assignment.partition("="))
        dotted = name.partition(".")[0] in _BLOCKS and "." in name
        if not equals or not (dotted or name in ("k", *WORDS)):
            raise UsageError(
                f"{assignment!r} cannot be set",
                remedy="give k=N, mode=…, policy=…, breaker=…, fallback=… or a parameter such as "
                "goodput.margin=0.02",
            )
        if name in found or name in parameters:
            raise UsageError(f"{name} is given twice", remedy="say it once")
        if dotted:
            parameters[name] = _value(name, value)
        else:
            found[name] = _k(value) if name == "k" else _word(name, value)
    if found.get("breaker") == "probe":
        found.update(breaker="open", probe=True)
    return Change(**found, parameters=parameters or None)


def _value(name: str, text: str) -> Value:
    """A parameter's value; the engine knows what it can be.

    >>> [_value("x", text) for text in ("2", "0.5", "true", "none", "always")]
    [2, 0.5, True, 'none', 'always']
    """
    if text in ("true", "false"):
        return text == "true"
    if _NUMBER.fullmatch(text) and text.isascii():
        return int(text) if text.lstrip("-").isdecimal() else float(text)
    if not text.isalpha():
        raise UsageError(f"{name}={text[:40]} is not a value", remedy="give a number or a word")
    return text


def _k(value: str) -> int:
    if not (value.isascii() and value.isdecimal() and len(value) <= _MOST_DIGITS):
        raise UsageError(
            f"k={value[:40]} is not a number of tokens", remedy="give 0 or more, such as k=3"
        )
    return int(value)


def _word(name: str, value: str) -> str:
    if value in WORDS[name]:
        return value
    near = find_nearest(value, WORDS[name])
    remedy = f"did you mean {name}={near}?" if near else f"give {' or '.join(WORDS[name])}"
    raise UsageError(f"there is no {name} {value!r}", remedy=remedy)


def format_argument(value: object) -> str:
    """A value as `specdeck set` takes it.

    >>> format_argument(None), format_argument(True), format_argument(0.5)
    ('none', 'true', '0.5')
    """
    if isinstance(value, bool):
        return str(value).lower()
    return "none" if value is None else str(value)


def format_undo(url: str, knobs: Mapping[str, object]) -> str:
    """The command that brings `knobs` back, fit to be pasted into a shell.

    The knobs are an engine's word: one that `specdeck set` would not take is left out. Empty
    where none is left.

    >>> format_undo("http://gpu-1:8000", {"k": 5, "mode": "speculate"})
    'specdeck set http://gpu-1:8000 k=5 mode=speculate'
    >>> format_undo("http://gpu-1:8000", {"goodput.max_draft_length": None, "breaker": "closed"})
    'specdeck set http://gpu-1:8000 breaker=closed goodput.max_draft_length=none'
    >>> format_undo("http://gpu-1:8000", {"mode": "speculate; reboot", "--reason": "x"})
    ''
    """
    names = [name for name, value in knobs.items() if _can_be_set(name, value)]
    names.sort(key=lambda name: (KNOBS.index(name) if name in KNOBS else 9, name))
    words = (f"{name}={format_argument(knobs[name])}" for name in names)
    return shlex.join(["specdeck", "set", url, *words]) if names else ""


def format_set(url: str, change: Change, options: CommandOptions = NO_OPTIONS) -> str:
    """The `specdeck set` that asks the engine at `url` for the same; empty where none does.

    `options` are what the command has to be given for the engine.

    >>> format_set("http://gpu-1:8000", Change(k=3, mode="speculate"))
    'specdeck set http://gpu-1:8000 k=3 mode=speculate'
    >>> format_set("http://gpu-1:8000", Change(k=3, trial_s=40.0, reason="night shift"))
    "specdeck set http://gpu-1:8000 k=3 --trial 40 --reason 'night shift'"
    >>> format_set("http://gpu-1:8000", Change(cancel=True))
    ''
    """
    command = format_undo(url, change.knobs())
    if not command or change.cancel or change.renew:
        return ""
    words = []
    if change.trial_s is not None:
        words += ["--trial", f"{change.trial_s:g}"]
    elif change.lease_s is not None:
        words += ["--lease", f"{change.lease_s:g}"]
    if change.reason:
        words += ["--reason", change.reason]
    words += options.steering
    return " ".join([command, *([shlex.join(words)] if words else [])])


def _can_be_set(name: str, value: object) -> bool:
    if not isinstance(value, int | float | str | None) or not _NAME.fullmatch(name):
        return False
    argument = format_argument(value)
    try:
        parse_assignments([f"{name}={argument}"])
    except UsageError:
        return False
    return argument.isascii() and argument.isprintable() and len(argument) <= 40
