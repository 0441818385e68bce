# syntax=docker/dockerfile:1
# The service and its migration: no torch. Built from the root of the checkout.
ARG BASE=python:3.11-slim-bookworm

FROM ghcr.io/astral-sh/uv:0.13.9 AS uv

FROM ${BASE} AS build
COPY --from=uv /uv /usr/local/bin/uv
# Bytecode now: the root file system of the container is read-only.
ENV UV_CACHE_DIR=/var/cache/uv UV_COMPILE_BYTECODE=1 UV_LINK_MODE=copy UV_PYTHON_DOWNLOADS=never
WORKDIR /build
COPY docker/install.sh docker/
COPY requirements-service.txt ./
RUN --mount=type=cache,target=/var/cache/uv sh docker/install.sh locked requirements-service.txt
COPY pyproject.toml README.md LICENSE requirements-dev.txt ./
COPY service service
COPY workers workers
COPY models models
COPY attacks attacks
COPY src src
RUN --mount=type=cache,target=/var/cache/uv sh docker/install.sh package

FROM ${BASE}
# The same user owns the state volume from both images; a new volume takes owner and mode from here.
RUN groupadd --gid 10001 assay \
    && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /tmp --shell /usr/sbin/nologin assay \
    && install -d -o 10001 -g 10001 -m 0750 /var/lib/assay \
    && install -d -o 10001 -g 10001 -m 0700 /var/lib/assay-signing \
    && install -d -o 10001 -g 10001 -m 0755 /data-store \
    && install -d /data
COPY --from=build /opt/assay /opt/assay
ENV PATH=/opt/assay/bin:$PATH HOME=/tmp PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
# Python looks for modules here first, so it is a folder that the process cannot write to.
WORKDIR /opt/assay
USER 10001:10001
EXPOSE 8000
CMD ["python", "-P", "-m", "assay.service.server"]
