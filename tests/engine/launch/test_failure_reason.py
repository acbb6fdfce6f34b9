import time
from pathlib import Path

import pytest

from specdeck.engine.launch.failure_reason import find_reason

LOGS = Path(__file__).parent / "logs"

SAID = {
    "no_model": "no model at /nowhere/model: neither a folder nor a Hugging Face repository",
    "unknown_argument": "unrecognized arguments: --flavour",
    "vocabulary": "Target and draft model should have the same vocabulary size. "
    "Target model vocab_size=320. Draft model vocab_size=384",
    "port_taken": "the port is taken: another process listens on it",
    "memory": "Available memory on node 0 (6.49/9.09 GiB) on kv cache allocation is less than "
    "requested memory for kv (4000.0 GiB)",
    "context_length": "User-specified max_model_len (999999) is greater than the derived "
    "max_model_len (max_position_embeddings=512.0 or model_max_length=None in model's "
    "config.json)",
    "tensor_parallel": "Total number of attention heads (4) must be divisible by tensor "
    "parallel size (3)",
    "torchvision": "the installed torchvision does not fit this torch: uninstall torchvision, "
    "torchaudio and torchcodec",
}


@pytest.mark.parametrize("name", SAID)
def test_a_recorded_failure_gives_the_engines_own_reason(name: str) -> None:
    assert find_reason((LOGS / f"{name}.txt").read_text(), 1).startswith(SAID[name])


@pytest.mark.parametrize("name", SAID)
def test_a_reason_is_one_readable_line(name: str) -> None:
    said = find_reason((LOGS / f"{name}.txt").read_text(), 1)
    assert "\n" not in said
    assert len(said) <= 260


def test_an_assertion_without_words_shows_its_code_and_place() -> None:
    raised = (
        "Traceback (most recent call last):",
        '  File "/v/suffix.py", line 43, in propose',
        "    assert k == self.k",
        "           ^^^^^^^^^^^",
        "AssertionError",
    )
    core = "(EngineCore pid=7) ERROR 11-21 08:45:40 [core.py:1510] "
    log = "".join(f"{core}{line}\n" for line in raised) + (
        "(APIServer pid=5) Traceback (most recent call last):\n"
        '(APIServer pid=5)   File "/v/core_client.py", line 9, in wait\n'
        "(APIServer pid=5) RuntimeError: Engine core initialization failed. See root cause above.\n"
    )
    assert find_reason(log, 1) == "AssertionError at assert k == self.k (suffix.py:43)"


def test_gpu_memory_that_runs_out_is_named() -> None:
    log = (
        "(EngineCore pid=7) Traceback (most recent call last):\n"
        '(EngineCore pid=7)   File "/v/model.py", line 1, in load\n'
        "(EngineCore pid=7) torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB.\n"
    )
    assert find_reason(log, 1).startswith("OutOfMemoryError: CUDA out of memory.")


def test_a_plugin_that_was_skipped_is_no_reason() -> None:
    log = (
        "Failed to load plugin other\nTraceback (most recent call last):\n"
        '  File "/v/plugins.py", line 69, in load\nModuleNotFoundError: No module named other\n'
        "(APIServer pid=5) INFO 11-21 08:44:58 [a.py:1] Using max model len 256\n"
    )
    assert find_reason(log, 3) == "it ended with exit code 3 after: Using max model len 256"


def test_what_was_raised_from_an_accident_of_code_tells_more() -> None:
    log = (
        "Traceback (most recent call last):\n  File \"a.py\", line 1, in f\nKeyError: 'eagle9'\n\n"
        "The above exception was the direct cause of the following exception:\n\n"
        'Traceback (most recent call last):\n  File "a.py", line 2, in f\n'
        "ValueError: no method called eagle9\n"
    )
    assert find_reason(log) == "no method called eagle9"


def test_an_engine_that_was_killed_says_so() -> None:
    assert "SIGKILL" in find_reason("INFO 11-21 08:44:58 [a.py:1] loading\n", -9)
    assert "SIGSEGV" in find_reason("", -11)
    assert find_reason("", -40) == "it was ended by signal 40"


KILLED = (
    "(APIServer pid=7) Traceback (most recent call last):\n"
    '(APIServer pid=7)   File "/v/utils.py", line 1432, in wait\n'
    "(APIServer pid=7) RuntimeError: Engine core initialization failed. See root cause above. "
    "Failed core proc(s): {%s}\n"
)


@pytest.mark.parametrize(
    ("cores", "reason"),
    [
        (
            "'EngineCore': -9",
            "EngineCore was killed by SIGKILL: perhaps the machine ran out of memory",
        ),
        ("'EngineCore_DP0': 0, 'EngineCore_DP1': -11", "EngineCore_DP1 was ended by SIGSEGV"),
        ("'EngineCore': -99", "EngineCore was ended by signal 99"),
        ("'EngineCore': 1", "it ended with exit code 1 after: "),
        ("", "it ended with exit code 1 after: "),
    ],
)
def test_a_core_that_was_killed_while_it_loaded_is_named(cores: str, reason: str) -> None:
    assert find_reason(f"INFO 01-01 00:00:00 [a.py:1] hi\n{KILLED % cores}", 1).startswith(reason)


@pytest.mark.parametrize("said", ["Worker failed with error '", "Repo id must be in the form "])
def test_a_line_of_a_megabyte_is_read_in_no_time(said: str) -> None:
    trace = 'Traceback (most recent call last):\n  File "a.py", line 1, in f\nValueError: '
    began = time.process_time()
    assert find_reason(trace + said * 9000, 1).startswith(said[:20])
    assert time.process_time() - began < 1.0


def test_no_credential_of_an_argument_is_repeated() -> None:
    log = """api_server.py: error: argument --seed: invalid value: '{"password": "hush"}'"""
    assert "hush" not in find_reason(log)
    assert "--seed" in find_reason(log)


@pytest.mark.parametrize("before", [140, 180, 200, 220, 236])
def test_no_credential_stays_that_a_cut_goes_through(before: int) -> None:
    said = f"{'x ' * (before // 2)}redis://u:{'hush' * 20}@cache"
    trace = f'Traceback (most recent call last):\n  File "a.py", line 1, in f\nValueError: {said}'
    assert "hush" not in find_reason(trace, 1)
