#!/bin/sh
# Has Docker Compose read the compose files: the version 2 plugin where there is one, else Debian's
# docker-compose, which does not know `!reset` and so is not shown docker-compose.cpu.yml. No engine is
# needed. tests/architecture/test_compose.py holds all of them against the schema of the specification.
set -eu

export ASSAY_PRIVATE_ADDRESS=10.0.0.1 ASSAY_STATE_SERVER=10.0.0.1 ASSAY_STATE_FOLDER=/srv/assay/state
export ASSAY_DATABASE_URL=postgresql+psycopg://assay@10.0.0.1:5432/assay ASSAY_REDIS_URL=redis://10.0.0.1:6379/0

# A .env of this checkout must not change what is checked.
no_settings=$(mktemp)
trap 'rm "$no_settings"' EXIT

check() {
    echo "== $compose $*"
    $compose --env-file "$no_settings" "$@" config --quiet
}

if docker compose version >/dev/null 2>&1; then
    compose="docker compose"
else
    compose=docker-compose
fi
check -f docker-compose.yml
check -f docker-compose.yml --profile textattack
check -f docker-compose.yml -f docker-compose.private.yml
check -f docker-compose.yml -f docker-compose.staging.yml
check -f docker-compose.worker.yml
check -f docker-compose.worker.yml -f docker-compose.staging.yml
check -f docker-compose.worker.yml --profile textattack
if [ "$compose" = "docker compose" ]; then
    check -f docker-compose.yml -f docker-compose.cpu.yml
    check -f docker-compose.worker.yml -f docker-compose.cpu.yml
fi
