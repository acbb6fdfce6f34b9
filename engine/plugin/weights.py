"""Weights that were changed in a running engine, where their files say nothing of them any more.

vLLM takes new weights of the target or of the draft through calls to its workers, and lets
whoever made them name a version. What was read of the files at the start then holds no
longer, so the path must have another name: the version's, or where none was given one that
no other engine shares.
"""

from __future__ import annotations

import functools
import secrets
from collections.abc import Callable
from typing import Any

from specdeck.engine.plugin.guards import DisableOnError

_HARMLESS = frozenset(
    {
        "init_weight_transfer_engine",
        "shutdown_weight_transfer_engine",
        "compute_weight_checksums",
        "supports_draft_weight_updates",
    }
)
"""vLLM's own calls with weights in their names that leave them as they are."""


def moves_weights(method: object) -> bool:
    """Whether a call of this method of the workers, or function, may change weights.

    A worker's extension has names of its own, so it goes by the word in them.

    >>> moves_weights("start_draft_weight_update"), moves_weights("init_weight_transfer_engine")
    (True, False)
    >>> moves_weights("load_model"), moves_weights("list_loras")
    (True, False)
    """
    name = method if isinstance(method, str) else str(getattr(method, "__name__", ""))
    return name == "load_model" or ("weight" in name and name not in _HARMLESS)


class WeightWatch:
    """What was done to the weights of one engine core since the plugin took hold of it."""

    def __init__(self, core: Any, on_change: Callable[[], None]) -> None:
        """`on_change` is called after whatever may have changed them."""
        self._core = core
        self._on_change = on_change
        self._guard = DisableOnError("following weights")
        self._updates = 0
        self._version: str | None = None
        """The version that was set since the last update."""
        self._mark = secrets.token_hex(8)
        self._wrap("collective_rpc", self._update)
        self._wrap("set_weight_version", self._name)

    def facts(self) -> dict[str, Any] | None:
        """What the weights are known by; None as long as they are those of the files."""
        if self._version is not None:
            return {"version": self._version}
        return {"updates": self._updates, "engine": self._mark} if self._updates else None

    def _wrap(self, name: str, learn: Callable[..., None]) -> None:
        original = getattr(self._core, name, None)
        if original is None:
            return

        @functools.wraps(original)
        def call_and_learn(*args: Any, **kwargs: Any) -> Any:
            try:
                return original(*args, **kwargs)
            finally:  # a call that fails may have done half of it
                self._guard(learn, *args, *kwargs.values())

        setattr(self._core, name, call_and_learn)

    def _update(self, method: object, *_: Any) -> None:
        if moves_weights(method):
            self._updates += 1
            self._version = None
            self._on_change()

    def _name(self, version: object, *_: Any) -> None:
        self._version = str(version)
        self._on_change()
