# One command for everything.  `make` lists them; `make test` is what a contributor must pass.
#
# Each command creates the virtual environment and installs what it needs, once.  Override VENV to
# put the environment elsewhere and PYTHON to build it from another interpreter (3.11 or newer).

PYTHON ?= python3
VENV ?= .venv
PY := $(VENV)/bin/python
# Test processes at a time.  Most tests wait for nodes and clocks: four keep two cores busy.
JOBS ?= 4

# What the extension is made of; a change to any of these rebuilds it.
SOURCES := setup.py pyproject.toml $(wildcard multiraft/*.pyx multiraft/*.pxd multiraft/*.h)
# A stamp says nothing about an extension that somebody removed.
BUILT := $(if $(wildcard multiraft/_core.*.so),,missing)
# A change of the package's metadata or pins installs again.
PACKAGING := setup.py pyproject.toml constraints.txt

.DEFAULT_GOAL := help
.PHONY: help build test demo bench-first-light bench-node ops-machines wheels lint fix sim soak
.PHONY: bench-moves bench-placement bench-spark chaos clean fuzz asan java machine missing
.PHONY: native proved
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory

help:  ## list the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-18s %s\n", $$1, $$2 }' Makefile

build: $(VENV)/.built-dev  ## create .venv, install in place for developers, compile

test: java $(VENV)/.built-strict  ## all that a contributor must pass
	$(PY) -m ruff check .
	$(PY) -m pytest --import-mode=importlib -n $(JOBS) --dist loadfile --no-loadscope-reorder $(ARGS)

demo: java $(VENV)/.built-demo  ## three nodes, real data, a killed leader, a plan, nothing lost
	$(PY) demo/flights.py $(ARGS)

bench-first-light: $(VENV)/.built-dev  ## print the figures beside what the machine can do at all
	$(PY) -m benchmarks.bench_first_light $(ARGS)

bench-node: $(VENV)/.built-dev  ## failover, return, creation, catching up, beside their targets
	$(PY) -m benchmarks.bench_node $(ARGS)

bench-moves: $(VENV)/.built-dev  ## a node joins under load, partitions switch, beside their targets
	$(PY) -m benchmarks.bench_moves $(ARGS)

bench-placement: $(VENV)/.built-dev  ## balance against movement, beside other ways of placing
	$(PY) -m benchmarks.placement $(ARGS)

bench-spark: java $(VENV)/.built-dev  ## topics read as tables, and plans of ten million partitions
	$(PY) -m benchmarks.bench_spark $(ARGS)
	$(PY) -m benchmarks.spark_planning $(PLANNING)

wheels: $(VENV)/.built-dev  ## this tree and all it needs as wheels, for machines like this one
	rm -rf build/dist build/wheels
	$(PY) -m build --outdir build/dist . >/dev/null
	$(PY) -m pip wheel --quiet --disable-pip-version-check -c constraints.txt \
	  --wheel-dir build/wheels build/dist/*.whl

ops-machines: $(VENV)/.built-dev  ## type docs/operations.md on machines: root, docker, minutes
	OPS_MACHINES=1 $(PY) -m pytest --import-mode=importlib -x -rs $(ARGS) \
	  tests/e2e/test_operations_machines.py

lint: $(VENV)/.built-dev  ## ruff and the rules of the house, without the rest of the tests
	$(PY) -m ruff check .
	$(PY) -m pytest --import-mode=importlib tests/tidy $(ARGS)

fix: $(VENV)/.built-dev  ## repair what lint can repair
	$(PY) -m ruff check --fix .

# NATIVE=1 runs seeds as machine code, once that has proved to be the same world.
NATIVE_TREE := build/native
SIM := $(if $(NATIVE),PYTHONPATH=$(abspath $(NATIVE_TREE)) )$(VENV)/bin/multiraft chaos sim
SIM_NEEDS := $(VENV)/.built-dev $(if $(NATIVE),proved)
sim: $(SIM_NEEDS)  ## simulate seeds; ARGS="--seed 8146" replays one; NATIVE=1: as machine code
	$(SIM) $(ARGS)

soak: $(SIM_NEEDS)  ## fresh seeds for two hours, counted per commit; ARGS="--minutes 240", NATIVE=1
	nice -n 10 env $(SIM) --fresh --minutes 120 --record $(ARGS)

# A copy of the tree, so that everything else goes on in the interpreter.  Its record is the tree's.
native: $(VENV)/.installed-native $(VENV)/.built-dev  ## compile the simulator: some minutes
	rm -rf $(NATIVE_TREE) && mkdir -p $(NATIVE_TREE)
	git ls-files -z --cached --others --exclude-standard | xargs -0 cp --parents -t $(NATIVE_TREE)
	cp multiraft/_core.*.so $(NATIVE_TREE)/multiraft
	ln -sf $(abspath chaos/soak.jsonl) $(NATIVE_TREE)/chaos/soak.jsonl
	cd $(NATIVE_TREE) && $(abspath $(PY)) -m chaos.native build

proved:
	@test -d $(NATIVE_TREE) || { echo "Nothing is compiled. Run: make native" >&2; exit 1; }
	$(PY) -m chaos.native prove $(NATIVE_TREE) .

fuzz: $(VENV)/.installed-fuzz $(VENV)/.built-dev  ## search decoders; ARGS="--minutes 10"
	$(PY) -m tests.fuzz.run $(ARGS)

# A copy of the tree, so that the extension that everything else uses stays as it is.
ASAN_TREE := build/asan
ASAN_TESTS := tests/core tests/fuzz tests/wire
asan: $(VENV)/.built-dev  ## the extension under address and undefined behaviour sanitizers
	rm -rf $(ASAN_TREE) && mkdir -p $(ASAN_TREE)
	git ls-files -z --cached --others --exclude-standard | xargs -0 cp --parents -t $(ASAN_TREE)
	cd $(ASAN_TREE) && MULTIRAFT_SANITIZE=1 $(abspath $(PY)) setup.py --quiet build_ext --inplace
	cd $(ASAN_TREE) && LD_PRELOAD="$$($${CC:-gcc} -print-file-name=libasan.so)" \
	  ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1 UBSAN_OPTIONS=print_stacktrace=1 \
	  PYTHONMALLOC=malloc $(abspath $(PY)) -m pytest -q -p no:cacheprovider $(ASAN_TESTS) $(ARGS)

chaos: $(VENV)/.built-dev  ## ten minutes of faults against containers; ARGS="--seed 4711"
	$(VENV)/bin/multiraft chaos run --backend docker --seconds 600 $(ARGS)

clean:  ## remove what was built; the virtual environment stays until you remove it
	rm -rf build dist .pytest_cache .ruff_cache .hypothesis *.egg-info
	rm -f multiraft/_core.c multiraft/_core.html multiraft/_source_digest.h multiraft/_core*.so
	rm -f $(VENV)/.built-* $(VENV)/.installed-*
	find . -name __pycache__ -not -path './.venv*' -prune -exec rm -rf {} +

# ---- the virtual environment and the extension ---------------------------------------------------

# One line to run when the machine lacks something; silent otherwise.
APT := $(if $(filter-out 0,$(shell id -u)),sudo )apt-get install -y python3-venv python3-dev gcc
machine:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Python 3.11 or newer is needed$$($(PYTHON) -V 2>/dev/null | sed 's/^/, not /')." \
	    "Run: $(APT)" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
	  { echo "The venv module is missing. Run: $(APT)" >&2; exit 1; }
	@command -v $${CC:-cc} >/dev/null || \
	  { echo "A C compiler is missing. Run: $(APT)" >&2; exit 1; }
	@printf '#include <Python.h>\n' | $${CC:-cc} -fsyntax-only -x c \
	  -I"$$($(PYTHON) -c 'import sysconfig; print(sysconfig.get_path("include"))')" - 2>/dev/null || \
	  { echo "The headers of Python or of C are missing. Run: $(APT)" >&2; exit 1; }

# Spark runs on Java 17 or newer.  Debian's is brought where that may be done; where it may not, a
# line says so, and what needs Java is skipped.
JRE := $(if $(filter-out 0,$(shell id -u)),sudo )apt-get install -y default-jre-headless
java:
	@major=$$("$${JAVA_HOME:+$$JAVA_HOME/bin/}java" -version 2>&1 | \
	  sed -n 's/.* version "\([0-9]*\).*/\1/p'); [ "$${major:-0}" -ge 17 ] || { \
	    [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get -qq update && \
	    apt-get -qq install -y --no-install-recommends default-jre-headless >/dev/null; } || \
	  echo "Java 17 or newer is missing, Spark is left out. Run: $(JRE)" >&2

$(PY):
	@$(MAKE) machine
	$(PYTHON) -m venv $(VENV)

INSTALL := $(PY) -m pip install --quiet --disable-pip-version-check -c constraints.txt
$(VENV)/.installed-dev: $(PACKAGING) | $(PY)
	$(INSTALL) -e '.[dev,chaos,spark]'
	@touch $@

$(VENV)/.installed-fuzz: $(VENV)/.installed-dev
	$(INSTALL) -e '.[dev,fuzz]'
	@touch $@

$(VENV)/.installed-native: $(VENV)/.installed-dev
	$(INSTALL) -e '.[dev,native]'
	@touch $@

$(VENV)/.built-dev: $(VENV)/.installed-dev $(SOURCES) $(BUILT)
	$(PY) setup.py --quiet build_ext --inplace
	@touch $@

# The demo needs no tools of development: the installation itself compiles.
$(VENV)/.built-demo: $(PACKAGING) $(SOURCES) $(BUILT) | $(PY)
	$(INSTALL) -e '.[demo]'
	@touch $@

# Compiled anew with warnings as errors, whatever an earlier, milder build left behind.
$(VENV)/.built-strict: $(VENV)/.installed-dev $(SOURCES) $(BUILT)
	MULTIRAFT_WERROR=1 $(PY) setup.py --quiet build_ext --inplace --force
	@touch $@ $(VENV)/.built-dev
