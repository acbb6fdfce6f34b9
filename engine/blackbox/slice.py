"""A part of a black box as a file of its own, which `History` opens as it opens the whole.

Windows stay what they were: they are computed anew from the same numbers. Texts may be changed on
their way, so that a file can leave the machine without what they quote.
"""

from __future__ import annotations

import json
import math
import sqlite3
import zlib
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from specdeck.engine.blackbox.block import MOST_WAITING
from specdeck.engine.blackbox.box import LARGEST_DOCUMENT, ROWS, write_block
from specdeck.engine.blackbox.file import open_for_writing, transaction, translate_errors
from specdeck.engine.blackbox.history import History
from specdeck.engine.blackbox.row import Damaged, Row
from specdeck.engine.errors import ConfigError, Place
from specdeck.engine.protocol.codec import loads

MOST_EVENTS: Final = 10_000

TextFilter = Callable[[str], str]
ValueFilter = Callable[[Any], Any]


def write_slice(
    history: History,
    path: Path,
    start: float,
    end: float,
    *,
    change_text: TextFilter = lambda text: text,
    change_value: ValueFilter = lambda value: value,
    on_progress: Callable[[float], None] = lambda share: None,
) -> int:
    """Writes what `history` has from `start` to `end`, Unix seconds, to a new file at `path`.

    How many readings that are. What led to `start` is in it as well where a moment cannot be told
    without it: cohorts, and the last document of each kind. `change_text` is given the texts of
    events and errors, `change_value` the JSON values of states, tuning and cohorts, which must keep
    their shape. The file is one, without a log beside it. Raises ConfigError where it cannot be
    written, or `path` is there already.
    """
    if path.exists():
        raise ConfigError("is there already", place=Place(path))
    db = open_for_writing(path)
    try:
        with translate_errors(path):
            with transaction(db):
                facts = [("url", change_text(history.url)), ("name", change_text(history.name))]
                db.executemany("INSERT INTO facts VALUES (?, ?)", facts)
                count = _copy_rows(
                    history, db, (start, end), _TemplateFilter(change_text, change_value),
                    on_progress,
                )  # fmt: skip
                _copy_events(history, db, (start, end), change_text)
                _copy_cohorts(history, db, (start, end), change_value)
                _copy_documents(history, db, (start, end), change_value)
            # One file that can be read from a folder that cannot be written to.
            db.execute("PRAGMA journal_mode = DELETE")
            db.execute("VACUUM")
    finally:
        db.close()
    return count


def _copy_rows(
    history: History,
    db: sqlite3.Connection,
    span: tuple[float, float],
    change: _TemplateFilter,
    on_progress: Callable[[float], None],
) -> int:
    last_n, count = 0, 0
    for base, rows in _cut_blocks(history.rows(*span)):
        kept = [_change_row(row, change) for row in rows]
        last_n += len(kept)
        try:
            write_block(db, None if base is None else _change_row(base, change), kept, last_n)
        except Damaged:
            last_n -= len(kept)  # as if nothing had been recorded then
            continue
        count += len(kept)
        if math.isfinite(span[0]) and span[1] > span[0]:
            on_progress(min(1.0, (rows[-1].t - span[0]) / (span[1] - span[0])))
    return count


def _cut_blocks(
    pairs: Iterator[tuple[Row, Row | None]],
) -> Iterator[tuple[Row | None, list[Row]]]:
    """Rows by blocks, each with the row before its first one.

    Where the row before another is not the one that stands before it, a block begins: its first
    window must not reach over what is missing.
    """
    base: Row | None = None
    rows: list[Row] = []
    size = 0
    for row, before in pairs:
        follows = bool(rows) and before is not None and _is_same(rows[-1], before)
        if rows and not (follows and len(rows) < ROWS and size < MOST_WAITING):
            yield base, rows
            rows, size = [], 0
        if not rows:
            base = before
        if not rows or rows[-1].template != row.template:
            size += len(row.template)
        size += 8 * len(row.numbers)
        rows.append(row)
    if rows:
        yield base, rows


def _is_same(one: Row, other: Row) -> bool:
    return one is other or (one.numbers == other.numbers and one.template == other.template)


def _change_row(row: Row, change: _TemplateFilter) -> Row:
    return Row(change(row.template), row.numbers)


class _TemplateFilter:
    """A row's template with its texts changed; its shape, on which the numbers stand, stays."""

    def __init__(self, change_text: TextFilter, change_value: ValueFilter) -> None:
        self._change_text, self._change_value = change_text, change_value
        self._changed = lru_cache(maxsize=64)(self._change)

    def __call__(self, template: str) -> str:
        """The template as it is to be written."""
        return self._changed(template)

    def _change(self, template: str) -> str:
        try:
            found = loads(template)
        except ValueError:
            return "{}"
        if not isinstance(found, dict):
            return "{}"
        for name in ("error", "control_error"):
            if isinstance(found.get(name), list):
                kind, *texts = found[name]
                found[name] = [
                    kind, *(self._change_text(t) if isinstance(t, str) else t for t in texts)
                ]  # fmt: skip
        for name in ("state", "gpus"):
            if found.get(name) is not None:
                found[name] = self._change_value(found[name])
        sample = found.get("sample")
        if isinstance(sample, dict) and isinstance(sample.get("model"), str):
            sample["model"] = self._change_text(sample["model"])
        return json.dumps(found, separators=(",", ":"))


def _copy_events(
    history: History, db: sqlite3.Connection, span: tuple[float, float], change: TextFilter
) -> None:
    def known(text: str | None) -> str | None:
        return None if text is None else change(text)

    db.executemany(
        "INSERT INTO events (t, kind, text, tone, label, origin, who, reason)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        [
            (one.t, one.kind, change(one.text), one.tone, known(one.label), one.origin,
             known(one.who), known(one.reason))
            for one in history.events(*span, MOST_EVENTS)
        ],
    )  # fmt: skip


def _copy_cohorts(
    history: History, db: sqlite3.Connection, span: tuple[float, float], change: ValueFilter
) -> None:
    for t, whole, step in history.cohort_steps(*span):
        data = zlib.compress(_as_text(change(step)))
        if len(data) <= LARGEST_DOCUMENT:
            db.execute(
                "INSERT INTO cohorts (t, whole, data) VALUES (?, ?, ?)", (t, int(whole), data)
            )


def _copy_documents(
    history: History, db: sqlite3.Connection, span: tuple[float, float], change: ValueFilter
) -> None:
    start, end = span
    for kind in history.document_kinds():
        before = history.documents(kind, -math.inf, math.nextafter(start, -math.inf), 1)
        for t, document in (*before, *history.documents(kind, start, end)):
            text = _as_text(change(document))
            if len(text) <= LARGEST_DOCUMENT:
                db.execute(
                    "INSERT INTO documents (t, kind, data) VALUES (?, ?, ?)",
                    (t, kind, zlib.compress(text)),
                )


def _as_text(document: Any) -> bytes:
    return json.dumps(document, separators=(",", ":"), sort_keys=True).encode("utf-8")
