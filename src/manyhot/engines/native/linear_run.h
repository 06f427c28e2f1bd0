/* Linear heads: scores hidden weight^T + bias, their sums and gradients, without all scores in memory. Included by engine.c. */

/* The loop of every thread: take slabs until none is left. */
static void take_slabs(work *w) {
    const linear_plan *p = w->linear;
    int64_t at = atomic_fetch_add(&w->next, 1), whole = p->padded == p->h->size;
    if (at >= w->items) return;
    size_t scores = (size_t)(p->j->num_rows * p->stride), weights = whole ? 0 : (size_t)(p->tile * p->padded);
    linear_room *room = NULL;
    if (posix_memalign((void **)&room, 64, sizeof(linear_room) + 64 + (scores + 2 * weights) * 4)) {
        atomic_store(&w->failed, 1);
        return;
    }
    room->scores = (float *)(((uintptr_t)(room + 1) + 63) & ~(uintptr_t)63);
    room->weight = room->scores + scores, room->by_weight = room->weight + weights;
    for (; at < w->items; at = atomic_fetch_add(&w->next, 1)) w->v->linear_slab(p, at, room);
    free(room);
}

static int64_t at_most(int64_t x, int64_t most) { return x < most ? x : most; }

static int64_t at_least(int64_t x, int64_t least) { return x > least ? x : least; }

static int64_t whole_lanes(int64_t n) { return (n + LANES - 1) / LANES * LANES; }

static void divide_labels(linear_plan *p) {
    int64_t rows = p->j->num_rows, labels = p->j->num_labels, chunk = at_most(p->h->chunk, labels);
    int64_t wide = at_most(TILE_NUMBERS / at_least(rows, 1), TILE_NUMBERS / at_least(p->h->size, 1));
    wide = at_most(at_most(wide, labels / LEAST_SLABS), TILE_LABELS);
    p->tile = at_most(whole_lanes(at_least(wide, 64)), chunk);
    p->in_chunk = (chunk + p->tile - 1) / p->tile;
    p->tiles = labels / chunk * p->in_chunk + (labels % chunk + p->tile - 1) / p->tile;
    p->slabs = at_most(at_most(at_least(labels / (16 * at_least(p->h->size, 1)), LEAST_SLABS), MOST_SLABS), p->tiles);
    p->padded = whole_lanes(p->h->size);
    p->stride = whole_lanes(p->tile) + LANES; /* not a power of two: rows fall into different sets of the cache */
}

/* Hidden in panels of PANEL columns, and transposed in panels of PANEL rows. Returns 1 if memory ran out. */
static int lay_out_hidden(linear_plan *p) {
    int64_t rows = p->j->num_rows, size = p->h->size;
    size_t across = (size_t)((rows + PANEL - 1) / PANEL * PANEL * size), along = (size_t)((size + PANEL - 1) / PANEL * PANEL * rows);
    if (posix_memalign((void **)&p->across, 64, (across + along) * 4)) return 1;
    p->hidden = p->across + across;
    memset(p->across, 0, (across + along) * 4);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t d = 0; d < size; d++) {
            float x = p->h->hidden[r * size + d];
            p->across[(r / PANEL * size + d) * PANEL + r % PANEL] = x;
            p->hidden[(d / PANEL * rows + r) * PANEL + d % PANEL] = x;
        }
    return 0;
}

/* The sums of all slabs, in order. */
static void join_sums(const linear_plan *p, const variant *v) {
    int64_t rows = p->j->num_rows;
    for (int64_t r = 0; r < rows; r++) {
        stats st = p->stats[r];
        for (int64_t s = 1; s < p->slabs; s++) v->merge_stats(&st, p->stats + s * rows + r);
        v->merge(&st, 1, p->rows, r % TILE);
        if (r % TILE == TILE - 1 || r == rows - 1) v->finish(p->j, r / TILE * TILE, r % TILE + 1, p->rows);
    }
}

static void join_by_hidden(const linear_plan *p) {
    int64_t rows = p->j->num_rows, size = p->h->size;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t s = 0; s < p->slabs; s++) {
            const float *part = p->parts + (s * rows + r) * p->padded;
            float *to = p->h->by_hidden + r * size;
            for (int64_t d = 0; d < size; d++) to[d] = s ? to[d] + part[d] : part[d];
        }
}

/* The sums (SIDES) or the gradients (GRADIENT) of a head with the terms of j. Returns 0, or 1 if memory ran out. */
int manyhot_linear(const job *j, const linear_head *h) {
    linear_plan p = {.j = j, .h = h};
    const variant *v = &variants[j->variant];
    int64_t rows = j->num_rows, tiles = (rows + TILE - 1) / TILE;
    divide_labels(&p);
    int failed = lay_out_hidden(&p) || !(p.rows = malloc((size_t)(j->task == SIDES ? 1 : tiles) * sizeof(rowstate)));
    if (j->task == SIDES) failed = failed || !(p.stats = malloc((size_t)(p.slabs * rows) * sizeof(stats)));
    else if (h->by_hidden) failed = failed || !(p.parts = malloc((size_t)(p.slabs * rows * p.padded) * 4));
    if (!failed) {
        work w = {.j = j, .v = v, .linear = &p};
        for (int64_t t = 0; t < tiles && j->task == GRADIENT; t++)
            v->finish(j, t * TILE, at_most(rows - t * TILE, TILE), p.rows + t);
        spread(&w, p.slabs, at_most(at_most(j->threads, MOST_THREADS), rows * j->num_labels * h->size / SHARE + 1));
        failed = (int)atomic_load(&w.failed);
        if (!failed && j->task == SIDES) join_sums(&p, v);
        if (!failed && j->task == GRADIENT && h->by_hidden) join_by_hidden(&p);
    }
    free(p.across), free(p.rows), free(p.stats), free(p.parts);
    return failed;
}

/* Lets linear_head.py detect a library of another version. */
int64_t manyhot_linear_size(void) { return (int64_t)sizeof(linear_head); }
