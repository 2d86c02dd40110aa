# covey: `make run` and `make test` are all a new user needs; both set up what they use.
PYTHON ?= python3
VENV   ?= .venv
FLOWER ?= .venv-flower
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check --quiet
# One compute thread per process: two threads of one process slow each other down on busy cores.
export OMP_NUM_THREADS ?= 1

.DEFAULT_GOAL := help
.PHONY: help setup run test test-browser lint types deploy-demo test-deploy test-ray bench bench-peers figures results study study-policies study-identities study-mnist study-ifca study-private interop docs docs-reference clean

help:  ## Show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 18

setup: $(VENV)/.ready  ## Make the virtual environment with pinned dependencies

$(VENV)/.ready: pyproject.toml constraints.txt
	@echo "Setting up $(VENV) (first time: a few minutes) ..."
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(PIP) install --constraint constraints.txt --editable .[default,test]
	@touch $@

run: setup  ## Run the main job on embedded data: covey run quick
	@$(BIN)/covey run quick

test: setup lint types  ## Lint, type-check and test; names the tests it leaves out
	@$(BIN)/python -m pytest -n 2 --dist worksteal

$(VENV)/.browser-ready: $(VENV)/.ready
	@$(PIP) install --constraint constraints.txt --editable .[default,test,browser]
	@touch $@

test-browser: $(VENV)/.browser-ready  ## Test the pages in Chromium, which must be there (Debian: apt-get install chromium)
	@COVEY_BROWSER=required $(BIN)/python -m pytest tests/browser tests/dashboard/test_openapi.py

lint: setup
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

types: setup
	@$(BIN)/mypy

$(VENV)/.bench-ready: $(VENV)/.ready
	@$(PIP) install --constraint constraints.txt --editable .[default,test,bench]
	@touch $@

# Flower holds back other packages, so that it has a virtual environment and constraints of its own.
$(FLOWER)/.ready: pyproject.toml constraints-flower.txt
	@echo "Setting up $(FLOWER) ..."
	@test -x $(FLOWER)/bin/python || $(PYTHON) -m venv $(FLOWER)
	@$(FLOWER)/bin/python -m pip --disable-pip-version-check --quiet install \
	  --constraint constraints-flower.txt --editable .[default,test,flower]
	@touch $@

deploy-demo: $(FLOWER)/.ready  ## Real processes on this machine: a SuperLink, five devices, ten rounds on digits
	@$(FLOWER)/bin/covey deploy demo

test-deploy: $(FLOWER)/.ready  ## Test deployments with real processes (minutes): faults, TLS, secure aggregation
	@$(FLOWER)/bin/python -m pytest -m "deploy or not deploy" tests/deploy tests/cli/test_deploy.py

bench: $(VENV)/.bench-ready  ## Run all benchmarks side by side with their peers (several minutes)
	@$(BIN)/covey bench --out benchmarks/results.json
	@$(BIN)/python benchmarks/page.py

bench-peers: $(VENV)/.ready .venv-interop/.ready  ## The same work in covey, pfl-research, Flower, mobile-env and BenchMARL (35 minutes)
	@$(BIN)/covey bench --only profile --only growth --only noise_growth --only decision_growth --out benchmarks/growth.json
	@$(BIN)/python benchmarks/peers/compare.py
	@$(BIN)/python benchmarks/peers/page.py

figures: setup  ## Every figure and claim on embedded data (about ten minutes on two cores): covey figures
	@$(BIN)/covey figures all --scale quick

results: setup  ## The same on CIFAR-10 and FEMNIST with ten seeds (both needed; about five hours), and docs/results.md
	@$(BIN)/covey figures all --scale full --out results/figures
	@$(BIN)/python -m covey.figures.page results/figures

