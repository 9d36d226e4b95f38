"""Tokenizers with the pipelines of known model families, trained on text made here, and strings to compare.
Seeded."""
import json
import random
import unicodedata

from tokenizers import AddedToken, Regex, Tokenizer
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN = LLAMA3.replace("{1,3}", "")
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
TAIL = r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
CASED = r"[^\r\n\p{L}\p{N}]?%s*%s+%s|[^\r\n\p{L}\p{N}]?%s+%s*%s|"
TEKKEN = CASED % (UPPER, LOWER, "", UPPER, LOWER, "") + r"\p{N}" + TAIL
SHORT = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
O200K = CASED % (UPPER, LOWER, SHORT, UPPER, LOWER, SHORT) + r"\p{N}{1,3}" + TAIL
DEEPSEEK = (r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
            r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
# A pattern that needs PCRE2: lazy, nested.
NESTED = r"(?:\p{L}+(?:['-]\p{L}+)*)|\d+?(?=\D|$)|\d{1,2}|\s+|[^\s\p{L}\d]"

SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<s>", "</s>", "<unk>", "[INST]", "[/INST]",
            "<|begin_of_text|>", "<|eot_id|>", "<mask>", "<tool>", "word", "<|fim|>", "  ", "Naïve"]

SCRIPTS = ["abcdefghijklmnopqrstuvwxyz", "абвгдежзиклмнопрстуфхцчшщьыэюя", "αβγδεζηθικλμνξοπρστυφχψω",
           "אבגדהוזחטיכלמנסעפצקרשת", "ابتثجحخدذرزسشصضطظعغفقكلمنهوي", "अआइईकखगघचछजझटठडणतथदधनपफबभमयरलव",
           "的一是不了人我在有他这中大来上国个到说们为子和你地出道也时年得就那要下以生会自着去之过家学对可",
           "あいうえおかきくけこさしすせそたちつてとなにぬねのアイウエオカキクケコ", "가나다라마바사아자차카타파하한국어",
           "กขคงจฉชซญดตถทธนบปผพฟมยรลวสห", "áéíóúñüßøåæçèêëîïôœùûÿ", "ăâđêôơưạảấầẩẫậắằẳẵặẹẻẽếềểễệ"]
CODE = ["def ", "return ", "    ", "\t", "if (", ") {\n", "};\n", "int ", "for i in range(", "self.", "->",
        "==", "!=", " += ", "//", "/* ", " */", "\n\n", "0x1F", "\"", "#include <", "printf(", "_name",
        "camelCase", "HTTPServer", "[0]", "...", "std::", "lambda x: "]


def words(rng, count):
    """A text of `count` pseudo-words of several scripts, which repeat, so that merges are learnt."""
    stock = [[("".join(rng.choice(s) for _ in range(rng.randint(1, 8)))) for _ in range(300)]
             for s in SCRIPTS]
    out = []
    script = 0
    for i in range(count):
        if i % 12 == 0:
            script = rng.choice([0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 6, 7, 8, 9, 10, 11])
        w = stock[script][min(int(rng.expovariate(0.02)), 299)]
        r = rng.random()
        w = w.capitalize() if r < 0.1 else w.upper() if r < 0.13 else w
        r = rng.random()
        if r < 0.03:
            w = str(rng.randint(0, 10 ** rng.randint(1, 9)))
        elif r < 0.06:
            w += rng.choice(["'s", "'t", "'LL", "'ve", "'D", "'ſ", "'re"])
        elif r < 0.12:
            w = rng.choice(CODE) + w
        if script in (6, 7, 9) and rng.random() < 0.8:
            out.append(w)
        else:
            out.append(w + rng.choice([" "] * 14 + [", ", ". ", "\n", "  ", ".\n\n", "! ", "? ", "; ",
                                                    "(", ")"]))
    return "".join(out)


def base(model_options=None, **options):
    return Tokenizer(models.BPE(**(model_options or {}), **options))


def train(tokenizer, corpus, size, specials, alphabet, **options):
    trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=specials, show_progress=False,
                                  initial_alphabet=alphabet, **options)
    tokenizer.train_from_iterator(corpus, trainer)
    return tokenizer


def byte_level(corpus, size, pre, specials, normalizer=None, post=None, extra=()):
    tokenizer = base()
    tokenizer.pre_tokenizer = pre
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    tokenizer.decoder = decoders.ByteLevel()
    train(tokenizer, corpus, size, [], pre_tokenizers.ByteLevel.alphabet())
    tokenizer.add_special_tokens([AddedToken(s, special=True, normalized=False) for s in specials])
    tokenizer.add_tokens(list(extra))
    if post is not None:
        tokenizer.post_processor = post(tokenizer)
    return json.loads(tokenizer.to_str())


