# skips.awk: summarises skipped cases. Reads lines of a reason, a tab and a program; prints each reason once,
# with the number of its cases and the first programs.
BEGIN {
    FS = "\t"
    most = 4
}

{
    reason = substr($1, 1, 200)
    if (!(reason in cases)) {
        order[++reasons] = reason
    }
    if (++cases[reason] <= most) {
        places[reason] = places[reason] "\n        " $2
    }
}

END {
    for (i = 1; i <= reasons; i++) {
        reason = order[i]
        printf "  %d: %s%s\n", cases[reason], reason, places[reason]
        if (cases[reason] > most) {
            printf "        and %d more\n", cases[reason] - most
        }
    }
}
