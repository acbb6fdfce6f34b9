"""A short name for a set of facts: canonical JSON, hashed.

Three layers have a letter each: `b` what was built, `p` the path that serves, `x` what
it does. A name of facts that are not all known carries a tilde, so that a partial name
never equals a full one.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any, Literal

SCHEMA = "sd1"
"""Raised when the same facts would get another name."""

Layer = Literal["build", "path", "behaviour"]
LETTERS: dict[Layer, str] = {"build": "b", "path": "p", "behaviour": "x"}

_NAME = re.compile(rf"{SCHEMA}:([bpx])(~?)[0-9a-f]{{16}}")


def canonical(facts: Mapping[str, Any]) -> bytes:
    """The one spelling of `facts`: sorted keys, no spaces, UTF-8.

    What UTF-8 has no spelling for, half of a surrogate pair, is escaped as JSON does it.

    >>> canonical({"b": 1, "a": [2, None]})
    b'{"a":[2,null],"b":1}'
    """
    text = json.dumps(facts, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return text.encode("utf-8", "backslashreplace")


def fingerprint(layer: Layer, facts: Mapping[str, Any], *, partial: bool = False) -> str:
    """`sd1:`, the layer's letter and 16 hexadecimal digits of the facts' SHA-256.

    >>> fingerprint("path", {"k": 3})
    'sd1:p615b1dfe8431f944'
    >>> fingerprint("path", {"k": 3}, partial=True)
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
