"""Part 1: an engine starts, the plugin takes hold, and says what can be changed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from benchmarks.gpu.outputs import count_negative
from benchmarks.gpu.parts import MAIN
from benchmarks.gpu.report import Report
from benchmarks.gpu.task import Task
from benchmarks.gpu.traffic import make_prompts, open_traffic

from specdeck.engine.fingerprint.secrecy import redact

TELLING = re.compile(
    r"attention backend|Graph capturing finished|CUDA graph pool|Asynchronous scheduling"
    r"|V2 model runner|Model loading took|init engine|GPU KV cache size"
)
"""Lines of vLLM's log that say what it runs on."""

_STAMP = re.compile(r"^.*?\[[\w./-]+:\d+\] ")


async def run(task: Task, report: Report) -> None:
    """Writes down how the engine started, and what it can."""
    standing = task.engines[MAIN]
    async with open_traffic(standing) as traffic:
        state = await traffic.driver.state()
        facts = (await traffic.driver.ask("GET", "facts")).json()["facts"]
        _put_facts(report, task, state, facts)
        rows = [
            [one["name"], "yes" if one["available"] else "no", _join(one)]
            for one in state["capabilities"]
        ]
        report.put_table("can", ["capability", "", "reason and remedy"], rows)
        report.put("log", _quote_log(Path(standing.log)))
        report.check("the plugin holds the engine", state["k_max"] == task.setup.k_max)
        prompts = make_prompts(4)
        await _count_drafts(task, report, traffic, prompts)
        outputs = await traffic.batch(prompts, 16)
        negative = count_negative(outputs)
        report.check("no token id below 0", negative == 0, f"{negative}" if negative else "")


def _put_facts(report: Report, task: Task, state: dict[str, Any], facts: dict[str, Any]) -> None:
    standing = task.engines[MAIN]
    rows = {
        "vLLM": state["vllm"],
        "engine": f"`{standing.variant}`, {standing.start_s or 0:.0f} s from start to ready",
        "runner": state["runner"],
        "method": f"{state['method']}, k_max {state['k_max']}",
        **_find_settings(facts),
        "path": state["fingerprint"],
    }
    report.put_table("facts", ["", ""], [[name, str(value)] for name, value in rows.items()])


def _find_settings(facts: dict[str, Any]) -> dict[str, Any]:
    """What decides which kernels run, as far as the plugin's facts have it.

    >>> _find_settings({"config": {"scheduler": {"async_scheduling": True}}})["scheduling"]
    'asynchronous'
    """
    config, runtime = facts.get("config", {}), facts.get("runtime", {})
    asynchronous = config.get("scheduler", {}).get("async_scheduling")
    return {
        "device": runtime.get("device", "–"),
        "attention": runtime.get("attention", "–"),
        "dtype": config.get("model", {}).get("dtype", "–"),
        "scheduling": "asynchronous" if asynchronous else "synchronous",
        "CUDA graphs": config.get("compilation", {}).get("cudagraph_mode", "–"),
    }


async def _count_drafts(task: Task, report: Report, traffic: Any, prompts: list[list[int]]) -> None:
    """Live k by vLLM's own counters: at each k so many tokens of every draft."""
    wrong = []
    for k in range(task.setup.k_max, -1, -1):
        await traffic.put(k=k)
        before = await traffic.driver.counters()
        await traffic.batch(prompts, 24)
        after = await traffic.driver.counters()
        drafts, drafted = (after[name] - before[name] for name in ("drafts", "drafted"))
        if drafted != k * drafts or (drafts > 0) != (k > 0):
            wrong.append(f"k = {k}: {drafts:.0f} drafts of {drafted:.0f} tokens")
    report.check("vLLM's counters follow k", not wrong, "; ".join(wrong))


def _join(capability: dict[str, Any]) -> str:
    return "; ".join(filter(None, (capability.get("reason"), capability.get("remedy"))))


def _quote_log(log: Path) -> str:
    lines = [line for line in log.read_text(errors="replace").splitlines() if TELLING.search(line)]
    found = dict.fromkeys(redact(_STAMP.sub("", line))[:240] for line in lines)
    return "From the engine's log:\n\n```\n" + "\n".join(list(found)[:12]) + "\n```"
