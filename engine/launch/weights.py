"""Where a model's files lie and how large its weights are."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

_HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")
_WEIGHTS = ("*.safetensors", "*.bin", "*.pt", "*.gguf")
_POINTER = b"version https://git-lfs"


def is_hub_name(model: str) -> bool:
    """Whether `model` can be a name on the Hugging Face hub, and not a path.

    >>> is_hub_name("meta-llama/Llama-3-8B"), is_hub_name("/models/a"), is_hub_name("a/b/c")
    (True, False, False)
    """
    return _HUB_NAME.fullmatch(model) is not None


def offline(environment: Mapping[str, str]) -> bool:
    """Whether the engine will not ask the hub."""
    names = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
    return any(environment.get(name, "").lower() in ("1", "true", "yes", "on") for name in names)


def cached(model: str, environment: Mapping[str, str]) -> Path | None:
    """The newest snapshot of a hub model in the local cache; None when there is none."""
    home = environment.get("HF_HOME") or "~/.cache/huggingface"
    hub = Path(environment.get("HF_HUB_CACHE") or f"{home}/hub").expanduser()
    folder = hub / f"models--{model.replace('/', '--')}" / "snapshots"
    try:
        found = [p for p in folder.iterdir() if (p / "config.json").is_file()]
    except OSError:
        return None
    return max(found, key=lambda p: p.stat().st_mtime, default=None)


def size(folder: Path) -> int | None:
    """Bytes of the weights in `folder`; None when it holds none.

    Only one format counts: a folder often has the same weights twice.
    """
    for pattern in _WEIGHTS:
        files = list(folder.glob(pattern))
        if files:
            return sum(file.stat().st_size for file in files)
    return None


def pointer(folder: Path) -> Path | None:
    """A weights file that is only a Git LFS pointer, as a clone without LFS leaves it."""
    for pattern in _WEIGHTS:
        for file in sorted(folder.glob(pattern)):
            with file.open("rb") as stream:
                if stream.read(len(_POINTER)) == _POINTER:
                    return file
    return None
