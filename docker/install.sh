#!/bin/sh
# Makes the Python environment of an image. The Dockerfiles run this, and so does
# tests/docker/test_environment.py; run it from the root of the checkout.
#
#   install.sh locked requirements-service.txt          the packages of a lock, each with its hash
#   install.sh locked requirements-worker.txt cpu       the same, with the CPU build of torch
#   install.sh locked requirements-reference.txt        with the reference libraries too
#   install.sh locked requirements-textattack.txt       with TextAttack, and what it holds back
#   install.sh package                                  this checkout, as a wheel
set -eu

environment=${ASSAY_ENVIRONMENT:-/opt/assay}
python=$environment/bin/python
# Packages that exist once more as a CPU build, and those that only the CUDA build needs.
cuda_only='^(torch|torchvision|triton|cuda-[a-z]+|nvidia-[a-z0-9-]+)=='

cpu_lock=requirements-cpu.txt

die() {
    echo "install.sh: $*" >&2
    exit 2
}

torch_of() {
    sed -nE 's/^((torch|torchvision)==[^ ]+) .*/\1/p' "$1" | sort
}

# The lock's hashes of torch are those of its CUDA builds; the CPU builds have a lock of their own.
check_cpu_hashes() {
    if [ "$(torch_of "$cpu_lock" | sed 's/+cpu$//')" = "$(torch_of "$1")" ]; then
        unhashed=no
    elif [ "${ASSAY_UNHASHED_TORCH:-no}" = yes ]; then
        unhashed=yes
        echo "install.sh: the CPU builds of torch come without hashes, as ASSAY_UNHASHED_TORCH asks" >&2
    else
        die "$cpu_lock has no hashes for the versions in $1; run make lock-cpu on a machine with network," \
            "or set ASSAY_UNHASHED_TORCH=yes to install them without"
    fi
}

locked() {
    lock=$1 device=$2
    [ "$device" != cpu ] || check_cpu_hashes "$lock"
    [ -x "$python" ] || uv venv --quiet --python "${ASSAY_PYTHON:-3.11}" "$environment"
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
        # PyTorch's own index, or a mirror of it, has the CPU builds of the locked versions. All that they
        # need is installed already.
        if [ -n "${ASSAY_TORCH_INDEX:-}" ]; then
            set -- --default-index "$ASSAY_TORCH_INDEX"
        else
            set -- --torch-backend cpu
        fi
        if [ "$unhashed" = no ]; then
            set -- "$@" --require-hashes --requirement "$cpu_lock"
        else
            # shellcheck disable=SC2046 # one word each
            set -- "$@" $(torch_of "$lock")
        fi
        uv pip install --quiet --no-deps --python "$python" "$@"
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
