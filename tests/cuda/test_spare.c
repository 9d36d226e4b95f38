/* Tests that a card's budget leaves enough memory for kernels, their stacks and cuBLASLt. No GPU
 * is needed. */
#include <elf.h>
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/dev/dev_cuda.h"
#include "kernels/table.h"
#include "tests/harness/test.h"

/* A fat binary holds the forms of one .cu file: machine code per card, and PTX. Its headers,
 * written by nvcc 12 and 13, are undocumented; this test fails if they change. */
static const uint32_t fat_magic = 0xba55ed50;
enum { FAT_ELF = 2, FAT_PTX = 1, ARCH_MAX = 200 };
struct fat_header {
    uint32_t magic;
    uint16_t version;
    uint16_t header_bytes;
    uint64_t bytes; /* of all entries */
};
struct fat_entry {
    uint16_t kind;
    uint16_t unknown;
    uint32_t header_bytes;
    uint64_t bytes; /* as stored */
    uint32_t compressed_bytes;
    uint32_t unknown_too;
    uint16_t minor, major;
    uint32_t arch;
    uint32_t name_offset, name_bytes;
    uint64_t flags, zero;
    uint64_t whole_bytes; /* when decompressed; 0: not compressed */
};

/* Upper bounds of the loaded bytes: some sections stay on the host. */
struct code {
    uint64_t bytes[ARCH_MAX];
    unsigned files[ARCH_MAX]; /* with code for the architecture */
    unsigned fats;
};

static void count_entries(const char *at, const char *end, struct code *code)
{
    while (at < end) {
        struct fat_entry entry;
        memcpy(&entry, at, sizeof entry);
        check_true(entry.kind == FAT_ELF || entry.kind == FAT_PTX);
        check_uint(entry.arch, <, ARCH_MAX);
        check_uint(entry.header_bytes, >=, sizeof entry);
        if (entry.kind == FAT_ELF) {
            const uint64_t whole = entry.whole_bytes > 0 ? entry.whole_bytes : entry.bytes;
            check_uint(whole, >=, entry.compressed_bytes);
            check_uint(whole, <, UINT64_C(1) << 30);
            code->bytes[entry.arch] += whole;
            code->files[entry.arch]++;
        }
        at += entry.header_bytes + entry.bytes;
    }
    check_true(at == end);
}

static void count_section(const char *at, const char *end, struct code *code)
{
    struct fat_header header;
    while (at + sizeof header <= end) {
        memcpy(&header, at, sizeof header);
        if (header.magic != fat_magic) { /* padding between files */
            at += sizeof(uint64_t);
            continue;
        }
        at += header.header_bytes;
        check_true(header.bytes <= (uint64_t)(end - at));
        count_entries(at, at + header.bytes, code);
        at += header.bytes;
        code->fats++;
    }
}

static void count_code(struct code *code)
{
    struct stat info;
    const int file = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    check_int(file, >=, 0);
    check_int(fstat(file, &info), ==, 0);
    const char *map = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_PRIVATE, file, 0);
    check_true(map != MAP_FAILED);
    const Elf64_Ehdr *head = (const void *)map;
    const Elf64_Shdr *sections = (const void *)(map + head->e_shoff);
    const char *names = map + sections[head->e_shstrndx].sh_offset;
    for (unsigned i = 0; i < head->e_shnum; i++) {
        if (strcmp(names + sections[i].sh_name, ".nv_fatbin") == 0) {
            count_section(map + sections[i].sh_offset,
                          map + sections[i].sh_offset + sections[i].sh_size, code);
        }
    }
    munmap((void *)(uintptr_t)map, (size_t)info.st_size);
    close(file);
}

static void the_spare_is_enough(void)
{
    /* Assumes at most 160 multiprocessors of 2,048 threads, stacks of the default size of 1 KiB,
     * and some dozens of kernels of cuBLASLt of about 100 KiB each. */
    enum { UNITS_MAX = 160, THREADS = 2048, STACK_BYTES = 1024, CU_FILES = 19 };
    static const uint64_t stacks = (uint64_t)UNITS_MAX * THREADS * STACK_BYTES;
    static const uint64_t library = UINT64_C(256) << 20;
    struct code code = {.fats = 0};
    uint64_t most = 0;
    kern_ops_detach(NULL); /* makes the linker take the ops */
    count_code(&code);
    check_uint(code.fats, >=, CU_FILES);
    for (unsigned arch = 0; arch < ARCH_MAX; arch++) {
        if (code.files[arch] > 0) {
            test_note("sm_%u: %u files, %lu bytes of code", arch, code.files[arch],
                      (unsigned long)code.bytes[arch]);
        }
        most = code.bytes[arch] > most ? code.bytes[arch] : most;
    }
    check_uint(most, >, 1 << 20);
    if (most + stacks + library > DEV_CUDA_SPARE_BYTES) {
        test_fail(__FILE__, __LINE__,
                  "%" PRIu64 " bytes of code, %" PRIu64 " of stacks (assuming at most %d "
                  "multiprocessors of %d threads) and %" PRIu64 " of cuBLASLt; a card's budget "
                  "leaves %" PRIu64 " bytes free",
                  most, stacks, UNITS_MAX, THREADS, library, (uint64_t)DEV_CUDA_SPARE_BYTES);
    }
}

TEST_MAIN({"the_spare_is_enough", the_spare_is_enough})
