"""vLLM's endpoint plugin: the routes under /v1/specdeck/, in every API server process."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, NoReturn

from specdeck.engine.plugin import request_pins, responses, secret_values
from specdeck.engine.plugin.admin_token import ensure_token_file, is_accepted
from specdeck.engine.plugin.capabilities import APART, lose, of_apart, of_no_token, withhold
from specdeck.engine.plugin.cohorts import read_cohorts
from specdeck.engine.plugin.contract import Gap, by_loss, describe_gaps
from specdeck.engine.plugin.fingerprint import Reader, system_fingerprint
from specdeck.engine.plugin.looks import SharedLook, StepReader
from specdeck.engine.plugin.rank_states import MERGES
from specdeck.engine.plugin.ranks import Ranks, Turns, find_obstacle
from specdeck.engine.plugin.reply import Refusal, inability, nonsense
from specdeck.engine.plugin.serving_facts import Unread, read_serving_facts
from specdeck.engine.plugin.take_hold import find_client_gaps
from specdeck.engine.protocol.calibration import StepShape
from specdeck.engine.protocol.codec import WrongType
from specdeck.engine.protocol.cohorts import merge_cohorts
from specdeck.engine.protocol.messages import (
    PREFIX,
    TOKEN_HEADER,
    Capability,
    Change,
    InvalidChange,
)
from specdeck.engine.protocol.vllm_versions import REMEDY, describe_too_old, is_too_old

logger = logging.getLogger("vllm.specdeck")

_CALL = "call_utility_all_async"
"""The engine client's method that every word with the engine cores goes through."""

_PATIENCE_S = 4.0
"""How long an engine core may take to answer between two steps before it counts as stalled."""

_ANSWERING_S = 0.5
"""Of it, kept for the way back."""

TUNING_GAP_S = 0.2
"""Between two looks at everything that was measured, which is some milliseconds of work."""

REQUESTS_GAP_S = 0.5
"""Between two looks at what runs, which take some microseconds of each request."""

COHORTS_GAP_S = 0.2
"""Between two looks at all cohorts, which are as much."""

PAGE_GAP_S = 5.0
"""Between two looks at all cohorts for metrics pages: these are given without a key as well, and a
look at hundreds of cells of a hundred positions takes the engine core ten milliseconds."""

_PAGE_PATIENCE_S = 1.0
"""How long a metrics page waits for the engine core; after that it has the figures of last time."""

CPU_GAP_S = 0.5
"""Between two looks at the CPU time of its threads for metrics pages: a console asks each second.
"""

_CALIBRATION_PATIENCE_S = 12.0
"""For some dummy steps, of which the last one may be long: a large batch on a slow machine."""

_ALONE = Capability(
    "calibration", False, "dummy steps on several data-parallel ranks would be as many experiments",
    "run one engine per rank, without data_parallel_size",
)  # fmt: skip

_READING_S = 3.0
"""For a server's own files, before it serves."""
_FIRST_PATIENCE_S = 60.0
"""At the first contact every worker is asked as well."""

MOST_BODY = 64 * 1024
"""Bytes of a request's body."""
_BODY_S = 5.0
"""For the whole of a body, seconds."""
_LONGEST_NUMBER = 20
"""Digits of a whole number; Python's own limit makes an error of thousands."""


