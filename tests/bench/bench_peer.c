/* bench_peer.c: see bench_peer.h. */
#include "tests/bench/bench_peer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static FILE *peer_in;
static FILE *peer_out;

void bench_peer_start(const char *python, const char *script, const char *const words[3])
{
    int to[2];
    int from[2];
    char path[512];
    const char *root = getenv("TIDE_TEST_ROOT");
    snprintf(path, sizeof path, "%s/bench/%s", root != NULL ? root : "tests", script);
    if (access(path, R_OK) != 0 || pipe(to) != 0 || pipe(from) != 0) {
        fprintf(stderr, "bench: %s cannot be started (run from the source folder)\n", path);
        exit(1);
    }
    pid_t child = fork();
    if (child == 0) {
        dup2(to[0], 0);
        dup2(from[1], 1);
        close(to[1]);
        close(from[0]);
        execl(python, python, path, words[0], words[1], words[2], (char *)NULL);
        _exit(127);
    }
    close(to[0]);
    close(from[1]);
    peer_in = fdopen(to[1], "w");
    peer_out = fdopen(from[0], "r");
}

void bench_peer_ask(const char *question, const char *key, char *answer, size_t size)
{
    char line[512];
    fprintf(peer_in, "%s\n", question);
    fflush(peer_in);
    while (fgets(line, sizeof line, peer_out) != NULL) {
        if (strncmp(line, key, strlen(key)) == 0) {
            snprintf(answer, size, "%s", line + strlen(key));
            return;
        }
        if (strncmp(line, "note ", 5) == 0) {
            printf("# %s", line + 5);
        }
    }
    fprintf(stderr, "bench: the peer ended\n");
    exit(1);
}

void bench_peer_end(void)
{
    fclose(peer_in);
    fclose(peer_out);
    wait(NULL);
}
