"""A YAML file as plain values that remember the lines they came from, and what is wrong there."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from specdeck.engine.config.config import Keys, Notice, find_place
from specdeck.engine.errors import ConfigError, ConfigErrors, Place
from specdeck.engine.files import read_file
from specdeck.engine.fingerprint.secrecy import redact

_LARGEST = 1 << 20
"""Bytes; no config is a mebibyte long, and a device never ends."""
_MOST_VALUES = 20_000
"""Aliases of aliases can stand for more values than a machine holds."""
_MOST_NODES = 3 * _MOST_VALUES
"""As they are written, keys among them: to read half a million takes a busy machine a minute."""
_PLAIN = frozenset(f"tag:yaml.org,2002:{name}" for name in ("str", "int", "float", "bool", "null"))
_TEXT = "tag:yaml.org,2002:str"
_DATE = "tag:yaml.org,2002:timestamp"
_NUMBERS = frozenset(f"tag:yaml.org,2002:{name}" for name in ("int", "float"))
_NAMED = re.compile(r"(alias|anchor|tag handle) '.*'")
"""PyYAML's words of what begins with `*`, `&` or `!`, as an unquoted password may."""
_LONGEST_NUMBER = 1_000
"""Characters; `1:59:59:…` of thousands takes minutes to read, and nothing can print the number."""
_LONGEST_SHOWN = 60
_NAME = re.compile(r"[\w.-]+")
"""What keys of configs and variables are spelt with."""


@dataclass(frozen=True, slots=True)
class Document:
    """A mapping read from a file; reading it on adds to its errors and notices."""

    path: Path
    data: dict[str, Any]
    lines: dict[Keys, int]
    """The line on which each key stands, from 1; values inside lists have none."""
    errors: list[ConfigError] = field(default_factory=list)
    notices: list[Notice] = field(default_factory=list)

    def place(self, *keys: str) -> Place:
        """Where the value at `keys` stands, or the nearest key on the way to it."""
        return find_place(self.path, self.lines, keys)

    def refuse(self, keys: Keys, message: str, remedy: str | None = None) -> None:
        """Adds an error at `keys`, unless there is one: one mistake is one error."""
        place = show_place(self.place(*keys))
        if not keys or all(e.place != place for e in self.errors):
            self.errors.append(ConfigError(message, place=place, remedy=remedy))

    def note(self, keys: Keys, text: str) -> None:
        """Adds a notice at `keys`."""
        self.notices.append(Notice(self.place(*keys), text))

    def has_error(self, *names: str) -> bool:
        """Whether one of the keys at the top, or a key below it, is in error."""
        return any(
            e.place is not None and e.place.keys[:1] in {(n,) for n in names} for e in self.errors
        )

    def raise_errors(self) -> None:
        """Raises the ConfigError, or the ConfigErrors, of what was refused; by line."""
        errors = sorted(self.errors, key=lambda e: (e.place and e.place.line) or 0)
        if len(errors) == 1:
            raise errors[0]
        if errors:
            raise ConfigErrors(errors)


def show_place(place: Place) -> Place:
    """The place with the keys on the way to it as an error may name them."""
    return replace(place, keys=tuple(map(show_key, place.keys)))


def show_key(key: str) -> str:
    """A key as an error may name it: what is no part of a name is left out.

    Without a blank behind the colon, or with `=` in its place, YAML takes the value for a part of
    the key, and that may be a secret.

    >>> show_key("max_model_len"), show_key("webhook:https://hooks/T0"), show_key("HF_TOKEN=hf_x")
    ('max_model_len', 'webhook…', 'HF_TOKEN…')
    """
    found = _NAME.match(key)
    name = redact("" if found is None else found[0])[:_LONGEST_SHOWN]
    return name if name == key else f"{name}…"


def quote(value: object) -> str:
    """A value or key as an error may print it: one short line of printable characters.

    >>> quote("five"), quote("a" * 100)[-5:]
    ("'five'", "aaa…'")
    """
    text = ascii(value) if not str(value).isprintable() else repr(value)
    return text if len(text) <= _LONGEST_SHOWN else text[: _LONGEST_SHOWN - 2] + "…" + text[-1]


def read(path: Path) -> Document:
    """The document in the file `path`; ConfigError when there is none."""
    whole = Place(path)
    try:
        raw = read_file(path, most=_LARGEST)
    except FileNotFoundError:
        raise ConfigError("does not exist", place=whole, remedy="check the path") from None
    except (OSError, ValueError) as error:
        if getattr(error, "errno", None) == errno.EFBIG:
            message, remedy = "is larger than a config ever is", "name a YAML file"
        elif not isinstance(error, ValueError) and path.is_dir():
            message, remedy = "is a folder", "name a YAML file in it"
        else:
            reason = getattr(error, "strerror", None) or str(error)
            message, remedy = f"cannot be read: {reason}", None
        raise ConfigError(message, place=whole, remedy=remedy) from error
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise ConfigError("this is not text in UTF-8", place=Place(path, line)) from error
    return parse(text, path)


