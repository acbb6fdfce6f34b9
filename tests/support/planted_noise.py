"""An engine whose logits move as rounding moves them on a GPU, for the check's truths.

A general plugin of vLLM, as any distribution could bring one along: this file alone, copied to
where the engine finds it, so that it imports the standard library and what the engine has. While
the file that NOISE names is there, the target's logits are noisy, of one of three kinds:

    repeat SIZE [SHARE]   another noise in every row of every step
    shape SIZE [SHARE]    one noise for each number of rows in the step, to the next power of two,
                          by which GPU kernels are chosen and to which graphs are padded
    batch SIZE [SHARE]    one noise for each set of prompts in the step
    none 0 [SHARE]        no noise

SIZE is the standard deviation in the logit. SHARE of the prompts are answered wrongly, the same
ones each time: drafts are accepted there that the target puts SURE behind its own choice.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal
from zlib import crc32

Kind = Literal["repeat", "shape", "batch"]
KINDS: tuple[Kind, ...] = ("repeat", "shape", "batch")
SURE = 1.5
"""A logit's distance that no rounding makes."""
_VARIABLE = "NOISE"
_DRAWS = 1 << 20
"""Numbers that noise is taken from, from a place that what it depends on decides."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What the file asks for.

    >>> Plan.parse("shape 0.02 0.05")
    Plan(kind='shape', size=0.02, share=0.05)
    >>> Plan.parse("repeat 0.02").line()
    'repeat 0.02 0.0'
    """

    kind: str = "none"
    size: float = 0.0
    share: float = 0.0

    @classmethod
    def parse(cls, text: str) -> Plan:
        """What a line says."""
        kind, size, *share = text.split()
        return cls(kind, float(size), float(share[0]) if share else 0.0)

    def line(self) -> str:
        """What to write into the file."""
        return f"{self.kind} {self.size} {self.share}"


def install_plugin(folder: Path) -> Path:
    """Puts the plugin into `folder`, which PYTHONPATH must name; what to set NOISE to."""
    shutil.copy(__file__, folder / "planted_noise.py")
    about = folder / "planted_noise-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: planted_noise\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(
        "[vllm.general_plugins]\nplanted_noise = planted_noise:register\n"
    )
    return folder / "noise"


def is_wrong(prompt: Sequence[int], share: float) -> bool:
    """Whether a prompt is one of the `share` that is answered wrongly."""
    return crc32(repr(list(prompt)).encode()) < share * 2**32


def round_up(rows: int) -> int:
    """To the next power of two.

    >>> [round_up(rows) for rows in (1, 7, 8, 9)]
    [1, 8, 8, 16]
    """
    return 1 << (rows - 1).bit_length()


@dataclass(slots=True)
class Step:
    """What a step of the scheduler has in it."""

    number: int = 0
    rows: int = 0
    """Tokens of all requests."""
    prompts: list[Sequence[int]] = field(default_factory=list)

    def keys(self, kind: str, rows: int) -> list[int]:
        """What noise of a kind depends on in some rows, beside what each of them computes."""
        if kind == "repeat":
            return [self.number << 16 | row for row in range(rows)]
        if kind == "shape":
            return [round_up(self.rows)] * rows
        return [crc32(repr(sorted(list(one) for one in self.prompts)).encode())] * rows


@lru_cache
def _draws(kind: Literal["rand", "randn"]) -> Any:
    import torch

    generator = torch.Generator().manual_seed(13)
    return getattr(torch, kind)(_DRAWS, generator=generator)


def _take(kind: Literal["rand", "randn"], seeds: Sequence[int], width: int) -> Any:
    import torch

    drawn = _draws(kind)
    starts = [seed % (_DRAWS - width) for seed in seeds]
    return torch.stack([drawn[start : start + width] for start in starts])


def add_noise(logits: Any, computed: Any, keys: Sequence[int], size: float) -> Any:
    """`logits` as they would be rounded, had noise of a `size` come in before.

    The noise of a row is that of its key and of what it is `computed` from. What it has lost in
    rounding is unknown here, so it is made up, the same for what is `computed` alike: without
    noise every logit stays what it is.
    """
    import torch

    values, rows = logits.float(), [crc32(row.tobytes()) for row in _bytes(computed)]
    width = values.shape[-1]
    if logits.dtype != torch.float32:
        digits = {torch.bfloat16: 8, torch.float16: 11}[logits.dtype]
        part, power = torch.frexp(values)
        # Below a power of two the numbers lie twice as close.
        power = power - digits - (part.abs() == 0.5).int()
        lost = torch.ldexp(0.98 * (_take("rand", rows, width) - 0.5), power)
        values = values + lost * (values != 0)
    seeds = [crc32(f"{key} {row}".encode()) for key, row in zip(keys, rows, strict=True)]
    return (values + size * _take("randn", seeds, width)).to(logits.dtype)


