"""Inside the engine core's process: a command from the API server, and its answer."""

from __future__ import annotations

import os
import secrets
import time
from dataclasses import asdict
from typing import Any, Self

from specdeck.engine.plugin.autopilot import orchestration
from specdeck.engine.plugin.controller import Controller
from specdeck.engine.plugin.exact import exact_models
from specdeck.engine.plugin.fingerprint_board import Board
from specdeck.engine.plugin.fingerprint_core import identity
from specdeck.engine.plugin.hooks import CoreEngine
from specdeck.engine.plugin.refusal import Refusal, change_from


class Control:
    """The controller of one engine core and the engine it controls."""

    def __init__(
        self, engine: CoreEngine, controller: Controller, board: Board | None, instance: str
    ) -> None:
        self._engine = engine
        self._controller = controller
        self._board = board
        self._instance = instance
        if engine.recorder is not None:
            engine.recorder.before_step = controller.tick
            engine.recorder.after_step = controller.seen
            engine.recorder.failed = controller.blinded

    @classmethod
    def over(cls, core: Any) -> Self:
        """Takes hold of `core`, a vLLM EngineCore; called once, before traffic."""
        engine = CoreEngine(core)
        instance = secrets.token_hex(8)
        found, board = identity(core, engine.build, instance)
        controller = Controller(
            engine,
            found,
            instance=instance,
            orchestration=orchestration(os.environ),
            exact=exact_models(os.environ),
            clock=time.monotonic,
            wall=time.time,
        )
        return cls(engine, controller, board, instance)

    def answer(self, command: str, payload: Any) -> dict[str, Any]:
        """The reply as JSON; a refusal carries its HTTP `status` beside the `error`."""
        try:
            return self._reply(command, payload)
        except Refusal as refusal:
            return {**refusal.as_json(), "status": refusal.status}

    def _reply(self, command: str, payload: Any) -> dict[str, Any]:
        if command == "state":
            return self._controller.state().as_json()
        if command == "tuning":
            return self._controller.tuning().as_json()
        if command == "steps":
            return {"steps": self._engine.steps(int(payload))}
        if command == "facts":
            return {**self._controller.facts(), "instance": self._instance}
        if command == "board":
            return {"path": self._board.path if self._board else None, "instance": self._instance}
        if command == "change":
            if time.time() > payload["until"]:
                # Whoever asked has been told that there was no answer.
                raise Refusal(503, "late", "the engine core got to it too late; nothing changed")
            return asdict(self._controller.change(change_from(payload["change"])))
        raise Refusal(400, "invalid", f"unknown command {command!r}")
