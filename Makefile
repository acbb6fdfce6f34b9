# make demo   a real vLLM with the shipped model pair, load on it, and the console
# make test   what every change has to pass       make check   lint, types, import contracts
# make test-all   everything that needs no GPU: engines of other kinds as well
# make test-quick   the tests that start no engine, on all cores; make test-hostile   those of liars
# make bench  the figures of benchmarks/          make models  train the demo pair again
# make fuzz   a hundred thousand mutated replies, files and command lines
# make soak   an hour of consoles, bad links and killed engines
# make docs   the generated parts of docs/        make picture the picture in README.md

run := .venv/bin/python
# Tests of the console wait until it is idle, for a third of their time; commands that hear liars
# wait for most of it.
cores = $(shell $(run) -c "import os; print(os.cpu_count() or 1)")
workers = $(shell expr $(cores) \* 3 / 2)

.PHONY: setup demo test test-all test-quick test-hostile test-live test-long check format docs picture bench fuzz soak models clean

setup: .venv/made-from

# SPECDECK_BUILD=cpu or gpu overrides what the machine looks like; PYTHON names the interpreter.
.venv/made-from: pyproject.toml scripts/setup.sh
	@scripts/setup.sh
	@$(run) -m compileall -q console engine src/specdeck

demo: setup
	@.venv/bin/specdeck demo

test: test-quick test-hostile test-live

test-all: test test-long

test-quick: setup
	$(run) -m pytest -m 'not live and not gpu and not hostile' --numprocesses $(workers) --maxprocesses 8 --dist worksteal

test-hostile: setup
	$(run) -m pytest -m hostile tests/hostile --numprocesses $(shell expr $(cores) \* 2) --maxprocesses 8 --dist worksteal

# One after the other: an engine takes every core that it gets.
test-live: setup
	$(run) -m pytest -m 'live and not long' tests/live

test-long: setup
	$(run) -m pytest -m long tests/live

check: setup
	$(run) -m ruff check
	$(run) -m ruff format --check
	$(run) -m mypy
	$(run) -c "from importlinter.cli import lint_imports_command as lint; lint()"
	$(run) scripts/generate_docs.py --check

format: setup
	$(run) -m ruff check --fix
	$(run) -m ruff format

docs: setup
	$(run) scripts/generate_docs.py

picture: setup
	$(run) scripts/take_picture.py docs/live.svg

bench: setup
	$(run) -m benchmarks.run

fuzz: setup
	$(run) -m pytest tests/hostile -k 'mutated or command_line' --hypothesis-profile fuzz

soak: setup
	$(run) -m benchmarks.run soak

models: setup
	$(run) -m specdeck.engine.demo.train

clean:
	rm -rf .venv dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis
