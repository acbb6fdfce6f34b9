"""A console on an engine that can be asked: the fake one of the check's own tests."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.completion_engine import CompletionEngine

from specdeck.console.app import Console
from specdeck.console.state.check import CheckContext
from specdeck.engine.client.attach import MonitoredEngine
from specdeck.engine.errors import SpecdeckError
from specdeck.engine.operations.check import ArmPair, CheckOptions
from specdeck.engine.store.checks import Checks
from specdeck.engine.store.database import Store

if TYPE_CHECKING:
    from tests.console.conftest import Kit, MakeConsole


@dataclass
class Deck:
    """The console, its fake engines, and what they were asked."""

    app: Console
    bench: CheckContext
    serving: CompletionEngine
    folder: Path
    asked: list[CheckOptions] = field(default_factory=list)
    failure: SpecdeckError | None = None
    """Raised instead of a lab."""


Opens = Callable[..., Deck]


@pytest.fixture
def deck(kit: type[Kit], console: MakeConsole, tmp_path: Path) -> Opens:
    """Makes a console whose labs ask `serving` and, when one is named, `reference`."""

    def make(
        serving: CompletionEngine | None = None,
        reference: CompletionEngine | None = None,
        **settings: Any,
    ) -> Deck:
        ours = serving or CompletionEngine()
        held: list[Deck] = []

        @asynccontextmanager
        async def open_arms(
            engine: MonitoredEngine, options: CheckOptions
        ) -> AsyncIterator[ArmPair]:
            one = held[0]
            one.asked.append(options)
            if one.failure is not None:
                raise one.failure
            theirs = reference.connect() if reference and options.reference else None
            async with ArmPair(ours.connect(), theirs, options, wall=lambda: kit.start) as pair:
                yield pair

        @contextmanager
        def store(name: str) -> Iterator[Checks]:
            with Store(tmp_path / name) as opened:
                yield Checks(opened)

        bench = CheckContext(
            open_arms,
            lambda: store("store.sqlite"),
            lambda: store("scratch.sqlite"),
            folders=lambda: [tmp_path],
            reference="http://other" if reference else None,
        )
        app = console(kit.engine(kit.run(3)), check=bench, **settings)
        held.append(Deck(app, bench, ours, tmp_path))
        return held[0]

    return make
