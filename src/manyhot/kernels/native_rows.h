/* The arithmetic of the native engine. native.c includes this file once for each instruction set, with NAME(f) naming
 * the copy. All loops are plain C that gcc and clang vectorise; selects are written out, so that infinite and NaN scores come
 * out right without any of the unsafe -ffast-math flags. Every trip count n is a multiple of LANES: loaders pad. */

#include "native_math.h"

/* Labels of a chunk as numbers in t; returns whether all are 0 or 1. */
static int NAME(soft_labels)(const job *j, int64_t r, int64_t start, int64_t n, float *restrict t) {
    if (j->label_kind == SPARSE) {
        int64_t stop, at = first_listed(j, r, start, start + n, &stop);
        memset(t, 0, (size_t)n * 4);
        for (; at < stop; at++)
            if ((uint64_t)(j->indices[at] - start) < (uint64_t)n)
                t[j->indices[at] - start] = j->listed_values ? j->listed_values[at] : 1.0f;
        if (!j->listed_values) return 1;
    } else {
        int64_t size = kind_size[j->label_kind];
        NAME(widen)((const char *)j->labels + (r * j->label_stride + start) * size, j->label_kind, n, t);
    }
    int32_t odd = 0;
    for (int64_t i = 0; i < n; i++) odd |= (t[i] != 0.0f) & (t[i] != 1.0f);
    return !odd;
}

/* Labels 0 or 1 of a chunk as masks in k->side, all bits set on positives; 0 where some are soft (k->wp then has them as numbers). */
static int NAME(hard_labels)(const job *j, int64_t r, int64_t start, int64_t n, scratch *k) {
    uint32_t *restrict side = k->side;
    if (j->label_kind == U8) {
        const uint8_t *y = (const uint8_t *)j->labels + r * j->label_stride + start;
        for (int64_t i = 0; i < n; i++) side[i] = -(uint32_t)(y[i] != 0);
    } else if (j->label_kind == SPARSE && !j->listed_values) {
        int64_t stop, at = first_listed(j, r, start, start + n, &stop);
        memset(side, 0, (size_t)n * 4);
        for (; at < stop; at++)
            if ((uint64_t)(j->indices[at] - start) < (uint64_t)n) side[j->indices[at] - start] = ~0u;
    } else {
        if (!NAME(soft_labels)(j, r, start, n, k->wp)) return 0;
        for (int64_t i = 0; i < n; i++) side[i] = -(uint32_t)(k->wp[i] != 0.0f);
    }
    return 1;
}

/* Read one chunk: scores as float, and either hard labels (k->hard) or the two weights of every term. */
static int64_t NAME(load)(const job *j, int64_t r, int64_t c, int want_hard, scratch *k) {
    int64_t start = c * CHUNK, n = j->num_labels - start < CHUNK ? j->num_labels - start : CHUNK;
    int64_t padded = (n + LANES - 1) / LANES * LANES;
    const char *x = (const char *)j->x + (r * j->x_stride + start) * kind_size[j->x_kind];
    const uint8_t *where = j->where ? j->where + r * j->where_stride + start : NULL;
    k->hard = want_hard && is_plain(j) && NAME(hard_labels)(j, r, start, n, k);
    k->s = k->x;
    if (j->x_kind == F32 && padded == n && !(k->hard && where)) k->s = (const float *)x;
    else NAME(widen)(x, j->x_kind, n, k->x);
    if (k->hard) { /* what does not count is a negative of score -inf: it adds 0 and gets 0 */
        if (where) for (int64_t i = 0; i < n; i++) {
            k->x[i] = where[i] ? k->x[i] : -INFINITY;
            k->side[i] = where[i] ? k->side[i] : 0;
        }
        for (int64_t i = n; i < padded; i++) k->x[i] = -INFINITY, k->side[i] = 0;
        return n;
    }
    if (!(want_hard && is_plain(j))) NAME(soft_labels)(j, r, start, n, k->wp);
    float keep = 1.0f - j->smoothing, add = j->smoothing / 2.0f, ps = j->pos_scale, ns = j->neg_scale;
    for (int64_t i = 0; i < n; i++) {
        float t = k->wp[i] * keep + add;
        k->wp[i] = t * ps;
        k->wn[i] = (1.0f - t) * ns;
    }
    if (j->pos_weight) for (int64_t i = 0; i < n; i++) k->wp[i] *= j->pos_weight[start + i];
    if (j->neg_weight) for (int64_t i = 0; i < n; i++) k->wn[i] *= j->neg_weight[start + i];
    if (where) for (int64_t i = 0; i < n; i++) {
        k->wp[i] = where[i] ? k->wp[i] : 0.0f;
        k->wn[i] = where[i] ? k->wn[i] : 0.0f;
    }
    for (int64_t i = n; i < padded; i++) k->x[i] = k->wp[i] = k->wn[i] = 0.0f;
    return n;
}

