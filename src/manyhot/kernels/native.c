/* The native CPU engine of manyhot: the two sides of a row, their gradient, and whole losses in one pass.
 *
 * A row is cut into chunks of CHUNK labels. Each chunk gives a maximum and a sum for either side, all chunks are merged in
 * order, and the gradient is written while the row is in cache. Nothing depends on how chunks are spread over threads, so
 * results are the same bit by bit for every number of threads. manyhot.kernels.terms says what is computed; native_rows.h
 * holds the arithmetic and is compiled once for each instruction set; this file holds types, threads and the choice among
 * them. There is one entry, manyhot_run, and no dependence on torch or Python. */

#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define CHUNK 2048
#define LANES 16
#define TILE 64          /* most rows that are finished together */
#define MOST_THREADS 256
#define PART 4           /* chunks that are handed out together when rows are split */
#define STASH (PART * CHUNK) /* most labels of 16-bit rows whose exponentials are kept; longer ones compute them again */
#define LARGEST 3.402823466e+38f

enum { F32, BF16, F16, F64, U8, I32, I64, SPARSE };
enum { SIDES, GRADIENT, FUSED, LABELWISE };
enum { SPLIT, JOINT, BCE, FOCUSED };

static const int64_t kind_size[] = {4, 2, 2, 8, 1, 4, 8, 0};

/* The same fields in the same order as _Job in native.py. */
typedef struct {
    int64_t num_rows, num_labels, num_listed, threads, variant;
    int64_t task, form, x_kind, label_kind, x_stride, label_stride, where_stride;
    const void *x, *labels;
    const int64_t *indices, *offsets;
    const float *listed_values;
    const uint8_t *where;
    const float *pos_weight, *neg_weight;
    float pos_scale, neg_scale, smoothing, offset, scale, gamma_pos, gamma_neg, margin;
    const float *row_offsets, *row_scales, *grad_pos, *grad_neg;
    float *pos_shift, *pos_rest, *neg_shift, *neg_rest, *values, *offset_grad;
    void *grad;
} job;

typedef struct {
    float mp, mn;  /* a shift for positives and negatives: their maximum, or 0 */
    double sp, sn; /* the sums of e^{u - shift} */
    int32_t stashed, any;  /* the terms are in the stash; there are positives (hard labels) */
} stats;

typedef struct {
    float tp[TILE], tn[TILE], sp[TILE], sn[TILE]; /* maxima and sums of the two sides */
    float mp[TILE], mn[TILE], rp[TILE], rn[TILE]; /* their logs as shift and rest */
    float gp[TILE], gn[TILE], offset[TILE], scale[TILE];
} rowstate;

typedef struct {
    const float *s; /* the scores: x, or where they lie */
    int32_t hard;   /* the labels are side, not wp and wn */
    float x[CHUNK], wp[CHUNK], wn[CHUNK], out[CHUNK];
    uint32_t side[CHUNK];
} scratch;

typedef struct {
    scratch scratch;
    rowstate rows;
    float *stash;
    stats *stats;
} worker;

static inline uint32_t bits_of(float x) {
    uint32_t b;
    memcpy(&b, &x, 4);
    return b;
}

static inline float from_bits(uint32_t b) {
    float x;
    memcpy(&x, &b, 4);
    return x;
}

static inline float from_half(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16, rest = h & 0x7fffu, exponent = rest >> 10;
    uint32_t normal = (rest << 13) + (exponent == 31 ? 0x70000000u : 0x38000000u);
    uint32_t small = bits_of((float)(int32_t)rest * 5.9604644775390625e-8f);
    return from_bits(sign | (exponent == 0 ? small : normal));
}

static inline uint16_t to_half(float x) {
    uint32_t b = bits_of(x), sign = b >> 16 & 0x8000u, rest = b & 0x7fffffffu;
    uint32_t normal = (rest + 0xfffu + (rest >> 13 & 1u) - 0x38000000u) >> 13;
    uint32_t small = bits_of(from_bits(rest) + 0.5f) - 0x3f000000u; /* the addition rounds at the last bit of a subnormal */
    uint32_t large = rest > 0x7f800000u ? 0x7e00u : 0x7c00u;
    return (uint16_t)(sign | (rest >= 0x477ff000u ? large : rest < 0x38800000u ? small : normal));
}

static inline uint16_t to_bfloat(float x) {
    uint32_t b = bits_of(x), rounded = (b + 0x7fffu + (b >> 16 & 1u)) >> 16;
    return (uint16_t)((b & 0x7fffffffu) > 0x7f800000u ? (b >> 16 | 0x40u) : rounded);
}

/* Whether hard labels are all there is to a term. A labelwise loss can put a number for each side on top itself. */
static inline int is_plain(const job *j) {
    return !j->pos_weight && !j->neg_weight && j->smoothing == 0.0f &&
           (j->task == LABELWISE || (j->pos_scale == 1.0f && j->neg_scale == 1.0f));
}

