"""A short name for a set of facts: canonical JSON, hashed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

SCHEMA = "sd1"
"""Raised when the same facts would get another name."""


def canonical(facts: Mapping[str, Any]) -> bytes:
    """The one spelling of `facts`: sorted keys, no spaces, UTF-8.

    >>> canonical({"b": 1, "a": [2, None]})
    b'{"a":[2,null],"b":1}'
    """
    return json.dumps(facts, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def fingerprint(facts: Mapping[str, Any]) -> str:
    """`sd1:` and the first 16 hexadecimal digits of the facts' SHA-256.

    >>> fingerprint({"k": 3}) == fingerprint({"k": 4})
    False
    """
    return f"{SCHEMA}:{hashlib.sha256(canonical(facts)).hexdigest()[:16]}"
