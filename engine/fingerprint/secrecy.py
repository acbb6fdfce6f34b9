"""The credentials within a value or a text: found by the names before them, and by their place.

A text may be a log's line, a command, a URL, JSON, YAML, XML or what Python prints of an object,
and any of them quoted within another. Where a value ends that nobody closes is not known: all the
rest is taken for it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from urllib.parse import unquote

from specdeck.engine.fingerprint.secret_names import is_secret

MASK = "***"
"""Stands where a credential stood."""

_Span = tuple[int, int]
_Entry = tuple[str, int, int]
"""A name, where it begins, and where what is behind it begins."""

_NAMING = frozenset({
    "env", "field", "header", "key", "name", "option", "param", "parameter", "property", "var",
    "variable",
})  # fmt: skip
_VALUED = frozenset({"content", "contents", "data", "string", "val", "value", "values"})
"""Beside one of `_NAMING` these bear the name that it says: `{name: REDIS_PASSWORD, value: …}`."""

_NAME_LETTER = r"\w.\-\u00ad\u200b-\u200f\u2060\ufeff"
_A_NAME = re.compile(rf"[{_NAME_LETTER}]{{1,100}}")
_AN_OPTION = re.compile(r"--?([A-Za-z][\w.\-]{0,100})")
_KEYS = frozenset({"key", "keys"})
"""Before a comma these are as likely a tensor of attention."""

_USERINFO = re.compile(r"(?<=://)(?:[^\s/?#]*|[^\s/:@]*:(?!\d+(?:[/?#]|$))\S*)@")
"""Also with a slash in the password, which a URL must not hold and some do."""
_BARE_USERINFO = re.compile(
    r"(?<![^\s\"'=,;(\[{<>|`])(?!mailto:)[\w.%+~\-]{0,100}:(?!//|\d{1,3}@|\d+[/?#]|\*{3}@)"
    r"[^\s@\"'`]{1,256}@"
)
"""Without a scheme; a rank or a port before the `@` is no password."""
_DIGEST = re.compile(r"sha\d+:")
"""What follows an image's tag and `@`."""
_UP_TO_AT = re.compile(r"(?<!\S)\S*@")
"""Where it can be: in vain it would be looked for to the end of the text behind every `://`."""

_BEARER = re.compile(r"\b(bearer\s+)[^\s\"',;]{6,}", re.IGNORECASE)
_NAMED = re.compile(
    rf"(?<![{_NAME_LETTER}])([{_NAME_LETTER}]++)(?:\\*[\"']\]?)?\s*"
    r"(?:=>|->|(?<=-)>|:=|={1,3}|[:\uff1a\uff1d])(?!//)"
)
"""A name and what stands between it and its value, in JSON within JSON as well."""
_PAIRED = re.compile(
    rf"(?:[(\[]\s*[bB]?\\*[\"']([{_NAME_LETTER}]++)|(?<!\\)\\*+[\"']--?([A-Za-z][\w.\-]*+))"
    r"\\*[\"']\s*,(?=\s*[bBuU]?\\*[\"'])"
)
"""A name that begins a pair, or is an option in a list of words."""
_PAIR_END = re.compile(r"(?:\\*+[\"'])?\s*+,?\s*+(?:[)\]]|\Z)")
_TAG = re.compile(r"<(/?)([A-Za-z_][\w.:\-]*+)[^<>]*+>")
_SIGNED = re.compile(r"(?:\A|[^A-Za-z])sig(?:nature)?\Z", re.IGNORECASE)
"""In a URL's query, what lets in whoever has the URL."""