static inline int64_t chunk_count(const job *j) { return (j->num_labels + CHUNK - 1) / CHUNK; }

/* The listed entries of a row that lie in [start, stop): the first one; *end is one past the last. Lists that break the
 * rules give wrong entries, but none outside the memory. */
static int64_t first_listed(const job *j, int64_t r, int64_t start, int64_t stop, int64_t *end) {
    int64_t bounds[2] = {start, stop}, found[2];
    for (int side = 0; side < 2; side++) {
        int64_t low = j->offsets[r] < 0 ? 0 : j->offsets[r], high = j->offsets[r + 1];
        if (high > j->num_listed) high = j->num_listed;
        while (low < high) {
            int64_t middle = low + (high - low) / 2;
            if (j->indices[middle] < bounds[side]) low = middle + 1;
            else high = middle;
        }
        found[side] = low;
    }
    *end = found[1];
    return found[0];
}

typedef struct {
    void (*tile)(const job *, int64_t, int64_t, worker *);
    void (*part_before)(const job *, int64_t, int64_t, int64_t, stats *, worker *);
    void (*merge)(const stats *, int64_t, rowstate *, int64_t);
    void (*finish)(const job *, int64_t, int64_t, rowstate *);
    void (*part_after)(const job *, int64_t, int64_t, int64_t, const stats *, const rowstate *, int64_t, worker *);
    const char *name;
} variant;

#define VARIANT(suffix, name) {tile_##suffix, part_before_##suffix, merge_##suffix, finish_##suffix, part_after_##suffix, name}

/* BLOCK entries are summed in float, the sums of blocks in double: wider vectors add fewer terms to each of their sums. */
#define BLOCK 256
#define NAME(f) f##_plain
#include "native_rows.h"
#undef NAME
#undef BLOCK
#define BLOCK 512

#if defined(__x86_64__) && !defined(MANYHOT_PLAIN)
#define WIDE_VARIANTS
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma")
#endif
#define NAME(f) f##_avx2
#include "native_rows.h"
#undef NAME
#if defined(__clang__)
#pragma clang attribute pop
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma"))), apply_to = function)
#else
#pragma GCC pop_options
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,prefer-vector-width=512")
#endif
#define NAME(f) f##_avx512
#include "native_rows.h"
#undef NAME
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

/* How many of the variants, from the first, this processor can run. */
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

/* The name of variant number i, or NULL past the last that runs here. */
const char *manyhot_variant(int64_t i) { return i >= 0 && i < count_variants() ? variants[i].name : NULL; }

typedef struct {
    const job *j;
    const variant *v;
    int64_t phase, items, tile, parts; /* phase 0: whole rows; 1 and 2: parts of rows before and after the merge */
    stats *stats;
    rowstate *rows;
    _Atomic int64_t next, failed;
} work;

static void do_part(work *w, int64_t item, worker *me) {
    int64_t r = item / w->parts, c = item % w->parts * PART, chunks = chunk_count(w->j);
    int64_t n = chunks - c < PART ? chunks - c : PART;
    stats *st = w->stats + r * chunks;
    if (w->phase == 1) w->v->part_before(w->j, r, c, n, st, me);
    else w->v->part_after(w->j, r, c, n, st, w->rows + r / TILE, r % TILE, me);
}

/* What every thread does: take items until none is left. */
static void take_items(work *w) {
    const job *j = w->j;
    int64_t at = atomic_fetch_add(&w->next, 1);
    if (at >= w->items) return;
    size_t kept = w->phase == 0 && j->task == FUSED && j->x_kind != F32 && j->num_labels <= STASH ? (size_t)(w->tile * j->num_labels) : 0;
    size_t states = w->phase == 0 ? (size_t)(w->tile * chunk_count(j)) : 0;
    worker *me = malloc(sizeof(worker) + states * sizeof(stats) + kept * sizeof(float));
    if (!me) {
        atomic_store(&w->failed, 1);
        return;
    }
    me->stats = (stats *)(me + 1);
    me->stash = kept ? (float *)(me->stats + states) : NULL;
    for (; at < w->items; at = atomic_fetch_add(&w->next, 1)) {
        if (w->phase) do_part(w, at, me);
        else w->v->tile(j, at * w->tile, j->num_rows - at * w->tile < w->tile ? j->num_rows - at * w->tile : w->tile, me);
    }
    free(me);
}

/* A pool that sleeps between calls. One call uses it at a time; a second one, from another thread, works alone. */
static struct {
    pthread_mutex_t owner, lock;
    pthread_cond_t start, done;
    int64_t size, wanted, busy, round;
    work *work;
} pool = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, PTHREAD_COND_INITIALIZER, 0, 0, 0, 0, NULL};

