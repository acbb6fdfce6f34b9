"""Keeps secrets, and what would open the engine to anyone, out of configs."""

from __future__ import annotations

from collections.abc import Mapping

from specdeck.engine.config.document import Document

_WORDS = frozenset({"KEY", "TOKEN", "SECRET", "PASSWORD", "PASSWD", "CREDENTIAL", "CREDENTIALS"})
_POINTERS = frozenset({"FILE", "PATH", "ENV", "NAME", "DIR"})
"""A variable that ends so only says where a secret lies."""

DEV_MODE = "VLLM_SERVER_DEV_MODE"


def secret(name: str) -> bool:
    """Whether a variable of this name holds a secret.

    >>> [n for n in ("HF_TOKEN", "TOKENIZERS_PARALLELISM", "KEY_FILE", "AWS_KEY_ID") if secret(n)]
    ['HF_TOKEN', 'AWS_KEY_ID']
    """
    words = name.upper().split("_")
    return not _WORDS.isdisjoint(words) and words[-1] not in _POINTERS


def check_environment(document: Document, environment: Mapping[str, str]) -> None:
    """ConfigError for a variable that must not stand in a config."""
    for name in environment:
        keys = ("environment", name)
        if not name or "=" in name:
            raise document.error(keys, f"`{name}` cannot be a variable's name")
        if secret(name):
            raise document.error(
                keys,
                f"`{name}` looks like a secret in a file",
                "leave it out and set it where specdeck is started: the engine inherits it",
            )
        if name == DEV_MODE:
            raise document.error(
                keys, f"`{name}` lets anyone run code in the engine", "leave it out"
            )