class SpecdeckEndpoint:
    """The `vllm.endpoint_plugins` entry point."""

    name = "specdeck"
    required_tasks = ("generate",)

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._published_at = float("-inf")
        """When a metrics page last had the cohorts brought up to date."""
        self._cpu_at = float("-inf")
        """When one last had the threads' CPU times so."""
        self._client: Any = None
        self._data_parallel = 1
        self._ranks: Ranks | None = None
        """The data-parallel ranks, where they can be changed together."""
        self._withheld: Capability | None = None
        """Why nothing can be changed; None where it can."""
        self._unsteerable: Capability | None = None
        """Why the engine core cannot be asked, so that this only watches; None where it can."""
        self._gaps: tuple[Gap, ...] = ()
        """What this process lacks of the contract, and so what cannot be done."""
        self._system_fingerprint: str | None = None
        self._unstamped: str | None = "not asked yet"
        """Why responses do not carry the live fingerprint; None when they do."""
        self._late: asyncio.Task[None] | None = None
        """Tells facts whose reading takes long."""
        self._inexact: str | None = None
        """Why requests under exact names are not pinned; None when they are."""
        self._looks = {
            "state": SharedLook(partial(self._take_look, "state")),
            "tuning": SharedLook(partial(self._take_look, "tuning"), gap_s=TUNING_GAP_S),
            "facts": SharedLook(partial(self._take_look, "facts")),
            "requests": SharedLook(partial(self._take_look, "requests"), gap_s=REQUESTS_GAP_S),
        }
        """What any client may ask for as often as it likes."""
        self._cohorts = SharedLook(self._look_at_cohorts, gap_s=COHORTS_GAP_S)
        """Finished requests by cohort, of each rank."""
        self._model = ""
        self._steps = [StepReader(self._fetch_steps)]
        """The steps of each rank, which are asked for as often."""

    def attach_router(self, app: Any) -> None:
        """Adds the routes; vLLM calls it once while it builds the application."""
        from fastapi import APIRouter, Request

        async def control(request: Request) -> Any:
            return await self._control(request)

        async def calibrate(request: Request) -> Any:
            return await self._calibrate(request)

        # FastAPI resolves annotations in this module's globals, where Request is not.
        control.__annotations__["request"] = Request
        calibrate.__annotations__["request"] = Request
        router = APIRouter(prefix=PREFIX)
        router.add_api_route("/state", self._state, methods=["GET"])
        router.add_api_route("/steps", self._show_steps, methods=["GET"])
        router.add_api_route("/facts", self._facts, methods=["GET"])
        router.add_api_route("/tuning", self._tuning, methods=["GET"])
        router.add_api_route("/requests", self._requests, methods=["GET"])
        router.add_api_route("/cohorts", self._show_cohorts, methods=["GET"])
        router.add_api_route("/control", control, methods=["PUT"])
        router.add_api_route("/calibrate", calibrate, methods=["POST"])
        app.include_router(router)
        app.add_middleware(BeforePage, prepare=self._prepare_page)

    async def init_state(self, engine_client: Any, state: Any, args: Any) -> None:
        """Takes hold of the engine before the first request can be scheduled."""
        secret_values.delete_read()
        self._client = engine_client
        parallel = getattr(getattr(engine_client, "vllm_config", None), "parallel_config", None)
        self._data_parallel = getattr(parallel, "data_parallel_size", 1)
        if self._data_parallel > 1:
            self._withheld = of_apart("they were not asked yet")
        self._unsteerable = find_unsteerable(engine_client)
        if self._unsteerable is not None:
            logger.warning("specdeck leaves the engine alone: %s", self._unsteerable.reason)
            self._keep_exact(request_pins.exact_models(os.environ))
            return
        self._gaps = find_client_gaps(engine_client)
        for loss, lost in by_loss(self._gaps).items():
            reason = describe_gaps(lost, _vllm_version())
            logger.warning("specdeck does without: %s", reason)
            if loss == "live_k":
                self._withheld = Capability(loss, False, reason, REMEDY)
        self._keep_token(getattr(args, "port", 0) or 0)
        try:
            await self._take_hold(engine_client, args)
        except Exception:  # whatever it is, the engine must come up without us
            logger.exception("specdeck did not start; the engine serves without it")
        # Last, and so around what stamps a response: the stamp names the k of the request.
        self._keep_exact(request_pins.exact_models(os.environ))

    def _keep_token(self, port: int) -> None:
        """Has a token ready for whoever changes the engine; without one nobody can."""
        try:
            path = ensure_token_file(port)
        except (OSError, RuntimeError) as error:  # a home that cannot be written, or told
            self._withheld = of_no_token(str(error))
            logger.error("specdeck only watches: %s", self._withheld.reason)
        else:
            logger.info("specdeck's admin token is in %s", path)

    def _keep_exact(self, names: tuple[str, ...]) -> None:
        """Has requests under exact names answered target-only, or says loudly that they are not."""
        if not names:
            return
        if self._unsteerable is not None:  # its scheduler would not heed the marks
            self._inexact = self._unsteerable.reason
        else:
            self._inexact = request_pins.mark_exact_requests(frozenset(names))
        if self._inexact is not None:
            logger.error("exact_models are NOT answered target-only: %s", self._inexact)

    async def _take_hold(self, engine_client: Any, args: Any) -> None:
        config = engine_client.vllm_config
        self._model = str(config.model_config.served_model_name)
        self._system_fingerprint = system_fingerprint(config)
        k_max = getattr(config.speculative_config, "num_speculative_tokens", 0) or 0
        request_pins.guard(engine_client, k_max, _count_exact(config))
        request_pins.refuse_impossible(k_max)
        try:
            state_now = await self._answer("state", None, patience_s=_FIRST_PATIENCE_S)
        except Refusal as refusal:
            logger.warning("specdeck cannot reach the engine core: %s", refusal)
            return
        if "error" in state_now:
            logger.warning("specdeck did not start: %s", state_now["error"]["message"])
            return
        await self._tell_serving_facts(args)
        if self._data_parallel > 1:
            await self._join(engine_client)
        self._unstamped = await self._stamp(state_now["instance"])

    async def _tell_serving_facts(self, args: Any) -> None:
        """Has the engine core name what this process makes of requests and answers.

        The engine serves meanwhile where files take long to be read: its names are partial then.
        """
        reading = asyncio.create_task(asyncio.to_thread(read_serving_facts, args))
        done, _ = await asyncio.wait({reading}, timeout=_READING_S)
        if done:
            await self._tell_core(*reading.result())
        else:
            await self._tell_core({}, [{"fact": "serving", "reason": "being read"}])
            self._late = asyncio.create_task(self._tell_later(reading))

    async def _tell_later(self, reading: asyncio.Task[tuple[dict[str, Any], Unread]]) -> None:
        try:
            await self._tell_core(*await reading)
        except Exception:  # nobody waits for this task
            logger.exception("the fingerprint lacks the server's own settings")

    async def _tell_core(self, facts: dict[str, Any], unread: Unread) -> None:
        told = {"facts": facts, "unread": unread}
        try:
            await self._ask("serving", told, patience_s=_FIRST_PATIENCE_S)
        except Refusal as refusal:
            logger.warning("the fingerprint lacks the server's own settings: %s", refusal)

    async def _join(self, engine_client: Any) -> None:
        """Has the data-parallel ranks choose nothing on their own, and be changed together."""
        obstacle = find_obstacle(engine_client, self._data_parallel)
        answers = await self._ask("join", None, patience_s=_FIRST_PATIENCE_S)
        for rank, answer in enumerate(answers):
            if "error" in answer:
                message = answer["error"]["message"]
                logger.error("data-parallel rank %d does not join: %s", rank, message)
                obstacle = f"rank {rank} failed: {message}"
        if obstacle is None:
            try:
                turns = await self._open_turns(engine_client)
            except OSError as error:
                obstacle = f"its API servers share nothing to take turns by: {error}"
        if obstacle is not None:
            self._withhold_changes(of_apart(obstacle))
            return
        core = engine_client.engine_core
        self._ranks = ranks = Ranks(core, turns)
        self._steps = [
            StepReader(partial(self._fetch_steps_of, ranks, rank)) for rank in range(len(ranks))
        ]
        if self._withheld is not None and self._withheld.name == APART:
            self._withheld = None

    def _withhold_changes(self, why: Capability) -> None:
        logger.warning("specdeck leaves k alone: %s", why.reason)
        if self._withheld is None or self._withheld.name == APART:
            self._withheld = why

    async def _open_turns(self, engine_client: Any) -> Turns:
        """What has API servers take turns; raises OSError where they share no file for it."""
        if getattr(engine_client.engine_core, "client_count", 1) == 1:
            return Turns()
        place = (await self._answer("board", None)).get("path")
        return Turns(os.open(place or "", os.O_RDONLY))  # for as long as this process runs

    async def _stamp(self, instance: str) -> str | None:
        """Has this process's responses carry the live fingerprint; why not, otherwise."""
        if not responses.is_enabled(os.environ):
            return "switched off"
        place = (await self._answer("board", None)).get("path")
        board = Reader.of(place, instance) if place else None
        if board is None:
            return "the engine core shares no memory with this process"
        if (reason := responses.install()) is not None:
            return reason
        responses.STAMP.name = board.name
        return None

    async def _state(self) -> Any:
        return await self._show("state", system_fingerprint=self._system_fingerprint)

    async def _tuning(self) -> Any:
        known_here = {} if self._inexact is None else {"exact_reason": self._inexact}
        return await self._show("tuning", **known_here)

    async def _facts(self) -> Any:
        return await self._show(
            "facts",
            system_fingerprint=self._system_fingerprint,
            responses={"stamped": self._unstamped is None, "reason": self._unstamped},
        )

    async def _show_steps(self, since: int = 0, rank: int = 0) -> Any:
        if not 0 <= rank < len(self._steps):
            refusal = nonsense(f"rank is one of 0 to {len(self._steps) - 1}, not {rank}")
            return _reply(refusal.as_json(), refusal.status)
        reader = self._steps[rank]
        try:
            await self._wait(reader.look)
        except Refusal as refusal:
            return _reply(refusal.as_json(), refusal.status)
        return _reply_text(reader.mirror.body(since))

    async def _requests(self) -> Any:
        return await self._show("requests")

    async def _show_cohorts(self) -> Any:
        try:
            found = await self._wait(self._cohorts)
        except Refusal as refusal:
            return _reply(refusal.as_json(), refusal.status)
        if "text" not in found:  # once a look: it takes some milliseconds of everybody's server
            found["text"] = json.dumps(merge_cohorts(found["ranks"]).as_json())
        return _reply_text(found["text"])

    async def _look_at_cohorts(self) -> dict[str, Any] | Refusal:
        try:
            answers = await self._ask("cohorts", None)
            _raise_error(_first_error_or_answer(answers))
        except Refusal as refusal:
            return refusal
        return {"ranks": [read_cohorts(answer) for answer in answers]}

    async def _prepare_page(self) -> None:
        await asyncio.gather(self._publish_cohorts(), self._publish_cpu_times())

    async def _publish_cpu_times(self) -> None:
        """Brings what a metrics page says of the threads' CPU time up to this moment."""
        if self._unsteerable is not None or not self._model:
            return
        if self._clock() - self._cpu_at < CPU_GAP_S:
            return
        self._cpu_at = self._clock()
        try:
            answers = await self._ask("cpu", None, patience_s=_PAGE_PATIENCE_S)
        except Refusal:
            return
        from specdeck.engine.plugin import stats

        stats.publish_cpu_times(self._model, [answer.get("cpu") or {} for answer in answers])

    async def _publish_cohorts(self) -> None:
        """Brings what a metrics page says of cohorts up to this moment, where that can be.

        It stays for PAGE_GAP_S, however many pages are asked for.
        """
        if self._unsteerable is not None or not self._model:
            return
        if self._clock() - self._published_at < PAGE_GAP_S:
            return
        try:
            async with asyncio.timeout(_PAGE_PATIENCE_S):
                found = await self._wait(self._cohorts)
        except (Refusal, TimeoutError):
            return
        if found.get("published"):
            return
        from specdeck.engine.plugin import stats

        found["published"] = True
        self._published_at = self._clock()
        stats.publish_cohorts(self._model, found["ranks"])

    async def _show(self, command: str, **known_here: Any) -> Any:
        """What the engine core says of itself, with what this process knows beside it."""
        try:
            return self._respond({**await self._look(command), **known_here})
        except Refusal as refusal:
            return _reply(refusal.as_json(), refusal.status)

    async def _look(self, command: str) -> dict[str, Any]:
        """A look at the engine core, shared with whoever asks for the same."""
        return await self._wait(self._looks[command])

    async def _wait(self, look: SharedLook[dict[str, Any] | Refusal]) -> dict[str, Any]:
        try:
            async with asyncio.timeout(_PATIENCE_S):
                answer = await look.take()
        except TimeoutError:
            raise _stall_refusal(_PATIENCE_S) from None
        if isinstance(answer, Refusal):
            raise answer
        return answer

    async def _take_look(self, command: str) -> dict[str, Any] | Refusal:
        try:
            answers = await self._ask(command, None)
        except Refusal as refusal:
            return refusal
        merge = MERGES.get(command)
        if len(answers) == 1 or merge is None or any("error" in answer for answer in answers):
            return _first_error_or_answer(answers)
        return merge(answers)

    async def _fetch_steps(self, since: int) -> list[Any]:
        return _read_steps(await self._answer("steps", since))

    async def _fetch_steps_of(self, ranks: Ranks, rank: int, since: int) -> list[Any]:
        return _read_steps(await ranks.ask(rank, "steps", since))

    async def _control(self, request: Any) -> Any:
        try:
            change = _parse_change(await self._read_order(request))
            if self._withheld is not None:
                raise inability(self._withheld)
            return self._respond(await self._change(change))
        except Refusal as refusal:
            return _reply(refusal.as_json(), refusal.status)

    async def _calibrate(self, request: Any) -> Any:
        try:
            shape = _parse_shape(await self._read_order(request))
            if self._withheld is not None:
                raise inability(self._withheld)
            if self._data_parallel > 1:
                raise inability(_ALONE)
            until = time.time() + _PATIENCE_S - _ANSWERING_S
            payload = {"shape": shape.as_json(), "until": until}
            return self._respond(
                await self._answer("calibrate", payload, patience_s=_CALIBRATION_PATIENCE_S)
            )
        except Refusal as refusal:
            return _reply(refusal.as_json(), refusal.status)

    async def _read_order(self, request: Any) -> Any:
        """What somebody with the token asks for; raises Refusal on anybody else."""
        # Before a byte of the body: nobody else's may cost anything.
        if not is_accepted(request.headers.get(TOKEN_HEADER)):
            raise self._refuse_token()
        return await read_json(request)

    async def _change(self, change: Change) -> dict[str, Any]:
        if self._ranks is not None:
            # Whatever becomes of the client, all ranks are told or none.
            return await asyncio.shield(asyncio.ensure_future(self._ranks.change(change)))
        # Nothing may change after the client was told that there was no answer.
        until = time.time() + _PATIENCE_S - _ANSWERING_S
        return await self._answer("change", {"change": change.as_json(), "until": until})

    def _refuse_token(self) -> Refusal:
        if self._withheld is not None and self._withheld.name == "admin_token":
            return inability(self._withheld)  # no token could be right
        return Refusal(
            401,
            "admin_token",
            f"the admin token ({TOKEN_HEADER}) is missing or wrong",
            "use the token file that `specdeck run` wrote on the engine's machine",
        )

    def _respond(self, answer: dict[str, Any]) -> Any:
        if self._gaps and "capabilities" in answer:
            answer["capabilities"] = lose(answer["capabilities"], self._gaps, _vllm_version())
        if self._withheld is not None and "capabilities" in answer:
            answer["capabilities"] = withhold(answer["capabilities"], self._withheld)
        return _reply(answer, answer.pop("status", 200))

    async def _answer(
        self, command: str, payload: Any, *, patience_s: float = _PATIENCE_S
    ) -> dict[str, Any]:
        """The first error of an engine core, or what the first one says for all that agree."""
        return _first_error_or_answer(await self._ask(command, payload, patience_s=patience_s))

    async def _ask(
        self, command: str, payload: Any, *, patience_s: float = _PATIENCE_S
    ) -> list[dict[str, Any]]:
        """What each engine core answers, in the order of their ranks."""
        if self._unsteerable is not None:
            raise inability(self._unsteerable)
        call = getattr(self._client.engine_core, _CALL)
        try:
            async with asyncio.timeout(patience_s):  # control.answer_call, in the engine's process
                answers = await call("specdeck", command, json.dumps(payload))
        except TimeoutError:
            raise _stall_refusal(patience_s) from None
        return [json.loads(answer) for answer in answers]