static void *pool_thread(void *number) {
    int64_t me = (int64_t)(intptr_t)number, seen = 0;
    pthread_mutex_lock(&pool.lock);
    for (;;) {
        while (pool.round == seen || me >= pool.wanted) {
            seen = pool.round;
            pthread_cond_wait(&pool.start, &pool.lock);
        }
        seen = pool.round;
        work *w = pool.work;
        pthread_mutex_unlock(&pool.lock);
        take_items(w);
        pthread_mutex_lock(&pool.lock);
        if (--pool.busy == 0) pthread_cond_signal(&pool.done);
    }
    return NULL;
}

/* Threads do not survive fork, and a lock may have been held: the child starts with an empty pool. */
static void forget_pool(void) {
    pthread_mutex_init(&pool.owner, NULL), pthread_mutex_init(&pool.lock, NULL);
    pthread_cond_init(&pool.start, NULL), pthread_cond_init(&pool.done, NULL);
    pool.size = pool.wanted = pool.busy = pool.round = 0;
}

static void watch_fork(void) { pthread_atfork(NULL, NULL, forget_pool); }

static void grow_pool(int64_t size) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* signals stay with the threads of Python */
    pthread_attr_t detached;
    pthread_attr_init(&detached);
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    pthread_t thread;
    while (pool.size < size && !pthread_create(&thread, &detached, pool_thread, (void *)(intptr_t)pool.size)) pool.size++;
    pthread_attr_destroy(&detached);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static void spread(work *w, int64_t items, int64_t threads) {
    w->items = items;
    atomic_store(&w->next, 0);
    int64_t others = (threads < items ? threads : items) - 1;
    if (others <= 0 || pthread_mutex_trylock(&pool.owner)) {
        take_items(w);
        return;
    }
    static pthread_once_t watched = PTHREAD_ONCE_INIT;
    pthread_once(&watched, watch_fork);
    grow_pool(others);
    pthread_mutex_lock(&pool.lock);
    pool.work = w;
    pool.wanted = pool.busy = others < pool.size ? others : pool.size;
    pool.round++;
    pthread_cond_broadcast(&pool.start);
    pthread_mutex_unlock(&pool.lock);
    take_items(w);
    pthread_mutex_lock(&pool.lock);
    while (pool.busy) pthread_cond_wait(&pool.done, &pool.lock);
    pool.wanted = 0;
    pthread_mutex_unlock(&pool.lock);
    pthread_mutex_unlock(&pool.owner);
}

/* Few long rows: their chunks are spread over the threads, once before and once after the merge. */
static int run_parts(work *w, int64_t threads) {
    const job *j = w->j;
    int64_t chunks = chunk_count(j);
    w->parts = (chunks + PART - 1) / PART;
    w->stats = malloc((size_t)(j->num_rows * chunks) * sizeof(stats));
    w->rows = malloc((size_t)((j->num_rows + TILE - 1) / TILE) * sizeof(rowstate));
    if (w->stats && w->rows) {
        w->phase = 1;
        if (j->task != GRADIENT) spread(w, j->num_rows * w->parts, threads);
        for (int64_t r = 0; r < j->num_rows; r++) {
            const stats *st = w->stats + r * chunks;
            double total = 0.0;
            for (int64_t c = 0; c < chunks && j->task == LABELWISE; c++) total += st[c].sp;
            if (j->task == LABELWISE) j->values[r] = (float)total;
            else if (j->task != GRADIENT) w->v->merge(st, chunks, w->rows + r / TILE, r % TILE);
        }
        for (int64_t r = 0; r < j->num_rows && j->task != LABELWISE; r += TILE)
            w->v->finish(j, r, j->num_rows - r < TILE ? j->num_rows - r : TILE, w->rows + r / TILE);
        w->phase = 2;
        if (j->task == GRADIENT || j->task == FUSED) spread(w, j->num_rows * w->parts, threads);
    } else atomic_store(&w->failed, 1);
    free(w->stats), free(w->rows);
    return (int)atomic_load(&w->failed);
}

/* 0, or 1 where memory ran out. */
int manyhot_run(const job *j) {
    int64_t size = j->num_rows * j->num_labels, threads = j->threads < MOST_THREADS ? j->threads : MOST_THREADS;
    if (size / 16384 + 1 < threads) threads = size / 16384 + 1; /* less than that is done before a thread wakes up */
    work w = {.j = j, .v = &variants[j->variant]};
    if (threads > 1 && j->num_rows < 4 * threads && chunk_count(j) > PART) return run_parts(&w, threads);
    int64_t fit = j->num_labels ? CHUNK / j->num_labels : TILE;
    w.tile = fit < 1 ? 1 : fit > TILE ? TILE : fit;
    spread(&w, (j->num_rows + w.tile - 1) / w.tile, threads);
    return (int)atomic_load(&w.failed);
}

/* So that native.py can tell a library of another version. */
int64_t manyhot_job_size(void) { return (int64_t)sizeof(job); }
