/* Loads the labels and scores of a chunk for the loops of rows.h, which includes this file. */

/* Labels of a chunk as floats in t. */
static void NAME(soft_labels)(const job *j, int64_t r, int64_t start, int64_t n, float *restrict t) {
    if (j->label_kind == SPARSE) {
        int64_t stop, at = first_listed(j, r, start, start + n, &stop);
        memset(t, 0, (size_t)n * 4);
        for (; at < stop; at++) {
            int64_t i = j->indices[at] - j->first - start;
            if ((uint64_t)i < (uint64_t)n) t[i] = j->listed_values ? j->listed_values[at] : 1.0f;
        }
    } else NAME(widen)((const char *)j->labels + (r * j->label_stride + start) * kind_size[j->label_kind], j->label_kind, n, t);
}

/* Labels of a chunk as bytes in k->y, not 0 for positives. Returns 0 if some labels are soft, neither 0 nor 1. */
static int NAME(hard_labels)(const job *j, int64_t r, int64_t start, int64_t n, scratch *k) {
    k->y = k->labels;
    if (j->label_kind == U8) {
        k->y = (const uint8_t *)j->labels + r * j->label_stride + start;
    } else if (j->label_kind == SPARSE && !j->listed_values) {
        int64_t stop, at = first_listed(j, r, start, start + n, &stop);
        memset(k->labels, 0, (size_t)n);
        for (; at < stop; at++) {
            int64_t i = j->indices[at] - j->first - start;
            if ((uint64_t)i < (uint64_t)n) k->labels[i] = 1;
        }
    } else {
        const float *t = (const float *)j->labels + r * j->label_stride + start;
        if (j->label_kind != F32) NAME(soft_labels)(j, r, start, n, k->wp), t = k->wp;
        int32_t odd = 0;
        for (int64_t i = 0; i < n; i++) {
            odd |= (t[i] != 0.0f) & (t[i] != 1.0f);
            k->labels[i] = t[i] != 0.0f;
        }
        return !odd;
    }
    return 1;
}

/* Write the weights of every term to k->wp and k->wn; k->wp holds the labels before. */
static void NAME(weigh)(const job *j, int64_t start, int64_t n, const uint8_t *where, scratch *k) {
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
}

/* Labels of a chunk: hard labels in k->y (k->hard is set), otherwise the two weights of every term. Entries that do not count
 * are negatives, or have weights of 0. */
static void NAME(load_labels)(const job *j, int64_t r, int64_t start, int64_t n, int want_hard, scratch *k) {
    int64_t padded = (n + LANES - 1) / LANES * LANES;
    const uint8_t *where = j->where ? j->where + r * j->where_stride + start : NULL;
    k->hard = want_hard && is_plain(j) && NAME(hard_labels)(j, r, start, n, k);
    if (k->hard) {
        if (where) for (int64_t i = 0; i < n; i++) k->labels[i] = (k->y[i] != 0) & (where[i] != 0);
        else if (padded != n && k->y != k->labels) memcpy(k->labels, k->y, (size_t)n);
        if (where || padded != n) k->y = k->labels;
        for (int64_t i = n; i < padded; i++) k->labels[i] = 0;
        return;
    }
    NAME(soft_labels)(j, r, start, n, k->wp);
    NAME(weigh)(j, start, n, where, k);
    for (int64_t i = n; i < padded; i++) k->wp[i] = k->wn[i] = 0.0f;
}

/* Scores of a chunk as floats, with blank in the padding and for entries that do not count. Returns a pointer into the input if
 * nothing has to be converted, otherwise to. */
static const float *NAME(load_scores)(const job *j, int64_t r, int64_t start, int64_t n, float blank, float *restrict to) {
    int64_t padded = (n + LANES - 1) / LANES * LANES;
    const char *x = (const char *)j->x + (r * j->x_stride + start) * kind_size[j->x_kind];
    const uint8_t *where = j->where ? j->where + r * j->where_stride + start : NULL;
    if (j->x_kind == F32 && padded == n && !where) return (const float *)x;
    NAME(widen)(x, j->x_kind, n, to);
    if (where) for (int64_t i = 0; i < n; i++) to[i] = where[i] ? to[i] : blank;
    for (int64_t i = n; i < padded; i++) to[i] = blank;
    return to;
}

/* Read one chunk. Entries that do not count add 0 and get gradient 0: with hard labels by a score of -inf, otherwise by weights
 * of 0. */
static int64_t NAME(load)(const job *j, int64_t r, int64_t c, int want_hard, scratch *k) {
    int64_t start = c * CHUNK, n = j->num_labels - start < CHUNK ? j->num_labels - start : CHUNK;
    NAME(load_labels)(j, r, start, n, want_hard, k);
    k->s = NAME(load_scores)(j, r, start, n, k->hard ? -INFINITY : 0.0f, k->x);
    return n;
}
