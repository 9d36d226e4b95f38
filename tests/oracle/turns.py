"""Finds the text of the assistant with templates that lack {% generation %}, and compares it with templates that have it.

    python tests/oracle/turns.py write tests/text/fixtures          writes turns.json
    python tests/oracle/turns.py compare BUILD FIXTURES TEMPLATES   compares tide on a folder of templates:
                                        NAME.jinja and NAME_training.jinja (trl/chat_templates)

The templates of turns.json have the structure of known families; @ and @@ mark the beginning and the end of
generated text.
"""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

from transformers.utils import chat_template_utils as hf

ENDS = ["<|im_end|>", "<|im_start|>", "<|eot_id|>", "<|eom_id|>", "<end_of_turn>", "<start_of_turn>", "</s>", "[INST]",
        "[/INST]", "<end>", "<return>", "<|end_of_text|>", "<|end|>", "<|return|>", "<|call|>", "<|start|>",
        "<｜end▁of▁sentence｜>", "<｜User｜>", "<｜Assistant｜>", "<|END_OF_TURN_TOKEN|>", "<|START_OF_TURN_TOKEN|>",
        "<|user|>", "<|assistant|>", "<|system|>", "<|observation|>", "<|endoftext|>", "<turn|>", "<|turn>", "<eos>", "<start>", "<think>",
        "<|tool_call>", "<tool_call|>", "<|tool_response>", "<tool_response|>", "<|channel>", "<channel|>", "<|channel|>",
        "<|message|>", "<|eot|>"]

CALLS = ("{% for c in m.tool_calls or [] %}{{ '<call>' + c.function.name + (c.function.arguments | tojson) + '</call>' }}"
         "{% endfor %}")
