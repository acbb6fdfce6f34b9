"""Records what a controller learns of its engines: readings, events, cohorts, tuning.

It follows the controller and is followed by nobody: what is written is written in a thread of its
own, and a disk that is full or slow costs the console a notice.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, Full, Queue
from typing import TYPE_CHECKING, Final, Literal

from specdeck.console.state.controller import Controller
from specdeck.engine.errors import SpecdeckError, Unsupported

# SQLite is imported after the first paint, by the thread that writes.
if TYPE_CHECKING:
    from specdeck.console.state.engine_state import Event, FingerprintNames, Mark, Track
    from specdeck.engine.blackbox.box import BlackBox
    from specdeck.engine.blackbox.event import BoxEvent
    from specdeck.engine.client.engine_client import EngineClient
    from specdeck.engine.metrics.reading import Reading

COHORTS_S: Final = 60.0
"""Between two questions for cohorts."""
TUNING_S: Final = 300.0
"""Between two questions for the tuning."""
TURNED_S: Final = 60.0
"""The same where a knob, the breaker or a trial has turned meanwhile."""
NOT_OFFERED_S: Final = 600.0
"""For which an engine that does not tell cohorts or tuning is not asked again."""
OPEN_S: Final = 15.0
"""After which a box that could not be opened, or that another process writes, is tried again."""
LOOK_S: Final = 5.0
"""Between two looks whether an open box still lies where it was opened."""
MOST_WAITING: Final = 2_000
"""What waits to be written; more is left out rather than kept."""
LAST_WRITES_S: Final = 3.0
"""For what is still to be written when the console ends."""

BoxState = Literal["opening", "recording", "elsewhere", "failing"]
"""`elsewhere`: another process records this engine, and this one takes over when that ends."""

_Write = Callable[["BlackBox"], None]


@dataclass(slots=True)
class _Engine:
    """What has been recorded of one engine."""

    event: Event | None = None
    """The last event that was written."""
    mark: Mark | None = None
    names: FingerprintNames | None = None
    ask_cohorts: float = 0.0
    """Unix time from which on it may be asked."""
    ask_tuning: float = 0.0
    turned: tuple[object, ...] = ()
    """What the state said of knobs, breaker and trial when the tuning was last asked for."""
    load: str | None = ""
    """The profile that was written last; empty before any."""


class BlackBoxRecorder:
    """Records the engines of a controller, each into the black box of its URL in `folder`."""

    def __init__(
        self,
        controller: Controller,
        folder: Path,
        *,
        days: float,
        megabytes: float,
        on_notice: Callable[[int, str], None] | None = None,
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begins with the first reading; a black box keeps so many days and megabytes.

        `on_notice` is told, of an engine by its number, what keeps it from being recorded; without
        it that is an event of the engine.
        """
        self._controller = controller
        self._on_notice = on_notice or self._tell
        self._engines = [_Engine() for _ in controller.tracks]
        self._writer = _Writer(
            [(track.url, track.name) for track in controller.tracks],
            folder,
            (days, megabytes),
            self._report,
            self._begin_anew,
            steady,
        )
        self._loop: asyncio.AbstractEventLoop | None = None
        controller.add_reader(self._on_reading)
        controller.subscribe(self._on_change)

    def state(self, index: int) -> BoxState:
        """How the recording of one engine stands."""
        return self._writer.boxes[index].state

    def close(self) -> None:
        """Writes what waits to be written, for some seconds at most, and lets go of the files."""
        self._loop = None
        self._writer.close()

    def _on_reading(self, index: int, reading: Reading) -> None:
        if self._controller.tracks[index].recorded:
            return
        self._loop = asyncio.get_running_loop()
        self._writer.add(index, lambda box: box.append(reading))
        engine = self._engines[index]
        client = self._controller.find_client(index)
        # Whoever does not write it asks for nothing.
        if client is None or reading.state is None or self.state(index) != "recording":
            return
        if _is_due(reading.t, engine.ask_cohorts, COHORTS_S):
            engine.ask_cohorts = reading.t + COHORTS_S
            self._controller.spawn(self._ask_cohorts(index, client), "record")
        state = reading.state
        turned = (state.instance, state.version, state.policy, state.breaker, state.trial)
        due = engine.ask_tuning - (0.0 if turned == engine.turned else TUNING_S - TURNED_S)
        if _is_due(reading.t, due, TUNING_S):
            engine.ask_tuning, engine.turned = reading.t + TUNING_S, turned
            self._controller.spawn(self._ask_tuning(index, client), "record")

    async def _ask_cohorts(self, index: int, client: EngineClient) -> None:
        try:
            found = await client.cohorts()
        except Unsupported:
            self._engines[index].ask_cohorts += NOT_OFFERED_S
        except SpecdeckError:
            pass  # the readings tell of an engine that does not answer
        else:
            t = self._controller.clock()
            self._writer.add(index, lambda box: box.add_cohorts(t, found))

    async def _ask_tuning(self, index: int, client: EngineClient) -> None:
        try:
            found = await client.tuning()
        except Unsupported:
            self._engines[index].ask_tuning += NOT_OFFERED_S
        except SpecdeckError:
            pass
        else:
            t = self._controller.clock()
            self._writer.add(index, lambda box: box.add_document("tuning", t, found.as_json()))

    def _on_change(self) -> None:
        """Record what has happened since the last time, once for each event and mark."""
        for index, (engine, track) in enumerate(
            zip(self._engines, self._controller.tracks, strict=True)
        ):
            if track.recorded or self._loop is None:
                continue
            self._record_events(index, engine, track)
            if track.names is not None and track.names is not engine.names:
                engine.names = track.names
                self._record_names(index, track.names)
            if track.reading is not None and track.load != engine.load:
                engine.load = track.load
                self._record_load(index, track.reading.t, track.load)

    def _record_events(self, index: int, engine: _Engine, track: Track) -> None:
        events = list(_newer_than(engine.event, track.events))[::-1]
        mark = track.marks[-1] if track.marks and track.marks[-1] is not engine.mark else None
        if not events and mark is None:
            return
        engine.event, engine.mark = events[-1] if events else engine.event, mark or engine.mark
        # A mark belongs to the event that came with it and is about the same.
        bearer = next((one for one in events[::-1] if mark and one.kind == mark.kind), None)
        who = self._controller.who
        t = self._controller.clock() if track.reading is None else track.reading.t

        def write(box: BlackBox) -> None:
            for one in events:
                label = mark.label if mark is not None and one is bearer else None
                box.add_event(_as_box_event(one, label, who))
            if mark is not None and bearer is None:
                box.add_event(_bare_mark(t, mark))

        self._writer.add(index, write)

    def _record_names(self, index: int, names: FingerprintNames) -> None:
        document = {
            "build": names.build, "path": names.path, "behaviour": names.behaviour,
            "pinned": names.pinned, "differs": names.differs,
        }  # fmt: skip
        t = self._controller.clock()
        self._writer.add(index, lambda box: box.add_document("fingerprint", t, document))

    def _record_load(self, index: int, t: float, profile: str | None) -> None:
        document = {"profile": profile}
        self._writer.add(index, lambda box: box.add_document("load", t, document))

    def _report(self, index: int, text: str) -> None:
        """From the writer's thread."""
        loop = self._loop
        if loop is not None:
            with suppress(RuntimeError):  # the loop has ended meanwhile
                loop.call_soon_threadsafe(self._on_notice, index, text)

    def _begin_anew(self, index: int) -> None:
        """From the writer's thread: a new box has nothing of what is recorded as it changes."""
        loop = self._loop
        if loop is not None:
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(self._forget, index)

    def _forget(self, index: int) -> None:
        known = self._engines[index]
        self._engines[index] = _Engine(known.event, known.mark)

    def _tell(self, index: int, text: str) -> None:
        self._controller.tell(text, "warn", index=index)