/* Sums of e^{u - m} on both sides of hard labels, with u = s on negatives and -s on positives; stash gets the terms, negated
 * on positives. */
static inline __attribute__((always_inline)) void NAME(hard_block)(const float *restrict s, const uint32_t *restrict side,
                                                                   int64_t n, float mp, float mn, float *restrict stash,
                                                                   stats *st) {
    float sp = 0.0f, sn = 0.0f;
    uint32_t any = 0, shift_p = bits_of(mp), shift_n = bits_of(mn);
#pragma omp simd reduction(+ : sp, sn) reduction(| : any)
    for (int64_t i = 0; i < n; i++) {
        uint32_t sign = side[i] & 0x80000000u;
        float shift = from_bits((side[i] & shift_p) | (~side[i] & shift_n));
        float e = NAME(vexp)(from_bits(bits_of(s[i]) ^ sign) - shift);
        sp += from_bits(bits_of(e) & side[i]);
        sn += from_bits(bits_of(e) & ~side[i]);
        any |= side[i];
        stash[i] = from_bits(bits_of(e) | sign);
    }
    st->sp += sp, st->sn += sn, st->any |= any != 0;
}

static void NAME(hard_sums)(const float *s, const uint32_t *side, int64_t n, float mp, float mn, float *stash, stats *st) {
    *st = (stats){mp, mn, 0.0, 0.0, 1, 0};
    for (int64_t i = 0; i < n; i += BLOCK) {
        int64_t size = n - i < BLOCK ? n - i : BLOCK;
        if (mp == 0.0f && mn == 0.0f) NAME(hard_block)(s + i, side + i, size, 0.0f, 0.0f, stash + i, st);
        else NAME(hard_block)(s + i, side + i, size, mp, mn, stash + i, st);
    }
}

static inline void NAME(largest)(const float *p, const float *q, float *mp, float *mn) {
    *mp = *mn = -LARGEST;
    for (int64_t l = 0; l < LANES; l++) {
        *mp = p[l] > *mp ? p[l] : *mp;
        *mn = q[l] > *mn ? q[l] : *mn;
    }
}

/* Whether sums without a shift lost nothing that counts and are finite. */
static inline int NAME(in_range)(double sp, double sn, int positives, int negatives) {
    return (sp > 1e-25 ? sp < 1e30 : !positives) && (sn > 1e-25 ? sn < 1e30 : !negatives);
}

static void NAME(hard_stats)(const float *restrict s, const uint32_t *restrict side, int64_t n, float *restrict stash, stats *st) {
    NAME(hard_sums)(s, side, n, 0.0f, 0.0f, stash, st);
    if (NAME(in_range)(st->sp, st->sn, st->any, 1)) return; /* without a shift: nearly all scores allow it */
    float p[LANES], q[LANES], mp, mn;
    for (int64_t l = 0; l < LANES; l++) p[l] = q[l] = -LARGEST;
    for (int64_t i = 0; i < n; i += LANES)
        for (int64_t l = 0; l < LANES; l++) {
            float a = side[i + l] ? -s[i + l] : -LARGEST, b = side[i + l] ? -LARGEST : s[i + l];
            p[l] = a > p[l] ? a : p[l];
            q[l] = b > q[l] ? b : q[l];
        }
    NAME(largest)(p, q, &mp, &mn);
    NAME(hard_sums)(s, side, n, mp, mn, stash, st);
    if (mp == INFINITY) st->sp = 1.0; /* inf - inf above; a NaN among them wins */
    if (mn == INFINITY) st->sn = 1.0;
    if (mp == INFINITY || mn == INFINITY) for (int64_t i = 0; i < n; i++)
        if (s[i] != s[i]) *(side[i] ? &st->sp : &st->sn) = NAN;
}

