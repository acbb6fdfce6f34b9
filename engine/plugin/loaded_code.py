"""Where the Python packages lie that this process has loaded: in the engine core's, a worker's and
an API server's, those whose code makes an engine's answers.

Which of them count is chosen where they are read, in a process beside the engine's.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from importlib import util
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


def find_packages() -> dict[str, str]:
    """The file or folder of each package and module that is loaded and not Python's own."""
    found = {}
    for name, module in list(sys.modules.items()):
        if "." in name or name in sys.stdlib_module_names or not isinstance(module, ModuleType):
            continue
        # Not by attribute, as one that is loaded when it is first used would be loaded now.
        spec = object.__getattribute__(module, "__dict__").get("__spec__")
        # Of another name is an alias, and what the process was started with.
        if not isinstance(spec, ModuleSpec) or spec.name != name:
            continue
        if (place := _find_place(spec)) is not None:
            found[name] = place
    return found


def find_search_path() -> list[str]:
    """The folders that this process imports from."""
    return [os.path.abspath(folder) for folder in sys.path]


def find_named(given: Iterable[Any] | None) -> dict[str, str]:
    """The same of the packages of what vLLM was given by a name such as `house.rules:Upper`, or as
    a class or function, without importing them."""
    found = {}
    for name in {_name_package(one) for one in given or ()}:
        try:
            spec = util.find_spec(name) if name else None
        except (ImportError, ValueError):  # a module made in memory has no spec
            continue
        if (place := _find_place(spec)) is not None:
            found[name] = place
    return found


def _name_package(given: Any) -> str:
    name = given if isinstance(given, str) else str(getattr(given, "__module__", ""))
    return name.partition(":")[0].partition(".")[0]


def _find_place(found: ModuleSpec | None) -> str | None:
    if found is None:
        return None
    for folder in found.submodule_search_locations or ():
        return str(folder)
    return found.origin if found.has_location else None
