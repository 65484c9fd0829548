#!/bin/sh
# Checks an OpenAPI document: a public validator passes it, and a client that is made from it compiles.
# usage: internal/tools/openapi-check.sh FILE
# Needs node and npm, and their registry or a cache of it. Exit code 3: they are missing.
set -eu

document=$(realpath "$1")
here=$(realpath "$(dirname "$0")/openapi")
command -v npm >/dev/null && command -v node >/dev/null || { echo "node and npm are not installed" >&2; exit 3; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp "$here"/* "$work"
cd "$work"
npm ci --fetch-timeout=20000 --fetch-retries=1 --no-audit --no-fund --ignore-scripts --loglevel=error >install.log 2>&1 || { echo "npm cannot install the validator: $(tail -n 3 install.log)" >&2; exit 3; }
cp "$document" muster.json
export REDOCLY_TELEMETRY=off REDOCLY_SUPPRESS_UPDATE_NOTICE=true
npx --no-install redocly lint --config redocly.yaml --max-problems 1000 muster.json
npx --no-install openapi-typescript muster.json --output muster.d.ts
npx --no-install tsc --noEmit --strict --noUncheckedIndexedAccess --target es2022 --module nodenext --lib es2022,dom client.ts
echo "the document is valid, and its client compiles"