static void NAME(soft_stats)(const float *restrict s, const float *restrict wp, const float *restrict wn, int64_t n, stats *st) {
    float p[LANES], q[LANES], mp, mn;
    for (int64_t l = 0; l < LANES; l++) p[l] = q[l] = -LARGEST;
    for (int64_t i = 0; i < n; i += LANES)
        for (int64_t l = 0; l < LANES; l++) {
            float a = wp[i + l] > 0.0f ? -s[i + l] : -LARGEST, b = wn[i + l] > 0.0f ? s[i + l] : -LARGEST;
            p[l] = a > p[l] ? a : p[l];
            q[l] = b > q[l] ? b : q[l];
        }
    NAME(largest)(p, q, &mp, &mn);
    *st = (stats){mp, mn, 0.0, 0.0, 0, 0};
    for (int64_t start = 0; start < n; start += BLOCK) {
        float sp = 0.0f, sn = 0.0f;
        int64_t stop = n - start < BLOCK ? n : start + BLOCK;
#pragma omp simd reduction(+ : sp, sn)
        for (int64_t i = start; i < stop; i++) {
            sp += wp[i] * NAME(vexp)(wp[i] > 0.0f ? -s[i] - mp : -INFINITY);
            sn += wn[i] * NAME(vexp)(wn[i] > 0.0f ? s[i] - mn : -INFINITY);
        }
        st->sp += sp, st->sn += sn;
    }
    if (mp == INFINITY) st->sp = 1.0; /* as in hard_stats */
    if (mn == INFINITY) st->sn = 1.0;
    if (mp == INFINITY || mn == INFINITY) for (int64_t i = 0; i < n; i++) if (s[i] != s[i]) {
        if (wp[i] > 0.0f) st->sp = NAN;
        if (wn[i] > 0.0f) st->sn = NAN;
    }
}

static void NAME(chunk_stats)(const job *j, int64_t r, int64_t c, float *stash, stats *st, scratch *k) {
    int64_t n = NAME(load)(j, r, c, 1, k), padded = (n + LANES - 1) / LANES * LANES;
    if (!k->hard) NAME(soft_stats)(k->s, k->wp, k->wn, padded, st);
    else if (stash && padded == n) NAME(hard_stats)(k->s, k->side, n, stash, st);
    else {
        NAME(hard_stats)(k->s, k->side, padded, k->out, st);
        if (stash) memcpy(stash, k->out, (size_t)n * 4);
        else st->stashed = 0;
    }
}

/* The chunks of a row as one: in order and in double, so that the result does not depend on the number of threads. */
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

/* Totals, values and the weights of both sides for rows r to r + n of the job. A total is shift + rest, as LogSum has it:
 * the shift is finite, an empty side has the rest -inf, an infinite one +inf. */
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
        w->rp[i] = mp == INFINITY ? mp + rp : mp == 0.0f ? rp : wp + rp; /* without a shift, the log gives one */
        w->rn[i] = mn == INFINITY ? mn + rn : mn == 0.0f ? rn : wn + rn;
        w->mp[i] = mp == 0.0f ? wp : mp == INFINITY || w->sp[i] == 0.0f ? 0.0f : mp;
        w->mn[i] = mn == 0.0f ? wn : mn == INFINITY || w->sn[i] == 0.0f ? 0.0f : mn;
    }
    if (j->task == SIDES) {
        memcpy(j->pos_shift + r, w->mp, bytes), memcpy(j->pos_rest + r, w->rp, bytes);
        memcpy(j->neg_shift + r, w->mn, bytes), memcpy(j->neg_rest + r, w->rn, bytes);
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        w->offset[i] = j->row_offsets ? j->row_offsets[r + i] : j->offset;
        w->scale[i] = j->row_scales ? j->row_scales[r + i] : j->scale;
    }
    if (j->form == SPLIT) {
#pragma omp simd
        for (int64_t i = 0; i < n; i++) {
            float p = (w->mp[i] + w->offset[i]) + w->rp[i], q = (w->mn[i] - w->offset[i]) + w->rn[i];
            float dp = NAME(sigmoid)(p), dq = NAME(sigmoid)(q);
            j->values[r + i] = NAME(softplus)(p) + NAME(softplus)(q);
            j->offset_grad[r + i] = dp - dq;
            w->gp[i] = w->scale[i] * dp;
            w->gn[i] = w->scale[i] * dq;
        }
    } else {
#pragma omp simd
        for (int64_t i = 0; i < n; i++) {
            float both = (w->mp[i] + w->mn[i]) + (w->rp[i] + w->rn[i]); /* large shifts cancel without loss */
            both = w->rp[i] == -INFINITY || w->rn[i] == -INFINITY ? -INFINITY : both;
            float x = both + w->offset[i], d = NAME(sigmoid)(x);
            j->values[r + i] = NAME(softplus)(x);
            j->offset_grad[r + i] = d;
            w->gp[i] = w->gn[i] = w->scale[i] * d;
        }
    }
}

