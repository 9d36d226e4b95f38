#!/usr/bin/env bash
# quickstart.sh ROOT: ./quickstart refuses unknown options before it installs anything; options after a command are
# tide's. Programs that it runs are replaced.
folder=$(mktemp -d "${TMPDIR:-/tmp}/tide-test-XXXXXX") || exit 1
trap 'rm -rf "$folder"' EXIT
mkdir -p "$folder"/{bin,tree/.ci,tree/build/tools} || exit 1
cp "$1/quickstart" "$folder/tree"
echo 'packages_install=yes packages_required=() packages_optional=()
packages_ensure() { echo "install=$packages_install"; }' >"$folder/tree/.ci/packages"
printf '#!/bin/sh\n' | tee "$folder/bin/meson" >/dev/null
printf '#!/bin/sh\necho "tide $*"\n' >"$folder/tree/build/tools/tide"
chmod +x "$folder"/bin/meson "$folder"/tree/build/tools/tide
export PATH=$folder/bin:$PATH TMPDIR=$folder
cd "$folder" || exit 1

echo "1..3"
failed=0
tell() { # number name code
    if [[ $3 == 0 ]]; then
        echo "ok $1 - $2"
    else
        failed=1
        sed 's/^/# /' said
        echo "not ok $1 - $2"
    fi
}

bad=0
for words in --no-instal "--no-install --no-instal" --noinstall -x "--no-install --quick"; do
    # shellcheck disable=SC2086
    tree/quickstart $words >said 2>&1
    [[ $? == 2 ]] && grep -q "^quickstart: ${words##* } is not an option; see ./quickstart --help" said &&
        ! grep -q "install=" said || bad=1
done
tell 1 an_unknown_option_is_refused_at_once $bad

tree/quickstart --help >said 2>&1 && grep -q "^  --no-install" said && ! grep -q "install=" said
tell 2 help_does_nothing $?

tree/quickstart --no-install --version >said 2>&1 && grep -qx "install=" said &&
    grep -qx "tide --version" said && tree/quickstart plan --json >said 2>&1 &&
    grep -qx "tide plan --json" said
tell 3 arguments_go_to_tide $?
exit $failed
