"""The start of an engine, followed to its end."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from typing import ClassVar

from textual import work
from textual.app import ComposeResult
from textual.message import Message
from textual.screen import Screen

from specdeck.console.context import ConsoleContext
from specdeck.console.keys import Place
from specdeck.console.screens.startup import view
from specdeck.console.widgets.blocks import bar
from specdeck.console.widgets.cells import Cell, Row, heading
from specdeck.console.widgets.text import Line, Notice, Rows
from specdeck.engine.client.attach import MonitoredEngine
from specdeck.engine.errors import SpecdeckError
from specdeck.engine.launch.progress import StartProgress


class StartupScreen(Screen[None]):
    """Says when the engine is ready; stays with the reason when it failed."""

    PLACE: ClassVar[Place] = "start"

    class Ready(Message):
        """The engine answers."""

    class Done(Message):
        """And nothing lay over this screen: another one may take its place."""

    @dataclass
    class Raised(Message):
        """The start ended with an error instead of a last moment."""

        error: SpecdeckError

    def __init__(
        self,
        engine: MonitoredEngine,
        progress: AsyncIterator[StartProgress],
        context: ConsoleContext,
        notice: tuple[str, ...] = (),
    ) -> None:
        """`notice` is what whoever starts an engine should know before anything else."""
        super().__init__()
        self.engine = engine
        self.notice = notice
        self.progress = progress
        self.context = context
        self._is_ready = False

    def compose(self) -> ComposeResult:
        """Stages, time, log."""
        yield Line(id="identity")
        yield Notice(id="notice", classes="-empty")
        yield Rows(id="stages")
        yield Line(id="time")
        yield Line(id="passed", classes="-empty")
        yield Rows(id="verdict")
        yield Line(id="log-heading")
        yield Rows(id="log")
        yield Line(id="footer")

    def on_mount(self) -> None:
        """Name the parts and follow the start."""
        self.query_one("#notice", Notice).rows = view.notice(self.notice)
        self.query_one("#log-heading", Line).row = heading("the engine's log")
        self.follow()

    def on_resize(self) -> None:
        """The footer names as many keys as there is room for."""
        self.query_one("#footer", Line).row = self.context.footer(self.PLACE, self.size.width)

    @work(exclusive=True)
    async def follow(self) -> None:
        """Show each moment; leave when the engine is ready and no dialog is open."""
        progress = StartProgress("environment", 0.0)
        try:
            async for progress in self.progress:
                self.show(progress)
                if progress.ready:
                    self.post_message(self.Ready())
                    self._is_ready = True
                    self._give_way()
                    return
        except SpecdeckError as error:
            # There was no process, or none to go on with.
            self.post_message(self.Raised(error))
            self.show(replace(progress, failed=error.line()))

    def on_screen_resume(self) -> None:
        """Make up for what waited for the dialog over this screen."""
        self._give_way()

    def _give_way(self) -> None:
        """Leave to the live screen, but never under what lies over this one: its keys are pressed
        for that, and would steer the engine."""
        if self._is_ready and self.is_active:
            self.post_message(self.Done())

    def show(self, progress: StartProgress) -> None:
        """One moment of the start."""
        share, name = view.share(progress), Cell(self.engine.name, "strong")
        who, state = (Cell(" specdeck  ", "accent"), name), (Cell("○ starting ", "muted"),)
        with self.app.batch_update():
            self.set_class(progress.failed is not None, "-failed")
            self.query_one("#identity", Line).row = Row(who, state)
            self.query_one("#stages", Rows).rows = view.stages(progress)
            self.query_one("#time", Line).row = view.clock(progress)
            filled, track = bar(share, 40)
            line = Row((Cell(f"  {filled}", "accent"), Cell(track, "rule")))
            self.query_one("#passed", Line).row = Row() if share is None else line
            self.query_one("#verdict", Rows).rows = view.verdict(progress)
            log = self.query_one("#log", Rows)
            log.rows = view.log(progress)[-log.size.height :] if log.size.height else ()