/* w e^u / e^total; top is infinite where the total is and NaN elsewhere: an infinite term takes the whole. */
static inline float NAME(share)(float u, float weight, float shift, float rest, float top) {
    float x = u == top ? 0.0f : (u - shift) - rest;
    return weight * NAME(vexp)(weight > 0.0f && u != -INFINITY ? x : -INFINITY);
}

static void NAME(soft_grad)(const float *restrict s, const float *restrict wp, const float *restrict wn, int64_t n,
                            const rowstate *w, int64_t at, float *restrict out) {
    float gp = w->gp[at], gn = w->gn[at], mp = w->mp[at], mn = w->mn[at], rp = w->rp[at], rn = w->rn[at];
    float top_p = rp == INFINITY ? rp : NAN, top_n = rn == INFINITY ? rn : NAN;
    for (int64_t i = 0; i < n; i++)
        out[i] = gn * NAME(share)(s[i], wn[i], mn, rn, top_n) - gp * NAME(share)(-s[i], wp[i], mp, rp, top_p);
}

/* The same with one exp, for hard labels and totals below infinity. */
static void NAME(hard_grad)(const float *restrict s, const uint32_t *restrict side, int64_t n, const rowstate *w, int64_t at,
                            float *restrict out) {
    float gp = -w->gp[at], gn = w->gn[at], mp = w->mp[at], mn = w->mn[at], rp = w->rp[at], rn = w->rn[at];
    rp = rp == -INFINITY ? LARGEST : rp, rn = rn == -INFINITY ? LARGEST : rn; /* an empty side has no shares */
    for (int64_t i = 0; i < n; i++) {
        float u = from_bits(bits_of(s[i]) ^ (side[i] & 0x80000000u));
        out[i] = (side[i] ? gp : gn) * NAME(vexp)((u - (side[i] ? mp : mn)) - (side[i] ? rp : rn));
    }
}

static void NAME(scale_stash)(const float *stash, float *out, int64_t n, float p, float q) {
#pragma omp simd
    for (int64_t i = 0; i < n; i++) out[i] = stash[i] * (stash[i] < 0.0f ? p : q);
}

/* The gradient of one chunk, from the stash where there is one and the row is finite, else computed again. */
static void NAME(chunk_grad)(const job *j, int64_t r, int64_t c, const float *stash, const stats *st, const rowstate *w,
                             int64_t at, scratch *k) {
    int64_t start = c * CHUNK, n = j->num_labels - start < CHUNK ? j->num_labels - start : CHUNK;
    char *to = (char *)j->grad + (r * j->num_labels + start) * kind_size[j->x_kind];
    int finite = w->rp[at] < INFINITY && w->rn[at] < INFINITY && w->gp[at] < INFINITY && w->gn[at] < INFINITY;
    if (finite && st && st->stashed) {
        float *out = j->x_kind == F32 ? (float *)to : k->out;
        float p = st->sp > 0.0 ? w->gp[at] / w->sp[at] * NAME(vexp)(st->mp - w->tp[at]) : 0.0f;
        float q = st->sn > 0.0 ? w->gn[at] / w->sn[at] * NAME(vexp)(st->mn - w->tn[at]) : 0.0f;
        NAME(scale_stash)(stash, out, n, p, q);
        if (j->x_kind != F32) NAME(narrow)(out, to, j->x_kind, n);
        return;
    }
    n = NAME(load)(j, r, c, finite, k);
    int64_t padded = (n + LANES - 1) / LANES * LANES;
    float *out = j->x_kind == F32 && padded == n ? (float *)to : k->out;
    if (k->hard) NAME(hard_grad)(k->s, k->side, padded, w, at, out);
    else NAME(soft_grad)(k->s, k->wp, k->wn, padded, w, at, out);
    if (out == k->out) NAME(narrow)(out, to, j->x_kind, n);
}

#include "native_labelwise.h"

/* Sums of the positive and the negative terms of one row of a stash; *any and *rest tell whether it has positives and negatives. */
static inline void NAME(row_sums)(const float *restrict v, int64_t n, double *sp, double *sn, int *any, int *rest) {
    uint32_t set = 0, clear = 0;
    *sp = *sn = 0.0;
    for (int64_t start = 0; start < n; start += BLOCK) {
        float p = 0.0f, q = 0.0f;
        int64_t stop = n - start < BLOCK ? n : start + BLOCK;
#pragma omp simd reduction(+ : p, q) reduction(| : set, clear)
        for (int64_t i = start; i < stop; i++) {
            uint32_t b = bits_of(v[i]), side = (uint32_t)((int32_t)b >> 31);
            p += from_bits(b & side & 0x7fffffffu);
            q += from_bits(b & ~side);
            set |= side;
            clear |= ~side;
        }
        *sp += p, *sn += q;
    }
    *any = set != 0, *rest = clear != 0;
}

