"""Engine arguments with a credential in them: handed to vLLM in a file for its owner only.

Every account of a machine sees the command lines on it. vLLM reads arguments from a file as well,
as the words of a command line, and those in it stand before the words that are given.

The file begins with a comment, which vLLM skips: the credentials alone, for the engine's processes
to look for in what they log.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from specdeck.engine.config.vllm_args import Argument, format_word
from specdeck.engine.files import replace_file
from specdeck.engine.fingerprint.secrecy import contains_secret, find_secrets
from specdeck.engine.plugin.secret_values import format_values, make_mask

FLAG = "--config"
"""What vLLM takes the file by; as another argument it is not for a config of specdeck's."""


def find_private(arguments: Mapping[str, Any]) -> frozenset[str]:
    """The names of the arguments that hold a credential, at whatever depth.

    YAML's aliases may have put the value of one under a name that tells nothing.

    >>> sorted(find_private({"a": {"password": "s3cr3t-pw"}, "b": ["s3cr3t-pw"], "c": "pw"}))
    ['a', 'b']
    """
    named = {name for name, value in arguments.items() if contains_secret(name, value)}
    mask = make_mask(found for name in named for found in find_secrets(name, arguments[name]))
    words = {name: repr(value) for name, value in arguments.items()}
    return frozenset(named | {name for name, word in words.items() if mask(word) != word})


def format_private(arguments: Mapping[str, Any], accepted: Mapping[str, Argument]) -> str | None:
    """The text of the file for those of the `arguments` that hold a credential; None for none.

    >>> print(format_private({"kv_transfer_config": {"password": "pw"}, "seed": 1}, {}), end="")
    # secrets: ["pw"]
    kv-transfer-config: '{"password": "pw"}'
    """
    found: dict[str, Any] = {}
    values: list[str] = []
    for name in sorted(find_private(arguments)):
        found |= _entries(name, arguments[name], accepted.get(name, Argument()))
        values += find_secrets(name, arguments[name])
    return f"{format_values(values)}\n{yaml.safe_dump(found, width=2**31)}" if found else None


def _entries(name: str, value: Any, argument: Argument) -> Iterable[tuple[str, Any]]:
    """The lines of one argument: vLLM puts the name after two dashes, and words behind it."""
    flag = name.replace("_", "-")
    if isinstance(value, list) and argument.words == "many":
        return [(flag, [format_word(item) for item in value])]
    if isinstance(value, list) and argument.words == "repeat":
        return [(f"{flag}={format_word(item)}", True) for item in value]  # a flag for each
    word = format_word(value)
    return [(f"{flag}={word}", True)] if word.startswith("-") else [(flag, word)]


def write_private(path: Path, text: str) -> None:
    """Writes the file for its owner only; raises OSError."""
    replace_file(path, text, mode=0o600)
