#!/bin/sh
# browser.sh TIDE: tests a page in a real browser.
paper=$1
browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome) || {
    echo "1..0 # SKIP chromium is not installed"
    exit 0
}
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
i=1
while [ $i -le 40 ]; do
    echo "{\"step\":$i,\"loss\":$((90 - i)),\"grad_norm\":1.5,\"lr\":1e-4,\"tokens\":64,\"seconds\":0.5,\"tokens_per_second\":128,\"store_read_bytes\":14000000,\"wait\":{\"copy\":0.1,\"update\":0.2},\"guesses\":{\"right\":1,\"wrong\":0},\"rss_gb\":1.5}"
    i=$((i + 1))
done >"$work/run.jsonl"
"$paper" report "$work/run.jsonl" >/dev/null || exit 1
# A script writes to the page's title: how much wider than the window the page is, the loss after an arrow key, and the
# number of requests.
sed 's|</body>|<script>const figure = document.getElementById("loss");\
figure.dispatchEvent(new KeyboardEvent("keydown", {key: "ArrowRight"}));\
const said = figure.querySelector("output").textContent + " " + figure.querySelector(".cursor").dataset.step;\
document.title = "wide " + (document.documentElement.scrollWidth - document.documentElement.clientWidth) + "; said " + said;\
addEventListener("load", () => { document.title += "; asked " + performance.getEntriesByType("resource").length; });</script></body>|' \
    "$work/run.html" >"$work/checked.html"
show() {
    timeout 60 "$browser" --headless=new --no-sandbox --disable-gpu --disable-dev-shm-usage \
        --disable-background-networking --disable-component-update --no-first-run \
        --user-data-dir="$work/profile" --window-size="$1,900" --enable-logging=stderr \
        --dump-dom "file://$work/checked.html" >"$work/dom" 2>"$work/err"
}
echo "1..3"
failed=0
tell() {
    if [ "$2" = 0 ]; then
        echo "ok $1 - $3"
    else
        failed=1
        echo "not ok $1 - $3"
        grep -o '<title>[^<]*' "$work/dom" | sed 's/^/# /'
        grep CONSOLE "$work/err" | sed 's/^/# /'
    fi
}
wrong=0
errors=0
for width in 500 1280; do
    show $width
    grep -q '<title>' "$work/dom" || { echo "Bail out! the browser does not start"; exit 1; }
    grep -q '<title>wide 0; said 89 step 1; asked 0</title>' "$work/dom" || wrong=1
    grep -q 'CONSOLE' "$work/err" && errors=1
done
tell 1 $wrong pages_fit_react_to_keys_and_request_nothing
tell 2 $errors nothing_is_on_the_console
# The test detects an error and a request.
sed 's|<script>const|<img src="http://127.0.0.1:9/none.png"><script>console.error("planted");</script><script>const|' \
    "$work/checked.html" >"$work/x" && mv "$work/x" "$work/checked.html"
show 500
if grep -q 'CONSOLE.*planted' "$work/err" && grep -q 'asked 1</title>' "$work/dom"; then
    tell 3 0 planted_faults_are_found
else
    tell 3 1 planted_faults_are_found
fi
exit $failed
