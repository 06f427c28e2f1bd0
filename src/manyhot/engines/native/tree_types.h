/* The types of label trees; tree_node.h has the arithmetic, tree.h the rest. The structures have the same fields, in the same
 * order, as those in tree.py. */

#define MOST_PARTS (256 / LANES) /* parts of LANES children of a block, whose numbers fit in a byte */
#define AHEAD 4 /* features whose weights are requested before they are read */

enum { TREE_HINGE, TREE_ZLPR };

/* Some rows of a sparse matrix, and which of the children of a block are positive in each. */
typedef struct {
    int64_t num_rows, num_children, num_columns, epochs, variant, form;
    int64_t in_place; /* whether rows are read in place; otherwise they are copied, with features renumbered */
    const int64_t *offsets; /* the matrix */
    const int32_t *columns;
    const float *values;
    const int64_t *rows; /* [num_rows], row numbers in the matrix */
    const float *weights; /* [num_rows], or NULL */
    const int64_t *positive_offsets; /* [num_rows + 1] */
    const int32_t *positives;
    const int32_t *orders; /* [epochs, num_rows]: the order in which rows are visited, counted from 0 in this block */
    float *duals; /* workspace of zeros, one number per row and child, or NULL; the children are padded to LANES */
    double pos_cost, neg_cost, least; /* smaller weights are dropped */
    int64_t num_features, num_weights; /* of the result, which manyhot_tree_free frees */
    int32_t *features; /* in increasing order */
    int64_t *ends; /* the end of each feature's weights */
    uint8_t *children;
    float *kept, *bias;
} tree_block;

/* The rows of a block: a copy with renumbered features, or pointers into the matrix. */
typedef struct {
    int64_t num_features;
    int64_t *starts, *ends; /* [rows] */
    const int32_t *columns;
    const float *values;
    int32_t *own_columns; /* those of a copy, which must be freed */
    float *own_values;
    float *squares; /* the squared norm of each row, plus 1 for the bias */
} tree_rows;

/* One level of a tree: the children of node n start at child_start[n] and are divided into blocks of `block`. */
typedef struct {
    const int64_t *child_start, *block_start; /* [nodes + 1] */
    const int64_t *feature_start; /* [blocks + 1] */
    const int32_t *features;
    const int64_t *ends; /* [features]; the weights of the first one start at 0 */
    const uint8_t *children;
    const float *weights, *bias; /* bias: [children] */
} tree_level;

typedef struct {
    int64_t num_rows, num_columns, num_trees, num_labels, block, beam, k, variant; /* columns of the rows are less than num_columns */
    const int64_t *offsets;
    const int32_t *columns;
    const float *values;
    const int64_t *num_levels; /* [trees] */
    const tree_level *levels; /* those of all trees, from the root down */
    const int32_t *labels; /* [trees, labels]: the label at each place of the last level */
    double slope, power; /* slope of a node's score in its probability; power of that probability above the last level */
    float *scores; /* [rows, k], in decreasing order */
    int64_t *indices; /* [rows, k]; -1 after the last label */
} tree_search;
