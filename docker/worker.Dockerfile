# syntax=docker/dockerfile:1
# The worker: supervisors and evaluators. Built from the root of the checkout.
#
# For a machine without a GPU: BASE=debian:bookworm-slim and DEVICE=cpu (docker-compose.cpu.yml).
# The CUDA libraries come with torch, of the versions in the lock; the base only tells the NVIDIA
# container runtime what to mount and which driver is needed (CUDA 13: driver 580 or newer).
ARG BASE=nvidia/cuda:13.0.1-base-ubuntu24.04

FROM ghcr.io/astral-sh/uv:0.13.9 AS uv

FROM ${BASE} AS build
ARG DEVICE=cuda
# "yes" installs the CPU builds of torch without hashes, where requirements-cpu.txt has none.
ARG UNHASHED_TORCH=no
# A mirror of PyTorch's index of CPU builds.
ARG TORCH_INDEX=
# "reference" adds cleverhans, pyautoattack and the frost photographs of imagecorruptions-imaug; "textattack" adds
# TextAttack, with older releases of what it needs.
ARG EXTRA=worker
COPY --from=uv /uv /usr/local/bin/uv
# The base has no Python: uv brings the one that this project is tested with.
ENV UV_CACHE_DIR=/var/cache/uv UV_COMPILE_BYTECODE=1 UV_LINK_MODE=copy UV_PYTHON_INSTALL_DIR=/opt/python
WORKDIR /build
COPY docker/install.sh docker/
COPY requirements-worker.txt requirements-reference.txt requirements-textattack.txt requirements-cpu.txt ./
RUN --mount=type=cache,target=/var/cache/uv \
    ASSAY_UNHASHED_TORCH="${UNHASHED_TORCH}" ASSAY_TORCH_INDEX="${TORCH_INDEX}" \
    sh docker/install.sh locked "requirements-${EXTRA}.txt" "${DEVICE}"
COPY pyproject.toml README.md LICENSE requirements-dev.txt ./
COPY service service
COPY workers workers
COPY models models
COPY attacks attacks
COPY src src
RUN --mount=type=cache,target=/var/cache/uv sh docker/install.sh package

FROM ${BASE}
# What a result's provenance says of the code: the image has no checkout to ask.
ARG COMMIT=
# The same user owns the state volume from both images; a new volume takes owner and mode from here.
RUN groupadd --gid 10001 assay \
    && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /tmp --shell /usr/sbin/nologin assay \
    && install -d -o 10001 -g 10001 -m 0750 /var/lib/assay \
    && install -d -o 10001 -g 10001 -m 0755 /data /weights /data-store
COPY --from=build /opt/python /opt/python
COPY --from=build /opt/assay /opt/assay
ENV PATH=/opt/assay/bin:$PATH HOME=/tmp PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 ASSAY_COMMIT=${COMMIT}
# Python looks for modules here first, so it is a folder that the process cannot write to.
WORKDIR /opt/assay
USER 10001:10001
CMD ["python", "-P", "-m", "assay.workers.nodes"]
