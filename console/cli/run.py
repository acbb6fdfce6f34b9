"""`specdeck run` and `specdeck demo`: an engine from a config, in the console or without one."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Literal

import click

from specdeck import __version__
from specdeck.console.cli.audit import UserAudit
from specdeck.console.cli.common import (
    Finite,
    black_box_folder,
    finish,
    open_user_store,
    read_settings,
    record_option,
    require_terminal,
    run_console,
    terminal_options,
    theme_folders,
    until_signal,
)
from specdeck.console.cli.crash import Crash
from specdeck.console.cli.engines import OWN_KEY, Access, own_key
from specdeck.console.cli.expectations import Expectations, OnReading, report_events, watches
from specdeck.console.cli.fingerprint import ReadingLog
from specdeck.console.cli.incident_key import incident_writer
from specdeck.console.cli.operator import find_operator
from specdeck.console.cli.output import emit, log
from specdeck.console.cli.print_queue import work_beside_output
from specdeck.console.cli.processes import StopReporter, record_as_json, wait_for_stop
from specdeck.console.cli.watch import find_lasting_error
from specdeck.engine.client import event_loop
from specdeck.engine.client.attach import AttachedEngine
from specdeck.engine.client.engine_client import open_client
from specdeck.engine.client.token import admin_token
from specdeck.engine.config.config import Config
from specdeck.engine.config.loader import load as load_config
from specdeck.engine.demo.load_process import PROFILES, LoadProcess
from specdeck.engine.errors import (
    ConfigError,
    EngineError,
    NoMemory,
    Place,
    SpecdeckError,
    Unauthorized,
    Unsupported,
)
from specdeck.engine.launch.launcher import Launch
from specdeck.engine.launch.ownership import PortOwner
from specdeck.engine.launch.preflight import findings, raise_errors
from specdeck.engine.launch.progress import StartProgress
from specdeck.engine.launch.registry import Record
from specdeck.engine.metrics.recording import reading_as_json
from specdeck.engine.metrics.scrape import readings
from specdeck.engine.operations.own_reference import refuse_another_target
from specdeck.engine.paths import locations
from specdeck.engine.store.soft_costs import SoftCosts
from specdeck.engine.store.starts import Start, Starts, config_key

Port = int | Literal["auto"]

STAGES = {
    "environment": "inspecting the machine",
    "weights": "preparing the models",
    "process": "starting the engine's process",
    "loading": "loading the weights",
    "warming": "warming up",
    "ready": "ready",
}


def parse_port(value: str) -> Port:
    """A port number, or `auto` for any free one; raises ValueError, which click tells.

    >>> parse_port("8000"), parse_port("auto")
    (8000, 'auto')
    """
    if value == "auto":
        return "auto"
    if not (value.isascii() and value.isdecimal() and len(value) < 6 and int(value) <= 65535):
        raise ValueError(f"{value!r} is no port: a number up to 65535, or auto")
    return int(value)


@click.command("run")
@click.argument("config", type=click.Path(path_type=Path))
@click.option("--headless", is_flag=True, help="JSON lines instead of the console.")
@click.option("--detach", is_flag=True, help="Leave the engine running once it is ready.")
@click.option(
    "--port", "wanted", type=parse_port, metavar="P", help="The port, or auto for a free one."
)
@record_option
@terminal_options
def run(config: Path, headless: bool, detach: bool, wanted: Port | None) -> int:
    """Start an engine from a config, then the console on it.

    With --headless its samples go to stdout until SIGTERM or SIGINT, which end the
    engine too. With --detach its record goes to stdout when it is ready.
    """
    if not (headless or detach):
        require_terminal("--headless or --detach")
    launch = prepare_launch(config, port=wanted)
    if detach:
        return event_loop.run(run_detached(launch))
    if headless:
        return event_loop.run(work_beside_output(run_headless(launch)))
    return run_in_console(launch)


@click.command("demo")
@click.option("--headless", is_flag=True, help="JSON lines instead of the console.")
@click.option("--seconds", type=Finite(min=1.0), metavar="N", help="With --headless.")
@click.option(
    "--port",
    "wanted",
    type=parse_port,
    default="auto",
    metavar="P",
    show_default=True,
    help="The port, or auto for a free one.",
)
@click.option(
    "--load",
    "profile",
    type=click.Choice(PROFILES),
    default="mixed",
    show_default=True,
    help="What to ask for.",
)
@record_option
@terminal_options
def demo(headless: bool, seconds: float | None, wanted: Port, profile: str) -> int:
    """Start the shipped model pair, put load on it, and open the console.

    Everything is real but small: the models know a little Python, the engine is vLLM.
    """
    if not headless:
        if seconds is not None:
            raise click.UsageError("--seconds requires --headless")
        require_terminal("--headless")
    launch = prepare_launch(demo_config(), port=wanted)
    key = OWN_KEY if own_key() else None
    load = LoadProcess(
        launch.url,
        profile,
        environment=os.environ,
        api_key_env=key,
        module="specdeck.engine.launch.owned_load",
    )
    if headless:
        work = run_headless(launch, seconds=seconds, load=load)
        return event_loop.run(work_beside_output(work))
    return run_in_console(launch, load=load)


def demo_config() -> Path:
    """The shipped config."""
    path = Path(str(files("specdeck") / "sample_configs" / "demo.yaml"))
    if not path.is_file():
        raise SpecdeckError(f"{path} is missing", remedy="install specdeck again")
    return path


def prepare_launch(path: Path, *, port: Port | None) -> Launch:
    """The start of the engine of a config that was found good.

    Says every notice and warning on stderr; raises ConfigErrors for all that is wrong.
    """
    config = with_known_cost(load_config(path))
    if config.model is None:
        remedy = f"use `specdeck attach {path}`"
        raise ConfigError("this config only attaches", place=Place(path), remedy=remedy)
    wanted = config.port if port is None else port
    number = None if wanted in (0, "auto") else int(wanted or 8000)
    found = findings(config, port=number, environment=os.environ)
    for finding in found:
        if finding.level in ("notice", "warning"):
            log(f"{finding.level}: {finding.line()}")
    raise_errors(config, found)
    launch = open_launch(config, port=port, last_elapsed=read_last_start(path))
    if lines := describe_others(launch):
        log(f"notice: {'; '.join(lines)}")
    return launch


def describe_others(launch: Launch) -> tuple[str, ...]:
    """Which engine of this config runs already, how to get to it, and what this one is called.

    Nothing where there is no other.
    """
    if not launch.others:
        return ()
    *rest, newest = sorted(launch.others, key=lambda record: record.started)
    doing = "is starting" if newest.ready is None else "runs"
    more = f", {len(rest)} more in `specdeck ps`" if rest else ""
    return (
        f"{newest.name} {doing} already at {newest.url}{more}",
        f"`specdeck attach {newest.name}` shows it",
        f"this is another engine, {launch.name}",
    )


def with_known_cost(config: Config) -> Config:
    """`config` with what soft k = 0 was measured to cost, where it does not say so itself."""
    if config.speculative is None or config.orchestration.soft_cost is not None:
        return config
    found = None
    with suppress(SpecdeckError), open_user_store() as store:
        found = SoftCosts(store).last(config_key(config.path), config.arguments_digest)
    if found is None:
        return config
    measured = datetime.fromtimestamp(found.t, UTC)
    log(
        f"notice: soft k=0 takes {found.cost * 100:+.1f} % against no speculation, as measured "
        f"{measured:%Y-%m-%d} ({found.load})"
    )
    block = config.orchestration.model_copy(update={"soft_cost": found.cost})
    return replace(config, orchestration=block)


def open_launch(
    config: Config,
    *,
    port: Port | None,
    last_elapsed: float | None = None,
    guarded: bool = False,
) -> Launch:
    """The start of a config's engine in the environment and the folders of this user.

    A `guarded` engine ends with this process, however that ends.
    """
    return Launch(
        config, locations=locations(os.environ), answers=is_up, port=port,
        last_elapsed=last_elapsed, version=__version__, guarded=guarded,
    )  # fmt: skip


def run_in_console(launch: Launch, *, load: LoadProcess | None = None) -> int:
    """Starts an engine on the progress screen and shows it; the exit code.

    What the operator chose on leaving is done here, when the terminal is the shell's
    again. A start that failed raises StartFailed with the engine's own reason.
    """
    from specdeck.console.app import Console
    from specdeck.console.cli.check_context import open_check_context

    engine = connect_own(launch)
    app = Console(
        [engine],
        settings=read_settings(),
        progress=start_with_load(launch, load, engine),
        start_notice=describe_others(launch),
        owned=True,
        load=load,
        who=find_operator(),
        audit=UserAudit(),
        check=open_check_context({engine.url: own_key()}),
        watches=watches([engine.url], Expectations.of(launch.config)),
        themes=theme_folders(),
        black_boxes=black_box_folder(),
        incident=incident_writer(),
    )
    try:
        code = event_loop.run(run_console(app, [engine]))
    except (Crash, NoMemory):
        if launch.record is not None and launch.failed is None:
            log_running(launch)
        raise
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
        name = launch.record.name
        log(f"stopping {name}")
        if code := wait_for_stop(name, partial(launch.stop, on_progress=StopReporter(name))):
            return code
        log(f"{name} is stopped")
    else:
        log_running(launch)
    return code


def log_running(launch: Launch) -> None:
    """Says where an engine goes on that its console has left."""
    whom = launch.name if launch.is_listed else launch.url
    end = how_to_end(launch)
    log(f"{launch.name} still runs at {launch.url}: `specdeck attach {whom}`, {end}")


def how_to_end(launch: Launch) -> str:
    """What ends an engine that is ready; `stop` finds none whose record is gone."""
    if launch.is_listed or launch.record is None:
        return f"`specdeck stop {launch.name}`"
    return f"`kill {launch.record.pid}` ends it"


def log_unrecorded(launch: Launch) -> None:
    """Says why `ps` does not tell that an engine is ready, where that is so."""
    if launch.unrecorded is not None:
        log(f"{launch.name} is ready, and `ps` does not say so: {launch.unrecorded}")


def note_start(config: Path, seconds: float) -> None:
    """Remembers how long a start took; a store that cannot be used stops no engine."""
    with suppress(SpecdeckError), open_user_store() as store:
        Starts(store).add(Start(time.time(), config_key(config), seconds))


def read_last_start(config: Path) -> float | None:
    """Seconds that the last start from this config took; None when there was none."""
    with suppress(SpecdeckError), open_user_store() as store:
        if (last := Starts(store).last(config_key(config))) is not None:
            return last.seconds
    return None


async def start_with_load(
    launch: Launch, load: LoadProcess | None, engine: AttachedEngine
) -> AsyncIterator[StartProgress]:
    """The start of the engine, with the load begun as soon as it is ready.

    `engine` is called what its record calls it.
    """
    async for moment in launch.progress():
        engine.name = launch.name
        if moment.ready:
            note_start(launch.config.path, moment.elapsed)
            log_unrecorded(launch)
            if load is not None:
                start_load(launch, load)
        yield moment


def start_load(launch: Launch, load: LoadProcess) -> None:
    """Begins the load on an engine that is ready, and on nobody who gets its port later."""
    assert launch.record is not None
    load.start(str(locations(os.environ).engines), launch.record.name)


def connect_own(launch: Launch) -> AttachedEngine:
    """The engine of a start that is to come; armed, since its starter owns it."""
    token = admin_token({}, launch.token_file)
    asking = open_client(launch.url, api_key=own_key(), token=token, check_port=launch.check_port)
    return AttachedEngine(asking, name=launch.name, armed=True, exit_error=launch.exit_error)


async def run_headless(
    launch: Launch, *, seconds: float | None = None, load: LoadProcess | None = None
) -> int:
    """Starts an engine, prints its samples and ends it; the exit code.

    Ends after `seconds`, on SIGTERM or SIGINT, or when the engine does; whichever it
    is, nothing of the engine and of the load is left.
    """
    try:
        return await until_signal(_run_and_print(launch, seconds, load))
    finally:
        if load is not None:
            load.close()
        await launch.stop(on_progress=StopReporter(launch.name))


async def run_detached(launch: Launch) -> int:
    """Starts an engine, prints its record and leaves it running; the exit code."""
    ready = False
    try:
        code = await until_signal(follow_start(launch))
        ready = code == 0
    finally:
        if not ready:
            await launch.stop(on_progress=StopReporter(launch.name))
    if ready and launch.record is not None:
        print_record(launch, launch.record)
    return code


def print_record(launch: Launch, record: Record) -> None:
    """Prints the record of an engine that is left running.

    Where it runs is said first: whoever takes nothing of stdout has to know that as well. Raises
    OSError where the record cannot be printed, and says that the engine runs all the same.
    """
    log(f"{record.name} runs at {launch.url}: {how_to_end(launch)}")
    try:
        emit(record_as_json(record))
    except OSError as error:
        reason = (error.strerror or type(error).__name__).lower()
        log(
            f"specdeck: the record of {record.name} cannot be printed ({reason}), and it runs at "
            f"{launch.url} all the same: {how_to_end(launch)}"
        )
        raise


async def follow_start(launch: Launch) -> int:
    """Follows the start on stderr; raises StartFailed with the engine's own reason."""
    stage = None
    async for moment in launch.progress():
        if moment.stage != stage and moment.failed is None:
            log(format_stage(launch.name, moment))
        stage = moment.stage
        if moment.ready:
            note_start(launch.config.path, moment.elapsed)
            log_unrecorded(launch)
    if launch.failed is not None:
        raise launch.failure()
    return 0


