"""What others are told of fingerprints: Prometheus gauges, and a webhook.

The webhook's URL often holds a secret: it comes from the environment or a config, and
appears in no message.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from specdeck.engine.errors import UsageError
from specdeck.engine.fingerprint.compare import WORDS
from specdeck.engine.metrics.exposition import Exposition

if TYPE_CHECKING:
    from specdeck.engine.fingerprint.compare import Comparison


class Gauges(Exposition):
    """Of one engine, for one process."""

    def __init__(self, engine: str) -> None:
        from prometheus_client import Counter, Gauge

        super().__init__()
        self._engine = engine

        def gauge(name: str, help_: str, *labels: str) -> Gauge:
            full = f"specdeck_fingerprint_{name}"
            return Gauge(full, help_, ("engine", *labels), registry=self.registry)

        self._drift = gauge("drift", "1 where a layer differs from the pin, else 0.", "layer")
        self._verdict = gauge("verdict", "1 for what changed since the pin, else 0.", "kind")
        self._info = gauge("info", "Always 1; the names are labels.", "build", "path", "behaviour")
        self._verified = gauge("verified_timestamp_seconds", "Unix time of the last comparison.")
        self._up = gauge("up", "Whether the last comparison could be made.")
        self._drifts = Counter(
            "specdeck_fingerprint_drifts",
            "Times that the engine came to differ from its pin.",
            ("engine",),
            registry=self.registry,
        )
        self._drifts.labels(engine)

    def failed(self) -> None:
        """The engine could not be compared; the last figures stay."""
        self._up.labels(self._engine).set(0)

    def show(self, found: Comparison, t: float, *, news: bool) -> None:
        """A comparison at Unix time `t`; `news` is whether it began to differ, or otherwise."""

        name = self._engine
        self._up.labels(name).set(1)
        self._verified.labels(name).set(t)
        for layer, moved in found.layers.items():
            if moved is not None:
                self._drift.labels(name, layer).set(moved)
        kinds = {kind for kind, _ in found.verdicts}
        for kind in WORDS:
            self._verdict.labels(name, kind).set(kind in kinds)
        self._info.clear()
        self._info.labels(name, *(value or "" for value in found.after.names.values())).set(1)
        if news and not found.same:
            self._drifts.labels(name).inc()


VARIABLE = "SPECDECK_WEBHOOK"
"""Names the environment variable with the URL, unless a config names another one."""

PAUSES_S = (1.0, 4.0)
"""Before the second and the third try."""

_TIMEOUT_S = 5.0
_AGAIN = frozenset({408, 425, 429})


class Webhook:
    """Posts to one URL; a failure is a reason, never an exception."""

    def __init__(
        self,
        url: str,
        *,
        transport: Any = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._url = url
        self._transport = transport
        self._sleep = sleep

    def __repr__(self) -> str:
        return "Webhook(…)"

    async def post(self, body: Mapping[str, Any]) -> str | None:
        """Posts `body`, at most three times; why it did not arrive, None when it did."""
        import httpx

        reason: str | None = None
        async with httpx.AsyncClient(transport=self._transport, timeout=_TIMEOUT_S) as http:
            for pause in (0.0, *PAUSES_S):
                if pause:
                    await self._sleep(pause)
                try:
                    response = await http.post(self._url, json=dict(body))
                except (httpx.HTTPError, httpx.InvalidURL) as error:
                    # Its text may hold the URL.
                    reason = f"had no answer ({type(error).__name__})"
                    continue
                if response.is_success:
                    return None
                reason = f"answered {response.status_code}"
                if response.status_code < 500 and response.status_code not in _AGAIN:
                    break
        return f"the webhook of this drift {reason}"


def webhook(
    environment: Mapping[str, str], *, variable: str | None = None, url: str | None = None
) -> Webhook | None:
    """The webhook that is configured; None where none is.

    A `variable` that was named must be set; SPECDECK_WEBHOOK may be. Raises UsageError.

    >>> webhook({}) is None, webhook({"SPECDECK_WEBHOOK": "https://hooks.example/x"})
    (True, Webhook(…))
    """
    found = environment.get(variable or VARIABLE, "").strip() or (None if variable else url)
    if not found:
        if variable:
            raise UsageError(
                f"the variable {variable} is not set", remedy="export the webhook's URL in it"
            )
        return None
    try:
        parts = urlsplit(found)
        good = parts.scheme in ("http", "https") and bool(parts.hostname)
    except ValueError:
        good = False
    if not good:
        where = variable or VARIABLE
        raise UsageError(f"the webhook in {where} is no URL", remedy="give one with https://")
    return Webhook(found)
