/* app.h: an application with three parameters, and the options of its optimizer. */
#ifndef TESTS_API_APP_H
#define TESTS_API_APP_H

#include <tide/optimizer.h>

enum { APP_COUNT = 3, APP_ELEMENTS = 1000 };

struct app {
    float weights[APP_COUNT][APP_ELEMENTS];
    float gradients[APP_COUNT][APP_ELEMENTS];
    struct tide_optim_parameter parameters[APP_COUNT];
    struct tide_optim_group group;
    struct tide_optim_options options;
    struct tide_store_path store; /* not in `options` yet */
};
extern struct app app;

/* Sets up SGD with a rate of one half, and states in memory. */
void app_reset(void);
/* Creates the optimizer, or fails the case. */
struct tide_optim *app_create(void);
/* Checks that tide_optim_create fails with `code` and a message that contains `part`; then calls
 * app_reset(). */
void app_refuse(int code, const char *part);
/* Submits all gradients, the last parameter first. */
void app_submit_all(struct tide_optim *optim);
/* Takes a step with gradients that depend on `step`, and waits for the weights. */
void app_step(struct tide_optim *optim, int step);

#endif
