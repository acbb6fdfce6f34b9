"""Which Python packages' code makes the engine's answers: vLLM's own, and what is put into it.

Told by the engine core's process, where they are loaded; read in the one that reads the facts.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import metadata, util
from pathlib import Path
from typing import Any

_GROUPS = "vllm."
"""What the groups of entry points begin with by which vLLM finds the code of others."""
_AT_START = ("sitecustomize", "usercustomize")
"""Modules that Python imports by itself: what they patch in vLLM is in no file of vLLM's."""
_TOLD_APART = frozenset({"specdeck", "builtins", "__main__"})


def find_code(config: Any) -> dict[str, str]:
    """The file or folder of each package, by its name; `config` is a VllmConfig."""
    found = {}
    for name in sorted({"vllm", *_list_started(), *_list_plugins(), *_list_processors(config)}):
        if (place := _find_place(name)) is not None:
            found[name] = str(place)
    return found


def _list_started() -> Iterator[str]:
    yield from (name for name in _AT_START if name in sys.modules)


def _list_plugins() -> Iterator[str]:
    for distribution in metadata.distributions():
        for point in distribution.entry_points:
            package = point.module.partition(".")[0]
            # VLLM_PLUGINS may leave it out.
            if point.group.startswith(_GROUPS) and package in sys.modules:
                yield package


def _list_processors(config: Any) -> Iterator[str]:
    """Packages of logits processors, which are given by name or as classes."""
    for one in getattr(config.model_config, "logits_processors", None) or ():
        name = one if isinstance(one, str) else str(getattr(one, "__module__", ""))
        yield name.partition(":")[0].partition(".")[0]


def _find_place(package: str) -> Path | None:
    if not package or package in _TOLD_APART:
        return None
    try:
        found = util.find_spec(package)
    except (ImportError, ValueError):  # a module without a spec, such as one made in memory
        return None
    if found is None:
        return None
    for folder in found.submodule_search_locations or ():
        return Path(folder)
    return Path(found.origin) if found.has_location and found.origin else None
