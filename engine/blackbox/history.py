"""The reader of a black box, while it is written or long after, and of a slice of one.

What lies in the file is not trusted: a part of it that cannot be read is left out as if nothing had
been recorded then, and `damage` says so.
"""

from __future__ import annotations

import math
import sqlite3
import threading
import time
import zlib
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from specdeck.engine.blackbox import cohort_steps
from specdeck.engine.blackbox.block import Block
from specdeck.engine.blackbox.event import BoxEvent
from specdeck.engine.blackbox.file import QUERY_S, limit_time, open_for_reading
from specdeck.engine.blackbox.row import (
    Damaged,
    Places,
    Row,
    find_places,
    join,
    read_sample,
    unpack_numbers,
)
from specdeck.engine.blackbox.summary import (
    MINUTE_S,
    Figures,
    OverviewColumn,
    Summary,
    by_minute,
    figures_of,
)
from specdeck.engine.errors import ConfigError, Place
from specdeck.engine.metrics.reading import Reading
from specdeck.engine.metrics.sample import Sample
from specdeck.engine.metrics.window import Window, between
from specdeck.engine.protocol.codec import loads, read_record
from specdeck.engine.protocol.cohorts import Cohorts
from specdeck.engine.text import oneline

MOST_EVENTS: Final = 1_000
MOST_COLUMNS: Final = 10_000
_BLOCKS: Final = 4
"""Blocks that are kept unpacked."""
_MOST_UNREADABLE: Final = 50
"""Blocks in a row that cannot be read, or are not of the time that they say, before a search for a
moment gives up."""
_MOST_UNSAMPLED: Final = 1_000
"""Blocks in a row without an answer of the engine's, before the search for one gives up: three days
and a half of readings a second apart."""
_MOST_TAIL: Final = 4_096
"""Rows that are in no block yet; a writer keeps 300."""
_MOST_UNPACKED: Final = 8_000_000
"""Bytes of a document, or of a step of cohorts, unpacked."""
_LONGEST: Final = 2_000


class _Stretch:
    """Rows one after the other, of a block or of those that are in none yet."""

    def __init__(self, first_n: int, base: int, block: Block | None, rows: Sequence[Row] = ()):
        self.first_n = first_n
        """The number of the first row that is its own."""
        self.base = base
        """How many rows before it are there for the first window."""
        self._block = block
        self._rows = tuple(rows)
        self.times = block.times if block is not None else tuple(row.t for row in rows)

    @property
    def indices(self) -> range:
        """Where its own rows are."""
        return range(self.base, len(self.times))

    @property
    def last_n(self) -> int:
        """The number of the last row."""
        return self.first_n + len(self.times) - self.base - 1

    def row(self, index: int) -> Row:
        """One row."""
        return self._rows[index] if self._block is None else self._block.row(index)

    def template(self, index: int) -> str:
        """The template of one row."""
        return self._rows[index].template if self._block is None else self._block.template(index)

    def reading(self, index: int, url: str) -> Reading:
        """One row as its reading, with its window."""
        return join(self.row(index), self.row(index - 1) if index else None, url)

    def has_restart(self, first: int, last: int) -> bool:
        """Whether one of these rows says that the engine was restarted. Raises Damaged."""
        return any(find_places(self.template(i)).restarted for i in range(first, last + 1))

    def figures(self) -> list[Figures]:
        """What charts need of each row of its own."""
        if self._block is None:
            return [_figures(self._rows[i], self._rows[i - 1] if i else None) for i in self.indices]
        places = [find_places(self.template(i)) for i in range(len(self.times))]
        wanted = sorted({at for one in places for at in _list_places(one)})
        columns = {at: self._block.numbers(at) for at in wanted}
        found = []
        for i in self.indices:
            now, then = places[i], places[i - 1] if i else _NOWHERE
            found.append(_figures_at(self.times[i], now, then, columns, i))
        return found


_NOWHERE: Final = Places(False, False, False, None, None)


def _list_places(places: Places) -> list[int]:
    named = (places.at, places.generated, places.drafted, places.accepted)
    return [at for at in named if at is not None]


