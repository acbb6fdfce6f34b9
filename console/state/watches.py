"""Folds what the watches of the engines tell into what is known of them: names, drift, alerts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from specdeck.console.state.controller import Controller
from specdeck.console.state.engine_state import FingerprintNames
from specdeck.console.widgets.cells import Tone

# What a watch needs is imported after the first paint.
if TYPE_CHECKING:
    from collections.abc import Iterable

    from specdeck.engine.blackbox.event import EventKind
    from specdeck.engine.fingerprint.fingerprint import Fingerprint
    from specdeck.engine.metrics.reading import Reading
    from specdeck.engine.operations.drift import FactsRead
    from specdeck.engine.operations.fingerprint import Fingerprints, WrittenPin
    from specdeck.engine.operations.watches import EngineWatch, Watches, WatchEvent


class EngineWatches:
    """The watches of a controller's engines, opened with their first readings."""

    def __init__(self, controller: Controller, open_watches: Callable[[], Watches]) -> None:
        self._controller = controller
        self._open_watches = open_watches
        self._opened: Watches | None = None
        self._watches: dict[int, EngineWatch] = {}
        self._opening: set[int] = set()

    @property
    def fingerprints(self) -> Fingerprints:
        """Fingerprints and pins of the engines."""
        return self._all.fingerprints

    def on_reading(self, index: int, reading: Reading) -> None:
        """Tell what follows from an engine's reading."""
        watch = self._watches.get(index)
        if watch is None:
            if reading.up and index not in self._opening:
                self._opening.add(index)
                self._controller.spawn(self._open(index, reading), "watch")
        elif watch.take(reading):
            self._controller.spawn(self._tell(index, watch, reading), "watch")

    def adopt(self, pin: WrittenPin) -> None:
        """Compare the engine with a pin that was written from this console."""
        now = self._controller.clock()
        for index, watch in self._of(pin.fingerprint.url):
            self._report(index, watch, watch.drift.adopt(pin.fingerprint, pin.place, now))
            said = f"pinned {pin.fingerprint.path}"
            self._controller.tell(said, "accent", index=index, kind="drift")

    def judge(self, found: Fingerprint) -> None:
        """Take in a fingerprint that brought the engine's behaviour along."""
        for index, watch in self._of(found.url):
            self._report(index, watch, watch.drift.judge(found, self._controller.clock()))

    def find_pinned(self, url: str) -> Fingerprint | None:
        """What the engine at `url` is compared with; None without a pin, or while it is unread."""
        return next((watch.drift.pinned for _, watch in self._of(url)), None)

    @property
    def _all(self) -> Watches:
        if self._opened is None:
            self._opened = self._open_watches()
        return self._opened

    def _of(self, url: str) -> list[tuple[int, EngineWatch]]:
        tracks = self._controller.tracks
        return [(index, one) for index, one in self._watches.items() if tracks[index].url == url]

    async def _open(self, index: int, reading: Reading) -> None:
        """Watch an engine from its first reading on."""
        # In a thread: what it imports would hold up the first figures.
        watches = await asyncio.to_thread(lambda: self._all)
        watch = self._watches[index] = watches.open(reading.url)
        if watch.take(reading):
            await self._tell(index, watch, reading)

    async def _tell(self, index: int, watch: EngineWatch, reading: Reading) -> None:
        async for event in watch.events(reading):
            self._fold(index, (event,))

    def _report(self, index: int, watch: EngineWatch, events: Iterable[WatchEvent]) -> None:
        """Show the events of an operator's own action, and post them."""
        found = tuple(events)
        self._fold(index, found)
        self._controller.spawn(self._post(index, watch, found), "watch")

    async def _post(self, index: int, watch: EngineWatch, events: tuple[WatchEvent, ...]) -> None:
        async for failure in watch.post(events):
            self._fold(index, (failure,))

    def _fold(self, index: int, events: Iterable[WatchEvent]) -> None:
        """What is known of an engine after these events."""
        from specdeck.engine.operations.drift import FactsRead

        track, now = self._controller.tracks[index], self._controller.clock()
        for event in events:
            if isinstance(event, FactsRead):
                track = replace(track, names=_fold_names(event, track.names))
            else:
                track = track.add_event(now, event.line, _tone(event), kind=_kind(event))
        self._controller.put(index, track)


def _tone(event: WatchEvent) -> Tone:
    from specdeck.engine.operations.alerts import Alert
    from specdeck.engine.operations.drift import Drift, MovedMeanwhile, PinMoved

    if isinstance(event, Alert):
        return "bad" if event.is_raised else "good"
    if isinstance(event, Drift):
        return "good" if event.comparison.same else "bad"
    if isinstance(event, MovedMeanwhile):
        return "muted"
    return "accent" if isinstance(event, PinMoved) else "warn"


def _kind(event: WatchEvent) -> EventKind:
    from specdeck.engine.operations.alerts import Alert, LimitUnwatched
    from specdeck.engine.operations.drift import Drift, MovedMeanwhile, NotComparable, PinMoved

    if isinstance(event, Alert | LimitUnwatched):
        return "alert"
    return (
        "drift" if isinstance(event, Drift | MovedMeanwhile | NotComparable | PinMoved) else "other"
    )


def _fold_names(event: FactsRead, old: FingerprintNames | None) -> FingerprintNames:
    """The names after a fetch; a behaviour that was known of the same path stays known."""
    found, comparison = event.fingerprint, event.comparison
    behaviour = found.names["behaviour"]
    if behaviour is None and old is not None and old.path == found.path:
        behaviour = old.behaviour
    differs = None
    if comparison is not None and not comparison.same:
        moved = (layer for layer in ("build", "path", "behaviour") if comparison.layers[layer])
        differs = next(moved, "path")
    reading = None if found.progress.finished else found.progress.line()
    return FingerprintNames(
        found.build, found.path, behaviour, reading, comparison is not None, differs
    )
