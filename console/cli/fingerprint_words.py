"""Fingerprints and what lies between them, as lines for a person."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from specdeck.engine.fingerprint.compare import Comparison
    from specdeck.engine.fingerprint.fingerprint import Fingerprint


def told(seen: Fingerprint, *, facts: bool) -> list[str]:
    """A fingerprint for a person: its names, what they cover, and every fact if asked."""
    behaviour = seen.behaviour
    lines = [f"build      {seen.build}", f"path       {seen.path}"]
    if behaviour is not None:
        steady = f"{behaviour.agreement:.1%} of answers agree over {behaviour.runs} runs"
        lines.append(f"behaviour  {behaviour.name}  ({steady}, step {behaviour.step:g})")
        lines += [f"missing    {reason}" for reason in behaviour.missing]
    lines.append(f"vLLM's own {seen.system_fingerprint or '–'}")
    lines += [f"partial    {one.line()}" for one in seen.unread]
    if facts:
        from specdeck.engine.fingerprint.compare import leaves

        lines.append("")
        lines += [f"{place} = {_value(value)}" for place, value in leaves(seen.facts)]
    return lines


def compared_lines(found: Comparison, *, full: bool) -> list[str]:
    """A comparison for a person: the verdict first, then what moved."""
    lines = found.lines()
    before, after = found.before.names, found.after.names
    for layer, moved in found.layers.items():
        if moved:
            lines.append(f"{layer:9}  {before[layer]} → {after[layer]}")
    lines += [probe.line() for probe in found.probes]
    if full:
        for one in found.differences:
            lines += [f"- {one.fact} = {_value(one.before)}"] if one.kind != "added" else []
            lines += [f"+ {one.fact} = {_value(one.after)}"] if one.kind != "removed" else []
    return lines


def _value(value: object) -> str:
    return "–" if value is None else str(value)
