/* Allocator for the fuzz: every aligned allocation (torch makes those of all CPU tensors with
 * posix_memalign) ends at a page that cannot be touched and begins after one, is filled with a poison, and
 * is never used again after free. Linux; loaded by LD_PRELOAD.
 *
 * A read or write beyond these pages ends the process by SIGSEGV, a write into the slack before or after the
 * bytes by SIGABRT at free. The results of a read of slack or of uninitialised memory change with the poison.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE 4096UL
#define ARENA (1UL << 38)

static char *base, *next;
static size_t live, most = 1UL << 30;
static unsigned char poison = 0xA7;
static int on;
static void (*real_free)(void *);

/* Kept in the page before the first page of the bytes, which is readable only while free checks it. */
struct note {
    char *begin; /* of the pages of the bytes */
    char *data;
    size_t size, pages;
    unsigned char poison;
};

void guard_start(size_t bytes) {
    most = bytes;
    if (!base) {
        base = mmap(NULL, ARENA, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (base == MAP_FAILED) abort();
        next = base;
    }
    on = 1;
}

void guard_poison(int byte) { poison = (unsigned char)byte; }

static void die(const char *said) {
    if (write(2, said, strlen(said)) < 0) { }
    abort();
}

int posix_memalign(void **out, size_t alignment, size_t size) {
    if (!on || size == 0 || alignment > PAGE) {
        static int (*real)(void **, size_t, size_t);
        if (!real) real = dlsym(RTLD_NEXT, "posix_memalign");
        return real(out, alignment, size);
    }
    if (size > most || __atomic_add_fetch(&live, size, __ATOMIC_SEQ_CST) > most) {
        if (size <= most) __atomic_sub_fetch(&live, size, __ATOMIC_SEQ_CST);
        return ENOMEM;
    }
    size_t pages = (size + PAGE - 1) / PAGE * PAGE;
    char *at = __atomic_fetch_add(&next, pages + 2 * PAGE, __ATOMIC_SEQ_CST); /* note, bytes, guard */
    if (at + pages + 2 * PAGE > base + ARENA) die("guard: the arena is used up\n");
    if (mprotect(at, PAGE + pages, PROT_READ | PROT_WRITE)) return ENOMEM;
    struct note *note = (struct note *)at;
    note->begin = at + PAGE;
    note->data = (char *)(((uintptr_t)(at + PAGE + pages - size)) & ~(alignment - 1));
    note->size = size;
    note->pages = pages;
    note->poison = poison;
    if (size <= 1UL << 24)
        memset(note->begin, poison, pages);
    *out = note->data;
    mprotect(at, PAGE, PROT_NONE);
    return 0;
}

void free(void *pointer) {
    if (!real_free) real_free = dlsym(RTLD_NEXT, "free");
    if (!base || (char *)pointer < base || (char *)pointer >= base + ARENA) {
        real_free(pointer);
        return;
    }
    /* The bytes begin in their first page: the slack before them is shorter than a page. */
    char *at = (char *)((uintptr_t)pointer & ~(PAGE - 1)) - PAGE;
    mprotect(at, PAGE, PROT_READ);
    struct note *note = (struct note *)at;
    if (note->data != (char *)pointer) die("guard: freed what was not allocated, or a note was overwritten\n");
    if (note->size <= 1UL << 24) {
        for (char *byte = note->begin; byte < note->data; byte++)
            if (*(unsigned char *)byte != note->poison) die("guard: written before a tensor\n");
        for (char *byte = note->data + note->size; byte < note->begin + note->pages; byte++)
            if (*(unsigned char *)byte != note->poison) die("guard: written after a tensor\n");
    }
    size_t pages = note->pages;
    __atomic_sub_fetch(&live, note->size, __ATOMIC_SEQ_CST);
    madvise(at, PAGE + pages, MADV_DONTNEED);
    mprotect(at, PAGE + pages, PROT_NONE);
}
