"""What no command may do, whatever an engine, a file or a terminal does to it."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from pathlib import Path

TOKEN = "planted-token-0c5b1f77"
KEY = "planted-key-9ad24e10"
KEY_VARIABLE = "PLANTED_KEY"
SECRETS = {"SPECDECK_ADMIN_TOKEN": TOKEN, KEY_VARIABLE: KEY}
"""Variables of a command's environment."""

CODES = (0, 1, 2, 3, 130)
_LINES = {"\n", "\t"}
_OVERRIDES = set("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u2028\u2029")


def assert_harmless(
    code: int, out: str, err: str, *, files: Iterable[Path] = (), is_traced: bool = False
) -> None:
    """A documented exit code, no traceback, no secret, and no character that a terminal obeys."""
    said = out + err
    assert code in CODES, f"exit code {code}: {err[-2000:]}"
    assert is_traced or "Traceback" not in said, said[-4000:]
    for secret in (TOKEN, KEY):
        assert secret not in said
        for path in files:
            assert secret.encode() not in path.read_bytes(), path
    assert not (found := obeyed(said)), f"{found!r} in {said[:2000]!r}"


def obeyed(text: str) -> str:
    """The characters of `text` that a terminal, or a reader's eye, would obey."""
    return "".join(
        sorted(c for c in set(text) - _LINES if unicodedata.category(c) == "Cc" or c in _OVERRIDES)
    )


def files_under(*folders: Path) -> list[Path]:
    """Every file in the folders."""
    return [path for folder in folders for path in folder.rglob("*") if path.is_file()]
