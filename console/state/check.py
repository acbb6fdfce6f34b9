"""What the check's screens know: both arms of an engine, choices, results, and one prompt asked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    aclosing,
    asynccontextmanager,
)
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specdeck.engine.errors import SpecdeckError, Unsupported

if TYPE_CHECKING:
    from specdeck.console.state.controller import Controller
    from specdeck.engine.client.attach import MonitoredEngine
    from specdeck.engine.divergence.arms import Arm
    from specdeck.engine.divergence.calibration import Calibration
    from specdeck.engine.divergence.prompts import Prompt, PromptSet
    from specdeck.engine.divergence.race import FirstDifference, RaceEvent, RaceVerdict
    from specdeck.engine.operations.check import ArmPair, CheckOptions
    from specdeck.engine.store.checks import Checks

OpenArms = Callable[["MonitoredEngine", "CheckOptions"], AbstractAsyncContextManager["ArmPair"]]
"""Both arms of an engine: against another one, or against itself without drafts."""
OpenChecks = Callable[[], AbstractContextManager["Checks"]]


@dataclass(frozen=True, slots=True)
class CheckResults:
    """A finished check or replay."""

    data: dict[str, Any]
    """As `check --json` prints it."""
    prompts: PromptSet
    options: CheckOptions
    replay: bool
    ended: float
    """Unix time."""


@dataclass(slots=True)
class CheckSession:
    """What outlives a screen: choices, the last results, what was learnt of the margins."""

    options: CheckOptions
    source: str = "code"
    """A bundled set or a file."""
    prompt: Prompt | None = None
    """None until one is chosen: the first of the source."""
    typed: bool = False
    """Whether the prompt was typed, and is in no set."""
    rulers: dict[str, Calibration] = field(default_factory=dict)
    """By what the arms are."""
    results: dict[str, CheckResults] = field(default_factory=dict)
    """The last on each engine, by URL."""


class CheckContext:
    """Lends both arms of an engine and the stores, and keeps the session."""

    def __init__(
        self,
        open_arms: OpenArms,
        open_checks: OpenChecks,
        open_scratch: OpenChecks,
        *,
        folders: Callable[[], Iterable[Path]] = tuple,
        reference: str | None = None,
        keyed: bool = False,
    ) -> None:
        """`open_scratch` forgets; `folders` take reports; `keyed` engines require an API key."""
        self.open_arms = open_arms
        self.open_checks = open_checks
        self.open_scratch = open_scratch
        self.folders = folders
        self.keyed = keyed
        self._reference = reference
        self._session: CheckSession | None = None

    @property
    def session(self) -> CheckSession:
        """The choices so far; made when it is first wanted, long after the first paint."""
        if self._session is None:
            self._session = new_session(self._reference)
        return self._session


def new_session(reference: str | None = None) -> CheckSession:
    """Nothing chosen, and nothing known."""
    from specdeck.engine.operations.check import CheckOptions  # heavy, and not for the first paint

    return CheckSession(CheckOptions(reference=reference))


MOST_SHOWN = 20_000
"""Characters of an answer whose end is shown: it is laid out anew ten times a second, and an engine
may say a megabyte in each token."""


@dataclass(slots=True)
class Side:
    """What one arm has said so far."""

    text: str = ""
    """Of a long answer the end."""
    tokens: int = 0
    dropped: int = 0
    """Characters before `text`."""

    def hear(self, text: str, tokens: int) -> None:
        """Takes in what it says next, and of how many tokens that is."""
        whole = self.text + text
        self.text = whole[-MOST_SHOWN:]
        self.dropped += len(whole) - len(self.text)
        self.tokens += tokens


@dataclass(slots=True)
class Split:
    """What a split screen shows."""

    arms: tuple[Arm, Arm] | None = None
    problem: str | None = None
    """Why nothing can be compared: one line with its remedy."""
    running: bool = False
    sides: dict[str, Side] = field(default_factory=lambda: {"serving": Side(), "reference": Side()})
    difference: FirstDifference | None = None
    verdict: RaceVerdict | None = None
    recorded: str | None = None
    """The case of an earlier check that is being looked at again, on one line."""
    note: tuple[str, str] | None = None
    """A word and a line: what was written where, what was stopped."""


class SplitCheck:
    """One prompt asked of both arms of the selected engine, and what they have said so far."""

    def __init__(
        self,
        controller: Controller,
        context: CheckContext | None,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        """Without a `context` nothing can be asked; `on_change` hears of what cannot wait."""
        self.split = Split()
        self.session = new_session() if context is None else context.session
        self.data: dict[str, Any] | None = None
        """The prompt that was asked last as a check of one, as `check --json` prints it."""
        self._controller = controller
        self._context = context
        self._on_change = on_change

    @property
    def context(self) -> CheckContext:
        """Where arms and stores come from; raises Unsupported where there are none."""
        if self._context is None:
            what = "a recording" if self._controller.track.recorded else "no live engine"
            why = f"{self._controller.engine.name} is {what}: it cannot be asked"
            raise Unsupported(why, remedy="attach to one: `specdeck attach URL`")
        return self._context

    @property
    def reference(self) -> str | None:
        """The other engine; None where the reference would be the engine itself."""
        wanted = self.session.options.reference
        return None if wanted == self._controller.engine.url else wanted

    @asynccontextmanager
    async def open_arms(self) -> AsyncIterator[ArmPair]:
        """Both arms, whose facts are known from then on."""
        options = replace(self.session.options, reference=self.reference)
        async with self.context.open_arms(self._controller.engine, options) as pair:
            self.split.arms, self.split.problem = pair.arms, None
            yield pair

    def choose(self, prompt: Prompt, *, typed: bool = False, recorded: str | None = None) -> None:
        """Takes a prompt; what is known of another one goes."""
        self.session.prompt, self.session.typed = prompt, typed
        problem = self.split.problem if self.split.arms is None else None
        self.split = Split(arms=self.split.arms, recorded=recorded, problem=problem)
        self.data = None

    async def describe(self) -> None:
        """Finds out who is compared with whom, before anything is asked."""
        try:
            async with self.open_arms():
                pass
        except SpecdeckError as error:
            self.split.problem = error.line()

    async def ask(self) -> None:
        """Asks both arms the chosen prompt, and takes in what they say as they say it."""
        prompt = self.session.prompt
        if prompt is None:
            return
        # What is heard goes to this one: the screen may be at another prompt by then.
        split = self.split = Split(arms=self.split.arms, running=True, recorded=self.split.recorded)
        from specdeck.engine.divergence import statistics
        from specdeck.engine.divergence.race import race  # not for the first paint

        try:
            await asyncio.to_thread(statistics.load)  # a second without keys, else
            async with self.open_arms() as pair:
                events = race(
                    pair.askers, prompt, self._ruler(pair), threshold=pair.options.threshold
                )
                async with aclosing(events):
                    async for event in events:
                        self._take(split, event)
        except SpecdeckError as error:
            split.problem = error.line()
        finally:
            split.running = False

    def _ruler(self, pair: ArmPair) -> Calibration:
        """What is known of the margins of these very arms."""
        from specdeck.engine.divergence.calibration import Calibration

        key = "\n".join(str(arm.identity()) for arm in pair.arms)
        return self.session.rulers.setdefault(key, Calibration())

    def _take(self, split: Split, event: RaceEvent) -> None:
        from specdeck.engine.divergence.race import ArmText, FirstDifference

        if isinstance(event, ArmText):
            split.sides[event.arm].hear(event.text, len(event.tokens))
        elif isinstance(event, FirstDifference):
            split.difference = event
            self._on_change()
        else:
            split.verdict = event
            self.data = event.outcome.as_json()
