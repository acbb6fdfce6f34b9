"""The noise that is planted in a real engine is what it says, and none of it is there at size 0."""

from collections.abc import Sequence
from importlib.metadata import distributions
from pathlib import Path

import pytest
import torch
from tests.support.planted_noise import (
    KINDS,
    SURE,
    PlantedNoise,
    Step,
    add_noise,
    install_plugin,
    is_wrong,
)

PROMPTS: list[Sequence[int]] = [[1, 2, 3], [4, 5]]


def logits(dtype: torch.dtype, rows: int = 64) -> torch.Tensor:
    drawn = torch.randn(rows, 2048, generator=torch.Generator().manual_seed(1)) * 6
    drawn[:, :3] = torch.tensor([8.0, 0.0, -16.0])
    return drawn.to(dtype)


@pytest.fixture
def planted(tmp_path: Path) -> PlantedNoise:
    return PlantedNoise(str(tmp_path / "noise"))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_noise_of_no_size_changes_no_logit(dtype: torch.dtype) -> None:
    plain = logits(dtype)
    assert torch.equal(add_noise(plain, plain, [7] * 64, 0.0), plain)


def test_noise_rounds_to_the_format_of_the_logits_as_often_as_its_size_has_it() -> None:
    plain = torch.full((64, 2048), 10.0, dtype=torch.bfloat16)
    noisy = add_noise(plain, torch.arange(64).unsqueeze(1), [7] * 64, 0.01)
    assert noisy.dtype == torch.bfloat16
    steps = (noisy.float() - plain.float()) / 0.0625
    assert torch.equal(steps, steps.round())
    # Of a uniform remainder, a shift d changes the rounding in |d| / spacing of the cases.
    expected = 0.01 * 0.798 / 0.0625
    assert float((steps != 0).float().mean()) == pytest.approx(expected, rel=0.1)


def test_noise_is_the_same_for_the_same_and_another_for_others() -> None:
    plain = logits(torch.float32)
    once = add_noise(plain, plain, [7] * 64, 0.01)
    assert torch.equal(once, add_noise(plain, plain, [7] * 64, 0.01))
    apart = (once - add_noise(plain, plain, [8] * 64, 0.01)).std()
    assert float(apart) == pytest.approx(0.01 * 2**0.5, rel=0.05)
    assert torch.equal(add_noise(plain[5:6], plain[5:6], [7], 0.01), once[5:6])


def test_each_kind_depends_on_what_it_is_named_after() -> None:
    def key(
        kind: str, number: int = 1, rows: int = 8, prompts: Sequence[Sequence[int]] = PROMPTS
    ) -> int:
        (found,) = Step(number, rows, list(prompts)).keys(kind, 1)
        return found

    others, more = [PROMPTS[0], [4, 6]], [*PROMPTS, [9]]
    changed = {
        kind: (
            key(kind) != key(kind, number=2),
            key(kind) != key(kind, rows=9),
            key(kind) != key(kind, prompts=others) and key(kind) != key(kind, prompts=more),
        )
        for kind in KINDS
    }
    assert changed == {
        "repeat": (True, False, False),
        "shape": (False, True, False),
        "batch": (False, False, True),
    }
    assert [len(set(Step(1, 8, PROMPTS).keys(kind, 3))) for kind in KINDS] == [3, 1, 1]
    assert key("shape", rows=5) == key("shape", rows=8)
    assert key("batch", prompts=PROMPTS[::-1]) == key("batch")


def test_without_its_file_the_engine_is_as_it_is(planted: PlantedNoise, tmp_path: Path) -> None:
    plain = logits(torch.bfloat16)
    assert planted.distort(plain, plain, PROMPTS) is plain
    (tmp_path / "noise").write_text("repeat 0.05")
    planted.begin_step(8)
    once = planted.distort(plain, plain, PROMPTS)
    planted.begin_step(8)
    assert not torch.equal(once, planted.distort(plain, plain, PROMPTS))
    (tmp_path / "noise").unlink()
    assert planted.distort(plain, plain, PROMPTS) is plain


def test_a_share_of_prompts_has_drafts_accepted_that_the_target_is_sure_are_wrong(
    planted: PlantedNoise, tmp_path: Path
) -> None:
    wrong = next([n] for n in range(1000) if is_wrong([n], 0.02))
    right = next([n] for n in range(1000) if not is_wrong([n], 0.02))
    rows = torch.tensor([[5.0, 5.0 - SURE, 4.9], [5.0, 5.0 - SURE, 4.9], [5.0, 1.0, 4.9]])
    drafts = torch.tensor([1, 2, 1])
    assert not planted.accept(rows, drafts, [wrong, wrong, right]).any()
    (tmp_path / "noise").write_text("none 0 0.02")
    assert planted.accept(rows, drafts, [wrong, wrong, right]).tolist() == [True, False, False]
    share = sum(is_wrong([n, n + 1], 0.02) for n in range(20_000)) / 20_000
    assert share == pytest.approx(0.02, rel=0.15)


def test_the_plugin_is_one_that_vllm_finds(tmp_path: Path) -> None:
    assert install_plugin(tmp_path) == tmp_path / "noise"
    (found,) = distributions(path=[str(tmp_path)])
    (point,) = found.entry_points
    assert (point.group, point.value) == ("vllm.general_plugins", "planted_noise:register")
    assert (tmp_path / "planted_noise.py").exists()
