"""Where a model's weights lie, and what its small files say.

The standard library only: it runs in a process beside the engine.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from specdeck.engine.fingerprint.digest import canonical

_FORMATS = ("*.safetensors", "*.gguf", "*.bin", "*.pt", "*.pth")
"""In the order of vLLM's preference: a folder often has the same weights twice."""

_NO_WEIGHTS = frozenset({"training_args.bin", "optimizer.bin", "scheduler.bin", "optimizer.pt"})
_NAMELESS = ("_name_or_path", "transformers_version")
"""Keys of a config.json that say where it came from and not what it is."""

_FORMAT = frozenset({"version"})
"""What in a tokenizer.json says how it is written and not what it does."""

_SPECIAL = ("bos_token", "eos_token", "unk_token", "pad_token", "add_bos_token", "add_eos_token",
            "tokenizer_class", "additional_special_tokens", "added_tokens_decoder", "legacy",
            "add_prefix_space", "split_special_tokens", "clean_up_tokenization_spaces",
            "do_lower_case", "truncation_side")  # fmt: skip
_SLOW = (("vocab", "vocab.json"), ("merges", "merges.txt"))
_BESIDE = (("model", "tokenizer.model"), ("tekken", "tekken.json"))
"""Read by some of vLLM's tokenizer modes although there is a tokenizer.json."""


def folder(model: str, revision: str | None, environment: Mapping[str, str]) -> Path | None:
    """Where the files of a model lie on this machine; None when they do not.

    A name on the Hugging Face hub is looked up in the local cache, never asked for.
    """
    path = Path(model).expanduser()
    if path.exists():
        return path
    home = environment.get("HF_HOME") or "~/.cache/huggingface"
    hub = Path(environment.get("HF_HUB_CACHE") or f"{home}/hub").expanduser()
    cached = hub / f"models--{model.replace('/', '--')}"
    wanted = revision or "main"
    try:
        commit = (cached / "refs" / wanted).read_text(encoding="utf-8").strip()
    except OSError:
        commit = wanted  # a commit is no ref
    found = cached / "snapshots" / commit
    return found if found.is_dir() else None


def weights(where: Path) -> list[Path]:
    """The files that hold the weights in `where`, a folder or the one file itself."""
    if where.is_file():
        return [where]
    for pattern in _FORMATS:
        found = sorted(p for p in where.glob(pattern) if _is_weights(p))
        if found:
            return found
    return []


def _is_weights(path: Path) -> bool:
    """A link that leads nowhere is one: that it cannot be read has to be told."""
    return path.name not in _NO_WEIGHTS and not path.is_dir()


def shape(where: Path) -> str | None:
    """A digest of config.json without what only names it; None where there is none."""
    data = _json(where / "config.json")
    if data is None:
        return None
    return _digest({key: value for key, value in data.items() if key not in _NAMELESS})


def sampling(where: Path) -> dict[str, Any]:
    """generation_config.json without what only names it: the model's own defaults."""
    data = _json(where / "generation_config.json") or {}
    return {key: value for key, value in data.items() if key not in _NAMELESS}


def tokenizer(where: Path) -> dict[str, str | None]:
    """Digests of a tokenizer's parts, None for a part that it has not.

    Raises OSError or ValueError for a file that is there and cannot be read.
    """
    settings = _json(where / "tokenizer_config.json") or {}
    found: dict[str, str | None] = {
        "special": _digest({key: settings.get(key) for key in _SPECIAL}),
        "chat_template": _template(where, settings),
    }
    fast = _json(where / "tokenizer.json")
    if fast is not None:
        found |= _fast(fast)
    for part, name in _BESIDE if fast is not None else (*_SLOW, *_BESIDE):
        path = where / name
        if path.is_file():
            found[part] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def _fast(document: Mapping[str, Any]) -> dict[str, str | None]:
    """A tokenizer.json in three parts, which together are the whole of it."""
    model = document.get("model")
    parts = model if isinstance(model, dict) else {}
    rest = {key: value for key, value in document.items() if key not in _FORMAT}
    if parts:
        rest["model"] = {k: v for k, v in parts.items() if k not in ("vocab", "merges")}
    return {
        "vocab": _digest({"vocab": parts.get("vocab")}),
        "merges": _digest({"merges": parts.get("merges")}),
        "rules": _digest(rest),
    }


def _template(where: Path, settings: Mapping[str, Any]) -> str | None:
    apart = where / "chat_template.jinja"
    text = apart.read_text(encoding="utf-8") if apart.is_file() else settings.get("chat_template")
    return None if text is None else _digest({"template": text})


def _json(path: Path) -> dict[str, Any] | None:
    if not path.is_file():
        return None
    data = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(data, dict):
        raise ValueError(f"{path.name} holds no JSON object")
    return data


def _digest(value: Mapping[str, Any]) -> str:
    return hashlib.sha256(canonical(value)).hexdigest()


def cache_file(environment: Mapping[str, str]) -> Path:
    """Where digests are remembered: specdeck's cache folder in the standard library's words.

    >>> cache_file({"XDG_CACHE_HOME": "/c"}).as_posix()
    '/c/specdeck/digests.json'
    """
    if home := environment.get("SPECDECK_HOME"):
        return Path(os.path.abspath(Path(home).expanduser())) / "cache" / "digests.json"
    given = environment.get("XDG_CACHE_HOME")
    root = Path(given) if given else Path.home() / ".cache"
    return root / "specdeck" / "digests.json"