def _is_due(t: float, at: float, every: float) -> bool:
    """Whether `at` has come, or lies so far ahead that the clock was set back meanwhile."""
    return t >= at or t < at - every - NOT_OFFERED_S


def _as_box_event(event: Event, label: str | None, who: str) -> BoxEvent:
    """The event as the black box has it; `who` made what this console made."""
    from specdeck.engine.blackbox.event import BoxEvent

    cause, tone = event.cause, event.tone
    return BoxEvent(
        event.t,
        event.kind,
        event.text,
        "plain" if tone == "strong" or tone == "key" or tone == "rule" or tone == "past" else tone,
        label=label,
        origin=None if cause is None else cause.origin,
        who=None if cause is None else cause.who or who,
        reason=None if cause is None else cause.reason,
    )


def _bare_mark(t: float, mark: Mark) -> BoxEvent:
    from specdeck.engine.blackbox.event import BoxEvent

    return BoxEvent(t, mark.kind, "", label=mark.label)


def _newer_than(last: Event | None, events: tuple[Event, ...]) -> Iterator[Event]:
    """The events after `last`, the newest first; one that is told again is none."""
    for event in reversed(events):
        if last is not None and event.original is last.original:
            return
        yield event


@dataclass(slots=True)
class _Box:
    """The file of one engine, as far as this process has it."""

    url: str
    name: str
    state: BoxState = "opening"
    box: BlackBox | None = None
    try_at: float = 0.0
    """When to try again, by the steady clock."""
    look_at: float = 0.0
    """When to look again whether the file is still there, by the same clock."""
    told: str | None = None
    """What was said of a failure that lasts."""


