/* One direction of an LSTM layer, forward and backward. Included by rows.h.
 *
 *     z = W x_t + U h_{t-1} + b     i, f, o = sigma(z)     g = tanh(z)     c_t = f c_{t-1} + i g     h_t = o tanh(c_t)
 *
 * Rows are packed, so padding costs nothing, and both directions read the same tokens in another order. */

#include "lstm_products.h"

INLINE NAME(vf) NAME(sigmoid_of)(NAME(vf) x) { return 1.0f / (1.0f + NAME(exp_of)(-x)); }

INLINE NAME(vf) NAME(tanh_of)(NAME(vf) x) {
    NAME(vf) s = x * x, far = 1.0f - 2.0f / (1.0f + NAME(exp_of)(x + x));
    /* Near 0 the difference would cancel: the series. */
    NAME(vf) near = x + x * s * (-0.33333333f + s * (0.13333333f + s * (-0.053968254f + s * 0.021869488f)));
    NAME(vu) small = (NAME(vu))(s < 0.0625f);
    return (NAME(vf))(((NAME(vu))near & small) | ((NAME(vu))far & ~small));
}

/* Gates, cells and states of one step. The first `follow` rows have a step before this one. */
static void NAME(lstm_gates)(const lstm_layer *l, int64_t count, int64_t follow, float *gates, const float *cells_before,
                             float *cells, float *out) {
    int64_t size = l->hidden, stride = 4 * size + LSTM_PAD;
    for (int64_t r = 0; r < count; r++)
        for (int64_t d = 0; d < size; d += WIDE) {
            float *z = gates + r * stride + d;
            const float *bias = l->bias + d;
            NAME(vf) none = {0}, before = r < follow ? NAME(get)(cells_before + r * size + d) : none;
            NAME(vf) i = NAME(sigmoid_of)(NAME(get)(z) + NAME(get)(bias));
            NAME(vf) f = NAME(sigmoid_of)(NAME(get)(z + size) + NAME(get)(bias + size));
            NAME(vf) g = NAME(tanh_of)(NAME(get)(z + 2 * size) + NAME(get)(bias + 2 * size));
            NAME(vf) o = NAME(sigmoid_of)(NAME(get)(z + 3 * size) + NAME(get)(bias + 3 * size));
            NAME(vf) c = f * before + i * g;
            NAME(put)(z, i), NAME(put)(z + size, f), NAME(put)(z + 2 * size, g), NAME(put)(z + 3 * size, o);
            NAME(put)(cells + r * size + d, c);
            NAME(put)(out + r * l->out_stride + d, o * NAME(tanh_of)(c));
        }
}

/* The gradients of z of one step, given those of its states and cells; that of the cells before it replaces the latter. */
static void NAME(lstm_gates_back)(const lstm_layer *l, int64_t count, int64_t follow, const float *gates, const float *cells_before,
                                  const float *cells, const float *out_grad, const float *state_grad, float *cell_grad,
                                  float *grad) {
    int64_t size = l->hidden, stride = 4 * size + LSTM_PAD;
    for (int64_t r = 0; r < count; r++)
        for (int64_t d = 0; d < size; d += WIDE) {
            const float *z = gates + r * stride + d;
            float *to = grad + r * stride + d;
            NAME(vf) i = NAME(get)(z), f = NAME(get)(z + size), g = NAME(get)(z + 2 * size), o = NAME(get)(z + 3 * size);
            NAME(vf) none = {0}, before = r < follow ? NAME(get)(cells_before + r * size + d) : none;
            NAME(vf) by_state = NAME(get)(out_grad + r * l->out_stride + d) + NAME(get)(state_grad + r * size + d);
            NAME(vf) t = NAME(tanh_of)(NAME(get)(cells + r * size + d));
            NAME(vf) by_cell = NAME(get)(cell_grad + r * size + d) + by_state * o * (1.0f - t * t);
            NAME(put)(cell_grad + r * size + d, by_cell * f);
            NAME(put)(to, by_cell * g * i * (1.0f - i));
            NAME(put)(to + size, by_cell * before * f * (1.0f - f));
            NAME(put)(to + 2 * size, by_cell * i * (1.0f - g * g));
            NAME(put)(to + 3 * size, by_state * t * o * (1.0f - o));
        }
}

/* to [columns, rows] = from [rows, columns], transposed; both sizes are whole vectors. */
static void NAME(lstm_turn)(const float *from, int64_t stride, int64_t num_rows, int64_t num_columns, float *to, int64_t to_stride) {
    for (int64_t r = 0; r < num_rows; r += WIDE)
        for (int64_t c = 0; c < num_columns; c += WIDE) {
            NAME(vf) x[WIDE];
            for (int64_t i = 0; i < WIDE; i++) x[i] = NAME(get)(from + (r + i) * stride + c);
            NAME(transpose)(x);
            for (int64_t i = 0; i < WIDE; i++) NAME(put)(to + (c + i) * to_stride + r, x[i]);
        }
}

