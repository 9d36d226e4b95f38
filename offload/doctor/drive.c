/* drive.c: the setup of the block device under a store. No state. */
#include <stdio.h>
#include <string.h>

#include "core/base/block_device.h"
#include "offload/doctor/doctor.h"

static const char topic[] = "drive";

enum { SECTORS_GOOD_KB = 1024, SECTORS_CURE_KB = 4096 };

static void say_kind(struct doctor *doctor, const struct core_block_device *block)
{
    char many[64] = "";
    if (block->drives > 1) {
        snprintf(many, sizeof many, ", the first of %u", block->drives);
    }
    char near[32] = "";
    if (block->node >= 0) {
        snprintf(near, sizeof near, ", near node %d", block->node);
    }
    doctor_say(
        doctor,
        &(struct doctor_line){.verdict = block->spins ? TIDE_WARN : TIDE_OK,
                              .topic = topic,
                              .subject = block->name,
                              .cure = block->spins ? "choose a --store on an NVMe drive" : NULL},
        "%s%s%s%s",
        block->model[0] != '\0' ? block->model
        : block->virtual_drive  ? "a virtual drive"
                                : "no model name",
        many, near, block->spins ? ": a spinning disk" : "");
}

static void say_scheduler(struct doctor *doctor, const struct core_block_device *block)
{
    if (block->scheduler[0] == '\0') {
        return;
    }
    bool bad = strcmp(block->scheduler, "bfq") == 0 ||
               (strncmp(block->name, "nvme", 4) == 0 && strcmp(block->scheduler, "none") != 0);
    char cure[256] = "";
    if (bad) {
        snprintf(cure, sizeof cure, "echo none | sudo tee /sys/block/%s/queue/scheduler",
                 block->name);
    }
    doctor_say(doctor,
               &(struct doctor_line){.verdict = bad ? TIDE_WARN : TIDE_OK,
                                     .topic = topic,
                                     .subject = block->name,
                                     .cure = cure},
               bad ? "scheduler %s costs processor time and sorts requests for no benefit"
                   : "scheduler %s",
               block->scheduler);
}

static void say_request(struct doctor *doctor, const struct core_block_device *block)
{
    int64_t now_kb = block->max_sectors_kb;
    int64_t most_kb = block->max_hw_sectors_kb;
    if (now_kb == 0 || most_kb == 0) {
        return;
    }
    bool small = now_kb < SECTORS_GOOD_KB && now_kb < most_kb;
    char cure[256] = "";
    if (small) {
        snprintf(cure, sizeof cure, "echo %lld | sudo tee /sys/block/%s/queue/max_sectors_kb",
                 (long long)(most_kb < SECTORS_CURE_KB ? most_kb : SECTORS_CURE_KB), block->name);
    }
    doctor_say(doctor,
               &(struct doctor_line){.verdict = small ? TIDE_WARN : TIDE_OK,
                                     .topic = topic,
                                     .subject = block->name,
                                     .cure = cure,
                                     .figure = "request_bytes_max",
                                     .value = (double)now_kb * 1024.0},
               small ? "requests are split at %lld KiB, although the drive accepts larger ones"
                     : "requests of up to %lld KiB",
               (long long)now_kb);
}

void doctor_drive(struct doctor *doctor, unsigned major, unsigned minor)
{
    struct core_block_device block;
    if (core_block_device_find(doctor->root, major, minor, &block) != 0) {
        return; /* no block device of its own, or no /sys */
    }
    say_kind(doctor, &block);
    say_scheduler(doctor, &block);
    say_request(doctor, &block);
}
