"""The load generator as a child, with a script in its place."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

from specdeck.engine.demo.load_process import LoadProcess

SECRETS = {
    "SPECDECK_ADMIN_TOKEN": "a",
    "SPECDECK_WEBHOOK": "b",
    "HF_TOKEN": "c",
    "VLLM_API_KEY": "d",
}


def test_the_child_has_no_secret_but_the_key_that_it_sends(tmp_path: Path) -> None:
    (tmp_path / "stand_in.py").write_text(
        "import json, os, pathlib, sys\n"
        "pathlib.Path(sys.argv[1]).write_text(json.dumps(dict(os.environ)))\n"
    )
    environment = {**os.environ, **SECRETS, "PYTHONPATH": str(tmp_path)}
    told = tmp_path / "environment.json"
    load = LoadProcess(
        "http://127.0.0.1:1",
        "mixed",
        environment=environment,
        api_key_env="VLLM_API_KEY",
        python=sys.executable,
        module="stand_in",
    )
    load.start(str(told))
    deadline = time.monotonic() + 20
    while not (told.exists() and told.read_text()) and time.monotonic() < deadline:
        time.sleep(0.01)
    load.close()
    found = json.loads(told.read_text())
    assert {name for name in SECRETS if name in found} == {"VLLM_API_KEY"}
    assert found["PATH"] == os.environ["PATH"]
