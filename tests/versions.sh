#!/usr/bin/env bash
# Runs the tests in a fresh environment with the lowest or the newest dependencies we admit.
#
#   tests/versions.sh lowest|newest [PYTEST ARGUMENT…]
#
# PYTHON names the interpreter (default python3). Without arguments the whole suite runs; the
# lowest versions are told apart from the newest by tests/lowest.txt alone.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

case "${1:-}" in
# The clients of models need newer versions than the engine does: their tests are left out.
lowest) what=test-engine constraints=(-c tests/lowest.txt) ;;
newest) what=test constraints=(--upgrade --upgrade-strategy eager) ;;
*)
    echo "usage: $0 lowest|newest [PYTEST ARGUMENT…]" >&2
    exit 2
    ;;
esac
shift

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3}" -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q "${constraints[@]}" -e ".[$what]"
"$folder/venv/bin/pip" list --format freeze |
    grep -iE '^(aiosqlite|alembic|psycopg|pydantic|python-ulid|rich|sqlalchemy|typer)' || true
"$folder/venv/bin/pytest" "$@"
