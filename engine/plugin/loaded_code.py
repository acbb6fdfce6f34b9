"""Where the Python code lies that this process has loaded: in the engine core's, a worker's and
an API server's, those whose code makes an engine's answers.

Which of it counts is chosen where it is read, in a process beside the engine's.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Iterable, Mapping
from contextlib import suppress
from importlib import util
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any, TypeGuard

_PROGRAM = "__main__"
_PROGRAMS = (_PROGRAM, "__mp_main__")
"""What the process was started with, and the same as multiprocessing loads it once more."""

_NOT_FOUND = (ImportError, ValueError, KeyError, AttributeError, TypeError)
"""Where Python looks for a module: one that was made in memory has no spec, for one."""


def find_packages(loaded: Mapping[Any, object]) -> dict[str, str]:
    """The file or folder of each package and module of `loaded` that is not Python's own.

    `loaded` is a copy of `sys.modules`, which other threads add to.

    Of what lies in a package's folder that folder alone; of a package without a folder of its own,
    as one is that several folders are a part of, each of its modules. A program that was started
    by its file is `__main__`.
    """
    python, found, folders = _list_stdlib(), dict[str, str](), dict[str, str]()
    package = ""  # the outermost that is being gone through
    modules = {name: module for name, module in loaded.items() if _is_text(name)}
    # A package before its modules, and before what of it is run as a program.
    programs = [name for name in _PROGRAMS if name in modules]
    for name in (*sorted(modules.keys() - programs), *programs):
        module, own, place = modules[name], name, None
        known = _read_module(module)
        # One that is loaded when it is first used would be by an attribute.
        if isinstance(module_spec := known.get("__spec__"), ModuleSpec):
            origin = module_spec.origin
            # So do nearly all, of some thousands.
            if package and _is_text(origin) and _lies_in(folders, package, name, origin):
                continue
            own = str(module_spec.name)
            if own == name or modules.get(own) is not module:  # else an alias
                place = _find_place(module_spec)
        elif name in _PROGRAMS:
            place = _find_program(known)
        elif module is not None and _find_outer(folders, name) is None:
            place = _find_replaced(name, modules)
        if place is None:
            continue
        outer = _find_outer(folders, own)
        if outer is not None and _lies_in(folders, outer, own, place):
            continue
        top = own.partition(".")[0]
        if top in sys.stdlib_module_names and place.startswith(python):
            continue
        folders[name] = f"{place}/"
        if name == top:
            package = name
        found[_PROGRAM if name in _PROGRAMS else name] = place
    return found


def find_search_path() -> list[str]:
    """The folders that this process imports from."""
    return [os.path.realpath(folder) for folder in sys.path if _is_text(folder)]


def find_named(given: Iterable[Any] | None) -> dict[str, str]:
    """The same of the packages of what vLLM was given by a name such as `house.rules:Upper`, or as
    a class or function, without importing them."""
    found = {}
    for name in filter(None, {_name_module(one) for one in given or ()}):
        module_spec = _find_spec(name)
        place = None if module_spec is None else _find_place(module_spec)
        if module_spec is not None and place is not None:
            found[module_spec.name] = place
    return found


def _list_stdlib() -> tuple[str, ...]:
    """What the places of Python's own modules begin with."""
    folders = {os.path.dirname(os.__file__)}
    folders |= {sysconfig.get_path(one) for one in ("stdlib", "platstdlib")}
    return tuple(f"{folder}/" for folder in folders)


def _find_outer(folders: Mapping[str, str], name: str) -> str | None:
    """The innermost package with a folder that holds the module `name`."""
    while name := name.rpartition(".")[0]:
        if name in folders:
            return name
    return None


def _lies_in(folders: Mapping[str, str], package: str, name: str, place: str) -> bool:
    """Whether the module `name` is where an import finds it in the folder of its `package`."""
    if not name.startswith(f"{package}."):
        return False
    within = name[len(package) + 1 :].replace(".", "/")
    is_importable = within.replace("/", "_").isidentifier()
    return is_importable and place.startswith(folders[package] + within)


def _read_module(module: object) -> dict[str, Any]:
    """What a module holds; nothing of an object in a module's place."""
    if not isinstance(module, ModuleType):
        return {}
    known: dict[str, Any] = object.__getattribute__(module, "__dict__")
    return known


def _find_replaced(name: str, modules: Mapping[str, object]) -> str | None:
    """The file of a module that has put another one, or an object, in its own place, as some
    settings do."""
    parent, folders = name.rpartition(".")[0], None
    with suppress(*_NOT_FOUND):
        if parent:
            folders = list(_read_module(modules.get(parent)).get("__path__", ()))
        module_spec = PathFinder.find_spec(name, folders)
        return None if module_spec is None else _find_place(module_spec)
    return None


def _find_program(known: Mapping[str, Any]) -> str | None:
    """The file that a process was started with; None of one that was typed or piped."""
    file = known.get("__file__")
    return os.path.abspath(file) if isinstance(file, str) and os.path.exists(file) else None


def _name_module(given: Any) -> str:
    """That of `house.rules:Upper` and, where only one can be meant, of `house.rules.Upper`.

    >>> _name_module("house.rules:Upper"), _name_module("house.rules.Upper"), _name_module(dict)
    ('house.rules', 'house.rules.Upper', 'builtins')
    """
    name = given if isinstance(given, str) else str(getattr(given, "__module__", ""))
    return name.partition(":")[0]


def _find_spec(name: str) -> ModuleSpec | None:
    """Of the outermost package of `name` that has a folder, or a file, of its own."""
    top, *rest = name.split(".")
    try:
        module_spec = util.find_spec(top)
        for part in rest:
            if module_spec is None or _find_place(module_spec) is not None:
                break
            folders = list(module_spec.submodule_search_locations or ())
            module_spec = PathFinder.find_spec(f"{module_spec.name}.{part}", folders)
    except _NOT_FOUND:
        return None
    return module_spec


def _find_place(found: ModuleSpec) -> str | None:
    """Of a package's folder, or of a module's file; None of a package that has no folder of its
    own, and of what is in no file."""
    if not found.has_location or found.origin is None:
        return None
    for folder in found.submodule_search_locations or ():
        return str(folder)
    return str(found.origin)


def _is_text(value: object) -> TypeGuard[str]:
    return isinstance(value, str)
