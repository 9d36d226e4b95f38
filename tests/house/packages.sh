#!/usr/bin/env bash
# packages.sh ROOT: what ./quickstart and ./check do about missing packages, on machines made of a
# few false commands in PATH: a complete one, a bare Debian as root and as a user, another system.
source "${BASH_SOURCE[0]%/*}/tap.sh"
source "$root/.ci/packages"

# A machine: a folder of commands that is all of PATH. Basic tools are the real ones.
machine() { # name
    local tool
    mkdir -p "$folder/$1"
    for tool in sed cat rm touch grep bash sh env; do
        ln -sf "$(type -P $tool)" "$folder/$1/$tool"
    done
}

command_of() { # machine name body
    printf '#!%s\n%s\n' "$(type -P bash)" "$3" >"$folder/$1/$2"
    chmod +x "$folder/$1/$2"
}

may_install=yes
# Runs packages_ensure on a machine; EUID cannot be set, so the script is told by a copy.
ensure() { # machine uid package...
    local name=$1 uid=$2
    shift 2
    sed "s/EUID/$uid/g" "$root/.ci/packages" >"$folder/packages"
    env -i PATH="$folder/$name" MACHINE="$folder/$name" bash -c \
        'source "$0"; packages_install=$1; shift; packages_ensure "$@"' "$folder/packages" \
        "$may_install" "$@" >"$folder/talk" 2>&1
}

says() { # text...
    local text
    for text; do
        grep -qF -- "$text" "$folder/talk" || return 1
    done
}

tools() { # machine
    local tool
    for tool in meson ninja pkg-config cc; do
        command_of "$1" "$tool" 'cat >/dev/null 2>&1 </dev/null; exit 0'
    done
}

echo "1..9"
# Debian with everything: nothing is said and apt-get is not called.
machine full
tools full
command_of full dpkg-query 'printf "ii "'
command_of full apt-get 'echo called >&2; exit 1'
ensure full 0 "${packages_required[@]}" && [[ ! -s $folder/talk ]]
verdict $? "a_complete_machine_is_left_alone"

# A bare Debian as root: exactly the missing packages are installed, after an update.
machine bare
command_of bare dpkg-query '[ -e "$MACHINE/installed" ] && printf "ii " || { [ "$4" = gcc ] && printf "ii " || exit 1; }'
command_of bare apt-cache 'exit 0'
command_of bare apt-get 'echo "apt-get $*" >>"$MACHINE/calls"
case "$*" in *install*) touch "$MACHINE/installed"
for t in meson ninja pkg-config cc; do printf "#!/bin/sh\nexit 0\n" >"$MACHINE/$t"; chmod +x "$MACHINE/$t" 2>/dev/null; done;; esac'
ln -s "$(type -P chmod)" "$folder/bare/chmod"
ensure bare 0 gcc meson libhwloc-dev
status=$?
cat "$folder/bare/calls" >>"$folder/talk" 2>/dev/null
((status == 0)) && says "installing" "libhwloc-dev             the machine's topology" "update" "install" &&
    ! says "install gcc" && ! says "y gcc" && ! says "the C compiler"
verdict $? "root_on_debian_installs_what_is_missing"

# The same where nothing may be installed: apt-get is not called.
rm -f "$folder/bare/calls" "$folder/bare/installed"
may_install=
ensure bare 0 gcc meson libhwloc-dev && says "going on without meson libhwloc-dev" &&
    [[ ! -e $folder/bare/calls ]]
verdict $? "no_install_installs_nothing"
may_install=yes

# Every package that may be installed is printed with its purpose.
told=0
for package in "${packages_required[@]}" "${packages_optional[@]}" "${packages_check[@]}" "${packages_all[@]}"; do
    [[ -n $(package_purpose "$package") ]] || { echo "# $package has no purpose"; told=1; }
done
verdict $told "every_package_has_a_purpose"

# The same as a user: nothing is installed, the list and the command are printed, and it stops.
machine user
command_of user dpkg-query 'exit 1'
command_of user apt-get 'echo "apt-get was called"'
! ensure user 1000 gcc meson && says "as root" "apt-get install gcc meson" && ! says "was called"
verdict $? "a_user_on_debian_gets_the_command"

# A user who lacks only optional packages goes on, and hears what is missing.
machine lean
tools lean
command_of lean apt-get 'echo "apt-get was called"'
command_of lean dpkg-query '[ "$4" = libhwloc-dev ] && exit 1; printf "ii "'
ensure lean 1000 gcc libhwloc-dev && says "going on without libhwloc-dev" && ! says "was called"
verdict $? "optional_packages_may_be_absent"

# Another system: stops politely with names that a person can translate.
machine other
! ensure other 0 gcc meson && says "not Debian or Ubuntu" "meson" "jansson" "C compiler"
verdict $? "another_system_is_told_what_to_install"

# Another system with everything there works.
machine suse
tools suse
ensure suse 1000 gcc meson && [[ ! -s $folder/talk ]]
verdict $? "another_system_with_everything_goes_on"

# A package that was removed but left its configuration counts as missing.
machine removed
command_of removed dpkg-query 'printf "rc "'
[[ $(PATH=$folder/removed packages_missing gcc) == gcc ]]
verdict $? "removed_packages_are_missing"
exit $failed
