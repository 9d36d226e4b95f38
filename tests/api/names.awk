# names.awk: prints the FIELDs, VALUEs and FUNCTIONs of recorded headers, for layout.c and
# test_growth.c.
/^enum/ { values = 1 }
values {
    line = $0
    while (match(line, /TIDE_[A-Z0-9_]+/)) {
        print "VALUE(" substr(line, RSTART, RLENGTH) ")"
        line = substr(line, RSTART + RLENGTH)
    }
}
/};/ { values = 0 }
/^struct tide_[a-z_]+ \{/ { owner = $2 }
owner != "" && /;/ && !/^};/ {
    name = $0
    if (match(name, /\(\*[a-z_0-9]+\)/)) {
        name = substr(name, RSTART + 2, RLENGTH - 3)
    } else {
        sub(/(\[[0-9]+\])?;.*/, "", name)
        sub(/.*[ *]/, "", name)
    }
    print "FIELD(" owner ", " name ")"
}
/^};/ { owner = "" }
/^TIDE_API/ && match($0, /tide_[a-z0-9_]+\(/) {
    print "FUNCTION(" substr($0, RSTART, RLENGTH - 1) ")"
}