class BeforePage:
    """Middleware that has something done before a metrics page is made; all else passes by it."""

    def __init__(self, app: Any, prepare: Callable[[], Awaitable[None]]) -> None:
        self._app = app
        self._prepare = prepare

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http" and scope["path"].rstrip("/").endswith("/metrics"):
            try:
                await self._prepare()
            except Exception:  # a page without it is better than none
                logger.exception("specdeck could not tell the cohorts on the metrics page")
        await self._app(scope, receive, send)


def find_unsteerable(engine_client: Any) -> Capability | None:
    """Why the engine cores behind this client cannot be asked for anything; None where they can."""
    version = _vllm_version() or None
    if is_too_old(version):
        reason = describe_too_old(version)
    elif not hasattr(getattr(engine_client, "engine_core", None), _CALL):
        reason = f"the engine client of vLLM {version or '(unknown)'} has no {_CALL}"
    else:
        return None
    return Capability("engine_client", False, reason, REMEDY)


def _vllm_version() -> str:
    return getattr(sys.modules.get("vllm"), "__version__", None) or ""


def _count_exact(config: Any) -> Callable[[], None] | None:
    """What counts a request under an exact name; None where there are no such names."""
    if not request_pins.exact_models(os.environ):
        return None
    from specdeck.engine.plugin import stats

    return stats.exact_requests(str(config.model_config.served_model_name))


