/* The arithmetic of the native engine. engine.c includes this file once for each instruction set; NAME(f) is the name of f in
 * that copy. Loops are plain C that gcc and clang vectorise, or use the vectors of vector.h if that was not fast enough.
 * Selects are explicit, so that infinite and NaN scores are handled correctly, and none of the unsafe -ffast-math flags is
 * used. Loaders pad to a multiple of LANES. */

#include "exponentials.h"
#include "load.h"
#include "hard.h"
#include "soft.h"
#include "tree_node.h"

static void NAME(chunk_stats)(const job *j, int64_t r, int64_t c, float *stash, stats *st, scratch *k) {
    int64_t n = NAME(load)(j, r, c, 1, k), padded = (n + LANES - 1) / LANES * LANES;
    float *terms = stash && padded == n ? stash : k->out;
    if (k->hard) NAME(hard_stats)(k->s, k->y, padded, terms, st);
    else NAME(soft_stats)(k->s, k->wp, k->wn, padded, terms, st);
    st->stashed = stash != NULL;
    if (stash && terms != stash) memcpy(stash, terms, (size_t)n * 4);
}

/* Merges the chunks of a row in order and in double, so that the result does not depend on the number of threads. */
static void NAME(merge)(const stats *st, int64_t chunks, rowstate *row, int64_t at) {
    float mp = -LARGEST, mn = -LARGEST;
    for (int64_t c = 0; c < chunks; c++) {
        mp = st[c].mp > mp ? st[c].mp : mp;
        mn = st[c].mn > mn ? st[c].mn : mn;
    }
    double sp = 0.0, sn = 0.0;
    for (int64_t c = 0; c < chunks; c++) {
        sp += st[c].mp == mp ? st[c].sp : st[c].sp * NAME(vexp)(st[c].mp - mp);
        sn += st[c].mn == mn ? st[c].sn : st[c].sn * NAME(vexp)(st[c].mn - mn);
    }
    row->mp[at] = row->tp[at] = mp, row->mn[at] = row->tn[at] = mn, row->sp[at] = (float)sp, row->sn[at] = (float)sn;
}

/* Totals, values and the gradients by both sides for rows r to r + n of the job. A total is shift + rest, as in LogSum: the
 * shift is finite; the rest is -inf for an empty side and +inf for an infinite one. */
static void NAME(finish)(const job *j, int64_t r, int64_t n, rowstate *w) {
    size_t bytes = (size_t)n * 4;
    if (j->task == GRADIENT) {
        memcpy(w->mp, j->pos_shift + r, bytes), memcpy(w->rp, j->pos_rest + r, bytes);
        memcpy(w->mn, j->neg_shift + r, bytes), memcpy(w->rn, j->neg_rest + r, bytes);
        memcpy(w->gp, j->grad_pos + r, bytes), memcpy(w->gn, j->grad_neg + r, bytes);
        return;
    }
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float mp = w->mp[i], mn = w->mn[i], wp, wn, rp = NAME(vlog_rest)(w->sp[i], &wp), rn = NAME(vlog_rest)(w->sn[i], &wn);
        w->rp[i] = mp == INFINITY ? mp + rp : mp == 0.0f ? rp : wp + rp; /* without a shift, the log provides one */
        w->rn[i] = mn == INFINITY ? mn + rn : mn == 0.0f ? rn : wn + rn;
        w->mp[i] = mp == 0.0f ? wp : mp == INFINITY || w->sp[i] == 0.0f ? 0.0f : mp;
        w->mn[i] = mn == 0.0f ? wn : mn == INFINITY || w->sn[i] == 0.0f ? 0.0f : mn;
    }
    if (j->task == SIDES) {
        memcpy(j->pos_shift + r, w->mp, bytes), memcpy(j->pos_rest + r, w->rp, bytes);
        memcpy(j->neg_shift + r, w->mn, bytes), memcpy(j->neg_rest + r, w->rn, bytes);
        return;
    }
    float share = j->task == RDROP ? 0.5f : 1.0f;
    for (int64_t i = 0; i < n; i++) {
        w->offset[i] = j->row_offsets ? j->row_offsets[r + i] : j->offset;
        w->scale[i] = (j->row_scales ? j->row_scales[r + i] : j->scale) * share;
    }
    if (j->form == SPLIT) {
#pragma omp simd
        for (int64_t i = 0; i < n; i++) {
            float p = (w->mp[i] + w->offset[i]) + w->rp[i], q = (w->mn[i] - w->offset[i]) + w->rn[i];
            float dp = NAME(sigmoid)(p), dq = NAME(sigmoid)(q);
            w->value[i] = NAME(softplus)(p) + NAME(softplus)(q);
            w->slope[i] = dp - dq;
            w->gp[i] = w->scale[i] * dp;
            w->gn[i] = w->scale[i] * dq;
        }
    } else {
#pragma omp simd
        for (int64_t i = 0; i < n; i++) {
            float both = (w->mp[i] + w->mn[i]) + (w->rp[i] + w->rn[i]); /* large shifts cancel without loss */
            both = w->rp[i] == -INFINITY || w->rn[i] == -INFINITY ? -INFINITY : both;
            float x = both + w->offset[i], d = NAME(sigmoid)(x);
            w->value[i] = NAME(softplus)(x);
            w->slope[i] = d;
            w->gp[i] = w->gn[i] = w->scale[i] * d;
        }
    }
    if (j->task == FUSED) memcpy(j->values + r, w->value, bytes);
    if (j->task == FUSED && j->offset_grad) memcpy(j->offset_grad + r, w->slope, bytes);
}

