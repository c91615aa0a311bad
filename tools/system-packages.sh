#!/bin/bash
# Install what the given purposes (venv, tests, bench) lack of Debian's packages: only as root,
# only on Debian and its like, and without starting any service. Elsewhere, say what is missing and
# go on: the tests that need it are skipped with that same line.
set -euo pipefail

missing=()
want() { # want PACKAGE COMMAND...: the first argument is what holds the commands
    local package=$1
    shift
    "$@" >/dev/null 2>&1 || missing+=("$package")
}

PATH=$PATH:/usr/sbin:/sbin
for purpose in "$@"; do
    case $purpose in
    venv) [[ $EUID -ne 0 || ! -x /usr/bin/python3 ]] || want python3-venv /usr/bin/python3 -c 'import ensurepip' ;;
    tests)
        want slurmctld which slurmctld
        want slurmd which slurmd
        want slurm-client which srun
        want munge which munged
        want openssh-server which sshd
        want openssh-client which ssh
        want iproute2 which ip
        want zsh which zsh
        want shellcheck which shellcheck
        want strace which strace
        want iputils-ping which ping
        want libnss-wrapper test -e "/usr/lib/$(uname -m)-linux-gnu/libnss_wrapper.so"
        want nscd which nscd
        want autofs which automount
        want bubblewrap which bwrap
        ;;
    bench)
        want pdsh which pdsh
        want clustershell which clush
        ;;
    *)
        echo "system-packages.sh: no purpose '$purpose'; use venv, tests or bench" >&2
        exit 2
        ;;
    esac
done

((${#missing[@]})) || exit 0
if [[ $EUID -ne 0 ]] || ! command -v apt-get >/dev/null; then
    echo "missing here, tests that need them are skipped: ${missing[*]}" >&2
    exit 0
fi
export DEBIAN_FRONTEND=noninteractive
apt-get update -q
# RUNLEVEL=1: Debian's packages start no service in the single-user run level.
RUNLEVEL=1 apt-get install -q -y --no-install-recommends "${missing[@]}"
