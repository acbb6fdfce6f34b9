"""What the recorder of a console writes, and that a bad disk costs a notice only."""

from __future__ import annotations

import asyncio
import os
import shutil
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from tests.support.listed_engine import ListedEngine
from tests.support.readings import START, STATE, URL, down, reading, readings
from tests.support.tuned_engine import tuning

from specdeck.console.state.black_box import COHORTS_S, LOOK_S, BlackBoxRecorder
from specdeck.console.state.controller import Controller, Load
from specdeck.engine.blackbox.box import open_box
from specdeck.engine.blackbox.folder import box_path
from specdeck.engine.blackbox.history import History
from specdeck.engine.database_files import beside
from specdeck.engine.errors import ConfigError, Unsupported
from specdeck.engine.metrics.reading import Reading
from specdeck.engine.protocol.cohorts import (
    Cohort,
    CohortCell,
    CohortCounts,
    Cohorts,
    no_counts,
)
from specdeck.engine.protocol.messages import Change, LastChange
from specdeck.engine.protocol.tuning import Tuning

WORDS = ("4-15", "0%", "4-15", "none", "none", "greedy", "no", "stop")


class Session:
    """A controller and its recorder, without a terminal."""

    def __init__(
        self, folder: Path, listed: list[Reading], *, load: Load | None = None, **more: Any
    ) -> None:
        self.engine = ListedEngine(listed)
        self.now = START
        self.tasks: list[asyncio.Task[None]] = []
        self.controller = Controller(
            [self.engine], spawn=self.spawn, who="ann", load=load, clock=lambda: self.now
        )
        self.recorder = BlackBoxRecorder(self.controller, folder, days=7, megabytes=50, **more)
        self.folder = folder

    def spawn(self, work: Coroutine[Any, Any, None], group: str) -> asyncio.Task[None]:
        self.tasks.append(asyncio.create_task(work))
        return self.tasks[-1]

    async def follow(self) -> None:
        """Take in all that the engine has."""
        if not self.tasks:
            self.controller.start()
        for _ in range(1_000):
            await asyncio.sleep(0.001)
            if self.engine._read and self.engine.more.empty():
                break
        await asyncio.sleep(0.01)

    async def until(self, holds: Callable[[], bool]) -> None:
        """Let time pass until something holds."""
        async with asyncio.timeout(30):
            while not holds():  # noqa: ASYNC110  # a thread makes it so
                await asyncio.sleep(0.005)

    @property
    def said(self) -> list[str]:
        return [one.text for one in self.controller.track.events]

    @contextmanager
    def past(self) -> Iterator[History]:
        """What was recorded, once all is written."""
        self.recorder.close()
        for task in self.tasks:
            task.cancel()
        with closing(History(box_path(self.folder, URL))) as history:
            yield history


async def test_readings_and_events_are_recorded(tmp_path: Path) -> None:
    turned = replace(
        STATE, version=2, k=3, k_set=3,
        last_change=LastChange(START, "bob", "tried", {"k": 5}, {"k": 3}, "operator"),
    )  # fmt: skip
    listed = [*readings(5), reading(5, turned), down(6), reading(7, turned, restarted=True)]
    session = Session(tmp_path, listed)
    await session.follow()
    session.now = START + 8
    session.controller.tell("load profile hard", "accent", kind="load")
    with session.past() as history:
        assert [one.t for one in history.readings(0, 1e11)] == [one.t for one in listed]
        found = history.events(0, 1e11)
        assert [(one.kind, one.label) for one in found] == [
            ("change", "k3"), ("down", "down"), ("restart", "restart"), ("load", None),
        ]  # fmt: skip
        change = next(one for one in found if one.kind == "change")
        assert (change.origin, change.who, change.reason, change.tone) == (
            "operator", "bob", "tried", "accent",
        )  # fmt: skip
        assert (history.name, history.url) == ("demo", URL)


