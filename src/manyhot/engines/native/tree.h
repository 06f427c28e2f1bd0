/* Label trees: solving a block, halving a set of labels. Included by engine.c, after the variants; tree_search.h has the search. */

static int compare_columns(const void *a, const void *b) {
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

/* The rows of a block without a copy: where their entries are in the matrix, and their squared norms. */
static int rows_in_place(const tree_block *b, tree_rows *to) {
    to->starts = malloc((size_t)(b->num_rows + 1) * 8), to->ends = malloc((size_t)(b->num_rows + 1) * 8);
    to->squares = malloc((size_t)(b->num_rows + 1) * 4);
    if (!to->starts || !to->ends || !to->squares) return 1;
    for (int64_t i = 0; i < b->num_rows; i++) {
        double square = 1.0;
        to->starts[i] = b->offsets[b->rows[i]], to->ends[i] = b->offsets[b->rows[i] + 1];
        for (int64_t e = to->starts[i]; e < to->ends[i]; e++) square += (double)b->values[e] * b->values[e];
        to->squares[i] = (float)square;
    }
    to->num_features = b->num_columns, to->columns = b->columns, to->values = b->values;
    return 0;
}

/* A copy of the rows of a block, with features numbered in the order of their columns; `found` gets these columns. */
static int local_rows(const tree_block *b, tree_rows *to, int32_t **found) {
    int64_t entries = 0, n = 0, at = 0;
    if (rows_in_place(b, to)) return 1;
    for (int64_t i = 0; i < b->num_rows; i++) entries += to->ends[i] - to->starts[i];
    int32_t *place = malloc((size_t)(b->num_columns + 1) * 4);
    *found = malloc((size_t)((entries < b->num_columns ? entries : b->num_columns) + 1) * 4);
    to->own_columns = malloc((size_t)(entries + 1) * 4), to->own_values = malloc((size_t)(entries + 1) * 4);
    if (!place || !*found || !to->own_columns || !to->own_values) {
        free(place);
        return 1;
    }
    memset(place, 0xff, (size_t)b->num_columns * 4);
    for (int64_t i = 0; i < b->num_rows; i++)
        for (int64_t e = to->starts[i]; e < to->ends[i]; e++)
            if (place[b->columns[e]] < 0) place[b->columns[e]] = 0, (*found)[n++] = b->columns[e];
    qsort(*found, (size_t)n, 4, compare_columns);
    for (int64_t f = 0; f < n; f++) place[(*found)[f]] = (int32_t)f;
    for (int64_t i = 0; i < b->num_rows; i++) {
        int64_t begun = at;
        for (int64_t e = to->starts[i]; e < to->ends[i]; e++, at++)
            to->own_columns[at] = place[b->columns[e]], to->own_values[at] = b->values[e];
        to->starts[i] = begun, to->ends[i] = at;
    }
    to->num_features = n, to->columns = to->own_columns, to->values = to->own_values;
    free(place);
    return 0;
}

/* Store the weights whose absolute value is at least `least`, sorted by feature. */
static int keep_weights(tree_block *b, const float *w, const int32_t *found, int64_t num_features, int64_t size) {
    float least = (float)b->least;
    int64_t weights = 0, features = 0, at = 0;
    for (int64_t f = 0; f < num_features; f++) {
        int64_t own = 0;
        for (int64_t k = 0; k < b->num_children; k++) own += fabsf(w[f * size + k]) >= least;
        weights += own, features += own > 0;
    }
    b->num_features = features, b->num_weights = weights;
    b->features = malloc((size_t)(features + 1) * 4), b->ends = malloc((size_t)(features + 1) * 8);
    b->children = malloc((size_t)(weights + 1)), b->kept = malloc((size_t)(weights + 1) * 4);
    b->bias = malloc((size_t)(b->num_children + 1) * 4);
    if (!b->features || !b->ends || !b->children || !b->kept || !b->bias) return 1;
    features = 0;
    for (int64_t f = 0; f < num_features; f++) {
        int64_t before = at;
        for (int64_t k = 0; k < b->num_children; k++)
            if (fabsf(w[f * size + k]) >= least) b->children[at] = (uint8_t)k, b->kept[at++] = w[f * size + k];
        if (at > before) b->features[features] = found ? found[f] : (int32_t)f, b->ends[features++] = at;
    }
    memcpy(b->bias, w + num_features * size, (size_t)b->num_children * 4);
    return 0;
}

void manyhot_tree_free(tree_block *b) {
    free(b->features), free(b->ends), free(b->children), free(b->kept), free(b->bias);
    b->features = NULL, b->ends = NULL, b->children = NULL, b->kept = NULL, b->bias = NULL;
}

/* Returns 0, or 1 if memory ran out. The caller must free the result in both cases. */
int manyhot_tree_solve(tree_block *b) {
    int64_t size = (b->num_children + LANES - 1) / LANES * LANES;
    tree_rows local = {0};
    int32_t *found = NULL;
    int failed = b->in_place ? rows_in_place(b, &local) : local_rows(b, &local, &found);
    void *w = NULL, *alpha = NULL, *room = NULL;
    size_t weights = (size_t)((local.num_features + 1) * size) * 4, parts = (size_t)(b->num_rows * size + LANES) * 4;
    failed = failed || posix_memalign(&w, 64, weights) || (!b->duals && posix_memalign(&alpha, 64, parts)) ||
             posix_memalign(&room, 64, (size_t)(2 * size) * 4);
    if (!failed) {
        memset(w, 0, weights);
        if (alpha) memset(alpha, 0, parts);
        variants[b->variant].solve_block(b, &local, w, b->duals ? b->duals : alpha, room, size);
        failed = keep_weights(b, w, found, local.num_features, size);
    }
    free(w), free(alpha), free(room), free(found);
    free(local.starts), free(local.ends), free(local.own_columns), free(local.own_values), free(local.squares);
    return failed;
}

typedef struct {
    float score;
    int64_t index;
} scored;

static int compare_scored(const void *a, const void *b) {
    const scored *x = a, *y = b;
    if (x->score != y->score) return x->score < y->score ? 1 : -1;
    return (x->index > y->index) - (x->index < y->index);
}

/* Add sparse vectors, times `by`, to `sum`; returns the norm of the sum. */
static double add_vectors(float *sum, const int64_t *offsets, const int32_t *columns, const float *values, const int32_t *which,
                          int64_t n, float by) {
    double square = 0.0;
    for (int64_t i = 0; i < n; i++)
        for (int64_t e = offsets[which[i]]; e < offsets[which[i] + 1]; e++) {
            float before = sum[columns[e]], after = before + by * values[e];
            sum[columns[e]] = after, square += ((double)after - before) * ((double)after + before);
        }
    return sqrt(square > 0.0 ? square : 0.0);
}

/* Balanced 2-means: sorts `labels [n]` by how much closer they are to one mean than to the other, and repeats with the means of
 * both halves until the gain is small, at most `most` times. Vectors have norm 1. The initial means are the labels at `first`
 * and `second`; `sum [columns]` is a workspace of zeros, and is zero again afterwards. Returns 1 if memory ran out. */
int manyhot_tree_halve(int64_t n, int32_t *labels, int64_t first, int64_t second, int64_t most, const int64_t *offsets,
                       const int32_t *columns, const float *values, float *sum) {
    scored *order = malloc((size_t)(n + 1) * sizeof(scored));
    if (!order) return 1;
    add_vectors(sum, offsets, columns, values, labels + first, 1, -1.0f);
    add_vectors(sum, offsets, columns, values, labels + second, 1, 1.0f);
    double last = -1e300;
    int64_t half = n / 2;
    for (int64_t round = 0;; round++) {
        double gain = 0.0;
        for (int64_t i = 0; i < n; i++) {
            float s = 0.0f;
            for (int64_t e = offsets[labels[i]]; e < offsets[labels[i] + 1]; e++) s += values[e] * sum[columns[e]];
            order[i].score = s, order[i].index = labels[i];
        }
        for (int64_t i = 0; i < n; i++)
            for (int64_t e = offsets[labels[i]]; e < offsets[labels[i] + 1]; e++) sum[columns[e]] = 0.0f;
        qsort(order, (size_t)n, sizeof(scored), compare_scored);
        for (int64_t i = 0; i < n; i++) labels[i] = (int32_t)order[i].index, gain += i < half ? order[i].score : -order[i].score;
        gain /= (double)n;
        if (round >= most || gain - last < 1e-4) break;
        last = gain;
        double lengths[2];
        for (int part = 0; part < 2; part++) {
            int64_t at = part ? half : 0, size = part ? n - half : half;
            lengths[part] = add_vectors(sum, offsets, columns, values, labels + at, size, 1.0f);
            for (int64_t i = at; i < at + size; i++)
                for (int64_t e = offsets[labels[i]]; e < offsets[labels[i] + 1]; e++) sum[columns[e]] = 0.0f;
        }
        add_vectors(sum, offsets, columns, values, labels, half, (float)(1.0 / (lengths[0] > 0 ? lengths[0] : 1.0)));
        add_vectors(sum, offsets, columns, values, labels + half, n - half, -(float)(1.0 / (lengths[1] > 0 ? lengths[1] : 1.0)));
    }
    free(order);
    return 0;
}

/* Lets tree.py detect a library of another version. */
int64_t manyhot_tree_size(void) { return (int64_t)(sizeof(tree_block) + 1000 * sizeof(tree_level) + 1000000 * sizeof(tree_search)); }
