"""Runs of the divergence check: what was compared, what came of it, and where to go on."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from heapq import merge
from sqlite3 import Connection
from typing import Any, Literal

from specdeck.engine.errors import SpecdeckError, UsageError
from specdeck.engine.protocol.codec import UnixTime, read_object, read_value
from specdeck.engine.store.database import Store

Pair = Literal["cross", "streamed", "reference", "serving"]
"""Serving against reference, by their whole answers or the streamed ones; an arm against itself."""


@dataclass(frozen=True, slots=True)
class Compared:
    """One pair of answers to one prompt."""

    prompt: int
    """Its number, from 1."""
    pair: Pair
    prompt_hash: str
    refused: str | None = None
    """Why the engine did not answer; None when it did."""
    detail: dict[str, Any] | None = None
    """The divergence; None where the answers are the same."""


@dataclass(frozen=True, slots=True)
class Run:
    """One run of the check as the store has it."""

    id: int
    key: str
    t: float
    """Unix time of its beginning, seconds."""
    url: str
    finished: float | None
    """Unix time of its end; None while it is unfinished."""
    facts: dict[str, Any]
    totals: dict[str, Any]
    summary: dict[str, Any] | None


_RUN = "id, key, t, url, finished, facts, totals, summary"

GREEDY, SAMPLED = "greedy", "sampled"
"""Kinds of run: tokens were compared, or distributions, whose summaries hold other things."""
_KIND = (
    f"COALESCE(CASE WHEN json_valid(facts) THEN json_extract(facts, '$.kind') END, '{GREEDY}') = ?2"
)
"""Of facts that are no JSON SQLite would refuse the whole question."""
_LIKE = (
    "CASE WHEN json_valid(facts) THEN json_extract(facts, '$.prompts') IS ?4"
    " AND json_extract(facts, '$.settings') IS json_extract(?5, '$') END"
)


class Checks:
    """The checks in a store; every method raises SpecdeckError when the file cannot be used.

    Pairs that cannot be written for the time being are kept and written with the next ones: an hour
    of requests is not lost for a moment in which another process has the file, or the disk is full.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._waiting: dict[tuple[int, int], tuple[Compared, ...]] = {}
        """What is to be written, by run and prompt."""
        self._totals: dict[int, dict[str, Any]] = {}
        """The sums after it, by run."""

    @property
    def waiting(self) -> int:
        """Prompts whose pairs wait to be written."""
        return len(self._waiting)

    def impatient(self) -> AbstractContextManager[None]:
        """See `Store.impatient`."""
        return self._store.impatient()

    def require_writable(self) -> None:
        """See `Store.require_writable`."""
        self._store.require_writable()

    @property
    def left_out(self) -> tuple[str, ...]:
        """What was found that cannot be read, a line each."""
        return tuple(self._store.left_out)

    def begin(self, key: str, t: float, url: str, facts: dict[str, Any]) -> Run:
        """A new run, at `t` (Unix seconds) on the serving engine at `url`."""
        with self._store.transaction() as db:
            cursor = db.execute(
                "INSERT INTO checks (key, t, url, facts, totals) VALUES (?, ?, ?, ?, '{}')",
                (key, t, url, json.dumps(facts)),
            )
            assert cursor.lastrowid is not None
            self._store.take_lock(lock_name(cursor.lastrowid))
            return Run(cursor.lastrowid, key, t, url, None, facts, {}, None)

    def resume(self, key: str) -> Run | None:
        """The run under `key` that was cut short, for this process alone to go on with.

        None when there is none, or when another process works at it.
        """
        found = self.find_unfinished(key)
        if found is None or not self._store.take_lock(lock_name(found.id)):
            return None
        if self._store.is_marked(lock_name(found.id)):
            with suppress(SpecdeckError):  # the next one that begins is found in its place
                self.forget(found.id)
            return None
        return self.find_unfinished(key)  # as the process that had it before has left it

    def give_up(self, run: int) -> None:
        """Has nobody go on with a run of which all is told, and that could not be finished."""
        self._store.mark_lock(lock_name(run))

    def forget(self, run: int) -> None:
        """Takes a run out that shows nothing."""
        self._waiting = {at: rows for at, rows in self._waiting.items() if at[0] != run}
        with self._store.transaction() as db:
            db.execute("DELETE FROM check_cases WHERE check_id = ?", (run,))
            db.execute("DELETE FROM checks WHERE id = ?", (run,))
        self._store.release_lock(lock_name(run))

    def find_unfinished(self, key: str) -> Run | None:
        """The latest run under `key`, if it is not at its end; None when there is none.

        One that cannot be read is passed over.
        """
        with self._store.transaction(write=False) as db:
            rows = db.execute(f"SELECT {_RUN} FROM checks WHERE key = ? ORDER BY id DESC", (key,))
            found = self._store.read_rows(rows, _run, what="check", limit=1)
        return found[0] if found and found[0].finished is None else None

    def add(self, run: int, compared: Iterable[Compared], totals: dict[str, Any]) -> bool:
        """Writes the pairs of one prompt and the sums after it, together or not at all.

        False, and nothing written, when the prompt was added before. What cannot be written waits.
        """
        rows = tuple(compared)
        if self.has(run, rows[0].prompt):
            return False
        is_first = not self._waiting
        self._waiting[run, rows[0].prompt], self._totals[run] = rows, totals
        # Whoever has waited for the file once does not wait for it at every prompt.
        with suppress(SpecdeckError), nullcontext() if is_first else self._store.impatient():
            self.write_waiting()
        return True

    def note(self, run: int, totals: dict[str, Any]) -> None:
        """Writes the sums of a run that moved without a prompt, and what waits to be written.

        Raises SpecdeckError where that cannot be; they go with what waits then.
        """
        self._totals[run] = totals
        with self._store.transaction() as db:
            self._insert_waiting(db)
            db.execute("UPDATE checks SET totals = ? WHERE id = ?", (json.dumps(totals), run))
        self._waiting.clear()

    def write_waiting(self) -> None:
        """Writes what waits to be written."""
        if self._waiting:
            with self._store.transaction() as db:
                self._insert_waiting(db)
            self._waiting.clear()

    def _insert_waiting(self, db: Connection) -> None:
        db.executemany(
            "INSERT INTO check_cases"
            " (check_id, prompt, pair, prompt_hash, refused, diverged, detail)"
            " VALUES (?, ?, ?, ?, ?, ?, ?)",
            [
                (run, c.prompt, c.pair, c.prompt_hash, c.refused, c.detail is not None,
                 None if c.detail is None else json.dumps(c.detail))
                for (run, _), rows in self._waiting.items() for c in rows
            ],
        )  # fmt: skip
        for run in {run for run, _ in self._waiting}:
            db.execute(
                "UPDATE checks SET totals = ? WHERE id = ?", (json.dumps(self._totals[run]), run)
            )

    def _list_waiting(self, run: int) -> list[Compared]:
        """The pairs of a run that wait to be written, by prompt."""
        return [c for at, rows in sorted(self._waiting.items()) if at[0] == run for c in rows]

    def has(self, run: int, prompt: int) -> bool:
        """Whether the pairs of this prompt were added."""
        if (run, prompt) in self._waiting:
            return True
        with self._store.transaction(write=False) as db:
            row = db.execute(
                "SELECT 1 FROM check_cases WHERE check_id = ? AND prompt = ?", (run, prompt)
            ).fetchone()
        return row is not None

    def divergences(self, run: int, pair: Pair) -> Iterator[Compared]:
        """The pairs that differ, by prompt; a page at a time, however many there are."""
        waiting = [
            replace(one, detail=read_object(json.dumps(one.detail)))
            for one in self._list_waiting(run)
            if one.pair == pair and one.detail is not None
        ]
        yield from merge(self._read_divergences(run, pair), waiting, key=lambda one: one.prompt)

    def _read_divergences(self, run: int, pair: Pair) -> Iterator[Compared]:
        after = 0
        while True:
            with self._store.transaction(write=False) as db:
                rows = db.execute(
                    "SELECT prompt, pair, prompt_hash, refused, detail FROM check_cases"
                    " WHERE check_id = ? AND pair = ? AND diverged AND prompt > ?"
                    " ORDER BY prompt LIMIT 200",
                    (run, pair, after),
                ).fetchall()
                found = [
                    Compared(prompt, own, digest, refused, read_object(detail))
                    for prompt, own, digest, refused, detail in rows
                ]
            if not rows:
                return
            yield from found
            after = rows[-1][0]

    def refusals(self, run: int) -> tuple[tuple[int, str], ...]:
        """The first prompts that were not answered, and why."""
        with self._store.transaction(write=False) as db:
            rows = db.execute(
                "SELECT prompt, refused FROM check_cases WHERE check_id = ?"
                " AND refused IS NOT NULL ORDER BY prompt LIMIT 20",
                (run,),
            ).fetchall()
        found = [(int(prompt), str(why)) for prompt, why in rows]
        found += [
            (one.prompt, one.refused) for one in self._list_waiting(run) if one.refused is not None
        ]
        return tuple(sorted(found)[:20])

    def finish(self, run: int, t: float, summary: dict[str, Any]) -> None:
        """Closes a run: it will not be resumed, so its equal pairs need not be kept."""
        with self._store.transaction() as db:
            self._insert_waiting(db)
            db.execute(
                "DELETE FROM check_cases WHERE check_id = ? AND NOT diverged AND refused IS NULL",
                (run,),
            )
            db.execute(
                "UPDATE checks SET finished = ?, summary = ? WHERE id = ?",
                (t, json.dumps(summary), run),
            )
        self._waiting.clear()
        self._store.release_lock(lock_name(run))

    def keep(self, run: Run) -> None:
        """Writes a whole run, under a number of the store's."""
        with self._store.transaction() as db:
            db.execute(
                "INSERT INTO checks (key, t, url, finished, facts, totals, summary)"
                " VALUES (?, ?, ?, ?, ?, ?, ?)",
                (run.key, run.t, run.url, run.finished, json.dumps(run.facts),
                 json.dumps(run.totals), json.dumps(run.summary)),
            )  # fmt: skip

    def history(
        self,
        url: str | None = None,
        limit: int = 31,
        kind: str = GREEDY,
        like: Run | None = None,
    ) -> tuple[Run, ...]:
        """The finished runs of a kind, the newest first; on one engine where `url` is given.

        Others than `like`, with its prompts and settings, where that is given: whatever else was
        asked of the engine in between. The order is that in which they began, and not by their
        times: a clock may have been ahead. One that cannot be read is left out, as the store's
        `left_out` says.
        """
        prompts = settings = own = None
        if like is not None:
            prompts, settings = like.facts.get("prompts"), json.dumps(like.facts.get("settings"))
            own = like.id
        with self._store.transaction(write=False) as db:
            rows = db.execute(
                f"SELECT {_RUN} FROM checks WHERE (?1 IS NULL OR url = ?1)"
                f" AND finished IS NOT NULL AND {_KIND}"
                f" AND (?3 IS NULL OR (id != ?3 AND {_LIKE})) ORDER BY id DESC",
                (url, kind, own, prompts, settings),
            )
            return self._store.read_rows(rows, _run, what="check", limit=limit)


@contextmanager
def open_or_spare(
    open_checks: Callable[[], AbstractContextManager[Checks]],
    open_spare: Callable[[], AbstractContextManager[Checks]],
) -> Iterator[tuple[Checks, SpecdeckError | None]]:
    """The checks of a store that can be written to now, or the spare ones, and why."""
    with ExitStack() as stack:
        found: Checks
        failure: SpecdeckError | None = None
        try:
            found = stack.enter_context(open_checks())
            found.require_writable()
        except SpecdeckError as error:
            found, failure = stack.enter_context(open_spare()), error
        yield found, failure


def _run(row: tuple[Any, ...]) -> Run:
    id_, key, t, url, finished, facts, totals, summary = row
    for time in (t, finished):
        read_value(UnixTime | None, time, "a time in it")
    return Run(
        id_, key, t, url, finished, read_object(facts), read_object(totals),
        None if summary is None else read_object(summary),
    )  # fmt: skip


def unreadable(error: ValueError, *, remedy: str) -> UsageError:
    """The error of a run in the store that this specdeck cannot read."""
    return UsageError(f"a check in the store cannot be read: {error}", remedy=remedy)


def lock_name(run: int) -> str:
    """The lock of a run, which belongs to one process at a time."""
    return f"check-{run}"
