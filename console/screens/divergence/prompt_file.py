"""A file of prompts that somebody names, read without holding the console up."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from specdeck.engine.divergence.prompts import (
    BUNDLED,
    Prompt,
    PromptSet,
    find_prompt_aside,
    load_prompts,
    load_prompts_aside,
)
from specdeck.engine.errors import ConfigError

BROWSED: Final = 20_000
"""The first prompts of a file: those that can be gone through. A check takes as many as its options
say."""
MOST_S: Final = 10.0
_AT_ONCE: Final = 200_000
"""Bytes of a file that takes some milliseconds."""


async def load_aside(
    source: str,
    limit: int = BROWSED,
    *,
    most_s: float = MOST_S,
    clock: Callable[[], float] = time.monotonic,
) -> PromptSet:
    """As `load_prompts`, in a thread where the file is large; for `most_s` seconds at most.

    Raises ConfigError also for a file that takes longer.
    """
    if source in BUNDLED or not is_large(source):
        return load_prompts(source, limit)
    ends = clock() + most_s

    def proceed() -> None:
        if clock() > ends:
            raise ConfigError(
                f"{source}: too large to be read here: {most_s:g} s were not enough",
                remedy="give `specdeck check --prompts` the file, or a part of it here",
            )

    return await load_prompts_aside(source, limit, proceed=proceed)


async def find_aside(prompts: PromptSet, number: int) -> Prompt | None:
    """As `PromptSet.find`, in a thread where the file is large; a cancellation ends that.

    Raises ConfigError.
    """
    if not is_large(prompts.path):
        return prompts.find(number)
    return await find_prompt_aside(prompts, number)


def is_large(source: str | Path) -> bool:
    """Whether a file takes longer to read than a key may wait."""
    return _size(source) > _AT_ONCE


def _size(source: str | Path) -> int:
    """Bytes of a file; 0 of what is none, which is refused unread."""
    try:
        return Path(source).stat().st_size
    except (OSError, ValueError):
        return 0
