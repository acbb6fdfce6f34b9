"""The reader of a black box, while it is written or long after, and of a slice of one.

What lies in the file is not trusted: a part of it that cannot be read is left out as if nothing had
been recorded then, and `damage` says so.
"""

from __future__ import annotations

import math
import time
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from specdeck.engine.blackbox import cohort_steps
from specdeck.engine.blackbox.event import BoxEvent
from specdeck.engine.blackbox.file import find_last_write, is_at, translate_errors
from specdeck.engine.blackbox.patience import Patience
from specdeck.engine.blackbox.recorded_rows import RecordedRows
from specdeck.engine.blackbox.row import (
    Damaged,
    Row,
)
from specdeck.engine.blackbox.stretch import Stretch
from specdeck.engine.blackbox.summary import (
    MINUTE_S,
    Figures,
    OverviewColumn,
    Summary,
    by_minute,
)
from specdeck.engine.errors import ConfigError, Place
from specdeck.engine.metrics.reading import Reading
from specdeck.engine.metrics.window import Window, between
from specdeck.engine.protocol.codec import loads, read_record
from specdeck.engine.protocol.cohorts import Cohorts
from specdeck.engine.protocol.messages import EngineState

MOST_EVENTS: Final = 1_000
MOST_COLUMNS: Final = 10_000
_MOST_UNPACKED: Final = 8_000_000
"""Bytes of a document, or of a step of cohorts, unpacked."""
_MOST_OF_STEPS: Final = 40_000_000
"""Bytes of all steps that lead to the cohorts of one moment: half an hour of an engine that drafts
seven tokens has five million at most."""
_LONGEST: Final = 2_000
COPIED_S: Final = 60.0
"""For which a copy is used before the file is looked at again."""


