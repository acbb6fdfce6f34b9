"""What an API server makes of a request before the engine core sees it, and of its answer after:
the facts of a fingerprint that are in no VllmConfig.

A chat template decides over every prompt of a chat, and a parser over what of an answer is a call.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

from specdeck.engine.fingerprint.digest import sha256
from specdeck.engine.fingerprint.distributions import Brought
from specdeck.engine.fingerprint.package_code import (
    BY_PATH,
    Places,
    choose_house,
    digest_code,
    list_code,
)
from specdeck.engine.fingerprint.secrecy import find_secrets, redact
from specdeck.engine.fingerprint.start_changes import StartChanges
from specdeck.engine.plugin.fingerprint import plain
from specdeck.engine.plugin.loaded_code import find_named, find_packages, find_search_path
from specdeck.engine.plugin.secret_values import make_mask, mask_within
from specdeck.engine.plugin.start_time import find_start

_SETTINGS = (
    "chat_template_content_format", "trust_request_chat_template", "trust_request_mm_kwargs",
    "default_chat_template_kwargs", "response_role", "return_tokens_as_token_ids",
    "enable_auto_tool_choice", "exclude_tools_when_tool_choice_none", "tool_call_parser",
    "tool_strict_level", "cohere_is_reasoning_model", "cohere_format",
    "anthropic_disabled_thinking_effort", "tokens_only",
)  # fmt: skip
_PARSER_PLUGINS = ("tool_parser_plugin", "reasoning_parser_plugin")
"""A file each, or a module by its name, as vLLM's `import_plugin` has it."""
_ADAPTER_FILES = ("*.safetensors", "*.bin", "*.pt", "adapter_config.json")

Unread = list[dict[str, str]]
"""Facts that could not be read, each with its reason."""


def read_serving_facts(args: Any) -> tuple[dict[str, Any], Unread]:
    """The facts in a server's arguments, and which of them could not be read.

    A file counts by its content; an adapter that is no folder here by its name alone. May take as
    long as reading the adapters' files does.
    """
    unread: Unread = []
    changes = StartChanges(find_start())
    found = {
        name: value for name in _SETTINGS if (value := plain(getattr(args, name, None))) is not None
    }
    # Each by itself: a name behind one such as `auth.verify_token` is no secret of that name.
    middleware = getattr(args, "middleware", None)
    if middleware:
        found["middleware"] = [plain(one) for one in middleware]
    # With what this server alone has loaded, such as the modules that a middleware imports.
    loaded, brought = find_packages(sys.modules.copy()), Brought(metadata.distributions())
    house = choose_house(loaded, search=find_search_path(), brought=brought)
    named = find_named(middleware)
    for name in _PARSER_PLUGINS:
        if not (plugin := getattr(args, name, None)):
            continue
        if not os.path.exists(plugin) and (module := find_named([plugin])):
            named |= module
            found[name] = plugin
        else:
            _put(found, unread, name, partial(sha256, Path(plugin)))
            _note_change(unread, name, changes.describe(Path(plugin)))
    house |= {name: (Path(place),) for name, place in named.items()}
    if code := _read_code(house, unread, changes):
        found["code"] = code
    if template := getattr(args, "chat_template", None):
        _put(found, unread, "chat_template", lambda: _digest_template(template))
        _note_change(unread, "chat_template", changes.describe(Path(template)))
    adapters: dict[str, Any] = {}
    for adapter in getattr(args, "lora_modules", None) or ():
        name, path = str(adapter.name), str(adapter.path)
        _put(adapters, unread, name, partial(_read_adapter, path), under="adapters.")
        folder = Path(os.path.expanduser(path))
        changed = changes.describe_any(_list_files(folder))
        changed = changed or changes.describe(folder, entries=True)
        _note_change(unread, f"adapters.{name}", changed)
    # A credential may stand under a second name, as YAML's aliases have it.
    given = {name: value for name, value in vars(args).items() if name != "middleware"}
    mask = make_mask(find_secrets("", given))
    return mask_within(found | ({"adapters": adapters} if adapters else {}), mask), unread


def _put(
    found: dict[str, Any], unread: Unread, name: str, read: Callable[[], Any], *, under: str = ""
) -> None:
    try:
        found[name] = read()
    except OSError as error:
        unread.append({"fact": f"serving.{under}{name}", "reason": error.strerror or str(error)})


def _note_change(unread: Unread, name: str, change: str | None) -> None:
    if change:
        unread.append({"fact": f"serving.{name}", "reason": change})


def _read_code(packages: Places, unread: Unread, changes: StartChanges) -> dict[str, Any]:
    """Digests of packages by their names; vLLM's own is a fact of its own, and so is specdeck."""
    found: dict[str, Any] = {}
    for name in sorted(packages.keys() - {"vllm", "specdeck"}):
        files = {place: list_code(place) for place in packages[name]}
        read = partial(digest_code, files)
        _put(found, unread, name, read, under="code.")
        # What is loaded by its path may be made at every start: its content counts alone.
        if name != BY_PATH:
            paths = (path for within in files.values() for path in within)
            _note_change(unread, f"code.{name}", changes.describe_any(paths))
    return found


def _digest_template(template: str) -> str:
    """Of a file's content; else of the argument, which is the template itself or names one that
    comes with vLLM."""
    try:
        return sha256(Path(template))
    except OSError:
        return hashlib.sha256(template.encode()).hexdigest()


def _read_adapter(path: str) -> Mapping[str, str] | str:
    folder = Path(os.path.expanduser(path))  # as vLLM does; of a user unknown it stays as it is
    if not folder.is_dir():
        return redact(path)
    return {one.name: sha256(one) for one in _list_files(folder)}


def _list_files(folder: Path) -> Iterator[Path]:
    yield from sorted({one for pattern in _ADAPTER_FILES for one in folder.glob(pattern)})