_OPENER = re.compile(r"[bBrRuUfF]{0,2}(\\*)([\"'])")
_NESTS = re.compile(r"(?:[A-Za-z_][\w.]*)?(?=[\[{(])")
"""A bracket, or what is called with one: `SecretStr('…')`."""
_BARE = re.compile(
    r"(?:(?:bearer|basic|token)\s+)?(?:<[^<>\n]*>)?[^\s&;,\"'}\]\\]*"
    r"(?:\\+(?![\\\"'])[^\s&;,\"'}\]\\]*)*",
    re.IGNORECASE,
)
_QUOTED = {
    '"': re.compile(r"(?:[^\"\\]|\\.)*+", re.DOTALL),
    "'": re.compile(r"(?:[^'\\]|\\.)*+", re.DOTALL),
}
_QUOTES = {'"': re.compile(r'(?<!\\)(\\*+)"'), "'": re.compile(r"(?<!\\)(\\*+)'")}
_NESTED = re.compile(r"[\[\]{}()]|\"(?:[^\"\\]|\\.)*+\"?|'(?:[^'\\]|\\.)*+'?", re.DOTALL)
"""Brackets, and texts in which a bracket is none; one without an end takes all the rest."""
_SPACE = re.compile(r"\s*")
_BRACE = re.compile(r"[{}]")

_BLOCK = re.compile(
    r"[ \t]*+(?:([|>][-+\d]{0,2})[ \t]*+)?(?:(?<=[ \t])#[^\n\\]{0,1000}+)?(\r?\n|(?:\\r)?\\n)"
)
"""What has YAML's value in the lines below; a quoted text spells the end of a line `\\n`. A comment
has an end, as each of many names in a line would be read on to the line's."""
_PROPERTY = r"(?:!<[^\s>]*+>|[!&][^\s,\[\]{}\\\"']*+)"
_PROPERTIES = re.compile(rf"[ \t]++({_PROPERTY}(?:[ \t]++{_PROPERTY})*+)(?=\s|\\)")
"""YAML's type and anchor before a value: `!!str &pw`. What looks so is masked as well."""
_INDENTATION = re.compile(r"[ \t]*(?:- *)*")
_LONGEST_INDENTATION = 1_000


def redact(text: str) -> str:
    """`text` without the credentials in it: of a URL, after a name, of a header.

    >>> redact("redis://user:pw@cache:6379"), redact("max_tokens=5")
    ('redis://***@cache:6379', 'max_tokens=5')
    >>> redact("https://hub/x?api_key=s&k=5")
    'https://hub/x?api_key=***&k=5'
    >>> redact("{'secrets': [{'a': 'x]'}, 'y'], 'k': 5}")
    "{'secrets': ***, 'k': 5}"
    >>> redact("[{'name': 'REDIS_PASSWORD', 'value': 'x'}, ('password', b'y')]")
    "[{'name': 'REDIS_PASSWORD', 'value': '***'}, ('password', b'***')]"
    """
    return _replace(text, lambda _: None)


def find_secrets(name: str, value: object) -> Iterator[str]:
    """The credentials within `value`, which bears `name`, as text.

    >>> list(find_secrets("kv_transfer_config", {"extra": [{"redis_password": "pw"}], "k": 5}))
    ['pw']
    >>> list(find_secrets("env", [{"name": "REDIS_PASSWORD", "value": "pw"}, ["--token", "t"]]))
    ['pw', 't']
    >>> list(find_secrets("endpoint", "http://me:p%40w@collector:4317/?api_key=s"))
    ['p%40w', 'p@w', 's']
    """
    if isinstance(value, Mapping):
        secret = is_secret(name)
        for key, borne, held in name_values(value):
            yield from find_secrets("", key)
            yield from find_secrets(name if secret else borne, held)
    elif isinstance(value, list | tuple):
        secret = is_secret(name)
        for borne, item in name_items(name, value):
            yield from find_secrets(name if secret else borne, item)
    elif value is not None and value != "" and not isinstance(value, bool):
        if is_secret(name):
            yield str(value)
        elif isinstance(value, str):
            found: list[str] = []
            _replace(value, found.append)
            yield from found
            if value.lstrip()[:1] in ("{", "["):  # its own reader finds them without escapes
                with suppress(ValueError, RecursionError):
                    yield from find_secrets(name, json.loads(value))


