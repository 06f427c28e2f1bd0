/* The problem of one block of a label tree. engine.c includes this file once for each instruction set; tree.h has the types.
 *
 * Minimises, over W [F, K] and a bias b [K],
 *
 *     1/2 |W|^2 + 1/2 |b|^2 + sum_i w_i loss(W^T x_i + b; y_i)
 *
 * by dual coordinate ascent: W = sum_i x_i a_i^T, and a visit to row i changes only its a_i [K]. The children of a block share
 * every x_i, so one visit takes two sweeps over the few rows of W, each K numbers wide, that belong to the features of x_i.
 * Squared hinge: every child has its own cost (pos_cost, neg_cost), and a visit moves to the optimum along its coordinate.
 * ZLPR: a visit moves towards C times the negative gradient, by a step that is safe for a Hessian of at most 1/2. */

static void NAME(add_scaled)(float *restrict to, const float *restrict from, float by, int64_t size) {
#pragma omp simd
    for (int64_t k = 0; k < size; k++) to[k] += by * from[k];
}

/* The parts of LANES children in which something changes: where they start, and how many there are. */
INLINE int64_t NAME(changed_parts)(const float *s, int64_t size, int64_t *starts) {
    int64_t found = 0;
    for (int64_t k = 0; k < size; k += LANES) {
        uint32_t any = 0;
        for (int64_t l = k; l < k + LANES; l++) any |= bits_of(s[l]) << 1; /* without the sign of 0 */
        if (any) starts[found++] = k;
    }
    return found;
}

INLINE void NAME(add_parts)(float *restrict to, const float *restrict from, float by, const int64_t *starts, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        int64_t k = starts[i];
#pragma omp simd
        for (int64_t l = 0; l < LANES; l++) to[k + l] += by * from[k + l];
    }
}

/* s = bias + W^T x for `vectors` vectors of children. The rows of W are rarely in the first caches, so they are requested some
 * features ahead. */
INLINE void NAME(part_scores)(float *s, const float *bias, const float *w, const int32_t *columns, const float *values,
                              int64_t n, int64_t size, int vectors) {
    NAME(vf) sum[8];
    for (int v = 0; v < vectors; v++) sum[v] = NAME(get)(bias + v * WIDE);
    for (int64_t e = 0; e < n; e++) {
        const float *own = w + (int64_t)columns[e] * size, *next = w + (int64_t)columns[e + AHEAD < n ? e + AHEAD : e] * size;
        for (int v = 0; v < vectors; v += 16 / WIDE) __builtin_prefetch(next + v * WIDE);
        for (int v = 0; v < vectors; v++) sum[v] += values[e] * NAME(get)(own + v * WIDE);
    }
    for (int v = 0; v < vectors; v++) NAME(put)(s + v * WIDE, sum[v]);
}

static void NAME(row_scores)(float *s, const float *bias, const float *w, const int32_t *columns, const float *values,
                             int64_t n, int64_t size) {
    for (int64_t k = 0; k < size; k += 8 * WIDE) {
#define PART_SCORES(count) NAME(part_scores)(s + k, bias + k, w + k, columns, values, n, size, count)
        switch ((size - k) / WIDE) { /* a multiple of LANES / WIDE */
        case 1: PART_SCORES(1); break;
        case 2: PART_SCORES(2); break;
        case 3: PART_SCORES(3); break;
        case 4: PART_SCORES(4); break;
        case 5: PART_SCORES(5); break;
        case 6: PART_SCORES(6); break;
        case 7: PART_SCORES(7); break;
        default: PART_SCORES(8);
        }
#undef PART_SCORES
    }
}

/* Replace the scores s by the change of a_i; returns the largest change. */
static float NAME(hinge_change)(const tree_block *b, float *restrict s, float *restrict a, const float *restrict y,
                                float square, float weight, int64_t size) {
    float most = 0.0f, slack_pos = 0.5f / ((float)b->pos_cost * weight), slack_neg = 0.5f / ((float)b->neg_cost * weight);
#pragma omp simd reduction(max : most)
    for (int64_t k = 0; k < size; k++) {
        float d = y[k] > 0.0f ? slack_pos : slack_neg, slope = y[k] * s[k] - 1.0f + d * a[k];
        float moved = a[k] - slope / (square + d);
        moved = moved > 0.0f ? moved : 0.0f;
        float change = moved - a[k];
        a[k] = moved;
        s[k] = change * y[k];
        change = change < 0.0f ? -change : change;
        most = change > most ? change : most;
    }
    return most;
}