/* Whether sums and gradients of a row are finite, so that a stash can be scaled and one exp is enough for hard labels. */
INLINE int NAME(is_finite)(const rowstate *w, int64_t at) {
    return w->rp[at] < INFINITY && w->rn[at] < INFINITY && w->gp[at] < INFINITY && w->gn[at] < INFINITY;
}

/* The factors of a chunk's terms in the gradient. */
INLINE float NAME(pos_factor)(const stats *st, const rowstate *w, int64_t at) {
    return st->sp > 0.0 ? w->gp[at] / w->sp[at] * NAME(vexp)(st->mp - w->tp[at]) : 0.0f;
}

INLINE float NAME(neg_factor)(const stats *st, const rowstate *w, int64_t at) {
    return st->sn > 0.0 ? w->gn[at] / w->sn[at] * NAME(vexp)(st->mn - w->tn[at]) : 0.0f;
}

/* The gradient of one chunk computed from its scores; out has room for padding. */
static void NAME(grad_again)(const job *j, int64_t r, int64_t c, const rowstate *w, int64_t at, scratch *k, float *out) {
    int64_t n = NAME(load)(j, r, c, NAME(is_finite)(w, at), k), padded = (n + LANES - 1) / LANES * LANES;
    if (k->hard) NAME(hard_grad)(k->s, k->y, padded, w, at, out);
    else NAME(soft_grad)(k->s, k->wp, k->wn, padded, w, at, out);
}

/* The gradient of one chunk: its terms, kept or recomputed, times a factor for either side, if the row is finite. */
static void NAME(chunk_grad)(const job *j, int64_t r, int64_t c, const float *stash, const stats *st, const rowstate *w,
                             int64_t at, scratch *k) {
    int64_t start = c * CHUNK, n = j->num_labels - start < CHUNK ? j->num_labels - start : CHUNK;
    int64_t padded = (n + LANES - 1) / LANES * LANES;
    char *to = (char *)j->grad + (r * j->num_labels + start) * kind_size[j->x_kind];
    float *out = j->x_kind == F32 && padded == n ? (float *)to : k->out;
    if (st && st->kind && NAME(is_finite)(w, at)) {
        float p = NAME(pos_factor)(st, w, at), q = NAME(neg_factor)(st, w, at);
        stats again;
        if (!st->stashed) {
            NAME(load)(j, r, c, 1, k);
            if (st->kind == HARD) NAME(hard_sums)(k->s, k->y, padded, st->mp, st->mn, k->out, &again);
            else NAME(soft_sums)(k->s, k->wp, k->wn, padded, k->out, &again);
            stash = k->out;
        } else if (st->kind == SOFT) NAME(load_labels)(j, r, start, n, 0, k);
        if (st->kind == HARD) NAME(scale_stash)(stash, out, n, p, q);
        else NAME(scale_soft)(stash, k->wp, k->wn, out, n, p, q);
    } else NAME(grad_again)(j, r, c, w, at, k, out);
    if (out == k->out) NAME(narrow)(out, to, j->x_kind, n);
}

