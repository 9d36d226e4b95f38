# Turns lines into elements of a C array of strings.
s/[\\"]/\\&/g
s/.*/    "&\\n",/
