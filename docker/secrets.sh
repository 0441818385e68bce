#!/bin/sh
# Draws the passwords of the database and of Redis into files, once; existing ones stay.
#
#   sh docker/secrets.sh [FOLDER]        default: secrets
#
# Only you can enter the folder. The files themselves are world-readable, because Docker
# mounts each one with its mode into containers whose processes are neither root nor you.
set -eu

folder=${1:-secrets}
mkdir -p "$folder"
chmod 700 "$folder"
for name in assay_database_password assay_redis_password; do
    file=$folder/$name
    if [ -e "$file" ]; then
        echo "$file: kept"
        continue
    fi
    head -c 24 /dev/urandom | od -An -v -tx1 | tr -d ' \n' >"$file.new"
    chmod 444 "$file.new"
    mv "$file.new" "$file"
    echo "$file: written"
done
