# From a fresh clone: `make run` trains on Fashion-MNIST within a thin uplink, forgets agents and audits that; `make test`
# runs every check.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check -q

.PHONY: run test test-long lint bench fuzz kill faults soak docs clean

run: .venv/run.stamp
	$(BIN)/fedstein data get fashion-mnist
	$(BIN)/python examples/mission.py

test: .venv/test.stamp lint
	$(BIN)/fedstein data get fashion-mnist
	$(BIN)/python -m pytest -q -n $$(($$(nproc) + 1)) --durations 20

# What takes longer: every case of the conformance suite on every engine, kills, a Flower deployment whose nodes,
# SuperLink and server are killed, tiny versions of the studies of real data (skipped where it cannot be had).
test-long: .venv/test.stamp
	-for name in watch flights cifar10; do $(BIN)/fedstein data get $$name; done
	FEDSTEIN_LONG=1 $(BIN)/python -m pytest -q -n 4 --durations 12 \
		tests/engines/test_conformance.py tests/runs/test_kills.py tests/flower/test_deployment.py \
		tests/test_own_pages.py tests/studies \
		tests/data/test_federations.py tests/data/test_cifar10.py tests/data/test_tables.py

# The faults of a deployment alone.
faults: .venv/test.stamp
	FEDSTEIN_LONG=1 $(BIN)/python -m pytest -q tests/flower/test_deployment.py

lint: .venv/test.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Speed, as ratios inside one run. Nothing here fails: read the tables.
bench: .venv/test.stamp
	$(BIN)/python benchmarks/start.py
	$(BIN)/python benchmarks/svgd_step.py
	$(BIN)/python benchmarks/svgd_step.py --grow
	$(BIN)/python benchmarks/svgd_step.py --memory
	$(BIN)/python benchmarks/general.py
	$(BIN)/python benchmarks/lazy.py
	$(BIN)/fedstein data get fashion-mnist
	$(BIN)/python benchmarks/overhead.py
	$(BIN)/python benchmarks/uplink.py
	$(BIN)/python benchmarks/uplink.py --grow
	$(BIN)/python benchmarks/recording.py --report
	$(BIN)/python benchmarks/workers.py
	$(BIN)/python benchmarks/engines.py

# A coverage-guided fuzzer against the frame decoder; a short run of it is part of `make test`.
fuzz: .venv/test.stamp
	$(BIN)/python tests/fuzz/fuzz_frame.py -runs=1000000 -max_len=512

# Runs killed again and again, and compared with runs that were left alone; a smaller version is part of `make test`.
kill: .venv/test.stamp
	$(BIN)/python tests/runs/kills.py --kills 50 --processes
	$(BIN)/python tests/runs/kills.py --kills 500
	$(BIN)/python tests/runs/kills.py --writes
	$(BIN)/python tests/runs/kills.py --forget

# 300 rounds of a Flower simulation in which a tenth of the visits fail.
soak: .venv/test.stamp
	$(BIN)/python tests/flower/test_simulation.py 300

# docs/config.md is written from the settings themselves.
docs: .venv/run.stamp
	$(BIN)/python docs/write_config.py

.venv/run.stamp: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(PIP) install -c constraints.txt -e ".[report]"
	touch $@

.venv/test.stamp: .venv/run.stamp
	$(PIP) install -c constraints.txt -e ".[dev]"
	touch $@

clean:
	rm -rf .venv .mypy_cache .ruff_cache .hypothesis build dist
