"""A short name for a set of facts: canonical JSON, hashed.

Three layers have a letter each: `b` what was built, `p` the path that serves, `x` what
it does. A name of facts that are not all known carries a tilde, so that a partial name
never equals a full one.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any, Literal

from specdeck.engine.fingerprint.digest import canonical

SCHEMA = "sd1"
"""Raised when the same facts would get another name."""

Layer = Literal["build", "path", "behaviour"]
LETTERS: dict[Layer, str] = {"build": "b", "path": "p", "behaviour": "x"}
FACTS_OF_FILES = "model, runtime"
"""What is named as unknown where all that is read from files could not be."""

_NAME = re.compile(rf"{SCHEMA}:([bpx])(~?)[0-9a-f]{{16}}")
_PIN = re.compile(r"\+k([0-9]{1,9})$")


def compute_name(layer: Layer, facts: Mapping[str, Any], *, partial: bool = False) -> str:
    """`sd1:`, the layer's letter and 16 hexadecimal digits of the facts' SHA-256.

    >>> compute_name("path", {"k": 3})
    'sd1:p615b1dfe8431f944'
    >>> compute_name("path", {"k": 3}, partial=True)
    'sd1:p~615b1dfe8431f944'
    """
    mark = "~" if partial else ""
    return f"{SCHEMA}:{LETTERS[layer]}{mark}{hashlib.sha256(canonical(facts)).hexdigest()[:16]}"


def layer_of(name: str) -> Layer | None:
    """The layer that a name is of; None for what is no name of this schema.

    >>> layer_of("sd1:p~0123456789abcdef"), layer_of("vllm-0.32.0-09d54272")
    ('path', None)
    """
    found = _NAME.fullmatch(name)
    if found is None:
        return None
    return next(layer for layer, letter in LETTERS.items() if letter == found[1])


def is_partial(name: str) -> bool:
    """Whether a name stands for facts that are not all known.

    >>> is_partial("sd1:b~0123456789abcdef"), is_partial("sd1:b0123456789abcdef")
    (True, False)
    """
    found = _NAME.fullmatch(name)
    return found is not None and found[2] == "~"


def is_whole(name: str | None) -> bool:
    """Whether it is known and stands for all facts: a partial one is the same for other weights.

    >>> is_whole("sd1:b0123456789abcdef"), is_whole("sd1:b~0123456789abcdef"), is_whole(None)
    (True, False, False)
    """
    return name is not None and not is_partial(name)


def compute_names(facts: Mapping[str, Any], *, partial: bool) -> tuple[str, str]:
    """Build and path as they follow from a tree of facts.

    >>> facts = {"engine": {"vllm": "0.32.0"}, "live": {"k": 3}}
    >>> compute_names(facts, partial=False) == compute_names(facts, partial=False)
    True
    """
    lasting = {name: value for name, value in facts.items() if name != "live"}
    build = compute_name("build", lasting, partial=partial)
    live = {"build": build, "live": facts.get("live", {})}
    return build, compute_name("path", live, partial=partial)


def is_name(expected: str) -> bool:
    """Whether `expected` is a name, alone or behind vLLM's own, and not a file.

    >>> is_name("sd1:p0123456789abcdef"), is_name("pins/prod.json")
    (True, False)
    >>> is_name("sd1:p0123456789abcdef+k0"), is_name("sd1:p0123456789abcdef+kx")
    (True, False)
    """
    _, pinned, k = expected.partition("+k")
    return layer_of(own_part(expected)) is not None and (not pinned or k.isdecimal())


def own_part(name: str) -> str:
    """specdeck's part of a system_fingerprint, without the k of a pinned request.

    >>> own_part("vllm-0.32.0-09d54272-sd1:p0123456789abcdef")
    'sd1:p0123456789abcdef'
    """
    whole = name.partition("+k")[0]
    head, mark, tail = whole.rpartition("-sd1:")
    return f"sd1:{tail}" if mark and head else whole


def pinned_k(name: str | None) -> int | None:
    """The k that an answer's request was pinned to, by its system_fingerprint; None of no pin.

    >>> pinned_k("vllm-0.32.0-sd1:p0123456789abcdef+k0"), pinned_k("sd1:p0123456789abcdef+k3")
    (0, 3)
    >>> pinned_k("vllm-0.32.0"), pinned_k("a+kb"), pinned_k(None)
    (None, None, None)
    """
    found = _PIN.search(name or "")
    return int(found[1]) if found else None
