"""`specdeck replay`: the console on what was recorded, without the engine."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import click

from specdeck.console.cli.common import (
    Finite,
    defer_collection,
    read_settings,
    require_terminal,
    run_console,
    terminal_options,
    theme_folders,
)
from specdeck.console.cli.operator import find_operator
from specdeck.console.cli.output import draw_over, emit, log
from specdeck.console.state.moment import parse_moment
from specdeck.console.state.recorded import PlayedRecording, RecordedBox
from specdeck.engine.client import event_loop
from specdeck.engine.errors import UsageError
from specdeck.engine.files import open_file
from specdeck.engine.metrics.recording import read_lines, read_recording, reading_as_json

if TYPE_CHECKING:
    from specdeck.engine.blackbox.history import History

_SQLITE = b"SQLite format 3\0"
_ZIP = b"PK\x03\x04"
_READ_LATER = 10_000
"""Lines whose past is read when somebody looks back: of more it is read ahead of the console, which
would hear neither keys nor signals meanwhile."""
_TOLD_EVERY_S = 1.0


@click.command("replay")
@click.argument("wanted", metavar="FILE|ENGINE")
@click.option("--json", "as_json", is_flag=True, help="The samples as JSON lines, all at once.")
@click.option(
    "--speed",
    type=Finite(min=0.01),
    default=1.0,
    metavar="N",
    show_default=True,
    help="Playback speed, as a multiple of the recorded one.",
)
@click.option(
    "--at", metavar="TIME", help="Begin there: 03:10, -20m (before the end), 2026-11-22 03:10."
)
@terminal_options
def command(wanted: str, as_json: bool, speed: float, at: str | None) -> int:
    """Show what was recorded in the console, with its whole time to go through.

    ENGINE is one that a console or `specdeck record` has recorded, by its name or URL; FILE is its
    black box or an incident file, which open at the first alarm or fall of the incident, or of the
    last hour, and without one at the last figures; or what `specdeck watch URL --json`,
    `run --headless` and `demo --headless` print, which is played from its beginning. Lines of
    several engines become several engines. Nothing can be changed in a recording.
    """
    if not as_json:
        require_terminal("`specdeck replay FILE --json` to a pipe")
        defer_collection()
    path = Path(wanted)
    if _is_box(path):
        from specdeck.console.cli.export import open_recorded
        from specdeck.engine.incident.archive import is_archive
        from specdeck.engine.incident.recorded_facts import read_fingerprint

        with ExitStack() as stack:
            found = open_recorded(wanted, stack)
            if math.isnan(found.last):
                raise UsageError(f"nothing is recorded of {found.name} yet")
            if as_json:
                return _print_box(found)
            is_incident = is_archive(path)
            engine = RecordedBox(
                found, name=found.name, url=found.url, speed=speed, is_incident=is_incident,
                fingerprint=read_fingerprint(path) if is_incident else None,
            )  # fmt: skip
            return event_loop.run(_show_box(engine, found, at))
    if not as_json:
        with _Reading(path) as reading:
            recording = read_recording(path, reading.take)
            engines = [PlayedRecording(recording, url, speed=speed) for url in recording.engines]
            if recording.count > _READ_LATER:
                from specdeck.engine.blackbox.json_history import read_histories

                reading.what = "going through"
                histories = read_histories(recording, reading.take)
                for one in engines:
                    one.take_history(histories[one.url])
        return event_loop.run(_show(engines, at))
    read_recording(path)  # nothing is printed of a file with a line that is no sample
    for line in read_lines(path):
        emit(line)
    return 0


class _Reading:
    """Tells on a terminal how much of a file is read, from the first second on."""

    def __init__(self, path: Path) -> None:
        self.what = "checking"
        self._name = path.name
        self._size = path.stat().st_size if path.is_file() else 0
        self._told_at = time.monotonic()
        self._is_drawn = False

    def take(self, place: int) -> None:
        """The line that begins at this byte is read."""
        if (now := time.monotonic()) - self._told_at < _TOLD_EVERY_S:
            return
        self._told_at = now
        if sys.stderr.isatty():
            draw_over(f"specdeck: {self.what} {self._name}: {place / max(1, self._size):.0%}")
            self._is_drawn = True

    def __enter__(self) -> _Reading:
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        if not self._is_drawn:
            return
        if kind is None:
            log(f"specdeck: {self._name} is read", over=True)
        else:
            draw_over("")  # for the line of the error


def _is_box(path: Path) -> bool:
    """Whether it is a black box, an incident file, or no file but an engine's name; what cannot be
    read is none of them, and whoever reads it next says why."""
    if path.suffix in (".jsonl", ".json"):
        return False
    try:
        with open_file(path) as file:
            head = file.read(len(_SQLITE)) or b""  # None of a kernel's that has nothing yet
            return head == _SQLITE or head.startswith(_ZIP)
    except FileNotFoundError:
        return True
    except OSError:
        return False


def _print_box(found: History) -> int:
    for reading in found.readings(found.first, found.last):
        emit(reading_as_json(reading))
    return 0


async def _show_box(engine: RecordedBox, found: History, at: str | None) -> int:
    """The same of a file that anybody may have made: it holds the console up in bounds alone."""
    from specdeck.engine.blackbox.patience import Patience

    found.limit_waiting(Patience())
    try:
        return await _show([engine], at)
    finally:
        found.close()  # what a thread still reads of it comes to its end


async def _show(engines: Sequence[PlayedRecording | RecordedBox], at: str | None) -> int:
    """Opens the console; the exit code."""
    from specdeck.console.app import Console

    moment = None
    if at is not None:
        # A moment is told from the end of what was recorded.
        moment = parse_moment(at, engines[0].find_history().last, time.localtime)
    app = Console(engines, settings=read_settings(), who=find_operator(), themes=theme_folders())
    if at is not None:
        app.context.timeline.go(moment)
    return await run_console(app, engines)
