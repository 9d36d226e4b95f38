# functions.awk: prints today's declarations of the functions that names.awk printed.
FNR == NR {
    if (sub(/^FUNCTION\(/, "")) {
        sub(/\)$/, "")
        recorded[$0] = 1
    }
    next
}
/^TIDE_API/ { text = "" ; inside = 1 }
inside { text = text $0 "\n" }
inside && /;/ {
    match(text, /tide_[a-z0-9_]+\(/)
    if (substr(text, RSTART, RLENGTH - 1) in recorded) {
        printf "%s", text
    }
    inside = 0
}
