"""What `specdeck why` names first on a real engine in which one cause at a time is planted.

    python -m benchmarks.why --state FILE [--seconds 420] [--runs 7] [--honest 60] [--only NAME]

One engine (the demo pair, few blocks of KV cache, a LoRA adapter) serves all causes but the wrong
draft, which has an engine of its own. A run plants a cause, lets traffic go on for some seconds,
and asks `specdeck why --json`, which alone is judged: is the first cause the planted one? Causes
take turns, so that none has a better hour of the machine. Honest windows are runs without a cause.
Other work on the machine is no plant: where processes beside the engine, its load and the question
take OTHERS of its CPUs, by /proc/stat, that the CPUs are shared is true, and what is named first
but for it is judged; how often it was said is a column of its own.
Every run is a line of FILE, and a run that is there is not made again: `--seconds` may end it
anywhere. At last the table is printed.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any

import httpx
from benchmarks.engines import RunningEngine, start_engine, table
from tests.support import planted_causes, planted_defect
from tests.support.live_engine import LIMITS

from specdeck.engine.demo import corpus
from specdeck.engine.protocol.messages import PREFIX, TOKEN_HEADER

ROOT = Path(__file__).parents[1]
MODELS = ROOT / "sample_configs" / "models"
STREAMS = 6
TOKENS = 64
LONG = 64
"""Tokens of a prompt from which it is a long one; the short ones have about 40."""
SHORT_START, LONG_START, END = 40, 420, 90
"""Characters, some three and a half to a token. With its answer a request stays within the 320
tokens that the draft was trained on: beyond, it really is worse, and no window would be honest."""
FLOOD_TOKENS = 16
LOOK_S = 12.0
SETTLE_S = 4.0
BLOCKS = 200
DEEPEST = 10
"""The k of the engine that has timed every k: text that is sampled has some four tokens accepted
at best, and pays for none of the rest."""
OTHERS = 0.15
"""Of the machine's CPUs: where processes beside the engine and its load take as much, that CPUs are
shared is so, whatever else is planted."""
KINDS = ("demo", "adapter", "other draft", "every k")
"""Engines: the pair, the pair with a LoRA adapter, the target with a draft that is not its own, and
the pair that has timed every k."""
Body = dict[str, Any]


def opening(text: str, characters: int) -> str:
    """Whole lines at the start of a text."""
    end = text.rfind("\n", 0, characters)
    return text[: end if end > 0 else characters]


@cache
def idiom(number: int, characters: int) -> str:
    """Boilerplate that training never saw; always the same for a number."""
    kinds = [kind for kind in corpus.CODE if kind is not corpus.counting]
    draw = random.Random(f"why {number}")
    parts: list[str] = []
    while sum(map(len, parts)) < characters:
        seed = corpus.FIRST_UNSEEN_SEED + draw.randrange(10**6)
        parts.append(corpus.write_idioms(draw.choice(kinds), seed))
    return opening("\n".join(parts), characters)


def prompt(beginning: int, end: int, *, long: bool) -> str:
    """A beginning that others may have in common, and an end of its own, which is gone on with.

    Ends are alike in all prompts, so that what follows is as hard after a long beginning.
    """
    return (
        f"# {beginning}\n{idiom(beginning, LONG_START if long else SHORT_START)}\n{idiom(end, END)}"
    )


@dataclass
class Traffic:
    """What is asked for."""

    streams: int = STREAMS
    tokens: int = TOKENS
    long: float = 0.35
    """Share of the requests."""
    again: float = 0.4
    """Share whose prompts begin as others do, so that this part is cached."""
    some: float = 0.0
    """Share of the requests that have `extra`."""
    extra: Body = field(default_factory=dict)
    flood: int = 0
    """Further streams, of long prompts that nobody sends twice and short answers."""
    families: bool = False
    """Whether prompts have one of three long beginnings in common."""
    draw: random.Random = field(default_factory=lambda: random.Random(3))

    def body(self) -> Body:
        """The next request."""
        draw = self.draw
        number = draw.randrange(10**6, 10**8)
        long = self.families or draw.random() < self.long
        start = draw.randrange(10**6, 10**8)
        if self.families or draw.random() < self.again:
            start = draw.randrange(3 if self.families else 6) + 100 * long
        text = prompt(start, number, long=long)
        found = {"model": "demo", "prompt": text, "max_tokens": self.tokens, "temperature": 0,
                 "ignore_eos": True}  # fmt: skip
        return {**found, **self.extra} if draw.random() < self.some else found

    def flooding(self) -> Body:
        """A prompt that evicts others."""
        draw = self.draw
        text = prompt(draw.randrange(10**8, 10**9), draw.randrange(10**6, 10**8), long=True)
        return {"model": "demo", "prompt": text, "max_tokens": FLOOD_TOKENS, "temperature": 0,
                "ignore_eos": True}  # fmt: skip


@contextlib.asynccontextmanager
async def put_under(url: str, traffic: Traffic) -> AsyncIterator[None]:
    """The traffic while the block runs."""
    async with httpx.AsyncClient(
        base_url=url, timeout=120, limits=LIMITS, trust_env=False
    ) as client:

        async def stream(make: Callable[[], Body]) -> None:
            while True:
                reply = await client.post("/v1/completions", json=make())
                if reply.status_code != 200:
                    raise RuntimeError(reply.text[:300])

        makes = [traffic.body] * traffic.streams + [traffic.flooding] * traffic.flood
        tasks = [asyncio.create_task(stream(make)) for make in makes]
        try:
            yield
            for task in tasks:
                if task.done():
                    task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


@dataclass(frozen=True)
class Plant:
    """A cause, and how it is planted."""

    name: str
    """What is to be named first; `none` in an honest window."""
    traffic: Mapping[str, Any] = field(default_factory=dict)
    faults: Mapping[str, object] = field(default_factory=dict)
    look_s: float = LOOK_S
    settle_s: float = SETTLE_S
    before_s: float = 0.0
    """Of the same traffic without the fault."""
    each_k: bool = False
    """Whether every k is visited first, so that the engine has timed it."""
    baseline: str = "base"
    """What it is compared with; nothing where it is empty: it has always been so."""
    engine: str = "demo"


WORDS = [
    "".join(random.Random(number).choices("bcdfghjklmnpqrstvwxz", k=7)) for number in range(12)
]
SCHEMA = {
    "type": "object", "properties": {word: {"type": "boolean"} for word in WORDS},
    "required": WORDS, "additionalProperties": False,
}  # fmt: skip
"""Names that neither model has seen: the grammar forces what the draft cannot guess."""
PLANTS = (
    Plant("none"),
    Plant("prompt_length", faults={"poison": {"share": 0.8, "prompt": LONG}}),
    Plant("structured_output", {"some": 0.4, "extra": {"structured_outputs": {"json": SCHEMA}}}),
    Plant("temperature", {"some": 0.45, "extra": {"temperature": 0.8}}),
    Plant("adapter", {"some": 0.4, "extra": {"model": "sql"}}, engine="adapter"),
    Plant("cold_cache", faults={"poison": {"share": 0.8, "cached": 32}}),
    Plant("step_time_latched", faults={"sleep_s": 0.06}, before_s=8.0),
    Plant(
        "cohort_drift", faults={"poison": {"share": 0.95, "prompt": LONG, "ramp_s": 55}},
        look_s=55.0, settle_s=0.5,
    ),
    Plant("preemption", {"streams": 28, "tokens": 240, "long": 0.6}, look_s=20.0, settle_s=12.0),
    Plant("prefix_cache", {"families": True, "streams": 4, "flood": 8}, baseline="families"),
    Plant(
        "k_beyond_what_pays", {"some": 1.0, "extra": {"temperature": 1.0}},
        each_k=True, baseline="", engine="every k",
    ),
    Plant("draft_of_another_target", look_s=24.0, engine="other draft"),
)  # fmt: skip


def write_adapter(folder: Path) -> None:
    """A LoRA adapter that nobody trained: the target says something else, the draft does not."""
    import torch
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    rank, width, draw = 8, 192, torch.Generator().manual_seed(1)
    tensors = {}
    for layer in range(4):
        for name in ("q_proj", "v_proj"):
            place = f"base_model.model.model.layers.{layer}.self_attn.{name}"
            for side, shape in (("A", (rank, width)), ("B", (width, rank))):
                values = torch.randn(*shape, generator=draw) * (
                    1.0 / width**0.5 if side == "A" else 1.0
                )
                tensors[f"{place}.lora_{side}.weight"] = values.to(torch.bfloat16)
    save_file(tensors, str(folder / "adapter_model.safetensors"))
    about = {"peft_type": "LORA", "r": rank, "lora_alpha": rank, "bias": "none",
             "target_modules": ["q_proj", "v_proj"], "task_type": "CAUSAL_LM",
             "base_model_name_or_path": "demo"}  # fmt: skip
    (folder / "adapter_config.json").write_text(json.dumps(about))


def write_other_draft(folder: Path) -> Path:
    """The draft with the rows of its vocabulary in another order, as of another tokenizer."""
    import torch
    from safetensors.torch import load_file, save_file

    shutil.copytree(MODELS / "draft", folder)
    weights = load_file(str(folder / "model.safetensors"))
    order = torch.randperm(2048, generator=torch.Generator().manual_seed(4))
    for name, values in weights.items():
        if values.shape and values.shape[0] == len(order):
            weights[name] = values[order].contiguous()
    save_file(weights, str(folder / "model.safetensors"), metadata={"format": "pt"})
    return folder


@contextlib.contextmanager
def start(folder: Path, kind: str) -> Iterator[tuple[RunningEngine, Path]]:
    """The engine, and the file to plant with."""
    plugin = folder / "plugin"
    plugin.mkdir()
    file = planted_causes.plugin(plugin)
    sys.path.insert(0, str(plugin))  # the plugin's name is looked up here, its code there
    os.environ[planted_causes.VARIABLE] = str(file)
    os.environ["PYTHONPATH"] = str(plugin)
    arguments: dict[str, Any] = {"num_gpu_blocks_override": BLOCKS}
    if kind == "adapter":
        adapter = folder / "sql"
        write_adapter(adapter)
        arguments |= {"lora_modules": f"sql={adapter}", "max_lora_rank": 8, "enable_lora": ""}
    if kind == "other draft":
        draft = write_other_draft(folder / "draft")
        arguments["speculative_config"] = json.dumps(
            {"method": "draft_model", "model": str(draft), "num_speculative_tokens": 6}
        )
    if kind == "every k":
        arguments["speculative_config"] = json.dumps(
            {"method": "draft_model", "model": str(MODELS / "draft"),
             "num_speculative_tokens": DEEPEST}
        )  # fmt: skip
    config = planted_defect.config(folder)
    try:
        with start_engine(path=config, **arguments) as engine:
            if not planted_causes.is_loaded(file):
                raise RuntimeError("the engine did not load the plugin that plants causes")
            yield engine, file
    finally:
        sys.path.remove(str(plugin))


async def change(engine: RunningEngine, **knobs: Any) -> None:
    async with httpx.AsyncClient(base_url=engine.url, timeout=60, trust_env=False) as client:
        headers = {TOKEN_HEADER: engine.token_file.read_text().strip()}
        for _ in range(10):
            reply = await client.put(f"{PREFIX}/control", json=knobs, headers=headers)
            if reply.status_code == 200:
                return
            await asyncio.sleep(0.5)
        raise RuntimeError(reply.text[:300])


async def ask_why(engine: RunningEngine, seconds: float, *more: str) -> dict[str, Any]:
    """What the command says, as a script would be told.

    At a lower priority, as from another machine: on two cores a Python that starts would keep the
    engine from its CPU.
    """
    words = ["why", engine.url, "--for", f"{seconds:g}s", "--json", *more]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "specdeck", *words,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        preexec_fn=partial(os.nice, 10),
    )  # fmt: skip
    out, err = await process.communicate()
    if process.returncode not in (0, 1):
        raise RuntimeError(err.decode()[-500:])
    found: dict[str, Any] = json.loads(out)
    assert (process.returncode == 1) == bool(found["causes"])
    return found


def read_cpus() -> tuple[int, int, int]:
    """Ticks that this machine's CPUs had, worked, and worked for this program and its children."""
    words = Path("/proc/stat").read_text().splitlines()[0].split()[1:9]
    ticks = [int(word) for word in words]
    mine = 0
    for process in list_tree(os.getpid()):
        with contextlib.suppress(OSError):  # it ended; its parent has its time
            text = Path(f"/proc/{process}/stat").read_text()
            mine += sum(map(int, text.rpartition(")")[2].split()[11:15]))
    return sum(ticks), sum(ticks) - ticks[3] - ticks[4], mine


