# grow.awk: prints a public header of a later version, in which every struct has two more fields at its end.
/^struct tide_[a-z_]+ \{/ { inside = 1 }
inside && /^};/ {
    print "    uint64_t grown;"
    print "    double grown_more;"
    inside = 0
}
{ print }
