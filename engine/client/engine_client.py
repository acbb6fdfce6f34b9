"""A client of one engine: its metrics page, its plugin's word, its knobs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import httpx

from specdeck.engine.client.bounds import (
    CHANGE,
    FACTS,
    PAGE,
    REPLY,
    STATE,
    TUNING,
    Bound,
    shorten_texts,
)
from specdeck.engine.client.http import (
    NO_ANSWER,
    Deadline,
    PortCheck,
    Reply,
    fetch_reply,
    no_check,
    open_http,
    parse_object,
    refusal,
    silence,
)
from specdeck.engine.client.secret import Secret
from specdeck.engine.client.token import TOKEN_REMEDY, TokenSource, no_token
from specdeck.engine.errors import NotAnEngine, Unauthorized, Unreachable, Unsupported, UsageError
from specdeck.engine.policy.step import Step
from specdeck.engine.protocol.codec import WrongType, read_value
from specdeck.engine.protocol.messages import (
    PREFIX,
    PROTOCOL,
    TOKEN_HEADER,
    AppliedChange,
    Change,
    EngineState,
)

if TYPE_CHECKING:
    from specdeck.engine.protocol.calibration import DummySteps, StepShape
    from specdeck.engine.protocol.cohorts import Cohorts
    from specdeck.engine.protocol.requests import Requests
    from specdeck.engine.protocol.tuning import Tuning

_T = TypeVar("_T")
TIMEOUT_S = 5.0
CONNECT_S = 2.0
CALIBRATION_S = 15.0
"""For some dummy steps of one shape."""
_MOST_STEPS = 4096
"""The last ones of a reply: a plugin remembers no more."""
_PERHAPS_MADE = (
    "the change may have been made: `specdeck watch {url} --count 1` shows what is in force"
)
_A_PAGE = "http://page.invalid"
"""The origin of a web page that no operator has allowed."""


def open_client(
    url: str,
    *,
    api_key: Secret | None = None,
    token: TokenSource = no_token,
    transport: httpx.AsyncBaseTransport | None = None,
    check_port: PortCheck = no_check,
) -> EngineClient:
    """A client of the engine at `url`, as `address.engine_url` spells it."""
    http = open_http(
        url,
        api_key=api_key,
        timeout=httpx.Timeout(TIMEOUT_S, connect=CONNECT_S),
        # Two questions go out at once; the engine drops idle connections after 5 s itself.
        connections=4,
        idle_connections=3,
        transport=transport,
        check_port=check_port,
    )
    return EngineClient(http, url=url, token=token, check_port=check_port)


class EngineClient:
    """Asks one engine; every failure is an error of `specdeck.engine.errors`."""

    def __init__(
        self,
        http: httpx.AsyncClient,
        *,
        url: str,
        token: TokenSource = no_token,
        timeout_s: float = TIMEOUT_S,
        connect_s: float = CONNECT_S,
        check_port: PortCheck = no_check,
    ) -> None:
        """An answer has `timeout_s` and `connect_s` in all, from the request to its last byte."""
        self._http = http
        self.url = url
        self.token = token
        self.check_port = check_port
        """What `http` asks before every request, for other connections to the same engine."""
        self.guard: Callable[[], None] = lambda: None
        """Called before every change; raises SpecdeckError to keep it back."""
        self.on_refused: Callable[[], None] = lambda: None
        """Called where the engine refuses the admin token."""
        self._timeout_s = timeout_s
        self._connect_s = connect_s

    async def page(self) -> str:
        """The metrics page, as text."""
        return (await self._get("/metrics", bound=PAGE)).text

    async def state(self) -> EngineState:
        """The plugin's word; raises Unsupported without the plugin or for a newer one."""
        data = await self._control("/state", bound=STATE)
        protocol = data.get("protocol")
        if isinstance(protocol, int | float) and protocol > PROTOCOL:
            raise Unsupported(
                f"the engine's specdeck plugin speaks protocol {protocol}, this one {PROTOCOL}",
                remedy="update specdeck here",
            )
        return self._parse("state", EngineState.from_json, data)

    async def steps(self, since: int) -> tuple[Step, ...]:
        """The scheduler's steps after number `since` that the plugin still remembers.

        Raises Unsupported for a plugin that does not count what steps commit.
        """
        return self._parse("steps", _parse_steps, await self._control("/steps", {"since": since}))

    async def tuning(self) -> Tuning:
        """Policy, breaker, trial and what was measured; raises Unsupported for an older plugin."""
        # A dozen records that nothing needs before a console's first paint.
        from specdeck.engine.protocol.tuning import Tuning

        return self._parse("tuning", Tuning.from_json, await self._control("/tuning", bound=TUNING))

    async def cohorts(self) -> Cohorts:
        """Finished requests by kind of request; raises Unsupported for an older plugin, and for an
        engine whose vLLM does not let requests be told apart."""
        from specdeck.engine.protocol.cohorts import Cohorts

        return self._parse("cohorts", Cohorts.from_json, await self._control("/cohorts"))

    async def requests(self) -> Requests:
        """What runs right now, and what has finished; raises Unsupported as `cohorts` does."""
        from specdeck.engine.protocol.requests import Requests

        return self._parse("requests", Requests.from_json, await self._control("/requests"))

    async def facts(self) -> dict[str, Any]:
        """The facts behind the fingerprint, and the fingerprint."""
        return await self._control("/facts", bound=FACTS)

    async def put(self, change: Change) -> AppliedChange:
        """Asks for `change`, unless `guard` keeps it back.

        Raises Unauthorized without asking when there is no token.
        """
        with self._authorize("a change") as headers:
            try:
                return await self._put(change, headers)
            except UsageError:
                if change.origin == "operator":
                    raise
                # A plugin older than origins refuses the key, and has changed nothing.
                return await self._put(replace(change, origin="operator"), headers)

    async def calibrate(self, shape: StepShape) -> DummySteps:
        """Has an idle engine make dummy steps, unless `guard` keeps it back.

        Raises Unauthorized without asking when there is no token, Conflict while the engine has
        requests, and Unsupported where dummy steps would tell nothing true.
        """
        from specdeck.engine.protocol.calibration import DummySteps

        with self._authorize("a calibration") as headers:
            response = await self._send(
                "POST", f"{PREFIX}/calibrate", bound=CHANGE, patience_s=CALIBRATION_S,
                json=shape.as_json(), headers=headers, timeout=CALIBRATION_S,
            )  # fmt: skip
        return self._parse("calibrate", DummySteps.from_json, parse_object(self.url, response))

    async def try_token(self) -> None:
        """Asks for no change, to learn whether the engine accepts the admin token.

        An engine looks at the token first, and then refuses what changes nothing. Raises
        Unauthorized when it does not accept the token, or there is none; what else keeps a change
        from being made, as `put` does.
        """
        with self._authorize("control") as headers, suppress(UsageError):
            await self._send("PUT", f"{PREFIX}/control", bound=CHANGE, json={}, headers=headers)

    @contextmanager
    def _authorize(self, what: str) -> Iterator[dict[str, str]]:
        """The headers with which the engine does `what`; tells `on_refused` where it does not.

        Raises what `guard` does, and Unauthorized when there is no token.
        """
        self.guard()
        token = self.token()
        if token is None:
            raise Unauthorized(
                f"{what} requires the engine's admin token, and there is none", remedy=TOKEN_REMEDY
            )
        try:
            yield {TOKEN_HEADER: token.reveal()}
        except Unauthorized:
            self.on_refused()
            raise

    async def _put(self, change: Change, headers: dict[str, str]) -> AppliedChange:
        response = await self._send(
            "PUT", f"{PREFIX}/control", bound=CHANGE, json=change.as_json(), headers=headers
        )
        try:
            return self._parse("control", AppliedChange.from_json, parse_object(self.url, response))
        except NotAnEngine as error:
            raise NotAnEngine(str(error), remedy=_PERHAPS_MADE.format(url=self.url)) from error

    async def version(self) -> str:
        """vLLM's version; raises NotAnEngine for another server."""
        version = parse_object(self.url, await self._get("/version")).get("version")
        if not isinstance(version, str):
            raise NotAnEngine(f"{self.url} reports no version: not a vLLM server")
        return version

    async def admits_pages(self) -> bool:
        """Whether a browser lets a web page of any origin read the answers."""
        response = await self._send("GET", "/version", headers={"Origin": _A_PAGE})
        return response.headers.get("Access-Control-Allow-Origin") in ("*", _A_PAGE)

    @property
    def keyed(self) -> bool:
        """Whether an API key goes out with every request."""
        return "Authorization" in self._http.headers

    async def models(self) -> tuple[str, ...]:
        """The names of the models that are served."""
        data = parse_object(self.url, await self._get("/v1/models"))
        try:
            served = read_value(tuple[dict[str, Any], ...], data.get("data"), "data")
            return tuple(read_value(str, model.get("id"), "id") for model in served)
        except WrongType as error:
            raise NotAnEngine(
                f"{self.url} returns an unexpected list of models: not a vLLM server"
            ) from error

    async def complete(self, body: dict[str, Any], *, timeout_s: float = 120.0) -> dict[str, Any]:
        """One completion, whole; an engine under load takes its time."""
        response = await self._send(
            "POST", "/v1/completions", patience_s=timeout_s, json=body, timeout=timeout_s
        )
        return parse_object(self.url, response)

    async def close(self) -> None:
        """Lets go of the connections."""
        await self._http.aclose()

    async def _control(
        self, path: str, params: dict[str, int] | None = None, *, bound: Bound = REPLY
    ) -> dict[str, Any]:
        return parse_object(self.url, await self._get(PREFIX + path, params, bound=bound))

    async def _get(
        self, path: str, params: dict[str, int] | None = None, *, bound: Bound = REPLY
    ) -> Reply:
        return await self._send("GET", path, bound=bound, params=params)

    async def _send(
        self,
        method: str,
        path: str,
        *,
        bound: Bound = REPLY,
        patience_s: float | None = None,
        **request: Any,
    ) -> Reply:
        patience_s = self._timeout_s if patience_s is None else patience_s
        deadline = Deadline(patience_s + self._connect_s)
        try:
            asked = self._http.build_request(method, path, **request)
            reply = await fetch_reply(self._http, asked, bound=bound, deadline=deadline)
        except TimeoutError:
            raise deadline.error(self.url) from None
        except NO_ANSWER as error:
            raise silence(self.url, error, patience_s) from error
        except httpx.InvalidURL as error:
            raise Unreachable(f"{self.url} is no address", remedy="check the URL") from error
        except ValueError as error:
            # Its text may quote the request, which holds secrets.
            encoded = isinstance(error, UnicodeError)
            why = "UTF-8 cannot encode its text" if encoded else "JSON cannot write a value in it"
            raise UsageError(f"a request to {self.url} cannot be sent: {why}") from None
        if not reply.is_success:
            control = path.startswith(PREFIX)
            raise refusal(self.url, reply, control=control, keyed=self.keyed)
        return reply

    def _parse(self, what: str, parse: Callable[[dict[str, Any]], _T], data: dict[str, Any]) -> _T:
        try:
            return parse(shorten_texts(data))
        except WrongType as error:
            raise self._strange(what, error) from error

    def _strange(self, what: str, error: WrongType) -> NotAnEngine:
        return NotAnEngine(
            f"{self.url} answers {PREFIX}/{what} with something unexpected ({error}): "
            "not specdeck's plugin"
        )


def _parse_steps(data: dict[str, Any]) -> tuple[Step, ...]:
    steps = read_value(tuple[dict[str, Any], ...], data.get("steps"), "steps")
    if any(step.get("committed") is None for step in steps):
        raise Unsupported(
            "the engine's specdeck plugin does not time its steps", remedy="update specdeck there"
        )
    return tuple(map(Step.from_json, steps[-_MOST_STEPS:]))
