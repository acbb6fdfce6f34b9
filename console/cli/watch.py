"""`specdeck watch`: samples of one engine, a line each."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import click

from specdeck.console.cli.common import Finite, Whole, until_signal
from specdeck.console.cli.engines import Access, access, choose_key_variable, key_option
from specdeck.console.cli.expectations import (
    Expectations,
    pin_option,
    report_events,
    webhook_option,
)
from specdeck.console.cli.output import emit, log, print_lines
from specdeck.console.cli.print_queue import LAST_LINES_S, work_beside_output
from specdeck.engine.client import event_loop
from specdeck.engine.config.loader import load
from specdeck.engine.errors import ConfigError, EngineError, NotAnEngine, Unauthorized, UsageError
from specdeck.engine.metrics.reading import Reading
from specdeck.engine.metrics.recording import reading_as_json
from specdeck.engine.metrics.scrape import readings
from specdeck.engine.text import UNKNOWN, format_value

COLUMNS = (
    ("TIME", 8), ("MODE", 11), ("K", 4), ("TOK/S", 7), ("ACCEPT", 6), ("LENGTH", 6),
    ("RUN", 4), ("WAIT", 4), ("KV", 5), ("TTFT", 7), ("ITL", 6),
)  # fmt: skip

LASTING = (Unauthorized, NotAnEngine)
"""Errors that waiting does not mend."""


@click.command("watch")
@click.argument("engine", metavar="URL")
@click.option("--json", "as_json", is_flag=True, help="JSON lines with every key of a sample.")
@click.option(
    "--interval",
    type=Finite(min=0.05),
    default=1.0,
    metavar="S",
    show_default=True,
    help="Seconds between two samples.",
)
@click.option("--count", type=Whole(min=1), metavar="N", help="Stop after N samples.")
@pin_option
@webhook_option
@key_option
def command(
    engine: str,
    as_json: bool,
    interval: float,
    count: int | None,
    pin: Path | None,
    webhook_env: str | None,
    api_key_env: str | None,
) -> int:
    """Print a sample of an engine each interval; one that is down is a line with up false.

    The engine is a URL, a name from `ps`, or a config with an `attach` block that names one.
    A drift from its pin is a line on stderr, and so is an acceptance or mismatch rate beyond
    the `alerts` of that config, or of the one that the engine was started from. Exits with 3
    when no sample was up, and at once when what answers is no vLLM.
    """
    watched = resolve(engine, Expectations(pin, webhook_env), api_key_env)
    write = write_json if as_json else write_table()
    work = work_beside_output(
        watch_and_report(watched, interval, count, write),
        ends_at=(OSError,),
        # So many were asked for: they are worth waiting for whoever reads them.
        patience_s=LAST_LINES_S if count is None else None,
    )
    return event_loop.run(until_signal(work))


@dataclass(frozen=True, slots=True)
class WatchedEngine:
    """What the command line asks to watch."""

    to: Access
    expectations: Expectations
    api_key_env: str | None = None


def resolve(engine: str, given: Expectations, api_key_env: str | None) -> WatchedEngine:
    """The engine that was asked for, and what is expected of it; raises SpecdeckError."""
    # `host:port/prefix` is an address, and a file may have the name of an engine.
    if not engine.endswith((".yaml", ".yml")):
        to = access(engine, api_key_env=api_key_env)
        return WatchedEngine(to, given.over(_limits_at_start(to)), api_key_env)
    config = load(Path(engine))
    if config.attach is None:
        remedy = "give the engine's URL or its name from `ps`"
        raise ConfigError(f"{engine}: no `attach` block", remedy=remedy)
    urls = config.attach.engines
    if len(urls) != 1:
        raise UsageError(f"{engine} names {len(urls)} engines", remedy=f"give one: {urls[0]}")
    variable = choose_key_variable(api_key_env, config)
    to = access(urls[0], api_key_env=variable)
    return WatchedEngine(to, given.over(Expectations.of(config)), variable)


def _limits_at_start(to: Access) -> Expectations:
    """The `alerts` limits of the config that specdeck started the engine from, if it did."""
    if to.record is None or to.record.config is None or to.record.life() != "running":
        return Expectations()
    try:
        config = load(Path(to.record.config))
    except ConfigError as error:
        log(f"specdeck: no alerts: the config of {to.name} cannot be used: {error.line()}")
        return Expectations()
    return Expectations.of(config).limits()


async def watch_and_report(
    watched: WatchedEngine, interval: float, count: int | None, write: Callable[[Reading], None]
) -> int:
    """Writes each reading of an engine, and what follows from it; the exit code."""
    reporting = report_events(
        watched.to.url,
        watched.expectations,
        api_key_env=watched.api_key_env,
        known=(watched.to,),
    )
    async with reporting as report:

        def on_reading(reading: Reading) -> None:
            write(reading)
            report(reading)

        client = watched.to.client()
        try:
            found = readings(client, every=interval)
            return await write_readings(found, count=count, write=on_reading)
        finally:
            await client.close()


async def write_readings(
    readings: AsyncIterator[Reading], *, count: int | None, write: Callable[[Reading], None]
) -> int:
    """Writes up to `count` readings.

    Raises the error itself when the very first answer shows that none will ever come.
    """
    number, last = 0, None
    up = False
    async for reading in readings:
        number, up, last = number + 1, up or reading.up, reading.error
        if number == 1 and (error := find_lasting_error(reading)):
            raise error
        write(reading)
        if number == count:
            break
    if not up and last is not None:
        raise last
    return 0 if up else EngineError.exit_code


def find_lasting_error(reading: Reading) -> EngineError | None:
    """The error of a first reading that no later one can be without; None when there is hope.

    A key that is missing counts although vLLM shows its metrics without one: with
    half of every line unknown, the person is better told.
    """
    if isinstance(reading.error, LASTING):
        return reading.error
    return reading.control_error if isinstance(reading.control_error, Unauthorized) else None


def write_json(reading: Reading) -> None:
    """One sample as `watch --json` has it."""
    emit(reading_as_json(reading))


def write_table() -> Callable[[Reading], None]:
    """Writes samples under each other, with a heading now and then."""
    written = 0

    def write(reading: Reading) -> None:
        nonlocal written
        if written % 20 == 0:
            print_lines("  ".join(name.rjust(width) for name, width in COLUMNS))
        written += 1
        error = str(reading.error) if reading.error else None
        print_lines(format_row(reading_as_json(reading), error))

    return write


def format_row(sample: Mapping[str, object], error: str | None) -> str:
    """One sample as a line of the table.

    >>> sample = {"t": 0.0, "k": 3, "k_max": 5, "mode": "speculate", "acceptance_rate": 0.5}
    >>> format_row(sample, None)[10:]
    '  speculate   3/5        –   50.0%       –     –     –      –        –       –'
    """
    clock = time.strftime("%H:%M:%S", time.localtime(_number(sample.get("t")) or 0.0))
    if error is not None:
        return f"{clock.rjust(8)}  down: {error}"
    cells = (
        clock,
        _mode(sample),
        f"{format_value(sample.get('k'))}/{format_value(sample.get('k_max'))}",
        _decimal(sample.get("tokens_per_second"), "{:.1f}"),
        _decimal(sample.get("acceptance_rate"), "{:.1%}"),
        _decimal(sample.get("mean_acceptance_length"), "{:.2f}"),
        format_value(sample.get("running")),
        format_value(sample.get("waiting")),
        _decimal(sample.get("kv_cache_usage"), "{:.1%}"),
        _decimal(_median(sample.get("ttft_ms")), "{:.0f}ms"),
        _decimal(_median(sample.get("itl_ms")), "{:.1f}ms"),
    )
    return "  ".join(cell.rjust(width) for cell, (_, width) in zip(cells, COLUMNS, strict=True))


def _mode(sample: Mapping[str, object]) -> str:
    """Who holds k: the mode, or the breaker while it keeps speculation off.

    >>> _mode({"mode": "speculate", "breaker": "open"}), _mode({"mode": "speculate"})
    ('breaker', 'speculate')
    >>> _mode({"mode": "speculate", "breaker": "half-open"})
    'half-open'
    >>> _mode({"mode": "target-only", "breaker": "open"}), _mode({"mode": None, "breaker": None})
    ('target-only', '–')
    """
    mode, breaker = sample.get("mode"), sample.get("breaker")
    if mode == "speculate" and breaker in ("open", "half-open"):
        return "breaker" if breaker == "open" else "half-open"
    return format_value(mode or None)


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def _decimal(value: object, form: str) -> str:
    number = _number(value)
    return UNKNOWN if number is None else form.format(number)


def _median(value: object) -> object:
    return value.get("p50") if isinstance(value, Mapping) else None
