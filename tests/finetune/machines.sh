# machines.sh: for scripts that make machines in namespaces of their own; sourced by hosts.sh and slurm.sh.

skip() { # reason
    echo "1..0 # SKIP $1"
    exit 0
}

# Skips the test if a program is missing. Daemons are in /usr/sbin.
need() { # program...
    for program; do
        PATH=$PATH:/usr/sbin command -v "$program" >/dev/null || skip "$program is not installed"
    done
}

# Runs the script again as `SCRIPT inside ARGUMENT... FOLDER`, in namespaces that end with it; FOLDER is removed then.
enter_namespaces() { # argument...
    unshare -m -n -u -p --fork --mount-proc --kill-child true 2>/dev/null || skip "no right to make namespaces"
    work=$(mktemp -d "${TMPDIR:-/tmp}/tide-test-XXXXXX") || exit 1
    trap 'rm -rf "$work"' EXIT
    unshare -m -n -u -p --fork --mount-proc --kill-child "$0" inside "$@" "$work"
    exit
}

# Prints the verdict of a case; after a failure also the ends of the files that `explain` names (patterns).
failed=0
tell() { # number, name, code
    if [[ $3 == 0 ]]; then
        echo "ok $1 - $2"
    else
        failed=1
        tail -n 8 $explain 2>/dev/null | sed 's/^/# /'
        echo "not ok $1 - $2"
    fi
}
