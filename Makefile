# One command does all set-up on a machine with Python 3.11+, cargo and make: `make demo`, or `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
RUST := $(shell find rust/src -name "*.rs") Cargo.toml Cargo.lock pyproject.toml

.PHONY: demo dashboard test check bench reliability soak mutants report lock clean build wheel docs

DEMO := .venv-demo

build: $(VENV)/.built

$(VENV)/.installed: requirements/dev.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.txt
	touch $@

$(VENV)/.built: $(VENV)/.installed $(RUST)
	PATH="$(CURDIR)/$(BIN):$$PATH" MATURIN_PEP517_ARGS="--locked" \
	  $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	touch $@

$(VENV)/.bench: $(VENV)/.built requirements/bench.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/bench.txt
	touch $@

# What the demo needs and no more: an environment of its own, a fifth of the size of the other.
$(DEMO)/.installed: requirements/demo.txt
	$(PYTHON) -m venv $(DEMO)
	$(DEMO)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/demo.txt
	touch $@

$(DEMO)/.built: $(DEMO)/.installed $(RUST) $(shell find src -name "*.py")
	PATH="$(CURDIR)/$(DEMO)/bin:$$PATH" MATURIN_PEP517_ARGS="--locked" \
	  $(DEMO)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation .
	touch $@

demo: $(DEMO)/.built  ## watch a histogram of unknown labels, a top list and a last-hours window being released
	$(DEMO)/bin/pianissimo demo

wheel: build  ## a source distribution, a wheel for any Linux that is built from it, tried in empty environments without cargo
	rm -rf target/dist
	PATH="$(CURDIR)/$(BIN):$$PATH" CARGO_TARGET_DIR="$(CURDIR)/target/wheel" \
	  $(BIN)/maturin build --release --locked --zig --compatibility manylinux_2_28 --sdist --out target/dist
	$(BIN)/python -m tests.wheels target/dist

PORT ?= 8080

dashboard: build  ## the same on a live page in the browser, one tick a second
	$(BIN)/pianissimo demo --ticks 600 --serve 127.0.0.1:$(PORT)

# One more than two cores: many tests wait for a process, a server or a clock.
TESTERS ?= 3

test: build  ## all tests: Rust, Python, docstring examples
	rm -rf target/reliability
	cargo test --release --locked --quiet
	$(BIN)/python -m pytest -n $(TESTERS) --dist worksteal -q

docs: report  ## the site, in site/: without a warning, and nothing in it asks another server
	NO_MKDOCS_2_WARNING=1 PYTHONPATH=src $(BIN)/mkdocs build --strict --quiet
	cp -R target/report site/report

# Every test that leaves a figure of the fault catalogue, or catches a mutant of it.
FAULTS = $(shell grep -rlE "faults.report import|faults import report" tests --include="test_*.py" | sort)

reliability: build  ## every row of the fault catalogue with its figure and its bar, at the size of every change
	rm -rf target/reliability
	$(BIN)/python -m pytest -n auto --dist worksteal -q --durations=20 $(FAULTS); tests=$$?; \
	  $(BIN)/python -m tests.faults.report && exit $$tests

soak: build  ## the same at full size: about an hour
	rm -rf target/reliability
	PIANISSIMO_SOAK=1 $(BIN)/python -m pytest -n auto --dist worksteal -q --durations=20 $(FAULTS); tests=$$?; \
	  PIANISSIMO_SOAK=1 $(BIN)/python -m tests.faults.report && exit $$tests

check: build  ## formatting, lints, types, import contracts
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m mypy.stubtest pianissimo._core --concise
	$(BIN)/lint-imports
	cargo fmt --check
	cargo clippy --release --locked --all-targets -- -D warnings
	cargo clippy --release --locked --all-targets --features python -- -D warnings

bench: $(VENV)/.bench  ## speed and memory, as ratios against peers in the same run
	$(BIN)/python -m benchmarks

# All places take hours; `make mutants SHARE=39` takes one place in 39.
SHARE ?= 1
PART ?= 0

mutants: build  ## change one promise-carrying expression at a time: does a test notice?
	$(BIN)/python -m tests.mutants map
	nice -n 10 $(BIN)/python -m tests.mutants run --share $(SHARE) --part $(PART)
	$(BIN)/python -m tests.mutants summary

report: build  ## the theorems, the papers' errors and the experiments, as target/report/report.pdf and as a page
	$(BIN)/python docs/report/build.py

lock:  ## make the lock files anew
	$(BIN)/uv pip compile pyproject.toml --group dev --group docs --all-extras --universal --python-version 3.11 \
	  --generate-hashes --no-emit-index-url --no-emit-find-links --no-header --quiet -o requirements/dev.txt
	$(BIN)/uv pip compile pyproject.toml --group bench --universal --python-version 3.11 -c requirements/dev.txt \
	  --generate-hashes --no-emit-index-url --no-emit-find-links --no-header --quiet -o requirements/bench.txt
	$(BIN)/uv pip compile pyproject.toml --extra plot --group build --universal --python-version 3.11 -c requirements/dev.txt \
	  --generate-hashes --no-emit-index-url --no-emit-find-links --no-header --quiet -o requirements/demo.txt

clean:
	rm -rf $(VENV) $(DEMO) target site demo-output src/pianissimo/_core*.so
