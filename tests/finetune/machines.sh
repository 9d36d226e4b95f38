# machines.sh: functions of scripts that make machines in namespaces.

skip() { # reason
    echo "1..0 # SKIP $1"
    exit 0
}

# Skips the test if a program is missing; daemons are in /usr/sbin.
need() { # program...
    for program; do
        PATH=$PATH:/usr/sbin command -v "$program" >/dev/null || skip "$program is not installed"
    done
}

# Runs the script again as `SCRIPT inside ARGUMENT... FOLDER`, in namespaces and a folder that end with the script.
enter_namespaces() { # argument...
    unshare -m -n -u -p --fork --mount-proc --kill-child true 2>/dev/null || skip "no right to make namespaces"
    work=$(mktemp -d "${TMPDIR:-/tmp}/tide-test-XXXXXX") || exit 1
    trap 'rm -rf "$work"' EXIT
    unshare -m -n -u -p --fork --mount-proc --kill-child "$0" inside "$@" "$work"
    exit
}

# Prints the verdict of a case and, after a failure, the ends of files that match the patterns in `explain`.
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
