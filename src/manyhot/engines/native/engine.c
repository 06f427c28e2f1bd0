/* The native CPU engine of manyhot: the two sides of a row, their gradient, and whole losses in one pass.
 *
 * A row is cut into chunks of CHUNK labels. Each chunk gives a maximum and a sum for either side, all chunks are merged in
 * order, and the gradient is written while the row is in cache. Nothing depends on how chunks are distributed over threads, so
 * results are bitwise identical for every number of threads. For the formulas see manyhot.engines.terms. rows.h and the files
 * that it includes hold the arithmetic and are compiled once for each instruction set; job.h holds the types, pool.h the
 * threads; this file selects the instruction set and divides the work. The entry point is manyhot_run; linear heads
 * (linear_run.h), LSTM layers (lstm_run.h), label trees (tree.h), words (words.h) and JSON lines (lines.h) have their own. Nothing
 * depends on torch or Python. */

#if defined(__linux__)
#define _GNU_SOURCE /* for madvise */
#include <sys/mman.h>
#endif
#if defined(__x86_64__) || defined(__i386__)
#include <immintrin.h>
#endif
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "job.h"
#include "linear_types.h"
#include "tree_types.h"
#include "lstm_types.h"

typedef struct {
    void (*tile)(const job *, int64_t, int64_t, worker *);
    void (*part_before)(const job *, int64_t, int64_t, int64_t, stats *, stats *, worker *);
    void (*merge)(const stats *, int64_t, rowstate *, int64_t);
    void (*finish)(const job *, int64_t, int64_t, rowstate *);
    void (*part_after)(const job *, int64_t, int64_t, int64_t, const stats *, const stats *, const rowstate *, const rowstate *,
                       int64_t, worker *);
    void (*solve_block)(const tree_block *, const tree_rows *, float *, float *, float *, int64_t);
    void (*sigmoids)(float *, int64_t, float, float);
    void (*linear_slab)(const linear_plan *, int64_t, linear_room *);
    void (*merge_stats)(stats *, const stats *);
    void (*lstm_forward)(const lstm_layer *, lstm_room *);
    void (*lstm_backward)(const lstm_layer *, lstm_room *);
    const char *name;
} variant;

#define VARIANT(suffix, name)                                                                                          \
    {tile_##suffix, part_before_##suffix, merge_##suffix, finish_##suffix, part_after_##suffix, solve_block_##suffix,  \
     sigmoids_##suffix, linear_slab_##suffix, merge_stats_##suffix, lstm_forward_##suffix,                           \
     lstm_backward_##suffix, name}

/* BLOCK entries are summed in float, the sums of blocks in double. Blocks may be longer for wider vectors, because each of
 * their lanes adds fewer terms. */
#define BLOCK 256
#define NAME(f) f##_plain
#define WIDE 4
#if defined(__SSE2__)
#define LEAST(a, b) _mm_min_ps(a, b)
#define MOST(a, b) _mm_max_ps(a, b)
#else
#define LEAST(a, b) least(a, b)
#define MOST(a, b) (-least(-(a), -(b)))
#endif
#define SPREAD(p) spread_four(p)
#define LOWS(a, b) ((four){(a)[0], (b)[0], (a)[1], (b)[1]})
#define HIGHS(a, b) ((four){(a)[2], (b)[2], (a)[3], (b)[3]})
#include "rows.h"
#undef NAME
#undef BLOCK
#undef WIDE
#undef LEAST
#undef MOST
#undef SPREAD
#undef LOWS
#undef HIGHS
#define BLOCK 1024

#if defined(__x86_64__) && !defined(MANYHOT_PLAIN)
#define WIDE_VARIANTS
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma")
#endif
#define NAME(f) f##_avx2
#define WIDE 8
#define LEAST(a, b) _mm256_min_ps(a, b)
#define MOST(a, b) _mm256_max_ps(a, b)
#define SPREAD(p) _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(p)))
#define LOWS(a, b) _mm256_permute2f128_ps(_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b), 0x20)
#define HIGHS(a, b) _mm256_permute2f128_ps(_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b), 0x31)
#include "rows.h"
#undef NAME
#undef WIDE
#undef LEAST
#undef MOST
#undef SPREAD
#undef LOWS
#undef HIGHS
#if defined(__clang__)
#pragma clang attribute pop
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma"))), apply_to = function)
#else
#pragma GCC pop_options
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,prefer-vector-width=512")
#endif
#define NAME(f) f##_avx512
#define WIDE 16
#define LEAST(a, b) _mm512_min_ps(a, b)
#define MOST(a, b) _mm512_max_ps(a, b)
#define SPREAD(p) _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(p)))
#define LOWS(a, b)                                                                                                     \
    _mm512_permutex2var_ps(a, _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23), b)
