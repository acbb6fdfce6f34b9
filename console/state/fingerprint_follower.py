"""Keeps the engines' three names beneath every screen, and tells of drift."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from specdeck.console.state.controller import Controller
from specdeck.console.state.fingerprint_names import note_sight
from specdeck.console.widgets.cells import Tone

if TYPE_CHECKING:
    from specdeck.engine.fingerprint.book import Book
    from specdeck.engine.fingerprint.drift import Drift, Follower, Sight
    from specdeck.engine.fingerprint.export import Webhook
    from specdeck.engine.fingerprint.fingerprint import Fingerprint
    from specdeck.engine.fingerprint.pins import PinFile
    from specdeck.engine.metrics.reading import Reading


class FingerprintFollower:
    """Follows the names of a controller's engines."""

    def __init__(self, controller: Controller, book: Book) -> None:
        self._controller = controller
        self._book = book
        self._followers: dict[int, Follower] = {}
        self._pins: dict[int, PinFile] = {}
        self._beginning: set[int] = set()

    def on_reading(self, index: int, reading: Reading) -> None:
        """Look behind the names of an engine, if the reading says that they moved."""
        known = self._followers.get(index)
        if known is not None and (known.due(reading) or self._pin_due(index, reading)):
            self._controller.spawn(self._look(index, known, reading), "names")
        elif known is None and reading.up and index not in self._beginning:
            self._beginning.add(index)
            self._controller.spawn(self._begin(index, reading), "names")

    def pinned(self, seen: Fingerprint, place: Path) -> None:
        """The engine that `seen` is of has another pin from now on."""
        from specdeck.engine.fingerprint.drift import Judge

        for index, track in enumerate(self._controller.tracks):
            if track.url == seen.url and index in self._followers:
                self._pins[index].wrote(place)
                judge = self._followers[index].judge = Judge(seen, place)
                self._show(index, judge.sight(seen, self._controller.clock()))
                self._controller.tell(f"pinned {seen.path}", "accent", index=index)

    def probed(self, seen: Fingerprint) -> None:
        """A look that brought the engine's behaviour along."""
        for index, track in enumerate(self._controller.tracks):
            if track.url == seen.url and index in self._followers:
                from specdeck.engine.fingerprint.drift import Sight

                judge = self._followers[index].judge
                now = self._controller.clock()
                self._show(index, Sight(seen) if judge is None else judge.sight(seen, now))

    async def _begin(self, index: int, reading: Reading) -> None:
        """The first look, with the engine's pin at hand."""
        from specdeck.engine.fingerprint.drift import Follower

        url = self._controller.engines[index].url
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
            self._controller.tell(news, "accent", index=index)
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
            self._controller.tell(f"no pin: {error.line()}", "warn", index=index)
            url = self._controller.engines[index].url
            follower.expect(Pin(self._book.place(url), None))
            return None
        return None if found is None else follower.expect(found)

    def _show(self, index: int, sight: Sight) -> None:
        controller, drift = self._controller, sight.drift
        track = controller.tracks[index]
        track = replace(track, names=note_sight(sight, track.names))
        if drift is not None:
            tone: Tone = "good" if drift.comparison.same else "bad"
            track = track.add_event(controller.clock(), drift.line, tone)
            if self._book.webhook is not None:
                controller.spawn(self._post(index, drift, self._book.webhook), "webhook")
        controller.put(index, track)

    async def _post(self, index: int, drift: Drift, webhook: Webhook) -> None:
        reason = await webhook.post(drift.as_json())
        if reason is not None:
            self._controller.tell(reason, "warn", index=index)
