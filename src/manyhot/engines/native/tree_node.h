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

/* Replace the scores s by the change of a_i; returns the largest change. */
static float NAME(hinge_change)(const tree_block *b, float *restrict s, float *restrict a, const float *restrict y,
                                const float *restrict cost, float square, float weight, int64_t size) {
    float most = 0.0f;
    (void)b;
#pragma omp simd reduction(max : most)
    for (int64_t k = 0; k < size; k++) {
        float d = 0.5f / (cost[k] * weight), slope = y[k] * s[k] - 1.0f + d * a[k];
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
    float *s = room, *y = room + size, *cost = room + 2 * size, *bias = w + local->num_features * size;
    for (int64_t k = 0; k < size; k++) y[k] = -1.0f, cost[k] = b->neg_cost;
    for (int64_t visit = 0; visit < b->epochs * b->num_rows; visit++) {
        int64_t i = b->orders[visit];
        float weight = b->weights ? b->weights[i] : 1.0f, *a = alpha + i * size;
        if (!(weight > 0.0f)) continue;
        memcpy(s, bias, (size_t)size * 4);
        for (int64_t e = local->starts[i]; e < local->ends[i]; e++)
            NAME(add_scaled)(s, w + (int64_t)local->columns[e] * size, local->values[e], size);
        for (int64_t e = b->positive_offsets[i]; e < b->positive_offsets[i + 1]; e++)
            y[b->positives[e]] = 1.0f, cost[b->positives[e]] = b->pos_cost;
        float most = b->form == TREE_HINGE ? NAME(hinge_change)(b, s, a, y, cost, local->squares[i], weight, size)
                                           : NAME(zlpr_change)(b, s, a, y, local->squares[i], weight, size);
        for (int64_t e = b->positive_offsets[i]; e < b->positive_offsets[i + 1]; e++)
            y[b->positives[e]] = -1.0f, cost[b->positives[e]] = b->neg_cost;
        if (!(most > 0.0f)) continue; /* a row that is right by the margin for all children changes nothing */
        NAME(add_scaled)(bias, s, 1.0f, size);
        for (int64_t e = local->starts[i]; e < local->ends[i]; e++)
            NAME(add_scaled)(w + (int64_t)local->columns[e] * size, s, local->values[e], size);
    }
}
