"""Requests under the config's `exact_models` run target-only on the same engine.

The API server's process knows the name that a request asks for and pins it to k = 0
(plugin.pins); the engine core obeys the pin and counts such traffic apart. A request
under an exact name that asks for another k of its own is refused: the name is a promise.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Collection, Mapping
from importlib import import_module
from typing import Any

from specdeck.engine.control.protocol import EXACT_VARIABLE
from specdeck.engine.plugin.pins import EXACT, KEY

_BASES = (
    ("vllm.entrypoints.serve.engine.serving", "BaseServing"),
    ("vllm.entrypoints.serve.engine.serving", "OpenAIServing"),
    ("vllm.entrypoints.openai.engine.serving", "OpenAIServing"),
)
"""Where vLLM checks a request's model name, the newer places first."""

_ENTRIES = (
    ("vllm.entrypoints.openai.completion.serving", "OpenAIServingCompletion", "create_completion"),
    ("vllm.entrypoints.openai.chat_completion.serving", "OpenAIServingChat",
     "create_chat_completion"),
    ("vllm.entrypoints.openai.responses.serving", "OpenAIServingResponses", "create_responses"),
)  # fmt: skip
"""Where a request comes in: earlier than the check, so that its fingerprint says k0 as well."""

_CHECK = "_check_model"


def exact_models(environment: Mapping[str, str]) -> tuple[str, ...]:
    """The exact names as the launcher handed them over.

    >>> exact_models({"SPECDECK_EXACT_MODELS": '["tools-exact"]'})
    ('tools-exact',)
    >>> exact_models({})
    ()
    """
    try:
        found = json.loads(environment.get(EXACT_VARIABLE) or "[]")
    except ValueError:
        return ()
    return tuple(map(str, found)) if isinstance(found, list) else ()


def marked(request: Any, names: Collection[str], default: str | None) -> str | None:
    """Pins `request` if it asks for an exact name; why it is refused, otherwise None.

    `default` is the name that a request without one means.

    >>> from types import SimpleNamespace
    >>> request = SimpleNamespace(model="exact", vllm_xargs=None)
    >>> marked(request, {"exact"}, None), request.vllm_xargs
    (None, {'specdeck_k': 0, 'specdeck_exact': 1})
    """
    given = dict(getattr(request, "vllm_xargs", None) or {})
    marks = given.pop(EXACT, None) is not None  # nobody else may say so
    name = getattr(request, "model", None) or default
    if name in names:
        asked = given.get(KEY, 0)
        if asked != 0 or isinstance(asked, bool):
            return f"{name} is answered target-only: {KEY} can only be 0 there, not {asked!r}"
        given |= {KEY: 0, EXACT: 1}
        marks = True
    if marks:
        request.vllm_xargs = given
    return None


def install(names: Collection[str]) -> str | None:
    """Has this process mark requests under `names`; why not, where it cannot be."""
    for module, name in _BASES:
        try:
            _check(getattr(import_module(module), name), names)
        except (ImportError, AttributeError):
            continue
        break
    else:
        return "this vLLM checks model names where specdeck does not know it"
    for module, name, method in _ENTRIES:
        try:
            _enter(getattr(import_module(module), name), method, names)
        except (ImportError, AttributeError):
            continue  # the check of the name marks it as well, only later
    return None


def _check(serving: type[Any], names: Collection[str]) -> None:
    """Marks a request where its model's name is looked at: every endpoint does that."""
    check = getattr(serving, _CHECK)

    @functools.wraps(check)
    async def checked(this: Any, request: Any, *args: Any, **kwargs: Any) -> Any:
        error = await check(this, request, *args, **kwargs)
        if error is not None or not hasattr(request, "vllm_xargs"):
            return error
        reason = marked(request, names, _default(this))
        return None if reason is None else this.create_error_response(reason)

    setattr(serving, _CHECK, checked)


def _enter(serving: type[Any], method: str, names: Collection[str]) -> None:
    answer = getattr(serving, method)

    @functools.wraps(answer)
    async def answered(this: Any, request: Any, *args: Any, **kwargs: Any) -> Any:
        marked(request, names, _default(this))  # a refusal is the check's to tell
        return await answer(this, request, *args, **kwargs)

    setattr(serving, method, answered)


def _default(serving: Any) -> str | None:
    """The first served name."""
    paths = getattr(getattr(serving, "models", None), "base_model_paths", None)
    return str(paths[0].name) if paths else None
