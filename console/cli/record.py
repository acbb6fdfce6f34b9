"""`specdeck record`: records engines into their black boxes until it is told to end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from specdeck.console.cli.attach import AttachOptions, connect, read_attach_block
from specdeck.console.cli.common import Finite, black_box_folder, read_settings, until_signal
from specdeck.console.cli.engines import Access, access, key_option
from specdeck.console.cli.expectations import Expectations, pin_option, watches, webhook_option
from specdeck.console.cli.operator import find_operator
from specdeck.console.cli.output import emit, log, print_lines
from specdeck.console.cli.print_queue import work_beside_output
from specdeck.console.cli.watch import find_lasting_error
from specdeck.console.state.black_box import BlackBoxRecorder
from specdeck.console.state.controller import Controller, Spawn
from specdeck.console.state.watches import EngineWatches
from specdeck.engine.client import event_loop
from specdeck.engine.metrics.reading import Reading

if TYPE_CHECKING:
    from specdeck.console.state.engine_state import Event, Track
    from specdeck.engine.operations.watches import Watches


@click.command("record")
@click.argument("engines", metavar="URL…", nargs=-1, required=True)
@click.option("--json", "as_json", is_flag=True, help="Events as JSON lines.")
@click.option("--quiet", is_flag=True, help="No events; errors still go to stderr.")
@click.option("--interval", type=Finite(min=0.1), metavar="S", help="Seconds between samples.")
@pin_option
@webhook_option
@key_option
def command(
    engines: tuple[str, ...],
    as_json: bool,
    quiet: bool,
    interval: float | None,
    pin: Path | None,
    webhook_env: str | None,
    api_key_env: str | None,
) -> int:
    """Record engines into their black boxes until SIGTERM or SIGINT: URLs, names from `ps`, or a
    config with an `attach` block.

    Samples, events, cohorts and tuning are kept for `record_days` of the settings, in `record_mb`
    for each engine. Events go to stdout, a line each, drifts and alerts among them. An engine that
    a console records already is left to it, and taken over when that ends.
    """
    asked = read_attach_block(
        AttachOptions(
            engines,
            api_key_env=api_key_env,
            interval=interval,
            expectations=Expectations(pin, webhook_env),
        )
    )
    work = work_beside_output(record_engines(asked, _find_printer(as_json, quiet)))
    return event_loop.run(until_signal(work))


async def record_engines(asked: AttachOptions, show: Printer) -> int:
    """Records until it is cancelled; the exit code.

    Raises EngineError where the first answers of all engines show that none will ever be of use.
    """
    ours = [access(name, api_key_env=asked.api_key_env) for name in asked.engines]
    settings, folder = read_settings(), black_box_folder()
    engines = [connect(to, control=False) for to in ours]
    end: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    with _run_tasks(end) as spawn:
        controller = Controller(
            engines,
            spawn=spawn,
            who=find_operator(),
            interval=asked.interval or settings.interval,
        )

        def on_notice(index: int, text: str) -> None:
            log(f"specdeck: {controller.tracks[index].name}: {text}")

        recorder = BlackBoxRecorder(
            controller,
            folder,
            days=settings.record_days,
            megabytes=settings.record_mb,
            on_notice=on_notice,
        )
        controller.add_reader(EngineWatches(controller, _open_watches(ours, asked)).on_reading)
        controller.add_reader(_Prospects(len(engines), end).on_reading)
        controller.subscribe(_Events(controller, show).tell)
        log(f"specdeck: recording {', '.join(one.name for one in engines)} in {folder}")
        controller.start()
        try:
            return await end
        finally:
            await asyncio.to_thread(recorder.close)
            for engine in engines:
                await engine.close()


class _Prospects:
    """Ends the recording where no engine will ever be of use."""

    def __init__(self, number: int, end: asyncio.Future[int]) -> None:
        self._number = number
        self._end = end
        self._seen: set[int] = set()
        self._hopeless: set[int] = set()

    def on_reading(self, index: int, reading: Reading) -> None:
        """Judge an engine by its first reading."""
        if index in self._seen:
            return
        self._seen.add(index)
        error = find_lasting_error(reading)
        if error is None:
            return
        self._hopeless.add(index)
        if len(self._hopeless) < self._number:
            log(f"specdeck: {reading.url}: {error.line()}")
        elif not self._end.done():
            self._end.set_exception(error)


def _open_watches(ours: list[Access], asked: AttachOptions) -> Callable[[], Watches]:
    return watches(
        [to.url for to in ours],
        asked.expectations,
        api_key_env=asked.api_key_env,
        known=ours,
        names_unpinned=False,
    )


class Printer:
    """Writes an event of an engine."""

    def __call__(self, track: Track, event: Event) -> None:
        """One line of text."""
        clock = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(event.t))
        print_lines(f"{clock}  {track.name}  {event.text}")


class _JsonPrinter(Printer):
    def __call__(self, track: Track, event: Event) -> None:
        emit(
            {
                "t": round(event.t, 3),
                "engine": track.url,
                "name": track.name,
                "kind": event.kind,
                "text": event.text,
            }
        )


class _NoPrinter(Printer):
    def __call__(self, track: Track, event: Event) -> None:
        return


def _find_printer(as_json: bool, quiet: bool) -> Printer:
    if quiet:
        return _NoPrinter()
    return _JsonPrinter() if as_json else Printer()


class _Events:
    """Tells the events of a controller's engines, each once."""

    def __init__(self, controller: Controller, show: Printer) -> None:
        self._controller = controller
        self._show = show
        self._last: dict[int, Event] = {}

    def tell(self) -> None:
        """Those that are new."""
        for index, track in enumerate(self._controller.tracks):
            last, new = self._last.get(index), []
            for event in reversed(track.events):
                if event is last:
                    break
                new.append(event)
            if new:
                self._last[index] = new[0]
            for event in reversed(new):
                self._show(track, event)


@contextmanager
def _run_tasks(end: asyncio.Future[int]) -> Iterator[Spawn]:
    """Starts work beside the caller, whose defects end it, and ends what is left of it."""
    tasks: set[asyncio.Task[None]] = set()

    def forget(task: asyncio.Task[None]) -> None:
        tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None and not end.done():
            end.set_exception(error)

    def spawn(work: Coroutine[Any, Any, None], group: str) -> asyncio.Task[None]:
        task = asyncio.create_task(work, name=group)
        tasks.add(task)
        task.add_done_callback(forget)
        return task

    try:
        yield spawn
    finally:
        for task in tuple(tasks):
            task.cancel()
