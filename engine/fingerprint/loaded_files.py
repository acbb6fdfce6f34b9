"""The small files beside weights and tokenizer.json that loading a model reads: code that comes
with it, settings of processors and of quantization, vocabularies of other forms.

The standard library only: it runs in a process beside the engine.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from specdeck.engine.fingerprint.sources import BESIDE, SLOW, read_object

_MOST_CODE: Final = 1_000
"""Files of code; a model has fewer than ten."""

_SETTINGS = ("*.json", "*.txt", "additional_chat_templates/*", "*_Pooling/config.json",
             "*_Dense/config.json", "*.tiktoken", "*.model", "*.model.v*", "*.spm", "*.tokenizer",
             "*.vocab", "vocab.*", "bpe.codes")  # fmt: skip
"""What vLLM and transformers may read: a model's class names files of its own."""
_NO_SETTINGS = re.compile(
    r"""\..*|(config|generation_config|tokenizer|tokenizer_config|trainer_state|training_args
    |deepened)\.json
    |.*_results\.json|(read.?me|licen[cs]e|notice|copying|requirements|use_policy).*\.txt""",
    re.IGNORECASE | re.VERBOSE,
)
"""Of these what has facts of its own, and what nothing but people and trainers read."""
_WITH_AUTO_MAP = ("config.json", "tokenizer_config.json", "*processor*.json")
"""What may name classes of remote code."""
_APART = frozenset(name for _, name in BESIDE)
"""Parts of a tokenizer's own facts."""
_SLOW_APART = frozenset(name for _, name in SLOW)
"""The same where there is no tokenizer.json."""

Find = Callable[[str], Path | None]
"""Where another repository of the hub lies on this machine; None where it does not."""


def list_settings(where: Path) -> dict[str, Path]:
    """Files of settings and vocabularies in the folder `where`, by their place in it."""
    apart = _APART if (where / "tokenizer.json").exists() else _APART | _SLOW_APART
    found = (path for pattern in _SETTINGS for path in where.glob(pattern))
    return {
        path.relative_to(where).as_posix(): path
        for path in sorted(found)
        if path.name not in apart
        and not path.is_dir()
        and not (path.parent == where and _NO_SETTINGS.fullmatch(path.name))
    }


def list_code(where: Path, find: Find) -> dict[str, Path | None]:
    """Python files that come with the model in `where`, by their place in it.

    Those of other repositories that its settings name stand under the repository's name; None for
    a repository that is not on this machine. Raises OSError or ValueError where one cannot tell.
    """
    found: dict[str, Path | None] = dict(_list_python(where))
    for repository in sorted(_name_repositories(where)):
        there = find(repository)
        if there is None:
            found[repository] = None
            continue
        found |= {f"{repository}/{name}": path for name, path in _list_python(there).items()}
    return found


def _list_python(where: Path) -> dict[str, Path]:
    found: dict[str, Path] = {}
    for path in where.rglob("*.py"):
        place = path.relative_to(where)
        # A hidden folder is no package; in one a volume of Kubernetes keeps what it links to.
        if path.is_dir() or any(part.startswith(".") for part in place.parts):
            continue
        if len(found) == _MOST_CODE:
            raise ValueError(f"it has more than {_MOST_CODE} files of code")
        found[place.as_posix()] = path
    return dict(sorted(found.items()))


def _name_repositories(where: Path) -> set[str]:
    """`org/name` of every `org/name--module.Class` in an auto_map.

    https://huggingface.co/docs/transformers/custom_models has the form.
    """
    files = (path for pattern in _WITH_AUTO_MAP for path in where.glob(pattern))
    mapped = ((read_object(path) or {}).get("auto_map") for path in files)
    names = (name for one in mapped for name in _list_texts(one))
    return {name.split("--")[0] for name in names if "--" in name}


def _list_texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for one in value.values():
            yield from _list_texts(one)
    elif isinstance(value, list):
        for one in value:
            yield from _list_texts(one)