study: setup  ## Repeat the study of groups (CIFAR-10 and FEMNIST needed: covey data fetch; hours, can be resumed)
	@$(BIN)/python experiments/similarity.py
	@$(BIN)/python experiments/clustering.py --judged
	@$(BIN)/python experiments/clustering.py --judged --data cifar10 femnist

study-policies: setup  ## Repeat the study of learned policies (CIFAR-10 needed; about two hours on two cores)
	@$(BIN)/python experiments/association.py tune
	@$(BIN)/python experiments/association.py train
	@$(BIN)/python experiments/association.py judge
	@$(BIN)/python experiments/association.py transfer
	@$(BIN)/python experiments/association.py real --data digits --layouts 40
	@$(BIN)/python experiments/association.py real --data cifar10 --layouts 4
	@$(BIN)/python experiments/association.py page

study-identities: setup  ## Repeat the study of private identities (CIFAR-10 needed; about an hour)
	@$(BIN)/python experiments/identities.py announce
	@$(BIN)/python experiments/identities.py runs --data digits --seeds 20
	@$(BIN)/python experiments/identities.py runs --data cifar10 --seeds 3
	@$(BIN)/python experiments/private_identities.py --judged --seeds 20
	@$(BIN)/python experiments/identities.py page

study-mnist: setup  ## Repeat the published setting on rotated MNIST (covey data fetch mnist; about ten minutes)
	@$(BIN)/python experiments/rotated_mnist.py runs --seeds 5
	@$(BIN)/python experiments/rotated_mnist.py page

study-private: setup  ## Repeat the study of accuracy and privacy (CIFAR-10 and FEMNIST needed; about an hour and a half)
	@$(BIN)/python experiments/how_private.py --tune
	@$(BIN)/python experiments/how_private.py --judged
	@$(BIN)/python experiments/how_private.py

study-ifca: setup  ## Go on with IFCA's published experiment (covey data fetch mnist; about an hour for 300 rounds on a free core)
	@$(BIN)/python experiments/ifca_mnist.py ifca --minutes 60
	@$(BIN)/python experiments/ifca_mnist.py global --minutes 60
	@$(BIN)/python experiments/ifca_mnist.py local
	@$(BIN)/python experiments/ifca_mnist.py page

.venv-interop/.ready: pyproject.toml constraints.txt
	@echo "Setting up .venv-interop ..."
	@test -x .venv-interop/bin/python || $(PYTHON) -m venv .venv-interop
	@.venv-interop/bin/python -m pip --disable-pip-version-check --quiet install \
	  --constraint constraints.txt --editable .[fast,interop]
	@touch $@

interop: .venv-interop/.ready  ## Train VDN, QMIX and IQL of BenchMARL on the environment (own virtual environment)
	@.venv-interop/bin/python -m pytest tests/interop

$(VENV)/.ray-ready: $(VENV)/.ready
	@$(PIP) install --constraint constraints.txt --editable .[default,test,ray]
	@touch $@

test-ray: $(VENV)/.ray-ready  ## Test pieces of work on a real Ray cluster on this machine (installs 250 MB more)
	@$(BIN)/python -m pytest tests/jobs

$(VENV)/.docs-ready: $(VENV)/.ready
	@$(PIP) install --constraint constraints.txt --editable .[default,test,docs]
	@touch $@

docs: $(VENV)/.docs-ready  ## Build the pages and the reference as a site in build/docs; a warning is an error
	@$(BIN)/sphinx-build --quiet --fail-on-warning --keep-going docs build/docs
	@echo "Open build/docs/index.html"

docs-reference: setup  ## Regenerate docs/scenario.md, docs/learner.md and docs/methods.md from the code
	@$(BIN)/python -m covey.scenario.reference > docs/scenario.md
	@$(BIN)/python -m covey.agents.reference > docs/learner.md
	@$(BIN)/python -m covey.identification.page > docs/methods.md

clean:  ## Remove the virtual environment and caches
	rm -rf $(VENV) $(FLOWER) .venv-interop build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis src/*.egg-info
