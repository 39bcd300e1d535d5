# Two commands do all the set-up: `make demo` and `make test`.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# Each test process computes on one core; several run side by side.
JOBS ?= 2

.PHONY: demo docs test test-full test-plain-kernels test-newest lint clean

# The tested set of versions. torch comes first, so that its CPU build is taken where pip knows one.
$(VENV)/.done-%: pyproject.toml experiments/pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing torch, transformers and unshaken[$*] into $(VENV): about 1.5 GB, some minutes, once."
	$(BIN)/python -m pip install --quiet --disable-pip-version-check torch==$$(sed -n 's/^torch==//p' constraints.txt)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[$*]' -e ./experiments
	touch $@

demo: $(VENV)/.done-demo,report
	$(BIN)/unshaken demo

# The site, in site/; a link that leads nowhere is an error.
docs: $(VENV)/.done-docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

# The tests of a file share what they build, so one process runs them all; what is compiled serves the next run, too.
TEST := PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 TOKENIZERS_PARALLELISM=false $(BIN)/python -m pytest -n $(JOBS)
test: $(VENV)/.done-test
	$(TEST) --dist loadfile -m "not slow and not gpu and not full"

# The long ones: whole commands that are started, killed and waited for, the demo, memory over thousands of texts.
test-full: $(VENV)/.done-test
	$(TEST) --dist worksteal -m "full and not slow and not gpu"

# What half precision and solvers do where the processor has neither bf16 nor wide vectors.
test-plain-kernels: $(VENV)/.done-test
	ATEN_CPU_CAPABILITY=default ONEDNN_MAX_CPU_ISA=SSE41 ONEDNN_DEFAULT_FPMATH_MODE=STRICT \
	OMP_NUM_THREADS=1 TOKENIZERS_PARALLELISM=false $(BIN)/python -m pytest -q -n $(JOBS) -m "not slow and not gpu" \
	  -k "half or autocast or bf16 or diverge or plain_kernels" tests

# A smoke test with the newest versions that resolve of all dependencies but torch, whose builds are gigabytes: what is
# installed for `make test` serves for the rest. Where they cannot be fetched in time the test is skipped, in one line.
NEWEST ?= .venv-newest
FETCH_SECONDS ?= 240
test-newest: $(VENV)/.done-test
	$(BIN)/python -m venv --clear $(NEWEST)
	$(BIN)/python scripts/newest.py $(NEWEST)
	@if timeout $(FETCH_SECONDS) $(NEWEST)/bin/python -m pip install --quiet --disable-pip-version-check --upgrade \
	  -r $(NEWEST)/newest.txt >$(NEWEST)/fetch.log 2>&1; then \
	  $(NEWEST)/bin/python -m pip list --local --format freeze; \
	  OMP_NUM_THREADS=1 TOKENIZERS_PARALLELISM=false $(NEWEST)/bin/python -m pytest -q -n $(JOBS) tests/machines \
	    tests/solvers tests/training/test_checkpoints.py tests/kills/test_power_cuts.py \
	    tests/hostile/test_nothing_wrong_looks_right.py -m "not slow and not gpu"; \
	else echo "skipped: the newest versions could not be fetched in $(FETCH_SECONDS) s; see $(NEWEST)/fetch.log"; fi

lint: $(VENV)/.done-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

clean:
	rm -rf $(VENV) $(NEWEST) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
