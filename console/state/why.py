"""One look at why an engine accepts less or works slower, as far as it has come."""

from __future__ import annotations

import asyncio
import shlex
import time
from collections.abc import Callable
from contextlib import aclosing, suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from specdeck.console.widgets.format import LocalTime
from specdeck.engine.client.command_options import NO_OPTIONS, CommandOptions
from specdeck.engine.errors import SpecdeckError

# Statistics are imported by the first look: a console paints before it.
if TYPE_CHECKING:
    from specdeck.engine.blackbox.history import History
    from specdeck.engine.client.engine_client import EngineClient
    from specdeck.engine.why.gather import Progress
    from specdeck.engine.why.ranking import Diagnosis


class WhyLook:
    """Watches an engine for a while and keeps what came of it."""

    def __init__(self, url: str, seconds: float, options: CommandOptions = NO_OPTIONS) -> None:
        self.url = url
        self.options = options
        """What commands have to be given for the engine."""
        self.seconds = seconds
        """How long it takes."""
        self.progress: Progress | None = None
        """None before the engine has answered."""
        self.diagnosis: Diagnosis | None = None
        """None while it watches."""
        self.error: SpecdeckError | None = None
        """Why there is nothing to judge."""
        self.recalled: tuple[float, float] | None = None
        """What of the past is judged, Unix seconds; None of an engine that is watched."""

    @property
    def is_open(self) -> bool:
        """Whether there is nothing to show yet."""
        return self.diagnosis is None and self.error is None

    async def run(
        self,
        client: EngineClient,
        on_change: Callable[[], None],
        history: History | None = None,
    ) -> None:
        """Watches to the end; `on_change` is called whenever there is more to show.

        What was seen is compared with what `history` has of the time before.
        """
        from specdeck.engine.special_functions import require_memory
        from specdeck.engine.why.evidence import Evidence
        from specdeck.engine.why.gather import gather
        from specdeck.engine.why.past import compare_with_past
        from specdeck.engine.why.ranking import diagnose

        def judge(evidence: Evidence) -> Diagnosis:
            if history is not None:
                with suppress(SpecdeckError):  # the engine's life before is the next best
                    evidence = compare_with_past(evidence, history)
            return replace(diagnose(evidence), options=self.options)

        try:
            require_memory()  # rather than after half a minute
            async with aclosing(gather(client, seconds=self.seconds)) as found:
                async for event in found:
                    if isinstance(event, Evidence):
                        # A second of a busy machine, for statistics that are imported then.
                        self.diagnosis = await asyncio.to_thread(judge, event)
                    else:
                        self.progress = event
                    on_change()
        except SpecdeckError as error:
            self.error = error
            on_change()

    async def recall(self, history: History, start: float, end: float) -> None:
        """Judges what was recorded from `start` to `end`, Unix seconds, in a thread of its own."""
        from specdeck.engine.why.past import recall
        from specdeck.engine.why.ranking import diagnose

        self.recalled = start, end
        try:
            found = await asyncio.to_thread(lambda: diagnose(recall(history, start, end)))
            self.diagnosis = replace(found, options=self.options)
        except SpecdeckError as error:
            self.error = error


def format_recall(url: str, start: float, end: float, local: LocalTime) -> str:
    """The command that judges the same past.

    >>> format_recall("http://a:1", 0.0, 120.0, time.gmtime)
    'specdeck why http://a:1 --since 1970-01-01T00:00:00 --until 1970-01-01T00:02:00'
    """
    since, until = (time.strftime("%Y-%m-%dT%H:%M:%S", local(t)) for t in (start, end))
    return f"specdeck why {shlex.quote(url)} --since {since} --until {until}"
