"""Prints the arguments of the installed vLLM as JSON; run in a process of its own.

    python -m specdeck.engine.config.dump_vllm_args

Reading them imports torch and takes seconds, hundreds of megabytes and vLLM's
own log lines on stderr, so the caller keeps the answer (see `vllm_args.py`).
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import typing
from collections.abc import Sequence
from importlib import import_module
from typing import Any

Entry = dict[str, Any]

PARSER_MODULES = (
    "vllm.entrypoints.common.cli_args",  # 0.33
    "vllm.entrypoints.launchers.cli_args",  # 0.32
    "vllm.entrypoints.openai.cli_args",
)
"""Where vLLM's parser is made, the newest place first."""

_KINDS: dict[object, str] = {int: "int", float: "float", str: "str", json.loads: "json"}
_NAMED_KINDS = {
    "human_readable_int": "size",
    "human_readable_int_or_auto": "size",
    "parse_dataclass": "json",
    "loads": "json",
}
_FILLED_BY_VLLM = frozenset(
    f"{model}_{part}_config" for model in ("target", "draft") for part in ("model", "parallel")
)
"""Fields of SpeculativeConfig that nobody writes: vLLM sets them itself."""


def _kind(convert: object) -> str:
    """The kind of value behind an argparse `type`, `any` where it cannot be told.

    vLLM wraps the real converter in a closure for optional values, so the cells
    of the closure are searched for one that is known.
    """
    if convert is None:
        return "str"
    if convert in _KINDS:
        return _KINDS[convert]
    name = getattr(convert, "__name__", "")
    if name in _NAMED_KINDS:
        return _NAMED_KINDS[name]
    for cell in getattr(convert, "__closure__", None) or ():
        inner = cell.cell_contents
        if callable(inner) and (kind := _kind(inner)) != "any":
            return kind
    return "any"


def _entry(action: argparse.Action) -> Entry:
    entry: Entry = {}
    if isinstance(action, argparse.BooleanOptionalAction):
        entry["kind"] = "bool"
    elif action.nargs == 0:
        entry["kind"] = "flag"
    else:
        entry["kind"] = _kind(action.type)
    if action.nargs in ("+", "*"):
        entry["words"] = "many"
    elif type(action).__name__ == "_AppendAction":
        entry["words"] = "repeat"
    choices = [choice for choice in action.choices or () if choice is not None]
    if choices:
        entry["choices"] = choices
    return entry


def _field_kind(annotation: object) -> Entry:
    """The entry of one dataclass field, looking through `| None`."""
    options = [a for a in typing.get_args(annotation) if a is not type(None)]
    plain = annotation in (int, float, str, bool)
    if not plain and len(options) == 1 and typing.get_origin(annotation) is not list:
        return _field_kind(options[0])
    if annotation is bool:
        return {"kind": "bool"}
    if plain:
        return {"kind": _KINDS[annotation]}
    if typing.get_origin(annotation) is list:
        return {"kind": "json"}
    values = _literals(annotation)
    return {"kind": "str", "choices": values} if values else {"kind": "any"}


def _literals(annotation: object) -> list[str]:
    """Every word of a Literal, nested ones included; empty when it is open."""
    if typing.get_origin(annotation) is not typing.Literal:
        return []
    return [value for value in typing.get_args(annotation) if isinstance(value, str)]


def describe_parser(parser: argparse.ArgumentParser, speculative: type) -> dict[str, Any]:
    """The parser's options and the fields of SpeculativeConfig, by name and kind."""
    return {
        "arguments": {
            action.dest: _entry(action)
            for action in parser._actions  # noqa: SLF001  # argparse has no public list
            if action.option_strings and action.dest != "help"
        },
        "speculative": {
            field.name: _field_kind(field.type)
            for field in dataclasses.fields(speculative)
            if field.name not in _FILLED_BY_VLLM
        },
    }


def find_in_first(modules: Sequence[str], name: str) -> Any:
    """`name` of the first of `modules` that there is.

    Raises ModuleNotFoundError where there is none, and whatever keeps one that is there
    from being imported: an older place must not hide that.
    """
    for module in modules:
        try:
            return getattr(import_module(module), name)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{module}.".startswith(f"{error.name}."):
                raise
    raise ModuleNotFoundError(f"{name} is in none of {', '.join(modules)}")


def main() -> None:
    """Print them; anything that goes wrong ends the process with a traceback."""
    # A torchvision built for CUDA breaks transformers beside a CPU torch, and
    # nothing here needs it.
    for package in ("torchvision", "torchaudio", "torchcodec"):
        sys.modules.setdefault(package, None)  # type: ignore[arg-type]  # None hides a module
    import vllm
    from vllm.config import SpeculativeConfig

    try:
        from vllm.utils.argparse_utils import FlexibleArgumentParser
    except ImportError:
        from vllm.utils import FlexibleArgumentParser
    make_arg_parser = find_in_first(PARSER_MODULES, "make_arg_parser")
    table = describe_parser(make_arg_parser(FlexibleArgumentParser()), SpeculativeConfig)
    json.dump({"vllm": vllm.__version__, **table}, sys.stdout)


if __name__ == "__main__":
    main()