def contains_secret(name: str, value: object) -> bool:
    """Whether there is a credential anywhere within `value`, which bears `name`.

    >>> contains_secret("kv_transfer_config", {"extra": [{"redis_password": "pw"}]})
    True
    >>> contains_secret("otlp_traces_endpoint", "http://me:pw@collector:4317")
    True
    >>> contains_secret("hf_overrides", {"max_tokens": 5, "password": None})
    False
    """
    return any(True for _ in find_secrets(name, value))


def name_values(mapping: Mapping[str, object]) -> Iterator[tuple[str, str, object]]:
    """Each key of `mapping`, the name that its value bears, and the value.

    >>> list(name_values({"name": "REDIS_PASSWORD", "value": "pw"}))
    [('name', 'name', 'REDIS_PASSWORD'), ('value', 'REDIS_PASSWORD', 'pw')]
    >>> list(name_values({"name": "REDIS_PORT", "value": 1}))
    [('name', 'name', 'REDIS_PORT'), ('value', 'value', 1)]
    """
    said = (held for key, held in mapping.items() if str(key).lower() in _NAMING)
    named = next((one for one in said if isinstance(one, str) and _names_secret(one)), None)
    for key, held in mapping.items():
        has_named = named is not None and str(key).lower() in _VALUED
        yield str(key), named if named is not None and has_named else str(key), held


def name_items(name: str, items: Sequence[object]) -> Iterator[tuple[str, object]]:
    """The name that each item of a list called `name` bears, and the item.

    Of a pair the first may name the second, and in a list of words an option what follows it.

    >>> list(name_items("headers", ("password", "pw")))
    [('headers', 'password'), ('password', 'pw')]
    >>> list(name_items("args", ["--redis-pw", "pw", "--port", 1]))
    [('args', '--redis-pw'), ('redis-pw', 'pw'), ('args', '--port'), ('args', 1)]
    """
    before: object = None
    for item in items:
        borne = name
        if isinstance(before, str):
            if (option := _AN_OPTION.fullmatch(before)) is not None:
                is_value = not (isinstance(item, str) and _AN_OPTION.fullmatch(item))
                borne = option[1] if is_value and is_secret(option[1]) else name
            elif len(items) == 2 and before.lower() not in _KEYS and _names_secret(before):
                borne = before
        yield borne, item
        before = item


def _names_secret(text: str) -> bool:
    """Whether a text is a credential's name, and no more than a name."""
    return bool(_A_NAME.fullmatch(text)) and is_secret(text)


def _replace(text: str, found: Callable[[str], None]) -> str:
    """`text` without the credentials in it, each of which is given to `found`."""
    text = _replace_userinfo(text, found)

    def drop_bearer(matched: re.Match[str]) -> str:
        found(matched[0][len(matched[1]) :])
        return f"{matched[1]}{MASK}"

    text = _BEARER.sub(drop_bearer, text)
    if "</" in text:
        entries, ends = _list_tags(text)
        text = _mask(text, _find_spans(text, entries, lambda _, at: (at, ends[at])), found)
    text = _mask(text, _find_pairs(text), found)
    named = ((one[1], one.start(), one.end()) for one in _NAMED.finditer(text))
    return _mask(text, _find_spans(text, named, lambda start, at: _locate(text, start, at)), found)


def _replace_userinfo(text: str, found: Callable[[str], None]) -> str:
    def drop(matched: re.Match[str]) -> str:
        user, colon, password = matched[0][:-1].partition(":")
        held = password if colon else user
        if held != MASK:
            for spelt in dict.fromkeys((held, unquote(held))):
                found(spelt)
        return f"{MASK}@"

    def drop_bare(word: re.Match[str]) -> str:
        def unless_image(matched: re.Match[str]) -> str:
            is_image = _DIGEST.match(text, word.start() + matched.end())
            return matched[0] if is_image else drop(matched)

        return _BARE_USERINFO.sub(unless_image, word[0])

    if "@" not in text:
        return text
    text = _UP_TO_AT.sub(lambda word: _USERINFO.sub(drop, word[0]), text)
    return _UP_TO_AT.sub(drop_bare, text)


