# grow.awk: prints a public header with two more fields at the end of every struct.
/^struct tide_[a-z_]+ \{/ { inside = 1 }
inside && /^};/ {
    print "    uint64_t grown;"
    print "    double grown_more;"
    inside = 0
}
{ print }
