/* Written by scripts/generate_options.py from schema/enums.toml: change that. Include trafo.h. */
#ifndef TRAFO_GENERATED_OP_CONSTANTS_H
#define TRAFO_GENERATED_OP_CONSTANTS_H

/* Activations of feed-forward layers. */
#define TRAFO_RELU     0 /* max(x, 0). */
#define TRAFO_GELU     1 /* GELU, tanh form. */
#define TRAFO_SILU     2 /* x sigmoid(x), also called swish. */
#define TRAFO_GELU_ERF 3 /* GELU, exact: x Phi(x) with the error function. */

/* How two elements are compared. */
#define TRAFO_EQUAL         0 /* a == b. */
#define TRAFO_NOT_EQUAL     1 /* a != b. */
#define TRAFO_LESS          2 /* a < b. */
#define TRAFO_LESS_EQUAL    3 /* a <= b. */
#define TRAFO_GREATER       4 /* a > b. */
#define TRAFO_GREATER_EQUAL 5 /* a >= b. */

/* How the losses of rows become one. */
#define TRAFO_REDUCE_NONE 0 /* One loss for each row. */
#define TRAFO_REDUCE_SUM  1 /* Their sum. */
#define TRAFO_REDUCE_MEAN 2 /* Their sum over the sum of the weights that are not ignored. */

#endif /* TRAFO_GENERATED_OP_CONSTANTS_H */
