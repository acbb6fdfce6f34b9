"""An engine without a screen: its start on stderr, its samples on stdout, its end on a signal."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

from specdeck.console.cli.common import note_start, until_signal
from specdeck.console.cli.engines import OWN_KEY, Access
from specdeck.console.cli.output import emit, log
from specdeck.console.cli.stop import Teller
from specdeck.console.cli.watch import hopeless
from specdeck.engine.errors import EngineError, Unauthorized

if TYPE_CHECKING:
    from specdeck.console.cli.fingerprint_drift import Heard
    from specdeck.engine.demo.load_process import LoadProcess
    from specdeck.engine.launch.launcher import Launch
    from specdeck.engine.launch.progress import Progress

STAGES = {
    "environment": "looking at the machine",
    "weights": "making the models",
    "process": "starting the engine's process",
    "loading": "loading the weights",
    "warming": "warming up",
    "ready": "ready",
}


async def flown(
    launch: Launch,
    *,
    interval: float = 1.0,
    seconds: float | None = None,
    load: LoadProcess | None = None,
) -> int:
    """Starts an engine, prints its samples and ends it; the exit code.

    Ends after `seconds`, on SIGTERM or SIGINT, or when the engine does; whichever it
    is, nothing of the engine and of the load is left.
    """
    try:
        return await until_signal(_flight(launch, interval, seconds, load))
    finally:
        if load is not None:
            load.close()
        await launch.stop(on_progress=Teller(launch.name))


async def detached(launch: Launch) -> int:
    """Starts an engine, prints its record and leaves it running; the exit code."""
    ready = False
    try:
        code = await until_signal(started(launch))
        ready = code == 0
    finally:
        if not ready:
            await launch.stop(on_progress=Teller(launch.name))
    if ready and launch.record is not None:
        from specdeck.console.cli.ps import as_data

        emit(as_data(launch.record))
        log(f"{launch.record.name} runs at {launch.url}: `specdeck stop {launch.record.name}`")
    return code


async def started(launch: Launch) -> int:
    """Follows the start on stderr; raises StartFailed with the engine's own reason."""
    stage = None
    async for moment in launch.progress():
        if moment.stage != stage and moment.failed is None:
            log(stage_line(launch.name, moment))
        stage = moment.stage
        if moment.ready:
            note_start(launch.config.path, moment.elapsed)
    if launch.failed is not None:
        raise launch.failure()
    return 0


def stage_line(name: str, moment: Progress) -> str:
    """One stage of a start, as stderr has it.

    >>> from specdeck.engine.launch.progress import Progress
    >>> stage_line("demo", Progress("loading", 12.3, last_elapsed=31.0))
    'demo: 12 s of about 31 s: loading the weights'
    """
    last = moment.last_elapsed
    about = "" if last is None or moment.ready else f" of about {last:.0f} s"
    return f"{name}: {moment.elapsed:.0f} s{about}: {STAGES[moment.stage]}"


async def _flight(
    launch: Launch, interval: float, seconds: float | None, load: LoadProcess | None
) -> int:
    from specdeck.console.cli.fingerprint_book import Expected
    from specdeck.console.cli.fingerprint_drift import watched

    await started(launch)
    if load is not None:
        load.start()
    try:
        async with (
            watched(launch.url, Expected.of(launch.config)) as heard,
            asyncio.timeout(seconds),
        ):
            return await samples(launch, interval, heard)
    except TimeoutError:
        return 0


async def samples(launch: Launch, interval: float, heard: Heard = lambda reading: None) -> int:
    """Prints samples until the engine ends; raises the reason then. `heard` is told of each.

    Raises Unauthorized at once where no later sample could be whole without a key.
    """
    from specdeck.engine.metrics.recording import reading_as_json
    from specdeck.engine.metrics.scrape import readings

    key = os.environ.get(OWN_KEY) or None  # what the engine inherited
    client = Access(launch.url, launch.record, key).client()
    first = True
    try:
        async for reading in readings(client, every=interval):
            ended = launch.exit_error()
            if ended is not None:
                # What still answers at the URL is another engine.
                if not reading.up:
                    emit(reading_as_json(reading))
                raise ended
            if first and isinstance(error := hopeless(reading), Unauthorized):
                raise Unauthorized(str(error), remedy=f"set {OWN_KEY} to the engine's key")
            first = False
            emit(reading_as_json(reading))
            heard(reading)
    finally:
        await client.close()
    return 0


async def answers(url: str) -> bool:
    """Whether a vLLM answers at `url`."""
    from specdeck.engine.client.engine_client import open_client

    asking = open_client(url)
    try:
        await asking.version()
    except EngineError:
        return False
    finally:
        await asking.close()
    return True
