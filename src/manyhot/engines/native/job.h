/* The argument struct of the native engine, its working state, and small functions on them. Included by engine.c. */

/* Functions called inside loops must always be inlined. */
#define INLINE static inline __attribute__((always_inline))

#define CHUNK 2048
#define LANES 16
#define TILE 64          /* most rows that one thread finishes together */
#define MOST_THREADS 256
#define PART 4           /* chunks per work item when rows are split */
#define STASH (PART * CHUNK) /* 16-bit rows keep their exponentials up to this many labels; longer rows recompute them */
#define LARGEST 3.402823466e+38f
#define MUCH (1 << 22)   /* gradients of at least this many bytes get huge pages */

enum { F32, BF16, F16, F64, U8, I32, I64, SPARSE };
enum { SIDES, GRADIENT, FUSED, LABELWISE, RDROP, DIVERGENCE };
enum { SPLIT, JOINT, BCE, FOCUSED };
enum { HARD = 1, SOFT };

static const int64_t kind_size[] = {4, 2, 2, 8, 1, 4, 8, 0};

/* The same fields in the same order as Job in library.py. */
typedef struct {
    int64_t num_rows, num_labels, num_listed, threads, variant;
    int64_t task, form, x_kind, label_kind, first, x_stride, other_stride, label_stride, where_stride;
    const void *x, *other, *labels; /* other: the second prediction of RDROP and DIVERGENCE */
    const int64_t *indices, *offsets; /* listed indices of label 0 of this job are equal to `first` */
    const float *listed_values;
    const uint8_t *where;
    const float *pos_weight, *neg_weight;
    float pos_scale, neg_scale, smoothing, offset, scale, gamma_pos, gamma_neg, margin, alpha, link;
    const float *row_offsets, *row_scales, *grad_pos, *grad_neg;
    float *pos_shift, *pos_rest, *neg_shift, *neg_rest, *values, *offset_grad;
    void *grad, *other_grad;
} job;

typedef struct {
    float mp, mn;  /* a shift for positives and negatives: their maximum, or 0 */
    double sp, sn; /* the sums of e^{u - shift} */
    int32_t kind;          /* kind of the terms: HARD, SOFT (without a shift), or 0: no stashed terms to scale */
    int32_t stashed;       /* whether the terms are in the stash */
    int32_t simple;        /* for a pair: both predictions needed no shift, and their terms are HARD or SOFT */
    double apart;          /* for a pair: the divergence */
} stats;

typedef struct {
    float tp[TILE], tn[TILE], sp[TILE], sn[TILE]; /* maxima and sums of the two sides */
    float mp[TILE], mn[TILE], rp[TILE], rn[TILE]; /* their logs as shift and rest */
    float gp[TILE], gn[TILE], offset[TILE], scale[TILE], value[TILE], slope[TILE];
} rowstate;

typedef struct {
    const float *s; /* the scores: x, or a pointer into the input */
    int32_t hard;   /* whether the labels are in y, not in wp and wn */
    float x[CHUNK], wp[CHUNK], wn[CHUNK], out[CHUNK];
    uint32_t side[CHUNK];
    const uint8_t *y; /* hard labels: labels, or a pointer into the input */
    uint8_t labels[CHUNK];
} scratch;

/* The workspace of a thread; other_ belongs to the second prediction of a pair. */
typedef struct {
    scratch scratch, other_scratch;
    rowstate rows, other_rows;
    float *stash, *other_stash;
    stats *stats, *other_stats;
} worker;

INLINE uint32_t bits_of(float x) {
    uint32_t b;
    memcpy(&b, &x, 4);
    return b;
}

INLINE float from_bits(uint32_t b) {
    float x;
    memcpy(&x, &b, 4);
    return x;
}

typedef float four __attribute__((vector_size(16)));
typedef int32_t four_bits __attribute__((vector_size(16)));

INLINE four_bits spread_four(const uint8_t *p) { return (four_bits){p[0], p[1], p[2], p[3]}; }

/* If either is NaN the result is b, as with the SSE instruction. */
INLINE __attribute__((unused)) four least(four a, four b) {
    four_bits less = a < b;
    return (four)((less & (four_bits)a) | (~less & (four_bits)b));
}

INLINE float from_half(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16, rest = h & 0x7fffu, exponent = rest >> 10;
    uint32_t normal = (rest << 13) + (exponent == 31 ? 0x70000000u : 0x38000000u);
    uint32_t small = bits_of((float)(int32_t)rest * 5.9604644775390625e-8f);
    return from_bits(sign | (exponent == 0 ? small : normal));
}

INLINE uint16_t to_half(float x) {
    uint32_t b = bits_of(x), sign = b >> 16 & 0x8000u, rest = b & 0x7fffffffu;
    uint32_t normal = (rest + 0xfffu + (rest >> 13 & 1u) - 0x38000000u) >> 13;
    uint32_t small = bits_of(from_bits(rest) + 0.5f) - 0x3f000000u; /* the addition rounds at the last bit of a subnormal */
    uint32_t large = rest > 0x7f800000u ? 0x7e00u : 0x7c00u;
    return (uint16_t)(sign | (rest >= 0x477ff000u ? large : rest < 0x38800000u ? small : normal));
}

INLINE uint16_t to_bfloat(float x) {
    uint32_t b = bits_of(x), rounded = (b + 0x7fffu + (b >> 16 & 1u)) >> 16;
    return (uint16_t)((b & 0x7fffffffu) > 0x7f800000u ? (b >> 16 | 0x40u) : rounded);
}

/* Whether terms depend on hard labels only. Labelwise losses apply a scale per side themselves. */
INLINE int is_plain(const job *j) {
    return !j->pos_weight && !j->neg_weight && j->smoothing == 0.0f &&
           (j->task == LABELWISE || (j->pos_scale == 1.0f && j->neg_scale == 1.0f));
}

INLINE int is_alone(const job *j) { return j->task == LABELWISE || j->task == DIVERGENCE; }

/* The second prediction of a pair as a separate job. */
INLINE job second(const job *j) {
    job two = *j;
    two.x = j->other, two.x_stride = j->other_stride, two.grad = j->other_grad;
    return two;
}

INLINE int64_t chunk_count(const job *j) { return (j->num_labels + CHUNK - 1) / CHUNK; }

/* The first listed entry of a row in [start, stop), counted from j->first; *end is one past the last one. Invalid lists give
 * wrong entries, but never an out-of-bounds access. */
static int64_t first_listed(const job *j, int64_t r, int64_t start, int64_t stop, int64_t *end) {
    int64_t bounds[2] = {j->first + start, j->first + stop}, found[2];
    for (int side = 0; side < 2; side++) {
        int64_t low = j->offsets[r] < 0 ? 0 : j->offsets[r], high = j->offsets[r + 1];
        if (high > j->num_listed) high = j->num_listed;
        while (low < high) {
            int64_t middle = low + (high - low) / 2;
            if (j->indices[middle] < bounds[side]) low = middle + 1;
            else high = middle;
        }
        found[side] = low;
    }
    *end = found[1];
    return found[0];
}

/* The values of rows r to r + n of a pair, from both losses and the divergence of their chunks. */
static void pair_values(const job *j, int64_t r, int64_t n, const stats *st, const rowstate *one, const rowstate *two) {
    int64_t chunks = chunk_count(j);
    for (int64_t i = 0; i < n; i++) {
        double apart = 0.0;
        for (int64_t c = 0; c < chunks; c++) apart += st[i * chunks + c].apart;
        j->values[r + i] = (float)(0.5 * ((double)one->value[i] + two->value[i]) + j->alpha * apart);
    }
}
