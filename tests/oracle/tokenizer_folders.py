"""Model folders whose other files change the tokenizer of tokenizer.json, as AutoTokenizer reads them.

    python tests/oracle/tokenizer_folders.py tests/text/fixtures     writes folders.json
"""
import json
import os
import shutil
import sys
import tempfile

import transformers

FAST = {"tokenizer_class": "PreTrainedTokenizerFast"}


def token(content, **flags):
    return dict(dict(content=content, lstrip=False, normalized=False, rstrip=False, single_word=False, special=True), **flags)


CASES = [
    ("named", "gpt2", dict(FAST, eos_token="<|endoftext|>", pad_token="<pad>", mask_token="<blank>"), None),
    ("lists", "gpt2", dict(FAST, eos_token="<|endoftext|>", extra_special_tokens=["<x>", dict(token("<y>", lstrip=True), __type="AddedToken"), "the"]), None),
    ("older lists", "qwen2", dict(FAST, eos_token="<|im_end|>", additional_special_tokens=["<|im_start|>", "<|z|>"]), None),
    ("names of its own", "qwen2", dict(FAST, eos_token="<|im_end|>", image_token="<img>", extra_special_tokens={"audio_token": "<aud>"}),
     None),
    ("objects", "llama3", dict(FAST, bos_token=dict(token("<|begin_of_text|>"), __type="AddedToken"),
                               eos_token=dict(token("<|end|>", rstrip=True), __type="AddedToken")), None),
    ("a map", "tekken", dict(FAST, eos_token="</s>", bos_token="<s>"),
     dict(bos_token="[INST]", pad_token=token("<pad>", lstrip=True), additional_special_tokens=["<q>"])),
    ("a decoder", "tekken", dict(FAST, eos_token="</s>", bos_token="<s>", added_tokens_decoder={
        "700": token("<r>", rstrip=True, special=False, normalized=True), "650": token("<o>"), "3": token("[INST]", lstrip=True)}),
     dict(bos_token="[/INST]", pad_token="<never>")),
    ("adds an end", "gpt2", dict(FAST, eos_token="<|endoftext|>", bos_token="<|endoftext|>", add_eos_token=True, add_bos_token=True), None),
    ("Llama's class", "mistral", dict(tokenizer_class="LlamaTokenizerFast", bos_token="<s>", eos_token="</s>", unk_token="<unk>",
                                     add_eos_token=True, add_bos_token=False), None),
    ("nothing", "mistral", {}, None),
]

TEXTS = ["the <x> the  <y>  the<pad>a", "Hello <|im_start|>there <|z|> <img>x<aud>", " <|end|>  word </s> <s>[INST] a [/INST] b",
         "<q> <pad> x  <r>  y <o> z <never><blank>", "plain text, 12 digits\nand lines", "  [INST]  word<|endoftext|>", ""]


def main(fixtures):
    rows = []
    for name, family, config, mapping in CASES:
        folder = tempfile.mkdtemp()
        shutil.copy(os.path.join(fixtures, family + ".json"), os.path.join(folder, "tokenizer.json"))
        for file, content in (("tokenizer_config.json", config), ("special_tokens_map.json", mapping)):
            if content is not None:
                with open(os.path.join(folder, file), "w") as f:
                    json.dump(content, f)
        if not config:
            with open(os.path.join(folder, "tokenizer_config.json"), "w") as f:
                json.dump(FAST, f)
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        rows.append(dict(name=name, family=family, config=config or FAST, map=mapping, size=len(tokenizer),
                         special={k: v for k, v in tokenizer.special_tokens_map.items() if isinstance(v, str)}, texts=TEXTS,
                         ids=[tokenizer(t)["input_ids"] for t in TEXTS]))
        print(name, len(tokenizer), tokenizer.special_tokens_map)
        shutil.rmtree(folder)
    with open(os.path.join(fixtures, "folders.json"), "w", encoding="utf-8") as f:
        f.write("[\n" + ",\n".join(json.dumps(r) for r in rows) + "\n]\n")


main(sys.argv[1])