async def test_cohorts_and_tuning_are_asked_for_now_and_then(tmp_path: Path) -> None:
    session = Session(tmp_path, [])
    asked = []
    counts = CohortCounts(1, 9, 4, 0, 2, (2,) * 5, (1,) * 5)

    async def cohorts() -> Cohorts:
        asked.append(session.now)
        cell = CohortCell(Cohort(*WORDS), counts)
        return Cohorts("a", session.now, (cell,), (), no_counts(5), 2, (2,) * 5, (1,) * 5)

    session.engine.client.cohorts = cohorts
    await session.follow()
    for n in range(0, 200, 2):
        session.now = START + n
        await session.engine.more.put(reading(n))
        await session.follow()
        await session.until(lambda: session.recorder.state(0) == "recording")
    assert len(asked) == 4
    assert all(later - one >= COHORTS_S for one, later in pairwise(asked))
    with session.past() as history:
        found = history.cohorts_at(START + 199)
        assert found is not None
        assert found.sum_finished() == counts
        assert history.cohorts_at(START - 1) is None


async def test_a_clock_that_is_set_back_keeps_nothing_from_being_recorded(tmp_path: Path) -> None:
    session = Session(tmp_path, [])
    asked = []

    async def cohorts() -> Cohorts:
        asked.append(session.now)
        return Cohorts("a", session.now, (), (), no_counts(5), 0, (0,) * 5, (0,) * 5)

    session.engine.client.cohorts = cohorts
    await session.follow()
    for n in (*range(0, 20, 2), *range(-7_200, -7_180, 2)):
        session.now = START + n
        await session.engine.more.put(reading(n))
        await session.follow()
        await session.until(lambda: session.recorder.state(0) == "recording")
    assert [round(t - START) for t in asked[1:]] == [-7_200]
    session.recorder.close()
    for task in session.tasks:
        task.cancel()


async def test_the_tuning_is_asked_for_as_soon_as_something_has_turned(tmp_path: Path) -> None:
    session = Session(tmp_path, [])
    asked: list[float] = []

    async def tell() -> Tuning:
        asked.append(session.now - START)
        return replace(tuning(), version=len(asked))

    session.engine.client.tuning = tell
    await session.follow()
    await session.engine.more.put(reading(0))
    await session.follow()
    await session.until(lambda: session.recorder.state(0) == "recording")
    asked.clear()
    session.recorder._engines[0].ask_tuning = 0.0
    for n in (1, 99, 100, 105, 110, 130, 159, 160, 399, 400, 450):
        session.now = START + n
        version = 1 + (n >= 100) + (n >= 110) + (n >= 400)
        await session.engine.more.put(reading(n, replace(STATE, version=version)))
        await session.follow()
    assert asked == [1.0, 100.0, 160.0, 400.0]
    with session.past() as history:
        assert [t - START for t, _ in history.documents("tuning", 0, 1e11)][-4:] == asked


class _Load:
    profile = "steady"

    def next(self) -> str:
        self.profile = "hard"
        return self.profile


async def test_the_load_of_this_console_is_recorded_as_it_changes(tmp_path: Path) -> None:
    session = Session(tmp_path, [reading(0)], load=_Load())
    await session.follow()
    await session.until(lambda: session.recorder.state(0) == "recording")
    await session.engine.more.put(reading(1))
    await session.follow()
    session.controller.next_load()
    assert session.controller.track.load == "hard"
    with session.past() as history:
        assert [(t - START, told) for t, told in history.documents("load", 0, 1e11)] == [
            (0.0, {"profile": "steady"}), (1.0, {"profile": "hard"}),
        ]  # fmt: skip


async def test_that_no_load_is_put_on_it_is_recorded(tmp_path: Path) -> None:
    session = Session(tmp_path, readings(3))
    await session.follow()
    with session.past() as history:
        assert history.documents("load", 0, 1e11) == ((START, {"profile": None}),)


