/* Matrix products for LSTM layers. Included by lstm.h.
 *
 * The second factor is packed: panels of PANEL_WIDE columns, [columns / PANEL_WIDE, terms, PANEL_WIDE], filled up with zeros. */

#define PANEL_WIDE (2 * WIDE)

/* out[row i] (+)= sum over k of a[i, k] b[k], for `many` rows and `vectors` vectors. */
INLINE void NAME(lstm_tile)(const lstm_factors *f, int kind, float **out, int many, int vectors) {
    NAME(vf) sum[MANY][2], none = {0};
    const float *a = f->a, *b = f->b, *row[MANY];
    const int32_t *list = f->list;
    int64_t a_row = f->a_row, a_step = f->a_step, terms = f->terms, b_step = kind == LSTM_STRIDED ? f->b_step : PANEL_WIDE;
    for (int i = 0; i < many; i++) {
        for (int v = 0; v < vectors; v++) sum[i][v] = none;
        for (int v = 0; v < vectors * WIDE && f->ahead; v += 16) __builtin_prefetch(out[i] + v, 1);
        row[i] = kind == LSTM_ROWS ? a + list[i] * a_row : NULL;
    }
    for (int64_t k = 0; k < terms; k++) {
        const float *from = b + (kind == LSTM_LISTED || kind == LSTM_STRIDED ? list[k] : k) * b_step;
        NAME(vf) own[2];
        for (int v = 0; v < vectors; v++) own[v] = NAME(get)(from + v * WIDE);
        for (int i = 0; i < many; i++)
            for (int v = 0; v < vectors; v++)
                sum[i][v] += (kind == LSTM_ROWS ? row[i][k] : a[i * a_row + k * a_step]) * own[v];
    }
    for (int i = 0; i < many; i++)
        for (int v = 0; v < vectors; v++) {
            float *to = out[i] + v * WIDE;
            NAME(put)(to, f->adding ? NAME(get)(to) + sum[i][v] : sum[i][v]);
        }
}

/* Each is a function of its own: compilers keep the sums in registers then. */
#define LSTM_TILE(kind, number, many, vectors)                                                                         \
    static __attribute__((noinline)) void NAME(lstm_tile_##kind##_##number##_##vectors)(const lstm_factors *f,   \
                                                                                        float **out) {                 \
        NAME(lstm_tile)(f, kind, out, many, vectors);                                                                  \
    }
