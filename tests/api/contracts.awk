# contracts.awk: prints public functions without a comment, and those that return a value if their
# comment has no "Returns".
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
