"""`specdeck fingerprint verify --every`: drift as lines, gauges and a webhook."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from specdeck.console.cli.common import metrics_address_option
from specdeck.console.cli.fingerprint_words import compared_lines
from specdeck.console.cli.talk import emit, say
from specdeck.engine.errors import EngineError, SpecdeckError, UsageError
from specdeck.engine.metrics.exposition import LOOPBACK
from specdeck.engine.text import parse_duration

if TYPE_CHECKING:
    from specdeck.engine.fingerprint.drift import Judge, Sight
    from specdeck.engine.fingerprint.export import Gauges, Webhook
    from specdeck.engine.fingerprint.fingerprint import Fingerprint
    from specdeck.engine.fingerprint.pins import PinFile


@dataclass(frozen=True, slots=True)
class Exports:
    """Where the outcome of each verification goes besides stdout."""

    port: int | None = None
    file: Path | None = None
    webhook: Webhook | None = None
    address: str = LOOPBACK
    """What `port` is bound on."""

    def gauges(self, url: str) -> Gauges | None:
        """Gauges that are served already; None where nobody wants them."""
        if self.port is None and self.file is None:
            return None
        from specdeck.engine.fingerprint.export import Gauges

        found = Gauges(url)
        if self.port is not None:
            found.serve(self.port, self.address)
        return found


class Round:
    """One verification after the other."""

    def __init__(
        self,
        look: Callable[[], Awaitable[Fingerprint]],
        judge: Judge,
        exports: Exports,
        url: str,
        pins: PinFile | None = None,
    ) -> None:
        self._look = look
        self._judge = judge
        self._pins = pins
        self._exports = exports
        self._gauges = exports.gauges(url)

    async def once(self, *, as_json: bool, dated: bool = True) -> bool | None:
        """Looks, compares and tells; whether all is as pinned, None where nobody answered."""
        await self._expect()
        try:
            seen = await self._look()
        except EngineError as error:
            say(f"specdeck: {error.line()}")
            if self._gauges is not None:
                self._gauges.failed()
            self._write()
            return None
        sight = self._judge.sight(seen, time.time())
        assert sight.comparison is not None  # a look that waits for weights has compared
        if self._gauges is not None:
            self._gauges.show(sight.comparison, seen.t, news=sight.drift is not None)
        self._write()
        self._told(sight, as_json=as_json, dated=dated)
        await self._post(sight)
        return sight.comparison.same

    @property
    def pinned(self) -> Fingerprint:
        """What the engine is compared with."""
        return self._judge.pinned

    async def _expect(self) -> None:
        """Go by the pin as it lies in its file by now; without one the old one still holds."""
        from specdeck.engine.fingerprint.drift import judged

        if self._pins is None:
            return
        try:
            found = await asyncio.to_thread(self._pins.again)
        except SpecdeckError as error:
            say(f"specdeck: {error.line()}; compared with what it held before")
            return
        if found is None:
            return
        judge, news = judged(found, self._judge)
        if judge is not None and news is not None:
            self._judge = judge
            say(f"specdeck: {news}")

    def _told(self, sight: Sight, *, as_json: bool, dated: bool) -> None:
        found = sight.comparison
        assert found is not None
        if as_json:
            emit({**found.as_json(), "pin": str(self._judge.place)})
        elif not dated:
            click.echo("\n".join(compared_lines(found, full=False)))
        else:
            clock = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(sight.seen.t))
            click.echo(f"{clock}  {'; '.join(compared_lines(found, full=False))}")

    async def _post(self, sight: Sight) -> None:
        if sight.drift is None or self._exports.webhook is None:
            return
        reason = await self._exports.webhook.post(sight.drift.as_json())
        if reason is not None:
            say(f"specdeck: {reason}")

    def _write(self) -> None:
        if self._gauges is not None and self._exports.file is not None:
            self._gauges.write(self._exports.file)


async def again(
    rounds: Round,
    every_s: float | None,
    *,
    as_json: bool,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> int:
    """One verification, or one every `every_s` seconds for ever; the exit code."""
    while True:
        same = await rounds.once(as_json=as_json, dated=every_s is not None)
        if every_s is None:
            return EngineError.exit_code if same is None else int(not same)
        await sleep(every_s)


def seconds(every: str | None) -> float | None:
    """`--every` in seconds; raises UsageError for what is no time."""
    if every is None:
        return None
    return parse_duration(every)


def exports_options(command: Any) -> Any:
    """`--every`, `--metrics-port`, `--metrics-address`, `--metrics-file`."""
    for option in (
        click.option("--every", metavar="T", help="Verify again and again, such as every 60s."),
        click.option("--metrics-port", type=click.IntRange(1, 65535), metavar="P",
                     help="Show a Prometheus the outcome, with --every."),
        metrics_address_option,
        click.option("--metrics-file", type=click.Path(path_type=Path, dir_okay=False),
                     metavar="F", help="Write it for node_exporter's textfile collector."),
    ):  # fmt: skip
        command = option(command)
    return command


def refuse_nonsense(every: str | None, port: int | None, *, by_name: bool, exported: bool) -> None:
    """UsageError for options that make no sense together."""
    if port is not None and every is None:
        raise UsageError("--metrics-port answers while --every runs", remedy="give --every as well")
    if by_name and (every is not None or exported):
        what = "--every" if every is not None else "--metrics-file or --webhook-env"
        raise UsageError(f"{what} wants facts to compare with", remedy="give a pin's file")
