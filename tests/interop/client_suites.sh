#!/bin/sh
# Run the integration tests of py-amqp, kombu and Celery, as their source packages contain them, against penstock,
# or against the broker that PENSTOCK_TEST_BROKER_URL names (user guest, password guest, vhost /).
#
#   tests/interop/client_suites.sh [FOLDER] [pytest arguments]
#
# The packages are downloaded and unpacked into FOLDER (a temporary one when it is not given, removed at the end),
# in the versions that are installed in .venv. An existing FOLDER is used again without downloading.
set -eu

cd "$(dirname "$0")/../.."
python=.venv/bin/python
projects="amqp kombu celery"

if [ $# -gt 0 ] && [ "${1#-}" = "$1" ]; then
    mkdir -p "$1"
    folder=$(cd "$1" && pwd)
    shift
else
    folder=$(mktemp -d)
    trap 'rm -rf "$folder"' EXIT
fi

if [ ! -e "$folder/ready" ]; then
    $python -m venv "$folder/venv"
    wanted=""
    for project in $projects; do
        version=$($python -c "from importlib.metadata import version; print(version('$project'))")
        $python -m pip download --quiet --no-deps --no-binary :all: --dest "$folder" "$project==$version"
        tar -xzf "$folder/$project-$version.tar.gz" -C "$folder"
        wanted="$wanted $project==$version"
    done
    # What the suites import besides the clients themselves. Without pytest-rerunfailures a test has one try.
    # shellcheck disable=SC2086
    timeout 600 "$folder/venv/bin/python" -m pip install --quiet $wanted \
        pytest pytest-timeout pytest-subtests pytest-order pytest-celery redis pydantic
    touch "$folder/ready"
fi

PENSTOCK_CLIENT_SUITES="$folder" timeout 900 $python -m pytest tests/interop/test_client_suites.py "$@"
