"""A model's files on this machine: where they lie, how large they are, which tokens they have."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from specdeck.engine.files import open_file, read_file
from specdeck.engine.hub_cache import find_hub_cache, name_folder

_HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")
_WEIGHTS = ("*.safetensors", "*.bin", "*.pt", "*.gguf")
_POINTER = b"version https://git-lfs"
_LARGEST_CONFIG = 4_000_000
"""Bytes of a config.json."""
_LARGEST_TOKENIZER = 64_000_000
"""Bytes of a tokenizer's file: the largest there are have 40 MB."""


def is_hub_name(model: str) -> bool:
    """Whether `model` can be a name on the Hugging Face hub, and not a path.

    >>> is_hub_name("meta-llama/Llama-3-8B"), is_hub_name("/models/a"), is_hub_name("a/b/c")
    (True, False, False)
    """
    return _HUB_NAME.fullmatch(model) is not None


def is_offline(environment: Mapping[str, str]) -> bool:
    """Whether the engine will not ask the hub."""
    names = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
    return any(environment.get(name, "").lower() in ("1", "true", "yes", "on") for name in names)


def find_cached(model: str, environment: Mapping[str, str]) -> Path | None:
    """The newest snapshot of a hub model in the local cache; None when there is none."""
    folder = find_hub_cache(environment) / name_folder(model) / "snapshots"
    try:
        found = [p for p in folder.iterdir() if (p / "config.json").is_file()]
    except OSError:
        return None
    return max(found, key=lambda p: p.stat().st_mtime, default=None)


def weights_size(folder: Path) -> int | None:
    """Bytes of the weights in `folder`; None when it holds none.

    Only one format counts: a folder often has the same weights twice.
    """
    for pattern in _WEIGHTS:
        if files := _list_files(folder, pattern):
            return sum(file.stat().st_size for file in files)
    return None


def find_lfs_pointer(folder: Path) -> Path | None:
    """A weights file that is only a Git LFS pointer, as a clone without LFS leaves it."""
    for pattern in _WEIGHTS:
        for file in _list_files(folder, pattern):
            with open_file(file) as stream:
                if stream.read(len(_POINTER)) == _POINTER:
                    return file
    return None


def _list_files(folder: Path, pattern: str) -> list[Path]:
    """Regular files, links to them included: from a pipe there are no weights to be read."""
    return sorted(path for path in folder.glob(pattern) if path.is_file())


class Unreadable(ValueError):
    """A tokenizer that is not in a form that is read here; the text says why."""


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """A tokenizer's tokens and merges."""

    source: str
    """The file's name."""
    tokens: dict[int, str] | None = field(repr=False, default=None)
    """Id to token; None for a binary model, of which only the checksum is known."""
    merges: tuple[str, ...] | None = field(repr=False, default=None)
    """BPE merges in order; None where the tokenizer has none."""
    checksum: str = ""
    """sha256 of tokens and merges, or of the binary file."""


def read_vocabulary(folder: Path) -> Vocabulary | None:
    """The vocabulary in a model's folder; None when it holds no tokenizer.

    Raises Unreadable when a file is there and makes no sense.
    """
    try:
        if (path := folder / "tokenizer.json").is_file():
            return _from_tokenizer(path)
        if (path := folder / "vocab.json").is_file():
            return _from_pair(path, folder / "merges.txt")
        if (path := folder / "tokenizer.model").is_file():
            data = read_file(path, most=_LARGEST_TOKENIZER)
            return Vocabulary(path.name, checksum=hashlib.sha256(data).hexdigest())
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise Unreadable(f"{path} cannot be read as a tokenizer: {shorten(error)}") from error
    return None


def shorten(error: Exception) -> str:
    """An exception's text, cut to what fits into one line of an operator's terminal."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= 100 else text[:99] + "…"


def _from_tokenizer(path: Path) -> Vocabulary:
    data = json.loads(_read_text(path))
    model = data["model"]
    vocab = model["vocab"]
    pairs: Iterable[tuple[str, int]] = (
        vocab.items() if isinstance(vocab, dict) else ((t[0], i) for i, t in enumerate(vocab))
    )
    tokens = {int(number): str(token) for token, number in pairs}
    tokens |= {int(t["id"]): str(t["content"]) for t in data.get("added_tokens") or ()}
    return _make_vocabulary(path.name, tokens, model.get("merges"))


def _from_pair(vocab: Path, merges: Path) -> Vocabulary:
    tokens = {int(n): str(t) for t, n in json.loads(_read_text(vocab)).items()}
    lines = _read_text(merges).splitlines() if merges.is_file() else None
    if lines is not None:
        lines = [line for line in lines if line and not line.startswith("#version")]
    return _make_vocabulary(vocab.name, tokens, lines)


def _read_text(path: Path) -> str:
    return read_file(path, most=_LARGEST_TOKENIZER).decode("utf-8")


def _make_vocabulary(source: str, tokens: dict[int, str], merges: list[Any] | None) -> Vocabulary:
    joined = None
    if merges is not None:
        joined = tuple(m if isinstance(m, str) else " ".join(m) for m in merges)
    content = json.dumps([sorted(tokens.items()), joined])
    return Vocabulary(source, tokens, joined, hashlib.sha256(content.encode()).hexdigest())


def difference(target: Vocabulary, draft: Vocabulary) -> str | None:
    """The first thing in which they differ, in words; None when they are the same.

    Raises Unreadable when only one of the two can be looked into.

    >>> difference(Vocabulary("a", {0: "the"}), Vocabulary("b", {0: "The"}, None, "x"))
    "token 0 is 'the' in the target and 'The' in the draft"
    """
    if target.checksum == draft.checksum:
        return None
    if target.tokens is None or draft.tokens is None:
        if target.tokens is None and draft.tokens is None:
            return f"{target.source} has another checksum than the draft's {draft.source}"
        raise Unreadable(f"{target.source} and {draft.source} cannot be compared")
    for number in sorted(target.tokens.keys() | draft.tokens.keys()):
        ours, theirs = target.tokens.get(number), draft.tokens.get(number)
        if ours != theirs:
            said = f"is {_quote_token(ours)} in the target and {_quote_token(theirs)} in the draft"
            return f"token {number} {said}"
    for rank, (ours, theirs) in enumerate(
        zip(target.merges or (), draft.merges or (), strict=False)
    ):
        if ours != theirs:
            return f"merge {rank} is {ours!r} in the target and {theirs!r} in the draft"
    counts = [len(v.merges) if v.merges is not None else 0 for v in (target, draft)]
    return f"the target has {counts[0]} merges and the draft {counts[1]}"


def _quote_token(token: str | None) -> str:
    return "missing" if token is None else repr(token)[:60]


def vocab_size(folder: Path) -> int | None:
    """`vocab_size` of a model's config.json; None where it does not say."""
    try:
        config = json.loads(read_file(folder / "config.json", most=_LARGEST_CONFIG).decode("utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(config, dict):
        return None
    text = config.get("text_config")
    size = config.get("vocab_size") or (text.get("vocab_size") if isinstance(text, dict) else None)
    return size if type(size) is int else None