def split(pattern, byte_prefix=False):
    return pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(pattern), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=byte_prefix, use_regex=False)])


def template(before, after=()):
    def make(tokenizer):
        names = list(before) + list(after)
        return processors.TemplateProcessing(
            single=" ".join(list(before) + ["$A"] + list(after)),
            special_tokens=[(n, tokenizer.token_to_id(n)) for n in dict.fromkeys(names)])
    return make


def sentencepiece(corpus, size, legacy):
    """Llama 2 (legacy: normalizers only) and Mistral v3 (Metaspace, first)."""
    specials = ["<unk>", "<s>", "</s>"]
    bytes_ = ["<0x%02X>" % i for i in range(256)]
    tokenizer = base(unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    if legacy:
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"),
                                                     normalizers.Replace(" ", "▁")])
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace("▁", "first", split=False)
    pieces = [p + " " for line in corpus for p in line.split(" ")]
    train(tokenizer, pieces, size, specials + bytes_, [], limit_alphabet=160)
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(),
                                           decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    tokenizer.post_processor = template(["<s>"])(tokenizer)
    out = json.loads(tokenizer.to_str())
    out["added_tokens"] = [t for t in out["added_tokens"] if t["content"] in specials]
    next_id = len(out["model"]["vocab"])
    for i, (content, flags) in enumerate([("[INST]", {}), ("[/INST]", {}), ("<mask>", {"lstrip": True}),
                                          ("word", {"single_word": True, "normalized": True}),
                                          ("<tool>", {"rstrip": True})]):
        row = dict(id=next_id + i, content=content, single_word=False, lstrip=False, rstrip=False,
                   normalized=False, special=True)
        row.update(flags)
        out["added_tokens"].append(row)
    return out


def plain(corpus, size):
    """A pipeline with a prefix, a suffix and unknown characters."""
    tokenizer = base(unk_token="<unk>", fuse_unk=True, continuing_subword_prefix="##",
                     end_of_word_suffix="</w>")
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase(),
                                                 normalizers.Strip(True, True),
                                                 normalizers.Replace(Regex(r"[,;]+"), "."),
                                                 normalizers.Replace("''", '"')])
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Whitespace(), pre_tokenizers.Punctuation("merged_with_previous"),
        pre_tokenizers.Digits(False)])
    train(tokenizer, corpus, size, ["<unk>"], [], limit_alphabet=120,
          continuing_subword_prefix="##", end_of_word_suffix="</w>")
    tokenizer.add_tokens([AddedToken("Naïve", normalized=True), AddedToken("<mask>", lstrip=True,
                                                                            rstrip=True)])
    return json.loads(tokenizer.to_str())