def format_stage(name: str, moment: StartProgress) -> str:
    """One stage of a start, as stderr has it.

    >>> format_stage("demo", StartProgress("loading", 12.3, last_elapsed=31.0))
    'demo: 12 s of about 31 s: loading the weights'
    """
    last = moment.last_elapsed
    about = "" if last is None or moment.ready else f" of about {last:.0f} s"
    return f"{name}: {moment.elapsed:.0f} s{about}: {STAGES[moment.stage]}"


async def _run_and_print(launch: Launch, seconds: float | None, load: LoadProcess | None) -> int:
    await follow_start(launch)
    if load is not None:
        start_load(launch, load)
    try:
        async with (
            report_events(launch.url, Expectations.of(launch.config)) as on_reading,
            asyncio.timeout(seconds),
        ):
            return await print_samples(launch, on_reading=on_reading)
    except TimeoutError:
        return 0


async def print_samples(
    launch: Launch, interval: float = 1.0, *, on_reading: OnReading = lambda reading: None
) -> int:
    """Prints samples until the engine ends; raises the reason then. `on_reading` is told of each.

    Raises Unauthorized at once where no later sample could be whole without a key.
    """
    client = open_client(launch.url, api_key=own_key(), check_port=launch.check_port)
    first = True
    try:
        async for reading in readings(client, every=interval):
            ended = launch.exit_error()
            if ended is not None:
                emit(reading_as_json(reading.as_down(ended)))
                raise ended
            if first and isinstance(error := find_lasting_error(reading), Unauthorized):
                raise Unauthorized(str(error), remedy=f"set {OWN_KEY} to the engine's key")
            first = False
            emit(reading_as_json(reading))
            on_reading(reading)
    finally:
        await client.close()
    return 0