async def test_an_engine_without_cohorts_is_left_alone(tmp_path: Path) -> None:
    session = Session(tmp_path, [])
    asked = []

    async def cohorts() -> Cohorts:
        asked.append(session.now)
        raise Unsupported("no cohorts")

    session.engine.client.cohorts = cohorts
    await session.follow()
    for n in range(0, 600, 30):
        session.now = START + n
        await session.engine.more.put(reading(n))
        await session.follow()
        await session.until(lambda: session.recorder.state(0) == "recording")
    session.recorder.close()
    assert len(asked) == 1


async def test_a_folder_that_cannot_be_written_is_said_once(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    now = 0.0
    session = Session(tmp_path / "file" / "boxes", readings(20), steady=lambda: now)
    await session.follow()
    await session.until(lambda: len(session.said) == 1)
    now = 100.0
    for n in range(20, 25):
        await session.engine.more.put(reading(n))
    await session.follow()
    session.recorder.close()
    await asyncio.sleep(0.01)
    (said,) = session.said
    assert said.startswith("not recorded: ")
    assert session.recorder.state(0) == "failing"
    assert session.controller.track.total == 25


async def test_a_thread_that_cannot_be_had_is_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    session = Session(tmp_path, readings(20))
    await session.follow()
    session.recorder.close()
    await asyncio.sleep(0.01)
    assert session.said == ["not recorded: can't start new thread"]
    assert session.recorder.state(0) == "failing"
    assert session.controller.track.total == 20


async def test_a_disk_that_is_full_for_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from specdeck.engine.blackbox.box import BlackBox

    now, full, append = 0.0, True, BlackBox.append

    def fail(self: BlackBox, one: Reading) -> None:
        if full:
            raise ConfigError("database or disk is full")
        append(self, one)

    monkeypatch.setattr(BlackBox, "append", fail)
    session = Session(tmp_path, readings(3), steady=lambda: now)
    await session.follow()
    await session.until(lambda: session.recorder.state(0) == "failing")
    await asyncio.sleep(0.05)
    now, full = 100.0, False
    await session.engine.more.put(reading(3))
    await session.until(lambda: len(session.said) == 2)
    assert session.said == ["not recorded: database or disk is full", "recorded again"]
    with session.past() as history:
        assert [one.t for one in history.readings(0, 1e11)] == [START + 3]


async def test_the_second_of_two_consoles_waits_and_takes_over(tmp_path: Path) -> None:
    now = 0.0
    first = open_box(box_path(tmp_path, URL), URL, name="demo")
    assert first is not None
    session = Session(tmp_path, readings(3), steady=lambda: now)
    await session.follow()
    await session.until(lambda: session.recorder.state(0) == "elsewhere")
    await asyncio.sleep(0.05)
    first.close()
    now = 100.0
    await session.engine.more.put(reading(3))
    await session.until(lambda: session.recorder.state(0) == "recording")
    assert not session.controller.track.events
    with session.past() as history:
        assert [one.t for one in history.readings(0, 1e11)] == [START + 3]


async def record_around(
    folder: Path, act: Callable[[Path], object], after: int = 10
) -> tuple[Session, Path]:
    """Records five readings, has something done to the box, and records `after` more."""
    now = 0.0
    session = Session(folder, readings(5), steady=lambda: now)
    path = box_path(folder, URL)
    await session.follow()
    await session.until(lambda: is_recorded(path, 5))
    act(path)
    for n in range(5, 5 + after):
        now = n - 4.0
        await session.engine.more.put(reading(n))
        await session.follow()
        await session.until(session.recorder._writer._queue.empty)
    session.recorder.close()
    await asyncio.sleep(0.01)
    for task in session.tasks:
        task.cancel()
    return session, path


def is_recorded(path: Path, rows: int) -> bool:
    with suppress(ConfigError):  # it is made at this moment
        return path.exists() and len(read_seconds(path)) == rows
    return False


def read_seconds(path: Path) -> list[int]:
    """When the readings in a box were made, seconds after the start."""
    with closing(History(path)) as history:
        return [round(one.t - START) for one in history.readings(0, 1e11)]


def list_beside(path: Path) -> list[str]:
    return [one.name for one in path.parent.glob(f"{path.name}*")]


def delete_with_all_beside(path: Path) -> None:
    for name in list_beside(path):
        path.with_name(name).unlink()


@pytest.mark.parametrize("act", [Path.unlink, delete_with_all_beside])
async def test_a_box_that_is_deleted_is_made_anew(
    tmp_path: Path, act: Callable[[Path], object]
) -> None:
    session, path = await record_around(tmp_path, act)
    found = read_seconds(path)
    assert found == list(range(found[0], 15))
    assert found[0] <= 4 + LOOK_S
    said = [one for one in session.said if "moved or deleted" in one]
    assert said == [f"its black box was moved or deleted, a new one is begun: {path}"]
    assert session.recorder.state(0) == "recording"


async def test_a_folder_that_is_deleted_is_made_anew(tmp_path: Path) -> None:
    folder = tmp_path / "data" / "boxes"
    _, path = await record_around(folder, lambda path: shutil.rmtree(path.parents[1]))
    assert read_seconds(path)[-1] == 14


async def test_a_box_that_is_moved_has_what_was_recorded_until_then(tmp_path: Path) -> None:
    moved = tmp_path / "elsewhere.db"
    _, path = await record_around(tmp_path, lambda path: path.rename(moved))
    assert not beside(moved, "-wal").exists()
    assert read_seconds(moved) + read_seconds(path) == list(range(15))


async def test_a_box_that_is_moved_at_last_has_all_as_well(tmp_path: Path) -> None:
    """The recorder ends before it has looked."""
    moved = tmp_path / "elsewhere.db"
    _, path = await record_around(tmp_path, lambda path: path.rename(moved), after=2)
    assert read_seconds(moved) == list(range(7))
    assert list_beside(path) == [f"{path.name}.lock"]


async def test_what_was_recorded_is_not_mixed_into_a_box_that_is_put_in_its_place(
    tmp_path: Path,
) -> None:
    other = tmp_path / "other.db"
    box = open_box(other, URL, name="demo")
    assert box is not None
    for n in range(100, 103):
        box.append(reading(n))
    box.close()

    def replace_box(path: Path) -> None:
        path.rename(tmp_path / "moved.db")
        other.rename(path)

    _, path = await record_around(tmp_path, replace_box)
    before = read_seconds(tmp_path / "moved.db")
    assert read_seconds(path) == [100, 101, 102, *range(len(before), 15)]


async def test_a_box_that_is_made_anew_has_what_is_recorded_as_it_changes(tmp_path: Path) -> None:
    _, path = await record_around(tmp_path, Path.unlink)
    with closing(History(path)) as history:
        assert [told for _, told in history.documents("load", 0, 1e11)] == [{"profile": None}]


@pytest.mark.parametrize(("last_n", "told", "stays"), [
    (4_000, 1e9, False),
    (4_000, 1e5, True),  # whatever the clock says now
    (30, 1e9, True),
])  # fmt: skip
async def test_other_black_boxes_go_by_a_time_that_many_readings_tell(
    tmp_path: Path, last_n: int, told: float, stays: bool
) -> None:
    other = box_path(tmp_path, "http://other")
    for path, url in ((box_path(tmp_path, URL), URL), (other, "http://other")):
        box = open_box(path, url, name="one")
        assert box is not None
        box._db.execute("INSERT INTO blocks VALUES (1, ?, 0, ?, ?, 0, x'00')", (last_n, told, told))
        box.close()
    os.utime(other, (1.0, 1.0))
    session = Session(tmp_path, readings(3))
    await session.follow()
    with session.past():
        assert other.exists() == stays


async def test_a_refusal_that_is_told_again_is_recorded_once(tmp_path: Path) -> None:
    session = Session(tmp_path, readings(2))
    await session.follow()
    for n in range(60):
        session.now = START + n
        session.controller.wish(Change(k=9))
    session.controller.tell("load profile hard", "accent", kind="load")
    with session.past() as history:
        refused, *others = history.events(0, 1e11)
        assert (refused.t, refused.text[:13]) == (START, "k_max is 5: t")
        assert [one.text for one in others] == ["load profile hard"]
