"""One case as a page that can be pasted into an issue: how to see it again."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from specdeck.engine.divergence.prompts import Prompt
from specdeck.engine.divergence.report import case_line
from specdeck.engine.divergence.requests import (
    RequestSettings,
    has_logprobs,
    request_body,
    request_path,
)
from specdeck.engine.errors import UsageError
from specdeck.engine.text import UNKNOWN, escape_markdown

Data = Mapping[str, Any]
_TITLE = "Greedy output differs with speculative decoding"
_PARTED = ("index", "serving_token", "reference_token", "margin_serving", "margin_reference",
           "serving_top", "reference_top", "class", "structure", "violation",
           "recheck")  # fmt: skip
_ORDER = {
    kind: rank for rank, kind in enumerate((
        "invalid", "material", "reference_differs", "structural", "stream_only", "unreproduced",
        "near_tie",
    ))
}  # fmt: skip
_CACHED = """An engine may answer the second of these out of its prefix cache. With a `cache_salt`
in the body, another text each time, it reads the prompt anew."""


def choose_case(data: Data, number: int | None) -> Data | None:
    """The case of prompt `number`, or the gravest; None where nothing differs.

    Raises UsageError for a prompt that does not differ.
    """
    if number is None:
        return min(data["cases"], key=lambda case: _ORDER[case["class"]], default=None)
    for case in data["cases"]:
        if case["prompt"] == number:
            found: Data = case
            return found
    raise UsageError(f"prompt {number} did not differ", remedy="give one that the check lists")


def case_page(
    data: Data, case: Data, prompt: Prompt, settings: RequestSettings, *, keyed: bool
) -> str:
    """Both requests as curl, what answered them, and what they answered; holds no secret."""
    if case.get("streamed_by"):
        return _stream_page(data, case, prompt, settings, keyed=keyed)
    retold = case["class"] == "stream_only"
    streamed = case["pair"] == "streamed"
    curls = "\n\n".join(
        f"{name}:\n\n"
        + _curl(
            arm, prompt, settings, keyed=keyed, stream=retold and streamed,
            logprobs=has_logprobs(name, streamed=streamed),
        )
        for name, arm in data["arms"].items()
    )  # fmt: skip
    title = "The arms make different text of equal tokens" if retold else _TITLE
    where = "The token ids are equal, what is made of them differs." if retold else (
        f"The first token that differs is number {case['index']}, counted from 0, of\n"
        "`choices[0].token_ids`."
    )  # fmt: skip
    near = data["near_tie"]
    seen = data["streamed"]["mismatches"] if streamed and not retold else data["mismatches"]
    return f"""# {title}

{escape_markdown(case_line(case))}

{_arms(data)}

Seen in {seen} of {data["prompts"]} prompts; the reference differs from itself in \
{data["noise_floor"]["mismatches"]} of {data["noise_floor"]["pairs"]}. Margins up to \
{near["threshold"]:.3g} count as near ties (resolution {near["resolution"]:.3g}).

## Requests

{curls}

{where}

{_CACHED}

## The divergence

{_details(case, _PARTED)}
"""


def _stream_page(
    data: Data, case: Data, prompt: Prompt, settings: RequestSettings, *, keyed: bool
) -> str:
    """A case of one arm: the same request, whole and streamed."""
    name = case["streamed_by"]
    whole, streamed = (
        _curl(
            data["arms"][name], prompt, settings, keyed=keyed, stream=stream,
            logprobs=has_logprobs(name, streamed=stream),
        )
        for stream in (False, True)
    )  # fmt: skip
    return f"""# Streamed and non-streamed output differ

{escape_markdown(case_line(case))}

{_arms(data)}

Seen in {data["classes"]["stream_only"]} of {data["prompts"]} prompts, in the {name} arm alone: \
the other arm streamed this answer as it tells it in one piece. The tokens of both answers are the \
same; the text, or the calls of tools, that the server makes of them are not.

## Requests

In one piece:

{whole}

Streamed, to be put together from its events:

{streamed}

{_CACHED}

## The difference

{_details(case, ("index", "class", "streamed_by", "structure"))}
"""


def _arms(data: Data) -> str:
    arms = "\n".join(_about(name, arm) for name, arm in data["arms"].items())
    return f"| arm | grade | k | vLLM | fingerprints |\n|---|---|---|---|---|\n{arms}"


def _details(case: Data, keys: Sequence[str]) -> str:
    return f"```json\n{json.dumps({key: case[key] for key in keys}, indent=1)}\n```"


def _about(name: str, arm: Data) -> str:
    prints = " ".join(p for p in (arm["fingerprint"], arm["system_fingerprint"]) if p)
    cells = (name, arm["grade"], arm["k"], arm["vllm"], prints)
    words = (UNKNOWN if cell in (None, "") else escape_markdown(str(cell)) for cell in cells)
    return f"| {' | '.join(words)} |"


def _curl(
    arm: Data,
    prompt: Prompt,
    settings: RequestSettings,
    *,
    keyed: bool,
    stream: bool = False,
    logprobs: bool = True,
) -> str:
    pin = 0 if arm["grade"] == "soft" else None
    asked = format_curl(
        arm["url"], prompt, settings, model=arm["model"], pin=pin, keyed=keyed, stream=stream,
        logprobs=logprobs,
    )  # fmt: skip
    return f"```sh\n{asked}\n```"


def format_curl(
    url: str,
    prompt: Prompt,
    settings: RequestSettings,
    *,
    model: str,
    pin: int | None,
    keyed: bool,
    stream: bool = False,
    logprobs: bool = True,
) -> str:
    """The request of one arm as a command for a shell; the API key is the shell's `$API_KEY`."""
    body = request_body(prompt, settings, model=model, pin=pin, stream=stream, logprobs=logprobs)
    lines = [f"curl -s{'N' * stream} {shlex.quote(url + request_path(prompt))}"]
    lines.append("-H 'Content-Type: application/json'")
    if keyed:
        lines.append('-H "Authorization: Bearer $API_KEY"')
    lines.append(f"-d {shlex.quote(json.dumps(body))}")
    return " \\\n  ".join(lines)
