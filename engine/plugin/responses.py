"""`system_fingerprint` in responses: vLLM's own value, and the serving path's name behind it.

vLLM's serving classes compute theirs once and read it as an attribute when they finish a
response. The attribute becomes a property, so that completions, chat and streams of every
API server process carry the path as it is at that moment.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from specdeck.engine.control.protocol import IN_RESPONSES_VARIABLE

_ATTRIBUTE = "system_fingerprint"
_OFF = frozenset({"0", "false", "no", "off"})


class Stamp:
    """What this process puts behind vLLM's own fingerprint; nothing until it is told."""

    def __init__(self) -> None:
        self.name: Callable[[], str | None] = lambda: None

    def stamped(self, own: str | None) -> str | None:
        """vLLM's own value and the path's name.

        An operator who switched vLLM's off gets none of either.
        """
        if own is None:
            return None
        name = self.name()
        return own if name is None else f"{own}-{name}"


STAMP = Stamp()
"""One for the process: vLLM makes its serving objects itself."""


def wanted(environment: Mapping[str, str]) -> bool:
    """Whether responses are to carry the path's name.

    >>> wanted({}), wanted({"SPECDECK_FINGERPRINT_IN_RESPONSES": "0"})
    (True, False)
    """
    return environment.get(IN_RESPONSES_VARIABLE, "1").strip().lower() not in _OFF


def install(stamp: Stamp = STAMP) -> str | None:
    """Makes vLLM's attribute a property in this process; why not, where it cannot be."""
    try:
        from vllm.entrypoints.generate.base.serving import GenerateBaseServing
    except ImportError:
        return "this vLLM's serving classes have no common base that specdeck knows"
    carry(GenerateBaseServing, stamp)
    return None


def carry(serving: type[Any], stamp: Stamp) -> None:
    """Gives objects of `serving` the property; what they set stays vLLM's own value."""

    def read(this: Any) -> str | None:
        return stamp.stamped(this.__dict__.get(_ATTRIBUTE))

    def keep(this: Any, own: str | None) -> None:
        this.__dict__[_ATTRIBUTE] = own

    setattr(serving, _ATTRIBUTE, property(read, keep))
