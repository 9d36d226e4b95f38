# Turns each line of a text into an element of a C array of strings.
s/[\\"]/\\&/g
s/.*/    "&\\n",/
