"""A recording: one reading a JSON line, as `watch --json` writes it, and read back as readings."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple
from urllib.parse import urlsplit

from specdeck.engine.errors import (
    ConfigError,
    EngineError,
    Place,
    SpecdeckError,
    Unreachable,
    Unsupported,
)
from specdeck.engine.files import open_file
from specdeck.engine.metrics.reading import Reading
from specdeck.engine.metrics.sample import Histogram, Sample, quantile
from specdeck.engine.metrics.window import Window
from specdeck.engine.protocol.codec import (
    DraftLength,
    NotJson,
    UnixTime,
    Within,
    loads,
    read_record,
)
from specdeck.engine.protocol.messages import PROTOCOL, EngineState

Json = object
"""A value that `json.dumps` writes; NaN and infinities are not among them."""

Sleep = Callable[[float], Awaitable[None]]


def reading_as_json(reading: Reading) -> dict[str, Json]:
    """The reading under the keys of the command line's contract.

    Rates, latencies and acceptance are of the window; gauges are of the moment. k is
    the live one, 0 in target-only, and null without the plugin: the page tells k_max only.
    """
    window = reading.window or Window(seconds=1.0)
    sample = reading.sample or Sample(t=reading.t, at=0.0)
    return {
        "t": round(reading.t, 3),
        "engine": reading.url,
        "up": reading.up,
        **_control(reading.state, sample),
        "tokens_per_second": _round(window.tokens_per_second, 2),
        "acceptance_rate": _round(window.acceptance_rate, 4),
        "mean_acceptance_length": _round(window.mean_acceptance_length, 3),
        "draft_tokens_per_draft": _round(window.draft_tokens_per_draft, 3),
        "acceptance_per_position": per_position(window.acceptance_per_position),
        "output_from_drafts": _round(window.output_from_drafts, 4),
        "running": _whole(sample.running),
        "waiting": _whole(sample.waiting),
        "kv_cache_usage": _round(sample.kv_cache_usage, 4),
        "ttft_ms": milliseconds(window.ttft),
        "itl_ms": milliseconds(window.itl),
        "preemptions_per_second": _round(window.preemptions_per_second, 3),
        "fingerprint": reading.state.fingerprint if reading.state else None,
        "system_fingerprint": reading.state.system_fingerprint if reading.state else None,
        "restarted": reading.restarted,
        **_ranks(reading.state),
    }


def _ranks(state: EngineState | None) -> dict[str, Json]:
    """What each data-parallel rank is at, where there are several."""
    if state is None or not state.ranks:
        return {}
    names = ("rank", "k", "mode", "breaker", "running", "waiting", "drafts")
    return {"ranks": [{name: getattr(one, name) for name in names} for one in state.ranks]}


def _control(state: EngineState | None, sample: Sample) -> dict[str, Json]:
    if state is None:
        unknown = dict.fromkeys(("k", "mode", "policy", "breaker"))
        return {"model": sample.model, "method": None, "k_max": sample.k_max, **unknown}
    return {
        "model": sample.model or state.model,
        "method": state.method,
        "k_max": state.k_max,
        "k": state.k,
        "mode": state.mode,
        "policy": state.policy,
        "breaker": state.breaker,
    }


def per_position(rates: Sequence[float | None] | None) -> list[float | None] | None:
    """The rates up to the deepest position that was drafted; None when nothing was.

    >>> per_position((0.81, 0.62, None, None)), per_position((None, 0.5)), per_position((None,))
    ([0.81, 0.62], [None, 0.5], None)
    """
    depth = max((i for i, rate in enumerate(rates or (), 1) if rate is not None), default=0)
    return [_round(rate, 4) for rate in rates[:depth]] if rates and depth else None


def milliseconds(histogram: Histogram | None) -> dict[str, float | None]:
    """Median and 95th percentile of a histogram of seconds, in milliseconds.

    >>> milliseconds(Histogram((0.01, 0.02, math.inf), (10.0, 20.0, 20.0)))
    {'p50': 10.0, 'p95': 19.0}
    >>> milliseconds(None)
    {'p50': None, 'p95': None}
    """
    found = {name: quantile(histogram, q) if histogram else None for name, q in _QUANTILES.items()}
    return {
        name: None if value is None else _round(value * 1e3, 2) for name, value in found.items()
    }


_QUANTILES = {"p50": 0.5, "p95": 0.95}


def _round(value: float | None, digits: int) -> float | None:
    return None if value is None or not math.isfinite(value) else round(value, digits)


def _whole(value: float | None) -> int | None:
    return None if value is None or not math.isfinite(value) else round(value)


Line = Mapping[str, Any]

Figure = Annotated[float, Within(0.0, 1e12)]
"""A rate, a length, a time or a count of a reading."""


class _Keys(NamedTuple):
    """The keys of a line that are read back; a newer one may have more, and those with a value
    here may be missing."""

    t: UnixTime
    engine: str
    up: bool
    tokens_per_second: Figure | None
    k_max: DraftLength | None
    mode: str | None
    restarted: bool
    model: str | None = None
    method: str | None = None
    k: DraftLength | None = None
    policy: str | None = None
    breaker: str | None = None
    acceptance_rate: Figure | None = None
    mean_acceptance_length: Figure | None = None
    draft_tokens_per_draft: Figure | None = None
    acceptance_per_position: tuple[Figure | None, ...] | None = None
    output_from_drafts: Figure | None = None
    running: Annotated[int, Within(0, 1e12)] | None = None
    waiting: Annotated[int, Within(0, 1e12)] | None = None
    kv_cache_usage: Figure | None = None
    ttft_ms: Mapping[str, Figure | None] | None = None
    itl_ms: Mapping[str, Figure | None] | None = None
    preemptions_per_second: Figure | None = None
    fingerprint: str | None = None
    system_fingerprint: str | None = None


_LONGEST_LINE = 1_000_000
"""Characters; a line has a thousand."""
_LONGEST_TEXT = 4_000
"""Characters of a text in it: a client cuts an engine's there."""
_LINES_AT_ONCE = 20
MOST_ENGINES = 256
"""Of one recording: each is played on its own."""
_REMEDY = "record with `specdeck watch URL --json > FILE`"


