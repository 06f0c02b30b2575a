# Every target sets up what it needs; run any of them on a fresh clone.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# Two test workers with one thread each are faster here than one with two.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2

.PHONY: help setup demo test test-slow test-gpu test-oldest test-newest fuzz zoo lint \
	format bench papers docs clean

help:
	@echo "make demo       train and measure a small network on embedded data"
	@echo "make test       the tests (under 10 minutes on two cores)"
	@echo "make test-slow  the slow tests"
	@echo "make test-oldest, test-newest  the tests with torch 2.11, with the newest torch"
	@echo "make fuzz       N random networks of one SEED against dense references"
	@echo "make zoo        real networks of timm, transformers and others; writes docs/zoo.md"
	@echo "make lint       formatting, types, import layers"
	@echo "make bench      benchmarks against a gradient and against other packages"
	@echo "make papers     the papers' experiments, quick form; stored results compared"
	@echo "make docs       the documentation, warnings as errors"

$(READY): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

setup: $(READY)

demo: $(READY)
	$(BIN)/flatgauge demo

test: $(READY)
	$(PYTEST)

test-slow: $(READY)
	$(PYTEST) -m slow

test-gpu: $(READY)
	$(BIN)/python -m pytest -m gpu

# The tests of `make test` with another torch, in an environment of its own. Both bring
# their CUDA packages, several GB; pip is asked every time, so that the newest is the newest.
# Its setuptools is its own: 2.11 wants one below 82.
.PHONY: test-oldest test-newest
test-oldest: OTHER_TORCH := torch==2.11.*
test-newest: OTHER_TORCH := torch
test-oldest test-newest: test-%:
	test -x .venv-$*/bin/python || $(PYTHON) -m venv .venv-$*
	grep -v -E '^(torch|setuptools)==' constraints.txt > .venv-$*/constraints.txt
	.venv-$*/bin/python -m pip install --quiet --disable-pip-version-check --upgrade \
		-c .venv-$*/constraints.txt '$(OTHER_TORCH)' -e '.[dev]'
	$(subst $(BIN),.venv-$*/bin,$(PYTEST))

# It goes on where it stopped; FRESH=1 forgets what an earlier run found.
N ?= 200
SEED ?= 0
JOBS ?= 2
fuzz: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python -m fuzz --count $(N) --seed $(SEED) --jobs $(JOBS) \
		$(if $(FRESH),--fresh)

# Real networks, in an environment with the packages that they come from. It goes on where
# it stopped; a network is run again once the package or the zoo has changed. ONLY="gpt2
# resnet" runs those whose names have one of these words.
ZOO_READY := .venv-zoo/.ready
$(ZOO_READY): pyproject.toml constraints.txt constraints-zoo.txt
	test -x .venv-zoo/bin/python || $(PYTHON) -m venv .venv-zoo
	.venv-zoo/bin/python -m pip install --quiet --disable-pip-version-check \
		-c constraints.txt torch
	.venv-zoo/bin/python -m pip install --quiet --disable-pip-version-check \
		-c constraints.txt -e '.[transformers,lightning]' requests
	.venv-zoo/bin/python -m pip install --quiet --disable-pip-version-check --no-deps \
		-r constraints-zoo.txt
	touch $@

zoo: $(ZOO_READY)
	PYTHONPATH=tests OMP_NUM_THREADS=1 .venv-zoo/bin/python -m zoo --jobs $(JOBS) \
		$(if $(ONLY),--only $(ONLY))

lint: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/basedpyright --level error
	$(BIN)/lint-imports

format: $(READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# The other packages go into an environment of their own: they pull builds of torchvision
# that break the CPU build of torch.
PEERS := .venv-bench/peers
$(PEERS):
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --target $@ \
		pyhessian==0.1 curvlinops-for-pytorch==3.0.1 hessian-eigenthings==1.0.0a5 \
		backpack-for-pytorch==1.7.1 einops einconv linear_operator opt_einsum unfoldNd tqdm

bench: $(READY) $(PEERS)
	$(BIN)/python -m benchmarks --peers $(PEERS)
	$(BIN)/python -m benchmarks.symmetries
	$(BIN)/python -m benchmarks.page

# From nothing: what an earlier quick run left must not stand in for this one. Then the
# stored results that are cheap are made again and compared; DATA=DIR adds those on MNIST.
papers: $(READY)
	rm -rf papers/*/quick
	$(BIN)/python -m papers.run --quick
	$(if $(QUICK),,$(BIN)/python -m papers.run --compare $(if $(DATA),--data $(DATA)))

docs: $(READY)
	$(BIN)/python -m sphinx -W --keep-going -b html docs docs/_build/html

clean:
	rm -rf $(VENV) docs/_build
