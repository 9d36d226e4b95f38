/* setup.h: what plans and engines share: checks public options, opens the model, and makes the
 * plan. Owned by its creator. */
#ifndef OFFLOAD_API_SETUP_H
#define OFFLOAD_API_SETUP_H

#include <tide/engine.h>

#include "offload/model/files.h"
#include "offload/model/peft.h"
#include "offload/run/prepare.h"

struct setup {
    /* strings belong to the caller; used during create only */
    struct tide_engine_options given;
    struct tide_store_path stores[TIDE_STORES_MAX]; /* given.stores points to it */
    struct run_options options;
    struct run_machine machine; /* the machine of given.machine, if set */
    /* borrowed; NULL: ranks are threads, not processes */
    struct coll_peers *peers;
    /* owned: device, io and directories of `options` */
    char *texts[2 + TIDE_STORES_MAX];
    char *folder;   /* owned: the model's folder */
    char *trace;    /* owned; NULL: none */
    char *cache;    /* owned: a folder; NULL: none */
    char build[96]; /* identifies this build of the library */
    /* model_options points here; strings are borrowed */
    struct model_lora_options lora;
    struct model_options model_options;
    struct model_peft *peft;       /* owned; NULL: no adapters, or new ones */
    struct model *model;           /* owned */
    struct model_files *files;     /* owned */
    struct run_prepared *prepared; /* owned */
};

/* Defaults of the loss scale of fp16. */
enum { SETUP_FIRST_SCALE = 65536, SETUP_LEAST_SCALE = 1 };

/* Convert checked values of enum tide_optimizer and enum tide_moments. */
enum core_update_rule setup_rule(uint32_t optimizer);
enum core_update_type setup_moments(uint32_t moments);

/* With `here` (an engine), the I/O back end must work here, and `machine` must be NULL. */
int setup_check(const struct tide_engine_options *given, bool here);

/* Checks the options, opens the model and examines store directories. `weights`: the model's folder
 * must contain weights. After a failure the caller still calls setup_fini. */
int setup_init(struct setup *setup, const struct tide_engine_options *options, bool weights);
/* For an optimizer without a model: copies names and stores from setup->given, which the caller has
 * set. */
int setup_init_stores(struct setup *setup);
/* Returns `given`; if 0, the usable memory of the machine or cgroup less a reserve, or 0 if
 * unknown. */
uint64_t setup_host_bytes(uint64_t given);
/* Measures unknown rates, and makes the plan. */
int setup_plan(struct setup *setup);
void setup_fini(struct setup *setup);

#endif