def _figures(row: Row, before: Row | None) -> Figures:
    older = _NOWHERE if before is None else find_places(before.template)
    numbers = () if before is None else before.numbers
    return figures_of(row.t, find_places(row.template), row.numbers, older, numbers)


def _figures_at(
    t: float, now: Places, then: Places, columns: Mapping[int, Sequence[float]], i: int
) -> Figures:
    """The same of a row whose numbers lie in columns."""
    if not now.joined or not then.up:
        return Figures(t)

    def rise(at: int | None, before: int | None) -> float | None:
        if at is None or before is None:
            return None
        found = columns[at][i] - columns[before][i - 1]
        return found if math.isfinite(found) else None

    return Figures(
        t,
        rise(now.at, then.at),
        rise(now.generated, then.generated),
        rise(now.drafted, then.drafted),
        rise(now.accepted, then.accepted),
    )


class History:
    """What a black box has recorded; may be used from several threads.

    Opening raises ConfigError for a file that is none of specdeck's, UsageError for one of a newer
    specdeck. Asking raises ConfigError where the file has gone meanwhile.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.damage: str | None = None
        """What could not be read so far, as one line; None while all could."""
        self._lock = threading.RLock()
        self._blocks: OrderedDict[int, _Stretch] = OrderedDict()
        self._db = open_for_reading(path)
        try:
            facts = dict(self._ask("SELECT name, value FROM facts LIMIT 100"))
            url = facts.get("url")
            if not isinstance(url, str) or len(url) > _LONGEST:
                raise ConfigError("it names no engine", place=Place(path))
            name = facts.get("name")
            self.url = url
            """The engine's, without credentials."""
            self.name = name if isinstance(name, str) and 0 < len(name) <= _LONGEST else _host(url)
            """What people call it."""
        except BaseException:
            self._db.close()
            raise

    @property
    def first(self) -> float:
        """Unix time of the first reading; NaN without any."""
        return min(self._edges("MIN(first)", "MIN(t)"), default=math.nan)

    @property
    def last(self) -> float:
        """Unix time of the last reading; NaN without any."""
        return max(self._edges("MAX(last)", "MAX(t)"), default=math.nan)

    def readings(self, start: float, end: float) -> Iterator[Reading]:
        """The readings from `start` to `end`, both included, in the order in which they were taken.

        Windows are as they were live: None at the beginning, across a restart and where readings
        are missing.
        """
        for stretch in self._stretches(start, end):
            for index in stretch.indices:
                if start <= stretch.times[index] <= end:
                    reading = self._read(stretch, index)
                    if reading is not None:
                        yield reading

    def reading_at(self, t: float) -> Reading | None:
        """The last reading at or before `t`, with its window; None before the first one."""
        found = self._find(t)
        return None if found is None else self._read(*found)

    def window(self, start: float, end: float) -> Window | None:
        """The work between the last samples at or before `start` and `end`.

        None where there is no sample, or it is the same one, and across a restart.
        """
        older, newer = self._sampled_at(start), self._sampled_at(end)
        if older is None or newer is None or older.n >= newer.n:
            return None
        was, now = older.places, newer.places
        if None not in (was.instance, now.instance) and was.instance != now.instance:
            return None
        if self._has_restart(older, newer):
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
            for stretch in self._stretches(start, end):
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
        last = self._ask("SELECT n FROM cohorts WHERE t <= ? ORDER BY t DESC, n DESC LIMIT 1", (t,))
        if not last:
            return None
        steps = self._ask(
            "SELECT data FROM cohorts WHERE n <= ?1 AND n >="
            " (SELECT MAX(n) FROM cohorts WHERE whole AND n <= ?1) ORDER BY n LIMIT ?2",
            (last[0][0], cohort_steps.MOST_STEPS + 1),
        )
        try:
            found = cohort_steps.read_steps(_unpack(data) for (data,) in steps)
        except Damaged as error:
            self._note(f"cohorts: {error}")
            return None
        reading = self.reading_at(t)
        if found is None or reading is None or reading.state is None:
            return found
        return found if reading.state.instance == found.instance else None

    def documents(
        self, kind: str, start: float, end: float, limit: int = 100
    ) -> tuple[tuple[float, dict[str, Any]], ...]:
        """Documents of one kind with their Unix times, the oldest first; see `add_document`."""
        rows = self._ask(
            "SELECT t, data FROM documents WHERE kind = ? AND t >= ? AND t <= ?"
            " ORDER BY t DESC, n DESC LIMIT ?",
            (kind, start, end, limit),
        )
        found = []
        for t, data in reversed(rows):
            try:
                found.append((float(t), _unpack(data)))
            except (Damaged, TypeError, ValueError) as error:
                self._note(f"{kind}: {error}")
        return tuple(found)

    def document_at(self, kind: str, t: float) -> dict[str, Any] | None:
        """The last document of a kind at or before `t`; None without any."""
        found = self.documents(kind, -math.inf, t, 1)
        return found[0][1] if found else None

    def rows(self, start: float, end: float) -> Iterator[tuple[Row, Row | None]]:
        """The rows of `readings`, as they are stored, each with the one before where it is known:
        for a copy of a part."""
        for stretch in self._stretches(start, end):
            for index in stretch.indices:
                if start <= stretch.times[index] <= end:
                    yield stretch.row(index), stretch.row(index - 1) if index else None

    def cohort_steps(
        self, start: float, end: float
    ) -> Iterator[tuple[float, bool, dict[str, Any]]]:
        """Time, whether it is whole, and what is written of cohorts, from what leads to `start` to
        `end`: for a copy of a part."""
        rows = self._ask(
            "SELECT n, t, whole FROM cohorts WHERE t <= ?1 AND n >= COALESCE((SELECT MAX(n) FROM"
            " cohorts WHERE whole AND t <= ?2), 0) ORDER BY n LIMIT 100000",
            (end, start),
        )
        for n, t, whole in rows:
            for (data,) in self._ask("SELECT data FROM cohorts WHERE n = ?", (n,)):
                try:
                    yield float(t), bool(whole), _unpack(data)
                except (Damaged, TypeError, ValueError) as error:
                    self._note(f"cohorts: {error}")

    def document_kinds(self) -> tuple[str, ...]:
        """The kinds of documents that there are."""
        rows = self._ask("SELECT DISTINCT kind FROM documents ORDER BY kind LIMIT 100")
        return tuple(kind for (kind,) in rows if isinstance(kind, str))

    def close(self) -> None:
        """Lets go of the file."""
        with self._lock:
            self._db.close()

    def _ask(self, question: str, values: Sequence[Any] = ()) -> list[Any]:
        """The rows of an answer; none, and a note of the damage, where the file is damaged."""
        try:
            with self._lock, limit_time(self._db):
                return self._db.execute(question, tuple(values)).fetchall()
        except (sqlite3.Error, OverflowError, UnicodeError) as error:
            self._note(str(error))
            return []

    def _note(self, damage: str) -> None:
        if self.damage is None:
            self.damage = f"{self.path} is damaged: {oneline(damage)[:200]}"

    def _edges(self, of_blocks: str, of_rows: str) -> list[float]:
        """The outermost times."""
        found = self._ask(f"SELECT {of_blocks} FROM blocks") + self._ask(
            f"SELECT {of_rows} FROM rows"
        )
        return [t for (t,) in found if isinstance(t, float) and math.isfinite(t)]

    def _stretches(self, start: float, end: float) -> Iterator[_Stretch]:
        """What may have readings from `start` to `end`, in the order in which it was recorded."""
        after = 0
        while True:
            with self._lock:
                numbers = self._list_blocks(after, start, end)
                tail = None if numbers else self._tail()
            for first_n in numbers:
                found = self._load(first_n)
                if found is not None:
                    yield found
                after = first_n
            if not numbers:
                break
        if tail is not None:
            yield tail

    def _list_blocks(self, after: int, start: float, end: float) -> list[int]:
        asked = (
            "SELECT first_n FROM blocks {} WHERE first_n > ? AND first <= ? AND last >= ?"
            " ORDER BY first_n {} LIMIT 10000"
        )
        values = (after, end, start)
        if self.damage is None:
            rows = self._ask(asked.format("", ""), values)
            if self.damage is None:
                return [n for (n,) in rows]
        # Where a page is missing, from both ends as far as it goes.
        found = self._ask_while(asked.format("NOT INDEXED", ""), values)
        found += self._ask_while(asked.format("NOT INDEXED", "DESC"), values)
        return sorted({n for (n,) in found})

    def _ask_while(self, question: str, values: Sequence[Any]) -> list[Any]:
        """The rows of an answer up to where the file is damaged."""
        found: list[Any] = []
        try:
            with self._lock, limit_time(self._db):
                for row in self._db.execute(question, tuple(values)):
                    found.append(row)
        except (sqlite3.Error, UnicodeError) as error:
            self._note(str(error))
        return found

    def _load(self, first_n: int) -> _Stretch | None:
        """One block; None where it cannot be read."""
        with self._lock:
            known = self._blocks.get(first_n)
            if known is not None:
                self._blocks.move_to_end(first_n)
                return known
            rows = self._ask("SELECT base, data FROM blocks WHERE first_n = ?", (first_n,))
        if not rows:
            return None
        base, data = rows[0]
        try:
            if base not in (0, 1) or not isinstance(data, bytes):
                raise Damaged("a block without rows")
            found = _Stretch(first_n, base, Block(data))
            if not found.indices:
                raise Damaged("a block without rows")
        except Damaged as error:
            self._note(str(error))
            return None
        with self._lock:
            self._blocks[first_n] = found
            while len(self._blocks) > _BLOCKS:
                self._blocks.popitem(last=False)
        return found

    def _tail(self) -> _Stretch | None:
        """What is in no block yet; None where there is nothing."""
        rows = self._ask(
            "SELECT n, (SELECT MAX(last_n) FROM blocks WHERE typeof(last_n) = 'integer'),"
            " template, numbers FROM rows ORDER BY n LIMIT ?",
            (_MOST_TAIL,),
        )
        found: list[Row] = []
        template, base, first_n = "", 0, 0
        try:
            for n, folded, own, numbers in rows:
                template = own if isinstance(own, str) else template
                find_places(template)
                found.append(Row(template, unpack_numbers(numbers)))
                if folded is not None and n <= folded:
                    base += 1
                elif not first_n:
                    first_n = n
        except Damaged as error:
            self._note(str(error))
        if len(found) <= base:
            return None
        return _Stretch(first_n, base, None, found)

    def _read(self, stretch: _Stretch, index: int) -> Reading | None:
        try:
            return stretch.reading(index, self.url)
        except Damaged as error:
            self._note(str(error))
            return None

    def _figures(self, stretch: _Stretch) -> list[Figures]:
        try:
            return stretch.figures()
        except Damaged as error:
            self._note(str(error))
            return []

    def _find(self, t: float) -> tuple[_Stretch, int] | None:
        """The last row at or before `t`, and what it lies in."""
        with self._lock:
            tail = self._tail()
            before = _MOST_N if tail is None else tail.first_n
            if tail is not None:
                found = _last_at(tail, t)
                if found is not None:
                    return tail, found
        for _ in range(_MOST_UNREADABLE):
            stretch = self._block_before(before, t)
            if stretch is None:
                return None
            before = stretch.first_n
            found = _last_at(stretch, t)
            if found is not None:
                return stretch, found
        self._note("blocks of another time than they say")
        return None

    def _block_before(self, n: int, t: float = math.inf) -> _Stretch | None:
        """The last block that can be read, before number `n`, of those that begin by `t`."""
        for _ in range(_MOST_UNREADABLE):
            earlier = self._number_before(n, t)
            if earlier is None:
                return None
            n = earlier
            found = self._load(n)
            if found is not None:
                return found
        return None

    def _number_before(self, n: int, t: float) -> int | None:
        rows = self._ask("SELECT MAX(first_n) FROM blocks WHERE first <= ? AND first_n < ?", (t, n))
        if self.damage is not None:
            # By number, not by the index, from which a page may be missing; and where one of the
            # blocks themselves is, from both ends as far as it goes.
            rows = self._ask_while(
                "SELECT first_n FROM blocks NOT INDEXED WHERE first <= ? AND first_n < ?"
                " ORDER BY first_n DESC LIMIT 1",
                (t, n),
            )
            if not rows:
                known = [one for one in self._list_blocks(0, -math.inf, t) if one < n]
                rows = [(max(known, default=None),)]
        return rows[0][0] if rows else None

    def _sampled_at(self, t: float) -> _Place | None:
        """The last row with a sample at or before `t`."""
        found = self._find(t)
        if found is None:
            return None
        stretch, index = found
        ends = time.monotonic() + QUERY_S
        for _ in range(_MOST_UNSAMPLED):
            if time.monotonic() > ends:
                self._note("a search for an answer that took too long")
                break
            while index >= stretch.base:
                if find_places(stretch.template(index)).up:
                    return _Place(stretch, index)
                index -= 1
            earlier = self._block_before(stretch.first_n)
            if earlier is None:
                return None
            stretch, index = earlier, len(earlier.times) - 1
        return None

    def _has_restart(self, older: _Place, newer: _Place) -> bool:
        """Whether the engine was restarted after `older`, up to `newer`."""
        if older.stretch.first_n == newer.stretch.first_n:
            return newer.stretch.has_restart(older.index + 1, newer.index)
        between_them = self._ask(
            "SELECT COALESCE(SUM(breaks), 0) FROM blocks WHERE first_n > ? AND first_n < ?",
            (older.stretch.first_n, newer.stretch.first_n),
        )
        return (
            any(breaks for (breaks,) in between_them)
            or older.stretch.has_restart(older.index + 1, len(older.stretch.times) - 1)
            or newer.stretch.has_restart(newer.stretch.base, newer.index)
        )

    def _minutes(self, start: float, end: float) -> Iterator[tuple[int, Summary]]:
        """Summaries of the minutes, those of what is in no block yet among them."""
        first, last = math.floor(start / MINUTE_S), math.floor(end / MINUTE_S)
        with self._lock:
            rows = self._ask(
                "SELECT * FROM minutes WHERE minute >= ? AND minute <= ? LIMIT 100000",
                (first, last),
            )
            tail = self._tail()
        for minute, *values in rows:
            try:
                yield minute, Summary.of_values(values)
            except (TypeError, ValueError) as error:
                self._note(f"a minute: {error}")
        if tail is not None:
            for minute, found in by_minute(self._figures(tail)).items():
                if first <= minute <= last:
                    yield minute, found

    def _events(self, which: str, values: Sequence[float], limit: int) -> tuple[BoxEvent, ...]:
        names = ("t", "kind", "text", "tone", "label", "origin", "who", "reason")
        rows = self._ask(
            f"SELECT {', '.join(names)} FROM events WHERE {which} LIMIT ?", (*values, limit)
        )
        found = []
        for row in rows:
            try:
                event = read_record(BoxEvent, dict(zip(names, row, strict=True)))
                found.append(event.shorten())
            except ValueError as error:
                self._note(f"an event: {error}")
        return tuple(found)