class _Writer:
    """The thread that writes; begun with the first thing to write."""

    def __init__(
        self,
        engines: list[tuple[str, str]],
        folder: Path,
        limits: tuple[float, float],
        report: Callable[[int, str], None],
        begin_anew: Callable[[int], None],
        steady: Callable[[], float],
    ) -> None:
        """`begin_anew` is told that an engine's box was gone, and is made once more."""
        self.boxes = [_Box(*one) for one in engines]
        self._folder = folder
        self._limits = limits
        self._report = report
        self._begin_anew = begin_anew
        self._steady = steady
        self._queue: Queue[tuple[int, _Write] | None] = Queue(MOST_WAITING)
        self._thread: threading.Thread | None = None
        self._ends = threading.Event()
        self._swept = False
        """Whether black boxes of engines that are long gone were removed."""

    def add(self, index: int, write: _Write) -> None:
        """Has something written, or left out where the disk is too slow for what there is."""
        if self._ends.is_set():
            return
        if self._thread is None and not self._begin(index):
            return
        with suppress(Full):
            self._queue.put_nowait((index, write))

    def _begin(self, index: int) -> bool:
        """Whether there is a thread now; that there is no memory for it is said once."""
        thread = threading.Thread(target=self._run, name="black box", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            self._fail(self.boxes[index], index, str(error))
            return False
        self._thread = thread
        return True

    def close(self) -> None:
        """Ends the thread when it has written all, or when that takes too long."""
        if self._thread is None or self._ends.is_set():
            return
        self._ends.set()
        with suppress(Full):
            self._queue.put_nowait(None)
        self._thread.join(LAST_WRITES_S)

    def _run(self) -> None:
        while True:
            try:
                asked = self._queue.get(block=not self._ends.is_set())
            except Empty:
                break
            if asked is not None:
                self._write(self.boxes[asked[0]], *asked)
            elif self._queue.empty():
                break
        for one in self.boxes:
            if one.box is not None:
                with suppress(SpecdeckError):
                    one.box.close()

    def _write(self, one: _Box, index: int, write: _Write) -> None:
        self._leave_gone(one, index)
        if one.box is None and self._steady() < one.try_at:
            return
        try:
            if one.box is None and not self._open(one):
                return
            if one.box is not None:
                write(one.box)
        except SpecdeckError as error:
            self._fail(one, index, error.line())
        except Exception as error:  # noqa: BLE001  # recording is never a reason to end
            self._fail(one, index, f"{type(error).__name__}: {error}")
        else:
            if one.told is not None:
                self._report(index, "recorded again")
            one.state, one.told = "recording", None

    def _leave_gone(self, one: _Box, index: int) -> None:
        """Closes a box that was moved or deleted, for the next one to be made in its place.

        What is written to a file without a name is lost, and nothing else would ever tell.
        """
        if one.box is None or self._steady() < one.look_at:
            return
        one.look_at = self._steady() + LOOK_S
        if one.box.is_in_place():
            return
        path = one.box.path
        one.box.close()
        one.box, one.state, one.try_at = None, "opening", 0.0
        self._report(index, f"its black box was moved or deleted, a new one is begun: {path}")
        self._begin_anew(index)

    def _open(self, one: _Box) -> bool:
        from specdeck.engine.blackbox.box import open_box
        from specdeck.engine.blackbox.folder import box_path, remove_abandoned
        from specdeck.engine.blackbox.retention import Limits

        one.try_at = self._steady() + OPEN_S
        path = box_path(self._folder, one.url)
        one.box = open_box(path, one.url, name=one.name, limits=Limits(*self._limits))
        if one.box is None:
            one.state = "elsewhere"
            return False
        one.look_at = self._steady() + LOOK_S
        # Not by the clock of this moment, which may be wrong: by the time that many readings tell.
        settled = None if self._swept else one.box.settled_time()
        if settled is not None:
            self._swept = True
            remove_abandoned(self._folder, min(settled, time.time()) - self._limits[0] * 86_400)
        return True

    def _fail(self, one: _Box, index: int, why: str) -> None:
        """Says it once, and opens the file anew a while later."""
        if one.box is not None:
            with suppress(SpecdeckError):
                one.box.close()
        one.box, one.state, one.try_at = None, "failing", self._steady() + OPEN_S
        if one.told is None:
            one.told = why
            self._report(index, f"not recorded: {why}")
