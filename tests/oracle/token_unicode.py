"""Writes tools/text/tokenizer/unicode_table.c: the properties of characters in the `tokenizers` package.

The package uses several Unicode versions at once, so it is queried for every code point.

    python tests/oracle/token_unicode.py > tools/text/tokenizer/unicode_table.c
"""
import sys

import tokenizers
from tokenizers import Regex, Tokenizer, AddedToken
from tokenizers import models, normalizers, pre_tokenizers

CATEGORIES = ("Cn Cc Cf Co Ll Lm Lo Lt Lu Mc Me Mn Nd Nl No Pc Pd Pe Pf Pi Po Ps Sc Sk Sm So "
              "Zl Zp Zs").split()
POINTS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+,-./:;<=>@[]^_`{|}~"


def matching(pre):
    """The code points that a pre-tokenizer keeps."""
    found = set()
    for at in range(0, len(POINTS), 65536):
        text = "".join(map(chr, POINTS[at:at + 65536]))
        for piece, _ in pre.pre_tokenize_str(text):
            found.update(map(ord, piece))
    return found


def by_regex(pattern):
    return matching(pre_tokenizers.Split(Regex(pattern), "removed", invert=True))


def word_of_rust():
    """Characters that hide a single_word token next to them."""
    tokenizer = Tokenizer(models.WordLevel({"?": 0}, "?"))
    tokenizer.add_tokens([AddedToken("\U0010FFFD", single_word=True, normalized=False)])
    found = set()
    texts = ["\U0010FFFD" + chr(c) for c in POINTS]
    for at in range(0, len(texts), 65536):
        for i, e in enumerate(tokenizer.encode_batch(texts[at:at + 65536])):
            if 1 not in e.ids:
                found.add(POINTS[at + i])
    return found


def isolated(pre):
    """Characters that a pre-tokenizer splits off on both sides."""
    found = set()
    for at in range(0, len(POINTS), 8192):
        points = POINTS[at:at + 8192]
        text = "".join("a" + chr(c) for c in points) + "a"
        pieces = pre.pre_tokenize_str(text)
        found.update(ord(p) for p, _ in pieces if len(p) == 1)
    found.discard(ord("a"))
    return found


def main():
    category = {c: 0 for c in POINTS}
    for i, name in enumerate(CATEGORIES[1:], 1):
        for c in by_regex(r"\p{%s}" % name):
            category[c] = i
    spaces = set(POINTS) - matching(pre_tokenizers.WhitespaceSplit())
    flags = [by_regex(r"\s"), by_regex(r"\w"), spaces, word_of_rust(),
             isolated(pre_tokenizers.Digits(True)), isolated(pre_tokenizers.Punctuation())]
    for a in sorted(flags[0] ^ spaces):
        print("space differs: %x" % a, file=sys.stderr)
    kinds, runs = {}, []
    for c in range(0x110000):
        row = ((category[c], sum((c in f) << i for i, f in enumerate(flags)))
               if c in category else (0, 0))
        kind = kinds.setdefault(row, len(kinds))
        if runs and runs[-1][0] == kind:
            runs[-1][1] += 1
        else:
            runs.append([kind, 1])
    assert len(kinds) <= len(LETTERS), len(kinds)
    write(kinds, runs)


def write(kinds, runs):
    print("/* unicode_table.c: what a character is, for all of Unicode, as tokenizers %s sees it."
          % tokenizers.__version__)
    print(" * Written by tests/oracle/token_unicode.py; not to be edited. Constants only. */")
    print('#include "tools/text/tokenizer/unicode.h"\n')
    print("const struct token_kind token_kinds[TOKEN_KINDS_MAX] = {")
    for category, flags in kinds:
        print("    {TOKEN_CATEGORY_%s, %d}," % (CATEGORIES[category].upper(), flags))
    print("};\n")
    text = "".join(LETTERS[k] + (str(n) if n > 1 else "") for k, n in runs)
    print('const char token_kind_letters[] =\n    "%s";' % LETTERS)
    print("\nconst char *const token_kind_runs[] = {")
    for i in range(0, len(text), 92 * 40):
        part = text[i:i + 92 * 40]
        lines = [part[k:k + 92] for k in range(0, len(part), 92)]
        print("\n".join('    "%s"' % line for line in lines) + ",")
    print("    NULL,\n};")


main()
