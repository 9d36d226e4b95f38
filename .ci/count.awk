# count.awk: reads meson-logs/testlog.json (a line with one object for each program) and counts TAP cases. Prints the
# output of failed programs. Appends a line "passed failed skipped programs" to the file `counts`, and for
# each skipped case a line with its reason, a tab and its program to the file `skips`.

# The JSON string that follows `"key": "` in text, decoded except for \uXXXX.
function string_of(text, key,    at) {
    at = index(text, "\"" key "\": \"")
    if (at == 0) {
        return ""
    }
    text = substr(text, at + length(key) + 5)
    gsub(/\\\\/, "\001", text)
    gsub(/\\"/, "\002", text)
    text = substr(text, 1, index(text, "\"") - 1)
    gsub(/\\n/, "\n", text)
    gsub(/\\t/, "\t", text)
    gsub(/\\r/, "", text)
    gsub(/\\u001b\[[0-9;]*[A-Za-z]/, "", text)
    gsub(/\002/, "\"", text)
    gsub(/\001/, "\\", text)
    return text
}

# The value of a key that follows "stdout", so that a program's output is not mistaken for the key.
function tail_of(line,    at) {
    at = match(line, /", "result": "[A-Z]+", "starttime": /)
    return at == 0 ? line : substr(line, at)
}

function skipped_case(where, case_line,    reason) {
    reason = case_line
    sub(/.* # *[Ss][Kk][Ii][Pp] */, "", reason)
    sub(/^ok [0-9]* *-? */, "", case_line)
    sub(/ *# *[Ss][Kk][Ii][Pp].*/, "", case_line)
    print reason "\t" where ": " case_line >> skips
}

{
    name = string_of($0, "name")
    output = string_of($0, "stdout")
    rest = tail_of($0)
    result = string_of(rest, "result")
    lines = split(output, line, "\n")
    ok = bad = skip = 0
    plan = -1
    for (i = 1; i <= lines; i++) {
        if (line[i] ~ /^1\.\.[0-9]+/) {
            plan = substr(line[i], 4) + 0
            if (line[i] ~ /# *[Ss][Kk][Ii][Pp]/) {
                skip++
                sub(/^[^#]*# *[Ss][Kk][Ii][Pp][A-Za-z]* */, "", line[i])
                print line[i] "\t" stage " " name >> skips
            }
        } else if (line[i] ~ /^not ok/) {
            bad++
        } else if (line[i] ~ /^ok .*# *[Ss][Kk][Ii][Pp]/) {
            skip++
            skipped_case(stage " " name, line[i])
        } else if (line[i] ~ /^ok/) {
            ok++
        }
    }
    why = ""
    if (plan < 0 && ok + bad + skip == 0) { # No TAP: the program is its own case.
        if (result == "OK") {
            ok = 1
        } else if (result == "SKIP") {
            skip = 1
            print "the program exited with status 77 and gave no reason\t" stage " " name >> skips
        }
    }
    if (result != "OK" && result != "SKIP" && bad == 0) {
        bad = 1
        why = result == "TIMEOUT" ? "ran out of time" : "exited with an error although no case failed"
    } else if (result == "TIMEOUT" || result == "INTERRUPT") {
        bad++
        why = "ran out of time"
    } else if (bad > 0 && plan > ok + bad + skip) {
        bad++
        why = "ended before its last case"
    }
    if (bad > 0) {
        code = rest
        sub(/.*"returncode": /, "", code)
        sub(/,.*/, "", code)
        printf "\n--- %s: %s %s(exit status %s)\n", stage, name, why == "" ? "" : why " ", code
        from = lines > 200 ? lines - 200 : 1
        for (i = from; i <= lines; i++) {
            if (line[i] != "" && line[i] !~ /^ok/) {
                print line[i]
            }
        }
        errors = split(string_of(rest, "stderr"), line, "\n")
        for (i = 1; i <= errors && i <= 120; i++) {
            print line[i]
        }
    }
    passed += ok
    failed += bad
    skipped += skip
}

END {
    printf "%d %d %d %d\n", passed, failed, skipped, NR >> counts
}
