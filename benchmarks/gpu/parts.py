"""The parts of the program, in their order, and what each of them needs."""

from __future__ import annotations

from dataclasses import dataclass

MAIN = "main"
"""The role of the engine that most parts share: speculating, as specdeck starts one."""


@dataclass(frozen=True, slots=True)
class Part:
    """One part: alone it says something, whatever becomes of the others."""

    number: int
    name: str
    """The module of `benchmarks.gpu` that runs it."""
    title: str
    question: str
    """What it finds out, for the page of those who have not run it."""
    minutes: float
    """The most that it may take, with the start of engines that only it uses."""
    engines: tuple[str, ...] = ()
    """The roles of the engines it uses, the one without which it cannot run first."""
    gpu_only: str | None = None
    """Why it says nothing without CUDA; None where it does."""


PARTS = (
    Part(
        1,
        "take_hold",
        "Start, take-hold, capabilities",
        "Whether an engine starts with the plugin, and what it says it can.",
        5,
        (MAIN,),
    ),
    Part(
        2,
        "flips",
        "Flips of k under load, and target-only token by token",
        "200 random flips under 8 and then 64 greedy streams: token ids against target-only, with "
        "and without `VLLM_BATCH_INVARIANT=1`; no token id below 0 in any output.",
        5,
        (MAIN, "target", "invariant", "invariant-target"),
    ),
    Part(
        3,
        "step_times",
        "Step time at every k",
        "At 1 to 128 requests, with tiers and without; k = 0 against an engine without "
        "speculation.",
        5,
        (MAIN, "plain", "target"),
    ),
    Part(
        4,
        "cold",
        "Cold to warm under load",
        "100 times: what each change takes, when drafts come back, and that no output changes.",
        2,
        (MAIN,),
    ),
    Part(
        5,
        "tiers_cost",
        "What tiers cost at start",
        "Seconds and graph memory, with tiers for every k and without.",
        4,
        gpu_only="tiers are for CUDA graphs",
    ),
    Part(
        6,
        "one_pin",
        "One pinned request among 64",
        "Everybody's step time and time between tokens, p50 and p99, beside one pinned request.",
        2,
        (MAIN,),
    ),
    Part(
        7,
        "drafter_passes",
        "Drafter passes really made at each k",
        "Counted inside the engine, those that a CUDA graph replays included.",
        3,
        ("probed", "probed-eagle", "probed-eagle-plain"),
    ),
    Part(
        8,
        "floors",
        "Floors of greedy output",
        "How often greedy output differs from itself: repeated, in another batch, in the shape of "
        "another k.",
        3,
        (MAIN, "invariant"),
    ),
    Part(
        9,
        "structured",
        "Structured output under flips and pins",
        "Whether every answer keeps to its schema and to target-only's.",
        2,
        (MAIN,),
    ),
    Part(
        10,
        "plugin_off",
        "Plugin on and off",
        "Tokens per second at 256 streams, with and without the plugin.",
        3,
        ("plain", "stock"),
    ),
)


def choose(numbers: str | None) -> tuple[Part, ...]:
    """The parts that `1,3,5` names, in their order; all for None.

    Raises ValueError for what names no part.

    >>> [part.name for part in choose("2,1")]
    ['take_hold', 'flips']
    """
    if numbers is None:
        return PARTS
    wanted = {int(number) for number in numbers.split(",")}
    if unknown := wanted - {part.number for part in PARTS}:
        raise ValueError(f"no part {min(unknown)}: there are 1 to {len(PARTS)}")
    return tuple(part for part in PARTS if part.number in wanted)
