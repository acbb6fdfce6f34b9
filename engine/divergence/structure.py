"""What two structured answers disagree about, named by path."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from specdeck.engine.divergence.answer import Answer, Call

Kind = Literal["value", "type", "key", "invalid"]
"""Another value, another type, a key or item that only one has, JSON that only one can parse."""

_MISSING = object()


@dataclass(frozen=True, slots=True)
class Change:
    """One place at which the serving arm says something else than the reference."""

    path: str
    kind: Kind
    reference: Any
    """A JSON value; None as well where there is none."""
    serving: Any

    def line(self) -> str:
        """One line for the operator.

        >>> Change("limit", "value", 50, 500).line()
        'limit: 50 → 500'
        """
        if self.kind == "invalid":
            return f"{self.path}: not JSON in one of the arms"
        return f"{self.path}: {_shown(self.reference)} → {_shown(self.serving)}"

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


def changes(reference: Answer, serving: Answer) -> tuple[Change, ...]:
    """Where tool calls, or answers that are JSON as a whole, differ; none for plain text."""
    if reference.calls or serving.calls:
        return tuple(_calls(reference.calls, serving.calls))
    before, after = _parsed(reference.text), _parsed(serving.text)
    if not isinstance(before, dict | list) and not isinstance(after, dict | list):
        return ()
    if before is _MISSING or after is _MISSING:
        return (Change("$", "invalid", None, None),)
    return tuple(differences(before, after))


def differences(before: Any, after: Any, path: str = "") -> Iterator[Change]:
    """Every leaf at which two JSON values differ.

    >>> [c.line() for c in differences({"limit": 50, "q": ["a"]}, {"limit": 500, "q": ["a", "b"]})]
    ['limit: 50 → 500', 'q[1]: – → "b"']
    >>> [c.kind for c in differences({"n": 1}, {"n": "1"})]
    ['type']
    """
    here = path or "$"
    if before is _MISSING or after is _MISSING:
        yield Change(here, "key", _value(before), _value(after))
    elif isinstance(before, dict) and isinstance(after, dict):
        for key in dict.fromkeys((*before, *after)):
            deeper = f"{path}.{key}" if path else str(key)
            yield from differences(before.get(key, _MISSING), after.get(key, _MISSING), deeper)
    elif isinstance(before, list) and isinstance(after, list):
        for n in range(max(len(before), len(after))):
            yield from differences(_item(before, n), _item(after, n), f"{path}[{n}]")
    elif type(before) is not type(after):
        yield Change(here, "type", before, after)
    elif before != after:
        yield Change(here, "value", before, after)


def _calls(before: Sequence[Call], after: Sequence[Call]) -> Iterator[Change]:
    several = max(len(before), len(after)) > 1
    for n in range(max(len(before), len(after))):
        prefix = f"calls[{n}]" if several else ""
        old, new = _item(before, n), _item(after, n)
        if not isinstance(old, Call) or not isinstance(new, Call):
            names = (one.name if isinstance(one, Call) else None for one in (old, new))
            yield Change(f"calls[{n}]", "key", *names)
            continue
        if old.name != new.name:
            yield Change(f"{prefix}.name" if prefix else "name", "value", old.name, new.name)
        yield from _arguments(old.arguments, new.arguments, prefix)


def _arguments(before: str, after: str, prefix: str) -> Iterator[Change]:
    if before == after:
        return
    old, new = _parsed(before), _parsed(after)
    if old is _MISSING or new is _MISSING:
        yield Change(f"{prefix}.arguments" if prefix else "arguments", "invalid", None, None)
    else:
        yield from differences(old, new, prefix)


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return _MISSING


def _item(values: Sequence[Any], n: int) -> Any:
    return values[n] if n < len(values) else _MISSING


def _value(value: Any) -> Any:
    return None if value is _MISSING else value


def _shown(value: Any) -> str:
    return "–" if value is None else json.dumps(value, ensure_ascii=False)
