"""The Markdown of an incident's page: text of others, tables, times.

Every word of an engine's or a person's is escaped, and has an end.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from specdeck.engine.incident.material import Material, Span
from specdeck.engine.protocol.cohorts import CohortCounts
from specdeck.engine.text import UNKNOWN, escape_markdown, oneline

LocalTime = Callable[[float], time.struct_time]

LONGEST: Final = 400
"""Characters of what others wrote."""


class Clock:
    """The times of a page; with their day where it is about more than one."""

    def __init__(self, span: Span, local: LocalTime) -> None:
        self.local = local
        days = {time.strftime("%Y-%m-%d", local(t)) for t in (span.start, span.end)}
        self._form = "%H:%M:%S" if len(days) == 1 else "%m-%d %H:%M:%S"

    def __call__(self, t: float) -> str:
        """One moment, of Unix time in seconds."""
        return time.strftime(self._form, self.local(t))

    def list_times(self, times: Sequence[float]) -> str:
        """Several of them, the last five by name."""
        shown = ", ".join(map(self, times[-5:]))
        return shown if len(times) <= 5 else f"{shown} and {len(times) - 5} times before"


def shorten(value: Any) -> str:
    """A value of an engine's as text that has an end.

    >>> shorten({"k": 3, "mode": None}), shorten([0.123456, "a"])
    ('k 3, mode –', '0.1235, a')
    """
    if value is None:
        return UNKNOWN
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, Mapping):
        value = ", ".join(f"{name} {shorten(one)}" for name, one in value.items())
    elif isinstance(value, list | tuple):
        value = ", ".join(shorten(one) for one in value)
    text = oneline(str(value))
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def escape(text: str) -> str:
    """Text of others, cut where nobody reads on."""
    shown = text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"
    return escape_markdown(shown)


def format_rows(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """A table, a line a row; its cells are escaped already."""
    return [
        f"| {' | '.join(head)} |",
        f"|{'---|' * len(head)}",
        *(f"| {' | '.join(row)} |" for row in rows),
    ]


def format_acceptance(counts: CohortCounts | None) -> str:
    """The acceptance of some requests, in whole percent."""
    acceptance = None if counts is None else counts.acceptance
    return UNKNOWN if acceptance is None else f"{acceptance:.0%}"


def explain_missing(made: Material, name: str, otherwise: str) -> str:
    """Why a section has nothing: the reason that `name` was not had, or else another one."""
    return f"Not told: {escape(made.missing.get(name, otherwise))}"
