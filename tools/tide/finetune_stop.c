/* finetune_stop.c: the handler and its flag. */
#include "tools/tide/finetune_stop.h"

#include <signal.h>
#include <stddef.h>

static volatile sig_atomic_t asked;
static bool begun;
static struct sigaction before[2];
static const int signals[2] = {SIGINT, SIGTERM};

/* SA_RESETHAND has put the default back, for who cannot wait. */
static void remember(int number)
{
    (void)number;
    asked = 1;
}

void tune_stop_begin(void)
{
    struct sigaction action = {.sa_handler = remember, .sa_flags = (int)SA_RESETHAND | SA_RESTART};
    sigemptyset(&action.sa_mask);
    asked = 0;
    begun = true;
    for (int i = 0; i < 2; i++) {
        sigaction(signals[i], &action, &before[i]);
    }
}

void tune_stop_end(void)
{
    for (int i = 0; begun && i < 2; i++) {
        sigaction(signals[i], &before[i], NULL);
    }
    begun = false;
}

bool tune_stop_asked(void)
{
    return asked != 0;
}
