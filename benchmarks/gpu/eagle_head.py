"""An EAGLE head for the demo's target: the shape of one, made of the target's own weights.

It drafts little that is accepted; what is counted is how often it runs. Standard library only.
"""

from __future__ import annotations

import json
import shutil
import struct
from pathlib import Path

from specdeck.engine.demo.deepen import Weight, read, write

_LAYER = "model.layers.0."


def build_head(target: dict[str, Weight], width: int) -> dict[str, Weight]:
    """The weights of a one-layer head: the target's first layer behind the embedding alone.

    vLLM's head has no norm before its first layer, and joins embedding and hidden state by
    `fc`, which passes the embedding on here.
    """
    head = {
        name.removeprefix("model."): weight
        for name, weight in target.items()
        if name.startswith(_LAYER) and "input_layernorm" not in name
    }
    head["embed_tokens.weight"] = target["model.embed_tokens.weight"]
    one = struct.pack("<f", 1.0)[2:]  # bfloat16 is the upper half of float32
    rows = (bytes(2 * row) + one + bytes(2 * (2 * width - row - 1)) for row in range(width))
    head["fc.weight"] = Weight("BF16", (width, 2 * width), b"".join(rows))
    return head


def write_head(target: Path, folder: Path) -> Path:
    """Writes a head for the model in `target` into `folder`, unless it is there; the folder."""
    if (folder / "model.safetensors").exists():
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    for path in target.glob("*.json"):
        shutil.copyfile(path, folder / path.name)
    config = json.loads((target / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"num_hidden_layers": 1}, indent=2))
    head = build_head(read(target / "model.safetensors"), config["hidden_size"])
    write(head, folder / "model.safetensors")
    return folder