def parse(text: str, path: Path) -> Document:
    """The document that `text` holds; `path` is only named in errors.

    A key or value that no config can hold is left out and stands in the document's errors;
    what is no mapping at all raises ConfigError.
    """
    loader: _Loader | None = None
    try:
        loader = _Loader(text, path)
        root = loader.get_single_node()
        if root is None:
            raise ConfigError(
                "the config is empty", place=Place(path, 1), remedy="it needs at least `model`"
            )
        if not isinstance(root, yaml.MappingNode):
            kind = "a list" if isinstance(root, yaml.SequenceNode) else "one value"
            raise ConfigError(
                f"a config is `key: value` lines, not {kind}",
                place=Place(path, _line(root)),
                remedy="begin with `model: …`",
            )
        return _Builder(path, loader).document(root)
    # `from None` in all of them: PyYAML's own words quote the lines, and what is secret in them.
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = Place(path, mark.line + 1 if mark else 1)
        problem = _NAMED.sub(r"\1", error.problem or "")
        raise ConfigError(f"not valid YAML: {problem}", place=place) from None
    except yaml.reader.ReaderError as error:
        place = Place(path, text.count("\n", 0, error.position) + 1)
        raise ConfigError("a character that YAML does not allow", place=place) from None
    except yaml.YAMLError as error:
        raise ConfigError(f"not valid YAML: {error}", place=Place(path, 1)) from None
    except RecursionError:
        raise ConfigError("nested too deeply to be a config", place=Place(path, 1)) from None
    finally:
        if loader is not None:
            loader.dispose()


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1


class _TooLarge(ConfigError):
    """There are more values than a config has: reading on would not end."""


class _Loader(yaml.SafeLoader):
    """Gives up a text of too many nodes before all of them are read."""

    def __init__(self, text: str, path: Path) -> None:
        super().__init__(text)
        self._path = path
        self._left = _MOST_NODES

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        """As PyYAML does; raises ConfigError for one too many."""
        self._left -= 1
        if self._left < 0:
            place = Place(self._path, self.line + 1)
            raise _TooLarge("more values than a config ever has", place=place)
        return super().compose_node(parent, index)


class _Builder:
    """Turns nodes into values; it counts them and knows where it is."""

    def __init__(self, path: Path, loader: yaml.SafeLoader) -> None:
        self._path = path
        self._loader = loader
        self._left = _MOST_VALUES
        self._open: set[int] = set()
        self._document = Document(path, {}, {})

    def document(self, root: yaml.MappingNode) -> Document:
        self._document.data.update(self._mapping(root, ()))
        return self._document

    def _error(self, node: yaml.Node, message: str, remedy: str | None = None) -> ConfigError:
        return ConfigError(message, place=Place(self._path, _line(node)), remedy=remedy)

    def _value(self, node: yaml.Node, keys: Keys | None) -> object:
        self._left -= 1
        if self._left < 0:
            place = Place(self._path, _line(node))
            raise _TooLarge("more values than a config ever has", place=place)
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
            # Not which: an unquoted password may begin with the mark.
            words = "a value of a type (`!…`) means nothing here"
            raise self._error(node, words, "put it in quotes")
        if node.tag in _NUMBERS and len(node.value) > _LONGEST_NUMBER:
            raise self._error(node, f"a number of {len(node.value):,} characters")
        try:
            value = self._loader.construct_object(node)
        except (ValueError, OverflowError, KeyError) as error:
            raise self._error(node, f"not a value: {quote(node.value)}") from error
        if isinstance(value, str) and any(c == "\0" or "\ud800" <= c <= "\udfff" for c in value):
            raise self._error(node, "a character that no argument can hold")
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
            try:
                key = self._key(key_node)
            except ConfigError as error:
                self._refuse(error, keys)
                continue
            inner = None if keys is None else (*keys, key)
            if key in found and by_merge:
                continue
            if key in found and key not in merged:
                twice = self._error(
                    key_node, f"`{show_key(key)}` is given twice", "keep one of them"
                )
                self._refuse(twice, inner)
                continue
            merged.add(key) if by_merge else merged.discard(key)
            if inner is not None:
                self._document.lines[inner] = _line(key_node)
            try:
                found[key] = self._value(value_node, inner)
            except _TooLarge:
                raise
            except ConfigError as error:
                self._refuse(error, inner)
        return found

    def _refuse(self, error: ConfigError, keys: Keys | None) -> None:
        """Notes what is wrong at `keys`; inside a list the whole list is in error."""
        if keys is None:
            raise error
        assert error.place is not None
        place = show_place(replace(error.place, keys=keys))
        self._document.errors.append(ConfigError(error.message, place=place, remedy=error.remedy))

    def _key(self, node: yaml.Node) -> str:
        if not isinstance(node, yaml.ScalarNode):
            raise self._error(node, "a key is a word, not a list or a mapping")
        if node.tag != _TEXT:
            raise self._error(
                node, f"the key {quote(show_key(node.value))} is not text", "put it in quotes"
            )
        if not node.value.isprintable():
            raise self._error(node, f"the key {quote(show_key(node.value))} is not printable")
        return str(node.value)
