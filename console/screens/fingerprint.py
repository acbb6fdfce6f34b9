"""The fingerprint screen: compares, pins, probes and saves what it shows."""

from __future__ import annotations

from pathlib import Path

from textual import work

from specdeck.console import screenshots
from specdeck.console.screens.dialogs import Choice, Dialog
from specdeck.console.screens.fingerprint_against import AgainstScreen
from specdeck.console.screens.fingerprint_facts import FactsScreen
from specdeck.console.view import fingerprint as view
from specdeck.console.view.fingerprint import Against
from specdeck.engine.errors import SpecdeckError


class FingerprintScreen(FactsScreen):
    """Shows one engine's fingerprint and compares it."""

    @work(group="against", exclusive=True)
    async def action_against(self) -> None:
        """Choose what to compare with."""
        if self.fingerprints is None:
            self.say("nothing to compare: the engine's facts are not known", bad=True)
            return
        chosen = await self.app.push_screen_wait(AgainstScreen(await self._choices()))
        kind, _, value = (chosen or "").partition(" ")
        if not kind:
            return
        self.said = ()
        try:
            self.against = await self._chosen(kind, value)
        except SpecdeckError as error:
            self.say(error.line(), bad=True)
            return
        self.follows_pin = kind == "pin"
        self.compare()

    async def _choices(self) -> tuple[tuple[str, str], ...]:
        assert self.fingerprints is not None
        url = self.flown.url
        place = self.fingerprints.pin_place(url)
        found = []
        if place.exists():
            found.append(("pin ", f"the pin  {place.name}"))
        for number, engine in enumerate(self.controller.engines):
            if engine.url != url:
                found.append((f"desk {number}", f"{engine.name}  {engine.url}"))
        try:
            moments = await self.fingerprints.moments(url, limit=100)
        except SpecdeckError as error:
            self.say(error.line(), bad=True)
            moments = ()
        for one in moments:
            found.append(
                (f"moment {one.number}", view.moment(one, self.context.local, self.context.clock()))
            )
        return (*found, ("none ", "nothing: facts alone"))

    async def _chosen(self, kind: str, value: str) -> Against | None:
        assert self.fingerprints is not None
        if kind == "pin":
            pinned = await self.fingerprints.read_pin(self.flown.url)
            return (
                None
                if pinned is None
                else Against("pin", pinned, self.fingerprints.pin_place(self.flown.url))
            )
        if kind == "desk":
            engine = self.controller.engines[int(value)]
            return Against(engine.name, await self.fingerprints.fetch(engine.url))
        if kind == "engine":
            return Against(value, await self.fingerprints.fetch(value))
        moments = await self.fingerprints.moments(self.flown.url) if kind == "moment" else ()
        return next(
            (Against(f"@{m.number}", m.fingerprint) for m in moments if str(m.number) == value),
            None,
        )

    @work(group="pin", exclusive=True)
    async def action_pin(self) -> None:
        """Keep what is seen as what is expected of this engine."""
        if self.fingerprints is None or self.seen is None or self.error is not None:
            self.say("nothing to pin: the engine's facts are not known", bad=True)
            return
        if not self.seen.progress.finished:
            self.say("not yet: the engine still reads its weights", bad=True)
            return
        seen, place = self.seen, self.fingerprints.new_pin_place(self.flown.url)
        if place.exists() and not await self.app.push_screen_wait(_overwrite(place)):
            return
        try:
            written = await self.fingerprints.pin(seen)
        except SpecdeckError as error:
            self.say(error.line(), bad=True)
            return
        if self.context.watches is not None:
            self.context.watches.adopt(written)
        self.against, self.follows_pin = Against("pin", seen, written.place), True
        self.compare()
        self.say(f"pinned {seen.path} in {screenshots.spelt(place, Path.home())}")

    @work(group="probe")
    async def action_probe(self) -> None:
        """Ask the probe set; the answers are the third name."""
        if self.probe is not None:
            return
        if self.fingerprints is None or self.seen is None or self.error is not None:
            self.say("nothing to probe: the engine's facts are not known", bad=True)
            return
        self.said, self.probe = (), (0, 1)
        try:
            seen = await self.fingerprints.probe(self.seen, self._probed)
        except SpecdeckError as error:
            self.say(error.line(), bad=True)
        else:
            self.took(seen)
            if self.context.watches is not None:
                self.context.watches.judge(seen)
        finally:
            self.probe = None
        self.paint()

    def _probed(self, done: int, of: int) -> None:
        self.probe = (done, of)
        self.paint()

    def action_save(self) -> None:
        """Save the diff as text."""
        found = self.comparison
        if found is None or self.against is None:
            self.say(
                f"nothing to save: {self.spelt('fingerprint.against')} chooses what to compare with"
            )
            return
        text, label = view.diff(found, self.against.label), self.flown.name.replace("/", "-")
        name = f"specdeck-fingerprint-{label}-{int(self.context.clock())}.diff".replace(":", "-")

        def write(folder: Path) -> str:
            (folder / name).write_text(text, encoding="utf-8", errors="backslashreplace")
            return str(folder / name)

        try:
            path = screenshots.save(write, self.context.folders())
        except OSError as error:
            self.say(f"not saved: {error}", bad=True)
        else:
            self.say(f"saved {screenshots.spelt(path, Path.home())}")


def _overwrite(place: Path) -> Dialog:
    return Dialog(
        "Overwrite the pin?",
        f"{screenshots.spelt(place, Path.home())} holds what was expected so far. "
        "What is seen now takes its place.",
        (Choice("pin", "p", "Pin what is seen now"), Choice("", "escape", "Keep the pin")),
    )