def families(size, names=()):
    """Yields (name, tokenizer.json as a tree)."""
    rng = random.Random(7)
    corpus = [words(rng, 60) for _ in range(max(400, size // 8))]
    bl, seq = pre_tokenizers.ByteLevel, pre_tokenizers.Sequence
    iso = lambda p: pre_tokenizers.Split(Regex(p), "isolated")

    def make_llama3():
        file = byte_level(corpus, size, split(LLAMA3), ["<|begin_of_text|>", "<|eot_id|>"],
                          post=lambda t: processors.Sequence([
                              processors.ByteLevel(trim_offsets=False),
                              template(["<|begin_of_text|>"])(t)]))
        file["model"]["ignore_merges"] = True
        return file

    def make_gpt2():
        file = byte_level(corpus, size, bl(add_prefix_space=False), ["<|endoftext|>"])
        file["model"]["merges"] = [" ".join(m) for m in file["model"]["merges"]]
        return file

    def make_nfd():
        file = plain(corpus, size)
        file["model"].update(continuing_subword_prefix=None, end_of_word_suffix=None, merges=[],
                             fuse_unk=False)
        file["normalizer"] = {"type": "Sequence", "normalizers": [
            {"type": "NFD"}, {"type": "Strip", "strip_left": True, "strip_right": False}]}
        file["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [
            {"type": "WhitespaceSplit"}, {"type": "Punctuation", "behavior": "Contiguous"},
            {"type": "Split", "pattern": {"String": "ab"}, "behavior": "MergedWithNext",
             "invert": False},
            {"type": "Split", "pattern": {"Regex": "[aeiou]"}, "behavior": "Removed",
             "invert": False}]}
        return file

    makers = {
        "gpt2": make_gpt2,
        "llama3": make_llama3,
        "qwen2": lambda: byte_level(corpus, size, split(QWEN), ["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
                            normalizers.NFC()),
        "tekken": lambda: byte_level(corpus, size, split(TEKKEN), ["<unk>", "<s>", "</s>", "[INST]", "[/INST]"],
                             post=template(["<s>"], ["</s>"])),
        "o200k": lambda: byte_level(corpus, size, split(O200K), ["<|endoftext|>"]),
        "deepseek": lambda: byte_level(corpus, size, seq([
            iso(r"\p{N}{1,3}"), iso("[一-龥぀-ゟ゠-ヿ]+"), iso(DEEPSEEK),
            bl(add_prefix_space=False, use_regex=False)]), ["<|endoftext|>"]),
        "starcoder": lambda: byte_level(corpus, size, seq([pre_tokenizers.Digits(True), bl(add_prefix_space=True)]),
                                ["<|endoftext|>", "<|fim|>"],
                                extra=[AddedToken("  ", normalized=True),
                                       AddedToken("word", single_word=True, rstrip=True)]),
        "nested": lambda: byte_level(corpus, size, split(NESTED), ["<|endoftext|>"], normalizers.NFKD()),
        "llama2": lambda: sentencepiece(corpus, size, True),
        "mistral": lambda: sentencepiece(corpus, size, False),
        "plain": lambda: plain(corpus, size),
        "nfd": make_nfd,
    }
    for name, make in makers.items():
        if not names or name in names:
            yield name, make()


ODD = ("\u0300\u0301\u0323\u0327\u0345\u05b0\u064b\u093c\u3099\u1161\u11a8\u200d\u200b\ufe0f\ufeff\u00ad"
       "\u0130\u0131\u017f\u212a\u1e9e\ufb01\ufb05\u00b2\u00bd\u2160\u3007\u0660\u0966\uff11\u2126\u212b")
SPACES = " \t\n\r\v\f\x1c\x1f\x85\xa0\u1680\u2000\u2003\u2028\u2029\u202f\u205f\u3000"
EMOJI = ["😀", "👩‍👩‍👧‍👦", "🇩🇪", "👍🏽", "❤️", "🏴󠁧󠁢󠁥󠁮󠁧󠁿", "1️⃣", "🧑🏿‍🚀"]


def random_string(rng, stock):
    parts = []
    for _ in range(int(rng.expovariate(0.25)) + (rng.random() < 0.98)):
        kind = rng.randrange(16)
        n = int(rng.expovariate(0.3)) + 1
        if kind < 4:
            at = rng.randrange(len(stock) - 200)
            parts.append(stock[at:at + rng.randint(1, 60)])
        elif kind == 4:
            parts.append("".join(chr(rng.randrange(0x300)) for _ in range(n)))
        elif kind == 5:
            parts.append("".join(chr(rng.choice([rng.randrange(0xD800), rng.randrange(0xE000, 0x10000)]))
                                 for _ in range(n)))
        elif kind == 6:
            parts.append("".join(chr(rng.randrange(0x10000, 0x20000)) for _ in range(n)))
        elif kind == 7:
            parts.append("".join(chr(rng.randrange(0x10000, 0x110000)) for _ in range(n)))
        elif kind == 8:
            parts.append("".join(rng.choice(SPACES) for _ in range(n)))
        elif kind == 9:
            parts.append("".join(rng.choice("0123456789") for _ in range(n)))
        elif kind == 10:
            parts.append("".join(rng.choice(ODD) for _ in range(n)))
        elif kind == 11:
            parts.append("".join(rng.choice("aeouAEOUнкга가한") + rng.choice(ODD) for _ in range(n)))
        elif kind == 12:
            parts.append(rng.choice(EMOJI) * rng.randint(1, 3))
        elif kind == 13:
            parts.append(rng.choice(SPECIALS))
        elif kind == 14:
            parts.append(rng.choice(["'s", "'S", "'ll", "'LL", "'ſ", "'K", "''", ",;,", "<0x41>", "▁", "▁▁"]))
        else:
            parts.append(rng.choice("aA .\n-_/\\'\"#\t0é中") * rng.randint(1, 70))
    return "".join(parts)


def strings(seed, count):
    rng = random.Random(seed)
    stock = words(rng, 20000)
    out = [""]
    while len(out) < count:
        out.append(random_string(rng, stock))
    return out


def long_strings(seed):
    """Texts of up to about 1 MB that may be slow, by kind."""
    rng = random.Random(seed)
    million = 1 << 20
    return {"letters": "a" * million, "spaces": " " * million, "digits": "7" * million,
            "newlines": "\n" * million, "marks": "." * million, "han": "的" * (million // 3),
            "upper": "A" * million, "combining": "a" + "\u0301" * (million // 2),
            "natural": words(rng, million // 7), "random": "".join(
                chr(rng.choice([rng.randrange(0xD800), rng.randrange(0xE000, 0x110000)]))
                for _ in range(million // 4))}
