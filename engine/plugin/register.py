"""vLLM's general plugin: adds specdeck's methods to the engine core and the workers.

vLLM runs this in every one of its processes, several times in some; nothing changes for
an engine until the endpoint plugin first calls the engine core.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import Any

logger = logging.getLogger("vllm.specdeck")

_CONTROL = "_specdeck_control"


def register() -> None:
    """The `vllm.general_plugins` entry point; safe to call again.

    A plugin that fails must not keep an engine from starting: the console asks whether
    the plugin answers and names what is missing.
    """
    try:
        from vllm.v1.engine.core import EngineCore
        from vllm.v1.worker.worker_base import WorkerBase

        EngineCore.specdeck = _on_core
        WorkerBase.specdeck_worker = _on_worker
    except Exception:
        logger.exception("specdeck could not start; the engine runs without it")


def _on_core(core: Any, command: str, payload: str) -> str:
    """The engine core's utility method: JSON in, JSON out, on its main thread.

    A refusal is a value, and so is a failure: an exception here would keep the engine from
    starting, and later fail nothing but log a traceback for each look at it.
    """
    try:
        from specdeck.engine.plugin.core import Control

        control = getattr(core, _CONTROL, None)
        if control is None:
            control = _take_hold(core, Control.over)
        if isinstance(control, str):
            raise RuntimeError(control)
        return json.dumps(control.answer(command, json.loads(payload)))
    except Exception as error:
        logger.exception("specdeck failed at %s; the engine continues", command)
        message = f"specdeck failed in the engine: {type(error).__name__}: {error}"
        return json.dumps({"error": {"code": "failed", "message": message}, "status": 500})


def _take_hold(core: Any, over: Callable[[Any], Any]) -> Any:
    """The control over `core`; tried once, since each try would wrap the scheduler again."""
    setattr(core, _CONTROL, "it could not start; the engine's log says why")
    control = over(core)
    setattr(core, _CONTROL, control)
    return control


def _on_worker(worker: Any, command: str, *args: Any) -> Any:
    """The worker's method for `collective_rpc`."""
    from specdeck.engine.plugin import drafters

    if command == "install":
        return drafters.install(worker)
    if command == "facts":
        from specdeck.engine.plugin import fingerprint

        return fingerprint.worker_facts(worker)
    return drafters.skip(worker, *args)
