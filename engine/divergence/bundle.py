"""One case as a page that can be pasted into an issue: how to see it again."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from typing import Any

from specdeck.engine.divergence import request
from specdeck.engine.divergence.prompts import Prompt
from specdeck.engine.divergence.report import case_line
from specdeck.engine.divergence.request import Settings
from specdeck.engine.errors import UsageError

Data = Mapping[str, Any]
_ORDER = {"material": 0, "structural": 1, "stream_only": 2, "near_tie": 3}


def chosen(data: Data, number: int | None) -> Data | None:
    """The case of prompt `number`, or the gravest; None where nothing differs.

    Raises UsageError for a prompt that does not differ.
    """
    if number is None:
        return min(data["cases"], key=lambda case: _ORDER[case["class"]], default=None)
    for case in data["cases"]:
        if case["prompt"] == number:
            found: Data = case
            return found
    raise UsageError(f"prompt {number} is no case", remedy="give one that the check lists")


def bundle(data: Data, case: Data, prompt: Prompt, settings: Settings, *, keyed: bool) -> str:
    """Both requests as curl, what answered them, and what they answered; holds no secret."""
    arms = "\n".join(_about(name, arm) for name, arm in data["arms"].items())
    curls = "\n\n".join(
        f"{name}:\n\n```sh\n{_curl(arm, prompt, settings, keyed=keyed)}\n```"
        for name, arm in data["arms"].items()
    )
    details = {
        key: case[key]
        for key in ("index", "serving_token", "reference_token", "margin_serving",
                    "margin_reference", "serving_top", "reference_top", "class", "structure",
                    "recheck")
    }  # fmt: skip
    near = data["near_tie"]
    return f"""# Greedy output differs with speculative decoding

{case_line(case)}

| arm | grade | k | vLLM | fingerprints |
|---|---|---|---|---|
{arms}

Seen in {data["mismatches"]} of {data["prompts"]} prompts; the reference differs from itself in \
{data["noise_floor"]["mismatches"]} of {data["noise_floor"]["pairs"]}. Margins up to \
{near["threshold"]:.3g} count as near ties (resolution {near["resolution"]:.3g}).

## Requests

{curls}

The first token that differs is number {case["index"]}, counted from 0, of
`choices[0].token_ids`.

## The divergence

```json
{json.dumps(details, indent=1)}
```
"""


def _about(name: str, arm: Data) -> str:
    prints = " ".join(p for p in (arm["fingerprint"], arm["system_fingerprint"]) if p)
    cells = (name, arm["grade"], arm["k"], arm["vllm"], prints)
    return f"| {' | '.join('–' if cell in (None, '') else str(cell) for cell in cells)} |"


def _curl(arm: Data, prompt: Prompt, settings: Settings, *, keyed: bool) -> str:
    pin = 0 if arm["grade"] == "soft" else None
    body = request.body(prompt, settings, model=arm["model"], pin=pin)
    lines = [f"curl -s {shlex.quote(arm['url'] + request.path(prompt))}"]
    lines.append("-H 'Content-Type: application/json'")
    if keyed:
        lines.append('-H "Authorization: Bearer $API_KEY"')
    lines.append(f"-d {shlex.quote(json.dumps(body, ensure_ascii=False))}")
    return " \\\n  ".join(lines)
