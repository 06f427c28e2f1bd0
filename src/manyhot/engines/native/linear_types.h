/* The types of linear heads. Included by engine.c. */

#define TILE_LABELS 512   /* most labels of a tile */
#define TILE_NUMBERS 65536 /* most scores, and most weights, of a tile: both stay in the second cache */
#define PANEL 32 /* two of the widest vectors */
#define MOST_SLABS 64
#define LEAST_SLABS 16
#define SHARE (1 << 20) /* smaller products finish before another thread wakes up */

/* The same fields in the same order as Head in linear_head.py. The scores of the first `kept` chunks are in `scores`, each
 * [rows, labels of the chunk]: SIDES writes them, GRADIENT reads them. Gradients may be NULL. */
typedef struct {
    int64_t size, stride, chunk, kept; /* hidden size, and the row stride of weight */
    const float *hidden, *weight, *bias; /* [rows, size], [labels, size], [labels] or NULL */
    float **scores, *by_hidden, *by_weight, *by_bias;
} linear_head;

/* How the labels are divided: a chunk into tiles, whose scores and weights stay in cache, and all tiles into slabs, one per work
 * item. Nothing of it depends on the number of threads. */
typedef struct {
    const job *j;
    const linear_head *h;
    int64_t tile, tiles, in_chunk, slabs; /* labels per tile, tiles, tiles per chunk, slabs */
    int64_t padded, stride; /* the hidden size in whole vectors; the row stride of a tile's scores */
    float *across;          /* hidden [rows, size] as [rows / PANEL, size, PANEL] */
    float *hidden;          /* hidden as [size / PANEL, rows, PANEL] */
    float *parts;                          /* the gradient of hidden by each slab, [slabs, rows, padded] */
    stats *stats;                          /* [slabs, rows] */
    rowstate *rows;                        /* the totals, for the gradient */
} linear_plan;

/* The workspace of a thread. */
typedef struct {
    scratch scratch;
    float *scores, *weight, *by_weight; /* those of a tile; the last two if rows are not whole vectors */
} linear_room;
