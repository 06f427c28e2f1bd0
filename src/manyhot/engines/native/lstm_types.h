/* The types of an LSTM layer; arithmetic in lstm.h, entry point in lstm_run.h. Included by engine.c. */

#define LSTM_DEPTH 256 /* terms of a product that are summed before the next block of rows */
#define LSTM_BLOCK 128 /* rows, or gates, whose factors stay in cache */
#define LSTM_PAD 16    /* rows of gates are not a power of two apart: they fall into different sets of the cache */

/* One direction of one layer over packed rows: step t of row r is token starts[t] + r, and longer rows come first.
 * The same fields in the same order as Layer in lstm.py. Gates are i, f, g, o. */
typedef struct {
    int64_t rows, steps, tokens, inputs, hidden, reverse, adding, out_stride, variant;
    const int64_t *starts; /* [steps + 1] */
    const float *x, *by_input, *by_state, *bias; /* [tokens, inputs], [4 hidden, inputs], [4 hidden, hidden], [4 hidden] */
    const int64_t *kept_starts; /* [rows + 1], NULL: all inputs of all rows, as they are */
    const int32_t *kept;        /* the inputs of each row that count; the others are taken for 0 */
    float *x_kept;              /* [at most tokens * inputs]: the kept inputs, row after row; the first call fills it */
    float *out, *gates, *cells; /* [tokens, out_stride], [tokens, 4 hidden + LSTM_PAD] after their nonlinearity, [tokens, hidden] */
    const float *out_grad;      /* [tokens, out_stride] */
    float *x_grad, *by_input_grad, *by_state_grad, *bias_grad; /* of x: added to it if `adding` */
    float *room; /* as many numbers as manyhot_lstm_room says */
    float scale; /* of the kept inputs */
} lstm_layer;

/* Where each part of the workspace is. */
typedef struct {
    float *by_input, *by_state; /* packed weights */
    float *grad, *state_grad, *cell_grad; /* of the gates [tokens, 4 hidden + LSTM_PAD], of states and cells [rows, hidden] */
    float *first, *second;      /* packed factors of a block */
    float *across, *turned;     /* the gradient of by_input, and those of the gates of a row, transposed */
    int32_t *tokens, *before;   /* tokens row after row; or those that have a token before them, and that token */
    int64_t *lengths;
} lstm_room;

/* How a tile reads its factors: rows one after the other; b by a list of rows, packed or not; a by a list of rows. */
enum { LSTM_PLAIN, LSTM_LISTED, LSTM_STRIDED, LSTM_ROWS };

/* The factors of a product. */
typedef struct {
    const float *a, *b;
    int64_t a_row, a_step, b_step, terms;
    const int32_t *list;
    int adding, ahead; /* results that are not in cache are fetched ahead, during the sums */
} lstm_factors;

static float *lstm_take(float *room, int64_t *used, int64_t count) {
    float *found = room ? room + *used : NULL;
    *used += (count + 31) / 16 * 16;
    return found;
}

/* Divide the workspace; returns how many numbers it has. */
static int64_t lstm_divide(const lstm_layer *l, lstm_room *w) {
    int64_t used = 0, gates = 4 * l->hidden, wide = l->inputs > l->hidden ? l->inputs : l->hidden;
    w->by_input = lstm_take(l->room, &used, (gates + LSTM_PAD) * (l->inputs + 32));
    w->by_state = lstm_take(l->room, &used, gates * (l->hidden + 32));
    w->tokens = (int32_t *)lstm_take(l->room, &used, l->tokens);
    w->before = (int32_t *)lstm_take(l->room, &used, l->tokens);
    w->lengths = (int64_t *)lstm_take(l->room, &used, 2 * l->rows);
    if (!l->out_grad) return used;
    w->grad = lstm_take(l->room, &used, l->tokens * (gates + LSTM_PAD));
    w->state_grad = lstm_take(l->room, &used, l->rows * l->hidden);
    w->cell_grad = lstm_take(l->room, &used, l->rows * l->hidden);
    w->first = lstm_take(l->room, &used, LSTM_DEPTH * gates);
    w->second = lstm_take(l->room, &used, (l->steps + LSTM_DEPTH) * (wide + LSTM_DEPTH));
    if (l->kept) w->across = lstm_take(l->room, &used, (gates + LSTM_PAD) * l->inputs);
    if (l->kept) w->turned = lstm_take(l->room, &used, gates * (l->steps + 32));
    return used;
}

/* Step number s in the direction of the layer: which step of the rows it is, how many rows have a step before it, and the first
 * token of that one. */
static int64_t lstm_step(const lstm_layer *l, int64_t s, int64_t *follow, int64_t *before) {
    int64_t t = l->reverse ? l->steps - 1 - s : s, other = l->reverse ? t + 1 : t - 1, none = s == 0;
    *before = none ? 0 : l->starts[other];
    *follow = none ? 0 : l->starts[(other > t ? other : t) + 1] - l->starts[other > t ? other : t];
    return t;
}
