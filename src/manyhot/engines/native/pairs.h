/* Chunks and rows of two predictions at once, by the formulas of rdrop.h. Included by rows.h. */

/* sum_i apart_i of n entries, a multiple of LANES; entries that do not count have the score 0. If grad_a is not NULL, pull
 * times the derivatives is written to grad_a and grad_b, or added to them if adding is set. */
INLINE double NAME(divergence)(const float *a, const float *b, int64_t n, float link, float pull, int adding, float *grad_a,
                               float *grad_b) {
    double all = 0.0;
    for (int64_t start = 0; start < n; start += BLOCK / 2) {
        int64_t stop = n - start < BLOCK / 2 ? n : start + BLOCK / 2;
        NAME(vf) total = {0}, none = {0};
        for (int64_t i = start; i < stop; i += WIDE) {
            NAME(gaps) g = NAME(any_gap)(NAME(get)(a + i), NAME(get)(b + i), link);
            total += g.value;
            if (grad_a) {
                NAME(put)(grad_a + i, pull * g.by_a + (adding ? NAME(get)(grad_a + i) : none));
                NAME(put)(grad_b + i, pull * g.by_b + (adding ? NAME(get)(grad_b + i) : none));
            }
        }
        all += NAME(sum_lane)(total);
    }
    return all;
}

/* A chunk of both predictions: its position, and its scores as floats. */
typedef struct {
    int64_t start, n, padded;
    char *to_one, *to_two;
    const float *s, *z;
} NAME(pair);

INLINE NAME(pair) NAME(pair_at)(const job *j, const job *two, int64_t r, int64_t c) {
    NAME(pair) p = {.start = c * CHUNK};
    p.n = j->num_labels - p.start < CHUNK ? j->num_labels - p.start : CHUNK;
    p.padded = (p.n + LANES - 1) / LANES * LANES;
    int64_t place = (r * j->num_labels + p.start) * kind_size[j->x_kind];
    p.to_one = (char *)j->grad + place, p.to_two = (char *)two->grad + place;
    return p;
}

/* Entries that do not count have the same score in both. */
INLINE void NAME(load_pair)(const job *j, const job *two, int64_t r, float blank, NAME(pair) *p, worker *me) {
    p->s = NAME(load_scores)(j, r, p->start, p->n, blank, me->scratch.x);
    p->z = NAME(load_scores)(two, r, p->start, p->n, blank, me->other_scratch.x);
}

/* The score of entries that do not count in a simple chunk: their term is 0 because of the score or the weights. */
INLINE float NAME(blank_of)(int hard) { return hard ? -LARGEST : 0.0f; }

INLINE int NAME(pair_in_range)(const stats *st, const scratch *k, int64_t at, int64_t n) {
    return k->hard ? NAME(in_range)(st, k->y + at, n) : NAME(soft_in_range)(st, k->wp + at, k->wn + at, n);
}

/* The sums of one chunk of both predictions. keep_one and keep_two receive the terms if backward can use them. */
static void NAME(pair_stats)(const job *j, const job *two, int64_t r, int64_t c, float *keep_one, float *keep_two, stats *a,
                             stats *b, worker *me) {
    scratch *k = &me->scratch, *m = &me->other_scratch;
    NAME(pair) p = NAME(pair_at)(j, two, r, c);
    if (NAME(is_simple_link)(j)) {
        int direct = keep_one && p.padded == p.n;
        float *one = direct ? keep_one + p.start : k->out, *other = direct ? keep_two + p.start : m->out;
        NAME(load_labels)(j, r, p.start, p.n, 1, k);
        NAME(load_pair)(j, two, r, NAME(blank_of)(k->hard), &p, me);
        NAME(pair_terms)(j, p.s, p.z, k, p.padded, one, other, NULL, a, b);
        if (NAME(pair_in_range)(a, k, 0, p.padded) && NAME(pair_in_range)(b, k, 0, p.padded)) {
            a->stashed = keep_one != NULL;
            if (keep_one && !direct) {
                memcpy(keep_one + p.start, one, (size_t)p.n * 4), memcpy(keep_two + p.start, other, (size_t)p.n * 4);
            }
            return;
        }
    }
    NAME(chunk_stats)(j, r, c, NULL, a, k);
    NAME(chunk_stats)(two, r, c, NULL, b, m);
    NAME(load_pair)(j, two, r, 0.0f, &p, me);
    a->apart = NAME(divergence)(p.s, p.z, p.padded, j->link, 0.0f, 0, NULL, NULL);
}

