"""Keeps the engines' three names beneath the live screen, and tells of drift."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from specdeck.console.widgets.cells import Tone

if TYPE_CHECKING:
    from specdeck.console.screens.steering import SteeringScreen
    from specdeck.engine.fingerprint.book import Book
    from specdeck.engine.fingerprint.drift import Drift, Follower, Sight
    from specdeck.engine.fingerprint.fingerprint import Fingerprint
    from specdeck.engine.fingerprint.pins import PinFile
    from specdeck.engine.metrics.reading import Reading


class Names:
    """Follows the names of a screen's engines; looks are workers of that screen."""

    def __init__(self, screen: SteeringScreen, book: Book) -> None:
        self._screen = screen
        self._book = book
        self._followers: dict[int, Follower] = {}
        self._pins: dict[int, PinFile] = {}
        self._beginning: set[int] = set()

    def heard(self, index: int, reading: Reading) -> None:
        """Look behind the names of an engine, if the reading says that they moved."""
        known = self._followers.get(index)
        if known is not None and (known.due(reading) or self._pin_due(index, reading)):
            self._screen.run_worker(self._look(index, known, reading), group="names")
        elif known is None and reading.up and index not in self._beginning:
            self._beginning.add(index)
            self._screen.run_worker(self._begin(index, reading), group="names")

    def pinned(self, seen: Fingerprint, place: Path) -> None:
        """The engine that `seen` is of has another pin from now on."""
        from specdeck.engine.fingerprint.drift import Judge

        for index, track in enumerate(self._screen.tracks):
            if track.url == seen.url and index in self._followers:
                self._pins[index].wrote(place)
                judge = self._followers[index].judge = Judge(seen, place)
                self._show(index, judge.sight(seen, self._screen.desk.clock()))
                self._tell(index, f"pinned {seen.path}", "accent")

    def probed(self, seen: Fingerprint) -> None:
        """A look that brought the engine's behaviour along."""
        for index, track in enumerate(self._screen.tracks):
            if track.url == seen.url and index in self._followers:
                from specdeck.engine.fingerprint.drift import Sight

                judge = self._followers[index].judge
                now = self._screen.desk.clock()
                self._show(index, Sight(seen) if judge is None else judge.sight(seen, now))

    async def _begin(self, index: int, reading: Reading) -> None:
        """The first look, with the engine's pin at hand."""
        from specdeck.engine.fingerprint.drift import Follower

        url = self._screen.desk.engines[index].url
        follower = Follower(lambda: self._book.look(url))
        self._pins[index] = self._book.pin_file(url)
        self._pins[index].due(reading.t)
        await self._expect(index, follower)
        self._followers[index] = follower
        if follower.due(reading):
            await self._look(index, follower, reading)

    def _pin_due(self, index: int, reading: Reading) -> bool:
        """Whether somebody may have pinned the engine anew, from another shell."""
        return reading.up and self._pins[index].due(reading.t)

    async def _look(self, index: int, follower: Follower, reading: Reading) -> None:
        """Look at the engine's pin, and behind its names where they or the pin moved."""
        if (news := await self._expect(index, follower)) is not None:
            self._tell(index, news, "accent")
        if not follower.due(reading):
            return
        sight = await follower.sight(reading)
        if sight is not None:
            self._show(index, sight)

    async def _expect(self, index: int, follower: Follower) -> str | None:
        """Give the follower the engine's pin; what is news of it. One that is none is an event."""
        from specdeck.engine.errors import SpecdeckError
        from specdeck.engine.fingerprint.pins import Pin

        pins = self._pins[index]
        try:
            found = await asyncio.to_thread(pins.again)
        except SpecdeckError as error:
            self._tell(index, f"no pin: {error.line()}", "warn")
            url = self._screen.desk.engines[index].url
            follower.expect(Pin(self._book.place(url), None))
            return None
        return None if found is None else follower.expect(found)

    def _show(self, index: int, sight: Sight) -> None:
        from dataclasses import replace

        from specdeck.console.view.fingerprint_badge import named

        track = self._screen.tracks[index]
        self._screen.change(index, replace(track, named=named(sight, track.named)))
        if sight.drift is not None:
            drift = sight.drift
            self._tell(index, drift.line, "good" if drift.comparison.same else "bad")
            if self._book.webhook is not None:
                self._screen.run_worker(self._post(index, drift), group="webhook")

    async def _post(self, index: int, drift: Drift) -> None:
        assert self._book.webhook is not None
        reason = await self._book.webhook.post(drift.as_json())
        if reason is not None:
            self._tell(index, reason, "warn")

    def _tell(self, index: int, text: str, tone: Tone) -> None:
        track = self._screen.tracks[index]
        told = track.told(self._screen.desk.clock(), text, tone)
        self._screen.change(index, told)
