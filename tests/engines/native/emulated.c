/* The native engine as a program that runs jobs from its standard input: for processors that are only emulated here.
 *
 * A job comes as the number of its pointers, the size of its memory, where in the struct the pointers are, the struct with
 * offsets into the memory in place of addresses (-1: none), and the memory. The memory goes back as the job leaves it. */

#include "engine.c"

#include <stdio.h>

static int take_bytes(void *to, size_t size) { return fread(to, 1, size, stdin) == size; }

int main(void) {
    int64_t head[2], places[64];
    while (take_bytes(head, sizeof head)) {
        job j;
        char *memory = malloc((size_t)head[1] + 1);
        if (!memory || head[0] > 64 || !take_bytes(places, (size_t)head[0] * 8) || !take_bytes(&j, sizeof j)) return 2;
        if (!take_bytes(memory, (size_t)head[1])) return 3;
        for (int64_t i = 0; i < head[0]; i++) {
            int64_t offset;
            memcpy(&offset, (char *)&j + places[i], 8);
            void *address = offset < 0 ? NULL : memory + offset;
            memcpy((char *)&j + places[i], &address, 8);
        }
        if (manyhot_run(&j)) return 4;
        fwrite(memory, 1, (size_t)head[1], stdout);
        fflush(stdout);
        free(memory);
    }
    return 0;
}