#include "labelwise.h"

#include "short.h"
#include "rdrop.h"
#include "pairs.h"

/* A chunk of a task that needs no sums first: returns its value and writes the gradient. */
static double NAME(chunk_alone)(const job *j, int64_t r, int64_t c, worker *me) {
    return j->task == LABELWISE ? NAME(chunk_labelwise)(j, r, c, &me->scratch) : NAME(chunk_divergence)(j, r, c, me);
}

/* Computes rows r to r + n, from their scores to their gradient, while they are in cache. */
static void NAME(tile)(const job *j, int64_t r, int64_t n, worker *me) {
    int64_t chunks = chunk_count(j), size = j->num_labels;
    scratch *k = &me->scratch;
    rowstate *w = &me->rows;
    for (int64_t i = r; i < r + n && is_alone(j); i++) {
        double total = 0.0;
        for (int64_t c = 0; c < chunks; c++) total += NAME(chunk_alone)(j, i, c, me);
        j->values[i] = (float)total;
    }
    if (is_alone(j)) return;
    if (j->task == RDROP) {
        NAME(pair_tile)(j, r, n, me);
        return;
    }
    if (NAME(short_rows)(j, r, n, me)) return;
    for (int64_t i = 0; i < n && j->task != GRADIENT; i++) {
        float *row = j->x_kind == F32 ? (float *)j->grad + (r + i) * size : me->stash ? me->stash + i * size : NULL;
        if (j->task == SIDES) row = NULL;
        stats *st = me->stats + i * chunks;
        for (int64_t c = 0; c < chunks; c++) NAME(chunk_stats)(j, r + i, c, row ? row + c * CHUNK : NULL, st + c, k);
        NAME(merge)(st, chunks, w, i);
    }
    NAME(finish)(j, r, n, w);
    for (int64_t i = 0; i < n && j->task != SIDES; i++) {
        const float *row = j->x_kind == F32 ? (const float *)j->grad + (r + i) * size : me->stash + i * size;
        const stats *st = j->task == FUSED ? me->stats + i * chunks : NULL;
        for (int64_t c = 0; c < chunks; c++)
            NAME(chunk_grad)(j, r + i, c, row + c * CHUNK, st ? st + c : NULL, w, i, k);
    }
}

/* The same in parts, for few rows: chunks c to c + n of row r, before and after the merge. */
static void NAME(part_before)(const job *j, int64_t r, int64_t c, int64_t n, stats *st, stats *other, worker *me) {
    float *row = j->task != SIDES && j->x_kind == F32 ? (float *)j->grad + r * j->num_labels : NULL;
    if (j->task == RDROP) {
        job two = second(j);
        float *row_two = row ? (float *)two.grad + r * j->num_labels : NULL;
        for (int64_t i = c; i < c + n; i++) NAME(pair_stats)(j, &two, r, i, row, row_two, st + i, other + i, me);
    } else for (int64_t i = c; i < c + n; i++) {
        if (is_alone(j)) st[i].sp = NAME(chunk_alone)(j, r, i, me);
        else NAME(chunk_stats)(j, r, i, row ? row + i * CHUNK : NULL, st + i, &me->scratch);
    }
}

static void NAME(part_after)(const job *j, int64_t r, int64_t c, int64_t n, const stats *st, const stats *other,
                             const rowstate *w, const rowstate *w_two, int64_t at, worker *me) {
    const float *row = (const float *)j->grad + r * j->num_labels;
    if (j->task == RDROP) {
        job two = second(j);
        const float *row_two = (const float *)two.grad + r * j->num_labels;
        for (int64_t i = c; i < c + n; i++) NAME(pair_grad)(j, &two, r, i, row, row_two, st + i, other + i, w, w_two, at, me);
    } else for (int64_t i = c; i < c + n; i++)
        NAME(chunk_grad)(j, r, i, row + i * CHUNK, j->task == FUSED ? st + i : NULL, w, at, &me->scratch);
}

#include "linear_tiles.h"
#include "lstm.h"
