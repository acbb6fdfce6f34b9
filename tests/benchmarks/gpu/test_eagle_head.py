"""The EAGLE head that the program makes of the demo's target."""

import json
from pathlib import Path

from benchmarks.gpu.eagle_head import write_head
from benchmarks.gpu.variants import MODELS

from specdeck.engine.demo.deepen import read


def test_it_has_the_weights_of_one_layer_without_its_first_norm(tmp_path: Path) -> None:
    folder = write_head(MODELS / "target", tmp_path / "head")
    weights = read(folder / "model.safetensors")
    layers = {name for name in weights if name.startswith("layers.")}
    assert layers
    assert all(name.startswith("layers.0.") for name in layers)
    assert not any("input_layernorm" in name for name in layers)
    assert json.loads((folder / "config.json").read_text())["num_hidden_layers"] == 1


def test_its_fc_passes_the_embedding_on(tmp_path: Path) -> None:
    weights = read(write_head(MODELS / "target", tmp_path / "head") / "model.safetensors")
    fc, width = weights["fc.weight"], weights["embed_tokens.weight"].shape[1]
    assert fc.shape == (width, 2 * width)
    rows = [fc.content[at : at + 4 * width] for at in range(0, len(fc.content), 4 * width)]
    for number, row in enumerate(rows):
        ones = [at // 2 for at in range(0, len(row), 2) if row[at : at + 2] != b"\0\0"]
        assert ones == [number]
