"""A config together with what it would run on, as the known-bad table asks about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from specdeck.engine.config.config import Config
from specdeck.engine.launch.command import SCHEDULE
from specdeck.engine.launch.machine import BuildKind

_TRUE = ("1", "true")


@dataclass(frozen=True, slots=True)
class Situation:
    """A config, and what it would run on."""

    config: Config
    build: BuildKind
    environment: Mapping[str, str]
    gpus: int = 0
    ray: bool = True

    def arg(self, name: str, default: Any = None) -> Any:
        """An engine argument."""
        return self.config.engine_args.get(name, default)

    def spec(self, name: str, default: Any = None) -> Any:
        """A key of speculative_config; `default` without speculation too."""
        return (self.config.speculative or {}).get(name, default)

    def is_on(self, variable: str) -> bool:
        """Whether an environment variable says yes."""
        return self.environment.get(variable, "").strip().lower() in _TRUE

    @property
    def method(self) -> str | None:
        """The speculative method; None without speculation."""
        return self.config.method

    @property
    def has_schedule(self) -> bool:
        """Whether the config has a schedule of k."""
        return SCHEDULE in (self.config.speculative or {})

    @property
    def captures_graphs(self) -> bool:
        """Whether CUDA graphs would be captured."""
        return self.build != "cpu" and self.gpus > 0 and not self.arg("enforce_eager", False)

    @property
    def uses_v1_runner(self) -> bool:
        """Whether the V1 model runner would be used, as far as the config tells."""
        told = self.environment.get("VLLM_USE_V2_MODEL_RUNNER")
        without = self.method in ("suffix", "custom_class", "medusa")
        return told == "0" or without or bool(self.spec("use_heterogeneous_vocab"))
