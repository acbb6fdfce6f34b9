"""The body of a request: the same for both arms but for the model's name and the pin."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from specdeck.engine.divergence.prompts import Prompt

PIN = "specdeck_k"
"""The plugin's key in vllm_xargs: at most so many tokens are drafted for the request."""

COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"

_UNPENALISED = {"repetition_penalty": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0}
"""vLLM chooses a token after penalties and tells its log-probability before them: a server's
default penalty would part what is said from the margin that judges it."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What is the same for every request of a check."""

    max_tokens: int = 128
    ignore_eos: bool = False
    candidates: int = 2
    """Log-probabilities asked for at each token."""
    priority: int = 0
    """vLLM's: above 0 is served later; only where the engine schedules by priority."""

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


def path(prompt: Prompt) -> str:
    """The route that answers it."""
    return CHAT if prompt.chat else COMPLETIONS


def body(
    prompt: Prompt, settings: Settings, *, model: str, pin: int | None = None, stream: bool = False
) -> dict[str, Any]:
    """A greedy request that asks for token ids and for the likeliest candidates at each.

    Without penalties, whatever the server's defaults are.

    >>> b = body(Prompt(1, 1, {"prompt": "a"}), Settings(), model="m", pin=0)
    >>> b["temperature"], b["logprobs"], b["vllm_xargs"]
    (0.0, 2, {'specdeck_k': 0})
    """
    wanted: dict[str, Any] = {
        "model": model,
        **prompt.body,
        "max_tokens": prompt.body.get("max_tokens", settings.max_tokens),
        "temperature": 0.0,
        **_UNPENALISED,
        "return_token_ids": True,
        "return_tokens_as_token_ids": True,
        **_logprobs(prompt, settings.candidates),
        **_pinned(pin),
    }
    if settings.ignore_eos:
        wanted["ignore_eos"] = True
    if settings.priority:
        wanted["priority"] = settings.priority
    if stream:
        wanted |= {"stream": True, "stream_options": {"include_usage": True}}
    return wanted


def forced(
    tokens: Sequence[int], settings: Settings, *, model: str, pin: int | None
) -> dict[str, Any]:
    """Feeds `tokens` through a model in one pass and asks what it thinks of each."""
    wanted: dict[str, Any] = {
        "model": model,
        "prompt": list(tokens),
        "max_tokens": 1,
        "temperature": 0.0,
        "prompt_logprobs": settings.candidates,
        **_pinned(pin),
    }
    if settings.priority:
        wanted["priority"] = settings.priority
    return wanted


def sampled(
    prompt: Prompt,
    *,
    model: str,
    pin: int | None,
    n: int,
    tokens: int,
    temperature: float,
    priority: int = 0,
) -> dict[str, Any]:
    """`n` short continuations of one prompt, drawn at `temperature`, each on its own."""
    return {
        "model": model,
        **prompt.body,
        "max_tokens": tokens,
        "temperature": temperature,
        "n": n,
        "ignore_eos": True,
        "return_token_ids": True,
        **({"priority": priority} if priority else {}),
        **_pinned(pin),
    }


def _logprobs(prompt: Prompt, candidates: int) -> Mapping[str, Any]:
    if prompt.chat:
        return {"logprobs": True, "top_logprobs": candidates}
    return {"logprobs": candidates}


def _pinned(pin: int | None) -> Mapping[str, Any]:
    return {} if pin is None else {"vllm_xargs": {PIN: pin}}
