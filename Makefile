# detectd's commands. The rules that matter:
#  - `make run` and `make test` are all a newcomer needs: each fetches and builds what is missing, once.
#  - What is fetched goes to .deps/, what is built to target/, networks to models/; git sees none of it.
#  - Tests run without ../shared (test networks and photos); what was skipped for want of it is said at the end.
#  - Networks run inside the pinned ONNX Runtime (deploy/onnxruntime.txt). DETECTD_ONNXRUNTIME names another.
#  - Tool needs: cargo, python3 (3.11 or newer, with pip and venv), bash. No protoc, no cmake.

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
MAKEFLAGS += --no-builtin-rules --no-print-directory
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

PYTHON ?= python3
# Extra arguments for the server (`make run`) or the benchmark (`make bench`).
ARGS ?=
# The networks that `make models` provides.
MODELS ?= yolox-nano deimv2-femto

TARGET := $(or $(CARGO_TARGET_DIR),target)
DEPS := .deps
ORT := $(DEPS)/onnxruntime/libonnxruntime.so
VENV := $(DEPS)/venv/.complete
SHARED := $(wildcard ../shared/models)

.PHONY: help
help: ## List these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# === run ===

.PHONY: run
run: onnxruntime models build ## Build and serve yolox-nano; ARGS="--http-addr 0.0.0.0:8080" adds flags
	@exec $(TARGET)/release/detectd serve --default-model yolox-nano $(ARGS)

.PHONY: build
build: $(ORT) | need-cargo ## Build the release binary, with ONNX Runtime beside it
	@cargo build --release
	@ln -srf $(ORT) $(TARGET)/release/libonnxruntime.so

.PHONY: models
models: | need-python ## Provide the networks that models/ describes (MODELS="...")
	@$(PYTHON) models/fetch.py $(MODELS)

# === check ===

# Rust tests say `skipped: ...` on their output, which is only shown where something is there to skip.
SHOW_SKIPS := $(if $(SHARED),,yes)
NEXTEST := $(shell command -v cargo-nextest)
ifdef NEXTEST
RUST_TESTS := cargo nextest run $(if $(SHOW_SKIPS),--success-output final) && cargo test --quiet --doc
else
RUST_TESTS := cargo test --quiet $(if $(SHOW_SKIPS),-- --show-output)
endif

.PHONY: test
test: $(ORT) $(VENV) $(if $(SHARED),models) fmt-check lint ## Check everything: format, lints, Rust tests, Python client tests
	@echo '== Rust tests'
	@{ $(RUST_TESTS); } 2>&1 | tee $(DEPS)/rust-tests.log
	@echo '== Python client tests'
	@cargo build --quiet
	@DETECTD_BIN=$${DETECTD_BIN:-$(TARGET)/debug/detectd} $(dir $(VENV))bin/python -m pytest tests/python
	@grep -ho 'skipped: .*' $(DEPS)/rust-tests.log | sort -u || true

.PHONY: lint
lint: | need-cargo ## Run clippy; a warning is an error
	@echo '== clippy'
	@cargo clippy --quiet --all-targets -- -D warnings

.PHONY: fmt
fmt: | need-cargo ## Format the Rust code
	@cargo fmt

.PHONY: fmt-check
fmt-check: | need-cargo ## Check the format of the Rust code
	@echo '== format'
	@cargo fmt --check

.PHONY: bench
bench: build models ## Measure serving; ARGS goes to the benchmark
	@cargo bench --bench serving $(if $(ARGS),-- $(ARGS))

.PHONY: doc
doc: | need-cargo ## Build the API documentation; a broken link is an error
	@RUSTDOCFLAGS="-D warnings" cargo doc --quiet --no-deps

# === set-up ===

.PHONY: onnxruntime
onnxruntime: $(ORT) ## Fetch the pinned ONNX Runtime into .deps/
	@:

$(ORT): deploy/onnxruntime.txt deploy/fetch_onnxruntime.py | need-python
	@$(PYTHON) deploy/fetch_onnxruntime.py $(@D)

.PHONY: venv
venv: $(VENV) ## Make the Python environment of the client tests in .deps/
	@:

$(VENV): tests/python/requirements.txt | need-python
	@$(PYTHON) -m venv --clear $(@D)
	@$(@D)/bin/python -m pip --disable-pip-version-check --quiet install --only-binary=:all: --requirement $<
	@touch $@

.PHONY: clean
clean: | need-cargo ## Remove everything fetched or built, but not the networks
	@cargo clean --quiet
	@rm -rf $(DEPS)

.PHONY: need-cargo need-python
need-cargo:
	@command -v cargo >/dev/null || { echo "cargo is missing: install Rust $$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml) or newer (rustup.rs)" >&2; exit 1; }
need-python:
	@$(PYTHON) -c 'import sys, pip, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
		|| { echo "$(PYTHON) is missing, older than 3.11, or lacks pip or venv: install it or set PYTHON" >&2; exit 1; }