SHAPES = {  # name: (template, whether tide warns)
    "chatml": ("{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' }}{% if m.role == 'assistant' %}@{{ m.content or '' }}"
               + CALLS + "{{ '<|im_end|>' }}@@{{ '\\n' }}{% else %}{{ m.content + '<|im_end|>\\n' }}{% endif %}{% endfor %}"
               "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}", False),
    # Turns after the last question, and the last turn, contain thoughts.
    "thinker": ("{% set ns = namespace(last=messages | length - 1, open=true) %}{% for m in messages[::-1] %}"
                "{% if ns.open and m.role == 'user' %}{% set ns.open = false %}{% set ns.last = messages | length - 1 - loop.index0 %}"
                "{% endif %}{% endfor %}{% for m in messages %}{% set text = m.content or '' %}{% if m.role == 'assistant' %}"
                "{% set why = m.reasoning_content or '' %}{% if '</think>' in text %}"
                "{% set why = text.split('</think>')[0].split('<think>')[-1].strip('\\n') %}{% set text = text.split('</think>')[-1].lstrip('\\n') %}"
                "{% endif %}{{ '<|im_start|>assistant\\n' }}@{% if loop.index0 > ns.last and (loop.last or why) %}"
                "{{ '<think>\\n' + why.strip('\\n') + '\\n</think>\\n\\n' }}{% endif %}{{ text }}" + CALLS + "{{ '<|im_end|>' }}@@{{ '\\n' }}"
                "{% else %}{{ '<|im_start|>' + m.role + '\\n' + text + '<|im_end|>\\n' }}{% endif %}{% endfor %}"
                "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}"
                "{% if enable_thinking is defined and not enable_thinking %}{{ '<think>\\n\\n</think>\\n\\n' }}{% endif %}{% endif %}", False),
    "headers": ("{{ '<s>' }}{% for m in messages %}{{ '<h>' + m.role + '</h>\\n\\n' }}{% if m.role == 'assistant' %}@"
                "{{ (m.content or '') | trim }}" + CALLS + "{{ '<|eot_id|>' }}@@{% else %}{{ m.content | trim + '<|eot_id|>' }}{% endif %}"
                "{% endfor %}{% if add_generation_prompt %}{{ '<h>assistant</h>\\n\\n' }}{% endif %}", False),
    "brackets": ("{{ '<s>' }}{% for m in messages %}{% if m.role == 'assistant' %}@{{ ' ' + (m.content or '') }}" + CALLS + "{{ '</s>' }}@@"
                 "{% else %}{{ '[INST] ' + m.content + ' [/INST]' }}{% endif %}{% endfor %}", False),
    "renamed": ("{{ '<s>' }}{% for m in messages %}{% if m.role == 'assistant' %}{{ '<start_of_turn>model\\n' }}@{{ (m.content or '') | trim }}"
                + CALLS + "{{ '<end_of_turn>' }}@@{{ '\\n' }}{% else %}{{ '<start_of_turn>user\\n' + m.content | trim + '<end_of_turn>\\n' }}"
                "{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<start_of_turn>model\\n' }}{% endif %}", False),
    # The generation prompt begins a thought; turns of the history contain none.
    "prompted": ("{% for m in messages %}{% if m.role == 'assistant' %}{{ '<｜Assistant｜>' }}@{{ (m.content or '').split('</think>')[-1] }}"
                 + CALLS + "{{ '<｜end▁of▁sentence｜>' }}@@{% else %}{{ '<｜User｜>' + m.content }}{% endif %}{% endfor %}"
                 "{% if add_generation_prompt %}{{ '<｜Assistant｜><think>\\n' }}{% endif %}", True),
    "loud": ("{% for m in messages %}{% if m.role == 'assistant' %}{{ '<a>' }}@{{ (m.content or '') | trim | upper }}" + CALLS
             + "{{ '<end>' }}@@{{ ' \\n' }}{% else %}{{ '<u>' + m.content | upper + '<end>\\n' }}{% endif %}{% endfor %}"
             "{% if add_generation_prompt %}{{ '<a>' }}{% endif %}", False),
    # Only the last turn is followed by the token that ends the text.
    "closing": ("{% for m in messages %}{% if m.role == 'assistant' %}{{ '<a>' }}@{{ m.content or '' }}" + CALLS + "{{ '<end>' }}"
                "{% if loop.last %}{{ '</s>' }}{% endif %}@@{% else %}{{ '<u>' + m.content + '<end>' }}{% endif %}{% endfor %}"
                "{% if add_generation_prompt %}{{ '<a>' }}{% endif %}", False),
    # The last turn has another end. A turn loses its thoughts once a later turn answers without calls.
    "returning": ("{% for m in messages %}{% if m.role == 'assistant' %}{% set ahead = namespace(answer=false) %}"
                  "{% for f in messages[loop.index:] %}{% if f.role == 'assistant' and not f.tool_calls %}{% set ahead.answer = true %}"
                  "{% endif %}{% endfor %}{{ '<start>assistant' }}@{% if m.reasoning_content and not ahead.answer %}"
                  "{{ '<why>' + m.reasoning_content + '<end><start>assistant' }}{% endif %}{{ '<say>' + (m.content or '') }}" + CALLS
                  + "{% if loop.last %}{{ '<return>' }}{% else %}{{ '<end>' }}{% endif %}@@{% else %}"
                  "{{ '<start>' + m.role + '<say>' + m.content + '<end>' }}{% endif %}{% endfor %}"
                  "{% if add_generation_prompt %}{{ '<start>assistant' }}{% endif %}", False),
    # The generation prompt begins a thought; turns before the last question contain none.
    "thinking": ("{% set ns = namespace(last=0) %}{% for m in messages %}{% if m.role == 'user' %}{% set ns.last = loop.index0 %}{% endif %}"
                 "{% endfor %}{% for m in messages %}{% set text = (m.content or '').split('</think>')[-1] %}{% if m.role == 'assistant' %}"
                 "{{ '<|im_start|>assistant\\n' }}{% if loop.index0 > ns.last %}{{ '<think>\\n' }}{% endif %}@"
                 "{% if loop.index0 > ns.last %}{{ (m.reasoning_content or '') + '\\n</think>\\n\\n' }}{% endif %}{{ text }}" + CALLS
                 + "{{ '<|im_end|>' }}@@{{ '\\n' }}{% else %}{{ '<|im_start|>' + m.role + '\\n' + text + '<|im_end|>\\n' }}{% endif %}"
                 "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n<think>\\n' }}{% endif %}", True),
    # The token that ends the text is written in place of the generation prompt.
    "ended": ("{% for m in messages %}{{ '<|' + m.role + '|>\\n' }}{% if m.role == 'assistant' %}@{{ m.content or '' }}" + CALLS
              + "{{ '<|end|>\\n' }}{% if loop.last and not add_generation_prompt %}{{ '<|endoftext|>' }}{% endif %}@@"
              "{% else %}{{ m.content + '<|end|>\\n' }}{% if loop.last and not add_generation_prompt %}{{ '<|endoftext|>' }}{% endif %}"
              "{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% endif %}", False),
    # A prompt adds nothing after tool results. A turn that is continued has no end.
    "joined": ("{% for m in messages %}{% if m.role == 'assistant' %}{% set next = messages[loop.index:] | first | default({'role': ''}) %}"
               "{% if loop.first or loop.previtem.role != 'assistant' %}{{ '<|turn>model\\n' }}{% endif %}@{{ m.content or '' }}" + CALLS
               + "{% if m.tool_calls %}{{ '<|tool_response>' }}{% elif next.role != 'assistant' %}{{ '<turn|>' }}{% endif %}@@"
               "{% if m.tool_calls %}{% set ns = namespace(open=true) %}{% for t in messages[loop.index:] %}"
               "{% if t.role != 'tool' %}{% set ns.open = false %}{% elif ns.open %}{{ t.content + '<tool_response|>' }}{% endif %}"
               "{% endfor %}{% elif next.role != 'assistant' %}{{ '\\n' }}{% endif %}"
               "{% elif m.role != 'tool' %}{{ '<|turn>' + m.role + '\\n' + m.content + '<turn|>\\n' }}{% endif %}{% endfor %}"
               "{% if add_generation_prompt and messages[-1].role != 'tool' %}{{ '<|turn>model\\n' }}{% endif %}", True),
}