@dataclass(frozen=True, slots=True)
class Recording:
    """What a file holds."""

    path: Path
    engines: tuple[str, ...]
    """URLs, in the order in which they appear."""
    first: float
    """Unix time of the first line, seconds."""
    last: float
    count: int

    def readings(self, engine: str) -> Iterator[Reading]:
        """One engine's readings, read as they are wanted."""
        life = LineReader()
        for line in read_lines(self.path):
            if line["engine"] == engine:
                yield life.reading(line)


OnPlace = Callable[[int], None]
"""Hears of each line by the byte at which it begins."""


def read_recording(path: Path, on_place: OnPlace = lambda place: None) -> Recording:
    """The whole file, checked; raises ConfigError naming the line that is no sample."""
    engines: dict[str, None] = {}
    first = last = math.nan
    count = 0
    for place, line in read_places(path):
        on_place(place)
        engines.setdefault(line["engine"])
        if len(engines) > MOST_ENGINES:
            raise ConfigError(f"more than {MOST_ENGINES} engines", place=Place(path))
        first = line["t"] if count == 0 else first
        last, count = line["t"], count + 1
    if not count:
        raise ConfigError("no samples", place=Place(path), remedy=_REMEDY)
    return Recording(path, tuple(engines), first, last, count)


def read_lines(path: Path) -> Iterator[Line]:
    """The lines as dicts; a last line that was cut short by the end of its writer is left out."""
    return (line for _, line in read_places(path))


def read_places(path: Path) -> Iterator[tuple[int, Line]]:
    """The same, each with the byte at which it begins."""
    try:
        with open_file(path) as file:
            place = 0
            lines = iter(lambda: file.readline(_LONGEST_LINE), b"")
            for number, data in enumerate(lines, 1):
                line = _decode(data, Place(path, number))
                if line is not None:
                    yield place, line
                place += len(data)
    except OSError as error:
        raise ConfigError(error.strerror or str(error), place=Place(path), remedy=_REMEDY) from None


def read_line(path: Path, place: int) -> Line | None:
    """The line that begins at a byte; None where there is none. Raises ConfigError."""
    try:
        with open_file(path) as file:
            file.seek(place)
            return _decode(file.readline(_LONGEST_LINE), Place(path))
    except OSError as error:
        raise ConfigError(error.strerror or str(error), place=Place(path), remedy=_REMEDY) from None


def _decode(data: bytes, where: Place) -> Line | None:
    """One line; None for an empty one, and for one that was cut short."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        raise ConfigError("not text", place=Place(where.path), remedy=_REMEDY) from None
    return _line(text, where, whole=text.endswith("\n")) if text.strip() else None


def _line(text: str, where: Place, *, whole: bool) -> Line | None:
    if len(text) >= _LONGEST_LINE:
        raise ConfigError("not a sample: too long a line", place=where, remedy=_REMEDY)
    try:
        line = loads(text)
    except NotJson as error:
        if not whole:
            return None
        raise ConfigError(f"not JSON: {error}", place=where, remedy=_REMEDY) from None
    try:
        found = read_record(_Keys, line)
        urlsplit(found.engine)
        if any(isinstance(one, str | tuple) and len(one) > _LONGEST_TEXT for one in found):
            raise ValueError("too long a text or a list")
    except ValueError as error:
        raise ConfigError(f"not a sample: {error}", place=where, remedy=_REMEDY) from None
    return {**line, **{key: value for key, value in found._asdict().items() if key in line}}


class LineReader:
    """Knows what a line leaves out because the lines before it said so."""

    def __init__(self, k: int = 0, restarts: int = 0) -> None:
        self.k = k
        """The operator's k, which target-only and policies do not tell."""
        self.restarts = restarts

    def reading(self, line: Line) -> Reading:
        """One line as the reading it was made of."""
        self.restarts += bool(line["restarted"])
        if not line["up"]:
            silent = Unreachable(f"{line['engine']} did not answer")
            return Reading(line["t"], line["engine"], error=silent)
        state = self._state(line)
        return Reading(
            line["t"],
            line["engine"],
            sample=_sample(line),
            window=_window(line),
            state=state,
            control_error=None if state else Unsupported("recorded without the specdeck plugin"),
            restarted=bool(line["restarted"]),
        )

    def _state(self, line: Line) -> EngineState | None:
        if line["mode"] is None or line.get("k") is None or line["k_max"] is None:
            return None
        if line["mode"] == "speculate" and (line.get("policy") == "fixed" or not self.k):
            self.k = line["k"]
        zeros = (0,) * line["k_max"]
        return EngineState(
            protocol=PROTOCOL,
            plugin="",
            instance=f"recorded {self.restarts}",
            version=0,
            started=line["t"],
            vllm="",
            model=line.get("model") or "",
            method=line.get("method"),
            runner="unknown",
            k=line["k"],
            k_set=self.k,
            k_max=line["k_max"],
            mode=line["mode"],
            fallback="warm",
            policy=line.get("policy") or "fixed",
            breaker=line.get("breaker") or "closed",
            step=0,
            drafts=0,
            drafted_per_position=zeros,
            accepted_per_position=zeros,
            running=line.get("running") or 0,
            waiting=line.get("waiting") or 0,
            fingerprint=line.get("fingerprint"),
            system_fingerprint=line.get("system_fingerprint"),
        )


