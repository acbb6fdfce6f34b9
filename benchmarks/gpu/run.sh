#!/bin/sh
# The program on this checkout, with what engines need to find in it:
#   sh benchmarks/gpu/run.sh [--parts 1,2] [--minutes 25] [--small] …
# PYTHON names an interpreter that has vLLM and specdeck's dependencies, on its own path or on
# PYTHONPATH; specdeck itself need not be installed. Nothing is fetched, nothing is installed.
set -eu
cd "$(dirname "$0")/../.."
python=${PYTHON:-python3}
[ -n "${PYTHON:-}" ] || [ ! -x .venv/bin/python ] || python=.venv/bin/python
export PYTHONPATH="$PWD/src${PYTHONPATH:+:$PYTHONPATH}"

# Seconds now, rather than the first part's time.
"$python" - <<'PROGRAM'
import importlib, sys

lacking = []
for name in ("httpx", "yaml", "pydantic", "platformdirs", "psutil", "prometheus_client", "torch", "vllm"):
    try:
        importlib.import_module(name)
    except ImportError as error:
        lacking.append(f"{name} ({error})")
if lacking:
    sys.exit(f"run.sh: {sys.executable} cannot import {', '.join(lacking)}")
import torch, vllm

where = torch.cuda.get_device_name() if torch.cuda.is_available() else "no CUDA device: small form"
print(f"run.sh: vLLM {vllm.__version__}, torch {torch.__version__}, {where}", file=sys.stderr)
PROGRAM
exec "$python" -m benchmarks.gpu "$@"
