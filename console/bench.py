"""Where the check's screens get their arms and their memory, and what they keep for a session."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from specdeck.engine.client.attach import MonitoredEngine
    from specdeck.engine.divergence.lab import Lab, Plan
    from specdeck.engine.divergence.near_tie import Calibration
    from specdeck.engine.divergence.prompts import Prompt, PromptSet
    from specdeck.engine.store.checks import Checks

Labs = Callable[["MonitoredEngine", str | None, "Plan"], AbstractAsyncContextManager["Lab"]]
"""Both arms of an engine, against another at an address or against itself without drafts."""
Memory = Callable[[], AbstractContextManager["Checks"]]


@dataclass(frozen=True, slots=True)
class Wishes:
    """What an operator may change about a check."""

    reference: str | None = None
    """The other engine; None compares with the same one, each request pinned to k = 0."""
    tokens: int = 128
    """The most in one answer."""
    replays: int = 20
    streams: int = 8
    """Requests at once on each engine."""
    prompts: int = 200
    threshold: float = 0.015
    gentle: bool = False

    def plan(self) -> Plan:
        """As a lab takes them."""
        from specdeck.engine.divergence.lab import Plan
        from specdeck.engine.divergence.requests import Settings

        return Plan(
            settings=Settings(max_tokens=self.tokens),
            threshold=self.threshold,
            streams=self.streams,
            gentle=self.gentle,
        )


@dataclass(slots=True)
class Session:
    """What outlives a screen: choices, the last outcome, what was learnt of the margins."""

    wishes: Wishes = field(default_factory=Wishes)
    source: str = "code"
    """A bundled set or a file."""
    prompt: Prompt | None = None
    """None until one is chosen: the first of the source."""
    typed: bool = False
    """Whether the prompt was typed, and is in no set."""
    rulers: dict[str, Calibration] = field(default_factory=dict)
    """By what the arms are."""
    results: dict[str, Results] = field(default_factory=dict)
    """The last outcome on each engine, by URL."""


@dataclass(frozen=True, slots=True)
class Results:
    """A finished check or replay."""

    data: dict[str, Any]
    """As `check --json` prints it."""
    prompts: PromptSet
    wishes: Wishes
    replay: bool


class Bench:
    """Lends labs and the store; `session` is what the screens remember."""

    def __init__(
        self,
        labs: Labs,
        checks: Memory,
        scratch: Memory,
        *,
        folders: Callable[[], Iterable[Path]],
        reference: str | None = None,
        keyed: bool = False,
    ) -> None:
        """`scratch` forgets; `folders` take reports; `keyed` engines want an API key."""
        self.labs = labs
        self.checks = checks
        self.scratch = scratch
        self.folders = folders
        self.keyed = keyed
        self.session = Session(Wishes(reference=reference))
