"""What is secret, by its name or within a value: the one rule for facts and variables.

A name that may be a credential's is one, unless the words beside it say that it counts,
or is part of a computation: a setting that is withheld costs a fact, a shown key more.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from urllib.parse import unquote

MASK = "***"
"""Stands where a credential stood."""


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_JOINED = re.compile(
    r"(api|access|secret|private|auth|admin|refresh|session|hf|ssh|ssl|tls|user|db|redis|root|key)"
    r"(keys?|tokens?|pass)"
)
_ALWAYS = re.compile(
    r"secret|passw(or)?d|passphrase|passcode|credential|authoriz|authentic|bearer|cookie"
    r"|^(o?auth\d?|creds?|pwd|jwt)$"
)
_QUALIFIED = _set(
    "api access admin auth private secret refresh session encryption signing master hf hub ssh"
    " ssl tls"
)
"""Before a key or a token these leave no doubt, whatever follows."""

_COUNTING = _set("max min num n total count size per avg")
_TOKEN_BEFORE = _COUNTING | _set(
    "bos eos pad unk sep cls mask eod eoi boi boa eoa image video audio vision start end begin"
    " first last next special stop ignore suppress noise draft drafting drafted speculative"
    " spec bad multi single input output prompt prefill decode encoder decoder batched scheduled"
    " queued lookahead alignment block chunk padding placeholder reasoning thinking think"
    " register soft blank cross inter intra budget cached computed added act class embed"
    " visual"
)
_TOKEN_AFTER = _COUNTING | _set(
    "id ids index indices threshold prob probs probability budget budgets tree type types limit"
    " length len delta dim embed dropout fraction ratio classification pooling parallel wise tensor"
    " mask block group granularity bias quant counts window"
)
_KEY_BEFORE = _set(
    "num max per quant cache sort query kv value att attn attention mm dict state tensor weight"
    " param lookup partition linear"
)
_KEY_AFTER = _set(
    "value values cache head heads dim dtype scale scales norm proj projection state states size"
    " bias multiplier query mask padding length len layout block quant quantization rotation group"
    " groups num prefix error"
)
_PASSES = _set(
    "pre post grad custom graph fx fusion inductor lowering forward backward prefill decode cat"
    " splits gemm pm normalization one two single multi first second"
)
"""Steps of a compilation or a model, beside which a pass is no password."""

_USERINFO = re.compile(r"(?<=://)(?:[^\s/?#]*|[^\s/:@]*:(?!\d+(?:[/?#]|$))\S*)@")
"""Also with a slash in the password, which a URL must not hold and some do."""
_UP_TO_AT = re.compile(r"(?<!\S)\S*@")
"""Where it can be: in vain it would be looked for to the end of the text behind every `://`."""

_BEARER = re.compile(r"\b(bearer\s+)[^\s\"',;]{6,}", re.IGNORECASE)
_NAMED = re.compile(r"(?<![A-Za-z0-9_.\-])([A-Za-z0-9_.\-]+)[\"']?\s*[=:](?!//)\s*[\"']?")
_BARE = re.compile(r"(?:(?:bearer|basic|token)\s+)?[^\s&;,\"'}\]]*", re.IGNORECASE)
_QUOTED = {
    '"': re.compile(r"(?:[^\"\\]|\\.)*+", re.DOTALL),
    "'": re.compile(r"(?:[^'\\]|\\.)*+", re.DOTALL),
}
_NESTED = re.compile(r"[\[\]{}()]|\"(?:[^\"\\]|\\.)*+\"?|'(?:[^'\\]|\\.)*+'?", re.DOTALL)
"""Brackets, and texts in which a bracket is none; one without an end takes all the rest."""


def is_secret(name: str) -> bool:
    """Whether what bears this name is a credential, in whatever case it is spelt.

    >>> [is_secret(name) for name in ("VLLM_API_KEYS", "accessToken", "passwd", "authorization")]
    [True, True, True, True]
    >>> names = ("max_tokens", "tokensPerBlock", "num_key_value_heads", "KeyError")
    >>> [is_secret(name) for name in names]
    [False, False, False, False]
    """
    words = tuple(_words(name))
    kinds = frozenset(words)
    return any(_is_secret(words, at, kinds) for at in range(len(words)))


def redact(text: str) -> str:
    """`text` without the credentials in it: of a URL, after a name, of a header.

    >>> redact("redis://user:pw@cache:6379"), redact("max_tokens=5")
    ('redis://***@cache:6379', 'max_tokens=5')
    >>> redact("https://hub/x?api_key=s&k=5")
    'https://hub/x?api_key=***&k=5'
    >>> redact("{'secrets': [{'a': 'x]'}, 'y'], 'k': 5}")
    "{'secrets': ***, 'k': 5}"
    """
    return _replace(text, lambda _: None)


def find_secrets(name: str, value: object) -> Iterator[str]:
    """The credentials within `value`, which bears `name`, as text.

    >>> list(find_secrets("kv_transfer_config", {"extra": [{"redis_password": "pw"}], "k": 5}))
    ['pw']
    >>> list(find_secrets("endpoint", "http://me:p%40w@collector:4317/?api_key=s"))
    ['p%40w', 'p@w', 's']
    """
    if isinstance(value, Mapping):
        secret = is_secret(name)
        for key, held in value.items():
            yield from find_secrets(name if secret else str(key), held)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from find_secrets(name, item)
    elif value is not None and value != "" and not isinstance(value, bool):
        if is_secret(name):
            yield str(value)
        elif isinstance(value, str):
            found: list[str] = []
            _replace(value, found.append)
            yield from found


def drop_secrets(environment: Mapping[str, str], *, keep: Iterable[str] = ()) -> dict[str, str]:
    """The variables of `environment` for a child that needs no credential but those to `keep`.

    Another thread may change `environment` meanwhile.

    >>> drop_secrets({"HOME": "/", "SPECDECK_ADMIN_TOKEN": "s", "SPECDECK_WEBHOOK": "https://h"})
    {'HOME': '/'}
    """
    kept = frozenset(keep)
    return {
        name: value
        for name in list(environment)
        if name in kept or not (is_secret(name) or "webhook" in _words(name))
        if (value := environment.get(name)) is not None
    }


def _find_end(text: str, at: int, before: str) -> int:
    """Where the value ends that begins at `at`, behind `before`: a quote has a quoted one."""
    if (quoted := _QUOTED.get(before)) is None and text[at : at + 1] in ("[", "{", "("):
        depth = 0
        for part in _NESTED.finditer(text, at):
            depth += (part[0] in "[{(") - (part[0] in ")}]")
            if not depth:
                return part.end()
        return len(text)
    value = (quoted or _BARE).match(text, at)
    return value.end() if value else at


def _replace(text: str, found: Callable[[str], None]) -> str:
    """`text` without the credentials in it, each of which is given to `found`."""

    def drop_userinfo(matched: re.Match[str]) -> str:
        user, colon, password = matched[0][:-1].partition(":")
        held = password if colon else user
        for spelt in dict.fromkeys((held, unquote(held))):
            found(spelt)
        return f"{MASK}@"

    def drop_bearer(matched: re.Match[str]) -> str:
        found(matched[0][len(matched[1]) :])
        return f"{matched[1]}{MASK}"

    text = _UP_TO_AT.sub(lambda matched: _USERINFO.sub(drop_userinfo, matched[0]), text)
    text = _BEARER.sub(drop_bearer, text)
    parts, at = [], 0
    for named in _NAMED.finditer(text):
        if named.start() < at or not is_secret(named[1]):
            continue
        if (end := _find_end(text, named.end(), named[0][-1])) > named.end():
            found(text[named.end() : end])
            parts += [text[at : named.end()], MASK]
            at = end
    return "".join((*parts, text[at:]))


def contains_secret(name: str, value: object) -> bool:
    """Whether there is a credential anywhere within `value`, which bears `name`.

    >>> contains_secret("kv_transfer_config", {"extra": [{"redis_password": "pw"}]})
    True
    >>> contains_secret("otlp_traces_endpoint", "http://me:pw@collector:4317")
    True
    >>> contains_secret("hf_overrides", {"max_tokens": 5, "password": None})
    False
    """
    if isinstance(value, Mapping):
        secret = is_secret(name)
        return any(contains_secret(name if secret else str(k), v) for k, v in value.items())
    if isinstance(value, list | tuple):
        return any(contains_secret(name, item) for item in value)
    if value is None or value == "" or isinstance(value, bool):
        return False
    return is_secret(name) or (isinstance(value, str) and redact(value) != value)


def _words(name: str) -> Iterator[str]:
    for part in re.split(r"[^A-Za-z0-9]+", _CAMEL.sub("_", name)):
        joined = _JOINED.fullmatch(part.lower())
        yield from joined.groups() if joined else (part.lower(),) if part else ()


def _is_secret(words: tuple[str, ...], at: int, kinds: frozenset[str]) -> bool:
    """Whether the word at `at` is a credential's; `kinds` are all of them, each once."""
    word = words[at]
    before = words[at - 1] if at else ""
    after = words[at + 1] if at + 1 < len(words) else ""
    if word == "pass":
        return after in ("", "file", "env", "value") and _PASSES.isdisjoint(kinds)
    if word in ("key", "keys"):
        known = before in _KEY_BEFORE or after in _KEY_AFTER
    elif word in ("token", "tokens"):
        counted = word == "tokens" and not _COUNTING.isdisjoint(kinds)
        known = counted or before in _TOKEN_BEFORE or after in _TOKEN_AFTER
    else:
        return bool(_ALWAYS.search(word))
    return before in _QUALIFIED or not known
