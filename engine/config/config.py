"""A config that was read and found good, and what there is to say of how it was read."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from specdeck.engine.errors import Place
from specdeck.engine.protocol.methods import WITHOUT_MODEL, method_of

if TYPE_CHECKING:
    from specdeck.engine.config.schema import (
        Alerts,
        Attach,
        Deepen,
        Fingerprint,
        Orchestration,
        Sampling,
    )
    from specdeck.engine.config.vllm_args import Arguments


Keys = tuple[str, ...]
"""The way to a value: `("speculative_config", "method")`."""


def find_place(path: Path, lines: Mapping[Keys, int], keys: Keys) -> Place:
    """The place of `keys` by `lines`, or of the nearest key on the way to it."""
    known = keys
    while known and known not in lines:
        known = known[:-1]
    return Place(path, lines.get(known, 1), keys)


@dataclass(frozen=True, slots=True)
class Notice:
    """Something in the config that was read otherwise than it was written."""

    place: Place
    text: str


@dataclass(frozen=True, slots=True)
class Config:
    """What one file asks for: vLLM's arguments as given, and specdeck's own settings."""

    path: Path
    engine_args: Mapping[str, Any]
    """vLLM's own arguments in its current spelling, local model paths made absolute."""
    orchestration: Orchestration
    sampling: Sampling
    alerts: Alerts
    arguments: Arguments = field(repr=False, compare=False)
    """What vLLM accepts, for writing the command line."""
    exact_models: tuple[str, ...] = ()
    attach: Attach | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    host: str | None = None
    port: int | None = None
    deepen: Deepen | None = None
    fingerprint: Fingerprint | None = None
    """None leaves it to the engine: in every response."""
    notices: tuple[Notice, ...] = ()
    lines: Mapping[Keys, int] = field(default_factory=dict, repr=False, compare=False)
    """The line of each key as vLLM spells it."""

    def place(self, *keys: str) -> Place:
        """Where the value at `keys` stands, or the nearest key on the way to it."""
        return find_place(self.path, self.lines, keys)

    @property
    def model(self) -> str | None:
        """The target; None when the config only attaches."""
        return self.engine_args.get("model")

    @property
    def served_name(self) -> str | None:
        """The name that requests use: the first served name, or the model's."""
        names = self.engine_args.get("served_model_name")
        return names[0] if names else self.model

    @property
    def speculative(self) -> Mapping[str, Any] | None:
        """vLLM's speculative_config; None without speculation."""
        return self.engine_args.get("speculative_config")

    @property
    def arguments_digest(self) -> str:
        """Of the engine's arguments and vLLM's version: a measurement holds where it is the same.

        Host and port are none of it.
        """
        told = [dict(self.engine_args), dict(self.environment), self.arguments.vllm]
        text = json.dumps(told, sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def draft(self) -> str | None:
        """The draft model, head or weights; None when the method needs none of its own."""
        speculative = self.speculative
        if speculative is None or self.method in WITHOUT_MODEL:
            return None
        return speculative.get("model")

    @property
    def method(self) -> str | None:
        """vLLM's name of the method; None without speculation, or where vLLM decides itself."""
        return None if self.speculative is None else method_of(self.speculative)

    @property
    def k_max(self) -> int | None:
        """num_speculative_tokens; None when the draft model's own config decides."""
        return None if self.speculative is None else self.speculative.get("num_speculative_tokens")

    def reference(self) -> Config:
        """The same target with the same sampling and without speculation."""
        rest = {k: v for k, v in self.engine_args.items() if k != "speculative_config"}
        return replace(self, engine_args=MappingProxyType(rest))