async def is_up(url: str) -> bool:
    """Whether a vLLM answers at `url`."""
    asking = open_client(url)
    try:
        await asking.version()
    except EngineError:
        return False
    finally:
        await asking.close()
    return True


@asynccontextmanager
async def start_reference_engine(ours: Access) -> AsyncIterator[Access]:
    """Runs the config of `ours` without speculation while it is held, and leaves nothing of it.

    Raises Unsupported for an engine that specdeck did not start here, and for one whose config,
    model or code is another by now, ConfigError where there is no memory for another, StartFailed
    when it does not come up.
    """
    if ours.record is None or ours.record.config is None:
        raise Unsupported(
            f"{ours.url} was not started here by specdeck, so its config is not known",
            remedy="start a second engine yourself and give --reference URL",
        )
    config = load_config(Path(ours.record.config))
    if ours.record.arguments not in (None, config.arguments_digest):
        raise Unsupported(
            f"{config.path} says otherwise than when {ours.record.name} was started from it, so "
            "another engine would be compared",
            remedy="put it back as it was, restart the engine, or give --reference URL",
        )
    config = config.reference()
    found = findings(config, port=None, environment=os.environ)
    raise_errors(config, found)
    for finding in found:
        if finding.level == "warning":
            log(f"warning: {finding.line()}")
    launch = open_launch(config, port="auto", guarded=True)
    try:
        await follow_start(launch)
        assert launch.record is not None
        theirs = Access(launch.url, launch.record, ours.api_key, owner=PortOwner(launch.record))
        async with AsyncExitStack() as clients:
            serving, reference = ours.client(), theirs.client()
            clients.push_async_callback(serving.close)
            clients.push_async_callback(reference.close)
            reading = ReadingLog()
            await refuse_another_target(serving, reference, on_progress=reading.write)
        yield theirs
    finally:
        await finish(launch.stop(on_progress=StopReporter(launch.name)))
