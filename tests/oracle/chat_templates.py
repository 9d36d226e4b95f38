"""Renders chat templates as transformers does (jinja2 with its settings).

    python tests/oracle/chat_templates.py write tests/text/fixtures      writes templates.json
    python tests/oracle/chat_templates.py compare BUILD [FILE.jinja...]  compares tide with it; default:
                                                                         the templates of templates.json
"""
import json
import os
import random
import subprocess
import sys
import tempfile
from datetime import datetime, timezone

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from chat_template_sources import TEMPLATES  # noqa: E402
from transformers.utils import chat_template_utils as hf  # noqa: E402

NOW = 1753000000


def strftime_now(format):
    return datetime.fromtimestamp(NOW, timezone.utc).replace(tzinfo=None).strftime(format)


def render(source, variables):
    """[text, spans in bytes], or [None, message]."""
    try:
        template = hf._compile_jinja_template(source)
        template.globals["strftime_now"] = strftime_now
        template.environment.globals["strftime_now"] = strftime_now
        text, spans = hf._render_with_assistant_indices(
            template, variables["messages"], variables.get("tools"), variables.get("documents"),
            variables["add_generation_prompt"],
            **{k: v for k, v in variables.items()
               if k not in ("messages", "tools", "documents", "add_generation_prompt")})
    except Exception as e:  # any exception of jinja2 means that the template refuses
        return [None, "%s: %s" % (type(e).__name__, e)]
    flat = []
    for begin, end in spans:
        flat += [len(text[:begin].encode()), len(text[:end].encode())]
    return [text, flat]


TOOLS = [{"type": "function", "function": {
    "name": "weather", "description": "The weather of a \"place\" <today> & tomorrow",
    "parameters": {"type": "object", "properties": {
        "place": {"type": "string", "description": "Überall\n"},
        "days": {"type": ["integer", "null"], "default": 3, "enum": [1, 3, 1.5, None, True]}},
        "required": ["place"]}}},
    {"type": "function", "function": {"name": "noop", "description": "", "parameters": {}}}]


def conversations():
    """Rows of variables: plain, with tools, odd turns, unicode and adversarial strings."""
    base = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>",
            "tools": None, "documents": None, "add_generation_prompt": False}
    u = lambda c, **k: dict(role="user", content=c, **k)
    a = lambda c, **k: dict(role="assistant", content=c, **k)
    s = lambda c: {"role": "system", "content": c}
    call = {"id": "call00001", "type": "function",
            "function": {"name": "weather", "arguments": {"place": "Zürich", "days": 2, "x": [1.0, {}]}}}
    bad = {"id": "x", "type": "function", "function": {"name": "noop", "arguments": "{\"raw\": 1}"}}
    chats = [
        [u("Hi"), a("Hello!")],
        [s("Be brief."), u("Hi"), a("Hello!"), u("And?"), a("Yes.")],
        [s(""), u(""), a("")],
        [u("  spaced \n\n out\t"), a(" \n"), u("x")],
        [u("é ñ 😀 的一是 \u0301 ﬁ ß İ"), a("naïve Ünïcode ΑΒΓ жук")],
        [u("{{ 7*7 }} {% raw %} </s><s>[INST] \\ \" ' <|im_end|>"), a("%s %d {0} {} 100%")],
        [u("What is it like?"), a("", tool_calls=[call]),
         {"role": "tool", "content": "{\"t\": 21}", "name": "weather", "tool_call_id": "call00001"},
         a("21 degrees")],
        [u("q"), a("<think>hmm\nwell</think>\n\nanswer", reasoning_content="hmm"), u("q2"),
         a("plain"), a("twice")],
        [u([{"type": "text", "text": "part one"}, {"type": "image"}, {"type": "text", "text": "two"}]),
         a([{"type": "text", "text": "ok"}])],
        [u("no calls"), a("c", tool_calls=[]), u("bad"), a("d", tool_calls=[bad, call])],
        [a("assistant first"), u("then user")],
        [u("a"), u("b"), s("late"), {"role": "developer", "content": "dev"}],
        [{"role": "user"}, {"role": "assistant", "content": None}],
        [u(7), a(1.5), u(True), a({"k": ["v", None]})],
        [],
    ]
    rows = []
    for i, chat in enumerate(chats):
        for tools in ([None, TOOLS] if i in (0, 1, 6) else [None]):
            for prompt in ([False, True] if i in (0, 1, 4, 6, 7) else [i % 2 == 1]):
                rows.append(dict(base, messages=chat, tools=tools, add_generation_prompt=prompt))
    rng = random.Random(3)
    odd = ["<|", "|>", "\u200b", "\n", "  ", "{%", "%}", "\\n", "a", "Ж", "𝕏", "\x00", "\x7f", "\u2028",
           "'", '"', "0", "/", "</think>", "<think>"]
    for _ in range(6):
        chat = [{"role": rng.choice(["user", "assistant", "system", "tool"]),
                 "content": "".join(rng.choice(odd) for _ in range(rng.randrange(30)))}
                for _ in range(rng.randrange(1, 6))]
        rows.append(dict(base, messages=chat, add_generation_prompt=rng.random() < 0.5,
                         custom={"n": rng.randrange(-5, 5), "x": rng.random() * 100,
                                 "words": ["b", "A", "c", "a"], "deep": {"z": [3, 1, 2]}}))
    return rows


