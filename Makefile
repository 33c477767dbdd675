# One command for everything.  `make` lists them; `make test` is what a contributor must pass.
#
# Each command creates the virtual environment and installs what it needs, once.  Override VENV to
# put the environment elsewhere and PYTHON to build it from another interpreter (3.11 or newer).

PYTHON ?= python3
VENV ?= .venv
PY := $(VENV)/bin/python
# Test processes at a time.  Most tests wait for nodes and clocks: four keep two cores busy.
JOBS ?= 4
# Whoever became root by `su` does not look where commands of root are.
export PATH := $(PATH):/usr/sbin:/sbin

# What the extensions are made of; a change to any of these rebuilds them.
SOURCES := setup.py pyproject.toml \
  $(wildcard multiraft/*.pyx multiraft/*.pxd multiraft/core_parts/*.pxi multiraft/*.h) \
  $(wildcard multiraft/kafka/*.pyx multiraft/kafka/codec_parts/*.pxi)
# A stamp says nothing about an extension that somebody removed.
EXTENSIONS = $(and $(wildcard multiraft/_core.*.so),$(wildcard multiraft/kafka/_codec.*.so))
BUILT := $(if $(EXTENSIONS),,missing)
# A change of the package's metadata or pins installs again.
PACKAGING := setup.py pyproject.toml constraints.txt

.DEFAULT_GOAL := help
.PHONY: help build test demo demo-spark bench-first-light bench-node ops-machines wheels lint fix
.PHONY: containers sim soak trace-append
.PHONY: bench-kafka bench-moves bench-retention bench-placement bench-spark chaos clean docs fuzz
.PHONY: asan missing java maven kafka-clients kafka-compare kafka-messages tools types
# The machine is looked at before anything is built on it.
.NOTPARALLEL:
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory

help:  ## list the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-18s %s\n", $$1, $$2 }' Makefile

build: $(VENV)/.built-dev  ## create .venv, install in place for developers, compile

test: tools $(VENV)/.built-strict  ## all that a contributor must pass
	$(PY) -m ruff check .
	$(PY) -m mypy --no-error-summary
	$(PY) -m pytest --import-mode=importlib -n $(JOBS) --dist loadfile --no-loadscope-reorder $(ARGS)

demo: $(VENV)/.built-demo  ## three nodes, real data, a killed leader, a plan, nothing lost
	@$(PY) demo/flights.py $(ARGS)

demo-spark: java $(VENV)/.built-demo-spark  ## the demo with a plan made by Spark: Java, 500 MB
	@$(PY) demo/flights.py --spark $(ARGS)

bench-first-light: $(VENV)/.built-dev  ## print the figures beside what the machine can do at all
	$(PY) -m benchmarks.bench_first_light $(ARGS)

bench-node: $(VENV)/.built-dev  ## failover, return, creation, catching up, beside their targets
	$(PY) -m benchmarks.bench_node $(ARGS)

bench-retention: $(VENV)/.built-dev  ## space that returns, the cleaner, starts, memory, idle topics
	$(PY) -m benchmarks.bench_retention $(ARGS)

bench-moves: $(VENV)/.built-dev  ## a node joins under load, partitions switch, beside their targets
	$(PY) -m benchmarks.bench_moves $(ARGS)

bench-kafka: maven $(VENV)/.built-dev  ## librdkafka at this cluster's port, beside Kafka itself
	$(PY) -m benchmarks.bench_kafka $(ARGS)

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

COMPOSE = $(if $(shell docker compose version 2>/dev/null),docker compose,docker-compose)
containers: $(VENV)/.installed-build  ## three nodes in containers; ARGS=--debootstrap: no registry
	PYTHON=$(abspath $(PY)) deploy/container/build.sh $(ARGS)
	$(COMPOSE) --project-name multiraft --file deploy/container/compose.yaml up --detach

trace-append: $(VENV)/.built-dev  ## show where the microseconds of single appends go
	$(PY) -m benchmarks.append_trace $(ARGS)

ops-machines: $(VENV)/.built-dev  ## type docs/operations.md on machines: root, docker, minutes
	OPS_MACHINES=1 $(PY) -m pytest --import-mode=importlib -x -rs $(ARGS) \
	  tests/e2e/test_operations_machines.py

lint: $(VENV)/.built-dev  ## ruff, types and the rules of the house, without other tests
	$(PY) -m ruff check .
	$(PY) -m mypy --no-error-summary
	$(PY) -m pytest --import-mode=importlib tests/tidy $(ARGS)

types: $(VENV)/.built-dev  ## the type checker alone
	$(PY) -m mypy

fix: $(VENV)/.built-dev  ## repair what lint can repair
	$(PY) -m ruff check --fix .

SIM := $(VENV)/bin/multiraft chaos sim
sim: $(VENV)/.built-dev  ## simulate seeds; ARGS="--seed 8146" replays one
	$(SIM) $(ARGS)

soak: $(VENV)/.built-dev  ## fresh seeds for two hours, counted per commit; ARGS="--minutes 240"
	nice -n 10 $(SIM) --fresh --minutes 120 --record $(ARGS)

fuzz: $(VENV)/.installed-fuzz $(VENV)/.built-dev  ## search decoders; ARGS="--minutes 10"
	$(PY) -m tests.fuzz.run $(ARGS)

kafka-clients: $(VENV)/.built-dev  ## other projects' clients of Kafka; ARGS="kcat aiokafka"
	$(PY) -m tests.kafka_clients $(ARGS)

kafka-compare: $(VENV)/.built-dev  ## one scenario with Kafka's own broker and a node; ARGS=--all
	$(PY) -m tests.kafka_compare $(ARGS)

kafka-messages: $(PY)  ## write the messages of Kafka's protocol anew from its schema files
	$(PY) -m tools.kafka_messages

docs: $(VENV)/.installed-docs $(VENV)/.built-dev  ## API pages from docstrings, in build/docs
	$(PY) -m docs.api.build build/docs

# A copy of the tree, so that the extension that everything else uses stays as it is.
ASAN_TREE := build/asan
ASAN_TESTS := tests/codec tests/fuzz tests/kafka tests/wire
asan: $(VENV)/.built-dev  ## the extensions under address and undefined behaviour sanitizers
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
	rm -f multiraft/kafka/_codec.c multiraft/kafka/_codec.html multiraft/kafka/_codec*.so
	rm -f $(VENV)/.built-* $(VENV)/.installed-*
	find . -name __pycache__ -not -path './.venv*' -prune -exec rm -rf {} +

# ---- the virtual environment and the extension ---------------------------------------------------

# What the machine lacks is installed where that may be done; elsewhere one line says how, before
# anything is built.
MACHINE = PYTHON="$(PYTHON)" deploy/machine.sh
# What has been built goes on without a compiler.
UNBUILT = $(if $(and $(wildcard $(PY)),$(EXTENSIONS)),,build)
java:
	@$(MACHINE) $(UNBUILT) java
maven:
	@$(MACHINE) $(UNBUILT) java maven
tools:
	@$(MACHINE) $(UNBUILT) java tests

$(PY):
	@$(MACHINE) build
	@echo "Creating a virtual environment in $(VENV)."
	@$(PYTHON) -m venv $(VENV)

# Only errors: old versions of pip warn of how packages are built, which nobody here can change.
INSTALL := $(PY) -m pip install -qq --disable-pip-version-check -c constraints.txt
$(VENV)/.installed-dev: $(PACKAGING) | $(PY)
	@$(MACHINE) build
	$(INSTALL) -e '.[dev,chaos,spark]'
	@touch $@

# Wheels are made in environments of their own.
$(VENV)/.installed-build: | $(PY)
	@$(MACHINE) build
	$(INSTALL) build
	@touch $@

$(VENV)/.installed-fuzz: $(VENV)/.installed-dev
	$(INSTALL) -e '.[dev,fuzz]'
	@touch $@

$(VENV)/.installed-docs: $(VENV)/.installed-dev
	$(INSTALL) -e '.[dev,docs]'
	@touch $@

$(VENV)/.built-dev: $(VENV)/.installed-dev $(SOURCES) $(BUILT)
	@$(MACHINE) build
	$(PY) setup.py --quiet build_ext --inplace
	@touch $@

# The demo needs no tools of development: the installation itself compiles.
DEMO := $(PACKAGING) $(SOURCES) $(BUILT) demo/install.py
$(VENV)/.built-demo: $(DEMO) | $(PY)
	@$(MACHINE) build
	@$(PY) demo/install.py
	@touch $@

$(VENV)/.built-demo-spark: $(DEMO) | $(PY)
	@$(MACHINE) build
	@$(PY) demo/install.py --spark
	@touch $@ $(VENV)/.built-demo

# Compiled anew with warnings as errors, whatever an earlier, milder build left behind.
$(VENV)/.built-strict: $(VENV)/.installed-dev $(SOURCES) $(BUILT)
	@$(MACHINE) build
	MULTIRAFT_WERROR=1 $(PY) setup.py --quiet build_ext --inplace --force
	@touch $@ $(VENV)/.built-dev