def conversations():
    u = lambda c: {"role": "user", "content": c}
    a = lambda c, **k: dict(role="assistant", content=c, **k)
    s = lambda c: {"role": "system", "content": c}
    tool = lambda c: {"role": "tool", "content": c, "name": "weather"}
    call = {"type": "function", "function": {"name": "weather", "arguments": {"place": "Zürich", "days": 2}}}
    many = [m for i in range(6) for m in (u("Question %d?" % i), a("Answer %d." % i))]
    return [
        [u("Hi"), a("Hello!")],
        [s("Be brief."), u("Hi"), a("Hello!"), u("And?"), a("Yes.")],
        [u("Hi"), a("Hello!"), u("And?"), a("Yes."), u("Then?"), a("No.")],
        [u("Hi"), a("Hello!"), u("And?")],
        [u("same"), a("same"), u("same"), a("same"), u("same"), a("same")],
        [u("x"), a("  spaced out \n"), u(" y "), a("\n\nz\n")],
        [u("é ñ 😀"), a("naïve Ünïcode ΑΒΓ"), u("的一是"), a("жук ß")],
        [u("q"), a("<think>\nhmm\nwell\n</think>\n\nanswer"), u("q2"), a("<think>\nso\n</think>\n\nother")],
        [u("q"), a("answer", reasoning_content="hmm\nwell"), u("q2"), a("other", reasoning_content="so")],
        [u("q"), a("answer", reasoning_content="hmm"), u("q2"), a("other")],
        [u("q"), a("answer answer", reasoning_content="answer answer"), u("answer"), a("answer", reasoning_content="answer")],
        [u("Weather?"), a("", tool_calls=[call]), tool("21"), a("21 degrees")],
        [u("Weather?"), a("I look.", tool_calls=[call]), tool("21"), a("21 degrees"), u("Thanks"), a("Gladly.")],
        [u("Weather?"), a("", tool_calls=[call], reasoning_content="Look it up."), tool("21"), tool("22"),
         a("21", reasoning_content="Two."), u("Thanks"), a("Gladly.", reasoning_content="Nice.")],
        [u("Weather?"), a("", tool_calls=[call, call]), tool("1"), a("", tool_calls=[call]), tool("2"), a("done")],
        [u("a"), a("one"), a("two"), u("b"), a("three")],
        [u("a"), a("one"), a("two")],
        [u("a"), a(""), u("b"), a("c")],
        [a("I begin."), u("then user"), a("again")],
        [u("user\nassistant\n<a> [/INST]"), a("user\nassistant\n<u> <think>"), u("assistant"), a("user")],
        [u("a"), a("<"), u("<a>"), a("<th")],
        many,
        [s("Long.")] + many,
        [u("1 + 1?"), a("2", reasoning_content="1 + 1 is 2"), u("2"), a("2"), u("2"), a("2", reasoning_content="2")],
        [u("line\n\nbreaks\n"), a("line\n\nbreaks"), u("\n"), a("x\n\ny")],
        [u("code"), a("```c\nint main(void) { return 0; }\n```"), u("why?"), a("{{ 7 * 7 }} {% raw %}")],
        [u("q"), a("</think>"), u("r"), a("done")],
        [u("q"), a("<think>only</think>"), u("r"), a("done")],
        [s("s"), u("Weather?"), a("", tool_calls=[call]), tool("21"), u("quick!"), a("21")],
        [s("s"), u("a"), a("b"), s("late"), u("c"), a("d")],
        [u("long " * 200), a("answer " * 300), u("more " * 100), a("end " * 50)],
        [u("a"), a("b"), u("c"), u("d"), a("e")],
        [u("x"), a("Assistant"), u("Assistant"), a("Assistant x")],
        [u("q"), a("a\n</think>\n\nb", reasoning_content="r"), u("q"), a("a")],
    ]