def _sample(line: Line) -> Sample:
    k_max = line["k_max"]
    return Sample(
        t=line["t"],
        at=line["t"],
        model=line.get("model"),
        accepted_per_position=None if k_max is None else (0.0,) * k_max,
        running=line.get("running"),
        waiting=line.get("waiting"),
        kv_cache_usage=line.get("kv_cache_usage"),
    )


def _window(line: Line) -> Window | None:
    generated = line["tokens_per_second"]
    length, drafted = line.get("mean_acceptance_length"), line.get("draft_tokens_per_draft")
    if generated is None and drafted is None:
        return None
    share = line.get("output_from_drafts")
    accepted: float | None = None if share is None or generated is None else share * generated
    drafts: float | None = None
    if drafted is not None and length is not None:
        drafts = 1.0
        if length > 1 and accepted:
            drafts = accepted / (length - 1)
        else:
            accepted = length - 1
    rates = line.get("acceptance_per_position")
    per_position = None if rates is None else tuple(float(rate or 0.0) for rate in rates)
    had = None if rates is None else tuple(0.0 if rate is None else 1.0 for rate in rates)
    return Window(
        seconds=1.0,
        generated=generated,
        drafts=drafts,
        drafted=None if drafts is None or drafted is None else drafts * drafted,
        accepted=accepted,
        accepted_per_position=per_position,
        drafted_per_position=had,
        preemptions=line.get("preemptions_per_second"),
        ttft=_histogram(line.get("ttft_ms")),
        itl=_histogram(line.get("itl_ms")),
    )


def _histogram(quantiles: Mapping[str, float | None] | None) -> Histogram | None:
    """A histogram with this median and this 95th percentile.

    >>> from specdeck.engine.metrics.recording import milliseconds
    >>> milliseconds(_histogram({"p50": 31.0, "p95": 80.1}))
    {'p50': 31.0, 'p95': 80.1}
    """
    median, most = (quantiles or {}).get("p50"), (quantiles or {}).get("p95")
    if median is None or most is None:
        return None
    return Histogram((median / 1e3, most / 1e3, math.inf), (50.0, 95.0, 100.0))


def refusal() -> SpecdeckError:
    """Why nothing can be changed here."""
    return EngineError("this is a recording: there is no engine to change")


class ReplayedEngine:
    """One engine of a recording in place of a live one, at `speed` times its own pace."""

    armed = False
    local = False

    def __init__(
        self, recording: Recording, url: str, *, speed: float = 1.0, sleep: Sleep = asyncio.sleep
    ) -> None:
        self.recording = recording
        self.speed = speed
        self._sleep = sleep
        self.url = url
        self.name = urlsplit(url).netloc or url

    def arm(self) -> None:
        """Raises EngineError: there is nothing to change."""
        raise refusal()

    async def readings(self, every: float) -> AsyncIterator[Reading]:
        """The recorded readings, until they end; `every` is theirs, not the caller's."""
        shown, life = self.recording.first, LineReader()
        try:
            for number, line in enumerate(read_lines(self.recording.path)):
                is_own = line["engine"] == self.url
                if is_own and line["t"] > shown:
                    await self._sleep((line["t"] - shown) / self.speed)
                    shown = line["t"]
                elif is_own or not number % _LINES_AT_ONCE:
                    # Lines of others, and of one moment, may be all that a long file has: whoever
                    # shows it hears keys and signals between them.
                    await asyncio.sleep(0)
                if is_own:
                    yield life.reading(line)
        except ConfigError as error:
            # The file was whole when it was opened.
            yield Reading(shown, self.url, error=EngineError(str(error), remedy=error.remedy))

    async def close(self) -> None:
        """Nothing is held."""