/* The kept inputs of all tokens, row after row: row r has lengths[r] tokens, whose numbers are in w->tokens. Both directions and
 * the backward pass use them. */
static void NAME(lstm_keep)(const lstm_layer *l, lstm_room *w) {
    float *to = l->x_kept;
    const int32_t *token = w->tokens;
    for (int64_t r = 0; r < l->rows; token += w->lengths[r++]) {
        const int32_t *kept = l->kept + l->kept_starts[r];
        int64_t count = l->kept_starts[r + 1] - l->kept_starts[r];
        for (int64_t t = 0; t < w->lengths[r]; t++)
            for (int64_t k = 0; k < count; k++) *to++ = l->x[token[t] * l->inputs + kept[k]] * l->scale;
    }
}

/* The products of kept inputs with their weights. Gates are taken LSTM_DEPTH at a time, so that their weights stay in cache. */
static void NAME(lstm_kept_inputs)(const lstm_layer *l, lstm_room *w) {
    int64_t stride = 4 * l->hidden + LSTM_PAD;
    for (int64_t c = 0; c < 4 * l->hidden; c += LSTM_DEPTH) {
        int64_t columns = 4 * l->hidden - c < LSTM_DEPTH ? 4 * l->hidden - c : LSTM_DEPTH;
        const float *x = l->x_kept;
        const int32_t *token = w->tokens;
        for (int64_t r = 0; r < l->rows; token += w->lengths[r++]) {
            int64_t count = l->kept_starts[r + 1] - l->kept_starts[r];
            NAME(lstm_block_LSTM_LISTED)(
                (lstm_factors){x, w->by_input + c * l->inputs, count, 1, PANEL_WIDE, count, l->kept + l->kept_starts[r], 0, 1},
                l->inputs * PANEL_WIDE, l->gates + c, stride, token, w->lengths[r], columns);
            x += w->lengths[r] * count;
        }
    }
}

/* The gradient of by_input, to which a row adds only at its kept inputs. */
static void NAME(lstm_kept_grad)(const lstm_layer *l, lstm_room *w) {
    int64_t gates = 4 * l->hidden, stride = gates + LSTM_PAD;
    memset(w->across, 0, (size_t)(stride * l->inputs) * 4);
    for (int64_t c = 0; c < gates; c += LSTM_DEPTH) {
        int64_t columns = gates - c < LSTM_DEPTH ? gates - c : LSTM_DEPTH;
        const float *x = l->x_kept;
        const int32_t *token = w->tokens;
        for (int64_t r = 0; r < l->rows; token += w->lengths[r++]) {
            int64_t count = l->kept_starts[r + 1] - l->kept_starts[r], length = w->lengths[r];
            NAME(lstm_block_LSTM_STRIDED)((lstm_factors){x, w->grad + c, 1, count, stride, length, token, 1, 0}, PANEL_WIDE,
                                          w->across + c, stride, l->kept + l->kept_starts[r], count, columns);
            x += length * count;
        }
    }
    NAME(lstm_turn)(w->across, stride, l->inputs, gates, l->by_input_grad, l->inputs);
}

/* The gradient of the kept inputs. Vectors hold tokens, but not for a last few, of which most lanes would be empty. */
static void NAME(lstm_kept_input_grad)(const lstm_layer *l, lstm_room *w) {
    int64_t gates = 4 * l->hidden, stride = gates + LSTM_PAD, wide = (l->steps + PANEL_WIDE - 1) / PANEL_WIDE * PANEL_WIDE;
    const int32_t *token = w->tokens;
    NAME(lstm_turn)(l->by_input, l->inputs, gates, l->inputs, w->by_input, stride);
    if (!l->adding) memset(l->x_grad, 0, (size_t)(l->tokens * l->inputs) * 4);
    for (int64_t r = 0; r < l->rows; token += w->lengths[r++]) {
        const int32_t *kept = l->kept + l->kept_starts[r];
        int64_t count = l->kept_starts[r + 1] - l->kept_starts[r], length = w->lengths[r];
        int64_t rest = length % WIDE <= WIDE / 2 ? length % WIDE : 0, full = length - rest;
        NAME(lstm_pack_across)(w->grad, stride, token, full, gates, w->turned);
        for (int64_t g = 0; g < gates; g += LSTM_DEPTH)
            NAME(lstm_block_LSTM_ROWS)(
                (lstm_factors){w->by_input + g, w->turned + g * PANEL_WIDE, stride, 1, PANEL_WIDE,
                                     gates - g < LSTM_DEPTH ? gates - g : LSTM_DEPTH, kept, g > 0, 0},
                gates * PANEL_WIDE, w->second, wide, NULL, count, (full + WIDE - 1) / WIDE * WIDE);
        for (int64_t k = 0; k < count && rest; k += 4)
            NAME(lstm_dots)(w->by_input, stride, kept + k, w->grad, stride, token + full, gates, w->second + k * wide + full, wide,
                            count - k < 4 ? (int)(count - k) : 4, rest);
        for (int64_t t = 0; t < length; t++) {
            float *to = l->x_grad + token[t] * l->inputs;
            for (int64_t k = 0; k < count; k++) to[kept[k]] += w->second[k * wide + t] * l->scale;
        }
    }
}

