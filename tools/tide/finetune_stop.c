/* finetune_stop.c: the signal handler and its flag. */
#include "tools/tide/finetune_stop.h"

#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <tide/world.h>
#include <unistd.h>

#include "tools/tide/cli.h"

static volatile sig_atomic_t asked;
static void (*volatile undo_made)(void *context);
static void *volatile undo_context; /* argument of undo_made; set before it */
static const struct tide_world *others;
enum { SIGNALS = 4 };
static const int signals[SIGNALS] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1};

static void note_signal(int number)
{
    (void)number;
    asked = 1;
}

static void end_process(int number)
{
    static const char message[] =
        "tide finetune: stopped by a signal before the first step; nothing was trained\n";
    (void)number;
    if (undo_made != NULL) {
        undo_made(undo_context);
    }
    for (int i = 0; i < 100; i++) {
        if (write(STDERR_FILENO, message, sizeof message - 1) >= 0 || errno != EINTR) {
            break;
        }
    }
    _exit(CLI_INTERRUPTED);
}

static void install_handler(void (*handler)(int number))
{
    for (int i = 0; i < SIGNALS; i++) {
        cli_signal_catch(signals[i], handler);
    }
}

void finetune_stop_early(void (*undo)(void *context), void *context)
{
    undo_context = context;
    undo_made = undo;
    install_handler(end_process);
}

void finetune_stop_begin(void)
{
    asked = 0;
    install_handler(note_signal);
}

void finetune_stop_world(const struct tide_world *world)
{
    others = world;
}

bool finetune_stop_asked(void)
{
    return asked != 0 || (others != NULL && tide_world_stopping(others));
}
