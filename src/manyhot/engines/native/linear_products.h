/* The three matrix products of a linear head for one tile of labels, which are in cache. Included by linear_tiles.h.
 *
 * All three are sums of outer products: numbers of one factor times vectors of the other, accumulated in registers. */

/* Entries of the first factor that share a vector of the second: as many as fit the registers. */
#define MANY (WIDE == 16 ? 8 : 4)

/* out[i, v] = (out[i, v] if adding) + start[i] + sum over k of a[i, k] b[k, v], for `many` i and `vectors` vectors v. */
INLINE void NAME(outer)(const float *a, int64_t a_row, int64_t a_step, const float *b, int64_t b_step, int64_t steps,
                        const float *start, int adding, float *out, int64_t out_row, int many, int vectors) {
    NAME(vf) sum[MANY][2], none = {0};
    for (int i = 0; i < many; i++)
        for (int v = 0; v < vectors; v++) sum[i][v] = start ? none + start[i] : none;
    for (int64_t k = 0; k < steps; k++) {
        NAME(vf) own[2];
        for (int v = 0; v < vectors; v++) own[v] = NAME(get)(b + k * b_step + v * WIDE);
        for (int i = 0; i < many; i++)
            for (int v = 0; v < vectors; v++) sum[i][v] += a[i * a_row + k * a_step] * own[v];
    }
    for (int i = 0; i < many; i++)
        for (int v = 0; v < vectors; v++) {
            float *to = out + i * out_row + v * WIDE;
            NAME(put)(to, adding ? NAME(get)(to) + sum[i][v] : sum[i][v]);
        }
}

/* The same for up to MANY i, and for one or two vectors. */
INLINE void NAME(outer_of)(const float *a, int64_t a_row, int64_t a_step, const float *b, int64_t b_step, int64_t steps,
                           const float *start, int adding, float *out, int64_t out_row, int64_t many, int vectors) {
    for (int64_t i = 0; i < many;) {
        int size = many - i >= MANY ? MANY : many - i >= 4 ? 4 : many - i >= 2 ? 2 : 1;
        const float *from = a + i * a_row, *first = start ? start + i : NULL;
        float *to = out + i * out_row;
#define OUTER(n, v) NAME(outer)(from, a_row, a_step, b, b_step, steps, first, adding, to, out_row, n, v)
        if (vectors == 2) {
            if (size == MANY) OUTER(MANY, 2);
            else if (size == 4) OUTER(4, 2);
            else if (size == 2) OUTER(2, 2);
            else OUTER(1, 2);
        } else {
            if (size == MANY) OUTER(MANY, 1);
            else if (size == 4) OUTER(4, 1);
            else if (size == 2) OUTER(2, 1);
            else OUTER(1, 1);
        }
#undef OUTER
        i += size;
    }
}

/* Transpose WIDE vectors: each round interleaves the first half with the second. */
INLINE void NAME(transpose)(NAME(vf) *x) {
    for (int round = 1; round < WIDE; round *= 2) {
        NAME(vf) y[WIDE];
        for (int i = 0; i < WIDE / 2; i++) {
            y[2 * i] = LOWS(x[i], x[i + WIDE / 2]);
            y[2 * i + 1] = HIGHS(x[i], x[i + WIDE / 2]);
        }
        for (int i = 0; i < WIDE; i++) x[i] = y[i];
    }
}

/* scores [rows, n] = hidden weight^T + bias. Vectors hold rows, so a block of labels is transposed before it is stored. */
static void NAME(linear_scores)(const linear_plan *p, const float *weight, const float *bias, int64_t n, float *scores) {
    int64_t rows = p->j->num_rows, size = p->h->size;
    float block[WIDE * 2 * WIDE];
    memset(block, 0, sizeof block);
    for (int64_t r = 0; r < rows; r += 2 * WIDE) {
        int vectors = rows - r > WIDE ? 2 : 1;
        for (int64_t l = 0; l < n; l += WIDE) {
            int64_t count = n - l < WIDE ? n - l : WIDE;
            NAME(outer_of)(weight + l * p->h->stride, p->h->stride, 1, p->across + r / PANEL * PANEL * size + r % PANEL, PANEL, size,
                           bias ? bias + l : NULL, 0, block, 2 * WIDE, count, vectors);
            for (int v = 0; v < vectors; v++) {
                NAME(vf) x[WIDE];
                int64_t first = r + v * WIDE, valid = rows - first < WIDE ? rows - first : WIDE;
                for (int i = 0; i < WIDE; i++) x[i] = NAME(get)(block + i * 2 * WIDE + v * WIDE);
                NAME(transpose)(x);
                if (valid == WIDE) for (int i = 0; i < WIDE; i++) NAME(put)(scores + (first + i) * p->stride + l, x[i]);
                else for (int64_t i = 0; i < valid; i++) NAME(put)(scores + (first + i) * p->stride + l, x[i]);
            }
        }
    }
}

/* Vectors of the hidden size that are computed together from column d on. */
INLINE int NAME(vectors_at)(const linear_plan *p, int64_t d) { return p->padded - d > WIDE ? 2 : 1; }

/* by_hidden [rows, padded] += grad [rows, n] weight [n, padded]. */
static void NAME(linear_by_hidden)(const linear_plan *p, const float *grad, const float *weight, int64_t stride, int64_t n,
                                   float *by_hidden) {
    for (int64_t l = 0; l < n; l += 64) {
        int64_t steps = n - l < 64 ? n - l : 64;
        for (int64_t d = 0; d < p->padded; d += 2 * WIDE)
            for (int64_t r = 0; r < p->j->num_rows; r += MANY) {
                int64_t many = p->j->num_rows - r < MANY ? p->j->num_rows - r : MANY;
                NAME(outer_of)(grad + r * p->stride + l, p->stride, 1, weight + l * stride + d, stride, steps, NULL, 1,
                               by_hidden + r * p->padded + d, p->padded, many, NAME(vectors_at)(p, d));
            }
    }
}

/* by_weight [n, padded] = grad^T [n, rows] hidden [rows, padded]. */
static void NAME(linear_by_weight)(const linear_plan *p, const float *grad, int64_t n, float *by_weight, int64_t stride) {
    for (int64_t l = 0; l < n; l += MANY) {
        int64_t many = n - l < MANY ? n - l : MANY;
        for (int64_t d = 0; d < p->padded; d += 2 * WIDE)
            NAME(outer_of)(grad + l, 1, p->stride, p->hidden + d / PANEL * PANEL * p->j->num_rows + d % PANEL, PANEL, p->j->num_rows, NULL, 0,
                           by_weight + l * stride + d, stride, many, NAME(vectors_at)(p, d));
    }
}