#define HIGHS(a, b)                                                                                                    \
    _mm512_permutex2var_ps(a, _mm512_setr_epi32(8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31), b)
#include "rows.h"
#undef NAME
#undef WIDE
#undef LEAST
#undef MOST
#undef SPREAD
#undef LOWS
#undef HIGHS
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif

static const variant variants[] = {
    VARIANT(plain, "plain"),
#ifdef WIDE_VARIANTS
    VARIANT(avx2, "avx2"),
    VARIANT(avx512, "avx512"),
#endif
};

/* How many of the variants, counted from the first, this processor supports. */
static int64_t count_variants(void) {
#ifdef WIDE_VARIANTS
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return 1;
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
                   __builtin_cpu_supports("avx512vl")
               ? 3
               : 2;
#else
    return 1;
#endif
}

/* The name of variant number i, or NULL past the last supported one. */
const char *manyhot_variant(int64_t i) { return i >= 0 && i < count_variants() ? variants[i].name : NULL; }

typedef struct {
    const job *j;
    const variant *v;
    int64_t phase, items, tile, parts; /* phase 0: whole rows; 1 and 2: parts of rows before and after the merge */
    stats *stats, *other_stats;
    rowstate *rows, *other_rows;
    const linear_plan *linear; /* the items are slabs of a linear head instead */
    _Atomic int64_t next, failed;
} work;

static void do_part(work *w, int64_t item, worker *me) {
    int64_t r = item / w->parts, c = item % w->parts * PART, chunks = chunk_count(w->j);
    int64_t n = chunks - c < PART ? chunks - c : PART;
    stats *st = w->stats + r * chunks, *other = w->other_stats + r * chunks;
    if (w->phase == 1) w->v->part_before(w->j, r, c, n, st, other, me);
    else w->v->part_after(w->j, r, c, n, st, other, w->rows + r / TILE, w->other_rows + r / TILE, r % TILE, me);
}

static void take_slabs(work *w);

/* The loop of every thread: take work items until none is left. */
static void take_items(work *w) {
    const job *j = w->j;
    if (w->linear) {
        take_slabs(w);
        return;
    }
    int64_t at = atomic_fetch_add(&w->next, 1);
    if (at >= w->items) return;
    int keeps = w->phase == 0 && (j->task == FUSED || j->task == RDROP) && j->x_kind != F32 && j->num_labels <= STASH;
    size_t kept = keeps ? (size_t)(w->tile * j->num_labels) : 0, number = j->task == RDROP ? 2 : 1;
    size_t states = w->phase == 0 ? (size_t)(w->tile * chunk_count(j)) : 0;
    worker *me = malloc(sizeof(worker) + number * (states * sizeof(stats) + kept * sizeof(float)));
    if (!me) {
        atomic_store(&w->failed, 1);
        return;
    }
    me->stats = (stats *)(me + 1), me->other_stats = me->stats + states;
    me->stash = kept ? (float *)(me->stats + number * states) : NULL;
    me->other_stash = kept ? me->stash + kept : NULL;
    for (; at < w->items; at = atomic_fetch_add(&w->next, 1)) {
        if (w->phase) do_part(w, at, me);
        else w->v->tile(j, at * w->tile, j->num_rows - at * w->tile < w->tile ? j->num_rows - at * w->tile : w->tile, me);
    }
    free(me);
}

#include "pool.h"

