"""Single changes of what a fingerprint is made of, for the table of what each one moves.

Each is made on vLLM's real configuration and on a copy of the shipped models, in one process
and without starting an engine.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from specdeck.engine.fingerprint.compare import PathVerdict
from specdeck.engine.fingerprint.digest import Digests
from specdeck.engine.fingerprint.fingerprint import Fingerprint
from specdeck.engine.fingerprint.gather import Gatherer
from specdeck.engine.fingerprint.name import compute_names
from specdeck.engine.fingerprint.sources import text, version
from specdeck.engine.plugin.engine import Build
from specdeck.engine.plugin.fingerprint import config_facts, sources, system_fingerprint

MODELS = Path(__file__).parents[1] / "sample_configs" / "models"
DRIVER = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  {}\n"
LIVE = {"k": 6, "mode": "speculate", "fallback": None, "policy": "fixed"}


@dataclass
class Setup:
    """Everything an engine's fingerprint is made of, to be changed in one place."""

    folder: Path
    arguments: dict[str, Any] = field(default_factory=dict)
    speculative: dict[str, Any] = field(default_factory=dict)
    live: dict[str, Any] = field(default_factory=lambda: dict(LIVE))
    environment: dict[str, str] = field(default_factory=dict)
    driver: str = "570.86.15"
    versions: dict[str, str] = field(default_factory=dict)

    def build_fingerprint(self) -> Fingerprint:
        """The fingerprint of an engine that were started so."""
        from vllm import __version__
        from vllm.engine.arg_utils import EngineArgs
        from vllm.usage.usage_lib import UsageContext

        with variables(self.environment):
            config = EngineArgs(**self._arguments()).create_engine_config(
                UsageContext.OPENAI_API_SERVER
            )
            build = Build(__version__, "demo", "draft_model", "V1", self.live["k"])
            known = config_facts(config, build)
            own = system_fingerprint(config)
        gatherer = Gatherer(
            Digests(None),
            {},
            text=lambda path: DRIVER.format(self.driver) if "nvidia" in path else text(path),
            version=lambda package: self.versions.get(package) or version(package),
        )
        libraries = sorted(map(str, self.folder.rglob("*.so")))
        read = gatherer.gather({**sources(config), "libraries": libraries})
        assert not read["unread"], read["unread"]
        tree = {**known, "model": read["model"], "runtime": read["runtime"]}
        tree["live"] = dict(self.live)
        build_name, path = compute_names(tree, partial=False)
        return Fingerprint(0.0, "table", build_name, path, tree, (), own)

    def _arguments(self) -> dict[str, Any]:
        speculative = {
            "method": "draft_model",
            "model": str(self.folder / "draft"),
            "num_speculative_tokens": 6,
        }
        return {
            "model": str(self.folder / "target"),
            "dtype": "bfloat16",
            "max_model_len": 1024,
            "max_num_seqs": 32,
            "block_size": 32,
            "enforce_eager": True,
            **self.arguments,
            "speculative_config": _whole(self.speculative, speculative),
        }


def _whole(given: Mapping[str, Any], base: Mapping[str, Any]) -> dict[str, Any]:
    """`given` over `base`; a method of its own needs no draft model."""
    kept = {} if given.get("method") == "ngram" else dict(base)
    return {"num_speculative_tokens": 6, **kept, **given}


Change = Callable[[Setup], None]


@dataclass(frozen=True)
class Row:
    """One change, and what it should be called; `same` for what must move nothing."""

    name: str
    kind: PathVerdict
    change: Change
    before: Change = lambda setup: None
    layer: str = "build"
    """The lowest layer that should move: the path moves with every build."""


def spec(**changed: Any) -> Change:
    def change(setup: Setup) -> None:
        setup.speculative = {**setup.speculative, **changed}

    return change


def args(**changed: Any) -> Change:
    return lambda setup: setup.arguments.update(changed)


def live(**changed: Any) -> Change:
    return lambda setup: setup.live.update(changed)


def variable(name: str, value: str) -> Change:
    return lambda setup: setup.environment.update({name: value})


def both(*changes: Change) -> Change:
    def change(setup: Setup) -> None:
        for one in changes:
            one(setup)

    return change


def flip_byte(place: str) -> Change:
    """One value in the last tensor of a file."""

    def change(setup: Setup) -> None:
        with (setup.folder / place).open("r+b") as file:
            file.seek(-1, 2)
            (last,) = file.read(1)
            file.seek(-1, 2)
            file.write(bytes([last ^ 1]))

    return change


def edit_json(place: str, edit: Callable[[dict[str, Any]], None]) -> Change:
    """A JSON file beside the weights."""

    def change(setup: Setup) -> None:
        path = setup.folder / place
        data = json.loads(path.read_text(encoding="utf-8"))
        edit(data)
        path.write_text(json.dumps(data), encoding="utf-8")

    return change


