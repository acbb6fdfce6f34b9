"""`system_fingerprint` in responses: vLLM's own value, and the serving path's name behind it.

vLLM's serving classes compute theirs once and read it as an attribute when they finish a
response. The attribute becomes a property, so that completions, chat and streams of every
API server process carry the path as it is at that moment. A request that is pinned to a k
of its own takes another path than the engine's, and its response says so: `…+k0`.
"""

from __future__ import annotations

import functools
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from contextvars import ContextVar
from importlib import import_module
from inspect import isasyncgen
from typing import Any

from specdeck.engine.plugin.request_pins import COMPLETIONS, KEY
from specdeck.engine.protocol.messages import IN_RESPONSES_VARIABLE

_ATTRIBUTE = "system_fingerprint"
_pin: ContextVar[int | None] = ContextVar("specdeck_pin", default=None)
"""The k of the request that is being answered; None for one that follows the engine."""

_OFF = frozenset({"0", "false", "no", "off"})


class Stamp:
    """What this process puts behind vLLM's own fingerprint; nothing until it is told."""

    def __init__(self) -> None:
        self.name: Callable[[], str | None] = lambda: None
        self._made: tuple[str, str, str] = ("", "", "")
        """vLLM's own value, the path's name, and both together as they were last wanted."""

    def stamp(self, own: str | None) -> str | None:
        """vLLM's own value and the path's name.

        An operator who switched vLLM's off gets none of either.
        """
        if own is None:
            return None
        name = self.name()
        if name is None:
            return own
        known, of, both = self._made
        if name != of or own != known:
            both = f"{own}-{name}"
            self._made = own, name, both
        pin = _pin.get()
        return both if pin is None else f"{both}+k{pin}"


STAMP = Stamp()
"""One for the process: vLLM makes its serving objects itself."""


def is_enabled(environment: Mapping[str, str]) -> bool:
    """Whether responses are to carry the path's name.

    >>> is_enabled({}), is_enabled({"SPECDECK_FINGERPRINT_IN_RESPONSES": "0"})
    (True, False)
    """
    return environment.get(IN_RESPONSES_VARIABLE, "1").strip().lower() not in _OFF


def install(stamp: Stamp = STAMP) -> str | None:
    """Makes vLLM's attribute a property in this process; why not, where it cannot be."""
    for module, name, method in COMPLETIONS:
        try:
            serving = getattr(import_module(module), name)
            follow(serving, method)
        except (ImportError, AttributeError):
            return f"this vLLM has no {name}.{method} where specdeck knows it"
        # Not their common base: it lies elsewhere in each version.
        carry(serving, stamp)
    return None


def carry(serving: type[Any], stamp: Stamp) -> None:
    """Gives objects of `serving` the property; what they set stays vLLM's own value."""

    stamp_name = stamp.stamp

    def read(this: Any) -> str | None:
        return stamp_name(this.__dict__.get(_ATTRIBUTE))

    def keep(this: Any, own: str | None) -> None:
        this.__dict__[_ATTRIBUTE] = own

    setattr(serving, _ATTRIBUTE, property(read, keep))


def follow(serving: type[Any], method: str) -> None:
    """Has `method(request, …)` of `serving` know which request it answers."""
    answer = getattr(serving, method)

    @functools.wraps(answer)
    async def answer_with_pin(this: Any, request: Any, *args: Any, **kwargs: Any) -> Any:
        pin = (getattr(request, "vllm_xargs", None) or {}).get(KEY)
        _pin.set(pin)
        result: Any = await answer(this, request, *args, **kwargs)
        # A stream is read in another task than the one that made it.
        streamed = pin is not None and isasyncgen(result)
        return _within(pin, result) if streamed else result

    setattr(serving, method, answer_with_pin)


async def _within(pin: Any, chunks: AsyncGenerator[Any, None]) -> AsyncGenerator[Any, None]:
    _pin.set(pin)
    async with aclosing(chunks):
        async for chunk in chunks:
            yield chunk
