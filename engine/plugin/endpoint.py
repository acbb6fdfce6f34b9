"""vLLM's endpoint plugin: the routes under /v1/specdeck/, in every API server process."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from specdeck.engine.plugin import request_pins, responses
from specdeck.engine.plugin.admin_token import ensure_token_file, is_accepted
from specdeck.engine.plugin.capabilities import of_no_token, of_several_ranks, withhold
from specdeck.engine.plugin.fingerprint import Reader, system_fingerprint
from specdeck.engine.plugin.reply import Refusal, inability, nonsense
from specdeck.engine.plugin.request_body import read_json
from specdeck.engine.plugin.shared_look import SharedLook
from specdeck.engine.plugin.step_mirror import StepMirror
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

_FIRST_PATIENCE_S = 60.0
"""At the first contact every worker is asked as well."""


class SpecdeckEndpoint:
    """The `vllm.endpoint_plugins` entry point."""

    name = "specdeck"
    required_tasks = ("generate",)

    def __init__(self) -> None:
        self._client: Any = None
        self._several = False
        """Whether there are several data-parallel ranks, of which one answers for all."""
        self._withheld: Capability | None = None
        """Why nothing can be changed; None where it can."""
        self._unsteerable: Capability | None = None
        """Why the engine core cannot be asked, so that this only watches; None where it can."""
        self._system_fingerprint: str | None = None
        self._unstamped: str | None = "not asked yet"
        """Why responses do not carry the live fingerprint; None when they do."""
        self._inexact: str | None = None
        """Why requests under exact names are not pinned; None when they are."""
        self._mirror = StepMirror(self._fetch_steps)
        self._looks = {
            "state": SharedLook(partial(self._take_look, "state")),
            "tuning": SharedLook(partial(self._take_look, "tuning"), gap_s=TUNING_GAP_S),
            "facts": SharedLook(partial(self._take_look, "facts")),
            "steps": SharedLook(self._mirror_steps),
        }
        """What any client may ask for as often as it likes."""

    def attach_router(self, app: Any) -> None:
        """Adds the routes; vLLM calls it once while it builds the application."""
        from fastapi import APIRouter, Request

        async def control(request: Request) -> Any:
            return await self._control(request)

        # FastAPI resolves annotations in this module's globals, where Request is not.
        control.__annotations__["request"] = Request
        router = APIRouter(prefix=PREFIX)
        router.add_api_route("/state", self._state, methods=["GET"])
        router.add_api_route("/steps", self._steps, methods=["GET"])
        router.add_api_route("/facts", self._facts, methods=["GET"])
        router.add_api_route("/tuning", self._tuning, methods=["GET"])
        router.add_api_route("/control", control, methods=["PUT"])
        app.include_router(router)

    async def init_state(self, engine_client: Any, state: Any, args: Any) -> None:
        """Takes hold of the engine before the first request can be scheduled."""
        self._client = engine_client
        parallel = getattr(getattr(engine_client, "vllm_config", None), "parallel_config", None)
        self._several = getattr(parallel, "data_parallel_size", 1) > 1
        self._withheld = of_several_ranks() if self._several else None
        self._unsteerable = find_unsteerable(engine_client)
        if self._unsteerable is not None:
            logger.warning("specdeck leaves the engine alone: %s", self._unsteerable.reason)
            self._keep_exact(request_pins.exact_models(os.environ))
            return
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
        self._system_fingerprint = system_fingerprint(config)
        k_max = getattr(config.speculative_config, "num_speculative_tokens", 0) or 0
        request_pins.guard(engine_client, k_max, _count_exact(config))
        try:
            state_now = await self._answer("state", None, patience_s=_FIRST_PATIENCE_S)
        except Refusal as refusal:
            logger.warning("specdeck cannot reach the engine core: %s", refusal)
            return
        if "error" in state_now:
            logger.warning("specdeck did not start: %s", state_now["error"]["message"])
            return
        if self._several:
            await self._steady(state_now)
        self._unstamped = await self._stamp(state_now["instance"])

    async def _steady(self, state_now: dict[str, Any]) -> None:
        """Ends what the config has every data-parallel rank begin on its own."""
        able = {one["name"]: one["available"] for one in state_now["capabilities"]}
        if not able.get("live_k"):
            return  # no rank begins anything
        reason = of_several_ranks().reason
        logger.warning("specdeck leaves k alone: %s", reason)
        change = {
            "parameters": {"breaker.automatic": "never"},
            "who": "specdeck",
            "reason": reason,
            "origin": "config",
        }
        if state_now["policy"] != "fixed":
            change["policy"] = "fixed"
        payload = {"change": change, "until": time.time() + _FIRST_PATIENCE_S}
        answer = await self._answer("change", payload, patience_s=_FIRST_PATIENCE_S)
        if "error" in answer:
            logger.error("a rank chooses its own k: %s", answer["error"]["message"])

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
        return await self._show("tuning", exact_reason=self._inexact)

    async def _facts(self) -> Any:
        return await self._show(
            "facts",
            system_fingerprint=self._system_fingerprint,
            responses={"stamped": self._unstamped is None, "reason": self._unstamped},
        )

    async def _steps(self, since: int = 0) -> Any:
        try:
            await self._look("steps")
        except Refusal as refusal:
            return _reply(refusal.as_json(), refusal.status)
        return _reply_text(self._mirror.body(since))

    async def _show(self, command: str, **known_here: Any) -> Any:
        """What the engine core says of itself, with what this process knows beside it."""
        try:
            return self._respond({**await self._look(command), **known_here})
        except Refusal as refusal:
            return _reply(refusal.as_json(), refusal.status)

    async def _look(self, command: str) -> dict[str, Any]:
        """A look at the engine core, shared with whoever asks for the same."""
        try:
            async with asyncio.timeout(_PATIENCE_S):
                answer = await self._looks[command].take()
        except TimeoutError:
            raise _stalled(_PATIENCE_S) from None
        if isinstance(answer, Refusal):
            raise answer
        return answer

    async def _take_look(self, command: str) -> dict[str, Any] | Refusal:
        try:
            return await self._answer(command, None)
        except Refusal as refusal:
            return refusal

    async def _mirror_steps(self) -> dict[str, Any] | Refusal:
        try:
            await self._mirror.catch_up()
        except Refusal as refusal:
            return refusal
        return {}

    async def _fetch_steps(self, since: int) -> list[Any]:
        answer = await self._answer("steps", since)
        if "error" in answer:
            error = answer["error"]
            raise Refusal(answer["status"], error["code"], error["message"], error.get("remedy"))
        steps: list[Any] = answer["steps"]
        return steps

    async def _control(self, request: Any) -> Any:
        try:
            # Before a byte of the body: nobody else's may cost anything.
            if not is_accepted(request.headers.get(TOKEN_HEADER)):
                raise self._refuse_token()
            change = _parse_change(await read_json(request))
            if self._withheld is not None:
                raise inability(self._withheld)
            # Nothing may change after the client was told that there was no answer.
            until = time.time() + _PATIENCE_S - _ANSWERING_S
            payload = {"change": change.as_json(), "until": until}
            return self._respond(await self._answer("change", payload))
        except Refusal as refusal:
            return _reply(refusal.as_json(), refusal.status)

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
        if self._withheld is not None and "capabilities" in answer:
            answer["capabilities"] = withhold(answer["capabilities"], self._withheld)
        return _reply(answer, answer.pop("status", 200))

    async def _answer(
        self, command: str, payload: Any, *, patience_s: float = _PATIENCE_S
    ) -> dict[str, Any]:
        if self._unsteerable is not None:
            raise inability(self._unsteerable)
        # Every data-parallel engine is asked, and the first one speaks for all that agree.
        call = getattr(self._client.engine_core, _CALL)
        try:
            async with asyncio.timeout(patience_s):  # control.answer_call, in the engine's process
                answers = await call("specdeck", command, json.dumps(payload))
        except TimeoutError:
            raise _stalled(patience_s) from None
        found: list[dict[str, Any]] = [json.loads(answer) for answer in answers]
        return next((answer for answer in found if "error" in answer), found[0])


def find_unsteerable(engine_client: Any) -> Capability | None:
    """Why the engine cores behind this client cannot be asked for anything; None where they can."""
    version = getattr(sys.modules.get("vllm"), "__version__", None)
    if is_too_old(version):
        reason = describe_too_old(version)
    elif not hasattr(getattr(engine_client, "engine_core", None), _CALL):
        reason = f"the engine client of vLLM {version or '(unknown)'} has no {_CALL}"
    else:
        return None
    return Capability("engine_client", False, reason, REMEDY)


def _count_exact(config: Any) -> Callable[[], None] | None:
    """What counts a request under an exact name; None where there are no such names."""
    if not request_pins.exact_models(os.environ):
        return None
    from specdeck.engine.plugin import stats

    return stats.exact_requests(str(config.model_config.served_model_name))


def _stalled(patience_s: float) -> Refusal:
    return Refusal(503, "stalled", f"the engine core has not answered for {patience_s:.0f} s")


def _reply(answer: dict[str, Any], status: int) -> Any:
    # Not the framework's JSON: it makes an error of text that cannot be encoded.
    return _reply_text(json.dumps(answer), status)


def _reply_text(text: str, status: int = 200) -> Any:
    from starlette.responses import Response

    return Response(text, status, media_type="application/json")


def _parse_change(asked: object) -> Change:
    try:
        return Change.from_json(asked)
    except InvalidChange as error:
        raise nonsense(str(error)) from None
