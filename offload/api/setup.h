/* setup.h: the part that plans and engines have in common: reads, checks and resolves the public
 * options, opens the model and its files, and makes the plan. Owned by the object that created
 * it. */
#ifndef OFFLOAD_API_SETUP_H
#define OFFLOAD_API_SETUP_H

#include <tide/engine.h>

#include "offload/model/files.h"
#include "offload/model/peft.h"
#include "offload/run/prepare.h"

struct setup {
    /* its strings belong to the caller, and are used during create only */
    struct tide_engine_options given;
    struct tide_store_path stores[TIDE_STORES_MAX]; /* given.stores points to it */
    struct run_options options;
    struct run_machine machine; /* the machine that `given` names, if it names one */
    /* borrowed: each rank is a process; NULL: each rank is a thread */
    struct coll_peers *peers;
    /* owned: texts that options point to: device, io, directories */
    char *texts[2 + TIDE_STORES_MAX];
    char *folder;   /* owned: the model's folder */
    char *trace;    /* owned; NULL: none */
    char *cache;    /* owned: a folder; NULL: none */
    char build[96]; /* identifies this build of the library */
    /* model_options points to it; its strings belong to `given` */
    struct model_lora_options lora;
    struct model_options model_options; /* the options of `model` */
    struct model_peft *peft;       /* owned; NULL: adapters begin with initial values, or none */
    struct model *model;           /* owned */
    struct model_files *files;     /* owned */
    struct run_prepared *prepared; /* owned */
};

/* Defaults of the loss scale of fp16. */
enum { SETUP_FIRST_SCALE = 65536, SETUP_LEAST_SCALE = 1 };

/* Convert enum tide_optimizer and enum tide_moments to the enums of the update; the values were
 * checked before. */
enum core_update_rule setup_rule(uint32_t optimizer);
enum core_update_type setup_moments(uint32_t moments);

/* Checks the options. With `here` (an engine, not only a plan) the I/O back end must work on this
 * machine, and `machine` must be NULL. */
int setup_check(const struct tide_engine_options *given, bool here);

/* Reads and checks the options, opens the model, and examines the stores' directories. With
 * `weights` the model's folder must contain its weights; a plan needs only config.json. After a
 * failure the caller still calls setup_fini. */
int setup_init(struct setup *setup, const struct tide_engine_options *options, bool weights);
/* Does the part of setup_init that an optimizer without a model needs: copies names and stores from
 * the members of `given` that are set. */
int setup_init_stores(struct setup *setup);
/* Returns the budget of host memory: `given`, or if that is 0, the usable memory of the machine or
 * the cgroup, less a reserve; 0 if that is unknown. */
uint64_t setup_host_bytes(uint64_t given);
/* Measures the rates that are not known yet, and makes the plan. */
int setup_plan(struct setup *setup);
void setup_fini(struct setup *setup);

#endif
