"""The end of an engine's log: what is known to be harmless, and nothing else."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

import pytest

from specdeck.engine.incident import engine_log
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


@pytest.mark.parametrize(
    ("level", "file", "text"),
    [
        ("INFO", "log_response.py:141", f"response_body={{{PROMPT}}}"),
        ("DEBUG", "serving.py:804", f"Received messages request {PROMPT}"),
        ("DEBUG", "core.py:1382", f"Received {PROMPT}"),
        ("WARNING", "llama_tool_parser.py:151", f"Regex timeout on user input: {PROMPT}"),
        ("ERROR", "parser_manager.py:7", f"cannot parse {PROMPT}"),
        ("ERROR", "dump_input.py:79", f"Dumping scheduler output: SamplingParams(stop={PROMPT})"),
        ("ERROR", "backend_xgrammar.py:202", f"Failed to advance FSM for tokens {PROMPT}"),
    ],
)
def test_a_line_of_what_handles_requests_keeps_its_head(level: str, file: str, text: str) -> None:
    head = f"(APIServer pid=17) {level} 11-22 17:19:32 [{file}]"
    assert clean(f"{head} {text}") == ((f"{head} (withheld)",), 1)


@pytest.mark.parametrize(
    "frame",
    [
        "/v/vllm/entrypoints/openai/chat_completion/serving.py",
        "/v/vllm/entrypoints/serve/exception_handling/handlers/exception.py",
        "/v/vllm/renderers/hf.py",
        "/v/vllm/v1/structured_output/backend_xgrammar.py",
        "/v/jinja2/environment.py",
    ],
)
def test_an_error_that_passed_a_request_keeps_its_kind(frame: str) -> None:
    traced = ("Traceback (most recent call last):", f'  File "{frame}", line 3, in run')
    other = '  File "/v/vllm/v1/engine/core.py", line 9, in step'
    assert clean(*traced, other, f"ValueError: {PROMPT}") == (
        (*traced, other, "ValueError: (withheld)"),
        1,
    )
    memory = "torch.OutOfMemoryError: CUDA out of memory."
    assert clean(traced[0], other, memory)[0][-1] == memory


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


def test_a_log_that_has_nothing_to_read_yet_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Waiting(io.FileIO):
        """As `/proc/kmsg`, read without waiting."""

        def read(self, *_: Any) -> Any:
            return None

    log = tmp_path / "log"
    log.write_text("INFO")
    monkeypatch.setattr(engine_log, "open_file", Waiting)
    with pytest.raises(OSError, match="not a file with an end"):
        read_tail(log)
