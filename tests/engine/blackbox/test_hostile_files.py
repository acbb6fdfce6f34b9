"""Files that nobody's black box has written: read in bounds, or refused in one line."""

from __future__ import annotations

import itertools
import json
import math
import os
import random
import sqlite3
import time
import zlib
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.readings import START, STATE
from tests.support.recorded_engine import busy_readings, record

from specdeck.engine.blackbox import recorded_rows
from specdeck.engine.blackbox.block import Block, pack
from specdeck.engine.blackbox.event import BoxEvent
from specdeck.engine.blackbox.folder import list_boxes, open_history
from specdeck.engine.blackbox.history import History
from specdeck.engine.blackbox.patience import Patience
from specdeck.engine.blackbox.row import Damaged, Row
from specdeck.engine.errors import ConfigError, SpecdeckError, UsageError
from specdeck.engine.metrics.reading import Gpu
from specdeck.engine.protocol.cohorts import Cohort, CohortCell, CohortCounts, Cohorts, no_counts

COUNTS = CohortCounts(1, 9, 4, 0, 2, (2,) * 5, (1,) * 5)
WORDS = ("4-15", "0%", "4-15", "none", "none", "greedy", "no", "stop")


def write_box(path: Path) -> None:
    """A black box with some of everything."""
    with closing(record(path, busy_readings(45))) as box:
        for n in range(3):
            cell = CohortCell(Cohort(*WORDS), COUNTS)
            box.add_cohorts(
                START + n,
                Cohorts("a", START + n, (cell,), (), no_counts(5), n, (2,) * 5, (1,) * 5),
            )
            box.add_event(BoxEvent(START + n, "change", f"k {n}", label="k"))
            box.add_document("tuning", START + n, {"n": n})


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("whole") / "a.db"
    write_box(path)
    return path.read_bytes()


def read_everything(path: Path) -> str | None:
    """Asks all that can be asked; the damage that was found. Raises SpecdeckError at most."""
    with closing(History(path)) as history:
        found = list(history.readings(-math.inf, math.inf))
        for t in (START - 1, START + 3.5, START + 44, 1e11):
            history.reading_at(t)
            history.cohorts_at(t)
            history.document_at("tuning", t)
            history.next_event(t)
            history.previous_event(t)
        history.window(START, START + 40)
        history.overview(START, START + 40, 7)
        history.overview(START, START + 86_400, 7)
        history.events(0, 1e11)
        list(history.cohort_steps(0, 1e11))
        assert math.isnan(history.first) or history.first <= history.last
        assert len(found) <= 50
        return history.damage


def read_or_refuse(path: Path) -> str:
    """The damage that was found, or why the file is refused."""
    try:
        return read_everything(path) or ""
    except SpecdeckError as error:
        return error.line()


def change(path: Path, *statements: str, values: tuple[Any, ...] = ()) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        for statement in statements:
            db.execute(statement, values)


BOMB = zlib.compress(bytes(200_000_000), 9)


@pytest.mark.parametrize(
    ("statement", "value"),
    [
        ("UPDATE blocks SET data = ?", BOMB),
        ("UPDATE cohorts SET data = ?", BOMB),
        ("UPDATE documents SET data = ?", BOMB),
        ("UPDATE documents SET data = ?", zlib.compress(b"[" * 1_000_000)),
        ("UPDATE rows SET numbers = zeroblob(?) WHERE n = 41", 50_000_000),
        ("UPDATE rows SET template = ?", "[" * 200_000),
        ("UPDATE rows SET template = ?", '{"sample":' * 300 + "1" + "}" * 300),
        ("UPDATE events SET text = ?", "x" * 3_000_000),
        ("UPDATE events SET kind = ?", "invented"),
        ("UPDATE facts SET value = ?", "http://" + "x" * 3_000_000),
        ("UPDATE blocks SET last_n = ?", "many"),
        ("UPDATE blocks SET last_n = ?", -(2**62)),
        ("UPDATE blocks SET first = ?", math.inf),
        ("UPDATE blocks SET breaks = ?", "x"),
        ("UPDATE blocks SET base = ?", 7),
        ("UPDATE minutes SET low_tokens = ?", "low"),
        ("UPDATE minutes SET seconds = ?", math.inf),
    ],
    ids=range(17),
)
def test_what_is_too_much_or_nonsense_is_left_out(
    tmp_path: Path, whole: bytes, statement: str, value: Any
) -> None:
    path = tmp_path / "a.db"
    path.write_bytes(whole)
    change(path, statement, values=(value,))
    begun = time.process_time()
    assert "\n" not in read_or_refuse(path)
    assert time.process_time() - begun < 10


