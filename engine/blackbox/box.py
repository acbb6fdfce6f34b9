"""The writer of one engine's black box.

Each reading is committed as a row; every few minutes the rows are folded into one block, together
with the summaries of their minutes, in the transaction of the last of them. So a process that is
killed loses nothing that was committed. One process writes a file at a time, and whoever comes
second may ask again: the lock goes with the process that has it.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from sqlite3 import Connection
from typing import Any, Final

from specdeck.engine.blackbox import cohort_steps
from specdeck.engine.blackbox.block import MOST_WAITING, pack
from specdeck.engine.blackbox.event import BoxEvent
from specdeck.engine.blackbox.file import (
    REMEDY,
    OpenFiles,
    open_for_writing,
    take_lock,
    transaction,
    translate_errors,
)
from specdeck.engine.blackbox.retention import Limits, delete_oldest, find_settled_time
from specdeck.engine.blackbox.row import (
    Damaged,
    Row,
    find_places,
    pack_numbers,
    take_apart,
    unpack_numbers,
)
from specdeck.engine.blackbox.summary import Figures, by_minute, figures_of
from specdeck.engine.errors import ConfigError, Place
from specdeck.engine.metrics.reading import Reading
from specdeck.engine.protocol.cohorts import Cohorts

ROWS: Final = 300
"""Rows of a block: five minutes of them."""
LARGEST_DOCUMENT: Final = 1_000_000
"""Bytes of a document as JSON; a larger one is left out."""


def name_clock() -> str | None:
    """A name of this boot of this machine, for which its monotonic clock runs; None if unknown."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()[:8]
    except (OSError, ValueError):
        return None


def open_box(
    path: Path,
    url: str,
    *,
    name: str,
    limits: Limits | None = None,
    rows: int = ROWS,
    clock: Callable[[], str | None] = name_clock,
) -> BlackBox | None:
    """The black box at `path`, for writing; None while another process writes it.

    `clock` names the monotonic clock of the readings. Raises ConfigError where it cannot be
    written, UsageError where it is a newer specdeck's.
    """
    lock = take_lock(path)
    if lock is None:
        return None
    try:
        return BlackBox(
            path, lock, url, name=name, limits=limits or Limits(), rows=rows, clock=clock()
        )
    except BaseException:
        os.close(lock)
        raise


