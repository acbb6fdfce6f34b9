"""Makes a small Llama deeper without changing what it computes.

A block whose output projections are zero adds nothing to the residual stream, so the deeper model
gives the same logits; each of its passes costs more, as a large target's does. Standard library
only: the console deepens without loading torch.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specdeck.engine.files import open_file, read_file
from specdeck.engine.scratch import scratch_folder

SILENT = ("self_attn.o_proj.weight", "mlp.down_proj.weight")
"""The projections that write a block's result to the residual stream."""
RECEIPT = "deepened.json"
_FORM = 2
"""Raised where the same source makes another folder; what was made before is made anew."""
_WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".gguf")
"""Ends of names of what is made anew, or would be the same weights once more."""
_LARGEST_CONFIG = 4_000_000
"""Bytes of a config.json."""


@dataclass(frozen=True, slots=True)
class Weight:
    """One tensor of a safetensors file, as bytes."""

    dtype: str
    shape: tuple[int, ...]
    content: bytes


def digest(source: Path) -> str:
    """The SHA-256 of every file in a model folder, names included."""
    total = hashlib.sha256()
    for path in sorted(p for p in source.iterdir() if p.is_file()):
        total.update(path.name.encode() + b"\0")
        total.update(hashlib.sha256(path.read_bytes()).digest())
    return total.hexdigest()


def read(path: Path) -> dict[str, Weight]:
    """The tensors of a safetensors file."""
    with open_file(path) as file:
        data = file.read()
    (length,) = struct.unpack_from("<Q", data)
    header = json.loads(data[8 : 8 + length])
    body = memoryview(data)[8 + length :]
    return {
        name: Weight(
            entry["dtype"],
            tuple(entry["shape"]),
            bytes(body[entry["data_offsets"][0] : entry["data_offsets"][1]]),
        )
        for name, entry in header.items()
        if name != "__metadata__"
    }


def write(weights: dict[str, Weight], path: Path) -> None:
    """Write a safetensors file of the tensors, in the order given."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name, weight in weights.items():
        end = offset + len(weight.content)
        shape = list(weight.shape)
        header[name] = {"dtype": weight.dtype, "shape": shape, "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # the format wants the tensors aligned to eight bytes
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.writelines(weight.content for weight in weights.values())


def with_silent_blocks(weights: dict[str, Weight], layers: int) -> dict[str, Weight]:
    """The tensors of a model of `layers` layers that computes the same function.

    >>> small = {f"model.layers.0.mlp.{part}_proj.weight": Weight("BF16", (1,), b"ab")
    ...          for part in ("up", "down")}
    >>> for name, weight in with_silent_blocks(small, 2).items():
    ...     print(name, weight.content)
    model.layers.0.mlp.up_proj.weight b'ab'
    model.layers.0.mlp.down_proj.weight b'ab'
    model.layers.1.mlp.up_proj.weight b'ab'
    model.layers.1.mlp.down_proj.weight b'\\x00\\x00'
    """
    numbers = [int(n[1]) for name in weights if (n := re.match(r"model\.layers\.(\d+)\.", name))]
    last = max(numbers, default=-1)
    if last < 0:
        raise ValueError("no layers in the weights: not a Llama model")
    if layers <= last:
        raise ValueError(f"the model has {last + 1} layers, {layers} are fewer")
    prefix = f"model.layers.{last}."
    deeper = dict(weights)
    for layer in range(last + 1, layers):
        for name, weight in weights.items():
            if not name.startswith(prefix):
                continue
            part = name.removeprefix(prefix)
            silent = Weight(weight.dtype, weight.shape, bytes(len(weight.content)))
            deeper[f"model.layers.{layer}.{part}"] = silent if part in SILENT else weight
    return deeper


def deepen_model(source: Path, layers: int, destination: Path) -> Path:
    """The model folder `destination`: `source` with `layers` layers, made if it is not there yet.

    A folder made from the same files is used as it is. The new folder appears whole or not at all,
    so a start that was killed half-way leaves nothing that could be mistaken for a model.
    """
    receipt = {"source_sha256": digest(source), "layers": layers, "form": _FORM}
    if _receipt(destination) == receipt:
        return destination
    destination.parent.mkdir(parents=True, exist_ok=True)
    with scratch_folder(f".{destination.name}", destination.parent) as made:
        _fill(made, source, layers)
        (made / RECEIPT).write_text(json.dumps(receipt) + "\n", encoding="utf-8")
        made.chmod(0o755)
        _put(made, destination, receipt)
    return destination


def _receipt(folder: Path) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = json.loads((folder / RECEIPT).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found


def _fill(folder: Path, source: Path, layers: int) -> None:
    for path in source.iterdir():
        if path.is_file() and path.suffix not in _WEIGHTS:
            shutil.copyfile(path, folder / path.name)
    config = json.loads(read_file(source / "config.json", most=_LARGEST_CONFIG))
    text = json.dumps(config | {"num_hidden_layers": layers}, indent=2)
    (folder / "config.json").write_text(text + "\n", encoding="utf-8")
    weights = with_silent_blocks(read(source / "model.safetensors"), layers)
    write(weights, folder / "model.safetensors")


def _put(made: Path, destination: Path, receipt: dict[str, Any]) -> None:
    """Move the finished folder into place; a stale one goes, an equal one that won a race stays."""
    if destination.exists():
        with scratch_folder(f".{destination.name}", destination.parent) as stale:
            os.replace(destination, stale / "stale")
    try:
        os.rename(made, destination)
    except OSError:
        if _receipt(destination) != receipt:
            raise