/* Both gradients of one chunk, from the kept terms if there are any and both rows are finite. */
static void NAME(pair_grad)(const job *j, const job *two, int64_t r, int64_t c, const float *kept_one, const float *kept_two,
                            const stats *a, const stats *b, const rowstate *w, const rowstate *w_two, int64_t at, worker *me) {
    scratch *k = &me->scratch, *m = &me->other_scratch;
    NAME(pair) p = NAME(pair_at)(j, two, r, c);
    float *out_one = k->out, *out_two = m->out;
    if (a->simple && NAME(is_finite)(w, at) && NAME(is_finite)(w_two, at)) {
        const float *one = kept_one + p.start, *other = kept_two + p.start;
        stats again_a, again_b;
        k->hard = a->simple == HARD;
        if (!k->hard || !a->stashed) NAME(load_labels)(j, r, p.start, p.n, k->hard, k);
        NAME(load_pair)(j, two, r, NAME(blank_of)(k->hard), &p, me);
        if (!a->stashed) {
            NAME(pair_terms)(j, p.s, p.z, k, p.padded, k->out, m->out, NULL, &again_a, &again_b);
            one = k->out, other = m->out;
        }
        if (j->x_kind == F32) out_one = (float *)p.to_one, out_two = (float *)p.to_two;
        NAME(factors) by = NAME(factors_of)(j, a, b, w, w_two, at);
        NAME(pair_pulls)(j, p.s, p.z, one, other, k, p.n, by, out_one, out_two);
    } else {
        NAME(grad_again)(j, r, c, w, at, k, k->out);
        NAME(grad_again)(two, r, c, w_two, at, m, m->out);
        NAME(load_pair)(j, two, r, 0.0f, &p, me);
        NAME(divergence)(p.s, p.z, p.padded, j->link, 2.0f * j->alpha * w->scale[at], 1, k->out, m->out);
    }
    if (out_one == k->out) NAME(narrow)(out_one, p.to_one, j->x_kind, p.n), NAME(narrow)(out_two, p.to_two, j->x_kind, p.n);
}

/* The divergence of one chunk without losses: returns its value and writes both gradients. */
static double NAME(chunk_divergence)(const job *j, int64_t r, int64_t c, worker *me) {
    job two = second(j);
    NAME(pair) p = NAME(pair_at)(j, &two, r, c);
    float pull = j->alpha * (j->row_scales ? j->row_scales[r] : j->scale);
    int direct = j->x_kind == F32 && p.padded == p.n;
    float *one = direct ? (float *)p.to_one : me->scratch.out, *other = direct ? (float *)p.to_two : me->other_scratch.out;
    NAME(load_pair)(j, &two, r, 0.0f, &p, me);
    double apart = NAME(divergence)(p.s, p.z, p.padded, j->link, pull, 0, one, other);
    if (!direct) NAME(narrow)(one, p.to_one, j->x_kind, p.n), NAME(narrow)(other, p.to_two, j->x_kind, p.n);
    return j->alpha * apart;
}

