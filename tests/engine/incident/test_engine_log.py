"""The end of an engine's log: what is known to be harmless, and nothing else."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from specdeck.engine.incident.engine_log import clean_log, read_tail
from specdeck.engine.incident.redaction import Redactor

HEAD = "(APIServer pid=17) INFO 11-22 17:19:32 [logger.py:40]"
PROMPT = "PLANTED dear Ann"


def clean(*lines: str) -> tuple[tuple[str, ...], int]:
    tail = clean_log("\n".join(lines), Redactor())
    return tail.lines, tail.withheld


@pytest.mark.parametrize(
    "text",
    [
        f"Received request cmpl-1: params: SamplingParams(stop=['{PROMPT}'], n=1), lora: None.",
        f"Request cmpl-1 details: prompt: '{PROMPT}', prompt_token_ids: [1, 2, 3], shape: None.",
        f'Request cmpl-1 JSON body: {{"prompt": "{PROMPT}"}}',
        f"Generated response cmpl-1 (streaming delta): output: '{PROMPT}', finish_reason: stop",
    ],
)
def test_nothing_is_told_of_a_request(text: str) -> None:
    assert clean(f"{HEAD} {text}") == ((), 1)


def test_lines_that_nobody_knows_are_counted() -> None:
    lines, withheld = clean(
        f"{HEAD} Starting vLLM server on http://127.0.0.1:8000", PROMPT,
        f"middleware says {PROMPT}", "  more of it", "INFO:root:hello",
    )  # fmt: skip
    assert lines == (f"{HEAD} Starting vLLM server on http://127.0.0.1:8000",)
    assert withheld == 4


def test_a_traceback_is_told_without_its_lines_of_source() -> None:
    head = "(EngineCore pid=9) ERROR 11-22 17:19:32 [core.py:1]"
    lines, withheld = clean(
        f"{head} Traceback (most recent call last):",
        f'{head}   File "/a/b.py", line 3, in run',
        "Traceback (most recent call last):",
        '  File "/a/b.py", line 3, in run',
        f'    raise ValueError("{PROMPT}")',
        f"ValueError: cannot take '{PROMPT} and more'",
        "Killed",
    )
    assert lines[:2] == (
        f"{head} Traceback (most recent call last):",
        f'{head}   File "/a/b.py", line 3, in run',
    )
    assert lines[2:4] == ("Traceback (most recent call last):", '  File "/a/b.py", line 3, in run')
    assert lines[4] == "ValueError: cannot take (withheld)"
    assert lines[5] == "Killed"
    assert withheld == 1


def test_what_clients_ask_is_told_without_what_stands_behind_the_path() -> None:
    lines, _ = clean(
        '(APIServer pid=1) INFO:     127.0.0.1:5 - "POST /v1/completions?q=PLANTED HTTP/1.1" 200 OK'
    )
    assert lines == ('(APIServer pid=1) INFO: 127.0.0.1:5 - "POST /v1/completions" 200 OK',)


def test_errors_are_named_once() -> None:
    error = "(EngineCore pid=9) ERROR 11-22 17:19:32 [core.py:1] EngineCore died"
    tail = clean_log(f"{HEAD} fine\n{error}\n{error}\nKilled", Redactor())
    assert tail.notable == (error, "Killed")


def test_the_end_of_a_long_log_is_read_and_a_pipe_is_not(tmp_path: Path) -> None:
    log = tmp_path / "engine.log"
    log.write_text("".join(f"line {n}\n" for n in range(10_000)))
    text, cut = read_tail(log, most=100)
    assert cut
    assert text.startswith("line ")
    assert text.endswith("line 9999\n")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="not a regular file"):
        read_tail(tmp_path / "pipe")
