"""What `specdeck sweep` says: the curve in characters, the optimum in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from specdeck.console.widgets.blocks import whisker

_FIGURES = 42
"""Columns of a line before its bar."""
_LEAST_BAR = 8
_MOST_PERCENT = 1000
"""Digits of an upper end beyond this one would promise knowledge."""


def curve(document: Mapping[str, Any], width: int) -> list[str]:
    """A line for each k that was visited, in `width` columns; nothing before the first visit.

    >>> visit = {"k": 0, "tokens_per_second": 100.0, "ms_per_token": 10.0}
    >>> print(*curve({"k": [0], "visits": [visit], "curve": [], "optimum": None}, 60), sep="\\n")
      k  tokens/s  95 % interval  ms/token
      0     100.0              –      10.0  ━━━━━━━━━━━━━━━━
    """
    points = {point["k"]: point for point in document["curve"]}
    rows = [(k, points.get(k) or _single(k, document["visits"])) for k in document["k"]]
    tops = [_top(point) for _, point in rows if point]
    if not tops:
        return []
    best = (document["optimum"] or {}).get("k")
    return ["  k  tokens/s  95 % interval  ms/token"] + [
        _row(k, point, max(tops), max(_LEAST_BAR, width - _FIGURES - 2), best) for k, point in rows
    ]


def _single(k: int, visits: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """A k that was visited once has no interval yet."""
    for visit in visits:
        if visit["k"] == k and visit["tokens_per_second"] is not None:
            names = ("tokens_per_second", "ms_per_token")
            return {name: {"value": visit[name], "ci95": None} for name in names}
    return None


def _top(point: Mapping[str, Any]) -> float:
    tokens = point["tokens_per_second"]
    return float(max(tokens["value"], *(tokens["ci95"] or ())) if tokens["ci95"] else
                 tokens["value"])  # fmt: skip


def _row(k: int, point: Mapping[str, Any] | None, top: float, width: int, best: int | None) -> str:
    mark = "►" if k == best else " "
    if point is None:
        return f"{mark}{k:>2}         –              –         –"
    tokens, wait = point["tokens_per_second"], point["ms_per_token"]["value"]
    low, high = tokens["ci95"] or (None, None)
    interval = "–" if low is None else f"{low:.1f}–{high:.1f}"
    bar = "".join(text for text, _ in whisker(tokens["value"], low, high, top, width))
    return f"{mark}{k:>2}  {tokens['value']:>8.1f}  {interval:>13}  {wait:>8.1f}  {bar}".rstrip()


def verdict(document: Mapping[str, Any]) -> list[str]:
    """The optimum, what it rests on, the schedule and how the engine was left."""
    lines = [*_best(document["optimum"]), _measured(document)]
    if document["stopped"]:
        lines.append(f"stopped    {document['stopped']}: {_visits(document)}")
    if document["schedule"]:
        lines += _schedule(document)
    before = document["before"]
    if before is not None:
        lines.append(_left(before, document["after"], document["restored"]))
    return lines


def _best(optimum: Mapping[str, Any] | None) -> list[str]:
    if optimum is None:
        return ["best k     not known: two rounds were not completed"]
    gains = []
    if optimum["gain_over_target_only"]:
        gains.append(f"{percent(optimum['gain_over_target_only'])} over target-only")
    following = optimum["next"]
    if optimum["gain_over_next"] and following not in (None, 0):
        gains.append(f"{percent(optimum['gain_over_next'])} over k={following}")
    lines = [f"best k     {optimum['k']}" + (f": {', '.join(gains)}" if gains else "")]
    tied = optimum["tied"]
    if tied:
        names = ", ".join(str(k) for k in tied)
        lines.append(f"tied       k={names} cannot be told from it; more --seconds may")
    return lines


def percent(gain: Mapping[str, Any]) -> str:
    """A gain with its interval.

    >>> percent({"value": 0.071, "ci95": [0.02, 0.12]})
    '+7.1 % (+2.0 to +12.0)'
    >>> percent({"value": 2.2, "ci95": [-0.6, 24.6]})
    '+220.0 % (-60.0 to more than +1000)'
    """
    low, high = (each * 100 for each in gain["ci95"])
    most = f"{high:+.1f}" if high <= _MOST_PERCENT else f"more than +{_MOST_PERCENT}"
    return f"{gain['value'] * 100:+.1f} % ({low:+.1f} to {most})"


def _measured(document: Mapping[str, Any]) -> str:
    batch = document["batch"]
    at = "" if batch is None else f", {batch:.1f} requests in a step on average"
    seconds = sum(visit["seconds"] for visit in document["visits"])
    return f"measured   {len(document['visits'])} visits, {seconds:.0f} s of work{at}"


def _visits(document: Mapping[str, Any]) -> str:
    return f"{len(document['visits'])} of {len(document['k']) * document['rounds']} visits are made"


def _schedule(document: Mapping[str, Any]) -> list[str]:
    from specdeck.engine.tuning.schedule import line

    (tiers,) = document["schedule"].values()
    sizes = ", ".join(document["measured_batch_sizes"])
    return [
        f"schedule   {line(tiers)}",
        f"           measured at {sizes} requests in a step; the rest is the nearest of these",
    ]


def _left(before: Mapping[str, Any], after: Mapping[str, Any] | None, restored: bool | None) -> str:
    if restored:
        return f"engine     as it was found: {knobs(before)}"
    if after is None:
        return f"engine     not known; it was found with {knobs(before)}"
    return f"engine     {knobs(after)}; it was found with {knobs(before)}"


def knobs(found: Mapping[str, Any]) -> str:
    """Knobs and values.

    >>> knobs({"k": 3, "mode": "speculate", "policy": "fixed", "fallback": "warm"})
    'k=3 mode=speculate policy=fixed'
    """
    return " ".join(f"{name}={value}" for name, value in found.items() if name != "fallback")