VALUES = st.one_of(
    st.none(), st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False), st.text(max_size=9),
    st.binary(max_size=40), st.sampled_from([b"", zlib.compress(b"{}"), zlib.compress(b"[1]")]),
)  # fmt: skip
COLUMNS = [
    f"{table}.{name}"
    for table, names in {
        "facts": "value", "blocks": "last_n base first last breaks data",
        "rows": "t template numbers", "events": "t kind text tone label origin who reason",
        "minutes": "minute count seconds generated low_tokens high_tokens drafted accepted",
        "cohorts": "t whole data", "documents": "t kind data",
    }.items()
    for name in names.split()
]  # fmt: skip


@settings(
    deadline=None, max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.sampled_from(COLUMNS), VALUES, st.integers(1, 4))
def test_values_of_other_types(
    tmp_path: Path, whole: bytes, column: str, value: Any, every: int
) -> None:
    path = tmp_path / "a.db"
    path.write_bytes(whole)
    table, name = column.split(".")
    key = "1" if table == "facts" else "rowid"
    try:
        change(path, f"UPDATE {table} SET {name} = ? WHERE {key} % {every} = 0", values=(value,))
    except sqlite3.IntegrityError:
        return
    assert "\n" not in read_or_refuse(path)


@pytest.mark.parametrize("count", range(7))
@pytest.mark.parametrize("every", [1, 2])
def test_rows_of_too_few_numbers(tmp_path: Path, count: int, every: int) -> None:
    path = tmp_path / "a.db"
    record(path, busy_readings(5), rows=100).close()
    cut = "UPDATE rows SET numbers = substr(numbers, 1, ?) WHERE rowid % ? = 0"
    change(path, cut, values=(8 * count, every))
    assert "\n" not in read_or_refuse(path)
    with suppress(ConfigError):  # a recorder that takes them over, into a block
        record(path, busy_readings(3), rows=2).close()


@pytest.mark.parametrize("seed", range(60))
def test_bytes_that_changed(tmp_path: Path, whole: bytes, seed: int) -> None:
    path, changed, chosen = tmp_path / "a.db", bytearray(whole), random.Random(seed)
    for _ in range(chosen.randint(1, 30)):
        changed[chosen.randrange(len(whole))] = chosen.randrange(256)
    path.write_bytes(changed)
    begun = time.process_time()
    assert "\n" not in read_or_refuse(path)
    assert time.process_time() - begun < 10