/* Short adjacent rows of hard labels, read as one long row and summed one by one. 0 where that cannot be done: the rows must be
 * taken singly then. */
static int NAME(packed_tile)(const job *j, int64_t r, int64_t n, worker *me) {
    int64_t size = j->num_labels;
    scratch *k = &me->scratch;
    rowstate *w = &me->rows;
    if (!is_plain(j) || n * size > CHUNK || n < 2 || size == 0 || j->label_kind == SPARSE || j->x_stride != size || j->label_stride != size ||
        (j->where && j->where_stride != size))
        return 0;
    job row = *j;
    row.x = (const char *)j->x + r * size * kind_size[j->x_kind];
    row.labels = (const char *)j->labels + r * size * kind_size[j->label_kind];
    row.where = j->where ? j->where + r * size : NULL;
    row.num_labels = n * size;
    NAME(load)(&row, 0, 0, 1, k);
    if (!k->hard) return 0;
    stats all;
    NAME(hard_sums)(k->s, k->side, (n * size + LANES - 1) / LANES * LANES, 0.0f, 0.0f, k->out, &all);
    for (int64_t i = 0; i < n; i++) {
        double sp, sn;
        int any, rest;
        NAME(row_sums)(k->out + i * size, size, &sp, &sn, &any, &rest);
        if (!NAME(in_range)(sp, sn, any, rest)) return 0;
        w->mp[i] = w->mn[i] = w->tp[i] = w->tn[i] = 0.0f, w->sp[i] = (float)sp, w->sn[i] = (float)sn;
    }
    NAME(finish)(j, r, n, w);
    if (j->task == SIDES) return 1;
    char *to = (char *)j->grad + r * size * kind_size[j->x_kind];
    for (int64_t i = 0; i < n; i++) {
        float p = w->sp[i] > 0.0f ? w->gp[i] / w->sp[i] : 0.0f, q = w->sn[i] > 0.0f ? w->gn[i] / w->sn[i] : 0.0f;
        NAME(scale_stash)(k->out + i * size, j->x_kind == F32 ? (float *)to + i * size : k->out + i * size, size, p, q);
    }
    if (j->x_kind != F32) NAME(narrow)(k->out, to, j->x_kind, n * size);
    return 1;
}

/* Rows r to r + n from their scores to their gradient, while they are in cache. */
static void NAME(tile)(const job *j, int64_t r, int64_t n, worker *me) {
    int64_t chunks = chunk_count(j), size = j->num_labels;
    scratch *k = &me->scratch;
    rowstate *w = &me->rows;
    if (j->task == LABELWISE) {
        for (int64_t i = r; i < r + n; i++) {
            double total = 0.0;
            for (int64_t c = 0; c < chunks; c++) total += NAME(chunk_labelwise)(j, i, c, k);
            j->values[i] = (float)total;
        }
        return;
    }
    if (j->task != GRADIENT && NAME(packed_tile)(j, r, n, me)) return;
    for (int64_t i = 0; i < n && j->task != GRADIENT; i++) {
        float *row = j->task != FUSED ? NULL : j->x_kind == F32 ? (float *)j->grad + (r + i) * size : me->stash ? me->stash + i * size : NULL;
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

/* The same by parts, for few rows: chunks c to c + n of row r before and after the merge. */
static void NAME(part_before)(const job *j, int64_t r, int64_t c, int64_t n, stats *st, worker *me) {
    float *row = j->task == FUSED && j->x_kind == F32 ? (float *)j->grad + r * j->num_labels : NULL;
    for (int64_t i = c; i < c + n; i++) {
        if (j->task == LABELWISE) st[i].sp = NAME(chunk_labelwise)(j, r, i, &me->scratch);
        else NAME(chunk_stats)(j, r, i, row ? row + i * CHUNK : NULL, st + i, &me->scratch);
    }
}

static void NAME(part_after)(const job *j, int64_t r, int64_t c, int64_t n, const stats *st, const rowstate *w,
                            int64_t at, worker *me) {
    const float *row = (const float *)j->grad + r * j->num_labels;
    for (int64_t i = c; i < c + n; i++)
        NAME(chunk_grad)(j, r, i, row + i * CHUNK, j->task == FUSED ? st + i : NULL, w, at, &me->scratch);
}
