"""Which names are a credential's: the one rule for facts, arguments and variables.

A name that may be a credential's is one, unless the words beside it say that it counts,
or is part of a computation: a setting that is withheld costs a fact, a shown key more.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_BETWEEN_WORDS = re.compile(r"[^A-Za-z0-9]+")
_UNSEEN = ("Cf", "Mn")
"""Characters of no width and accents."""
_COMPOUND = re.compile(r"(\w{2,}?)(keys?|tokens?|pass|pw)")
"""Two words in one, as in `redispass`: the words before it are what they are beside it."""
_NO_COMPOUND = _set(
    "monkey donkey turkey hockey jockey whiskey lackey hotkey rekey rekeys fromkeys skipkeys cmpkey"
    " dispatchkey tiktoken qpertoken bypass compass surpass trespass encompass overpass underpass"
    " getpass"
)
_ALWAYS = re.compile(
    r"secret|pass?w(or|r)?[dt]|passphrase|passcode|credential|authoriz|authentic|bearer|cookie"
    r"|(api|access|account|admin|auth|encryption|master|private|refresh|session|shared|signing)"
    r"(key|token)"
    r"|kennwort|motdepasse|contrasena|wachtwoord"
    r"|(auth|creds|jwt|psk|pwd|pswd)$|^(cred|pkey|psw)$"
)
_QUALIFIED = _set(
    "api access account admin auth private secret refresh session encryption shared signing master"
    " hf hub ssh ssl tls"
)
"""Before a key or a token these leave no doubt, whatever follows."""

_COUNTING = _set("max min num n total count size per avg")
_TOKEN_BEFORE = _COUNTING | _set(
    "bos eos pad unk sep cls mask eod eoi boi boa eoa image video audio vision start end begin"
    " first last next special stop ignore suppress noise draft drafting drafted speculative"
    " spec bad multi single input output prompt prefill decode encoder decoder batched scheduled"
    " queued lookahead alignment block chunk padding placeholder reasoning thinking think"
    " register soft blank cross inter intra budget cached computed added act class embed"
    " visual sub fas return completion generated generation accepted rejected sampled bonus"
    " proposed"
)
_TOKEN_AFTER = _COUNTING | _set(
    "id ids index indices threshold prob probs probability budget budgets tree type types limit"
    " length len delta dim embed dropout fraction ratio classification pooling parallel wise tensor"
    " mask block group granularity bias quant counts window wav only"
)
_KEY_BEFORE = _set(
    "num max per quant cache sort query kv value att attn attention mm dict state tensor weight"
    " param lookup partition linear bias"
)
_KEY_AFTER = _set(
    "value values cache head heads dim dtype scale scales norm proj projection state states size"
    " bias multiplier query mask padding length len layout block quant quantization rotation group"
    " groups num prefix error"
)
_PASSES = _set(
    "pre post grad custom graph fx fusion inductor lowering forward backward prefill decode cat"
    " splits gemm pm normalization functionalization one two single multi first second"
    " low high band cse sub surrogate"
)
"""Steps of a compilation or a model, beside which a pass is no password."""
_WORD_OF_PASS = re.compile(r"wo?r?d|phrase|code")
_HOLDS_PASS = _set("file env value")
_POINTWISE = _COUNTING | _set("conv dw cast op red split norm")
"""Beside these, `pw` is a pointwise operation."""

_FOLDERS = frozenset({"PWD", "OLDPWD"})
"""Where a shell keeps its working folders."""


def is_secret(name: str) -> bool:
    """Whether what bears this name is a credential, in whatever case it is spelt.

    >>> [is_secret(name) for name in ("VLLM_API_KEYS", "accessToken", "passwd", "authorization")]
    [True, True, True, True]
    >>> [is_secret(name) for name in ("redis_pw", "requirepass", "masterauth", "idtoken", "token1")]
    [True, True, True, True, True]
    >>> names = ("max_tokens", "tokensPerBlock", "num_key_value_heads", "KeyError")
    >>> [is_secret(name) for name in names]
    [False, False, False, False]
    """
    words = tuple(_words(name))
    kinds = frozenset(words)
    return any(_is_secret(words, at, kinds) for at in range(len(words)))


def is_secret_variable(name: str) -> bool:
    """The same for a variable of the environment.

    >>> names = ("HF_TOKEN", "PWD", "OLDPWD", "REDIS_PWD", "SLACK_WEBHOOK_URL")
    >>> [is_secret_variable(name) for name in names]
    [True, False, False, True, True]
    """
    return name not in _FOLDERS and is_secret(name)


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
        if name in kept or not is_secret_variable(name)
        if (value := environment.get(name)) is not None
    }


def list_secrets(environment: Mapping[str, str]) -> tuple[str, ...]:
    """The values of variables whose name says that they are secret.

    Another thread may change `environment` meanwhile.

    >>> list_secrets({"HF_TOKEN": "abc-def-ghi", "VLLM_MAX_TOKENS": "100000000"})
    ('abc-def-ghi',)
    """
    return tuple(
        value
        for name in list(environment)
        if is_secret_variable(name) and (value := environment.get(name))
    )


def _words(name: str) -> Iterator[str]:
    """The words of a name in small letters, without the numbers at their ends."""
    if not name.isascii():
        spelt = unicodedata.normalize("NFKD", name)
        name = "".join(one for one in spelt if unicodedata.category(one) not in _UNSEEN)
    for part in _BETWEEN_WORDS.split(_CAMEL.sub("_", name)):
        word = part.lower().rstrip("0123456789")
        compound = None if word in _NO_COMPOUND else _COMPOUND.fullmatch(word)
        yield from compound.groups() if compound else (word,) if word else ()


def _is_secret(words: tuple[str, ...], at: int, kinds: frozenset[str]) -> bool:
    """Whether the word at `at` is a credential's; `kinds` are all of them, each once."""
    word = words[at]
    before = words[at - 1] if at else ""
    after = words[at + 1] if at + 1 < len(words) else ""
    if word == "pass":
        if _WORD_OF_PASS.match(after):
            return True
        return (not after or after in _HOLDS_PASS) and _PASSES.isdisjoint(kinds)
    if word == "pw":
        return (not after or after in _HOLDS_PASS) and _POINTWISE.isdisjoint(kinds)
    if (word == "headers" and "otlp" in kinds) or (before, word) == ("honeycomb", "team"):
        return True  # what an exporter of traces shows itself with
    if word.endswith(("webhook", "webhooks")):
        return after != "env"  # who knows the URL may post to it; the name of a variable is none
    if word in ("key", "keys"):
        known = before in _KEY_BEFORE or after in _KEY_AFTER
    elif word in ("token", "tokens"):
        counted = word == "tokens" and not _COUNTING.isdisjoint(kinds)
        known = counted or before in _TOKEN_BEFORE or after in _TOKEN_AFTER
    else:
        return bool(_ALWAYS.search(word))
    return before in _QUALIFIED or not known
