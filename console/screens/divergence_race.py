"""Asks both arms of an engine the same prompt; who shows it is a subclass's."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING, Any

from textual import work
from textual.timer import Timer

from specdeck.console.bench import Bench, Session, Wishes
from specdeck.console.context import ConsoleContext
from specdeck.console.screens.engine_screen import DetailScreen
from specdeck.console.state.controller import Controller
from specdeck.console.view.divergence import Split
from specdeck.engine.divergence.near_tie import Calibration
from specdeck.engine.divergence.race import Event, Judged, Parted, Said, race
from specdeck.engine.errors import SpecdeckError, Unsupported

if TYPE_CHECKING:
    from specdeck.engine.divergence.lab import Lab

REDRAW_S = 0.1
"""Between two pictures of a stream: a link is slow, and so are eyes."""


class RacingScreen(DetailScreen):
    """Has both arms, and what they have said so far."""

    case: dict[str, Any] | None = None
    """The outcome on the screen, as JSON has it."""

    def __init__(self, controller: Controller, context: ConsoleContext) -> None:
        super().__init__(controller, context)
        self.split = Split()
        self._ticking: Timer | None = None
        self._alone = Session()
        """For a console without a bench."""

    def ready(self) -> None:
        """Be able to show a stream."""
        self._ticking = self.set_interval(REDRAW_S, self.show, pause=True)

    @property
    def bench(self) -> Bench:
        """Where labs come from; raises Unsupported where there is none."""
        found = self.context.bench
        if found is None:
            what = "a recording" if self.track.recorded else "no live engine"
            why = f"{self.controller.engine.name} is {what}: it cannot be asked"
            raise Unsupported(why, remedy="attach to one: `specdeck attach URL`")
        return found

    @property
    def session(self) -> Session:
        """What was chosen in this session."""
        found = self.context.bench
        return self._alone if found is None else found.session

    @property
    def wishes(self) -> Wishes:
        """What the operator set."""
        return self.session.wishes

    @property
    def reference(self) -> str | None:
        """The other engine; None where the reference would be the engine itself."""
        wanted = self.wishes.reference
        return None if wanted == self.controller.engine.url else wanted

    @asynccontextmanager
    async def lab(self) -> AsyncIterator[Lab]:
        """Both arms, with their facts on the screen."""
        async with self.bench.labs(
            self.controller.engine, self.reference, self.wishes.plan()
        ) as lab:
            self.split.arms, self.split.problem = lab.arms, None
            yield lab

    @work(group="describe", exclusive=True)
    async def describe(self) -> None:
        """Say who is compared with whom before anything is asked."""
        await self._with_lab(None, None)

    @work(group="race", exclusive=True)
    async def action_race(self) -> None:
        """Ask both arms, and show what they say as they say it."""
        prompt = self.session.prompt
        if prompt is None:
            return
        recorded, arms = self.split.recorded, self.split.arms
        self.split = Split(arms=arms, running=True, recorded=recorded)
        await self._with_lab(self.split, prompt)

    async def _with_lab(self, split: Split | None, prompt: Any) -> None:
        """What is heard goes to `split`: the screen may be at another one by then."""
        assert self._ticking is not None
        try:
            async with self.lab() as lab:
                if split is not None:
                    self._ticking.resume()
                    async with aclosing(race(lab.askers, prompt, self._ruler(lab))) as events:
                        async for event in events:
                            self._take(split, event)
        except SpecdeckError as error:
            (split or self.split).problem = error.line()
        finally:
            if split is not None:
                split.running = False
            if not self.split.running:
                self._ticking.pause()
        self.show()

    def _ruler(self, lab: Lab) -> Calibration:
        """What is known of the margins of these very arms."""
        key = "\n".join(str(arm.identity()) for arm in lab.arms)
        return self.session.rulers.setdefault(key, Calibration())

    def _take(self, split: Split, event: Event) -> None:
        if isinstance(event, Said):
            side = split.sides[event.arm]
            side.text += event.text
            side.tokens += len(event.tokens)
        elif isinstance(event, Parted):
            split.parted = event
            self.show()
        elif isinstance(event, Judged):
            split.judged = event
            self.case = event.outcome.as_json()

    def action_stop(self) -> None:
        """Ask no further."""
        if self.split.running:
            self.workers.cancel_group(self, "race")
            self.split.running = False
            self.split.note = ("stopped", f"{self.spelt('check.run')} asks both arms again")
            self.show()