def _mask(text: str, spans: Iterable[_Span], found: Callable[[str], None]) -> str:
    """`text` with `MASK` in place of each span, which is given to `found` with what is in it."""
    parts, at = [], 0
    for start, end in sorted(spans):
        if start < at:
            continue
        if text[start:end] != MASK:
            for held in _list_held(text[start:end]):
                found(held)
        parts += [text[at:start], MASK]
        at = end
    return "".join((*parts, text[at:]))


def _list_held(value: str) -> Iterator[str]:
    """A value as it stands in a text, and what it has in quotes within brackets."""
    yield value
    if (properties := _PROPERTIES.match(f" {value}")) is not None:
        yield value[properties.end() - 1 :].lstrip(" \t\r\n|>+-\"'")
    if "%" in value and unquote(value) != value:
        yield unquote(value)
    if (nested := _NESTS.match(value)) is None:
        return
    for part in _NESTED.finditer(value, nested.end()):
        if part[0][0] in "\"'" and not value.startswith(":", _skip_space(value, part.end())):
            yield part[0][1:].removesuffix(part[0][0])


def _find_spans(
    text: str, entries: Iterable[_Entry], locate: Callable[[int, int], _Span]
) -> list[_Span]:
    """Where the values of credentials are, of those that stand behind their names.

    `locate` says where a value is, by where its name begins and what is behind it begins.
    """
    spans: list[_Span] = []
    done = 0
    is_waiting = is_named = False
    loose: int | None = None
    """Behind what a value is whose name may follow it."""
    for name, start, at in entries:
        if start < done:
            continue
        secret = is_secret(name) or _is_signature(text, name, start)
        kind = name.rpartition(".")[2].lower()
        if kind in _NAMING:
            is_waiting, is_named = _says_secret_name(text, at), True
            if is_waiting and loose is not None:
                earlier = _locate_before(text, loose, start)
                spans += earlier
                is_waiting = not earlier
            loose = None
        elif kind in _VALUED:
            secret = secret or is_waiting
            loose = None if secret or is_named else at
            is_waiting = is_named = False
        if secret:
            value = locate(start, at)
            if value[1] > value[0]:
                spans.append(value)
                done = value[1]
    return spans


def _is_signature(text: str, name: str, start: int) -> bool:
    return text[max(0, start - 1) : start] in ("?", "&") and bool(_SIGNED.search(name))


def _says_secret_name(text: str, at: int) -> bool:
    """Whether what stands at `at` is a credential's name."""
    at = _skip_space(text, at)
    opener = _OPENER.match(text, at)
    said = _A_NAME.match(text, opener.end() if opener else at)
    return said is not None and is_secret(said[0])


def _locate_before(text: str, at: int, name: int) -> list[_Span]:
    """Where the value is behind `at` in the same braces as its name, which begins at `name`."""
    between = text[at:name]
    span = _locate_short(between, 0)
    if span is None or _BRACE.search(between, span[1]):
        return []
    return [(at + span[0], at + span[1])]


def _find_pairs(text: str) -> list[_Span]:
    """Where the second of a pair is a credential, or what follows an option in a list."""
    spans: list[_Span] = []
    done = 0
    for pair in _PAIRED.finditer(text):
        name = pair[1] or pair[2]
        if pair.start() < done or name.lower() in _KEYS or not is_secret(name):
            continue
        span = _locate_short(text, pair.end())
        is_option = name.startswith("-") or pair[2] is not None
        if span is not None and (is_option or _PAIR_END.match(text, span[1])):
            spans.append(span)
            done = span[1]
    return spans


