# skips.awk: sums up what was skipped. Reads lines "reason, tab, where", prints each reason once, how
# many cases it took and the first places.
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
