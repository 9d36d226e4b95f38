"""Pipelines that no known family has.

    python tests/oracle/tokenizer_odd.py > tests/text/fixtures/odd_pipelines.json
"""
import json
import sys

from tokenizers import Tokenizer, pre_tokenizers

LETTERS = {c: i for i, c in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
BYTES = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": False}
META = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "first", "split": False}
SPACES = {"type": "WhitespaceSplit"}


def regex(pattern, behavior="Isolated", invert=False):
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": behavior, "invert": invert}


def added(number, content, **flags):
    row = dict(id=number, content=content, single_word=False, lstrip=False, rstrip=False,
               normalized=False, special=True)
    row.update(flags)
    return row


def tokenizer(steps, normalizer=None, tokens=(), **model):
    options = {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
               "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
               "ignore_merges": False, "vocab": LETTERS, "merges": []}
    options.update(model)
    pre = None if not steps else {"type": "Sequence", "pretokenizers": list(steps)}
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": list(tokens),
            "normalizer": normalizer, "pre_tokenizer": pre, "post_processor": None,
            "decoder": None, "model": options}


NUMBERS = ["a1234567b 12", "\ufeff\u00bd\u00b2x \u00b9\u00be", "aaaaa aab", "x_y\u0301-z 35092801\ufe0f9",
           "Stra\u00dfe STRASSE k\u212aK \u017fS", "a\nb\r\nc", "\u4e00\u32ac\u3007\u4e8c caf\u00e9"]
MARKS = ["a\u00a9b \u00a3+\u20ac$ \u2028x\u180e\tz\u0000", "\u00b2\u0300\u203fq \u3000.\u00bd"]
EMPTY = ["  xa\n b", "xxay", "", "a\n\nb", "bxbxx"]
SPACED = [" ab", "ab cd", "  a  b", "\u00a0x", "\n\n\n\nab\n", "a  #b", "", " ", "a a  a", "xa a"]
# Spaces, reordered marks, Hangul in parts, and characters that become several.
FORMS = ["\u00b4a b", "a\u00b4\u0316 b", "\ufdfa", "x\ufdfa\u0301", "\u116a\ufe20\u2a74\u00b4", "\u0345\u0f73 a", "\u1100\u1161\u11a8 \uad3a",
         "\u1fde\u00b4", "e\u0323\u0301\u00a8", "\u0301\u00a8a", "\u3000\u00a8\u0308", "\u1e9b\u0323 \u00a0a", "\u0344\u00b8\u0327"]
PATTERNS = [r"\p{N}{1,3}+", r"a{2}?", r"a{,2}b", r"(?:ab|a){1,2}+", r"[^\w\s]+", r"\w+", r"[\w]+", r"\b", r"\B",
            r"\d{3}(?=(?:\d{3})*\b)", r"\u0061+", r"(?m).+", r"(?i)\p{Lu}", r"(?i)[\p{Lu}]", r"(?i)k+",
            r"(?i:K)\p{Lu}|x", r"(k(?i)k)K", r"\p{Han}+", r"\P{Han}+", r"\p{^Han}", r"{a}|\{1", r"\s(?-i:a)"]


def cases():
    for pattern in PATTERNS:
        yield tokenizer([regex(pattern), BYTES]), NUMBERS
    for name in ("punct", "space", "word", "graph", "print", "blank", "^punct"):
        yield tokenizer([regex("[[:%s:]]+" % name), BYTES]), NUMBERS + MARKS
    for pattern in ("x*", "^\\s*x?", "(?=b)"):
        yield tokenizer([BYTES], {"type": "Replace", "pattern": {"Regex": pattern}, "content": "-"}), EMPTY
        for behavior in ("Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous", "Removed"):
            yield tokenizer([regex(pattern, behavior), BYTES]), EMPTY
    yield tokenizer([SPACES, META, BYTES]), SPACED
    forms = [[{"type": x} for x in names] for names in (["NFD"], ["NFKD"], ["NFC"], ["NFKC"], ["NFKD", "NFC"], ["NFC", "NFKD"])]
    for form in forms:
        for spaces in (SPACES, {"type": "Whitespace"}):
            yield tokenizer([spaces, META, BYTES], {"type": "Sequence", "normalizers": form}), FORMS
    yield tokenizer([META, BYTES], {"type": "Strip", "strip_left": True, "strip_right": False}), SPACED
    yield tokenizer([META, BYTES], {"type": "Prepend", "prepend": "x"}), SPACED
    yield tokenizer([META, BYTES], None, [added(256, "ab")]), SPACED
    for flags in ({"lstrip": True, "rstrip": True}, {"rstrip": True}, {"lstrip": True}):
        yield tokenizer([BYTES], None, [added(256, "\n\n", **flags), added(257, "  ", **flags),
                                        added(LETTERS["a"], "a", single_word=True, **flags)]), SPACED
        yield tokenizer([BYTES], None, [added(256, "\n\n", normalized=True, **flags)]), SPACED
    small = {"a": 0, "b": 1, "ab": 2, "<unk>": 3}
    long = ["ab" * 30, "a b" * 20, "ba \u00e9" * 15, "a" * 50 + " b" * 9]
    for unk, fuse in ((None, False), ("<unk>", False), ("<unk>", True)):
        yield tokenizer([], vocab=small, merges=[["a", "b"]], unk_token=unk, fuse_unk=fuse), long
    fallback = {"<0x%02X>" % i: i for i in range(256)}
    fallback.update((x, 256 + i) for i, x in enumerate(["a", "b", "a</w>", "##b", "##b</w>"]))
    for ends in ({"end_of_word_suffix": "</w>"}, {"continuing_subword_prefix": "##"},
                 {"end_of_word_suffix": "</w>", "continuing_subword_prefix": "##"}):
        yield tokenizer([SPACES], vocab=fallback, byte_fallback=True, **ends), ["ab", "a\u00e9 b\u00e9b", "\u00e9", "bab ba"]


def rows_of(theirs, texts):
    """Texts and ids, without texts for which the package fails."""
    for t in texts:
        try:
            yield [t, theirs.encode(t).ids]
        except BaseException:  # a panic of the package is not an Exception
            pass


letters = json.dumps(LETTERS)
rows = []
for tree, texts in cases():
    text = json.dumps(tree)
    theirs = Tokenizer.from_str(text)
    rows.append(json.dumps({"parts": text.split(letters), "rows": list(rows_of(theirs, texts))},
                           separators=(",", ":")))
sys.stdout.write("{\"vocab\":%s,\n\"cases\":[\n%s\n]}\n" % (json.dumps(letters), ",\n".join(rows)))