static void NAME(lstm_forward)(const lstm_layer *l, lstm_room *w) {
    int64_t size = l->hidden, gates = 4 * size, stride = gates + LSTM_PAD;
    NAME(lstm_pack_across)(l->by_input, l->inputs, NULL, gates, l->inputs, w->by_input);
    NAME(lstm_pack_across)(l->by_state, size, NULL, gates, size, w->by_state);
    if (l->kept && !l->reverse) NAME(lstm_keep)(l, w);
    if (l->kept) NAME(lstm_kept_inputs)(l, w);
    else NAME(lstm_product)(l->x, l->inputs, w->by_input, l->inputs, 0, 1, l->gates, stride, l->tokens, gates);
    for (int64_t s = 0; s < l->steps; s++) {
        int64_t follow, before, t = lstm_step(l, s, &follow, &before), first = l->starts[t];
        NAME(lstm_product)(l->out + before * l->out_stride, l->out_stride, w->by_state, size, 1, 1, l->gates + first * stride, stride,
                           follow, gates);
        NAME(lstm_gates)(l, l->starts[t + 1] - first, follow, l->gates + first * stride, l->cells + before * size,
                         l->cells + first * size, l->out + first * l->out_stride);
    }
}

/* The gradients of weights and bias, given those of the gates. */
static void NAME(lstm_weights_back)(const lstm_layer *l, lstm_room *w) {
    int64_t size = l->hidden, gates = 4 * size, stride = gates + LSTM_PAD, pairs = 0;
    memset(l->bias_grad, 0, (size_t)gates * 4);
    for (int64_t n = 0; n < l->tokens; n++)
        for (int64_t g = 0; g < gates; g += WIDE)
            NAME(put)(l->bias_grad + g, NAME(get)(l->bias_grad + g) + NAME(get)(w->grad + n * stride + g));
    if (l->kept) NAME(lstm_kept_grad)(l, w);
    else NAME(lstm_outer)(w->grad, stride, NULL, l->x, l->inputs, NULL, l->tokens, gates, l->inputs, l->by_input_grad, w);
    for (int64_t s = 0; s < l->steps; s++) {
        int64_t follow, before, t = lstm_step(l, s, &follow, &before);
        for (int64_t r = 0; r < follow; r++, pairs++) w->tokens[pairs] = (int32_t)(l->starts[t] + r), w->before[pairs] = (int32_t)(before + r);
    }
    NAME(lstm_outer)(w->grad, stride, w->tokens, l->out, l->out_stride, w->before, pairs, gates, size, l->by_state_grad, w);
}

static void NAME(lstm_backward)(const lstm_layer *l, lstm_room *w) {
    int64_t size = l->hidden, gates = 4 * size, stride = gates + LSTM_PAD;
    NAME(lstm_pack)(l->by_state, size, NULL, gates, size, PANEL_WIDE, w->by_state);
    memset(w->state_grad, 0, (size_t)(l->rows * size) * 4);
    memset(w->cell_grad, 0, (size_t)(l->rows * size) * 4);
    for (int64_t s = l->steps - 1; s >= 0; s--) {
        int64_t follow, before, t = lstm_step(l, s, &follow, &before), first = l->starts[t];
        float *grad = w->grad + first * stride;
        NAME(lstm_gates_back)(l, l->starts[t + 1] - first, follow, l->gates + first * stride, l->cells + before * size,
                              l->cells + first * size, l->out_grad + first * l->out_stride, w->state_grad, w->cell_grad, grad);
        NAME(lstm_product)(grad, stride, w->by_state, gates, 0, 0, w->state_grad, size, follow, size);
    }
    if (l->x_grad && l->kept) NAME(lstm_kept_input_grad)(l, w);
    else if (l->x_grad) {
        NAME(lstm_pack)(l->by_input, l->inputs, NULL, gates, l->inputs, PANEL_WIDE, w->by_input);
        NAME(lstm_product)(w->grad, stride, w->by_input, gates, l->adding, 1, l->x_grad, l->inputs, l->tokens, l->inputs);
    }
    if (l->by_input_grad) NAME(lstm_weights_back)(l, w);
}
