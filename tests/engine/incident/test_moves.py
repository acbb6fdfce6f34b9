"""Who changed an engine: a sweep and a trial are one row each."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

from tests.engine.incident.test_case import section
from tests.support.readings import START, URL

from specdeck.engine.blackbox.falls import Fall
from specdeck.engine.incident.material import Material, Span
from specdeck.engine.incident.moves import Move, group_moves, join_moves
from specdeck.engine.incident.page import write_page
from specdeck.engine.protocol.messages import LastChange


def move(t: float, before: Any, after: Any, origin: str = "operator", **more: Any) -> Move:
    return Move(START + t, "root", origin, {"k": before}, {"k": after}, None, "undo", **more)


def sweep(t: float, count: int = 45) -> list[Move]:
    ks = "0,1,2"
    visits = [move(t + 1 + n, n % 3, (n + 1) % 3, "sweep") for n in range(count)]
    return [
        move(t, 2, ks, "sweep", logged=True),
        *visits,
        replace(move(t + count + 5, ks, 2, "sweep", logged=True), reason="end: best k=1"),
    ]


def test_a_sweep_is_one_row_and_the_next_one_another() -> None:
    moves = [move(0, 3, 2), *sweep(10), *sweep(70), move(200, 2, 1)]
    runs = group_moves(moves)
    assert [len(run.moves) for run in runs] == [1, 47, 47, 1]
    assert [one for run in runs for one in run.moves] == moves
    assert (runs[1].visits, runs[1].swept, runs[1].reason) == (45, "0,1,2", "end: best k=1")


def test_a_sweep_of_which_the_engine_alone_tells_is_one_row() -> None:
    runs = group_moves([move(n, n % 3, (n + 1) % 3, "sweep") for n in range(20)])
    assert [(run.visits, run.swept) for run in runs] == [(20, None)]


def test_the_end_of_a_trial_is_one_row() -> None:
    told = replace(move(60, 2, 4, "trial"), who="specdeck", reason="worse")
    logged = replace(move(60.1, 4, 4, "trial", logged=True), reason="trial reverted: worse")
    runs = group_moves([move(0, 4, 2), told, logged, move(90, 4, 3)])
    assert [len(run.moves) for run in runs] == [1, 2, 1]
    assert runs[1].reason == "trial reverted: worse"


def test_what_the_engine_took_back_by_itself_has_no_undo() -> None:
    """It would set what failed once more."""
    changes = [
        LastChange(START + 1, "ann", None, {"k": 4}, {"k": 2}, origin="operator"),
        LastChange(START + 60, "specdeck", None, {"k": 2}, {"k": 4}, origin="trial"),
        LastChange(START + 90, "specdeck", None, {"k": 1}, {"k": 4}, origin="lease"),
        LastChange(START + 99, "specdeck", None, {"k": 1}, {"k": 4}, origin="policy"),
    ]
    moves = join_moves(URL, changes, (), START, START + 100)
    assert [bool(one.undo) for one in moves] == [True, False, False, True]


def test_a_sweep_before_the_fall_is_one_line_in_short() -> None:
    moves = [replace(move(10, 4, 2), reason="key"), *sweep(20)]
    made = Material(URL, "demo", Span(START, START + 600), START + 600, moves=tuple(moves))
    made.falls = (Fall("acceptance", START + 50, 0.8, 0.1),)
    short = section(write_page(made, (), time.gmtime), "In short")
    near = [line for line in short if "Shortly before" in line]
    assert len(near) == 2
    assert near[0].endswith("root set k 4 → 2, because: key")
    assert near[1].endswith("root swept k, 35 moves by then")


def test_what_is_nearest_to_the_fall_is_kept() -> None:
    moves = [move(n, 3 + n % 2, 4 - n % 2) for n in (96, 97, 98)]
    moves += sweep(200)
    moves += [move(400 + n, 3 + n % 2, 4 - n % 2) for n in range(80)]
    made = Material(URL, "demo", Span(START, START + 600), START + 600, moves=tuple(moves))
    made.falls = (Fall("acceptance", START + 100, 0.8, 0.1),)
    made.pivot = START + 100
    page = write_page(made, (), time.gmtime)
    rows = [line for line in section(page, "Changes") if "undo" in line and "k seen" not in line]
    clock = [time.strftime("%H:%M:%S", time.gmtime(one.t)) for one in moves[:3]]
    assert [row[2:10] for row in rows[:3]] == clock
    assert sum("swept 0,1,2 in 45 moves, then 2" in row for row in rows) == 1
    assert len(rows) == 60
    assert "24 others are in audit.json" in page


def test_of_a_time_that_was_not_recorded_no_figure_is_said_to_have_held() -> None:
    made = Material(URL, "demo", Span(START, START + 600), START + 600)
    short = section(write_page(made, (), time.gmtime), "In short")
    assert short[0] == (
        "- Whether acceptance or tokens/s fell is unknown: neither was recorded then."
    )