def _bytes(computed: Any) -> Any:
    """The rows of a tensor as their bytes."""
    import torch

    return computed.detach().contiguous().view(torch.uint8).numpy()


class PlantedNoise:
    """The noise and the defect of one engine."""

    def __init__(self, file: str) -> None:
        self._file = Path(file)
        self._line = ""
        self._plan = Plan()
        self.step = Step()

    @property
    def plan(self) -> Plan:
        """What the file asks for now."""
        try:
            line = self._file.read_text()
        except OSError:
            return Plan()
        if line != self._line and line.strip():
            self._line, self._plan = line, Plan.parse(line)
        return self._plan

    def begin_step(self, rows: int) -> None:
        """Takes in that a step begins."""
        self.step = Step(self.step.number + 1, rows)

    def distort(self, logits: Any, computed: Any, prompts: list[Sequence[int]]) -> Any:
        """The logits of some rows of the step, in which are `prompts`."""
        plan = self.plan
        if logits is None or not len(logits) or not plan.size:
            return logits
        self.step.prompts = prompts
        return add_noise(logits, computed, self.step.keys(plan.kind, len(logits)), plan.size)

    def accept(self, logits: Any, drafts: Any, owners: Sequence[Sequence[int]]) -> Any:
        """Which `drafts` are accepted though they are wrong; `owners` are their prompts."""
        import torch

        share = self.plan.share
        wrong = torch.tensor([is_wrong(one, share) for one in owners], dtype=torch.bool)
        if not wrong.any():
            return wrong
        values, own = logits.float(), drafts.long().unsqueeze(1)
        gaps = values.max(dim=-1).values - values.gather(1, own).squeeze(1)
        return wrong & (gaps >= SURE)


def register() -> None:
    """Has the engine's target and its verification go through the noise."""
    file = os.environ.get(_VARIABLE)
    if not file:
        return
    from vllm.utils import cpu_triton_utils as kernels
    from vllm.v1.sample.rejection_sampler import RejectionSampler
    from vllm.v1.worker.cpu_model_runner import CPUModelRunner as Runner

    if hasattr(Runner, "planted_noise"):
        return
    planted = PlantedNoise(file)
    Runner.planted_noise = planted
    _wrap_target(Runner, planted)
    _wrap_verification(Runner, RejectionSampler, kernels, planted)


def _wrap_target(runner: Any, planted: PlantedNoise) -> None:
    load, execute = runner.load_model, runner.execute_model

    def load_model(self: Any, *args: Any, **kwargs: Any) -> None:
        load(self, *args, **kwargs)
        compute = self.model.compute_logits

        def compute_noisy(hidden: Any, *args: Any, **kwargs: Any) -> Any:
            logits = compute(hidden, *args, **kwargs)
            prompts = [self.requests[name].prompt_token_ids for name in self.input_batch.req_ids]
            return planted.distort(logits, hidden, prompts)

        self.model.compute_logits = compute_noisy

    def execute_model(self: Any, scheduled: Any, *args: Any, **kwargs: Any) -> Any:
        planted.begin_step(scheduled.total_num_scheduled_tokens)
        return execute(self, scheduled, *args, **kwargs)

    runner.load_model, runner.execute_model = load_model, execute_model


def _wrap_verification(runner: Any, sampler: Any, kernels: Any, planted: PlantedNoise) -> None:
    sample: Callable[..., Any] = runner._sample
    forward, verify = sampler.forward, kernels._rejection_greedy_sample_kernel_impl
    owners: list[Sequence[int]] = []
    accepted: list[Any] = []

    def note_owners(self: Any, logits: Any, metadata: Any, *args: Any, **kwargs: Any) -> Any:
        owners.clear()
        if metadata is not None:
            names = self.input_batch.req_ids
            for name, count in zip(names, metadata.num_draft_tokens, strict=False):
                owners.extend([self.requests[name].prompt_token_ids] * count)
        return sample(self, logits, metadata, *args, **kwargs)

    def note_accepted(
        self: Any, metadata: Any, probs: Any, logits: Any, *args: Any, **kwargs: Any
    ) -> Any:
        drafts, rows = metadata.draft_token_ids, metadata.target_logits_indices
        accepted[:] = [planted.accept(logits[rows], drafts, owners)] if len(owners) else []
        return forward(self, metadata, probs, logits, *args, **kwargs)

    def accept_wrong(
        output: Any, cumulated: Any, drafts: Any, argmax: Any, *args: Any, **kwargs: Any
    ) -> Any:
        if accepted and len(accepted[0]) == len(drafts):
            argmax = argmax.where(~accepted[0], drafts.to(argmax.dtype))
        return verify(output, cumulated, drafts, argmax, *args, **kwargs)

    runner._sample, sampler.forward = note_owners, note_accepted
    kernels._rejection_greedy_sample_kernel_impl = accept_wrong