def _first_error_or_answer(answers: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return next((answer for answer in answers if "error" in answer), answers[0])


def _raise_error(answer: Mapping[str, Any]) -> None:
    """Raises Refusal where an engine core tells an error."""
    if "error" in answer:
        error = answer["error"]
        raise Refusal(answer["status"], error["code"], error["message"], error.get("remedy"))


def _read_steps(answer: Mapping[str, Any]) -> list[Any]:
    """The steps that an engine core tells; raises Refusal where it tells an error."""
    _raise_error(answer)
    steps: list[Any] = answer["steps"]
    return steps


def _stall_refusal(patience_s: float) -> Refusal:
    return Refusal(503, "stalled", f"the engine core has not answered for {patience_s:.0f} s")


def _reply(answer: dict[str, Any], status: int) -> Any:
    # Not the framework's JSON: it makes an error of text that cannot be encoded.
    return _reply_text(json.dumps(answer), status)


def _reply_text(text: str, status: int = 200) -> Any:
    from starlette.responses import Response

    return Response(text, status, media_type="application/json")


def _parse_shape(asked: object) -> StepShape:
    try:
        return StepShape.from_json(asked)
    except WrongType as error:
        raise nonsense(str(error)) from None


def _parse_change(asked: object) -> Change:
    try:
        return Change.from_json(asked)
    except InvalidChange as error:
        raise nonsense(str(error)) from None


async def read_json(request: Any, *, patience_s: float = _BODY_S) -> Any:
    """What the body of Starlette's `request` says; raises Refusal on more than a change takes.

    An API server serves every client's requests in one loop: it neither buffers what somebody may
    send for ever, nor waits for it, nor reads numbers and depths that cost more than they say.
    """
    return parse_json(await _read_body(request, patience_s))


async def _read_body(request: Any, patience_s: float) -> bytes:
    from starlette.requests import ClientDisconnect

    length = request.headers.get("content-length", "0")
    if length.isdecimal() and int(length[:_LONGEST_NUMBER]) > MOST_BODY:
        raise _too_long()
    body = bytearray()
    try:
        async with asyncio.timeout(patience_s):
            async for chunk in request.stream():
                body += chunk
                if len(body) > MOST_BODY:
                    raise _too_long()
    except TimeoutError:
        raise nonsense(f"the body did not arrive within {patience_s:g} s") from None
    except ClientDisconnect:
        raise nonsense("the client went away") from None
    return bytes(body)


def _too_long() -> Exception:
    return nonsense(f"the body is longer than {MOST_BODY // 1024} KB")


def parse_json(body: bytes) -> Any:
    """What `body` says; raises Refusal where it is not JSON, or is beyond any sense.

    >>> parse_json(b'{"k": 3}')
    {'k': 3}
    >>> parse_json(b"[" * 10_000)
    Traceback (most recent call last):
    specdeck.engine.plugin.reply.Refusal: the body is not JSON
    """
    try:
        return json.loads(body, parse_int=_parse_whole, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        raise nonsense("the body is not JSON") from None


def _parse_whole(digits: str) -> int:
    if len(digits) > _LONGEST_NUMBER:
        raise ValueError(f"a number of {len(digits)} digits")
    return int(digits)


def _refuse_constant(name: str) -> NoReturn:
    """NaN and the infinities are Python's, not JSON's."""
    raise ValueError(f"{name} is not JSON")