class History:
    """What a black box has recorded; may be used from several threads.

    Opening raises ConfigError for a file that is none of specdeck's, UsageError for one of a newer
    specdeck. Asking raises ConfigError where the file has gone meanwhile.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._rows = RecordedRows(path)
        try:
            with translate_errors(path, remedy=None):
                self._about = path.lstat()
                self._written, self._opened = find_last_write(path.resolve()), time.monotonic()
            facts = dict(self._rows.ask("SELECT name, value FROM facts LIMIT 100"))
            url = facts.get("url")
            if not isinstance(url, str) or len(url) > _LONGEST:
                raise ConfigError("it names no engine", place=Place(path))
            name = facts.get("name")
            self.url = url
            """The engine's, without credentials."""
            self.name = name if isinstance(name, str) and 0 < len(name) <= _LONGEST else _host(url)
            """What people call it."""
        except BaseException:
            self._rows.close()
            raise

    @property
    def is_copied(self) -> bool:
        """Whether this is a copy, as of when it was opened, of a file that others can write."""
        return self._rows.are_copied

    def is_current(self) -> bool:
        """Whether this is still what lies at its path; True where that cannot be told.

        A copy is so for a minute after something was added.
        """
        try:
            is_old = self.is_copied and time.monotonic() - self._opened > COPIED_S
            if is_old and find_last_write(self.path.resolve()) != self._written:
                return False
            return is_at(self._about, self.path)
        except OSError:
            return True

    def limit_waiting(self, patience: Patience) -> None:
        """Has what the main thread waits longer for be left out, as damage."""
        self._rows.patience = patience

    @property
    def damage(self) -> str | None:
        """What could not be read so far, as one line; None while all could."""
        return self._rows.damage

    @property
    def first(self) -> float:
        """Unix time of the first reading; NaN without any."""
        return min(self._rows.edges("MIN(first)", "MIN(t)"), default=math.nan)

    @property
    def last(self) -> float:
        """Unix time of the last reading; NaN without any."""
        return max(self._rows.edges("MAX(last)", "MAX(t)"), default=math.nan)

    def readings(self, start: float, end: float) -> Iterator[Reading]:
        """The readings from `start` to `end`, both included, in the order in which they were taken.

        Windows are as they were live: None at the beginning, across a restart and where readings
        are missing.
        """
        with self._rows.wait() as is_over:
            for stretch in self._rows.stretches(start, end):
                for index in stretch.indices:
                    if is_over():
                        return
                    self._rows.refuse_closed()
                    if start <= stretch.times[index] <= end:
                        reading = self._read(stretch, index)
                        if reading is not None:
                            yield reading

    def reading_at(self, t: float) -> Reading | None:
        """The last reading at or before `t`, with its window; None before the first one."""
        found = self._rows.find(t)
        return None if found is None else self._read(*found)

    def last_state(
        self, start: float, end: float, *, instance: str | None = None
    ) -> EngineState | None:
        """The plugin's last word from `start` to `end`, Unix seconds; with `instance` the last one
        of that life of the engine. None where it said nothing."""
        found = None
        for reading in self.readings(start, end):
            state = reading.state
            if state is not None and instance in (None, state.instance):
                found = state
        return found

    def window(self, start: float, end: float) -> Window | None:
        """The work between the last samples at or before `start` and `end`.

        None where there is no sample, or it is the same one, and across a restart.
        """
        older, newer = self._rows.find_sampled(start), self._rows.find_sampled(end)
        if older is None or newer is None or older.n >= newer.n:
            return None
        was, now = older.places, newer.places
        if None not in (was.instance, now.instance) and was.instance != now.instance:
            return None
        if self._rows.has_restart(older, newer):
            return None
        before, after = older.sample(), newer.sample()
        if before is None or after is None:
            return None
        if was.clock is None or was.clock != now.clock:
            before, after = replace(before, at=before.t), replace(after, at=after.t)
        return between(before, after)

    def overview(self, start: float, end: float, columns: int) -> tuple[OverviewColumn, ...]:
        """What a chart from `start` to `end` shows, in so many columns of the same width.

        Columns of a minute and more are made of whole minutes. Raises ValueError for no time, or
        no columns.
        """
        if not (end > start and 1 <= columns <= MOST_COLUMNS):
            raise ValueError("an overview of no time, or in no columns")
        width = (end - start) / columns
        sums = [Summary() for _ in range(columns)]

        def find_sum(t: float) -> Summary:
            return sums[min(max(int((t - start) / width), 0), columns - 1)]

        if width >= MINUTE_S:
            for minute, found in self._minutes(start, end):
                find_sum((minute + 0.5) * MINUTE_S).merge(found)
        else:
            with self._rows.wait() as is_over:
                for stretch in self._rows.stretches(start, end):
                    if is_over():
                        break
                    for figures in self._figures(stretch):
                        if start <= figures.t <= end:
                            find_sum(figures.t).add(figures)
        edges = [start + width * i for i in range(columns)] + [end]
        return tuple(found.column(edges[i], edges[i + 1]) for i, found in enumerate(sums))

    def events(self, start: float, end: float, limit: int = MOST_EVENTS) -> tuple[BoxEvent, ...]:
        """The events from `start` to `end`, the oldest first; of more than `limit` the newest."""
        return self._events("t >= ? AND t <= ? ORDER BY t DESC, n DESC", (start, end), limit)[::-1]

    def next_event(self, t: float) -> BoxEvent | None:
        """The first event after `t`; None where there is none. Bare marks are passed over."""
        found = self._events("t > ? AND text != '' ORDER BY t, n", (t,), 1)
        return found[0] if found else None

    def previous_event(self, t: float) -> BoxEvent | None:
        """The last event before `t`, as `next_event`."""
        found = self._events("t < ? AND text != '' ORDER BY t DESC, n DESC", (t,), 1)
        return found[0] if found else None

    def cohorts_at(self, t: float) -> Cohorts | None:
        """What finished requests had done at `t`, in that life of the engine.

        None where it was not recorded, or the engine has restarted since. Cells stand in no
        particular order.
        """
        last = self._rows.ask(
            "SELECT n FROM cohorts WHERE t <= ? ORDER BY t DESC, n DESC LIMIT 1", (t,)
        )
        if not last:
            return None
        steps = self._rows.ask(
            "SELECT data FROM cohorts WHERE n <= ?1 AND n >="
            " (SELECT MAX(n) FROM cohorts WHERE whole AND n <= ?1) ORDER BY n LIMIT ?2",
            (last[0][0], cohort_steps.MOST_STEPS + 1),
        )
        try:
            found = cohort_steps.read_steps(self._unpack_steps(data for (data,) in steps))
        except Damaged as error:
            self._rows.note(f"cohorts: {error}")
            return None
        reading = self.reading_at(t)
        if found is None or reading is None or reading.state is None:
            return found
        return found if reading.state.instance == found.instance else None

    def documents(
        self, kind: str, start: float, end: float, limit: int = 100
    ) -> tuple[tuple[float, dict[str, Any]], ...]:
        """Documents of one kind with their Unix times, the oldest first; see `add_document`."""
        rows = self._rows.ask(
            "SELECT t, data FROM documents WHERE kind = ? AND t >= ? AND t <= ?"
            " ORDER BY t DESC, n DESC LIMIT ?",
            (kind, start, end, limit),
        )
        found = []
        for t, data in reversed(rows):
            try:
                found.append((float(t), _unpack(data)))
            except (Damaged, TypeError, ValueError) as error:
                self._rows.note(f"{kind}: {error}")
        return tuple(found)

    def document_at(self, kind: str, t: float) -> dict[str, Any] | None:
        """The last document of a kind at or before `t`; None without any."""
        found = self.documents(kind, -math.inf, t, 1)
        return found[0][1] if found else None

    def rows(self, start: float, end: float) -> Iterator[tuple[Row, Row | None]]:
        """The rows of `readings`, as they are stored, each with the one before where it is known:
        for a copy of a part."""
        for stretch in self._rows.stretches(start, end):
            for index in stretch.indices:
                if start <= stretch.times[index] <= end:
                    yield stretch.row(index), stretch.row(index - 1) if index else None

    def cohort_steps(
        self, start: float, end: float
    ) -> Iterator[tuple[float, bool, dict[str, Any]]]:
        """Time, whether it is whole, and what is written of cohorts, from what leads to `start` to
        `end`: for a copy of a part."""
        rows = self._rows.ask(
            "SELECT n, t, whole FROM cohorts WHERE t <= ?1 AND n >= COALESCE((SELECT MAX(n) FROM"
            " cohorts WHERE whole AND t <= ?2), 0) ORDER BY n LIMIT 100000",
            (end, start),
        )
        for n, t, whole in rows:
            for (data,) in self._rows.ask("SELECT data FROM cohorts WHERE n = ?", (n,)):
                try:
                    yield float(t), bool(whole), _unpack(data)
                except (Damaged, TypeError, ValueError) as error:
                    self._rows.note(f"cohorts: {error}")

    def document_kinds(self) -> tuple[str, ...]:
        """The kinds of documents that there are."""
        rows = self._rows.ask("SELECT DISTINCT kind FROM documents ORDER BY kind LIMIT 100")
        return tuple(kind for (kind,) in rows if isinstance(kind, str))

    def close(self) -> None:
        """Lets go of the file."""
        self._rows.close()

    def _unpack_steps(self, steps: Iterable[object]) -> Iterator[dict[str, Any]]:
        """As `_unpack`, of one moment; raises ConfigError once this is closed."""
        left = _MOST_OF_STEPS
        for data in steps:
            self._rows.refuse_closed()
            text = _unpack_text(data, min(left, _MOST_UNPACKED))
            left -= len(text)
            yield _read_document(text)

    def _read(self, stretch: Stretch, index: int) -> Reading | None:
        try:
            return stretch.reading(index, self.url)
        except Damaged as error:
            self._rows.note(str(error))
            return None

    def _figures(self, stretch: Stretch) -> list[Figures]:
        try:
            return stretch.figures()
        except Damaged as error:
            self._rows.note(str(error))
            return []

    def _minutes(self, start: float, end: float) -> Iterator[tuple[int, Summary]]:
        """Summaries of the minutes, those of what is in no block yet among them."""
        first, last = math.floor(start / MINUTE_S), math.floor(end / MINUTE_S)
        with self._rows.lock:
            rows = self._rows.ask(
                "SELECT * FROM minutes WHERE minute >= ? AND minute <= ? LIMIT 100000",
                (first, last),
            )
            tail = self._rows.tail()
        for minute, *values in rows:
            try:
                yield minute, Summary.of_values(values)
            except (TypeError, ValueError) as error:
                self._rows.note(f"a minute: {error}")
        if tail is not None:
            for minute, found in by_minute(self._figures(tail)).items():
                if first <= minute <= last:
                    yield minute, found

    def _events(self, which: str, values: Sequence[float], limit: int) -> tuple[BoxEvent, ...]:
        names = ("t", "kind", "text", "tone", "label", "origin", "who", "reason")
        rows = self._rows.ask(
            f"SELECT {', '.join(names)} FROM events WHERE {which} LIMIT ?", (*values, limit)
        )
        found = []
        for row in rows:
            try:
                event = read_record(BoxEvent, dict(zip(names, row, strict=True)))
                found.append(event.shorten())
            except ValueError as error:
                self._rows.note(f"an event: {error}")
        return tuple(found)


def _unpack(data: object) -> dict[str, Any]:
    """A compressed JSON object; raises Damaged for anything else."""
    return _read_document(_unpack_text(data, _MOST_UNPACKED))


def _unpack_text(data: object, most: int) -> bytes:
    """What is compressed in `data`, of at most so many bytes; raises Damaged."""
    if not isinstance(data, bytes):
        raise Damaged("no document")
    unpacker = zlib.decompressobj()
    try:
        text = unpacker.decompress(data, max(1, most))
    except zlib.error as error:
        raise Damaged(str(error)) from None
    if unpacker.unconsumed_tail or not unpacker.eof:
        raise Damaged("a document that is cut short, or too large")
    return text


def _read_document(text: bytes) -> dict[str, Any]:
    try:
        found = loads(text)
    except ValueError as error:
        raise Damaged(str(error)) from None
    if not isinstance(found, dict):
        raise Damaged("a document that is no object")
    return found


def _host(url: str) -> str:
    try:
        return urlsplit(url).netloc or url
    except ValueError:
        return url
