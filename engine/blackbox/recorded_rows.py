"""The rows of a black box, found by time.

What cannot be read is left out as if nothing had been recorded then, and noted.
"""

from __future__ import annotations

import math
import sqlite3
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from specdeck.engine.blackbox.block import MOST_WAITING, Block
from specdeck.engine.blackbox.file import open_for_reading
from specdeck.engine.blackbox.patience import IsOver, Patience, never
from specdeck.engine.blackbox.row import Damaged, Row, find_places, unpack_numbers
from specdeck.engine.blackbox.stretch import Stretch, StretchRow
from specdeck.engine.errors import ConfigError, Place
from specdeck.engine.store.distrust import QUERY_S, limit_time
from specdeck.engine.text import oneline

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
_LARGEST_ANSWER: Final = 64_000_000
"""Bytes of the texts and blobs of one answer: rows of a crafted file can share their pages, so that
one of some kilobytes holds gigabytes."""
_LARGEST_TAIL: Final = 4 * MOST_WAITING
"""Bytes of the rows that are in no block yet: they are read for every moment that is looked at."""
_MOST_N: Final = 2**62
_EARLIEST: Final = 0.0
_LATEST: Final = 1e11
"""Unix times; those that `protocol.codec.UnixTime` takes."""


class RecordedRows:
    """A black box, open for reading; asked from several threads.

    Opening raises ConfigError for a file that is none of specdeck's, UsageError for one of a newer
    specdeck. Asking raises ConfigError once it is closed.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.damage: str | None = None
        """What could not be read so far, as one line; None while all could."""
        self.patience: Patience | None = None
        """That of a console; None where nobody is held up."""
        self.is_closed = False
        self.lock = threading.RLock()
        """Held by whoever asks several things of one moment of the file."""
        self._blocks: OrderedDict[int, Stretch] = OrderedDict()
        self._db = open_for_reading(path)

    @property
    def are_copied(self) -> bool:
        """Whether they stay as they were when this was opened."""
        return self._db.copied

    def close(self) -> None:
        """Lets go of the file; what a thread asks of it comes to its end."""
        if self.is_closed:
            return
        self.is_closed = True
        is_busy = not self.lock.acquire(blocking=False)
        if is_busy:
            self._db.interrupt()  # a thread's question
            self.lock.acquire()
        try:
            if is_busy:  # or closing, which removes what lies beside the file, is interrupted too
                with suppress(sqlite3.Error):
                    self._db.execute("SELECT 1").fetchone()
            self._db.close()
        finally:
            self.lock.release()

    def ask(
        self, question: str, values: Sequence[Any] = (), *, most: int | None = None
    ) -> list[Any]:
        """The rows of an answer; none, and a note of the damage, where the file is damaged.

        Of one with more than `most` bytes of texts and blobs, the beginning.
        """
        found: list[Any] = []
        try:
            self._fetch(question, values, found, most)
        except (sqlite3.Error, OverflowError, UnicodeError) as error:
            self.note(str(error))
            return []
        return found

    def _fetch(
        self, question: str, values: Sequence[Any], found: list[Any], most: int | None = None
    ) -> None:
        """Adds the rows of an answer to `found`; of one that is too large, its beginning."""
        self.refuse_closed()
        most, size = _LARGEST_ANSWER if most is None else most, 0
        with self.lock, limit_time(self._db):
            for row in self._db.execute(question, tuple(values)):
                found.append(row)
                size += sum(len(value) for value in row if isinstance(value, (str, bytes)))
                if size > most:
                    self.note("an answer beyond all bounds")
                    return

    @contextmanager
    def wait(self) -> Iterator[IsOver]:
        """Counts what a console waits for; what it gives says, and notes, when that is to end."""
        if self.patience is None:
            yield never
            return
        with self.patience.wait() as is_spent:

            def is_over() -> bool:
                spent = is_spent()
                if spent:
                    self.note("it takes too long to read")
                return spent

            yield is_over

    def refuse_closed(self) -> None:
        """Raises ConfigError once it is closed: who reads in a thread hears it so."""
        if self.is_closed:
            raise ConfigError("closed", place=Place(self.path))

    def note(self, damage: str) -> None:
        """Keeps what could not be read; the first of it alone."""
        if self.damage is None:
            self.damage = f"{self.path} is damaged: {oneline(damage)[:200]}"

    def edges(self, of_blocks: str, of_rows: str) -> list[float]:
        """The outermost times, by such a term of each table.

        Not those that no calendar knows: whoever shows them counts with them.
        """
        bounds = (_EARLIEST, _LATEST)
        found = self.ask(
            f"SELECT {of_blocks} FROM blocks WHERE first >= ? AND last <= ?", bounds
        ) + self.ask(f"SELECT {of_rows} FROM rows WHERE t BETWEEN ? AND ?", bounds)
        return [t for (t,) in found if isinstance(t, float) and math.isfinite(t)]

    def stretches(self, start: float, end: float) -> Iterator[Stretch]:
        """What may have readings from `start` to `end`, in the order in which it was recorded."""
        after = 0
        while True:
            with self.lock:
                numbers = self._list_blocks(after, start, end)
                tail = None if numbers else self.tail()
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
            rows = self.ask(asked.format("", ""), values)
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
            self._fetch(question, values, found)
        except (sqlite3.Error, UnicodeError) as error:
            self.note(str(error))
        return found

    def _load(self, first_n: int) -> Stretch | None:
        """One block; None where it cannot be read."""
        with self.lock:
            known = self._blocks.get(first_n)
            if known is not None:
                self._blocks.move_to_end(first_n)
                return known
            rows = self.ask("SELECT base, data FROM blocks WHERE first_n = ?", (first_n,))
        if not rows:
            return None
        base, data = rows[0]
        try:
            if base not in (0, 1) or not isinstance(data, bytes):
                raise Damaged("a block without rows")
            found = Stretch(first_n, base, Block(data))
            if not found.indices:
                raise Damaged("a block without rows")
        except Damaged as error:
            self.note(str(error))
            return None
        with self.lock:
            self._blocks[first_n] = found
            while len(self._blocks) > _BLOCKS:
                self._blocks.popitem(last=False)
        return found

    def tail(self) -> Stretch | None:
        """What is in no block yet; None where there is nothing."""
        rows = self.ask(
            "SELECT n, (SELECT MAX(last_n) FROM blocks WHERE typeof(last_n) = 'integer'),"
            " template, numbers FROM rows ORDER BY n LIMIT ?",
            (_MOST_TAIL,), most=_LARGEST_TAIL,
        )  # fmt: skip
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
            self.note(str(error))
        if len(found) <= base:
            return None
        return Stretch(first_n, base, None, found)

    def find(self, t: float) -> tuple[Stretch, int] | None:
        """The last row at or before `t`, and what it lies in."""
        with self.lock:
            tail = self.tail()
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
        self.note("blocks of another time than they say")
        return None

    def _block_before(self, n: int, t: float = math.inf) -> Stretch | None:
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
        rows = self.ask("SELECT MAX(first_n) FROM blocks WHERE first <= ? AND first_n < ?", (t, n))
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

    def find_sampled(self, t: float) -> StretchRow | None:
        """The last row with a sample at or before `t`."""
        found = self.find(t)
        if found is None:
            return None
        stretch, index = found
        ends = time.monotonic() + QUERY_S
        with self.wait() as is_over:
            for _ in range(_MOST_UNSAMPLED):
                if is_over() or time.monotonic() > ends:
                    self.note("a search for an answer that took too long")
                    break
                while index >= stretch.base:
                    if find_places(stretch.template(index)).up:
                        return StretchRow(stretch, index)
                    index -= 1
                earlier = self._block_before(stretch.first_n)
                if earlier is None:
                    return None
                stretch, index = earlier, len(earlier.times) - 1
        return None

    def has_restart(self, older: StretchRow, newer: StretchRow) -> bool:
        """Whether the engine was restarted after `older`, up to `newer`."""
        if older.stretch.first_n == newer.stretch.first_n:
            return newer.stretch.has_restart(older.index + 1, newer.index)
        between_them = self.ask(
            "SELECT COALESCE(SUM(breaks), 0) FROM blocks WHERE first_n > ? AND first_n < ?",
            (older.stretch.first_n, newer.stretch.first_n),
        )
        return (
            any(breaks for (breaks,) in between_them)
            or older.stretch.has_restart(older.index + 1, len(older.stretch.times) - 1)
            or newer.stretch.has_restart(newer.stretch.base, newer.index)
        )


def _last_at(stretch: Stretch, t: float) -> int | None:
    """The last own row at or before `t`; None without one."""
    return next((i for i in reversed(stretch.indices) if stretch.times[i] <= t), None)
