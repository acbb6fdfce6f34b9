"""The console's fingerprints: whose pins lie where, and who is told of a drift."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import click

from specdeck.console.cli.engines import Access, access
from specdeck.engine.launch.registry import Registry
from specdeck.engine.paths import locations

if TYPE_CHECKING:
    from specdeck.engine.config.config import Config
    from specdeck.engine.fingerprint.book import Book
    from specdeck.engine.fingerprint.export import Webhook
    from specdeck.engine.fingerprint.pins import PinPlaces


@dataclass(frozen=True, slots=True)
class Expected:
    """What a config or the command line says of pins and drift."""

    pin: Path | None = None
    """None for the place where `specdeck fingerprint pin URL` writes."""
    webhook_env: str | None = None
    webhook: str | None = None

    def __repr__(self) -> str:
        return f"Expected({self.pin})"  # the webhook may be a secret

    @classmethod
    def of(cls, config: Config) -> Self:
        """What a config says; its pin lies relative to it."""
        named = config.fingerprint.pin if config.fingerprint is not None else None
        pin = None if named is None else config.path.parent / named
        return cls(pin, config.alerts.webhook_env, config.alerts.webhook)

    def over(self, other: Expected) -> Expected:
        """This one, and `other` where it says nothing."""
        return Expected(
            self.pin or other.pin,
            self.webhook_env or other.webhook_env,
            self.webhook or other.webhook,
        )

    def hook(self) -> Webhook | None:
        """The webhook, if one is configured; raises UsageError."""
        from specdeck.engine.fingerprint.export import webhook

        return webhook(os.environ, variable=self.webhook_env, url=self.webhook)


NOTHING_SAID = Expected()


def book(
    urls: Iterable[str],
    expected: Expected = NOTHING_SAID,
    *,
    api_key_env: str | None = None,
    token_file: Path | None = None,
) -> Book:
    """The fingerprints of a console; `urls` are the engines that a given pin is of."""
    from specdeck.engine.fingerprint.book import Book

    folders = locations(os.environ)
    return Book(
        lambda name: access(name, api_key_env=api_key_env, token_file=token_file).client(),
        pins=folders.pins,
        store=folders.store,
        given={} if expected.pin is None else dict.fromkeys(urls, expected.pin),
        named=name_of,
        webhook=expected.hook(),
    )


def name_of(url: str) -> str | None:
    """The name of the engine at `url`, if specdeck started it here."""
    record = Registry(locations(os.environ).engines).find(url)
    same = record is not None and record.url.partition(":")[0] == url.partition(":")[0]
    return record.name if record is not None and same else None


def places(to: Access) -> PinPlaces:
    """Where the pin of an engine lies unless it is told otherwise."""
    from specdeck.engine.fingerprint.pins import PinPlaces

    name = None if to.record is None else to.record.name
    return PinPlaces(locations(os.environ).pins, to.url, name)


def pin_option(command: Any) -> Any:
    """`--pin F`."""
    return click.option(
        "--pin",
        metavar="F",
        type=click.Path(path_type=Path, dir_okay=False),
        help="The pin to watch for drift; default: what `specdeck fingerprint pin` wrote.",
    )(command)


def webhook_option(command: Any) -> Any:
    """`--webhook-env NAME`."""
    return click.option(
        "--webhook-env",
        metavar="NAME",
        help="The variable with the URL that is told of a drift; default: SPECDECK_WEBHOOK.",
    )(command)