class BlackBox:
    """Writes what is learnt of one engine; every method raises ConfigError where it cannot.

    What raised is not recorded, and the next one may be. To be used from one thread at a time.
    """

    def __init__(
        self,
        path: Path,
        lock: int,
        url: str,
        *,
        name: str,
        limits: Limits,
        rows: int,
        clock: str | None,
    ) -> None:
        self.path = path
        self.url = url
        self._limits = limits
        self._rows = rows
        self._clock = clock
        self._db = open_for_writing(path)
        self._waiting: list[Row] = []
        """Rows that are in no block yet."""
        self._size = 0
        """Bytes of them."""
        self._base: Row | None = None
        """The row before them, which the first one's window may begin at."""
        self._before: Reading | None = None
        """The reading of the last row, where this process wrote it."""
        self._cohorts: Cohorts | None = None
        self._whole: int | None = None
        """Where they were written whole last."""
        self._steps = 0
        """Of cohorts, since they were written whole."""
        self._documents: dict[str, bytes] = {}
        try:
            with translate_errors(path), transaction(self._db):
                self._db.executemany(
                    "INSERT INTO facts VALUES (?, ?)"
                    " ON CONFLICT DO UPDATE SET value = excluded.value",
                    [("url", url), ("name", name)],
                )
                self._next = self._take_over()
            with translate_errors(path):
                self._files = OpenFiles(path)
        except BaseException:
            self._db.close()
            raise
        self._lock: int | None = lock

    def append(self, reading: Reading) -> None:
        """Commits one more reading."""
        row = take_apart(reading, self._before, clock=self._clock)
        n, last = self._next, self._waiting[-1] if self._waiting else self._base
        template = None if last is not None and last.template == row.template else row.template
        waiting = [*self._waiting, row]
        size = self._size + len(template or "") + 8 * len(row.numbers)
        is_full = len(waiting) >= self._rows or size > MOST_WAITING
        with self._write():
            self._db.execute(
                "INSERT INTO rows VALUES (?, ?, ?, ?)",
                (n, row.t, template, pack_numbers(row.numbers)),
            )
            if is_full:
                self._fold(waiting, n)
        self._before, self._next = reading, n + 1
        if is_full:
            self._waiting, self._base, self._size = [], row, 0
        else:
            self._waiting.append(row)
            self._size = size

    def add_event(self, event: BoxEvent) -> None:
        """Commits one event."""
        one = event.shorten()
        with self._write():
            self._db.execute(
                "INSERT INTO events (t, kind, text, tone, label, origin, who, reason)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (one.t, one.kind, one.text, one.tone, one.label, one.origin, one.who, one.reason),
            )

    def add_cohorts(self, t: float, cohorts: Cohorts) -> None:
        """Commits what finished requests have done by Unix time `t`: what changed, or all of it.

        `t` is by the recorder's clock: what the engine says of its own decides nothing here.
        """
        base = self._cohorts if self._steps < cohort_steps.MOST_STEPS else None
        if base is not None and not self._has_whole():
            base = None  # what it would stand on was deleted
        step = cohort_steps.write_step(base, cohorts)
        data = zlib.compress(json.dumps(step.data, separators=(",", ":")).encode("utf-8"))
        if len(data) > LARGEST_DOCUMENT:
            return
        with self._write():
            added = self._db.execute(
                "INSERT INTO cohorts (t, whole, data) VALUES (?, ?, ?)",
                (t, int(step.whole), data),
            )
        if step.whole:
            self._whole = added.lastrowid
        self._cohorts, self._steps = cohorts, 0 if step.whole else self._steps + 1

    def add_document(self, kind: str, t: float, document: Mapping[str, Any]) -> None:
        """Commits what was known at Unix time `t` of something that changes seldom: `tuning`,
        `fingerprint`, `check`, `load`. One that has not changed since the last one is left out, and
        so is one that is too large."""
        text = json.dumps(document, separators=(",", ":"), sort_keys=True).encode("utf-8")
        if self._documents.get(kind) == text or len(text) > LARGEST_DOCUMENT:
            return
        with self._write():
            self._db.execute(
                "INSERT INTO documents (t, kind, data) VALUES (?, ?, ?)",
                (t, kind, zlib.compress(text)),
            )
        self._documents[kind] = text

    def settled_time(self) -> float | None:
        """See `retention.find_settled_time`."""
        with self._write():
            return find_settled_time(self._db)

    def is_in_place(self) -> bool:
        """Whether what is written can be found: the file was neither deleted nor moved."""
        return self._files.are_in_place()

    def close(self) -> None:
        """Lets go of the file and its lock; without effect a second time.

        A file that was moved has all that was written to it then.
        """
        if self._lock is not None:
            if not self.is_in_place():
                self._files.give_up(self._db)
            self._db.close()
            os.close(self._lock)
            self._lock = None

    @contextmanager
    def _write(self) -> Iterator[None]:
        if self._lock is None:
            raise ConfigError("closed", place=Place(self.path))
        with translate_errors(self.path), transaction(self._db):
            yield

    def _has_whole(self) -> bool:
        with translate_errors(self.path):
            asked = self._db.execute("SELECT 1 FROM cohorts WHERE n = ? AND whole", (self._whole,))
            return asked.fetchone() is not None

    def _take_over(self) -> int:
        """Reads what the process before has left in rows; the number of the next row."""
        (last,) = self._db.execute("SELECT MAX(last_n) FROM blocks").fetchone()
        last = last or 0
        template, n = "", last
        rows = self._db.execute("SELECT n, template, numbers FROM rows ORDER BY n").fetchall()
        try:
            for n, own, data in rows:
                template = own or template
                row = Row(template, unpack_numbers(data))
                find_places(template)
                if n <= last:
                    self._base = row
                else:
                    self._waiting.append(row)
            if len(self._waiting) > self._rows:
                self._fold(self._waiting, n)
                self._base, self._waiting = self._waiting[-1], []
        except Damaged as error:
            raise ConfigError(str(error), place=Place(self.path), remedy=REMEDY) from None
        return max(n, last) + 1

    def _fold(self, waiting: list[Row], last_n: int) -> None:
        """Writes rows as one block, and keeps the last of them for the next one's first window."""
        write_block(self._db, self._base, waiting, last_n)
        self._db.execute("DELETE FROM rows WHERE n < ?", (last_n,))
        self._db.execute("UPDATE rows SET template = ? WHERE n = ?", (waiting[-1].template, last_n))
        delete_oldest(self._db, self._limits)


def write_block(db: Connection, base: Row | None, waiting: Sequence[Row], last_n: int) -> None:
    """Writes rows as one block, the last of them with number `last_n`, and their minutes.

    `base` is the row before them, where their first window may begin. Raises Damaged.
    """
    first = [] if base is None else [base]
    rows = [*first, *waiting]
    places = [find_places(row.template) for row in rows]
    figures = [
        figures_of(now.t, at, now.numbers, places[i - 1], rows[i - 1].numbers)
        if i
        else Figures(now.t)
        for i, (now, at) in enumerate(zip(rows, places, strict=True))
    ]
    times = [row.t for row in waiting]
    breaks = sum(one.restarted for one in places[len(first) :])
    db.execute(
        "INSERT INTO blocks VALUES (?, ?, ?, ?, ?, ?, ?)",
        (last_n - len(waiting) + 1, last_n, len(first), min(times), max(times), breaks, pack(rows)),
    )
    db.executemany(
        _ADD_MINUTE,
        [(minute, *one.as_values()) for minute, one in by_minute(figures[len(first) :]).items()],
    )


_ADD_MINUTE: Final = """
INSERT INTO minutes VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (minute) DO UPDATE SET
    count = count + excluded.count,
    seconds = seconds + excluded.seconds,
    generated = generated + excluded.generated,
    low_tokens = MIN(COALESCE(low_tokens, excluded.low_tokens),
                     COALESCE(excluded.low_tokens, low_tokens)),
    high_tokens = MAX(COALESCE(high_tokens, excluded.high_tokens),
                      COALESCE(excluded.high_tokens, high_tokens)),
    drafted = drafted + excluded.drafted,
    accepted = accepted + excluded.accepted,
    low_acceptance = MIN(COALESCE(low_acceptance, excluded.low_acceptance),
                         COALESCE(excluded.low_acceptance, low_acceptance)),
    high_acceptance = MAX(COALESCE(high_acceptance, excluded.high_acceptance),
                          COALESCE(excluded.high_acceptance, high_acceptance))
"""
"""A minute may lie in two blocks."""
