"""What is expected of engines, and the lines on stderr where they are not so: drift and alerts."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

import click

from specdeck.console.cli.engines import Access, access
from specdeck.console.cli.file_options import NamedFile
from specdeck.console.cli.output import log
from specdeck.engine.launch.registry import Registry
from specdeck.engine.paths import locations

# What a watch needs is imported by the first one: a console paints before it.
if TYPE_CHECKING:
    from specdeck.engine.client.engine_client import EngineClient
    from specdeck.engine.client.webhook import Webhook
    from specdeck.engine.config.config import Config
    from specdeck.engine.metrics.reading import Reading
    from specdeck.engine.operations.fingerprint import Fingerprints
    from specdeck.engine.operations.watches import EngineWatch, Watches

OnReading = Callable[["Reading"], None]

LAST_EVENTS_S = 10.0
"""For a fetch and a post that are under way when the samples end."""

pin_option = click.option(
    "--pin",
    metavar="F",
    type=NamedFile(),
    help="The pin to watch for drift; default: what `specdeck fingerprint pin` wrote.",
)
webhook_option = click.option(
    "--webhook-env",
    metavar="NAME",
    help="The variable with the URL that drifts and alerts are posted to; default: "
    "SPECDECK_WEBHOOK.",
)


@dataclass(frozen=True, slots=True)
class Expectations:
    """What a config or the command line says of pins, limits and who is told."""

    pin: Path | None = None
    """None for the place where `specdeck fingerprint pin URL` writes."""
    webhook_env: str | None = None
    webhook: str | None = None
    acceptance_floor: float | None = None
    mismatch_max: float | None = None

    def __repr__(self) -> str:
        return f"Expectations({self.pin})"  # the webhook may be a secret

    @classmethod
    def of(cls, config: Config) -> Self:
        """What a config says; its pin lies relative to it."""
        named = config.fingerprint.pin if config.fingerprint is not None else None
        pin = None if named is None else config.path.parent / named
        alerts = config.alerts
        return cls(
            pin, alerts.webhook_env, alerts.webhook, alerts.acceptance_floor, alerts.mismatch_max
        )

    def over(self, other: Expectations) -> Expectations:
        """This one, and `other` where it says nothing."""
        return Expectations(
            self.pin or other.pin,
            self.webhook_env or other.webhook_env,
            self.webhook or other.webhook,
            other.acceptance_floor if self.acceptance_floor is None else self.acceptance_floor,
            other.mismatch_max if self.mismatch_max is None else self.mismatch_max,
        )

    def limits(self) -> Expectations:
        """The limits alone."""
        return Expectations(acceptance_floor=self.acceptance_floor, mismatch_max=self.mismatch_max)

    def open_webhook(self) -> Webhook | None:
        """The webhook, if one is configured; raises UsageError."""
        from specdeck.engine.client.webhook import configured_webhook

        return configured_webhook(os.environ, variable=self.webhook_env, url=self.webhook)


NO_EXPECTATIONS = Expectations()


def find_name(url: str) -> str | None:
    """The name of the engine at `url`, if specdeck started it here."""
    record = Registry(locations(os.environ).engines).find(url)
    same = record is not None and record.url.partition(":")[0] == url.partition(":")[0]
    return record.name if record is not None and same else None


def open_fingerprints(
    urls: Iterable[str] = (),
    expectations: Expectations = NO_EXPECTATIONS,
    *,
    api_key_env: str | None = None,
    token_file: Path | None = None,
    known: Iterable[Access] = (),
    find_name: Callable[[str], str | None] = find_name,
    on_notice: Callable[[str], None] = lambda text: None,
) -> Fingerprints:
    """This user's fingerprints, pins and history; a given pin is that of the engines at `urls`.

    The `known` engines stay the ones they are: whoever gets the port of one later is not asked.
    """
    from specdeck.engine.operations.fingerprint import Fingerprints

    folders, found = locations(os.environ), {to.url: to for to in known}

    def open_client(name: str) -> EngineClient:
        if (to := found.get(name)) is None:
            to = access(name, api_key_env=api_key_env, token_file=token_file)
            to = found.get(to.url, to)  # spelt in another way
        return to.client()

    return Fingerprints(
        open_client,
        pins=folders.pins,
        store=folders.store,
        given={} if expectations.pin is None else dict.fromkeys(urls, expectations.pin),
        find_name=find_name,
        on_notice=on_notice,
    )


def watches(
    urls: Iterable[str],
    expectations: Expectations,
    *,
    api_key_env: str | None = None,
    token_file: Path | None = None,
    known: Iterable[Access] = (),
    names_unpinned: bool = True,
) -> Callable[[], Watches]:
    """Opens the watches of a session; raises UsageError at once for a webhook that is none."""
    webhook = expectations.open_webhook()

    def open_watches() -> Watches:
        from specdeck.engine.operations.alerts import Limits
        from specdeck.engine.operations.watches import Watches

        fingerprints = open_fingerprints(
            urls, expectations, api_key_env=api_key_env, token_file=token_file, known=known
        )
        limits = Limits(expectations.acceptance_floor, expectations.mismatch_max)
        return Watches(fingerprints, limits, webhook=webhook, names_unpinned=names_unpinned)

    return open_watches


@asynccontextmanager
async def report_events(
    url: str,
    expectations: Expectations,
    *,
    api_key_env: str | None = None,
    known: Iterable[Access] = (),
) -> AsyncIterator[OnReading]:
    """Gives who is to be told of every reading of the engine at `url`.

    The engine is asked for nothing while it has no pin. Raises UsageError for a pin that is
    none, or that was named and is not there.
    """
    opened = watches(
        (url,), expectations, api_key_env=api_key_env, known=known, names_unpinned=False
    )()
    watch = opened.open(url)
    await watch.drift.open()
    reporter = WatchReporter(watch)
    try:
        yield reporter.take
    finally:
        await reporter.close()


class WatchReporter:
    """Says what a watch tells of, beside the samples: these wait for nothing."""

    def __init__(self, watch: EngineWatch, on_line: Callable[[str], None] = log) -> None:
        self._watch = watch
        self._on_line = on_line
        self._tasks: set[asyncio.Task[None]] = set()

    def take(self, reading: Reading) -> None:
        """Take a reading in, and begin to say what follows from it."""
        if self._watch.take(reading):
            task = asyncio.create_task(self._report(reading))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Let what is under way come to its end, for a while."""
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=LAST_EVENTS_S)
        for task in self._tasks:
            task.cancel()
        if (left := self._watch.take_left_out()) is not None:
            self._on_line(f"specdeck: {left.line}")

    async def _report(self, reading: Reading) -> None:
        from specdeck.engine.operations.drift import FactsRead

        async for event in self._watch.events(reading):
            if not isinstance(event, FactsRead):
                self._on_line(f"specdeck: {event.line}")
