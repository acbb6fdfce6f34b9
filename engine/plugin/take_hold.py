"""What of the contract a running engine does not have: looked for before anything is wrapped.

Only names and parameters are looked at, since an operator's own scheduler may well do the
rest by calling vLLM's. A row of which neither an object nor the module is there is not judged.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from specdeck.engine.plugin.contract import ROWS, Gap, Process, Row

_SECTIONS = {
    "SpeculativeConfig": "speculative_config",
    "ModelConfig": "model_config",
    "ParallelConfig": "parallel_config",
    "SchedulerConfig": "scheduler_config",
    "CompilationConfig": "compilation_config",
    "LoadConfig": "load_config",
    "DeviceConfig": "device_config",
}
"""Classes of vLLM's configuration, and where an engine has theirs."""


def find_core_gaps(core: Any) -> tuple[Gap, ...]:
    """What `core`, a vLLM EngineCore, and what hangs on it lack."""
    config = getattr(core, "vllm_config", None)
    objects: dict[str, object] = {
        "EngineCore": core,
        "Scheduler": getattr(core, "scheduler", None),
        "Executor": getattr(core, "model_executor", None),
        "VllmConfig": config,
        **{name: getattr(config, section, None) for name, section in _SECTIONS.items()},
    }
    return find_gaps(objects, "core")


def find_client_gaps(engine_client: Any) -> tuple[Gap, ...]:
    """What an API server's engine client and the classes around it lack."""
    objects = {
        "AsyncLLM": engine_client,
        "AsyncMPClient": getattr(engine_client, "engine_core", None),
        "InputProcessor": getattr(engine_client, "input_processor", None),
    }
    return find_gaps(objects, "api")


def find_gaps(
    objects: Mapping[str, object],
    process: Process,
    *,
    rows: Iterable[Row] = ROWS,
    modules: Mapping[str, object] | None = None,
) -> tuple[Gap, ...]:
    """The rows of `process` that are not there as they are needed.

    `objects` has an object for names of classes, or None; its own classes' names count as well.
    `modules` are those that are loaded.
    """
    loaded = sys.modules if modules is None else modules
    held = {
        each.__name__: thing
        for thing in objects.values()
        if thing is not None
        for each in type(thing).__mro__
    }
    held |= {name: thing for name, thing in objects.items() if thing is not None}
    found = (
        Gap(row, missing)
        for row in rows
        if row.process == process and (missing := _find_missing(row, held, loaded))
    )
    return tuple(found)


def _find_missing(
    row: Row, held: Mapping[str, object], loaded: Mapping[str, object]
) -> tuple[str, ...]:
    owner, _, member = row.name.partition(".")
    if owner in held:
        return _missing_of(row, held[owner], member)
    places = [loaded[module] for module in row.modules if module in loaded]
    if not places:
        return ()
    classes = [getattr(place, owner) for place in places if hasattr(place, owner)]
    return _missing_of(row, classes[0], member) if classes else (row.name,)


def _missing_of(row: Row, thing: object, member: str) -> tuple[str, ...]:
    """What an object or a class, or its method, lacks."""
    if member and not hasattr(thing, member):
        return (row.name,)
    lacks = [f"{row.name}.{name}" for name in row.members if not _has(thing, name)]
    if row.parameters:
        taken = _parameters(getattr(thing, member) if member else thing)
        lacks += [f"{row.name}({name})" for name in row.parameters if taken and name not in taken]
    return tuple(lacks)


def _has(thing: object, name: str) -> bool:
    """Whether an object has it, or objects of a class do as far as its code tells."""
    if hasattr(thing, name) or not isinstance(thing, type):
        return hasattr(thing, name)
    for each in thing.__mro__:
        if name in inspect.get_annotations(each):
            return True
        if any(name in _names(thing) for thing in vars(each).values() if callable(thing)):
            return True
    return False


def _names(function: Callable[..., Any]) -> tuple[str, ...]:
    """The attributes that a function reads or sets."""
    names: tuple[str, ...] = getattr(
        getattr(inspect.unwrap(function), "__code__", None), "co_names", ()
    )
    return names


def _parameters(function: Any) -> frozenset[str]:
    """What can be passed by name; empty where that cannot be told, or anything can."""
    try:
        found = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return frozenset()
    if any(each.kind is each.VAR_KEYWORD for each in found.values()):
        return frozenset()
    return frozenset(found)
