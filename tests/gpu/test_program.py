"""The whole of `python -m benchmarks.gpu` on CUDA, a page of its own; `-m gpu` selects it."""

from __future__ import annotations

from pathlib import Path

from benchmarks.gpu import __main__ as program
from benchmarks.gpu.machine import find_gpu


def test_every_part_comes_to_its_end(tmp_path: Path) -> None:
    assert find_gpu() is not None, "vLLM's build is for the CPU: nothing was tested"
    page = tmp_path / "GPU.md"
    assert program.main(["--page", str(page), "--keep", str(tmp_path)]) == 0, page.read_text()
