/* setup.h: the common beginning of a plan and an engine: reads, checks and resolves the public options,
 * opens the model and its files, makes the plan. Owned by the object that asked for it. */
#ifndef OFFLOAD_API_SETUP_H
#define OFFLOAD_API_SETUP_H

#include <tide/engine.h>

#include "offload/model/files.h"
#include "offload/model/peft.h"
#include "offload/run/prepare.h"

struct setup {
    /* its strings belong to the caller: used during create only */
    struct tide_engine_options given;
    struct tide_store_path stores[TIDE_STORES_MAX]; /* what given.stores points to */
    struct run_options options;
    struct run_machine machine;       /* if `given` names one */
    struct coll_peers *peers;         /* borrowed: each rank is a process; NULL: a thread */
    char *texts[2 + TIDE_STORES_MAX]; /* owned: device, io, directories; what options point to */
    char *folder;                     /* owned: the model's folder */
    char *trace;                      /* owned; NULL: none */
    char *cache;                      /* owned: a folder; NULL: none */
    char build[96];                   /* identifies this build of the library */
    /* What model_options points to; its strings are as those of `given`. */
    struct model_lora_options lora;
    struct model_options model_options; /* the options of `model` */
    struct model_peft *peft;       /* owned; NULL: adapters begin with initial values, or none */
    struct model *model;           /* owned */
    struct model_files *files;     /* owned */
    struct run_prepared *prepared; /* owned */
};

/* Defaults of the loss scale of fp16. */
enum { SETUP_FIRST_SCALE = 65536, SETUP_LEAST_SCALE = 1 };

/* Returns the update's words for enum tide_optimizer and enum tide_moments; the values were
 * checked. */
enum core_update_rule setup_rule(uint32_t optimizer);
enum core_update_type setup_moments(uint32_t moments);

/* Checks the options; with `here` they also have to work on this machine. */
int setup_check(const struct tide_engine_options *given, bool here);

/* With `weights` the model's folder must have its weights; a plan needs only config.json. After a failure
 * the caller still calls setup_fini. */
int setup_init(struct setup *setup, const struct tide_engine_options *options, bool weights);
/* Does the part of setup_init that an optimizer without a model needs: copies names and stores from the members
 * of `given` that are set. */
int setup_init_stores(struct setup *setup);
/* Returns a budget of host memory; 0: what the machine and the cgroup have, less a reserve. */
uint64_t setup_host_bytes(uint64_t given);
/* Measures the rates that are not known yet and makes the plan. */
int setup_plan(struct setup *setup);
void setup_fini(struct setup *setup);

#endif