def _list_tags(text: str) -> tuple[list[_Entry], dict[int, int]]:
    """The names of XML's elements, and where each one's text ends by where it begins."""
    entries: list[_Entry] = []
    ends: dict[int, int] = {}
    opened: dict[str, _Span] = {}
    for tag in _TAG.finditer(text):
        name = tag[2]
        if not tag[1]:
            if not tag[0].endswith("/>"):
                opened.setdefault(name, (tag.start(), tag.end()))
        elif (begun := opened.pop(name, None)) is not None:
            entries.append((name.rpartition(":")[2], *begun))
            ends[begun[1]] = tag.start()
    return sorted(entries, key=lambda entry: entry[1]), ends


def _locate(text: str, start: int, at: int) -> _Span:
    """Where the value is that stands behind `at`, of a name that begins at `start`."""
    if (properties := _PROPERTIES.match(text, at)) is not None:
        begun, at = properties.start(1), properties.end()
        if (block := _locate_block(text, start, at)) is not None:
            return begun, max(at, block[1])
        return begun, at if _BLOCK.match(text, at) else _locate(text, start, at)[1]
    if (block := _locate_block(text, start, at)) is not None:
        return block
    if (short := _locate_short(text, at)) is not None:
        return short
    at = _skip_space(text, at)
    depth = 0
    for part in _NESTED.finditer(text, at):
        depth += (part[0] in "[{(") - (part[0] in ")}]")
        if not depth and part[0] in ")}]":
            return at, part.end()
    return at, len(text)


def _locate_short(text: str, at: int) -> _Span | None:
    """The same for a value in quotes or in one word; None for one in brackets."""
    at = _skip_space(text, at)
    if (opener := _OPENER.match(text, at)) is not None:
        return opener.end(), _find_quote(text, opener)
    if _NESTS.match(text, at) is not None:
        return None
    value = _BARE.match(text, at)
    return at, value.end() if value else at


def _find_quote(text: str, opener: re.Match[str]) -> int:
    """Where what `opener` quotes ends: with as many backslashes before the mark, or fewer."""
    depth, mark = len(opener[1]), opener[2]
    if not depth:
        quoted = _QUOTED[mark].match(text, opener.end())
        return quoted.end() if quoted else len(text)
    for quote in _QUOTES[mark].finditer(text, opener.end()):
        if len(quote[1]) <= depth:
            return quote.start()
    return len(text)


_MOST_SKIPPED = 30
"""Lines in a row, of comments or empty, between a name and its value: each name looks over them."""


def _locate_block(text: str, start: int, at: int) -> _Span | None:
    """YAML's value in lines below that of its name, further in than the name; None for none."""
    head = _BLOCK.match(text, at)
    if head is None:
        return None
    mark = head[2][-1:] if head[2].endswith("\n") else "\\n"
    bottom = text.find("\n", head.end()) if mark == "\\n" else len(text)
    bottom = len(text) if bottom < 0 else bottom
    near = max(0, start - _LONGEST_INDENTATION)
    ends = ((text.rfind(one, near, start), len(one)) for one in ("\n", mark))
    begun = max((last + size for last, size in ends if last >= 0), default=near)
    indentation = _INDENTATION.match(text, begun, start)
    column = len(indentation[0]) if indentation else 0
    end = at = head.end()
    skipped = 0
    while at < bottom and skipped < _MOST_SKIPPED:
        stop = text.find(mark, at, bottom)
        stop = bottom if stop < 0 else stop
        line = text[at:stop]
        words = line.lstrip(" \t")
        further = len(line) - len(words)
        is_item = words.startswith("- ") and not head[1]
        is_outside = further <= column - is_item
        if words and is_outside and not words.startswith("#"):
            break
        is_value = words != "" and not is_outside
        end, skipped = (stop, 0) if is_value else (end, skipped + 1)
        at = stop + len(mark)
    if end == head.end():
        return None
    return head.start(1) if head[1] else _skip_space(text, head.end()), end


def _skip_space(text: str, at: int) -> int:
    space = _SPACE.match(text, at)
    return space.end() if space else at
