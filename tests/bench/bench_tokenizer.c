/* bench_tokenizer.c: the tokenizer, in turns with the `tokenizers` package.
 *
 *   python tests/bench/tokenizer_make.py T.json T.bin 128000 FOLDER...
 *   bench_tokenizer T.json T.bin [--threads N] [--rounds N] [--quick] [--python PATH]
 *
 * Prints medians for the documents of T.bin and for generated classes of text: CLASS_mb_s and, if
 * the interpreter has `tokenizers`, CLASS_peer_mb_s and CLASS_ratio (its time over ours, with as
 * many threads). long_CLASS_ms is the time of one text of 1 MB; load_s and load_mb are the time and
 * memory of loading. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/file.h"
#include "tests/bench/bench_peer.h"
#include "tools/text/tokenizer/tokenizer.h"

enum { DOCUMENTS_MAX = 1 << 16, THREADS_MAX = 64, ROUNDS_MAX = 99 };

struct work {
    const struct text_tokenizer *tokenizer;
    const char *documents[DOCUMENTS_MAX];
    size_t bytes[DOCUMENTS_MAX];
    size_t count;
    size_t total;
    _Atomic size_t next;
    _Atomic size_t tokens;
    unsigned threads;
    struct text_scratch *scratch[THREADS_MAX];
};

static struct work work;

static void fail(const char *what)
{
    fprintf(stderr, "bench_tokenizer: %s: %s\n", what, core_err_message());
    exit(1);
}

static void *encode_some(void *argument)
{
    struct text_scratch *scratch = argument;
    size_t tokens = 0;
    for (size_t at; (at = atomic_fetch_add(&work.next, 1)) < work.count;) {
        struct text_encoding encoding;
        if (text_tokenizer_encode(scratch, work.documents[at], work.bytes[at], TEXT_ENCODE_SPECIAL,
                                  &encoding) != 0) {
            fail("encoding");
        }
        tokens += encoding.count;
    }
    atomic_fetch_add(&work.tokens, tokens);
    return NULL;
}

static double encode_all(void)
{
    pthread_t threads[THREADS_MAX];
    atomic_store(&work.next, 0);
    atomic_store(&work.tokens, 0);
    const int64_t begin = core_clock_now_ns();
    for (unsigned i = 1; i < work.threads; i++) {
        pthread_create(&threads[i], NULL, encode_some, work.scratch[i]);
    }
    encode_some(work.scratch[0]);
    for (unsigned i = 1; i < work.threads; i++) {
        pthread_join(threads[i], NULL);
    }
    return (double)(core_clock_now_ns() - begin) / 1e9;
}

static int compare(const void *left, const void *right)
{
    const double a = *(const double *)left;
    const double b = *(const double *)right;
    return (a > b) - (a < b);
}

static double median(double *values, size_t count)
{
    qsort(values, count, sizeof *values, compare);
    return values[count / 2];
}

static void cut(char *text, size_t bytes)
{
    work.count = work.total = 0;
    for (size_t at = 0; at < bytes && work.count < DOCUMENTS_MAX;) {
        const size_t length = strlen(text + at);
        work.documents[work.count] = text + at;
        work.bytes[work.count++] = length;
        work.total += length;
        at += length + 1;
    }
}

static void measure(const char *name, const char *path, unsigned rounds, bool peer)
{
    double ours[ROUNDS_MAX];
    double theirs[ROUNDS_MAX];
    char answer[200];
    char question[600];
    snprintf(question, sizeof question, "%s", path);
    encode_all();
    if (peer) {
        bench_peer_ask(question, "batch ", answer, sizeof answer);
    }
    for (unsigned i = 0; i < rounds; i++) {
        ours[i] = encode_all();
        if (peer) {
            unsigned long long tokens = 0;
            bench_peer_ask(question, "batch ", answer, sizeof answer);
            sscanf(answer, "%lf %llu", &theirs[i], &tokens);
            if (tokens != atomic_load(&work.tokens)) {
                printf("%s_differ 1\n", name);
            }
        }
    }
    const double mine = median(ours, rounds);
    printf("%s_mb_s %.2f MB/s\n", name, (double)work.total / 1e6 / mine);
    if (peer) {
        const double other = median(theirs, rounds);
        printf("%s_peer_mb_s %.2f MB/s\n%s_ratio %.2f x\n", name, (double)work.total / 1e6 / other,
               name, other / mine);
    }
    fflush(stdout);
}

/* Times documents that repeat a unit; writes them for the peer, too. */
static void measure_made(const char *name, const char *unit, size_t bytes, size_t count,
                         unsigned rounds, bool peer)
{
    char path[] = "/tmp/bench_tokenizer_XXXXXX";
    const int fd = mkstemp(path);
    FILE *file = fd >= 0 ? fdopen(fd, "w") : NULL;
    char *text = NULL;
    size_t total = 0;
    if (file == NULL) {
        fail(path);
    }
    for (size_t i = 0; i < count; i++) {
        for (size_t at = 0; at + strlen(unit) <= bytes; at += strlen(unit)) {
            fputs(unit, file);
        }
        fputc('\0', file);
    }
    fclose(file);
    if (core_file_read(path, 1 << 30, &text, &total) != 0) {
        fail(path);
    }
    cut(text, total);
    measure(name, path, rounds, peer);
    remove(path);
    free(text);
}