static float NAME(zlpr_change)(const tree_block *b, float *restrict s, float *restrict a, const float *restrict y,
                               float square, float weight, int64_t size) {
    float c = b->pos_cost * weight, step = 2.0f / (c * square + 2.0f), mp = 0.0f, mn = 0.0f, most = 0.0f;
    for (int64_t k = 0; k < b->num_children; k++) {
        if (y[k] > 0.0f) mp = -s[k] > mp ? -s[k] : mp;
        else mn = s[k] > mn ? s[k] : mn;
    }
    for (int64_t k = 0; k < size; k += WIDE) {
        NAME(vf) score = NAME(get)(s + k), sign = NAME(get)(y + k), zero = {0};
        NAME(vu) positive = (NAME(vu))(sign > zero);
        NAME(vf) shift = (NAME(vf))(((NAME(vu))(zero + mp) & positive) | ((NAME(vu))(zero + mn) & ~positive));
        NAME(put)(s + k, NAME(exp_of)(-sign * score - shift));
    }
    double sp = exp(-(double)mp), sn = exp(-(double)mn);
    for (int64_t k = 0; k < b->num_children; k++) {
        if (y[k] > 0.0f) sp += s[k];
        else sn += s[k];
    }
    float by_pos = (float)(1.0 / sp), by_neg = (float)(1.0 / sn);
#pragma omp simd reduction(max : most)
    for (int64_t k = 0; k < size; k++) {
        float share = y[k] > 0.0f ? s[k] * by_pos : -s[k] * by_neg, change = step * (c * share - a[k]);
        a[k] += change;
        s[k] = change;
        change = change < 0.0f ? -change : change;
        most = change > most ? change : most;
    }
    for (int64_t k = b->num_children; k < size; k++) s[k] = a[k] = 0.0f;
    return most;
}

/* The passes over the rows. `w` holds a row of `size` numbers for each local feature and, last, the bias. */
static void NAME(solve_block)(const tree_block *b, const tree_rows *local, float *w, float *alpha, float *room, int64_t size) {
    float *s = room, *y = room + size, *bias = w + local->num_features * size;
    for (int64_t k = 0; k < size; k++) y[k] = -1.0f;
    for (int64_t visit = 0; visit < b->epochs * b->num_rows; visit++) {
        int64_t i = b->orders[visit];
        float weight = b->weights ? b->weights[i] : 1.0f, *a = alpha + i * size;
        if (!(weight > 0.0f)) continue;
        NAME(row_scores)(s, bias, w, local->columns + local->starts[i], local->values + local->starts[i],
                         local->ends[i] - local->starts[i], size);
        for (int64_t e = b->positive_offsets[i]; e < b->positive_offsets[i + 1]; e++) y[b->positives[e]] = 1.0f;
        float most = b->form == TREE_HINGE ? NAME(hinge_change)(b, s, a, y, local->squares[i], weight, size)
                                           : NAME(zlpr_change)(b, s, a, y, local->squares[i], weight, size);
        for (int64_t e = b->positive_offsets[i]; e < b->positive_offsets[i + 1]; e++) y[b->positives[e]] = -1.0f;
        if (!(most > 0.0f)) continue; /* a row that is right by the margin for all children changes nothing */
        int64_t changed[MOST_PARTS], parts = NAME(changed_parts)(s, size, changed);
        NAME(add_scaled)(bias, s, 1.0f, size);
        for (int64_t e = local->starts[i]; e < local->ends[i]; e++)
            NAME(add_parts)(w + (int64_t)local->columns[e] * size, s, local->values[e], changed, parts);
    }
}

/* Replace scores by `by` times the probability sigma(slope s). */
static void NAME(sigmoids)(float *s, int64_t n, float slope, float by) {
#pragma omp simd
    for (int64_t i = 0; i < n; i++) s[i] = by * NAME(sigmoid)(slope * s[i]);
}
