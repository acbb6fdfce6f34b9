"""Rewrites a document in today's spelling and says what it did."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from specdeck.engine.config.config import Notice
from specdeck.engine.config.document import Document, Keys, shown
from specdeck.engine.config.methods import FIXED_K, method_of
from specdeck.engine.config.spellings import (
    ABSORBED,
    ALWAYS_MOVED,
    DTYPES,
    GONE,
    MOVED,
    SPECULATIVE,
)

_BLOCKS = (SPECULATIVE, "orchestration", "sampling", "alerts", "attach", "deepen", "fingerprint")
_WIDEST_BATCH = 1024
"""The end of a schedule's last tier; vLLM cuts it to max_num_seqs."""


@dataclass(slots=True)
class _Rewriting:
    """A document while it changes; the values of the one it came from are left alone."""

    document: Document
    notices: list[Notice] = field(default_factory=list)

    @property
    def data(self) -> dict[str, Any]:
        return self.document.data

    def note(self, keys: Keys, text: str) -> None:
        self.notices.append(Notice(self.document.where(*keys), text))

    def has(self, keys: Keys) -> bool:
        block = self.data if len(keys) == 1 else self.data.get(keys[0])
        return isinstance(block, dict) and keys[-1] in block

    def take(self, keys: Keys) -> object:
        block = self.data if len(keys) == 1 else self.data[keys[0]]
        return block.pop(keys[-1])

    def move(self, old: Keys, new: Keys) -> None:
        """Puts the value of `old` at `new`; two different values there are an error."""
        line = self.document.lines.get(old)
        value = self.take(old)
        block: Any = self.data
        if len(new) == 2:
            if self.data.get(new[0]) is None:
                self.data[new[0]] = {}
                self.document.lines.setdefault(new[:1], line or 1)
            block = self.data[new[0]]
        if not isinstance(block, dict):
            return  # the block itself is wrong and is refused as such
        if block.get(new[-1], value) != value:
            message = f"`{'.'.join(old)}` and `{'.'.join(new)}` differ"
            raise self.document.error(old, message, "keep one of them")
        block[new[-1]] = value
        if line is not None:
            self.document.lines[new] = line
        for keys in [k for k in self.document.lines if k[: len(old)] == old and k != old]:
            self.document.lines[(*new, *keys[len(old) :])] = self.document.lines[keys]


def translated(document: Document, accepted: Collection[str]) -> tuple[Document, list[Notice]]:
    """`document` as today's vLLM and specdeck spell it, and a notice for each change.

    `accepted` are vLLM's engine arguments. Keys that mean nothing stay as they are.
    """
    data = {
        key: dict(value) if isinstance(value, dict) else value
        for key, value in document.data.items()
    }
    work = _Rewriting(Document(document.path, data, dict(document.lines)))
    _read_json(work)
    _snake_case(work)
    _moved(work, accepted)
    _gone(work, accepted)
    _batch_size_limit(work)
    _older_values(work, accepted)
    return work.document, work.notices


def _read_json(work: _Rewriting) -> None:
    """vLLM takes speculative_config as JSON text as well."""
    text = work.data.get(SPECULATIVE)
    if not isinstance(text, str):
        return
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return
    if isinstance(value, dict):
        work.data[SPECULATIVE] = value


def _snake_case(work: _Rewriting) -> None:
    """The spelling of vLLM's command line, `tensor-parallel-size`."""
    for key in [key for key in work.data if "-" in key]:
        _underscored(work, (key,))
    for name in _BLOCKS:
        block = work.data.get(name)
        for key in [key for key in block if "-" in key] if isinstance(block, dict) else ():
            _underscored(work, (name, key))


def _underscored(work: _Rewriting, keys: Keys) -> None:
    snake = keys[-1].strip("-").replace("-", "_")
    if not snake:
        return
    work.note(keys, f"`{keys[-1]}` is read as `{snake}`")
    work.move(keys, (*keys[:-1], snake))


def _moved(work: _Rewriting, accepted: Collection[str]) -> None:
    for old, new in ABSORBED.items():
        if work.has(old):
            work.note(old, f"`{'.'.join(old)}` is read as `{'.'.join(new)}`")
            _absorb(work, old, new)
    for name, new in MOVED.items():
        if work.has((name,)) and (name not in accepted or name in ALWAYS_MOVED):
            work.note((name,), f"`{name}` is read as `{'.'.join(new)}`")
            work.move((name,), new)
    speculative = work.data.get(SPECULATIVE)
    if isinstance(speculative, dict) and speculative.get("model") == "[ngram]":
        work.note((SPECULATIVE, "model"), "the model `[ngram]` is read as `method: ngram`")
        del speculative["model"]
        speculative.setdefault("method", "ngram")


def _absorb(work: _Rewriting, old: Keys, new: Keys) -> None:
    """Moves a value, or each value of a block, so that a block there already is kept."""
    value = work.data[old[0]][old[1]]
    if not isinstance(value, dict) or not work.has(new):
        work.move(old, new)
        return
    del work.data[old[0]][old[1]]
    into = work.data[new[0]]
    if not isinstance(into, dict):
        return
    for key, item in value.items():
        if into.setdefault(key, item) != item:
            message = f"`{key}` differs from the one in `{'.'.join(new)}`"
            raise work.document.error((*old, key), message, "keep one of them")
        work.document.lines.setdefault((*new, key), work.document.lines.get((*old, key), 1))


def _gone(work: _Rewriting, accepted: Collection[str]) -> None:
    for keys, reason in GONE.items():
        if work.has(keys) and not (len(keys) == 1 and keys[0] in accepted):
            work.note(keys, f"`{'.'.join(keys)}` is left out: {reason}")
            work.take(keys)


def _batch_size_limit(work: _Rewriting) -> None:
    """`disable_by_batch_size` as a schedule with no drafts in larger batches."""
    keys = (SPECULATIVE, "disable_by_batch_size")
    if not work.has(keys):
        return
    limit, speculative = work.take(keys), work.data[SPECULATIVE]
    k, schedule = speculative.get("num_speculative_tokens"), "num_speculative_tokens_per_batch_size"
    whole = all(type(number) is int and number > 0 for number in (limit, k))
    if limit is None or not whole or schedule in speculative or method_of(speculative) in FIXED_K:
        text = f"`{keys[1]}: {shown(limit)}` is left out: this vLLM cannot do it here"
        work.note(keys, text)
        return
    tiers = [[1, limit, k], [limit + 1, max(_WIDEST_BATCH, limit + 1), 0]]  # type: ignore[operator]  # whole above
    speculative[schedule] = tiers
    work.document.lines[(SPECULATIVE, schedule)] = work.document.lines.get(keys, 1)
    work.note(keys, f"`{keys[1]}: {limit}` is read as `{schedule}: {json.dumps(tiers)}`")


def _older_values(work: _Rewriting, accepted: Collection[str]) -> None:
    dtype = work.data.get("dtype")
    if isinstance(dtype, str) and dtype in DTYPES:
        work.note(("dtype",), f"`{dtype}` is read as `{DTYPES[dtype]}`")
        work.data["dtype"] = DTYPES[dtype]
    ray = ("worker_use_ray",)
    if work.has(ray) and ray[0] not in accepted:
        if work.data[ray[0]] is True:
            work.note(ray, "`worker_use_ray` is read as `distributed_executor_backend: ray`")
            work.data[ray[0]] = "ray"
            work.move(ray, ("distributed_executor_backend",))
        elif work.take(ray) is False:
            work.note(ray, "`worker_use_ray: false` is left out: it is the default")
