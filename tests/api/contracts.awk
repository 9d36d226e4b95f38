# contracts.awk: prints public functions without a comment that says what they return.
/^\/\*/ { inside = 1; comment = "" }
inside {
    comment = comment $0
    if (/\*\//) {
        inside = 0
    }
    next
}
/^TIDE_API/ {
    if (!/^TIDE_API void / && comment !~ /Returns /) {
        print FILENAME ": " $0
    }
    if (comment == "") {
        print FILENAME ": no comment: " $0
    }
}
{ comment = "" }
