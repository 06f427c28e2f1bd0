/* What a label tree asks the native engine for; tree_node.h has the arithmetic, tree.h the rest. The structures have the fields
 * of those in tree.py, in their order. */

enum { TREE_HINGE, TREE_ZLPR };

/* Some rows of a sparse matrix, and which of the children of a block are positive in each. */
typedef struct {
    int64_t num_rows, num_children, num_columns, epochs, variant, form;
    int64_t in_place; /* whether rows are read where they are; otherwise they are copied, with features of their own */
    const int64_t *offsets; /* the matrix */
    const int32_t *columns;
    const float *values;
    const int64_t *rows; /* [num_rows], of the matrix */
    const float *weights; /* [num_rows], or NULL */
    const int64_t *positive_offsets; /* [num_rows + 1] */
    const int32_t *positives;
    const int32_t *orders; /* [epochs, num_rows]: the rows in the order of the visits, counted from 0 in this block */
    float *duals; /* room for a number of each row and child, zeros, or NULL; the children padded to LANES */
    double pos_cost, neg_cost, least; /* smaller weights are dropped */
    int64_t num_features, num_weights; /* of the result, which manyhot_tree_free frees */
    int32_t *features; /* rising */
    int64_t *ends; /* the end of each feature's weights */
    uint8_t *children;
    float *kept, *bias;
} tree_block;

/* The rows of a block, as a copy with its own, dense numbers of features, or where they are. */
typedef struct {
    int64_t num_features;
    int64_t *starts, *ends; /* [rows] */
    const int32_t *columns;
    const float *values;
    int32_t *own_columns; /* of a copy, to be freed */
    float *own_values;
    float *squares; /* squares: of the length of each row, with 1 for the bias */
} tree_rows;

/* One level of a tree: the children of node n are those from child_start[n] on, cut into blocks of `block`. */
typedef struct {
    const int64_t *child_start, *block_start; /* [nodes + 1] */
    const int64_t *feature_start; /* [blocks + 1] */
    const int32_t *features;
    const int64_t *ends; /* [features]; the weights of the first one start at 0 */
    const uint8_t *children;
    const float *weights, *bias; /* bias: [children] */
} tree_level;

typedef struct {
    int64_t num_rows, num_trees, num_labels, block, beam, k;
    const int64_t *offsets;
    const int32_t *columns;
    const float *values;
    const int64_t *num_levels; /* [trees] */
    const tree_level *levels; /* of all trees, from the root on */
    const int32_t *labels; /* [trees, labels]: the label at each place of the last level */
    double slope, power; /* of a score in a node's probability; of the probability of nodes above the last level */
    float *scores; /* [rows, k], falling */
    int64_t *indices; /* [rows, k]; -1 past the last */
} tree_search;
