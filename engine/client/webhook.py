"""Tells another program of drifts and alerts: one JSON object each, posted.

The URL often holds a secret: it comes from the environment or a config, and appears in no
message, log or report.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

from specdeck.engine.client.secret import Secret, refuse_no_name
from specdeck.engine.errors import UsageError

VARIABLE = "SPECDECK_WEBHOOK"
"""Names the environment variable with the URL, unless a config names another one."""

PAUSES_S = (1.0, 4.0)
"""Before the second and the third try."""

_TRY_S = 5.0
"""Of one try in all, the answer's head with it; its body is not read."""
_AGAIN = frozenset({408, 425, 429})


class Webhook:
    """Posts to one URL; a failure is a reason, never an exception."""

    def __init__(
        self,
        url: Secret,
        *,
        transport: Any = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        try_s: float = _TRY_S,
    ) -> None:
        self._url = url
        self._try_s = try_s
        self._transport = transport
        self._sleep = sleep

    def __repr__(self) -> str:
        return "Webhook(…)"

    async def post(self, body: Mapping[str, Any]) -> str | None:
        """Posts `body`, at most three times; why it did not arrive, None when it did.

        Its `kind`, such as `drift` or `alert`, is what a failure is named after.
        """
        import httpx

        try:
            reason = await self._post(body)
        except (OSError, ValueError, ImportError, httpx.InvalidURL) as error:
            # A host that no name encodes to, or certificates or a proxy of the environment: one
            # that speaks SOCKS takes a package that httpx does not bring.
            reason = f"cannot be asked ({type(error).__name__})"
        except ExceptionGroup as errors:  # of the attempts to connect, to a port that none is
            reason = f"cannot be asked ({type(errors.exceptions[0]).__name__})"
        return (
            None if reason is None else f"the webhook of this {body.get('kind', 'event')} {reason}"
        )

    async def _post(self, body: Mapping[str, Any]) -> str | None:
        import httpx

        from specdeck.engine.client.cookies import NoCookies
        from specdeck.engine.client.http import NO_ANSWER

        reason: str | None = None
        content, headers = json.dumps(dict(body)), {"Content-Type": "application/json"}
        async with httpx.AsyncClient(
            transport=self._transport, timeout=self._try_s, cookies=NoCookies()
        ) as http:
            for pause in (0.0, *PAUSES_S):
                if pause:
                    await self._sleep(pause)
                try:
                    async with (
                        asyncio.timeout(self._try_s),
                        http.stream(
                            "POST", self._url.reveal(), content=content, headers=headers
                        ) as response,
                    ):
                        pass
                except (*NO_ANSWER, httpx.InvalidURL, TimeoutError) as error:
                    # Its text may hold the URL.
                    reason = f"did not answer ({type(error).__name__})"
                    continue
                if response.is_success:
                    return None
                reason = f"answered {response.status_code}"
                if response.status_code < 500 and response.status_code not in _AGAIN:
                    break
        return reason


def configured_webhook(
    environment: Mapping[str, str], *, variable: str | None = None, url: str | None = None
) -> Webhook | None:
    """The webhook that is configured; None where none is.

    A `variable` that was named must be set; SPECDECK_WEBHOOK may be. Raises UsageError.

    >>> url = "https://hooks.example/x"
    >>> configured_webhook({}) is None, configured_webhook({"SPECDECK_WEBHOOK": url})
    (True, Webhook(…))
    """
    if variable is not None:
        refuse_no_name(variable, environment, option="--webhook-env (webhook_env)")
    found = environment.get(variable or VARIABLE, "").strip() or (None if variable else url)
    if not found:
        if variable:
            raise UsageError(
                f"the variable {variable} is not set", remedy="export the webhook's URL in it"
            )
        return None
    where = variable or VARIABLE
    secret = Secret(found, source=f"the webhook in {where}")
    try:
        parts = urlsplit(found)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        good = False
    if not good:
        raise UsageError(f"the webhook in {where} is not a URL", remedy="give one with https://")
    return Webhook(secret)
