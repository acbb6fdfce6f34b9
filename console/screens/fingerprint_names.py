"""Keeps the engines' three names beneath the live screen, and tells of drift."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from specdeck.console.view.cell import Tone

if TYPE_CHECKING:
    from specdeck.console.screens.steering import SteeringScreen
    from specdeck.engine.fingerprint.book import Book
    from specdeck.engine.fingerprint.drift import Drift, Follower, Sight
    from specdeck.engine.fingerprint.seen import Seen
    from specdeck.engine.metrics.reading import Reading


class Names:
    """Follows the names of a screen's engines; looks are workers of that screen."""

    def __init__(self, screen: SteeringScreen, book: Book) -> None:
        self._screen = screen
        self._book = book
        self._followers: dict[int, Follower] = {}
        self._beginning: set[int] = set()

    def heard(self, index: int, reading: Reading) -> None:
        """Look behind the names of an engine, if the reading says that they moved."""
        known = self._followers.get(index)
        if known is not None and known.due(reading):
            self._screen.run_worker(self._look(index, known, reading), group="names")
        elif known is None and reading.up and index not in self._beginning:
            self._beginning.add(index)
            self._screen.run_worker(self._begin(index, reading), group="names")

    def pinned(self, seen: Seen, place: Path) -> None:
        """The engine that `seen` is of has another pin from now on."""
        from specdeck.engine.fingerprint.drift import Judge

        for index, track in enumerate(self._screen.tracks):
            if track.url == seen.url and index in self._followers:
                judge = self._followers[index].judge = Judge(seen, place)
                self._show(index, judge.sight(seen, self._screen.desk.clock()))
                self._tell(index, f"pinned {seen.path}", "accent")

    def probed(self, seen: Seen) -> None:
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
        await self._expect(index, follower, url)
        self._followers[index] = follower
        if follower.due(reading):
            await self._look(index, follower, reading)

    async def _look(self, index: int, follower: Follower, reading: Reading) -> None:
        sight = await follower.sight(reading)
        if sight is not None:
            self._show(index, sight)

    async def _expect(self, index: int, follower: Follower, url: str) -> None:
        """Give the follower the engine's pin; one that cannot be used is an event."""
        from specdeck.engine.errors import SpecdeckError
        from specdeck.engine.fingerprint.drift import Judge

        try:
            found = await self._book.pinned(url)
        except SpecdeckError as error:
            self._tell(index, f"no pin: {error.line()}", "warn")
            return
        if found is not None:
            follower.judge = Judge(found, self._book.place(url))

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