def marked(source, variables):
    """The text and the spans in characters, or None if the template refuses."""
    try:
        text, spans = hf._render_with_assistant_indices(hf._compile_jinja_template(source), variables["messages"],
                                                        variables.get("tools"), None, False)
        return text, spans
    except Exception:  # any exception of jinja2 means that the template refuses
        return None


def trim(text, spans, ends):
    """White space after the end of a turn belongs to the template."""
    out = []
    for begin, end in spans:
        short = len(text[:end].rstrip(" \n\r\t"))
        end = short if short > begin and text[begin:short].endswith(tuple(ends)) else end
        if begin < end:
            out.append((begin, end))
    return out


def write(folder):
    chats = conversations()
    shapes = []
    for name, (source, warns) in SHAPES.items():
        plain = source.replace("@@", "").replace("@", "")
        full = source.replace("@@", "{% endgeneration %}").replace("@", "{% generation %}")
        wants = []
        for chat in chats:
            text, spans = marked(full, {"messages": chat})
            spans = trim(text, spans, ENDS)
            if chat[0]["role"] == "assistant" and name == "brackets":
                spans[0] = (0, spans[0][1])  # no prompt precedes the turn, so it begins with the text
            wants.append([len(text[:at].encode()) for span in spans for at in span])
        shapes.append({"name": name, "source": plain, "warns": warns, "spans": wants})
    with open(os.path.join(folder, "turns.json"), "w") as f:
        json.dump({"special": ENDS, "conversations": chats, "templates": shapes}, f, ensure_ascii=False, separators=(",", ":"))
        f.write("\n")


def plain_turns(text, spans):
    """The trained text without thoughts, which only training templates keep."""
    found = [re.sub(r"^(<think>)?.*?</think>\s*", "", text[b:e], flags=re.S).strip() for b, e in spans]
    return [x for x in found if x]


def same_but_prompts(want, got, prompt):
    """Whether the parts are equal, except for white space and beginnings in the prompt."""
    want, got = ([x.strip() for x in y if x.strip()] for y in (want, got))
    return len(want) == len(got) and all(w.endswith(g) and w[:len(w) - len(g)].strip() in prompt for w, g in zip(want, got))


def merged(spans, text):
    out = []
    for b, e in spans:
        if out and not text[out[-1][1]:b].strip():
            b = out.pop()[0]
        out.append((b, e))
    return out