def take_another_draft(setup: Setup) -> None:
    """A draft with other weights in a folder of its own."""
    shutil.copytree(setup.folder / "draft", setup.folder / "other")
    flip_byte("other/model.safetensors")(setup)
    spec(model=str(setup.folder / "other"))(setup)


def move_folder(setup: Setup) -> None:
    """The same target elsewhere."""
    shutil.copytree(setup.folder / "target", setup.folder / "elsewhere")
    tokenizer = str(setup.folder / "elsewhere")
    args(model=tokenizer)(setup)


def swap_merges(data: dict[str, Any]) -> None:
    merges = data["model"]["merges"]
    merges[-1], merges[-2] = merges[-2], merges[-1]


NGRAM = spec(method="ngram", prompt_lookup_max=4, prompt_lookup_min=2)
LIBRARY = "site-packages/torch/lib/libtorch_cpu.so"

ROWS = (
    Row("k_max 6 → 5", "knob", both(spec(num_speculative_tokens=5), live(k=5))),
    Row("a schedule of k by batch size", "knob",
        spec(num_speculative_tokens_per_batch_size=[[1, 8, 6], [9, 32, 2]])),
    Row("live k 6 → 3", "knob", live(k=3), layer="path"),
    Row("live mode → target-only", "knob", live(k=0, mode="target-only", fallback="warm"),
        layer="path"),
    Row("target-only warm → cold", "knob", live(fallback="cold"), layer="path",
        before=live(k=0, mode="target-only", fallback="warm")),
    Row("policy fixed → goodput", "knob", live(policy="goodput"), layer="path"),
    Row("method draft_model → ngram", "knob", NGRAM),
    Row("n-gram window 4 → 5", "knob", spec(prompt_lookup_max=5), before=NGRAM),
    Row("rejection method standard → block", "knob", spec(rejection_sample_method="block")),
    Row("another draft at another path", "model", take_another_draft),
    Row("draft weights in place, one value", "model", flip_byte("draft/model.safetensors")),
    Row("target weights in place, one value", "model", flip_byte("target/model.safetensors")),
    Row("tokenizer, two merges swapped", "model", edit_json("target/tokenizer.json", swap_merges)),
    Row("chat template edited", "model",
        edit_json("target/tokenizer_config.json", lambda d: d.update(chat_template="{{ x }}"))),
    Row("generation_config.json edited", "model",
        edit_json("target/generation_config.json", lambda d: d.update(temperature=0.5))),
    Row("sampling defaults overridden", "knob",
        args(override_generation_config={"temperature": 0.5})),
    Row("dtype bfloat16 → float32", "knob", args(dtype="float32")),
    Row("attention backend named", "knob", args(attention_backend="CPU_ATTN")),
    Row("block size 32 → 64", "knob", args(block_size=64)),
    Row("max_num_seqs 32 → 16", "knob", args(max_num_seqs=16)),
    Row("max_num_batched_tokens halved", "knob", args(max_num_batched_tokens=1024)),
    Row("prefix caching off", "knob", args(enable_prefix_caching=False)),
    Row("seed 0 → 1", "knob", args(seed=1)),
    Row("logprobs mode", "knob", args(logprobs_mode="processed_logprobs")),
    Row("VLLM_BATCH_INVARIANT=1", "knob", variable("VLLM_BATCH_INVARIANT", "1")),
    Row("NVIDIA_TF32_OVERRIDE=0", "knob", variable("NVIDIA_TF32_OVERRIDE", "0")),
    Row("OMP_NUM_THREADS=1", "knob", variable("OMP_NUM_THREADS", "1")),
    Row("a compiled library replaced", "runtime", flip_byte(LIBRARY)),
    Row("driver 570.86.15 → 575.51.03", "runtime",
        lambda setup: setattr(setup, "driver", "575.51.03")),
    Row("another torch installed", "runtime", lambda setup: setup.versions.update(torch="2.13.1")),
    Row("the same weights at another path", "same", move_folder),
    Row("another port, cache folder, log level", "same",
        both(variable("VLLM_PORT", "1234"), variable("VLLM_CACHE_ROOT", "/tmp/x"),
             variable("VLLM_LOGGING_LEVEL", "ERROR"))),
    Row("an API key", "same", variable("VLLM_API_KEY", "secret")),
    Row("another served name", "same", args(served_model_name=["other"])),
)  # fmt: skip


@contextmanager
def variables(given: Mapping[str, str]) -> Iterator[None]:
    """The environment with `given`, as it was afterwards."""
    before = dict(os.environ)
    os.environ.update(given)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


@contextmanager
def setup() -> Iterator[Setup]:
    """The shipped pair and a stand-in for a library, in a folder of their own."""
    with tempfile.TemporaryDirectory() as folder:
        found = Setup(Path(folder))
        for name in ("target", "draft"):
            shutil.copytree(MODELS / name, found.folder / name)
        library = found.folder / LIBRARY
        library.parent.mkdir(parents=True)
        library.write_bytes(b"\x7fELF" + bytes(1000))
        yield found