static double resident_mb(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)usage.ru_maxrss / 1e3;
}

static void measure_load(const char *path, unsigned rounds, bool peer)
{
    double ours[ROUNDS_MAX];
    double theirs[ROUNDS_MAX];
    const double before = resident_mb();
    for (unsigned i = 0; i < rounds; i++) {
        char answer[200];
        struct text_tokenizer *again = NULL;
        const int64_t begin = core_clock_now_ns();
        if (text_tokenizer_load(path, &again) != 0) {
            fail(path);
        }
        ours[i] = (double)(core_clock_now_ns() - begin) / 1e9;
        if (i == 0) {
            printf("load_mb %.1f MB\n", resident_mb() - before);
            work.tokenizer = again;
        } else {
            text_tokenizer_destroy(again);
        }
        if (peer) {
            bench_peer_ask("load", "load ", answer, sizeof answer);
            theirs[i] = atof(answer);
        }
    }
    printf("load_s %.3f s\n", median(ours, rounds));
    if (peer) {
        printf("load_peer_s %.3f s\n", median(theirs, rounds));
    }
}

int main(int argc, char **argv)
{
    unsigned rounds = 7;
    const char *python = NULL;
    work.threads = 1;
    for (int i = 3; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        rounds = strcmp(argv[i], "--quick") == 0 ? 3 : rounds;
        rounds = strcmp(argv[i], "--rounds") == 0 ? (unsigned)atoi(value) : rounds;
        work.threads = strcmp(argv[i], "--threads") == 0 ? (unsigned)atoi(value) : work.threads;
        python = strcmp(argv[i], "--python") == 0 ? value : python;
    }
    if (argc < 3 || rounds < 1 || rounds > ROUNDS_MAX || work.threads < 1 ||
        work.threads > THREADS_MAX) {
        fprintf(stderr, "bench_tokenizer T.json T.bin [--threads N] [--rounds N] [--quick] "
                        "[--python PATH]\n");
        return 2;
    }
    char threads[16];
    snprintf(threads, sizeof threads, "%u", work.threads);
    setenv("RAYON_NUM_THREADS", threads, 1);
    setenv("TOKENIZERS_PARALLELISM", "true", 1);
    if (python != NULL) {
        bench_peer_start(python, "tokenizer_peer.py", (const char *const[3]){argv[1], NULL, NULL});
    }
    measure_load(argv[1], rounds, python != NULL);
    for (unsigned i = 0; i < work.threads; i++) {
        if (text_scratch_create(work.tokenizer, &work.scratch[i]) != 0) {
            fail("scratch");
        }
    }
    char *text = NULL;
    size_t bytes = 0;
    if (core_file_read(argv[2], 1 << 30, &text, &bytes) != 0) {
        fail(argv[2]);
    }
    cut(text, bytes);
    measure("natural", argv[2], rounds, python != NULL);
    free(text);
    static const struct {
        const char *name;
        const char *unit;
    } classes[] = {{"digits", "7"},
                   {"spaces", " "},
                   {"letters", "a"},
                   {"newlines", "\n"},
                   {"marks", "."},
                   {"han", "\xE7\x9A\x84"},
                   {"combining", "e\xCC\x81"},
                   {"emoji", "\xF0\x9F\x98\x80"}};
    for (size_t i = 0; i < sizeof classes / sizeof classes[0]; i++) {
        char name[64];
        measure_made(classes[i].name, classes[i].unit, 2000, 300, rounds, python != NULL);
        snprintf(name, sizeof name, "long_%s", classes[i].name);
        measure_made(name, classes[i].unit, 1 << 20, 1, rounds < 3 ? rounds : 3, false);
    }
    if (python != NULL) {
        bench_peer_end();
    }
    return 0;
}