def ours(build, folder, rows):
    """Returns, per row, tide's ids and labels (None: no output) and its messages."""
    from tokenizers import Tokenizer
    out = []
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as f:
        for row in rows:
            f.seek(0)
            f.truncate()
            f.write(json.dumps(row) + "\n")
            f.flush()
            run = subprocess.run([os.path.join(build, "tests/text/print_batches"), folder, f.name, "100000", "0"],
                                 capture_output=True, text=True)
            line = run.stdout.splitlines()
            out.append((json.loads(line[0]), run.stderr) if line else (None, run.stderr))
    return out


def compare(build, fixtures, templates):
    from transformers import PreTrainedTokenizerFast
    names = sorted(n[:-15] for n in os.listdir(templates) if n.endswith("_training.jinja"))
    total = same = thought = prompts = 0
    for name in names:
        source, training = (os.path.join(templates, name + s) for s in (".jinja", "_training.jinja"))
        if not os.path.exists(source):
            continue
        source, training = open(source).read(), open(training).read()
        folder = tempfile.mkdtemp()
        shutil.copy(os.path.join(fixtures, "qwen2.json"), os.path.join(folder, "tokenizer.json"))
        with open(os.path.join(folder, "tokenizer_config.json"), "w") as f:
            json.dump({"eos_token": "<|im_end|>", "bos_token": "<|endoftext|>", "additional_special_tokens": ENDS,
                       "chat_template": source}, f)
        special = {"eos_token": "<|im_end|>", "bos_token": "<|endoftext|>"}
        rows = [{"messages": c} for c in conversations()]
        tokenizer = PreTrainedTokenizerFast(tokenizer_file=os.path.join(folder, "tokenizer.json"),
                                            additional_special_tokens=ENDS, **special)
        counts = [0, 0, 0, 0, 0]
        for row, (got, error) in zip(rows, ours(build, folder, rows)):
            def text_of(t, prompt=False):
                try:
                    return hf._render_with_assistant_indices(hf._compile_jinja_template(t), row["messages"], None, None,
                                                             prompt, **special)
                except Exception:
                    return None
            want, plain = text_of(training), text_of(source)
            if want is None or plain is None or (not want[1]):
                counts[3] += 1
                continue
            spans = merged(trim(want[0], want[1], ENDS), want[0])
            offsets = tokenizer(plain[0], add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
            if got is None:
                mine = []
            else:
                if len(got["ids"]) != len(offsets):
                    counts[3] += 1
                    continue
                mine = []
                for (b, e), label in zip(offsets, got["labels"]):
                    if label != -100:
                        if mine and mine[-1][1] >= b:
                            b = mine.pop()[0]
                        mine.append((b, e))
            if want[0] == plain[0]:
                spans = merged([(min([b] + [o[0] for o in offsets if o[0] < b < o[1]]),
                                 max([e] + [o[1] for o in offsets if o[0] < e < o[1]])) for b, e in spans], want[0])
                equal = [want[0][b:e] for b, e in spans] == [plain[0][b:e] for b, e in mine]
                kind = 0
            else:
                equal = plain_turns(want[0], spans) == plain_turns(plain[0], mine)
                kind = 1
            prompted = text_of(source, True)
            prompt = prompted[0][len(os.path.commonprefix([prompted[0], plain[0]])):] if prompted else ""
            if not equal and same_but_prompts([want[0][b:e] for b, e in spans], [plain[0][b:e] for b, e in mine], prompt):
                equal, kind = True, 4
            counts[kind if equal else 2] += 1
            if not equal and os.environ.get("SHOW"):
                print(" ", name, error.strip()[:200], "\n   want", [want[0][b:e] for b, e in spans],
                      "\n   got ", [plain[0][b:e] for b, e in mine])
        print("%-24s %2d equal, %2d except for thoughts, %2d except for the prompt, %2d differ, %2d refused or without marks" %
              (name, counts[0], counts[1], counts[4], counts[2], counts[3]), flush=True)
        total += counts[0] + counts[1] + counts[2] + counts[4]
        prompts += counts[4]
        same += counts[0]
        thought += counts[1]
    print("%d conversations: %d equal, %d except for thoughts, %d except for the prompt" % (total, same, thought, prompts))


if sys.argv[1] == "write":
    write(sys.argv[2])
else:
    compare(*sys.argv[2:])