def test_rows_that_say_nonsense_of_a_reading(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    record(path, busy_readings(5), rows=100).close()
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        (template,) = db.execute("SELECT template FROM rows WHERE n = 1").fetchone()
    for old, new in (
        ('"drafts":true', '"drafts":9'),
        ('"engines":1', '"engines":"x"'),
        ('"accepted_per_position":5', '"accepted_per_position":99999999999'),
        ('"ttft":"', '"ttft":"x'),
        ('"k":0', '"k":"5"'),
        ('"restarted":false', '"restarted":3'),
        ('"error":null', '"error":[1,2,3]'),
        ('"gpus":null', '"gpus":[{"index":[]}]'),
        ('"joined":true', '"joined":[]'),
        ('"t":', '"u":'),
        (template, "7"),
    ):
        assert old in template or old in ('"t":', '"joined":true')
        change(path, "UPDATE rows SET template = ?", values=(template.replace(old, new),))
        read_everything(path)


def test_a_file_that_tells_no_url_keeps_nobody_from_the_others(
    tmp_path: Path, whole: bytes
) -> None:
    for name in ("a.db", "b.db"):
        (tmp_path / name).write_bytes(whole)
    change(tmp_path / "a.db", "UPDATE facts SET value = 'http://[a](b' WHERE name = 'url'")
    change(tmp_path / "b.db", "UPDATE facts SET value = 'mine' WHERE name = 'name'")
    os.utime(tmp_path / "b.db", (1, 1))  # the other one is looked at first
    with closing(open_history(tmp_path, "mine")) as history:
        assert history.path == tmp_path / "b.db"


@pytest.mark.parametrize("wanted", ["http://[a]", "http://[::1", "//[a](b", "http://\u2100.com"])
def test_what_is_no_url_is_asked_for_in_vain(tmp_path: Path, wanted: str) -> None:
    with pytest.raises(UsageError, match="nothing is recorded"):
        open_history(tmp_path, wanted)


@pytest.mark.parametrize("t", [1e300, -1e300, math.inf, 1e12, -1.0])
def test_a_time_that_no_calendar_knows_is_no_edge(tmp_path: Path, whole: bytes, t: float) -> None:
    """The timeline counts with the edges: an overview of no time ended the replay with 70."""
    path = tmp_path / "a.db"
    path.write_bytes(whole)
    with closing(History(path)) as history:
        first, last = history.first, history.last
    change(path, "UPDATE rows SET t = ? WHERE n = (SELECT MAX(n) FROM rows)", values=(t,))
    change(
        path,
        "INSERT INTO blocks SELECT first_n + 1000, last_n + 1000, base, ?1, ?1, breaks, data"
        " FROM blocks LIMIT 1",
        values=(t,),
    )
    with closing(History(path)) as history:
        assert first == history.first
        assert last - 2 <= history.last <= last
    change(path, "UPDATE rows SET t = ?", values=(t,))
    change(path, "UPDATE blocks SET first = ?1, last = ?1", values=(t,))
    with closing(History(path)) as history:
        assert math.isnan(history.first)
        assert math.isnan(history.last)


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.db")
    with pytest.raises(ConfigError, match="not a regular file"):
        History(tmp_path / "a.db")
    assert list_boxes(tmp_path) == ()


def test_a_link_in_the_folder_is_no_black_box_of_ours(tmp_path: Path) -> None:
    write_box(tmp_path / "elsewhere.db")
    (tmp_path / "boxes").mkdir()
    (tmp_path / "boxes" / "a.db").symlink_to(tmp_path / "elsewhere.db")
    assert list_boxes(tmp_path / "boxes") == ()
    # Whoever names it means it.
    with closing(open_history(tmp_path, str(tmp_path / "boxes" / "a.db"))) as history:
        assert history.reading_at(START) is not None


def test_a_file_in_a_folder_that_cannot_be_written_is_read(tmp_path: Path, whole: bytes) -> None:
    folder = tmp_path / "sealed"
    folder.mkdir()
    (folder / "a.db").write_bytes(whole)
    folder.chmod(0o500)
    try:
        assert read_everything(folder / "a.db") is None
    finally:
        folder.chmod(0o700)
    assert STATE.instance == "a"


def fill(path: Path, count: int, data: bytes, *, first: float = START) -> None:
    """A black box of nothing but `count` blocks of these bytes."""
    record(path, []).close()
    with closing(sqlite3.connect(path)) as db, db:
        db.executemany(
            "INSERT INTO blocks VALUES (?, ?, 0, ?, 1e11, 0, ?)",
            [(1 + 1_000 * n, 1_000 + 1_000 * n, first, data) for n in range(count)],
        )


def empty_block(t: float) -> bytes:
    template = '{"joined":false,"restarted":false,"sample":null}'
    return pack([Row(template, (t,))] * 10)


@pytest.mark.parametrize(
    ("data", "damage"),
    [
        (b"x", "cut short"),
        (empty_block(1e10), "another time"),
        (empty_block(START), None),
    ],
    ids=["broken", "of another time", "without samples"],
)
def test_thousands_of_useless_blocks_are_not_all_tried(
    tmp_path: Path, data: bytes, damage: str | None
) -> None:
    fill(tmp_path / "a.db", 3_000, data)
    with closing(History(tmp_path / "a.db")) as history:
        begun = time.process_time()
        history.reading_at(START + 100)
        assert history.window(START + 60, START + 100) is None
        history.overview(START, START + 1_000, 100)
        assert time.process_time() - begun < 10
        if damage is not None:
            assert damage in (history.damage or "")


def test_a_good_reading_before_some_broken_blocks_is_found(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    record(path, busy_readings(400)).close()
    change(path, "UPDATE blocks SET data = x'00' WHERE first_n > 50 AND first_n < 350")
    with closing(History(path)) as history:
        found = history.reading_at(START + 340)
        assert found is not None
        assert found.t == START + 49
        assert history.damage is not None


def test_a_block_of_more_numbers_than_any_writer_puts_in_is_refused() -> None:
    large = [Row("{}", (1.0,) * 16_000)]
    assert Block(pack(large * 18)).count == 18
    with pytest.raises(Damaged):
        Block(pack(large * 19))


def test_the_largest_block_that_is_written_is_read(tmp_path: Path) -> None:
    given = [
        replace(one, gpus=tuple(Gpu(n, "a", n / 7, n, n + 1, 0.1) for n in range(2_000)))
        for one in busy_readings(60)
    ]
    with (
        closing(record(tmp_path / "a.db", given, rows=300)),
        closing(History(tmp_path / "a.db")) as history,
    ):
        assert len(list(history.readings(0, 1e11))) == 60
        assert history.damage is None


def test_a_file_of_too_many_tables_is_refused_in_time(tmp_path: Path, whole: bytes) -> None:
    """SQLite reads their list in C, where no signal is heard, in the square of their number."""
    path, count = tmp_path / "a.db", 200_000
    path.write_bytes(whole)
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("PRAGMA writable_schema = ON")
        db.executemany(
            "INSERT INTO sqlite_master VALUES ('table', ?1, ?1, 2, 'CREATE TABLE ' || ?1 || '(x)')",
            [(f"a{n}",) for n in range(count)],
        )
    begun = time.process_time()
    with pytest.raises(ConfigError, match="not the tables of a black box"):
        History(path)
    assert time.process_time() - begun < 4


def test_of_an_answer_beyond_all_bounds_the_beginning_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows can share their pages: a file of some kilobytes held gigabytes of one answer."""
    path = tmp_path / "a.db"
    record(path, busy_readings(60), rows=100).close()
    monkeypatch.setattr(recorded_rows, "_LARGEST_TAIL", 20_000)
    with closing(History(path)) as history:
        found = list(history.readings(-math.inf, math.inf))
        assert 2 < len(found) < 58
        assert "beyond all bounds" in (history.damage or "")


def test_a_console_waits_for_a_slow_record_within_bounds(tmp_path: Path) -> None:
    path, now = tmp_path / "a.db", itertools.count()
    record(path, busy_readings(2_000), rows=50).close()
    with closing(History(path)) as history:
        whole = history.overview(START, START + 2_000, 100)
        assert history.damage is None
        history.limit_waiting(Patience(clock=lambda: float(next(now))))
        found = history.overview(START, START + 2_000, 100)
        assert [one.tokens for one in found] != [one.tokens for one in whole]
        assert found[0] == whole[0]
        assert len(list(history.readings(START, START + 2_000))) < 20
        assert "too long" in (history.damage or "")


def write_kinds(path: Path, steps: int, kinds: int) -> None:
    """A black box in which each step of cohorts brings so many new kinds of requests."""
    with closing(record(path, busy_readings(45))) as box:
        instance = STATE.instance
        counts = [1, 9, 4, 0, 2, [2] * 5, [1] * 5]
        box.add_cohorts(
            START, Cohorts(instance, START, (), (), no_counts(5), 0, (0,) * 5, (0,) * 5)
        )
        (known,) = box._db.execute("SELECT data FROM cohorts").fetchone()
        step = json.loads(zlib.decompress(known))
        for n in range(steps):
            words = ([*WORDS[:3], f"a{n}-{kind}", *WORDS[4:]] for kind in range(kinds))
            text = json.dumps({**step, "cells": [[*each, counts] for each in words]})
            box._db.execute(
                "INSERT INTO cohorts (t, whole, data) VALUES (?, 0, ?)",
                (START + 1 + n / 100, zlib.compress(text.encode())),
            )


def test_more_kinds_of_requests_than_an_engine_tells_are_no_cohorts(tmp_path: Path) -> None:
    """Of 31 steps of 8,000 kinds each a look took twelve seconds, and one of 48 looks a quarter of
    a gigabyte."""
    write_kinds(tmp_path / "a.db", 4, 2_000)
    with closing(History(tmp_path / "a.db")) as history:
        found = history.cohorts_at(START + 40)
        assert found is not None
        assert len(found.cells) == 8_000
        assert history.damage is None
    write_kinds(tmp_path / "b.db", 5, 2_000)
    with closing(History(tmp_path / "b.db")) as history:
        assert history.cohorts_at(START + 40) is None
        assert "more kinds" in (history.damage or "")


def test_a_closed_history_is_asked_no_more(tmp_path: Path) -> None:
    """Whoever reads in a thread comes to an end: a process waits for it."""
    write_kinds(tmp_path / "a.db", 3, 10)
    history = History(tmp_path / "a.db")
    unpack = history._unpack_steps([zlib.compress(b"{}")] * 2)
    assert next(unpack) == {}
    history.close()
    with pytest.raises(ConfigError, match="closed"):
        next(unpack)
    with pytest.raises(ConfigError, match="closed"):
        history.cohorts_at(START + 40)
    history.close()


def test_of_rows_in_no_block_there_are_as_many_as_a_writer_leaves(tmp_path: Path) -> None:
    """They are read for every moment: 67 MB of them cost a second for each key."""
    path = tmp_path / "a.db"
    record(path, busy_readings(200), rows=300).close()
    change(
        path, "UPDATE rows SET numbers = CAST(numbers || zeroblob(?) AS BLOB)", values=(100_000,)
    )
    with closing(History(path)) as history:
        found = list(history.readings(-math.inf, math.inf))
        assert 70 < len(found) < 90
        assert "beyond all bounds" in (history.damage or "")
