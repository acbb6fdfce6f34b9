"""The tiers of k by batch size that specdeck has an engine started with, for graphs alone.

The launcher names every k once, so that vLLM captures CUDA graphs for each: one request
would run at k = 0, two at k = 1. No scheduler may go by them, whether or not the plugin
takes hold of the engine later, so they are taken from it as it is made. The configuration
keeps them, since the workers capture by it.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping
from typing import Any

from specdeck.engine.protocol.messages import TIERS_VARIABLE

_WRAPPED = "_specdeck_withdraws_tiers"


def withdraw(scheduler: type[Any], environment: Mapping[str, str] = os.environ) -> None:
    """Has every scheduler of this class, or one made of it, come without specdeck's tiers.

    It then drafts k_max tokens, as vLLM does without a schedule. An operator's own schedule
    is left alone. Where EngineCore is made in a process of its own, vLLM loads plugins when
    its constructor is under way already; the scheduler is made after that.
    """
    if hasattr(scheduler, _WRAPPED):
        return
    make = scheduler.__init__

    @functools.wraps(make)
    def make_without_tiers(self: Any, *args: Any, **kwargs: Any) -> None:
        make(self, *args, **kwargs)
        if TIERS_VARIABLE in environment and getattr(self, "dynamic_sd_lookup", None) is not None:
            self.dynamic_sd_lookup = None

    scheduler.__init__ = make_without_tiers
    setattr(scheduler, _WRAPPED, True)
