/* A linear head tile by tile: scores, then sums or gradients while they are in cache. Included by rows.h. */

#include "linear_products.h"

/* Add the sums of other labels of the same row. */
static void NAME(merge_stats)(stats *to, const stats *more) {
    if (more->sp != 0.0) {
        if (to->sp == 0.0) to->mp = more->mp, to->sp = more->sp;
        else {
            float m = to->mp > more->mp ? to->mp : more->mp;
            to->sp = (to->mp == m ? to->sp : to->sp * NAME(vexp)(to->mp - m)) +
                     (more->mp == m ? more->sp : more->sp * NAME(vexp)(more->mp - m));
            to->mp = m;
        }
    }
    if (more->sn != 0.0) {
        if (to->sn == 0.0) to->mn = more->mn, to->sn = more->sn;
        else {
            float m = to->mn > more->mn ? to->mn : more->mn;
            to->sn = (to->mn == m ? to->sn : to->sn * NAME(vexp)(to->mn - m)) +
                     (more->mn == m ? more->sn : more->sn * NAME(vexp)(more->mn - m));
            to->mn = m;
        }
    }
}

/* The job of one tile: its scores are at x. */
INLINE job NAME(tile_job)(const linear_plan *p, int64_t start, int64_t n, const float *x, int64_t stride) {
    job own = *p->j;
    own.num_labels = n, own.first = start, own.x = x, own.x_stride = stride;
    if (own.labels) own.labels = (const char *)own.labels + start * kind_size[own.label_kind];
    if (own.where) own.where += start;
    if (own.pos_weight) own.pos_weight += start;
    if (own.neg_weight) own.neg_weight += start;
    return own;
}

/* The sums of a tile, added to st [rows]; kept gets its scores if it is not NULL. */
static void NAME(tile_sums)(const linear_plan *p, int64_t start, int64_t n, float *kept, int64_t kept_stride, stats *st,
                            linear_room *room) {
    const linear_head *h = p->h;
    NAME(linear_scores)(p, h->weight + start * h->stride, h->bias ? h->bias + start : NULL, n, room->scores);
    job own = NAME(tile_job)(p, start, n, room->scores, p->stride);
    for (int64_t r = 0; r < own.num_rows; r++) {
        stats more;
        NAME(chunk_stats)(&own, r, 0, NULL, &more, &room->scratch);
        NAME(merge_stats)(st + r, &more);
        if (kept) memcpy(kept + r * kept_stride, room->scores + r * p->stride, (size_t)n * 4);
    }
}

/* by_bias [n] = the sum of grad [rows, n] over the rows. */
static void NAME(sum_rows)(const linear_plan *p, const float *grad, int64_t n, float *restrict by_bias) {
    memset(by_bias, 0, (size_t)n * 4);
    for (int64_t r = 0; r < p->j->num_rows; r++) {
        const float *own = grad + r * p->stride;
#pragma omp simd
        for (int64_t i = 0; i < n; i++) by_bias[i] += own[i];
    }
}

/* Rows of `size` numbers in rows of `padded`, with zeros. */
INLINE void NAME(pad_rows)(const float *from, int64_t stride, int64_t rows, int64_t size, float *to, int64_t padded) {
    for (int64_t r = 0; r < rows; r++) {
        memcpy(to + r * padded, from + r * stride, (size_t)size * 4);
        memset(to + r * padded + size, 0, (size_t)(padded - size) * 4);
    }
}

/* The gradients of a tile, whose scores are at kept if it is not NULL; that of hidden is added to by_hidden. */
static void NAME(tile_gradient)(const linear_plan *p, int64_t start, int64_t n, const float *kept, int64_t kept_stride,
                                float *by_hidden, linear_room *room) {
    const linear_head *h = p->h;
    const float *weight = h->weight + start * h->stride;
    int64_t stride = h->stride, whole = p->padded == h->size;
    float *grad = room->scores;
    if (!kept) NAME(linear_scores)(p, weight, h->bias ? h->bias + start : NULL, n, grad);
    job own = NAME(tile_job)(p, start, n, kept ? kept : grad, kept ? kept_stride : p->stride);
    for (int64_t r = 0; r < own.num_rows; r++) {
        NAME(grad_again)(&own, r, 0, p->rows + r / TILE, r % TILE, &room->scratch, room->scratch.out);
        memcpy(grad + r * p->stride, room->scratch.out, (size_t)n * 4);
    }
    if (h->by_hidden) {
        if (!whole) NAME(pad_rows)(weight, stride, n, h->size, room->weight, p->padded);
        NAME(linear_by_hidden)(p, grad, whole ? weight : room->weight, whole ? stride : p->padded, n, by_hidden);
    }
    if (h->by_weight) {
        float *to = h->by_weight + start * h->size;
        NAME(linear_by_weight)(p, grad, n, whole ? to : room->by_weight, p->padded);
        for (int64_t l = 0; l < n && !whole; l++)
            memcpy(to + l * h->size, room->by_weight + l * p->padded, (size_t)h->size * 4);
    }
    if (h->by_bias) NAME(sum_rows)(p, grad, n, h->by_bias + start);
}

/* All tiles of a slab, in order. */
static void NAME(linear_slab)(const linear_plan *p, int64_t slab, linear_room *room) {
    const linear_head *h = p->h;
    int64_t rows = p->j->num_rows, labels = p->j->num_labels;
    float *by_hidden = p->parts + slab * rows * p->padded;
    stats *st = p->stats + slab * rows;
    if (p->j->task == SIDES) memset(st, 0, (size_t)rows * sizeof(stats));
    else if (h->by_hidden) memset(by_hidden, 0, (size_t)(rows * p->padded) * 4);
    for (int64_t t = slab * p->tiles / p->slabs; t < (slab + 1) * p->tiles / p->slabs; t++) {
        int64_t chunk = t / p->in_chunk, begin = chunk * h->chunk, end = labels - begin < h->chunk ? labels : begin + h->chunk;
        int64_t start = begin + t % p->in_chunk * p->tile, n = end - start < p->tile ? end - start : p->tile;
        float *kept = chunk < h->kept ? h->scores[chunk] + (start - begin) : NULL;
        if (p->j->task == SIDES) NAME(tile_sums)(p, start, n, kept, end - begin, st, room);
        else NAME(tile_gradient)(p, start, n, kept, end - begin, by_hidden, room);
    }
}
