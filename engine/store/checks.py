"""Runs of the divergence check: what was compared, what came of it, and where to go on."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from specdeck.engine.errors import UsageError
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


class Checks:
    """The checks in a store; every method raises SpecdeckError when the file cannot be used."""

    def __init__(self, store: Store) -> None:
        self._store = store

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
        return self.find_unfinished(key)  # as the process that had it before has left it

    def forget(self, run: int) -> None:
        """Takes a run out that shows nothing."""
        with self._store.transaction() as db:
            db.execute("DELETE FROM check_cases WHERE check_id = ?", (run,))
            db.execute("DELETE FROM checks WHERE id = ?", (run,))
        self._store.release_lock(lock_name(run))

    def find_unfinished(self, key: str) -> Run | None:
        """The latest run under `key`, if it is not at its end; None when there is none.

        One that cannot be read is passed over.
        """
        with self._store.transaction(write=False) as db:
            rows = db.execute(
                f"SELECT {_RUN} FROM checks WHERE key = ? ORDER BY t DESC, id DESC", (key,)
            )
            found = self._store.read_rows(rows, _run, what="check", limit=1)
        return found[0] if found and found[0].finished is None else None

    def add(self, run: int, compared: Iterable[Compared], totals: dict[str, Any]) -> bool:
        """Writes the pairs of one prompt and the sums after it, together or not at all.

        False, and nothing written, when the prompt was written before.
        """
        rows = [
            (run, c.prompt, c.pair, c.prompt_hash, c.refused, c.detail is not None,
             None if c.detail is None else json.dumps(c.detail))
            for c in compared
        ]  # fmt: skip
        with self._store.transaction() as db:
            known = db.execute(
                "SELECT 1 FROM check_cases WHERE check_id = ? AND prompt = ?", (run, rows[0][1])
            ).fetchone()
            if known:
                return False
            db.executemany(
                "INSERT INTO check_cases"
                " (check_id, prompt, pair, prompt_hash, refused, diverged, detail)"
                " VALUES (?, ?, ?, ?, ?, ?, ?)",
                rows,
            )
            db.execute("UPDATE checks SET totals = ? WHERE id = ?", (json.dumps(totals), run))
        return True

    def has(self, run: int, prompt: int) -> bool:
        """Whether the pairs of this prompt are written."""
        with self._store.transaction(write=False) as db:
            row = db.execute(
                "SELECT 1 FROM check_cases WHERE check_id = ? AND prompt = ?", (run, prompt)
            ).fetchone()
        return row is not None

    def divergences(self, run: int, pair: Pair) -> Iterator[Compared]:
        """The pairs that differ, by prompt; a page at a time, however many there are."""
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
        return tuple((int(prompt), str(why)) for prompt, why in rows)

    def finish(self, run: int, t: float, summary: dict[str, Any]) -> None:
        """Closes a run: it will not be resumed, so its equal pairs need not be kept."""
        with self._store.transaction() as db:
            db.execute(
                "DELETE FROM check_cases WHERE check_id = ? AND NOT diverged AND refused IS NULL",
                (run,),
            )
            db.execute(
                "UPDATE checks SET finished = ?, summary = ? WHERE id = ?",
                (t, json.dumps(summary), run),
            )
        self._store.release_lock(lock_name(run))

    def history(
        self, url: str | None = None, limit: int = 31, kind: str = GREEDY
    ) -> tuple[Run, ...]:
        """The finished runs of a kind, the newest first; on one engine where `url` is given.

        One that cannot be read is left out, as the store's `left_out` says.
        """
        with self._store.transaction(write=False) as db:
            rows = db.execute(
                f"SELECT {_RUN} FROM checks WHERE (?1 IS NULL OR url = ?1)"
                f" AND finished IS NOT NULL AND {_KIND} ORDER BY finished DESC, id DESC",
                (url, kind),
            )
            return self._store.read_rows(rows, _run, what="check", limit=limit)


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