def ours(build, source, rows):
    with tempfile.TemporaryDirectory() as folder:
        paths = [os.path.join(folder, n) for n in ("template.jinja", "inputs.json")]
        with open(paths[0], "w", encoding="utf-8", newline="") as f:
            f.write(source)
        with open(paths[1], "w", encoding="utf-8") as f:
            json.dump(rows, f)
        run = subprocess.run([os.path.join(build, "tests/text/render_jinja"), *paths, str(NOW)],
                             capture_output=True, env=dict(os.environ, TZ="UTC"))
        if run.returncode != 0:
            sys.exit("render_jinja: %d %s" % (run.returncode, run.stderr.decode()))
        return json.loads(run.stdout)


def compare(build, files):
    rows = conversations()
    sources = dict(TEMPLATES)
    if files:
        sources = {os.path.basename(f): open(f, encoding="utf-8").read() for f in files}
    total = wrong = refused = 0
    shown = set()  # prints one difference per template
    for name, source in sources.items():
        got = ours(build, source, rows)
        for row, mine in zip(rows, got):
            want = render(source, row)
            total += 1
            refused += want[0] is None
            if (want[0] is None) != (mine[0] is None) or (want[0] is not None and want != mine):
                wrong += 1
                if name not in shown:
                    shown.add(name)
                    print("%s\n  messages %s\n  theirs %r\n  ours   %r" %
                          (name, json.dumps(row["messages"], ensure_ascii=False)[:300], want, mine))
    print("%d templates, %d renderings (%d refused by both or one), %d differ" %
          (len(sources), total, refused, wrong))
    sys.exit(wrong != 0)


def write(folder):
    rows = conversations()
    out = {"now": NOW, "inputs": rows, "templates": []}
    for name, source in TEMPLATES.items():
        results = [render(source, row) for row in rows]
        assert any(r[0] is not None for r in results) or name.startswith("refused"), (name, results[0])
        out["templates"].append({"name": name, "source": source,
                                 "results": [r if r[0] is not None else None for r in results]})
    with open(os.path.join(folder, "templates.json"), "w", encoding="utf-8") as f:
        f.write("{\"now\": %d, \"inputs\": [\n" % NOW)
        f.write(",\n".join(json.dumps(r) for r in rows) + "\n], \"templates\": [\n")
        f.write(",\n".join(json.dumps(t) for t in out["templates"]) + "\n]}\n")
    print(len(out["templates"]), "templates,", len(rows), "inputs")


if sys.argv[1] == "write":
    write(sys.argv[2])
else:
    compare(sys.argv[2], sys.argv[3:])
