#!/bin/sh
# Makes the Python environment of an image. The Dockerfiles run this, and so does
# tests/docker/test_environment.py; run it from the root of the checkout.
#
#   install.sh locked requirements-service.txt          the packages of a lock, each with its hash
#   install.sh locked requirements-worker.txt cpu       the same, with the CPU build of torch
#   install.sh package                                  this checkout, as a wheel
set -eu

environment=${ASSAY_ENVIRONMENT:-/opt/assay}
python=$environment/bin/python
# Packages that exist once more as a CPU build, and those that only the CUDA build needs.
cuda_only='^(torch|torchvision|triton|cuda-[a-z]+|nvidia-[a-z0-9-]+)=='

die() {
    echo "install.sh: $*" >&2
    exit 2
}

locked() {
    lock=$1 device=$2
    uv venv --quiet --python "${ASSAY_PYTHON:-3.11}" "$environment"
    case $device in
    cuda | none)
        uv pip sync --quiet --require-hashes --python "$python" "$lock"
        ;;
    cpu)
        kept=$(mktemp)
        # An entry begins in the first column; its hashes are indented.
        awk -v drop="$cuda_only" '/^[^ ]/ { keep = $0 !~ drop } keep' "$lock" >"$kept"
        uv pip sync --quiet --require-hashes --python "$python" "$kept"
        rm "$kept"
        # PyTorch's own index has the CPU builds of the locked versions; the lock's hashes are those of
        # the CUDA builds. All that they need is installed already.
        # shellcheck disable=SC2046 # one word each
        uv pip install --quiet --no-deps --torch-backend cpu --python "$python" \
            $(sed -nE 's/^(torch|torchvision)==([^ ]+).*/\1==\2/p' "$lock")
        ;;
    *) die "device $device given; allowed: cuda, cpu" ;;
    esac
}

package() {
    wheels=$(mktemp -d)
    # What builds the wheel comes from the lock too.
    uv build --quiet --wheel --python "$python" --build-constraints requirements-dev.txt --require-hashes \
        --out-dir "$wheels" .
    uv pip install --quiet --no-deps --python "$python" "$wheels"/*.whl
    rm -r "$wheels"
}

case ${1:-} in
locked) locked "${2:?the lock}" "${3:-none}" ;;
package) package ;;
*) die "first argument ${1:-missing}; allowed: locked LOCK [cuda|cpu], package" ;;
esac
