/* Matrix products for LSTM layers. Included by lstm.h.
 *
 * The second factor is packed: panels of PANEL_WIDE columns, [columns / PANEL_WIDE, terms, PANEL_WIDE], filled up with zeros. */

#define PANEL_WIDE (2 * WIDE)

/* out[row i] (+)= sum over k of a[i, k] b[list[k]], for `many` rows and `vectors` vectors; a list of NULL is 0, 1, 2, ...
 * With a_list, row i of a is its row a_list[i]. Results that are not in cache are fetched `ahead`, during the sums. */
INLINE void NAME(lstm_tile)(const float *a, int64_t a_row, int64_t a_step, const int32_t *a_list, const float *b,
                            const int32_t *list, int listed, int64_t terms, int adding, int ahead, float **out, int many, int vectors) {
    const float *row[MANY];
    for (int i = 0; i < many && a_list; i++) row[i] = a + a_list[i] * a_row;
    NAME(vf) sum[MANY][2], none = {0};
    for (int i = 0; i < many; i++) {
        for (int v = 0; v < vectors; v++) sum[i][v] = none;
        for (int v = 0; v < vectors * WIDE && ahead; v += 16) __builtin_prefetch(out[i] + v, 1);
    }
    for (int64_t k = 0; k < terms; k++) {
        const float *from = b + (listed ? list[k] : k) * PANEL_WIDE;
        NAME(vf) own[2];
        for (int v = 0; v < vectors; v++) own[v] = NAME(get)(from + v * WIDE);
        for (int i = 0; i < many; i++)
            for (int v = 0; v < vectors; v++) sum[i][v] += (a_list ? row[i][k * a_step] : a[i * a_row + k * a_step]) * own[v];
    }
    for (int i = 0; i < many; i++)
        for (int v = 0; v < vectors; v++) {
            float *to = out[i] + v * WIDE;
            NAME(put)(to, adding ? NAME(get)(to) + sum[i][v] : sum[i][v]);
        }
}

/* The same for any number of rows and columns: out[rows[i]] or, with rows NULL, out[i]. */
INLINE void NAME(lstm_block)(const float *a, int64_t a_row, int64_t a_step, const int32_t *a_list, const float *b,
                             int64_t panel, const int32_t *list, int listed, int64_t terms, int adding, int ahead, float *out,
                             int64_t out_row, const int32_t *rows, int64_t num_rows, int64_t num_columns) {
    for (int64_t c = 0; c < num_columns; c += PANEL_WIDE, b += panel)
        for (int64_t i = 0; i < num_rows;) {
            int64_t left = num_rows - i, size = left >= MANY ? MANY : left >= 4 ? 4 : left >= 2 ? 2 : 1;
            const float *from = a_list ? a : a + i * a_row;
            const int32_t *own = a_list ? a_list + i : NULL;
            float *to[MANY];
            for (int64_t n = 0; n < size; n++) to[n] = out + (rows ? rows[i + n] : i + n) * out_row + c;
#define LSTM_TILE(n, v) NAME(lstm_tile)(from, a_row, a_step, own, b, list, listed, terms, adding, ahead, to, n, v)
            if (num_columns - c > WIDE) {
                if (size == MANY) LSTM_TILE(MANY, 2);
                else if (size == 4) LSTM_TILE(4, 2);
                else if (size == 2) LSTM_TILE(2, 2);
                else LSTM_TILE(1, 2);
            } else {
                if (size == MANY) LSTM_TILE(MANY, 1);
                else if (size == 4) LSTM_TILE(4, 1);
                else if (size == 2) LSTM_TILE(2, 1);
                else LSTM_TILE(1, 1);
            }
#undef LSTM_TILE
            i += size;
        }
}

/* out [rows, columns] (+)= a [rows, terms] b, b packed. */
INLINE void NAME(lstm_product)(const float *a, int64_t a_row, const float *b, int64_t terms, int adding, int ahead, float *out,
                               int64_t out_row, int64_t num_rows, int64_t num_columns) {
    for (int64_t i = 0; i < num_rows; i += LSTM_BLOCK)
        for (int64_t k = 0; k < terms; k += LSTM_DEPTH)
            NAME(lstm_block)(a + i * a_row + k, a_row, 1, NULL, b + k * PANEL_WIDE, terms * PANEL_WIDE, NULL, 0,
                             terms - k < LSTM_DEPTH ? terms - k : LSTM_DEPTH, adding || k > 0, ahead, out + i * out_row, out_row, NULL,
                             num_rows - i < LSTM_BLOCK ? num_rows - i : LSTM_BLOCK, num_columns);
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
                    NAME(lstm_block)(w->first + g * terms, 1, MANY, NULL, w->second + c * terms, 0, NULL, 0, terms, k > 0, 0, out + g * n + c,
                                     n, NULL, MANY, n - c < PANEL_WIDE ? n - c : PANEL_WIDE);
    }
}
