"""What every screen that follows and steers engines has in common."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from textual import work
from textual.message import Message
from textual.screen import Screen

from specdeck.console import keys
from specdeck.console.screens.dialog import Choice, Dialog
from specdeck.console.view import steering, undoing
from specdeck.console.view.folding import after
from specdeck.console.view.steering import Refusal
from specdeck.console.view.track import Track, Want
from specdeck.console.widgets import format
from specdeck.console.widgets.cells import NOTHING, Row, Tone
from specdeck.engine.control.protocol import Applied, Change
from specdeck.engine.errors import SpecdeckError

if TYPE_CHECKING:
    from specdeck.console.bench import Bench
    from specdeck.console.load import Load
    from specdeck.console.screens.fingerprint_names import Names
    from specdeck.engine.client.attach import MonitoredEngine
    from specdeck.engine.fingerprint.book import Book
    from specdeck.engine.metrics.reading import Reading
    from specdeck.engine.store.audit import Action


@dataclass(frozen=True)
class Desk:
    """What the live screen works with."""

    engines: tuple[MonitoredEngine, ...]
    owned: bool = False
    """Whether this console started the engine, so that control needs no question."""
    interval: float = 1.0
    """Seconds between two looks at an engine."""
    who: str = "operator"
    """Whose changes these are, for the engine and the audit log."""
    on_change: Callable[[Action], None] = lambda action: None
    load: Load | None = None
    clock: Callable[[], float] = time.time
    """Unix time, seconds."""
    local: format.LocalTime = time.localtime
    steady: Callable[[], float] = time.monotonic
    """Seconds of a clock that is never set."""
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    footer: Callable[[int, bool], Row] = lambda width, armed: NOTHING
    """For so many cells, and whether control is armed."""
    keymap: Mapping[str, str] = field(default_factory=dict)
    """The keys that the user has moved, by the ids of their actions."""
    bench: Bench | None = None
    """Lends both arms of an engine; None where there is no live engine to ask."""
    book: Book | None = None
    """Fingerprints and pins; None leaves names at what readings tell."""

    def spelt(self, name: str) -> str:
        """The key of an action, for a hint."""
        return keys.spelt(name, self.keymap)


class SteeringScreen(Screen[None]):
    """Follows engines and turns their knobs; a subclass shows them."""

    @dataclass
    class Answered(Message):
        """An engine applied a change."""

        index: int
        asked: Want
        change: Change
        applied: Applied
        seconds: float
        """From the request to the answer."""

    @dataclass
    class Refused(Message):
        """An engine would not or could not be changed."""

        index: int
        error: SpecdeckError

    def __init__(self, desk: Desk) -> None:
        super().__init__()
        self.desk = desk
        self.tracks = [Track(engine.name, engine.url, _recorded(engine)) for engine in desk.engines]
        self.selected = 0
        self.asking: set[int] = set()
        self.names: Names | None = None
        if desk.book is not None:
            from specdeck.console.screens.fingerprint_names import Names

            self.names = Names(self, desk.book)

    def show(self) -> None:
        """Bring the tracks onto the screen."""
        raise AssertionError("a steering screen says how it shows its tracks")

    @work(group="follow")
    async def follow(self, index: int) -> None:
        """Take in one engine's readings: for ever, or to the end of a recording."""
        engine = self.desk.engines[index]
        async for reading in engine.readings(self.desk.interval):
            before = self.tracks[index]
            self.tracks[index] = after(before, reading)
            self.show()
            self.heard(index, before, reading)
            if self.names is not None:
                self.names.heard(index, reading)
        track = self.tracks[index]
        if track.recorded and track.reading is not None:
            self.change(index, track.told(track.reading.t, "the recording ends here", "accent"))

    def heard(self, index: int, before: Track, reading: Reading) -> None:
        """A reading has been taken in; `before` is the track without it."""

    @property
    def engine(self) -> MonitoredEngine:
        """The engine on the screen."""
        return self.desk.engines[self.selected]

    def change(self, index: int, track: Track) -> None:
        """Put a newer track in place and show it."""
        self.tracks[index] = track
        self.show()

    def tell(self, text: str, tone: Tone = "plain") -> None:
        """One more event of the engine on the screen."""
        self.change(self.selected, self.tracks[self.selected].told(self.desk.clock(), text, tone))

    def wish(self, want: Want) -> bool:
        """Ask for a change unless it is known to be refused; presses add up."""
        index = self.selected
        refusal = self.refusal(index, want)
        if refusal is not None:
            self.refuse(refusal)
            return False
        self.change(index, steering.wished(self.tracks[index], want))
        self.ask(index)
        return True

    def refusal(self, index: int, want: Want) -> Refusal | None:
        """Why an engine would not do it; None where it might."""
        armed = self.desk.engines[index].armed
        return steering.refusal(self.tracks[index], want, armed=armed, spelt=self.desk.spelt)

    def refuse(self, refusal: Refusal) -> None:
        """Say why a key does nothing."""
        self.tell(refusal.line(), "warn")

    def ask(self, index: int) -> None:
        """Send what is wished; one request at a time for each engine, the last wish wins."""
        change = steering.request(self.tracks[index], self.desk.who)
        if change is not None and index not in self.asking:
            self.asking.add(index)
            self.send(index, change)

    @work(group="steer")
    async def send(self, index: int, change: Change) -> None:
        """One request to one engine."""
        began = time.perf_counter()
        word: SteeringScreen.Answered | SteeringScreen.Refused | None = None
        try:
            applied = await self.desk.engines[index].change(change)
        except SpecdeckError as error:
            word = self.Refused(index, error)
        else:
            asked = Want.of(change)
            seconds = time.perf_counter() - began
            word = self.Answered(index, asked, change, applied, seconds)
        finally:
            # Whoever takes in an answer asks on with the version that it brings.
            if word is None:
                self.asking.discard(index)
        self.post_message(word)

    def on_steering_screen_answered(self, message: Answered) -> None:
        """Show and record what the engine did; then ask for what was wished meanwhile."""
        index, applied, change = message.index, message.applied, message.change
        self.asking.discard(index)
        now = self.desk.clock()
        track = steering.answered(self.tracks[index], message.asked, applied, now, message.seconds)
        self.change(index, track)
        self.record(index, change, applied)
        self.ask(index)

    def record(self, index: int, change: Change, applied: Applied) -> None:
        """Hand a change over to the audit log; what cannot be written is said."""
        from specdeck.engine.control.observe import back, undo
        from specdeck.engine.store.audit import Action

        track = self.tracks[index]
        action = Action(
            self.desk.clock(),
            self.desk.who,
            track.url,
            track.name,
            applied.before,
            applied.applied,
            undo(track.url, back(applied)),
            track.state.instance if track.state else None,
            change.reason,
        )
        try:
            self.desk.on_change(action)
        except SpecdeckError as error:
            self.change(index, track.told(action.t, f"not recorded: {error.line()}", "warn"))

    def on_steering_screen_refused(self, message: Refused) -> None:
        """Show why; what was wished is dropped, since it was built upon it."""
        self.asking.discard(message.index)
        track = steering.refused(self.tracks[message.index], message.error, self.desk.clock())
        self.change(message.index, track)

    def action_change_k(self, by: int) -> None:
        """k up or down, counted from what was last asked for."""
        k = self.tracks[self.selected].k_wanted
        self.wish(Want(k=(k or 0) + by))

    def action_set_k(self, k: int) -> None:
        """k at once."""
        self.wish(Want(k=k))

    def action_toggle_mode(self) -> None:
        """From speculation to target-only, or back."""
        alone = self.tracks[self.selected].mode_wanted == "target-only"
        self.wish(Want(mode="speculate" if alone else "target-only"))

    def action_toggle_policy(self) -> None:
        """Have the goodput policy choose k, or keep k where the operator has put it."""
        fixed = self.tracks[self.selected].policy_wanted in (None, "fixed")
        self.wish(Want(policy="goodput" if fixed else "fixed"))

    def action_undo(self) -> None:
        """Take this console's last change back."""
        index = self.selected
        track = undoing.ready(self.tracks[index])
        want = undoing.latest(track)
        if want is None:
            self.change(index, track)
            self.tell(undoing.nothing(track), "muted")
            return
        refusal = self.refusal(index, want)
        if refusal is not None:
            self.refuse(refusal)
            return
        said = undoing.doubt(track, self.desk.spelt)
        if said is None:
            self.change(index, undoing.taking(track))
            self.wish(want)
        else:
            self.change(index, undoing.doubted(track))
            self.tell(said, "warn")

    def action_next_load(self) -> None:
        """The next load profile."""
        if self.desk.load is not None:
            self.tell(f"load profile {self.desk.load.next()}", "accent")

    @work(group="arm", exclusive=True)
    async def action_arm(self) -> None:
        """Allow changes, after a question where specdeck did not start the engine."""
        engine = self.engine
        if self.tracks[self.selected].recorded:
            self.wish(Want())
            return
        if engine.armed:
            self.tell("control is armed already", "muted")
            return
        if not self.desk.owned and not await self.app.push_screen_wait(
            _arm_dialog(engine, self.desk.spelt("change.undo"))
        ):
            return
        try:
            engine.arm()
        except SpecdeckError as error:
            self.refuse(Refusal(str(error), error.remedy))
            return
        self.tell("control armed: every change is recorded and can be undone", "accent")


def _recorded(engine: MonitoredEngine) -> bool:
    from specdeck.engine.metrics.recording import ReplayedEngine

    return isinstance(engine, ReplayedEngine)


def _arm_dialog(engine: MonitoredEngine, undo: str) -> Dialog:
    return Dialog(
        f"Arm control of {engine.name}?",
        "This console did not start the engine, and others may rely on it. "
        f"Changes act at once on live traffic, are recorded, and can be undone with {undo}.",
        (Choice("arm", "a", "Arm control"), Choice("", "escape", "Stay read-only")),
    )