/* Merge the chunks of each row, between the two phases. */
static void settle_rows(work *w) {
    const job *j = w->j;
    job two = second(j);
    int64_t chunks = chunk_count(j);
    for (int64_t r = 0; r < j->num_rows; r++) {
        double total = 0.0;
        for (int64_t c = 0; c < chunks && is_alone(j); c++) total += w->stats[r * chunks + c].sp;
        if (is_alone(j)) j->values[r] = (float)total;
        else if (j->task != GRADIENT) w->v->merge(w->stats + r * chunks, chunks, w->rows + r / TILE, r % TILE);
        if (j->task == RDROP) w->v->merge(w->other_stats + r * chunks, chunks, w->other_rows + r / TILE, r % TILE);
    }
    for (int64_t r = 0; r < j->num_rows && !is_alone(j); r += TILE) {
        int64_t n = j->num_rows - r < TILE ? j->num_rows - r : TILE;
        w->v->finish(j, r, n, w->rows + r / TILE);
        if (j->task == RDROP) {
            w->v->finish(&two, r, n, w->other_rows + r / TILE);
            pair_values(j, r, n, w->stats + r * chunks, w->rows + r / TILE, w->other_rows + r / TILE);
        }
    }
}

/* For few long rows: distribute their chunks over the threads, once before and once after the merge. */
static int run_parts(work *w, int64_t threads) {
    const job *j = w->j;
    int64_t chunks = chunk_count(j), tiles = (j->num_rows + TILE - 1) / TILE, number = j->task == RDROP ? 2 : 1;
    w->parts = (chunks + PART - 1) / PART;
    w->stats = malloc((size_t)(number * j->num_rows * chunks) * sizeof(stats));
    w->rows = malloc((size_t)(number * tiles) * sizeof(rowstate));
    if (w->stats && w->rows) {
        w->other_stats = w->stats + (number - 1) * j->num_rows * chunks, w->other_rows = w->rows + (number - 1) * tiles;
        w->phase = 1;
        if (j->task != GRADIENT) spread(w, j->num_rows * w->parts, threads);
        if (!atomic_load(&w->failed)) settle_rows(w);
        w->phase = 2;
        if (!is_alone(j) && j->task != SIDES) spread(w, j->num_rows * w->parts, threads);
    } else atomic_store(&w->failed, 1);
    free(w->stats), free(w->rows);
    return (int)atomic_load(&w->failed);
}

/* A large gradient is nearly always newly allocated, and faulting it in page by page takes longer than computing it, so request
 * huge pages. All of it is written, so none are wasted. */
static void want_large_pages(const job *j, void *grad) {
#ifdef MADV_HUGEPAGE
    uintptr_t size = (uintptr_t)(j->num_rows * j->num_labels * kind_size[j->x_kind]);
    uintptr_t first = (uintptr_t)grad & ~(uintptr_t)4095;
    if (grad && size >= MUCH) madvise((void *)first, ((uintptr_t)grad + size - first) & ~(uintptr_t)4095, MADV_HUGEPAGE);
#endif
}

/* Returns 0, or 1 if memory ran out. */
int manyhot_run(const job *j) {
    int64_t size = j->num_rows * j->num_labels, threads = j->threads < MOST_THREADS ? j->threads : MOST_THREADS;
    if (size / 16384 + 1 < threads) threads = size / 16384 + 1; /* smaller shares finish before a thread wakes up */
    want_large_pages(j, j->grad), want_large_pages(j, j->other_grad);
    work w = {.j = j, .v = &variants[j->variant]};
    if (threads > 1 && j->num_rows < 4 * threads && chunk_count(j) > PART) return run_parts(&w, threads);
    int64_t fit = j->num_labels ? (j->task == RDROP || j->num_labels % LANES ? CHUNK : 4 * CHUNK) / j->num_labels : TILE;
    w.tile = fit < 1 ? 1 : fit > TILE ? TILE : fit;
    spread(&w, (j->num_rows + w.tile - 1) / w.tile, threads);
    return (int)atomic_load(&w.failed);
}

/* Lets library.py detect a library of another version. */
int64_t manyhot_job_size(void) { return (int64_t)sizeof(job); }

// A digest of the source files of this build.
#ifndef MANYHOT_SOURCES
#define MANYHOT_SOURCES ""
#endif
const char *manyhot_sources(void) { return MANYHOT_SOURCES; }

#include "linear_run.h"
#include "lstm_run.h"
#include "tree.h"
#include "tree_search.h"
#include "words.h"
#include "word_pairs.h"
#include "lines.h"