_MOST_N: Final = 2**62


@dataclass(frozen=True, slots=True)
class _Place:
    """One row of a stretch."""

    stretch: _Stretch
    index: int

    @property
    def n(self) -> int:
        """Its number in the file."""
        return self.stretch.first_n + self.index - self.stretch.base

    @property
    def places(self) -> Places:
        """What its template says."""
        return find_places(self.stretch.template(self.index))

    def sample(self) -> Sample | None:
        """Its sample; None where that is damaged."""
        try:
            return read_sample(self.stretch.row(self.index))
        except Damaged:
            return None


def _last_at(stretch: _Stretch, t: float) -> int | None:
    """The last own row at or before `t`; None without one."""
    return next((i for i in reversed(stretch.indices) if stretch.times[i] <= t), None)


def _unpack(data: object) -> dict[str, Any]:
    """A compressed JSON object; raises Damaged for anything else."""
    if not isinstance(data, bytes):
        raise Damaged("no document")
    unpacker = zlib.decompressobj()
    try:
        text = unpacker.decompress(data, _MOST_UNPACKED)
        if unpacker.unconsumed_tail or not unpacker.eof:
            raise Damaged("a document that is cut short, or too large")
        found = loads(text)
    except (zlib.error, ValueError) as error:
        raise Damaged(str(error)) from None
    if not isinstance(found, dict):
        raise Damaged("a document that is no object")
    return found


def _host(url: str) -> str:
    try:
        return urlsplit(url).netloc or url
    except ValueError:
        return url
