# comments.awk: removes comments, for tests/api/names.awk, which reads the result.
comment {
    if (!match($0, /\*\//)) {
        next
    }
    $0 = substr($0, RSTART + 2)
    comment = 0
}
{
    while (match($0, /\/\*([^*]|\*[^\/])*\*\//)) {
        $0 = substr($0, 1, RSTART - 1) substr($0, RSTART + RLENGTH)
    }
    if (match($0, /\/\*/)) {
        $0 = substr($0, 1, RSTART - 1)
        comment = 1
    }
}
