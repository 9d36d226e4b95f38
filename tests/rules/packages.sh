#!/usr/bin/env bash
# packages.sh ROOT: the installation of packages leaves no new services enabled. Functions replace apt-get and systemctl.
source "$1/.ci/packages"
folder=$(mktemp -d "${TMPDIR:-/tmp}/tide-test-XXXXXX") || exit 1
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1

# An enabled service is a file.
systemctl() {
    local word verb= names=()
    for word; do
        case $word in
        -*) ;;
        is-enabled | disable | stop) verb=$word ;;
        *) names+=("${word%.service}") ;;
        esac
    done
    echo "$verb ${names[*]}" >>calls
    case $verb in
    is-enabled) [[ -e ${names[0]} ]] ;;
    disable) [[ ! -e refuses ]] && rm "${names[@]}" ;;
    esac
}
apt-get() {
    [[ " $* " != *" slurm-wlm "* ]] || touch slurmctld slurmd
    [[ " $* " != *" munge "* ]] || touch munge
}
apt-cache() { true; }

echo "1..4"
failed=0
tell() { # number name code
    if [[ $3 == 0 ]]; then
        echo "ok $1 - $2"
    else
        failed=1
        sed 's/^/# /' said calls
        echo "not ok $1 - $2"
    fi
}

packages_get munge slurm-wlm >said 2>&1
[[ ! -e munge && ! -e slurmctld && ! -e slurmd ]] && grep -q "munge slurmctld slurmd, which came with" said &&
    grep -q "munge .*disabled again" said
tell 1 new_services_are_disabled $?

touch munge
packages_get slurm-wlm >said 2>&1
[[ -e munge && ! -e slurmctld ]] && grep -q "services slurmctld slurmd, which came with" said
tell 2 a_service_of_the_user_stays $?

touch slurmctld slurmd
packages_get gcc slurm-wlm >said 2>&1
[[ -e munge && -e slurmctld && -e slurmd ]] && ! grep -q "which came with" said
tell 3 an_upgrade_changes_none $?

rm munge slurmctld slurmd
touch refuses
packages_get munge >said 2>&1
[[ -e munge ]] && grep -q "munge came with these packages and could not be disabled" said
tell 4 a_failure_is_told $?
exit $failed
