"""Where the Python packages lie that this process has loaded: in the engine core's, those whose
code makes its answers.

Which of them count is chosen where they are read, in a process beside the engine's.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import util
from importlib.machinery import ModuleSpec
from typing import Any


def find_packages() -> dict[str, str]:
    """The file or folder of each package and module that is loaded and not Python's own."""
    found = {}
    for name, module in list(sys.modules.items()):
        if "." in name or name in sys.stdlib_module_names:
            continue
        if (place := _find_place(getattr(module, "__spec__", None))) is not None:
            found[name] = place
    return found


def find_processors(config: Any) -> dict[str, str]:
    """The same of the packages of logits processors, which are given by name or as classes.

    `config` is a VllmConfig.
    """
    found = {}
    for name in set(_list_processors(config)):
        try:
            spec = util.find_spec(name) if name else None
        except (ImportError, ValueError):  # a module made in memory has no spec
            continue
        if (place := _find_place(spec)) is not None:
            found[name] = place
    return found


def _list_processors(config: Any) -> Iterator[str]:
    for one in getattr(config.model_config, "logits_processors", None) or ():
        name = one if isinstance(one, str) else str(getattr(one, "__module__", ""))
        yield name.partition(":")[0].partition(".")[0]


def _find_place(found: ModuleSpec | None) -> str | None:
    if found is None:
        return None
    for folder in found.submodule_search_locations or ():
        return str(folder)
    return found.origin if found.has_location else None
