"""The console on an engine that it starts or that runs, from the first screen to the shell."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING

from specdeck.console.cli.audit import note_change
from specdeck.console.cli.common import INTERRUPTED, note_start
from specdeck.console.cli.engines import OWN_KEY, Access
from specdeck.console.cli.operator import operator, settings, themes
from specdeck.console.cli.output import log
from specdeck.console.cli.stop import Teller

if TYPE_CHECKING:
    from specdeck.console.app import Console
    from specdeck.engine.client.attach import AttachedEngine, MonitoredEngine
    from specdeck.engine.demo.load_process import LoadProcess
    from specdeck.engine.launch.launcher import Launch
    from specdeck.engine.launch.progress import Progress


def aboard(launch: Launch, *, load: LoadProcess | None = None) -> int:
    """Starts an engine on the progress screen and shows it; the exit code.

    What the operator chose on leaving is done here, when the terminal is the shell's
    again. A start that failed raises StartFailed with the engine's own reason.
    """
    from specdeck.console.app import Console
    from specdeck.console.cli.bench import bench
    from specdeck.console.cli.fingerprint_book import Expected, book

    engine = started_here(launch)
    app = Console(
        [engine],
        settings=settings(),
        progress=with_load(launch, load),
        owned=True,
        load=load,
        who=operator(),
        on_change=note_change,
        bench=bench({engine.url: os.environ.get(OWN_KEY) or None}),
        book=book([engine.url], Expected.of(launch.config)),
        themes=themes(),
    )
    try:
        code = asyncio.run(shown(app, [engine]))
    finally:
        if load is not None:
            load.close()
    if app.failure is not None:
        raise app.failure
    if launch.failed is not None:
        raise launch.failure()
    if launch.record is None:
        return code
    if app.return_value == "stop":
        asyncio.run(launch.stop(on_progress=Teller(launch.record.name)))
        log(f"{launch.record.name} is stopped")
    else:
        name = launch.record.name
        log(f"{name} runs on at {launch.url}: `specdeck attach {name}`, `specdeck stop {name}`")
    return code


async def shown(app: Console, engines: Sequence[MonitoredEngine]) -> int:
    """Runs the console; the exit code, 130 when a signal ended it.

    A signal is handled as leaving is: the terminal is restored, and an engine that
    was started here runs on.
    """
    loop, signalled = asyncio.get_running_loop(), False

    def end() -> None:
        nonlocal signalled
        signalled = True
        app.exit("leave")

    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        loop.add_signal_handler(number, end)
    try:
        await app.run_async()
    except OSError:
        if not signalled:  # a terminal that hung up cannot be restored either
            raise
    finally:
        for engine in engines:
            await engine.close()
    return INTERRUPTED if signalled else app.return_code or 0


async def with_load(launch: Launch, load: LoadProcess | None) -> AsyncIterator[Progress]:
    """The start of the engine, with the load begun as soon as it is ready."""
    async for moment in launch.progress():
        if moment.ready:
            note_start(launch.config.path, moment.elapsed)
            if load is not None:
                load.start()
        yield moment


def started_here(launch: Launch) -> AttachedEngine:
    """The engine of a start that is to come; armed, since its starter owns it."""
    from specdeck.engine.client.attach import AttachedEngine
    from specdeck.engine.client.engine_client import open_client
    from specdeck.engine.client.token import admin_token

    token = admin_token({}, launch.token_file)
    asking = open_client(launch.url, api_key=os.environ.get(OWN_KEY) or None, token=token)
    return AttachedEngine(asking, name=launch.name, armed=True, exit_error=launch.exit_error)


def attached(to: Access, *, control: bool, name: str | None = None) -> AttachedEngine:
    """An engine that runs already; raises Unauthorized for control without a token."""
    from specdeck.engine.client.attach import AttachedEngine

    named = name or (to.record.name if to.record else None)
    found = AttachedEngine(to.client(), name=named)
    if control:
        found.arm()
    return found