/* Short adjacent rows of hard labels as in packed_rows; returns 0 if that is not possible. */
static int NAME(packed_pairs)(const job *j, const job *two, int64_t r, int64_t n, worker *me) {
    int64_t size = j->num_labels, all = n * size;
    scratch *k = &me->scratch, *m = &me->other_scratch;
    job first, other;
    if (!is_plain(j) || !NAME(is_simple_link)(j)) return 0;
    if (!NAME(as_one_row)(j, r, n, &first) || !NAME(as_one_row)(two, r, n, &other)) return 0;
    NAME(pair) p = NAME(pair_at)(&first, &other, 0, 0);
    NAME(load_labels)(&first, 0, 0, all, 1, k);
    if (!k->hard) return 0;
    NAME(load_pair)(&first, &other, 0, -LARGEST, &p, me);
    NAME(pair_terms)(j, p.s, p.z, k, p.padded, k->out, m->out, m->wp, me->stats, me->other_stats);
    for (int64_t i = 0; i < n; i++) {
        stats *a = me->stats + i, *b = me->other_stats + i;
        *a = *b = (stats){.simple = HARD};
        NAME(row_sums)(k->out + i * size, size, &a->sp, &a->sn), NAME(row_sums)(m->out + i * size, size, &b->sp, &b->sn);
        if (!NAME(pair_in_range)(a, k, i * size, size) || !NAME(pair_in_range)(b, k, i * size, size)) return 0;
        float apart = 0.0f;
#pragma omp simd reduction(+ : apart)
        for (int64_t l = i * size; l < (i + 1) * size; l++) apart += m->wp[l];
        a->apart = apart;
        NAME(merge)(a, 1, &me->rows, i), NAME(merge)(b, 1, &me->other_rows, i);
    }
    NAME(finish)(j, r, n, &me->rows), NAME(finish)(two, r, n, &me->other_rows);
    char *to_one = (char *)j->grad + r * size * kind_size[j->x_kind];
    char *to_two = (char *)two->grad + r * size * kind_size[j->x_kind];
    float *out_one = j->x_kind == F32 ? (float *)to_one : k->out, *out_two = j->x_kind == F32 ? (float *)to_two : m->out;
    for (int64_t i = 0, at = 0; i < n; i++, at += size) {
        NAME(factors) by = NAME(factors_of)(j, me->stats + i, me->other_stats + i, &me->rows, &me->other_rows, i);
        NAME(pair_pulls)(j, p.s + at, p.z + at, k->out + at, m->out + at, k, size, by, out_one + at, out_two + at);
    }
    if (out_one == k->out) NAME(narrow)(out_one, to_one, j->x_kind, all), NAME(narrow)(out_two, to_two, j->x_kind, all);
    return 1;
}

/* Computes rows r to r + n of both predictions, from their scores to their gradients. */
static void NAME(pair_tile)(const job *j, int64_t r, int64_t n, worker *me) {
    int64_t chunks = chunk_count(j), size = j->num_labels;
    job two = second(j);
    rowstate *w = &me->rows, *w_two = &me->other_rows;
    int done = NAME(packed_pairs)(j, &two, r, n, me), direct = j->x_kind == F32;
    float *keep_one = direct ? (float *)j->grad + r * size : me->stash;
    float *keep_two = direct ? (float *)two.grad + r * size : me->other_stash;
    for (int64_t i = 0; i < n && !done; i++) {
        float *one = keep_one ? keep_one + i * size : NULL, *other = keep_two ? keep_two + i * size : NULL;
        stats *a = me->stats + i * chunks, *b = me->other_stats + i * chunks;
        for (int64_t c = 0; c < chunks; c++) NAME(pair_stats)(j, &two, r + i, c, one, other, a + c, b + c, me);
        NAME(merge)(a, chunks, w, i), NAME(merge)(b, chunks, w_two, i);
    }
    if (!done) NAME(finish)(j, r, n, w), NAME(finish)(&two, r, n, w_two);
    for (int64_t i = 0; i < n && !done; i++) {
        const float *one = keep_one ? keep_one + i * size : NULL, *other = keep_two ? keep_two + i * size : NULL;
        const stats *a = me->stats + i * chunks, *b = me->other_stats + i * chunks;
        for (int64_t c = 0; c < chunks; c++)
            NAME(pair_grad)(j, &two, r + i, c, one, other, a + c, b + c, w, w_two, i, me);
    }
    pair_values(j, r, n, me->stats, w, w_two);
}
