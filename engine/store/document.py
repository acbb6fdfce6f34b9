"""JSON objects in the columns of the store."""

from __future__ import annotations

import json
from typing import Any


def parse_document(text: str) -> dict[str, Any]:
    """The object in a column; raises ValueError, of which a transaction says that it is the file's.

    >>> parse_document('{"k": 3}')
    {'k': 3}
    """
    try:
        found = json.loads(text)
    except RecursionError:
        raise ValueError("a document in it is nested too deeply") from None
    if not isinstance(found, dict):
        raise ValueError("a document in it is no JSON object")
    return found
