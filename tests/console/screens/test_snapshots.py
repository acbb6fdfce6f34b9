"""What the screens look like: run with --snapshot-update after looking at the report."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.support.pilot import settle

from specdeck.engine.launch.progress import StartProgress
from specdeck.engine.metrics.reading import Reading

if TYPE_CHECKING:
    from tests.console.conftest import Kit, MakeConsole
    from textual.pilot import Pilot

Compare = Callable[..., bool]


def story(kit: type[Kit]) -> list[Reading]:
    """A minute: k goes down, the engine restarts, traffic goes on."""
    three = replace(kit.state, k=3, k_set=3, version=2)
    reborn = replace(kit.state, instance="b")
    return [
        *kit.run(12),
        *kit.run(18, three, 12),
        kit.reading(30, reborn, window=None, restarted=True),
        *kit.run(15, reborn, 31),
    ]


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (40, 10)])
def test_the_live_screen(
    size: tuple[int, int], kit: type[Kit], console: MakeConsole, snap_compare: Compare
) -> None:
    readings = [replace(reading, gpus=(kit.gpu,)) for reading in story(kit)]
    app = console(kit.engine(readings))
    assert snap_compare(app, terminal_size=size, run_before=settle)


@pytest.mark.parametrize("theme", ["light", "high-contrast"])
def test_the_themes(
    theme: str, kit: type[Kit], console: MakeConsole, snap_compare: Compare
) -> None:
    app = console(kit.engine(story(kit)), theme=theme)
    assert snap_compare(app, terminal_size=(80, 24), run_before=settle)


def test_an_engine_that_is_down(
    kit: type[Kit], console: MakeConsole, snap_compare: Compare
) -> None:
    readings = [*story(kit), *(kit.down(n) for n in range(46, 56))]
    app = console(kit.engine(readings))
    assert snap_compare(app, terminal_size=(80, 24), run_before=settle)


def test_help(kit: type[Kit], console: MakeConsole, snap_compare: Compare) -> None:
    app = console(kit.engine(story(kit)), kit.engine(kit.run(3), name="west"))

    async def ask(pilot: Pilot[str]) -> None:
        await settle(pilot)
        await pilot.press("question_mark")
        await settle(pilot)

    assert snap_compare(app, terminal_size=(100, 32), run_before=ask)


def test_a_start(kit: type[Kit], console: MakeConsole, snap_compare: Compare) -> None:
    async def progress() -> AsyncIterator[StartProgress]:
        log = tuple(f"INFO loading weights, part {n} of 6" for n in range(1, 5))
        yield StartProgress("loading", 12.0, 28.0, log, None, Path("/var/log/demo.log"))
        await kit.engine([]).more.get()

    app = console(kit.engine([]), progress=progress(), owned=True)
    assert snap_compare(app, terminal_size=(80, 24), run_before=settle)