#define LSTM_TILES(kind)                                                                                               \
    LSTM_TILE(kind, all, MANY, 1) LSTM_TILE(kind, all, MANY, 2) LSTM_TILE(kind, four, 4, 1) LSTM_TILE(kind, four, 4, 2)  \
    LSTM_TILE(kind, two, 2, 1) LSTM_TILE(kind, two, 2, 2) LSTM_TILE(kind, one, 1, 1) LSTM_TILE(kind, one, 1, 2)        \
    /* The same for any number of rows and columns: out[rows[i]] or, with rows NULL, out[i]. */                        \
    static void NAME(lstm_block_##kind)(lstm_factors f, int64_t panel, float *out, int64_t out_row,              \
                                        const int32_t *rows, int64_t num_rows, int64_t num_columns) {                  \
        lstm_factors own = f;                                                                                    \
        for (int64_t c = 0; c < num_columns; c += PANEL_WIDE, own.b += panel)                                          \
            for (int64_t i = 0; i < num_rows;) {                                                                       \
                int64_t left = num_rows - i, size = left >= MANY ? MANY : left >= 4 ? 4 : left >= 2 ? 2 : 1;           \
                float *to[MANY];                                                                                       \
                for (int64_t n = 0; n < size; n++) to[n] = out + (rows ? rows[i + n] : i + n) * out_row + c;           \
                if (kind == LSTM_ROWS) own.list = f.list + i;                                                          \
                else own.a = f.a + i * f.a_row;                                                                        \
                if (num_columns - c > WIDE) {                                                                          \
                    if (size == MANY) NAME(lstm_tile_##kind##_all_2)(&own, to);                                        \
                    else if (size == 4) NAME(lstm_tile_##kind##_four_2)(&own, to);                                     \
                    else if (size == 2) NAME(lstm_tile_##kind##_two_2)(&own, to);                                      \
                    else NAME(lstm_tile_##kind##_one_2)(&own, to);                                                     \
                } else if (size == MANY) NAME(lstm_tile_##kind##_all_1)(&own, to);                                     \
                else if (size == 4) NAME(lstm_tile_##kind##_four_1)(&own, to);                                         \
                else if (size == 2) NAME(lstm_tile_##kind##_two_1)(&own, to);                                          \
                else NAME(lstm_tile_##kind##_one_1)(&own, to);                                                         \
                i += size;                                                                                             \
            }                                                                                                          \
    }

LSTM_TILES(LSTM_PLAIN)
LSTM_TILES(LSTM_LISTED)
LSTM_TILES(LSTM_STRIDED)
LSTM_TILES(LSTM_ROWS)
#undef LSTM_TILES
#undef LSTM_TILE

/* out [rows, columns] (+)= a [rows, terms] b, b packed. */
static void NAME(lstm_product)(const float *a, int64_t a_row, const float *b, int64_t terms, int adding, int ahead, float *out,
                               int64_t out_row, int64_t num_rows, int64_t num_columns) {
    int64_t parts = (terms + LSTM_DEPTH + 63) / (LSTM_DEPTH + 64), depth = (terms + parts - 1) / parts; /* no small rest */
    for (int64_t i = 0; i < num_rows; i += LSTM_BLOCK)
        for (int64_t k = 0; k < terms; k += depth)
            NAME(lstm_block_LSTM_PLAIN)(
                (lstm_factors){a + i * a_row + k, b + k * PANEL_WIDE, a_row, 1, PANEL_WIDE,
                                     terms - k < depth ? terms - k : depth, NULL, adding || k > 0, ahead},
                terms * PANEL_WIDE, out + i * out_row, out_row, NULL, num_rows - i < LSTM_BLOCK ? num_rows - i : LSTM_BLOCK,
                num_columns);
}

/* out[i, t] = the product of row a_list[i] of a and row b_list[t] of b, for up to 8 rows t. Vectors run along the terms. */
INLINE void NAME(lstm_dots)(const float *a, int64_t a_row, const int32_t *a_list, const float *b, int64_t b_row,
                            const int32_t *b_list, int64_t terms, float *out, int64_t out_row, int many, int64_t count) {
    for (int64_t t = 0; t < count; t += 4) {
        NAME(vf) sum[4][4], none = {0};
        const float *one[4], *two[4];
        for (int i = 0; i < 4; i++) one[i] = a + a_list[i < many ? i : 0] * a_row, two[i] = b + b_list[t + i < count ? t + i : t] * b_row;
        for (int i = 0; i < 4; i++)
            for (int n = 0; n < 4; n++) sum[i][n] = none;
        for (int64_t k = 0; k < terms; k += WIDE)
            for (int i = 0; i < 4; i++)
                for (int n = 0; n < 4; n++) sum[i][n] += NAME(get)(one[i] + k) * NAME(get)(two[n] + k);
        for (int i = 0; i < many; i++)
            for (int64_t n = 0; n < 4 && t + n < count; n++) out[i * out_row + t + n] = NAME(sum_lane)(sum[i][n]);
    }
}

/* Rows of `from`, those of a list or all, in panels of `wide` columns. */
static void NAME(lstm_pack)(const float *from, int64_t stride, const int32_t *rows, int64_t num_rows, int64_t num_columns,
                            int64_t wide, float *to) {
    for (int64_t c = 0; c < num_columns; c += wide) {
        int64_t valid = num_columns - c < wide ? num_columns - c : wide;
        for (int64_t r = 0; r < num_rows; r++, to += wide) {
            const float *own = from + (rows ? rows[r] : r) * stride + c;
            if (valid == PANEL_WIDE) memcpy(to, own, PANEL_WIDE * 4);
            else if (valid == MANY) memcpy(to, own, MANY * 4);
            else for (int64_t i = 0; i < wide; i++) to[i] = i < valid ? own[i] : 0.0f;
        }
    }
}

/* from [columns, terms], its rows or those of a list, transposed and packed. Both sizes but the number of rows are whole vectors. */
static void NAME(lstm_pack_across)(const float *from, int64_t stride, const int32_t *rows, int64_t num_columns, int64_t terms,
                                   float *to) {
    for (int64_t c = 0; c < num_columns; c += PANEL_WIDE, to += terms * PANEL_WIDE)
        for (int64_t v = 0; v < PANEL_WIDE; v += WIDE)
            for (int64_t k = 0; k < terms; k += WIDE) {
                NAME(vf) x[WIDE], none = {0};
                for (int64_t i = 0; i < WIDE; i++) {
                    int64_t row = c + v + i;
                    x[i] = row < num_columns ? NAME(get)(from + (rows ? rows[row] : row) * stride + k) : none;
                }
                NAME(transpose)(x);
                for (int64_t i = 0; i < WIDE; i++) NAME(put)(to + (k + i) * PANEL_WIDE + v, x[i]);
            }
}

/* out [m, n] = the sum over `count` tokens of the outer products of grad [m] and x [n], both by their lists of rows. */
static void NAME(lstm_outer)(const float *grad, int64_t grad_row, const int32_t *grad_rows, const float *x, int64_t x_row,
                             const int32_t *x_rows, int64_t count, int64_t m, int64_t n, float *out, lstm_room *w) {
    if (!count) memset(out, 0, (size_t)(m * n) * 4);
    for (int64_t k = 0; k < count; k += LSTM_DEPTH) {
        int64_t terms = count - k < LSTM_DEPTH ? count - k : LSTM_DEPTH;
        NAME(lstm_pack)(grad_rows ? grad : grad + k * grad_row, grad_row, grad_rows ? grad_rows + k : NULL, terms, m, MANY, w->first);
        NAME(lstm_pack)(x_rows ? x : x + k * x_row, x_row, x_rows ? x_rows + k : NULL, terms, n, PANEL_WIDE, w->second);
        for (int64_t i = 0; i < m; i += LSTM_BLOCK)
            for (int64_t c = 0; c < n; c += PANEL_WIDE)
                for (int64_t g = i; g < m && g < i + LSTM_BLOCK; g += MANY)
                    NAME(lstm_block_LSTM_PLAIN)(
                        (lstm_factors){w->first + g * terms, w->second + c * terms, 1, MANY, PANEL_WIDE, terms, NULL, k > 0, 0},
                        0, out + g * n + c, n, NULL, MANY, n - c < PANEL_WIDE ? n - c : PANEL_WIDE);
    }
}
