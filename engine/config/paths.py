"""Model paths of a config, seen from the folder that the config lies in."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

_TOP = ("model", "tokenizer", "hf_config_path", "chat_template", "tool_parser_plugin")
_SPECULATIVE = "speculative_config"


def resolved(engine_args: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """`engine_args` with the paths that are relative to `folder` made absolute."""
    found = dict(engine_args)
    for name in _TOP:
        if isinstance(found.get(name), str):
            found[name] = located(found[name], folder)
    speculative = found.get(_SPECULATIVE)
    if isinstance(speculative, dict) and isinstance(speculative.get("model"), str):
        found[_SPECULATIVE] = {**speculative, "model": located(speculative["model"], folder)}
    return found


def located(name: str, folder: Path) -> str:
    """`name` as a path where it is one: where it exists, or says so by ./, ../ or ~.

    Anything else is left alone: `org/model` is a name on the Hugging Face hub.

    >>> located("meta-llama/Llama-3.2-1B", Path("/nowhere"))
    'meta-llama/Llama-3.2-1B'
    >>> located("../m", Path("/a/b"))
    '/a/m'
    """
    import os.path

    if name.startswith("~"):
        return os.path.expanduser(name)
    if name.startswith(("./", "../")):
        return os.path.normpath(folder.absolute() / name)
    try:
        exists = bool(name) and (folder / name).exists()
    except OSError:  # a chat template in place is longer than a path may be
        exists = False
    return os.path.normpath(folder.absolute() / name) if exists else name
