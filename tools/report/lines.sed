# A text becomes the middle of a table of lines of C.
s/[\\"]/\\&/g
s/.*/    "&\\n",/