def list_tree(process: int) -> Iterator[int]:
    """A process and all that it and its children started."""
    yield process
    for path in Path(f"/proc/{process}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for child in path.read_text().split():
                yield from list_tree(int(child))


def share_of_others(before: tuple[int, int, int], after: tuple[int, int, int]) -> float:
    """The share of the machine's CPUs that processes beside this program's took."""
    had, worked, mine = (then - now for now, then in zip(before, after, strict=True))
    return max(0.0, worked - mine) / max(1, had)


def is_true_beside(name: str, others: float) -> bool:
    """Whether a cause is there that nobody planted: other work on the machine's CPUs."""
    return name == "cpu_contention" and others >= OTHERS


async def run_plant(
    plant: Plant, engine: RunningEngine, file: Path, baselines: Path, number: int
) -> dict[str, Any]:
    """One run: the cause planted, asked for, and taken away."""
    traffic = Traffic(**plant.traffic, draw=random.Random(f"{plant.name} {number}"))
    planted_causes.clear(file)
    async with put_under(engine.url, traffic):
        if plant.before_s:
            await asyncio.sleep(plant.before_s)
        if plant.each_k:
            for k in (0, 1, 2, 3, 4, 6, 8, DEEPEST):
                await change(engine, k=k)
                await asyncio.sleep(2.5)
        if plant.faults:
            planted_causes.plant(file, plant.faults)
        await asyncio.sleep(plant.settle_s)
        more: list[str] = []
        saved = baselines / f"{plant.baseline}.json"
        if saved.exists() and not (plant.name == "none" and number % 2):
            more = ["--against", str(saved)]
        before = read_cpus()
        found = await ask_why(engine, plant.look_s, *more)
        others = share_of_others(before, read_cpus())
    planted_causes.clear(file)
    causes = [cause["cause"] for cause in found["causes"]]
    first = next((name for name in causes if not is_true_beside(name, others)), "none")
    looked = found["looked"]
    return {
        "planted": plant.name, "number": number, "first": first, "others": round(others, 3),
        "shared": "cpu_contention" in causes,
        "causes": [
            {key: cause[key] for key in ("cause", "cohort", "figure", "effect", "cost", "since")}
            for cause in found["causes"]
        ],
        "untold": {one["cause"]: one["reason"] for one in found["untold"]},
        "requests": looked["requests"], "steps": looked["steps"],
        "output_from_drafts": looked["output_from_drafts"],
        "step_ms": (looked["seconds_per_step"] or 0.0) * 1e3,
        "at": time.strftime("%Y-%m-%d %H:%M", time.gmtime()),
    }  # fmt: skip


async def save_baselines(engine: RunningEngine, folder: Path) -> None:
    """How the engine is while nothing is planted, under each traffic that a plant changes."""
    usual = {"base": Traffic(), "families": Traffic(families=True, streams=4)}
    missing = {n: t for n, t in usual.items() if not (folder / f"{n}.json").exists()}
    for name, traffic in missing.items():
        async with put_under(engine.url, traffic):
            await asyncio.sleep(SETTLE_S)
            await ask_why(engine, 20.0, "--save", str(folder / f"{name}.json"))


class Runs:
    """What is done, a line each."""

    def __init__(self, path: Path) -> None:
        self.path = path
        text = path.read_text() if path.exists() else ""
        self.done: list[dict[str, Any]] = [json.loads(line) for line in text.splitlines()]

    def add(self, run: dict[str, Any]) -> None:
        self.done.append(run)
        with self.path.open("a") as file:
            file.write(json.dumps(run) + "\n")

    def count(self, name: str) -> int:
        return sum(run["planted"] == name for run in self.done)

    def next(self, plants: list[Plant], wanted: Callable[[Plant], int]) -> Plant | None:
        """The plant that lags most behind."""
        left = [plant for plant in plants if self.count(plant.name) < wanted(plant)]
        return min(left, key=lambda one: self.count(one.name) / wanted(one), default=None)


async def make_runs(runs: Runs, options: argparse.Namespace, folder: Path) -> None:
    ends = time.monotonic() + options.seconds
    for kind in KINDS:
        plants = [
            plant
            for plant in PLANTS
            if plant.engine == kind and any(word in plant.name for word in options.only.split(","))
        ]

        def count_wanted(plant: Plant) -> int:
            return int(options.honest if plant.name == "none" else options.runs)

        if runs.next(plants, count_wanted) is None or time.monotonic() > ends - 60:
            continue
        place = folder / kind.replace(" ", "-")
        place.mkdir()
        with start(place, kind) as (engine, file):
            # Well for as long as the file of runs lasts: an engine started anew is no other one.
            baselines = options.state.with_suffix(f".{kind.replace(' ', '-')}")
            baselines.mkdir(exist_ok=True)
            if any(plant.baseline for plant in plants if plant.engine == kind) and (
                kind != "other draft"
            ):
                await save_baselines(engine, baselines)
            last = ""
            while (plant := runs.next(plants, count_wanted)) is not None:
                if time.monotonic() > ends - plant.look_s - plant.settle_s - 10:
                    return
                run = await run_plant(plant, engine, file, baselines, runs.count(plant.name))
                runs.add({**run, "after": last})
                last = plant.name
                shown = [f"{c['cause']} {(c['cost'] or {}).get('value')}" for c in run["causes"]]
                print(f"{plant.name}: {shown} {run['requests']}", file=sys.stderr, flush=True)


def format_runs(done: list[dict[str, Any]]) -> str:
    """The table: what was planted, how often it was named first, what else was."""
    rows = []
    for plant in PLANTS:
        runs = [run for run in done if run["planted"] == plant.name]
        if not runs or plant.name == "none":
            continue
        right = sum(run["first"] == plant.name for run in runs)
        others = Counter(run["first"] for run in runs if run["first"] != plant.name)
        beside = Counter(
            cause["cause"] for run in runs for cause in run["causes"]
            if cause["cause"] not in (plant.name, run["first"], "cpu_contention")
        )  # fmt: skip
        rows.append([
            f"`{plant.name}`", str(len(runs)), str(right),
            ", ".join(f"{name} {number}" for name, number in others.most_common()) or "–",
            ", ".join(f"{name} {number}" for name, number in beside.most_common(4)) or "–",
            str(sum(run.get("shared", False) for run in runs)),
        ])  # fmt: skip
    planted = [run for run in done if run["planted"] != "none"]
    right = sum(run["first"] == run["planted"] for run in planted)
    rows.append(["all", str(len(planted)), str(right), "", "", ""])
    honest = [run for run in done if run["planted"] == "none"]
    raised = Counter(run["first"] for run in honest if run["first"] != "none")
    words = ", ".join(f"{name} {number}" for name, number in raised.most_common()) or "–"
    rows.append(["nothing", str(len(honest)), str(len(honest) - sum(raised.values())), words, "",
                 str(sum(run.get("shared", False) for run in honest))])  # fmt: skip
    head = ["planted", "runs", "right first", "else first", "named beside", "CPUs shared"]
    return table(head, rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--state", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=420.0)
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--honest", type=int, default=40)
    parser.add_argument("--only", default="", help="words of names, with commas between")
    options = parser.parse_args()
    runs = Runs(options.state)
    with tempfile.TemporaryDirectory(prefix="specdeck-why-") as name:
        asyncio.run(make_runs(runs, options, Path(name)))
    print(format_runs(runs.done))


if __name__ == "__main__":
    main()
