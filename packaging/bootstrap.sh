#!/bin/sh
# Finds a Python that clawd runs on (3.11 to 3.13) and hands over to packaging/bootstrap.
# PYTHON=/path/to/python chooses one. Where there is none it installs Debian's, when it may.
set -eu
here=$(cd "$(dirname "$0")" && pwd)

# A pyenv shim exists and still fails to run, so a candidate counts only when it answers.
usable() {
    "$1" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' >/dev/null 2>&1
}

find_python() {
    for candidate in python3 python3.13 python3.12 python3.11 /usr/bin/python3 \
        "${PYENV_ROOT:-${HOME:-/}/.pyenv}"/versions/3.1[123].*/bin/python3; do
        if usable "$candidate"; then
            printf '%s\n' "$candidate"
            return 0
        fi
    done
    return 1
}

may_install() {
    command -v apt-get >/dev/null 2>&1 || return 1
    [ "$(id -u)" -eq 0 ] || sudo -n true >/dev/null 2>&1
}

as_root() {
    if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo -n "$@"; fi
}

install_python() {
    echo "No python3 here: installing python3 and python3-venv."
    as_root apt-get update -qq
    as_root env DEBIAN_FRONTEND=noninteractive \
        apt-get install -y -qq --no-install-recommends python3 python3-venv
}

if [ -n "${PYTHON:-}" ]; then
    case $PYTHON in
        /*) python=$PYTHON ;;
        */*) python=$PWD/$PYTHON ;;
        *) python=$PYTHON ;;
    esac
    if ! usable "$python"; then
        echo "PYTHON=$PYTHON does not run as Python 3.11, 3.12 or 3.13." \
            "Name another one, or leave PYTHON unset." >&2
        exit 1
    fi
else
    if ! command -v python3 >/dev/null 2>&1 && ! find_python >/dev/null && may_install; then
        install_python
    fi
    if ! python=$(find_python); then
        found=$(python3 --version 2>/dev/null) || found="no python3 that runs"
        cat >&2 <<END
clawd needs Python 3.11, 3.12 or 3.13; this machine has $found.
On Debian 12, Ubuntu 24.04 or newer, run this line, then make again:
  sudo apt-get install -y python3 python3-venv
Elsewhere install one of them (pyenv will do) and name it:
  make PYTHON=/path/to/python3.12 run
END
        exit 1
    fi
fi
cd "$here"
exec "$python" -m bootstrap "$@"
