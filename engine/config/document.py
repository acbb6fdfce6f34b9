"""A YAML file as plain values that remember the lines they came from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from specdeck.engine.errors import ConfigError

Keys = tuple[str, ...]
"""The way to a value: `("speculative_config", "method")`."""

_LARGEST = 1 << 20
"""Bytes; no config is a mebibyte long, and a device never ends."""
_MOST_VALUES = 20_000
"""Aliases of aliases can stand for more values than a machine holds."""
_PLAIN = frozenset(f"tag:yaml.org,2002:{name}" for name in ("str", "int", "float", "bool", "null"))
_TEXT = "tag:yaml.org,2002:str"
_DATE = "tag:yaml.org,2002:timestamp"
_LONGEST_SHOWN = 60


@dataclass(frozen=True, slots=True)
class Document:
    """A mapping read from a file."""

    path: Path
    data: dict[str, Any]
    lines: dict[Keys, int]
    """The line on which each key stands, from 1; values inside lists have none."""

    def where(self, *keys: str) -> str:
        """`file:line` of the nearest key on the way to `keys`."""
        while keys and keys not in self.lines:
            keys = keys[:-1]
        return f"{self.path}:{self.lines.get(keys, 1)}"

    def error(self, keys: Keys, message: str, remedy: str | None = None) -> ConfigError:
        """A ConfigError that points at `keys`."""
        return ConfigError(f"{self.where(*keys)}: {message}", remedy=remedy)


def shown(value: object) -> str:
    """A value or key as an error may print it: one short line of printable characters.

    >>> shown("five"), shown("a" * 100)[-5:]
    ("'five'", "aaa…'")
    """
    text = ascii(value) if not str(value).isprintable() else repr(value)
    return text if len(text) <= _LONGEST_SHOWN else text[: _LONGEST_SHOWN - 2] + "…" + text[-1]


def read(path: Path) -> Document:
    """The document in the file `path`; ConfigError when there is none."""
    try:
        with path.open("rb") as stream:
            raw = stream.read(_LARGEST + 1)
    except IsADirectoryError:
        raise ConfigError(f"{path} is a folder", remedy="name a YAML file in it") from None
    except FileNotFoundError:
        raise ConfigError(f"{path} does not exist", remedy="check the path") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigError(f"{path} cannot be read: {reason}") from error
    if len(raw) > _LARGEST:
        raise ConfigError(f"{path} is larger than a config ever is", remedy="name a YAML file")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{path}:{line}: this is not text in UTF-8") from error
    return parsed(text, path)


def parsed(text: str, path: Path) -> Document:
    """The document that `text` holds; `path` is only named in errors."""
    loader: yaml.SafeLoader | None = None
    try:
        loader = yaml.SafeLoader(text)
        root = loader.get_single_node()
        if root is None:
            raise ConfigError(f"{path}:1: the config is empty", remedy="it needs at least `model`")
        if not isinstance(root, yaml.MappingNode):
            kind = "a list" if isinstance(root, yaml.SequenceNode) else "one value"
            raise ConfigError(
                f"{path}:{_line(root)}: a config is `key: value` lines, not {kind}",
                remedy="begin with `model: …`",
            )
        return _Builder(path, loader).document(root)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 1
        raise ConfigError(f"{path}:{line}: not valid YAML: {error.problem}") from error
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise ConfigError(f"{path}:{line}: a character that YAML does not allow") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}:1: not valid YAML: {error}") from error
    except RecursionError as error:
        raise ConfigError(f"{path}:1: nested too deeply to be a config") from error
    finally:
        if loader is not None:
            loader.dispose()


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1


class _Builder:
    """Turns nodes into values; it counts them and knows where it is."""

    def __init__(self, path: Path, loader: yaml.SafeLoader) -> None:
        self._path = path
        self._loader = loader
        self._left = _MOST_VALUES
        self._open: set[int] = set()
        self._lines: dict[Keys, int] = {}

    def document(self, root: yaml.MappingNode) -> Document:
        return Document(self._path, self._mapping(root, ()), self._lines)

    def _error(self, node: yaml.Node, message: str, remedy: str | None = None) -> ConfigError:
        return ConfigError(f"{self._path}:{_line(node)}: {message}", remedy=remedy)

    def _value(self, node: yaml.Node, keys: Keys | None) -> object:
        self._left -= 1
        if self._left < 0:
            raise self._error(node, "more values than a config ever has")
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node)
        if id(node) in self._open:
            raise self._error(node, "an alias that contains itself")
        self._open.add(id(node))
        try:
            if isinstance(node, yaml.MappingNode):
                return self._mapping(node, keys)
            return [self._value(item, None) for item in node.value]
        finally:
            self._open.discard(id(node))

    def _scalar(self, node: yaml.ScalarNode) -> object:
        if node.tag == _DATE:
            return node.value
        if node.tag not in _PLAIN:
            raise self._error(node, f"a value of type {shown(node.tag)} means nothing here")
        try:
            value = self._loader.construct_object(node)
        except (ValueError, OverflowError, KeyError) as error:
            raise self._error(node, f"not a value: {shown(node.value)}") from error
        if isinstance(value, str) and any(c == "\0" or "\ud800" <= c <= "\udfff" for c in value):
            raise self._error(node, f"a character that no argument can hold in {shown(value)}")
        return value

    def _pairs(self, node: yaml.MappingNode) -> Iterator[tuple[yaml.Node, yaml.Node, bool]]:
        """Key, value, and whether it was merged in with `<<` (its own keys win)."""
        for key, value in node.value:
            if key.tag != "tag:yaml.org,2002:merge":
                yield key, value, False
                continue
            for source in value.value if isinstance(value, yaml.SequenceNode) else (value,):
                if not isinstance(source, yaml.MappingNode) or source is node:
                    raise self._error(key, "`<<` merges mappings only")
                self._left -= len(source.value)
                yield from ((k, v, True) for k, v in source.value)

    def _mapping(self, node: yaml.MappingNode, keys: Keys | None) -> dict[str, Any]:
        """The mapping; `keys` is None inside a list, where no lines are kept."""
        found: dict[str, Any] = {}
        merged: set[str] = set()
        for key_node, value_node, by_merge in self._pairs(node):
            key = self._key(key_node)
            if key in found and by_merge:
                continue
            if key in found and key not in merged:
                raise self._error(key_node, f"`{key}` is given twice", "keep one of them")
            merged.add(key) if by_merge else merged.discard(key)
            inner = None if keys is None else (*keys, key)
            if inner is not None:
                self._lines[inner] = _line(key_node)
            found[key] = self._value(value_node, inner)
        return found

    def _key(self, node: yaml.Node) -> str:
        if not isinstance(node, yaml.ScalarNode):
            raise self._error(node, "a key is a word, not a list or a mapping")
        if node.tag != _TEXT:
            raise self._error(node, f"the key {shown(node.value)} is not text", "put it in quotes")
        if not node.value.isprintable():
            raise self._error(node, f"the key {shown(node.value)} is not printable")
        return str(node.value)
